"""GPU hours of each user within a window: kept to, given back, and no user waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dovetail.driver.gpu_hours import PIECES, GpuHours, HourLimit, excess_of
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Record,
    Request,
    State,
    TableTruth,
    Workload,
)
from dovetail.policies.easy import Easy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate

HOUR = 3600.0
DAY = 24 * HOUR


def job(
    name: str,
    hours: float,
    *,
    gpus: float = 1,
    user: str = "ana",
    submit: float = 0.0,
    limit: float | None = 1.0,
) -> tuple[Job, float]:
    """A job that takes so many hours; its walltime is ``limit`` times that."""
    way = Implementation("gpu", "gpu", Request(1, 0, (("gpu", gpus),)))
    walltime = None if limit is None else hours * HOUR * limit
    found = Job(
        name, App(name, (way,)), (Choice(way, way.request),), submit_time=submit, user=user, walltime=walltime
    )
    return found, hours * HOUR


def run(
    hours: GpuHours, jobs: Sequence[tuple[Job, float]], cluster: str = "1x8cpu+8gpu"
) -> dict[str, Record]:
    ordered = [replace(one, index=n) for n, (one, _) in enumerate(jobs)]
    truth = TableTruth(fixed={one.id: seconds for one, seconds in jobs})
    result = simulate(
        Workload("test", tuple(ordered), truth),
        Cluster.parse(cluster),
        Easy(),
        PerfectModel(truth),
        options=SimulationOptions(validate=True),
        hours=hours,
    )
    assert all(record.state is State.COMPLETED for record in result.records)
    return {record.job.id: record for record in result.records}


def most_in_a_window(records: Sequence[Record], window: float) -> float:
    """The most seconds on devices within any window that ends with a job."""
    ends = [record.end or 0.0 for record in records]

    def within(record: Record, end: float) -> float:
        assert record.allocation is not None
        assert record.start is not None
        assert record.end is not None
        request = record.allocation.request
        span = min(record.end, end) - max(record.start, end - window)
        return max(0.0, span) * request.gpus * request.nodes

    return max(sum(within(record, end) for record in records) for end in ends)


def test_jobs_wait_for_hours_and_those_of_others_do_not() -> None:
    jobs = [job(f"a{n}", 2.0) for n in range(4)] + [job("b", 2.0, user="ben")]
    records = run(GpuHours(HourLimit(5 * HOUR, DAY)), jobs)
    starts = {name: (record.start or 0.0) / HOUR for name, record in records.items()}
    assert (starts["a0"], starts["a1"], starts["b"]) == (0.0, 0.0, 0.0)
    # The third one has room when a piece of the first two hours has left the window.
    piece = 24 / PIECES
    assert 24.0 <= starts["a2"] <= 26.0 + piece
    assert most_in_a_window([r for name, r in records.items() if name != "b"], DAY) <= 5 * HOUR + 1


def test_what_a_job_does_not_use_comes_back_at_its_end() -> None:
    jobs = [job("long", 1.0, limit=4.0), job("next", 1.0, limit=3.0)]
    records = run(GpuHours(HourLimit(4.5 * HOUR, DAY)), jobs)
    assert records["next"].start == HOUR


def test_a_share_of_a_device_counts_as_its_share() -> None:
    jobs = [job(f"q{n}", 2.0, gpus=0.25) for n in range(4)]
    records = run(GpuHours(HourLimit(2 * HOUR, DAY)), jobs, "1x8cpu+1gpu")
    assert {record.start for record in records.values()} == {0.0}


def test_jobs_that_outrun_their_claims_put_back_those_that_have_not_started() -> None:
    """Of unknown length each claims an hour: ten on one device would take thirty, and a day has five."""
    jobs = [job(f"u{n}", 3.0, limit=None) for n in range(5)]
    limit = HourLimit(5 * HOUR, DAY)
    hours = GpuHours(limit)
    records = run(hours, jobs, "1x8cpu+1gpu")
    # One may start with less than its length left, and goes on.
    assert most_in_a_window(list(records.values()), DAY) <= limit.most + 2 * HOUR
    assert max(record.start or 0.0 for record in records.values()) > 1.5 * DAY


@pytest.mark.parametrize("seed", range(4))
def test_no_window_has_more_and_every_job_runs(seed: int) -> None:
    random = np.random.Generator(np.random.PCG64(seed))
    window, most = DAY, 20 * HOUR
    jobs = []
    for n in range(60):
        hours = float(random.uniform(0.1, 4.0))
        gpus = float(random.choice([0.25, 0.5, 1.0, 2.0, 4.0]))
        jobs.append(
            job(
                f"j{n}",
                hours,
                gpus=gpus,
                user=f"u{random.integers(3)}",
                submit=float(random.uniform(0, 2 * DAY)),
                limit=float(random.choice([1.0, 1.5, 3.0])),
            )
        )
    jobs.sort(key=lambda one: one[0].submit_time)
    records = run(GpuHours(HourLimit(most, window), epoch=float(random.uniform(0, 1e9))), jobs, "1x8cpu+4gpu")
    for user in ("u0", "u1", "u2"):
        own = [record for record in records.values() if record.job.user == user]
        assert most_in_a_window(own, window) <= most + 1


def test_hours_are_kept_and_come_back() -> None:
    hours = GpuHours(HourLimit(3 * HOUR, DAY), epoch=0.0, used={"ana": {0.0: 3 * HOUR}})
    kept = hours.pieces("ana", HOUR)
    assert GpuHours(hours.limit, 0.0, {"ana": kept}).pieces("ana", HOUR) == kept
    one, _ = job("a", 1.0)
    assert not hours.admits(one, HOUR)
    hours.wait(one)
    room = hours.next_room("ana", HOUR)
    assert room is not None
    assert not hours.admits(one, room - 0.01)
    assert hours.admits(one, room)
    assert hours.used("ana", room) == 0


def test_a_job_above_the_limit_is_named() -> None:
    one, _ = job("a", 30.0, gpus=2)
    words = excess_of(one, one.walltime, HourLimit(40 * HOUR, 7 * DAY))
    assert words == (
        "found a job for 2 GPUs and up to 30 hours, that is 60 GPU hours, and one user may use at most 40 in "
        "7 days here"
    )
    assert not excess_of(one, None, HourLimit(40 * HOUR, 7 * DAY))
