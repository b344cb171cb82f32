"""Nothing that comes in ends the driver: wishes are answered, errors of ours end one job."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.orders import Stop
from dovetail.driver.wishes import Wish
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.phases import Phase
from dovetail.interfaces import LastAttempts, RunningAttempt
from dovetail.model import (
    Adopted,
    Allocation,
    Cluster,
    Dependency,
    Ended,
    Node,
    NodeJoined,
    Part,
    Placed,
    Request,
    Started,
    State,
)
from dovetail.plugins import load_policy
from dovetail.running.ledger import Ledger
from dovetail.running.taking_up import enter_adopted, sorted_out
from dovetail.testing.builders import TrueTimesModel, workload

MADE = workload([(name, {"cpu": 5.0}) for name in "abcd"])
A, B, C, D = (replace(job, choices=(replace(job.choices[0], request=Request(1, 1)),)) for job in MADE.jobs)


def driver_of(*, survives: bool = True, cores: int = 1, **more: Any) -> Driver:
    cluster = Cluster((Node("n0", tuple(range(cores))),))
    options = DriverOptions(survives=survives)
    policy = load_policy("fcfs").policy
    return Driver(cluster, policy, TrueTimesModel(MADE.truth), bound=no_bound, options=options, **more)


def ended(driver: Driver, job: str) -> Driver:
    """The job has been started, and has ended."""
    driver.process_instant(0.0)
    driver.queue_events(Ended(job))
    driver.process_instant(1.0)
    return driver


def test_two_requeues_at_one_instant_are_one_attempt_and_a_refusal() -> None:
    driver = driver_of()
    driver.submit(A)
    ended(driver, "a")
    first, second = driver.requeue("a"), driver.requeue("a")
    (placed,) = driver.process_instant(2.0)
    assert isinstance(placed, Placed)
    assert first.applied
    assert second.refused == "it waits already"


def test_a_job_that_has_left_memory_comes_in_once() -> None:
    driver = driver_of()
    driver.submit(A)
    ended(driver, "a")
    driver.retire_job("a")
    first, second = driver.submit(A, attempts=1), driver.submit(A, attempts=1)
    driver.process_instant(2.0)
    assert (first.applied, second.refused) == (True, "it is known already")


@pytest.mark.parametrize(
    ("wish", "why"),
    [("cancel", "it has ended"), ("hold", "it has ended"), ("release", "it has ended"), ("requeue", "")],
)
def test_a_wish_meets_its_job_as_the_end_has_left_it(wish: str, why: str) -> None:
    driver = driver_of()
    driver.submit(A)
    driver.process_instant(0.0)
    made: Wish = getattr(driver, wish)("a")
    driver.queue_events(Ended("a"))
    driver.process_instant(1.0)
    assert (made.refused, made.applied) == (why, not why)


def test_a_cancel_counts_though_the_job_fails_at_the_same_instant_and_has_retries() -> None:
    driver = driver_of()
    driver.submit(replace(A, retries=2))
    driver.process_instant(0.0)
    wish = driver.cancel("a", "cancelled by x")
    driver.queue_events(Ended("a", State.FAILED, 1))
    assert driver.process_instant(1.0) == []
    assert wish.applied
    assert driver.engine.records["a"].state is State.CANCELLED


def test_a_cancel_counts_though_the_job_fails_before_it_is_stopped() -> None:
    driver = driver_of()
    driver.submit(replace(A, retries=2))
    driver.process_instant(0.0)
    driver.cancel("a")
    (stop,) = driver.process_instant(1.0)
    assert isinstance(stop, Stop)
    driver.queue_events(Ended("a", State.FAILED, 1))
    assert driver.process_instant(2.0) == []
    assert driver.engine.phase_of("a") is Phase.ENDED


def test_of_a_requeue_and_a_cancel_the_later_counts() -> None:
    for wishes, again in ((("requeue", "cancel"), False), (("cancel", "requeue"), True)):
        driver = driver_of()
        driver.submit(A)
        driver.process_instant(0.0)
        made = [getattr(driver, wish)("a") for wish in wishes]
        driver.process_instant(1.0)
        assert all(wish.applied for wish in made)
        driver.queue_events(Ended("a", State.CANCELLED))
        assert bool(driver.process_instant(2.0)) is again


def test_an_error_of_ours_ends_one_job_and_lets_go_who_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        driver = driver_of(ledger=ledger, cores=2)
        after = replace(B, depends=(Dependency("afterany", "a"),))
        never = replace(C, depends=(Dependency("afterok", "a"),))
        for job in (A, after, never, D):
            driver.submit(job)
        driver.process_instant(0.0)
        before = type(driver.engine)._start_outside_job

        def broken(engine: Any, event: Started, now: float) -> Any:
            if event.job == "a":
                raise RuntimeError("what nobody has foreseen")
            return before(engine, event, now)

        monkeypatch.setitem(_steps(), Started, (14, broken, False))
        driver.queue_events(Started("a"), Started("d"))
        with caplog.at_level(logging.ERROR):
            orders = [*driver.process_instant(1.0), *driver.process_instant(1.0)]
        driver.engine.validate_books()
        records = driver.engine.records
        assert records["a"].state is State.NODE_FAIL
        assert "what nobody has foreseen" in records["a"].detail
        assert records["c"].state is State.CANCELLED
        assert records["d"].state is State.RUNNING
        assert [one.job for one in orders if isinstance(one, Stop)] == ["a"]
        assert [one.job.id for one in orders if isinstance(one, Placed)] == ["b"]
        assert {e.job.id: e.state for e in ledger.entries()} == {id: r.state for id, r in records.items()}
        assert "Traceback" in caplog.text
        assert {record.job.id for record in driver.ended()} == {"a", "c"}


def _steps() -> Any:
    from dovetail.engine.state import core

    return core._STEPS


def test_an_error_is_raised_where_nothing_is_to_survive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_of(survives=False)
    driver.submit(A)
    driver.process_instant(0.0)

    def broken(*_: object) -> None:
        raise RuntimeError("what nobody has foreseen")

    monkeypatch.setitem(_steps(), Started, (14, broken, False))
    driver.queue_events(Started("a"))
    with pytest.raises(RuntimeError, match="foreseen"):
        driver.process_instant(1.0)


def test_what_is_no_event_or_no_node_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    driver = driver_of()
    driver.submit(A)
    strange: Any = "no event"
    driver.queue_events(strange, NodeJoined(7, Node("n7", (0,))), NodeJoined(9), Ended("unknown"))
    (placed,) = driver.process_instant(0.0)
    assert isinstance(placed, Placed)
    assert "str, which is no event" in caplog.text
    driver.engine.validate_books()


def test_a_record_of_what_runs_that_cannot_be_is_that_jobs_end(tmp_path: Path) -> None:
    """Two jobs on one core: the ledger was damaged so that it can still be read."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        driver = driver_of(ledger=ledger)
        place = Allocation(Request(1, 1), (Part(1, 1),))
        for job in (A, B):
            driver.adopt_job(job, Adopted(job.id, "cpu", place, 0.0, 1))
        driver.carry_over(driver.process_instant(0.0))
        (stop,) = driver.process_instant(0.0)
        assert isinstance(stop, Stop)
        states = {id: record.state for id, record in driver.engine.records.items()}
        assert sorted(states.values()) == ["NODE_FAIL", "RUNNING"]
        assert states[stop.job] is State.NODE_FAIL
        driver.engine.validate_books()


