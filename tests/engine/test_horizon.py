"""The end of a cluster: what can still end before it starts, the rest waits and is no error."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.model import Cluster, ClusterEnds, Event, NodeLost, Record, State, Workload
from dovetail.plugins import load_policy
from dovetail.testing.builders import TrueTimesModel, rigid, workload
from dovetail.testing.virtual_time import run_virtual


def drive(
    jobs: Workload, shape: str, policy: str, incidents: list[tuple[float, Event]], journal: Any = None
) -> tuple[dict[str, Record], Driver]:
    """Run the jobs live, in virtual time, on a cluster to which this happens (first at time 0)."""
    cluster = Cluster.parse(shape)

    async def main() -> Driver:
        driver = Driver(
            cluster,
            load_policy(policy).policy,
            TrueTimesModel(jobs.truth),
            bound=no_bound,
            journal=journal,
            options=DriverOptions(enforce=True),
        )
        driver.queue_events(*(event for when, event in incidents if when == 0))
        later = [(when, event) for when, event in incidents if when > 0]
        await LiveRun(driver, FakeExecutor(jobs.truth, later), jobs.jobs).run()
        driver.engine.validate_books()
        return driver

    driver = run_virtual(main())
    return driver.engine.records, driver


def kind_of(record: Record) -> str | None:
    return None if record.implementation is None else record.implementation.kind


@pytest.mark.parametrize("policy", ["fcfs", "history", "easy", "mct", "torque-plan", "conservative"])
def test_jobs_that_cannot_end_in_time_are_left_and_the_others_run(policy: str) -> None:
    """One after the other on one core: 8 + 4 s fit into 13, another 4 do not, and nobody waits for ever."""
    jobs = rigid([(0.0, 1, 8.0, 8.0), (0.0, 1, 4.0, 4.0), (0.0, 1, 4.0, 4.0)])
    records, driver = drive(jobs, "1x1cpu", policy, [(0.0, ClusterEnds(13.0))])
    assert [record.state for record in records.values()] == [State.COMPLETED, State.COMPLETED, State.PENDING]
    assert driver.left_over == ["2"]
    assert "cannot end before the cluster does: expected to take 4 s" in driver.engine.held["2"]


def test_jobs_that_are_lost_a_moment_after_the_end_are_left_too() -> None:
    """The nodes of a cluster that has ended go one by one; what ran there waits again, but not for ever."""
    jobs = rigid([(0.0, 1, 8.0, 8.0), (0.0, 1, 8.0, 8.0), (0.0, 1, 1.0, 1.0)])
    jobs = replace(jobs, jobs=[replace(job, retries=1) for job in jobs.jobs])
    ends = [(4.0, ClusterEnds(0.0)), (4.1, NodeLost(0)), (4.2, NodeLost(1))]
    records, driver = drive(jobs, "2x1cpu", "fcfs", ends)
    assert {record.state for record in records.values()} == {State.PENDING}
    assert sorted(driver.left_over) == ["0", "1", "2"]


def test_a_job_ends_exactly_with_the_cluster() -> None:
    records, _ = drive(rigid([(0.0, 1, 5.0, 5.0)]), "1x1cpu", "fcfs", [(0.0, ClusterEnds(5.0))])
    assert records["0"].state is State.COMPLETED


def test_a_way_that_is_too_slow_by_now_is_no_way() -> None:
    """Bound to the CPU's queue, which is 7 s a job, the second goes to the GPU when its turn comes."""
    rows: list[Any] = [(f"j{i}", {"cpu": 7.0, "gpu": 4.0}) for i in range(2)]
    free, _ = drive(workload(rows), "1x1cpu+1gpu", "cpu-only", [])
    assert [kind_of(record) for record in free.values()] == ["cpu", "cpu"]
    short, _ = drive(workload(rows), "1x1cpu+1gpu", "cpu-only", [(0.0, ClusterEnds(12.0))])
    assert [kind_of(record) for record in short.values()] == ["cpu", "gpu"]
    assert all(record.state is State.COMPLETED for record in short.values())


def test_a_choice_that_is_too_slow_is_no_choice() -> None:
    """With 6.5 s left the CPU's 7 s are out of the question, and the idle GPU is taken at once."""
    rows: list[Any] = [("only", {"cpu": 7.0, "gpu": 4.0}, 0.0)]
    found, _ = drive(workload(rows), "1x1cpu+1gpu", "cpu-only", [(0.0, ClusterEnds(6.5))])
    assert found["only"].state is State.COMPLETED
    assert kind_of(found["only"]) == "gpu"


def test_an_end_that_moves_away_lets_the_rest_go() -> None:
    jobs = rigid([(0.0, 1, 8.0, 8.0), (0.0, 1, 8.0, 8.0), (0.0, 1, 8.0, 8.0)])
    incidents = [(0.0, ClusterEnds(10.0)), (3.0, ClusterEnds(14.0)), (9.0, ClusterEnds(None))]
    records, driver = drive(jobs, "1x1cpu", "fcfs", incidents)
    assert [(record.state, record.end) for record in records.values()] == [
        (State.COMPLETED, 8.0),
        (State.COMPLETED, 16.0),
        (State.COMPLETED, 24.0),
    ]
    assert not driver.left_over


def test_when_the_cluster_has_ended_nothing_starts_and_the_run_is_over() -> None:
    """Also where the head of the queue waits for nodes that never come, and where others depend on it."""
    jobs = rigid([(0.0, 1, 3.0, 3.0), (0.0, 2, 1.0, 1.0), (0.0, 1, 1.0, 1.0)])
    records, driver = drive(jobs, "2x1cpu", "fcfs", [(1.0, ClusterEnds(0.0))])
    assert [record.state for record in records.values()] == [State.COMPLETED, State.PENDING, State.PENDING]
    assert driver.left_over == ["1", "2"]


def test_a_replay_decides_the_same(tmp_path: Path) -> None:
    jobs = rigid([(float(i % 3), 1 + i % 2, 3.0 + i, 3.0 + i) for i in range(9)])
    path = tmp_path / "journal.jsonl"
    writer = JournalWriter(path, Cluster.parse("2x1cpu"), policy="easy")
    _, driver = drive(jobs, "2x1cpu", "easy", [(0.0, ClusterEnds(30.0)), (4.0, ClusterEnds(20.0))], writer)
    assert driver.left_over
    assert replay(read_journal(path), load_policy("easy").policy) > 0
    assert any("cluster_ends" in line for line in map(json.dumps, path.read_text().splitlines()))


def test_every_schedule_ends_before_the_cluster_does() -> None:
    """Random jobs under several policies: nothing that starts is expected to end too late."""
    for seed in range(40):
        rng = random.Random(seed)
        rows = [
            (float(rng.randint(0, 9)), rng.randint(1, 2), s := float(rng.randint(1, 12)), s)
            for _ in range(12)
        ]
        left = float(rng.randint(5, 40))
        for policy in ("fcfs", "easy", "conservative", "mct"):
            records, driver = drive(rigid(rows), "3x1cpu", policy, [(0.0, ClusterEnds(left))])
            done = [record for record in records.values() if record.state is State.COMPLETED]
            end = driver.engine.horizon.end
            assert all(record.end is not None and record.end <= end for record in done)
            waits = {job for job, record in records.items() if record.state is State.PENDING}
            assert waits == set(driver.left_over)
            assert len(done) + len(waits) == 12
