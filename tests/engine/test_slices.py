"""The end of a job on which very many wait is several instants, whatever happens between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.phases import Phase
from dovetail.model import Cluster, Dependency, Ended, Job, Node, State
from dovetail.plugins import load_policy
from dovetail.testing.builders import TrueTimesModel, workload

MANY, MOST = 95, 10


def held(kind: str, most: int | None = MOST) -> tuple[Driver, list[Job]]:
    """Job 0 runs, and all others wait for it."""
    made = workload([(str(n), {"cpu": 5.0}, 0.0) for n in range(MANY + 1)])
    driver = Driver(
        Cluster((Node("n0", (0,)),)),
        load_policy("fcfs").policy,
        TrueTimesModel(made.truth),
        bound=no_bound,
        options=DriverOptions(survives=True, most_at_once=most),
    )
    first, *others = made.jobs
    driver.submit(first)
    driver.process_instant(0.0)
    for job in others:
        driver.submit(replace(job, depends=(Dependency(kind, first.id),)))
    driver.process_instant(1.0)
    assert len(driver.engine.held) == MANY
    return driver, others


def phases(driver: Driver) -> dict[Phase, int]:
    found: dict[Phase, int] = {}
    for n in range(1, MANY + 1):
        phase = driver.engine.phase_of(str(n))
        found[phase] = found.get(phase, 0) + 1
    return found


@pytest.mark.parametrize(
    ("kind", "into"), [("afterok", Phase.QUEUED), ("afternotok", Phase.ENDED)], ids=["let go", "cancelled"]
)
def test_no_instant_takes_more_and_all_come_to_it(kind: str, into: Phase) -> None:
    driver, _ = held(kind)
    driver.queue_events(Ended("0", State.COMPLETED))
    left = [MANY]
    instants = 0
    while not driver.idle:
        instants += 1
        driver.process_instant(2.0)
        driver.engine.validate_books()
        left.append(phases(driver).get(Phase.HELD, 0))
    assert instants >= MANY // MOST
    assert max(a - b for a, b in pairwise(left)) <= MOST
    assert phases(driver).get(into, 0) >= MANY - 1  # one of them runs
    assert not driver.engine.held


def test_without_a_limit_it_is_one_instant() -> None:
    driver, _ = held("afterok", None)
    driver.queue_events(Ended("0", State.COMPLETED))
    driver.process_instant(2.0)
    assert driver.idle
    assert not driver.engine.held


def test_what_is_wanted_between_two_parts_meets_each_job_as_it_stands() -> None:
    driver, others = held("afterok")
    driver.queue_events(Ended("0", State.COMPLETED))
    driver.process_instant(2.0)
    assert driver.has_more
    wishes = [
        driver.cancel(others[-1].id),
        driver.hold(others[-2].id),
        driver.release(others[-3].id),
        driver.cancel(others[0].id),
        driver.requeue("0"),
    ]
    driver.process_instant(3.0)
    assert all(wish.is_settled for wish in wishes)
    while not driver.idle:
        driver.process_instant(4.0)
        driver.engine.validate_books()
    assert driver.engine.phase_of(others[-1].id) is Phase.ENDED
    assert driver.engine.held.keys() == {others[-2].id}
    released = driver.release(others[-2].id)
    driver.process_instant(5.0)
    assert released.applied
    assert not driver.engine.held
