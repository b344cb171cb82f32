"""Laws of CPU time and the slowdown of late: what it is, when it is used, and that it forgets nothing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_up_apps import CPU, run

from dovetail.history import MemoryHistory, SqliteHistory
from dovetail.model import DeviceClass, Run, Usage
from dovetail.runtimes.base import Query
from dovetail.runtimes.drift import BLOCK, WINDOW, Drift, cpu_time
from dovetail.runtimes.learned import LearnedModel, milestone_of

REQUEST = (1, -1, 0.0)


class RunTimesAlone(LearnedModel):
    by_cpu_time = False


def timed(wall: float, cpu: float | None, n: float = 1.0, app: str = "mm", **more: object) -> Run:
    usage = None if cpu is None else Usage(cpu, 1)
    return run(wall, {"n": n}, app=app, usage=usage, **more)


def slowdowns(runs: list[Run]) -> Drift:
    lately = Drift(MemoryHistory(runs))
    lately.take_in_runs()
    return lately


def test_the_slowdown_is_what_runs_took_beyond_what_their_apps_take() -> None:
    calm = [timed(1.1, 1.0, app=app) for app in ("a", "b", "a", "b", "a", "b")]
    assert slowdowns(calm).slowdown(CPU) == pytest.approx(0.0, abs=1e-9)
    # Threads on two cores: half of the CPU time is the app's own ratio, not a fast machine.
    threads = [timed(0.5, 1.0, app="t") for _ in range(4)]
    assert slowdowns([*calm, *threads]).slowdown(CPU) == pytest.approx(0.0, abs=1e-9)
    busy = [timed(3.3, 1.0, app=app) for app in ("a", "b", "a", "b", "a")]
    assert slowdowns([*calm, *busy]).slowdown(CPU) == pytest.approx(math.log(3), rel=0.01)
    assert slowdowns([*calm, *busy, *calm]).slowdown(CPU) == pytest.approx(0.0, abs=0.01)


def test_two_odd_runs_of_five_say_nothing() -> None:
    calm = [timed(1.0, 1.0) for _ in range(6)]
    odd = [timed(9.0, 1.0), timed(1.0, 1.0), timed(9.0, 1.0)]
    assert slowdowns([*calm, *odd]).slowdown(CPU) == 0.0


def test_other_devices_are_other_machines() -> None:
    other = DeviceClass("cpu", "other")
    runs = [timed(1.0, 1.0, device=device) for device in (CPU, other) for _ in range(6)]
    runs += [timed(2.0, 1.0, device=other) for _ in range(5)]
    lately = slowdowns(runs)
    assert lately.slowdown(CPU) == 0.0
    assert lately.slowdown(other) == pytest.approx(math.log(2))
    assert lately.slowdown(DeviceClass("gpu")) == 0.0


def test_runs_whose_cpu_time_says_nothing_are_passed_over() -> None:
    assert cpu_time(timed(1.0, None)) is None
    assert cpu_time(timed(1.0, 1e-4)) is None
    assert cpu_time(timed(1.0, 0.5, nodes=2)) is None
    assert cpu_time(timed(1.0, 0.5)) == 0.5
    assert slowdowns([timed(1.0, None), timed(5.0, None)]).slowdown(CPU) == 0.0


def test_what_was_known_before_a_run_is_kept_with_it() -> None:
    runs = [timed(w, 1.0, app="a") for w in (1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0)]
    found = slowdowns(runs).runs("a", "cpu", CPU, REQUEST)
    assert [one.run for one in found] == runs
    assert [round(one.before, 3) for one in found[:3]] == [0.0, 0.0, 0.0]
    assert found[-1].before == pytest.approx(math.log(2))


@pytest.mark.parametrize("every", [1, 3, 50])
def test_a_look_now_and_then_sees_what_one_look_sees(every: int) -> None:
    """Also where the window has moved on several times."""
    rng = np.random.Generator(np.random.PCG64(4))
    history = MemoryHistory()
    watched = Drift(history)
    for i in range(WINDOW + 3 * BLOCK + 7):
        wall = math.exp(0.5 * math.sin(i / 20) + 0.1 * rng.standard_normal())
        history.record(timed(wall, 1.0, app=f"a{i % 3}"))
        if i % every == 0:
            watched.take_in_runs()
    watched.take_in_runs()
    fresh = Drift(history)
    fresh.take_in_runs()
    assert watched.slowdown(CPU) == fresh.slowdown(CPU) != 0.0
    for app in ("a0", "a1", "a2"):
        assert watched.runs(app, "cpu", CPU, REQUEST) == fresh.runs(app, "cpu", CPU, REQUEST)
        assert len(fresh.runs(app, "cpu", CPU, REQUEST)) >= WINDOW // 3


def load_at(i: int) -> float:
    """Other processes come and go: from one to four times as long."""
    return (1.0, 3.0, 1.5, 4.0)[i // 11 % 4]


def busy_machine(seed: int, runs: int, noise: float = 0.03) -> list[Run]:
    """Three apps that compute n^1.2, 0.5 n, and n with a start, while others come and go."""
    rng = np.random.Generator(np.random.PCG64(seed))
    found = []
    for i in range(runs):
        n = float(rng.choice([100, 150, 220, 330, 500, 750, 1100]))
        app = ("a", "b", "c")[int(rng.integers(3))]
        cpu = {"a": 1e-3 * n**1.2, "b": 5e-4 * n, "c": 0.05 + 2e-4 * n}[app]
        cpu *= math.exp(noise * rng.standard_normal())
        wall = cpu * load_at(i) * math.exp(0.05 * abs(rng.standard_normal()))
        found.append(timed(wall, cpu, n, app))
    return found


def errors(model: type[LearnedModel], runs: list[Run], start: int) -> float:
    history = MemoryHistory(runs[:start])
    found = model(history)
    missed = []
    for one in runs[start:]:
        answer = found.ask(Query(one.app, "cpu", CPU, REQUEST, (("n", float(one.inputs["n"])),)))
        assert answer is not None
        missed.append(abs(answer.expected / one.seconds - 1))
        history.record(one)
    return float(np.median(missed))


def test_under_load_cpu_times_predict_better() -> None:
    runs = busy_machine(1, 160)
    assert errors(LearnedModel, runs, 60) <= 0.5 * errors(RunTimesAlone, runs, 60)


def test_an_app_that_waits_is_predicted_by_its_run_times() -> None:
    """Its CPU time says nothing: n blocks that take 20 ms each, whatever else runs."""
    rng = np.random.Generator(np.random.PCG64(2))
    runs = busy_machine(3, 60)
    for n in (2, 3, 5, 8, 12, 20, 30) * 3:
        runs.append(timed(0.05 + 0.02 * n, 0.02 * math.exp(0.2 * rng.standard_normal()), float(n), "wait"))
    answer = LearnedModel(MemoryHistory(runs)).ask(Query("wait", "cpu", CPU, REQUEST, (("n", 15.0),)))
    assert answer is not None
    assert answer.expected == pytest.approx(0.35, rel=0.05)
    assert "CPU time" not in answer.basis


def test_an_answer_says_that_it_rests_on_cpu_time() -> None:
    model = LearnedModel(MemoryHistory(busy_machine(1, 90)))
    answer = model.ask(Query("a", "cpu", CPU, REQUEST, (("n", 400.0),)))
    assert answer is not None
    assert answer.basis.endswith(", by CPU time")
    assert 0 < answer.lower < answer.expected < answer.upper


def test_what_others_ran_changes_the_answer_at_once() -> None:
    history = MemoryHistory(busy_machine(1, 90))
    model = LearnedModel(history)
    query = Query("a", "cpu", CPU, REQUEST, (("n", 400.0),))
    before = model.ask(query)
    for _ in range(5):
        history.record(timed(9.0 * 0.25, 0.25, 500.0, "b"))
    after = model.ask(query)
    assert before is not None
    assert after is not None
    assert after.expected > 1.5 * before.expected


def test_without_cpu_times_nothing_changes() -> None:
    plain = [timed(one.seconds, None, float(one.inputs["n"]), one.app) for one in busy_machine(5, 80)]
    for n in (120.0, 600.0):
        query = Query("a", "cpu", CPU, REQUEST, (("n", n),))
        assert LearnedModel(MemoryHistory(plain)).ask(query) == RunTimesAlone(MemoryHistory(plain)).ask(query)


@pytest.mark.parametrize("count", [40, 300, 700])
def test_answers_depend_on_the_history_alone(count: int) -> None:
    """A model that was asked all along says what one says that has just been made, in memory or on disk."""
    runs = busy_machine(7, count)
    history = MemoryHistory()
    followed = LearnedModel(history)
    for i, one in enumerate(runs):
        history.record(one)
        if i % 3 == 0:
            followed.ask(Query(one.app, "cpu", CPU, REQUEST, (("n", 400.0),)))
    fresh = LearnedModel(MemoryHistory(runs))
    for app in ("a", "b", "c"):
        for n in (90.0, 220.0, 400.0, 3000.0):
            query = Query(app, "cpu", CPU, REQUEST, (("n", n),))
            assert followed.ask(query) == fresh.ask(query)


def test_the_database_tells_the_same(tmp_path: Path) -> None:
    runs = busy_machine(9, 420)
    with SqliteHistory(tmp_path / "h") as ours, SqliteHistory(tmp_path / "h") as theirs:
        followed = LearnedModel(ours)
        for i, one in enumerate(runs):
            (ours if i % 5 else theirs).record(one)  # another process records now and then
            if i % 7 == 0:
                followed.ask(Query(one.app, "cpu", CPU, REQUEST, (("n", 400.0),)))
        assert ours.total() == 420
        memory = MemoryHistory(runs)
        assert [one.seconds for one in ours.latest_runs(50)] == [
            one.seconds for one in memory.latest_runs(50)
        ]
        for app in ("a", "b", "c"):
            query = Query(app, "cpu", CPU, REQUEST, (("n", 400.0),))
            assert followed.ask(query) == LearnedModel(memory).ask(query) == LearnedModel(theirs).ask(query)
        ours.delete_runs("a")
        assert ours.total() == theirs.total() == sum(one.app != "a" for one in runs)


def test_what_a_simulation_adds_comes_after_what_was_there() -> None:
    runs = busy_machine(4, 50)
    layered = MemoryHistory(runs[30:], base=MemoryHistory(runs[:30]))
    assert layered.total() == 50
    assert list(layered.latest_runs(35)) == runs[15:]


def test_milestones_grow_and_leave_out_little() -> None:
    found = [milestone_of(n) for n in range(5000)]
    assert found[:33] == list(range(33))
    assert found == sorted(found)
    assert all(n - m <= min(63, n // 16) for n, m in enumerate(found))
    assert all(milestone_of(m) == m for m in found)
