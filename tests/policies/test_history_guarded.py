"""history-guarded: bounded first runs, no trap, and the rules where everything is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Job, Result, Run, TableTruth, Workload
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import full, workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload

TWO = Cluster.parse("1x1cpu+1gpu")


def learned(w: Workload, history: MemoryHistory, policy: str = "history-guarded") -> Result:
    """One run that is recorded."""
    model = make_model("least-squares", history)
    result = simulate(w, TWO, load_policy(policy).policy, model, observe=history)
    check_schedule(result, w)
    return result


def where(result: Result) -> dict[str, str]:
    return {r.job.id: r.implementation.name for r in result.records if r.implementation is not None}


def of_apps(times: list[tuple[str, float, float]]) -> Workload:
    """Jobs APP-1, APP-2 … of these apps with (app, cpu seconds, gpu seconds), all at t = 0."""
    plain = workload([(app, {"cpu": 1.0, "gpu": 1.0}) for app in dict.fromkeys(app for app, _, _ in times)])
    apps = {job.app.name: job for job in plain.jobs}
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for app, cpu, gpu in times:
        one = apps[app]
        number = sum(job.app is one.app for job in jobs) + 1
        jobs.append(Job(f"{app}-{number}", one.app, one.choices, index=len(jobs), inputs={"n": gpu}))
        table[jobs[-1].id, "cpu", 1] = cpu
        table[jobs[-1].id, "gpu", 1] = gpu
    return Workload("apps", jobs, TableTruth(table))


def know(history: MemoryHistory, app: str, kind: str, seconds: float, n: float | None = None) -> None:
    gpus = 1.0 if kind == "gpu" else 0.0
    inputs = {"n": seconds if n is None else n}
    history.record(Run(app, kind, TWO.device_classes(kind)[0], 1, int(kind == "cpu"), gpus, inputs, seconds))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=15))
@settings(max_examples=full(500, 80), deadline=None, derandomize=True)
def test_a_first_run_is_gpu_only_where_every_app_is_new(times: list[tuple[int, int]]) -> None:
    w = of_apps([(f"a{i}", float(c), float(g)) for i, (c, g) in enumerate(times)])
    result = learned(w, MemoryHistory())
    assert set(where(result).values()) == {"gpu"}
    assert result.makespan == pytest.approx(sum(g for _, g in times))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=15))
@settings(max_examples=full(500, 80), deadline=None, derandomize=True)
def test_with_everything_known_it_decides_as_history_does(times: list[tuple[int, int]]) -> None:
    w = of_apps([(f"a{i}", float(c), float(g)) for i, (c, g) in enumerate(times)])
    plain, guarded = (
        simulate(w, TWO, load_policy(policy).policy, PerfectModel(w.truth))
        for policy in ("history", "history-guarded")
    )
    assert where(plain) == where(guarded)
    assert plain.makespan == guarded.makespan


def test_it_explores_behind_work_that_takes_longer_than_it_fears() -> None:
    history = MemoryHistory()
    know(history, "a", "gpu", 1.0)
    know(history, "long", "gpu", 9.0)
    # The GPU is busy with 9 s, eight times the 1 s that "a" takes on the GPU: "a" tries the CPU.
    assert where(learned(of_apps([("long", 90.0, 9.0), ("a", 20.0, 1.0)]), history))["a-1"] == "cpu"


def test_it_postpones_exploration_that_nothing_hides() -> None:
    history = MemoryHistory()
    know(history, "a", "gpu", 1.0)
    know(history, "short", "gpu", 7.0)
    assert where(learned(of_apps([("short", 90.0, 7.0), ("a", 20.0, 1.0)]), history))["a-1"] == "gpu"


def test_the_cheapest_waiting_job_of_an_app_explores() -> None:
    history = MemoryHistory()
    know(history, "a", "gpu", 3.0)
    know(history, "a", "gpu", 1.0)
    know(history, "long", "gpu", 40.0)
    found = where(learned(of_apps([("long", 90.0, 40.0), ("a", 60.0, 3.0), ("a", 20.0, 1.0)]), history))
    assert found == {"long-1": "gpu", "a-1": "gpu", "a-2": "cpu"}


def test_one_job_of_an_app_explores_at_a_time() -> None:
    history = MemoryHistory()
    know(history, "a", "gpu", 1.0)
    know(history, "long", "gpu", 100.0)
    w = of_apps([*[("long", 900.0, 100.0)] * 2, *[("a", 30.0, 1.0)] * 2])
    model = make_model("least-squares", history)
    cluster = Cluster.parse("2x1cpu+1gpu")
    result = simulate(w, cluster, load_policy("history-guarded").policy, model, observe=history)
    starts = {r.job.id: r.start for r in result.records if where(result)[r.job.id] == "cpu"}
    assert starts["a-1"] == 0.0
    assert starts.get("a-2", 30.0) >= 30.0  # a CPU is idle all the time, but how long "a" takes is not known


def test_nothing_queues_behind_a_job_that_explores() -> None:
    """How long an exploring job holds the CPU is not known: what is known goes to the GPU."""
    history = MemoryHistory()
    know(history, "a", "gpu", 1.0)
    know(history, "long", "gpu", 9.0)
    know(history, "b", "gpu", 2.0)
    know(history, "b", "cpu", 1.0, n=2.0)
    found = where(learned(of_apps([("long", 90.0, 9.0), ("a", 50.0, 1.0), ("b", 1.0, 2.0)]), history))
    assert found == {"long-1": "gpu", "a-1": "cpu", "b-1": "gpu"}


@pytest.mark.parametrize(("cpu", "gpu"), [(1.0, 10.0), (10.0, 1.0), (1.0, 1.0)])
def test_an_app_that_comes_alone_is_tried_everywhere_in_the_end(cpu: float, gpu: float) -> None:
    history = MemoryHistory()
    w = of_apps([("alone", cpu, gpu)])
    used = [where(learned(w, history))["alone-1"] for _ in range(10)]
    assert used[0] == "gpu"
    assert used.count("cpu") == (1 if cpu > gpu else pytest.approx(3, abs=2))
    assert used[-1] == ("cpu" if cpu < gpu else used[-1])
    assert len(set(used)) == 2


def test_in_one_fixed_order_no_app_stays_untried_on_its_better_device() -> None:
    """The trap of the plain rules: "a" starts on the CPU at once and is never tried on the GPU."""
    w = of_apps([("first", 5.0, 1.0), ("a", 20.0, 2.0), ("b", 4.0, 3.0)])
    plain, guarded = MemoryHistory(), MemoryHistory()
    for _ in range(12):
        learned(w, plain, "history")
        learned(w, guarded)
    gpu = TWO.device_classes("gpu")[0]
    assert plain.count("a", "gpu", gpu) == 0
    assert guarded.count("a", "gpu", gpu) > 0
    for app in ("first", "a", "b"):
        assert guarded.count(app, "cpu", TWO.device_classes("cpu")[0]) > 0


def test_the_trap_of_a_history_that_the_plain_rules_have_made() -> None:
    """Method notes: in table order "history" never tries BitonicSort on the GPU; the guarded policy does."""
    table = load_workload("published:gregg-table2", TWO)
    history = MemoryHistory()
    for _ in range(10):
        learned(table, history, "history")
    gpu = TWO.device_classes("gpu")[0]
    assert history.count("BitonicSort", "gpu", gpu) == 0
    spans = [learned(table, history).makespan for _ in range(5)]
    assert history.count("BitonicSort", "gpu", gpu) > 0
    assert spans[-1] < 3.4


def test_a_better_cpu_that_is_always_busy_when_the_job_comes_is_tried_in_the_end() -> None:
    """The CPU holds "c" for 2 s whenever "a" is looked at; "a" starts at once on the idle GPU."""
    w = of_apps([("c", 2.0, 2.5), ("a", 1.0, 9.0)])
    history = MemoryHistory()
    know(history, "c", "cpu", 2.0, n=2.5)
    know(history, "c", "gpu", 2.5)
    know(history, "a", "gpu", 9.0)
    used = [where(learned(w, history))["a-1"] for _ in range(18)]
    assert used[0] == "gpu"
    assert used[-1] == "cpu"


def test_several_gpus_share_what_is_new() -> None:
    w = of_apps([(f"a{i}", 9.0, 2.0) for i in range(4)])
    history = MemoryHistory()
    result = simulate(
        w,
        Cluster.parse("1x1cpu+2gpu"),
        load_policy("history-guarded").policy,
        make_model("least-squares", history),
        observe=history,
    )
    assert result.makespan == pytest.approx(4.0)


def test_caution_below_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot be made: caution is 0[.]5, expected 1 or more"):
        load_policy("history-guarded?caution=0.5")


def test_what_waits_is_thought_about_again_as_apps_become_known() -> None:
    """All jobs come at once and nothing is known: all are sent to the GPU, and some leave its FIFO later."""
    rows = [row for _ in range(5) for row in [("a", 4.0, 3.0), ("b", 9.0, 1.0), ("c", 2.0, 5.0)]]
    guarded = learned(of_apps(rows), MemoryHistory())
    gpu_only = learned(of_apps(rows), MemoryHistory(), "gpu-only")
    plain = learned(of_apps(rows), MemoryHistory(), "history")
    assert gpu_only.makespan == 45.0
    assert guarded.makespan <= plain.makespan < gpu_only.makespan
    first = [r for r in guarded.records if r.job.id in ("a-1", "b-1", "c-1")]
    assert all(where(guarded)[r.job.id] == "gpu" for r in first)


def test_a_job_that_is_best_where_it_waits_stays_there() -> None:
    """The CPU is idle, and would take 9 s; the job waits 4 s for the GPU, and 1 s there."""
    history = MemoryHistory()
    for app, cpu, gpu in (("a", 9.0, 1.0), ("b", 2.0, 4.0)):
        know(history, app, "gpu", gpu)
        know(history, app, "cpu", cpu, n=gpu)
    result = learned(of_apps([("b", 2.0, 4.0), *[("a", 9.0, 1.0)] * 5]), history)
    assert where(result) == {"b-1": "cpu", **{f"a-{n}": "gpu" for n in range(1, 6)}}
