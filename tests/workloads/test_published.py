import pytest

from dovetail.errors import InputError
from dovetail.model import WHOLE_POOL
from dovetail.workloads.load import load_workload
from dovetail.workloads.published import describe_published, load_published, takes_seed


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("published:", "unknown published workload ''"),
        ("published:gregg", "unknown published workload 'gregg', expected one of gregg-identical"),
        ("published:gregg-table", "did you mean 'gregg-table2'?"),
        ("published:gregg-table2?onl=gpu-faster", "unknown option 'onl', expected one of only"),
        ("published:gregg-table2?only=cpu", "only: found 'cpu', expected 'gpu-faster'"),
        ("published:gregg-table2?gpu_cost=-1", "gpu_cost: found '-1'"),
        ("published:gregg-table2?gpu_cost=nan", "gpu_cost: found 'nan'"),
        ("published:gregg-table2?gpu_cost=1e13", "gpu_cost: found '1e13'"),
        ("published:gregg-table2?gpu_cost=", "gpu_cost: found ''"),
        ("published:gregg-table2?gpu_cost=1&gpu_cost=2", "the option 'gpu_cost' twice"),
        ("published:gregg-identical?jobs=0", "jobs: found 0"),
        ("published:gregg-identical?speedup=0", "speedup: found 0"),
        ("published:ravi-single?mix=x", "mix: found 'x', expected one of uniform, cpu75, gpu75"),
        ("published:ravi-single?pool=Z", "pool: found 'Z'"),
        ("published:ravi-single?jobs=0", "jobs: found 0"),
        ("published:ravi-single?jobs=2.5", "jobs: found '2.5', expected a whole number"),
        ("published:ravi-single?jobs=10000000", "jobs: found 10000000"),
        ("published:ravi-single?seed=-1", "seed: found '-1'"),
        ("published:ravi-single-table?jobs=0", "jobs: found 0"),
        ("published:ravi-multi?mix=x", "mix: found 'x'"),
        ("published:ravi-multi?batch=0", "batch: found 0"),
        ("published:ravi-multi?mix=25sj75lj&reading=size3", "reading: found 'size3', expected for 25sj75lj"),
        ("published:ravi-multi-table?interval=inf", "interval: found 'inf'"),
    ],
)
def test_bad_names_and_options_are_answered_by_one_sentence(spec: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_workload(spec)
    message = str(caught.value)
    assert message.startswith(spec)
    assert expected in message
    assert "\n" not in message


def test_every_published_workload_is_described() -> None:
    described = {name: (line, options) for name, line, options in describe_published()}
    assert set(described) == {
        "gregg-table2", "gregg-identical", "ravi-single", "ravi-single-table", "ravi-multi",
        "ravi-multi-table", "markthub",
    }  # fmt: skip
    assert all(
        line.startswith(("Gregg 2011", "Markthub 2015", "Ravi 2012")) for line, _ in described.values()
    )
    assert described["ravi-single"][1] == {"mix": "uniform", "jobs": 24, "pool": "B", "seed": 1}


def test_ten_identical_applications() -> None:
    workload = load_published("published:gregg-identical")
    assert [job.id for job in workload.jobs] == [f"identical-{i}" for i in range(1, 11)]
    for job in workload.jobs:
        seconds = {
            c.implementation.kind: workload.truth.seconds(job, c.implementation, c.request)
            for c in job.choices
        }
        assert seconds == {"cpu": 5.0, "gpu": 1.0}
    assert len(load_published("published:gregg-identical?jobs=3&speedup=2").jobs) == 3


def test_a_seed_from_outside_wins() -> None:
    spec = "published:ravi-single?seed=7"
    assert takes_seed(spec)
    assert not takes_seed("published:gregg-table2")
    ids = [job.id for job in load_published(spec, seed=8).jobs]
    assert ids == [job.id for job in load_published("published:ravi-single?seed=8").jobs]
    assert ids != [job.id for job in load_published(spec).jobs]


def test_gregg_table_2() -> None:
    """The sums of history.md: 4227.6 ms on the GPU, 22407.2 on the CPU, 4054.0 for the thirteen."""
    workload = load_workload("published:gregg-table2")
    assert workload.name == "published:gregg-table2"
    assert [job.id for job in workload.jobs][:3] == ["BinarySearch", "BitonicSort", "FastWalshTrans"]
    assert len(workload.jobs) == 16
    assert {job.submit_time for job in workload.jobs} == {0.0}

    def total(jobs: list[str], kind: str) -> float:
        found = 0.0
        for job in workload.jobs:
            form = job.app.implementation(kind)
            seconds = workload.truth.seconds(job, form, form.request)
            assert seconds is not None
            found += seconds if job.id in jobs else 0.0
        return found

    everything = [job.id for job in workload.jobs]
    assert total(everything, "gpu") == pytest.approx(4.2276, abs=1e-12)
    assert total(everything, "cpu") == pytest.approx(22.4072, abs=1e-12)
    thirteen = [job.id for job in load_workload("published:gregg-table2?only=gpu-faster").jobs]
    assert set(everything) - set(thirteen) == {"BinarySearch", "FFT", "PrefixSum"}
    assert total(thirteen, "gpu") == pytest.approx(4.054, abs=1e-12)
    assert [i.name for i in workload.jobs[0].app.implementations] == ["cpu", "gpu"]
    assert workload.jobs[0].choices[0].request.cpus == WHOLE_POOL


def test_gregg_costs_are_added_to_every_application() -> None:
    workload = load_workload("published:gregg-table2?gpu_cost=0.46&cpu_cost=0.56")
    job = workload.jobs[0]
    seconds = [workload.truth.seconds(job, c.implementation, c.request) for c in job.choices]
    assert seconds == pytest.approx([0.564, 0.52])
