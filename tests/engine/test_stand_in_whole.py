"""The compiled stand-in gives what the engine gives where jobs take whole nodes: records, metrics, rows."""

from __future__ import annotations

import pickle
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twins_compared import check_same, check_same_reports

from dovetail.cli.main import status_of
from dovetail.interfaces import Policy
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Dependency,
    Implementation,
    Job,
    Record,
    Request,
    Result,
    TableTruth,
    Workload,
)
from dovetail.model.tables import RecordTable
from dovetail.native.library import load_library
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.sjf import Sjf
from dovetail.report.evalys_csv import to_evalys_csv
from dovetail.report.json_form import text_of, to_json
from dovetail.report.metrics import later_than
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload
from dovetail.workloads.swf import swf_cluster, swf_workload
from dovetail.workloads.swf_arrays import parse_swf, read_swf_arrays

pytestmark = pytest.mark.skipif(
    load_library() is None, reason="no C compiler was here when the package was built"
)
TRACES = Path(__file__).parents[3] / "shared" / "traces"
POLICIES: list[Policy] = [
    Easy(),
    Easy(order="sjf"),
    Easy(order="largest"),
    Easy(order="f1"),
    Easy(order="saf"),
    Easy(order="sqrtsaf"),
    Easy(placement="spread"),
    Fcfs(),
    Fcfs(skip=2),
]
CONSERVATIVE: list[Policy] = [
    Conservative(),
    Conservative(order="sjf"),
    Conservative(order="largest"),
    Conservative(order="f1"),
    Conservative(order="saf", placement="spread"),
    Conservative(order="sqrtsaf"),
]


def rigid_workload(rng: np.random.Generator, nodes: int) -> Workload:
    """Jobs with ties, without walltimes, killed ones, long ones, of no length, with priorities."""
    count = int(rng.integers(1, 90))
    implementation = Implementation("cpu", "cpu", Request(1, -1))
    app = App("rigid", (implementation,))
    forms: dict[int, tuple[Choice, ...]] = {}
    widths = np.minimum(nodes, np.ceil(2 ** rng.uniform(0, np.log2(nodes) + 1, count)).astype(int))
    submits = np.sort(rng.integers(0, 1 + int(rng.integers(1, 400)), count)).astype(float)
    if rng.random() < 0.3:
        submits += np.sort(rng.random(count))
    runs = rng.integers(0, 60, count).astype(float)
    walltimes = np.ceil(runs * rng.uniform(0.5, 4, count))
    places = rng.permutation(count) if rng.random() < 0.2 else np.arange(count)
    ranked = rng.random() < 0.3
    jobs = []
    for i in range(count):
        width = int(widths[i])
        cpus = -1 if rng.random() < 0.5 else 2
        form = forms.setdefault(
            width + 1000 * cpus, (Choice(implementation, Request(width, cpus, memory=8)),)
        )
        jobs.append(
            Job(
                f"j{i}",
                app,
                form,
                int(places[i]),
                float(submits[i]),
                nodes=width,
                walltime=None if rng.random() < 0.2 or walltimes[i] <= 0 else float(walltimes[i]),
                priority=int(rng.integers(0, 3)) if ranked else 0,
                user=None if rng.random() < 0.1 else f"u{rng.integers(0, 5)}",
            )
        )
    fixed = {f"j{i}": float(run) for i, run in enumerate(runs)}
    return Workload("random", jobs, TableTruth(fixed=fixed))