def test_what_runs_is_adopted_though_what_it_depends_on_was_requeued(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        jobs = [A, replace(B, depends=(Dependency("afterok", "a"),))]
        ledger.submit(jobs, 0.0)
        driver = driver_of(ledger=ledger)
        for job in jobs:
            driver.submit(job)
        ended(driver, "a")
        driver.requeue("a")
        driver.process_instant(2.0)
        waiting, adopted, ends, _ = sorted_out(
            ledger, LastAttempts(running=[RunningAttempt("b", 1, 0.0)]), 0.0
        )
        again = driver_of(ledger=ledger)
        enter_adopted(again, adopted, ends)
        again.queue_events(*waiting)
        again.process_instant(0.0)
        assert (again.engine.phase_of("b"), again.engine.phase_of("a")) == (Phase.RUNNING, Phase.QUEUED)


def test_a_statement_that_is_refused_takes_no_other_along(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.submit([A], 0.0)
        ledger._owed += [("INSERT INTO job (id) VALUES (?)", ("a",)), ("UPDATE job SET held = ?", ("held",))]
        assert ledger.settle()
        (entry,) = ledger.entries()
        assert entry.held == "held"
        assert "refuses a statement" in caplog.text


@pytest.mark.parametrize("names", ["bcd", "dcb", "cdb"])
def test_who_waits_for_a_job_that_can_never_start_is_not_forgotten(names: str) -> None:
    """All of them come in at one instant, as after a restart, or from one file."""
    driver = driver_of()
    driver.submit(A)
    driver.process_instant(0.0)
    driver.queue_events(Ended("a", State.FAILED, 1))
    driver.process_instant(1.0)
    jobs = {
        "b": replace(B, depends=(Dependency("afterok", "a"),)),
        "c": replace(C, depends=(Dependency("afternotok", "b"),)),
        "d": replace(D, depends=(Dependency("afterok", "b"),)),
    }
    for name in names:
        driver.submit(jobs[name])
    driver.process_instant(2.0)
    assert driver.engine.records["b"].state is State.CANCELLED
    assert driver.engine.records["d"].state is State.CANCELLED
    assert driver.engine.records["c"].state is State.RUNNING
    assert {record.job.id for record in driver.ended()} == {"a", "b", "d"}