def bounded_workload(rng: np.random.Generator, nodes: int) -> Workload:
    """The same with a bound above zero for each: of some the true time, else a walltime."""
    workload = rigid_workload(rng, nodes)
    assert isinstance(workload.truth, TableTruth)
    fixed = dict(workload.truth.fixed)
    close = rng.random() < 0.3  # a queue of like jobs that come in haste
    jobs = []
    for job in workload.jobs:
        if job.walltime is None:
            fixed[job.id] = max(1.0, fixed[job.id])
        walltime = 60.0 if close and job.walltime is not None else job.walltime
        jobs.append(
            replace(job, walltime=walltime, submit_time=job.submit_time // 20 if close else job.submit_time)
        )
    return Workload("bounded", jobs, TableTruth(fixed=fixed))


def both(workload: Workload, cluster: Cluster, policy: Policy, **options: Any) -> tuple[Result, Result]:
    """The result of the twin, which must model it, and of the engine, which makes every job and record."""
    runtimes = PerfectModel(workload.truth)
    listed = replace(workload, jobs=list(workload.jobs))
    asked = SimulationOptions(**options)
    found = simulate(workload, cluster, policy, runtimes, options=replace(asked, compiled="auto"))
    assert isinstance(found.records, RecordTable)
    return found, simulate(listed, cluster, policy, runtimes, options=asked)


@pytest.mark.parametrize("block", range(4))
def test_random_instances(block: int) -> None:
    for seed in range(block, full(6_000, 48), 4):
        rng = np.random.Generator(np.random.PCG64(seed))
        nodes = int(rng.integers(1, 12)) if rng.random() < 0.5 else int(rng.integers(12, 200))
        workload = rigid_workload(rng, nodes)
        options: dict[str, Any] = {"overrun": ("kill", "run")[seed % 3 == 0]}
        if rng.random() < 0.3:
            options["default_walltime"] = 30.0
        policy = POLICIES[seed // 4 % len(POLICIES)]
        twin, engine = both(workload, Cluster.uniform(nodes, 2), policy, **options)
        check_same(twin, engine)
        check_schedule(twin, workload)
        if seed % 8 < 2:
            check_same_reports(twin, engine)


@pytest.mark.parametrize("block", range(4))
def test_random_instances_of_conservative_backfilling(block: int) -> None:
    for seed in range(block, full(6_000, 48), 4):
        rng = np.random.Generator(np.random.PCG64([seed, 1]))
        nodes = int(rng.integers(1, 12)) if rng.random() < 0.5 else int(rng.integers(12, 200))
        workload = bounded_workload(rng, nodes)
        options: dict[str, Any] = {"default_walltime": 30.0} if rng.random() < 0.3 else {}
        policy = CONSERVATIVE[seed // 4 % len(CONSERVATIVE)]
        twin, engine = both(workload, Cluster.uniform(nodes, 2), policy, **options)
        check_same(twin, engine)
        check_schedule(twin, workload)
        assert twin.promises_broken == 0
        if seed % 8 < 2:
            check_same_reports(twin, engine)


def test_many_jobs_that_run_at_once_and_end_by_the_same_bounds() -> None:
    """More running jobs than a block of releases holds, and many equal bounds."""
    rng = np.random.Generator(np.random.PCG64(7))
    runs = rng.integers(1, 500, 3000).astype(float)
    widths = rng.choice([1, 1, 1, 1, 2, 300], 3000)
    implementation = Implementation("cpu", "cpu", Request(1, 1))
    app = App("narrow", (implementation,))
    forms = {width: (Choice(implementation, Request(width, 1)),) for width in (1, 2, 300)}
    jobs = [
        Job(f"j{i}", app, forms[width], i, float(i // 4), nodes=width, walltime=float(100 * -(-run // 100)))
        for i, (width, run) in enumerate(zip(widths.tolist(), runs.tolist(), strict=True))
    ]
    fixed = {job.id: float(run) for job, run in zip(jobs, runs, strict=True)}
    workload = Workload("narrow", jobs, TableTruth(fixed=fixed))
    for policy in [*POLICIES, *CONSERVATIVE][:: full(1, 4)]:  # others: `test_random_instances`
        check_same(*both(workload, Cluster.uniform(600, 1), policy))


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces")
@pytest.mark.parametrize("policy", [*POLICIES[:6], *CONSERVATIVE], ids=str)
def test_sample_trace(policy: Policy) -> None:
    arrays = read_swf_arrays(TRACES / "hpc2n-2002-2.1.first3170.swf.gz")
    cluster = swf_cluster(arrays)
    assert cluster is not None
    workload = swf_workload(arrays, cluster)
    twin, engine = both(workload, cluster, policy)
    check_same(twin, engine)
    check_same_reports(twin, engine)
    assert later_than(twin, engine) == {}


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces")
@pytest.mark.parametrize(
    "name", ["kth-sp2-1996-2.1-cln.first8000", "lublin-256", "theta-2022.first8000"], ids=lambda n: n[:6]
)
def test_other_sample_traces_under_conservative_backfilling(name: str) -> None:
    arrays = read_swf_arrays(TRACES / f"{name}.swf.gz")
    cluster = swf_cluster(arrays)
    assert cluster is not None
    check_same(*both(swf_workload(arrays, cluster), cluster, Conservative()))


def test_a_result_can_be_sent_between_processes() -> None:
    text = b"".join(
        b"%d %d -1 %d 2 -1 -1 2 20 -1 1 3 1 -1 1 1 -1 -1\n" % (i, i, 5 + i % 7) for i in range(50)
    )
    cluster = Cluster.uniform(4, 1)
    workload = swf_workload(parse_swf(text, "here"), cluster)
    twin, engine = both(workload, cluster, Easy())
    sent = pickle.loads(pickle.dumps(twin))
    assert text_of(to_json(sent)) == text_of(to_json(twin)) == text_of(to_json(engine))


def _timeless(workload: Workload) -> Workload:
    """One job of no length, and nothing else is known of it."""
    jobs = [replace(job, walltime=None) for job in workload.jobs]
    return replace(workload, jobs=jobs, truth=TableTruth(fixed={job.id: 0.0 for job in jobs}))


def _of_two_models(policy: Policy) -> Result:
    """On nodes that are alike but for the model of their CPUs."""
    one = Cluster.uniform(4, 2)
    nodes = [replace(node, cpu_model="old" if n < 2 else "new") for n, node in enumerate(one.nodes)]
    workload = bounded_workload(np.random.Generator(np.random.PCG64(3)), 4)
    return simulate(
        workload,
        Cluster(tuple(nodes)),
        policy,
        PerfectModel(workload.truth),
        options=SimulationOptions(compiled="auto"),
    )


@pytest.mark.parametrize("policy", [Fcfs(), Conservative()], ids=str)
def test_each_job_is_on_record_with_the_model_that_it_ran_on(policy: Policy) -> None:
    for record in _of_two_models(policy).records:
        assert record.allocation is not None
        assert record.device_class is not None
        assert record.device_class.model == ("old" if record.allocation.first_node < 2 else "new")


def _chained(workload: Workload) -> Workload:
    jobs = list(workload.jobs)
    return replace(
        workload, jobs=[*jobs[:-1], replace(jobs[-1], depends=(Dependency("afterany", jobs[0].id),))]
    )


@pytest.mark.parametrize(
    ("change", "cluster", "policy", "options"),
    [
        (_chained, Cluster.uniform(300, 2), Easy(), {}),
        (lambda w: w, Cluster.uniform(300, 2, 1), Easy(), {}),
        (lambda w: w, Cluster.uniform(300, 4), Easy(), {}),
        (lambda w: w, Cluster.uniform(300, 2), Easy(walltime="learned"), {}),
        (lambda w: w, Cluster.uniform(300, 2), Sjf(), {}),
        (_timeless, Cluster.uniform(300, 2), Conservative(), {}),
        (lambda w: w, Cluster.uniform(300, 2), Conservative(), {"overrun": "run"}),
        (lambda w: w, Cluster.uniform(300, 2), Conservative(walltime="learned"), {}),
        (lambda w: w, Cluster.uniform(300, 2), Easy(), {"keep_considered": True}),
        (lambda w: w, Cluster.uniform(300, 2), Easy(), {"validate": True}),
    ],
    ids=[
        "dependencies",
        "devices",
        "part-of-a-node",
        "learned",
        "another-policy",
        "no-length",
        "overrun",
        "learned-conservative",
        "considered",
        "validate",
    ],
)
def test_what_is_not_modelled_is_the_engines(
    change: Any, cluster: Cluster, policy: Policy, options: Any
) -> None:
    workload = change(rigid_workload(np.random.Generator(np.random.PCG64(3)), 20))
    found = simulate(
        workload,
        cluster,
        policy,
        PerfectModel(workload.truth),
        options=SimulationOptions(compiled="auto", **options),
    )
    assert isinstance(found.records, list)


def test_off_means_the_engine(tmp_path: Path) -> None:
    import dovetail

    lines = [f"{i} {i} -1 {5 + i % 7} 2 -1 -1 2 20 -1 1 3 1 -1 1 1 -1 -1" for i in range(10_001)]
    (tmp_path / "log.swf").write_text("\n".join(lines))
    compiled = dovetail.simulate(tmp_path / "log.swf", cluster="4x1cpu", policy="easy")
    engine = dovetail.simulate(tmp_path / "log.swf", cluster="4x1cpu", policy="easy", compiled="off")
    assert isinstance(compiled.result.records, RecordTable)
    to_evalys_csv(compiled.result)
    text_of(to_json(compiled.result))
    assert "made" not in vars(compiled.result.records.jobs)  # nobody asked for all jobs as objects
    assert compiled.jobs == engine.jobs
    assert compiled.metrics["decision_seconds_mean"] is None
    assert engine.metrics["decision_seconds_mean"] is not None


def test_a_page_of_columns_makes_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command writes of a large log comes from columns: its records take longer than all else."""
    lines = [f"{i} {i} -1 {5 + i % 7} 2 -1 -1 2 20 -1 1 3 1 -1 1 1 -1 -1" for i in range(10_001)]
    (tmp_path / "log.swf").write_text("\n".join(lines))
    made: list[int] = []
    whole = RecordTable._make_record

    def counted(table: RecordTable, place: int, job: Job) -> Record:
        made.append(place)
        return whole(table, place, job)

    monkeypatch.setattr(RecordTable, "_make_record", counted)
    log = [str(tmp_path / "log.swf"), "--cluster", "4x1cpu", "--policy", "easy"]
    assert status_of(["simulate", *log, "--csv", str(tmp_path / "jobs.csv")]) == 0
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) == 10_002
    assert len(made) < 100


def test_workload_columns_give_the_jobs_that_were_read(tmp_path: Path) -> None:
    workload = load_workload("synthetic:rigid?jobs=40&nodes=8", Cluster.uniform(8, 1))
    table = workload.table
    assert table is not None
    assert table[3].id == list(table.iterate_fleeting())[3].id == workload.jobs[3].id
    assert [job.id for job in table[5:9]] == [job.id for job in list(table)[5:9]]
    assert table[2] is table[2]  # once all were made, they stay
    assert workload.truth.seconds(table[2], table[2].choices[0].implementation, Request()) == table.seconds[2]


def test_an_interrupt_waits_until_the_compiled_code_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_library()
    assert found is not None
    returned = []

    class Interrupted:
        def dovetail_simulate(self, simulation: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            returned.append(int(found.dovetail_simulate(simulation)))
            return returned[-1]

    monkeypatch.setattr("dovetail.native.rigid.load_library", Interrupted)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    try:
        workload = rigid_workload(np.random.Generator(np.random.PCG64(1)), 4)
        with pytest.raises(KeyboardInterrupt):
            both(workload, Cluster.uniform(4, 2), Fcfs())
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert returned == [0]
