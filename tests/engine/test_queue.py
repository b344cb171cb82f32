"""The queue against sorting all of it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.state.queue import JobQueue
from dovetail.model import App, Choice, Implementation, Job, Request
from dovetail.testing.builders import full

SIZES = {n: Request(n, 1) for n in (1, 2, 3)}
IMPLEMENTATION = Implementation("cpu", "cpu", SIZES[1])
OTHER = Implementation("other", "cpu", SIZES[1])
APP = App("app", (IMPLEMENTATION, OTHER))


def job(number: int, size: int = 1, walltime: float = 1.0, priority: float = 0) -> Job:
    choices = (Choice(IMPLEMENTATION, SIZES[size]),)
    return Job(str(number), APP, choices, number, walltime=walltime, priority=priority)


def limit(job: Job) -> float:
    assert job.walltime is not None
    return job.walltime


def size_of(job: Job) -> int:
    return job.choices[0].request.nodes


def by_priority(job: Job) -> float:
    return -job.priority


def by_walltime(job: Job, limit: float) -> float:
    return limit


def anybody(requests: Iterable[Request]) -> Iterator[tuple[Request, float]]:
    return ((request, inf) for request in requests)


def nobody(requests: Iterable[Request]) -> list[tuple[Request, float]]:
    return []


steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 9), st.integers(0, 2)
    ),
    max_size=300,
)


@settings(deadline=None, max_examples=full(60, 20))
@given(steps, st.booleans())
def test_orders_agree_with_sorting(steps: list[tuple[int, int, int, int, int]], early: bool) -> None:
    """Jobs come, leave from anywhere, and come back to their old places."""
    queue = JobQueue(limit)
    if early:
        queue.group_alike(size_of)
        queue.by(by_priority), list(queue.in_time(by_walltime, 0.0, anybody, bounded=True))
    waiting: dict[int, Job] = {}
    gone: list[tuple[int, Job]] = []
    count = 0
    for what, pick, size, walltime, priority in steps:
        if what <= 1 or not waiting:
            waiting[count] = job(count, size, walltime, priority if early else 0)
            queue.add(waiting[count])
            count += 1
        elif what == 2 or not gone:
            place = sorted(waiting)[pick % len(waiting) if pick % 3 else 0]
            gone.append((place, waiting.pop(place)))
            queue.remove_job(gone[-1][1])
        else:
            place, back = gone.pop(pick % len(gone))
            waiting[place] = back
            queue.add(back)
    in_order = [waiting[place] for place in sorted(waiting)]
    assert list(queue) == in_order
    sizes_of = {size: [job for job in in_order if size_of(job) == size] for size in SIZES}
    assert {size: list(jobs) for size, jobs in queue.group_alike(size_of).items()} == {
        size: jobs for size, jobs in sizes_of.items() if jobs
    }
    assert [queue.submitted[at : at + 3] for at in range(0, len(queue), 3)] == [
        in_order[at : at + 3] for at in range(0, len(in_order), 3)
    ]
    assert len(queue) == len(in_order)
    assert bool(queue) == bool(in_order)
    assert list(queue.by(by_priority)) == sorted(in_order, key=by_priority)
    ranked = sorted(in_order, key=limit)
    assert list(queue.by(by_walltime, bounded=True)) == ranked
    assert list(queue.in_time(by_walltime, 0.0, anybody, bounded=True)) == ranked
    deadlines = {1: 13.0, 2: inf}  # nobody of size 3 may start

    def small(requests: Iterable[Request]) -> Iterator[tuple[Request, float]]:
        return ((one, deadlines[one.nodes]) for one in requests if one.nodes in deadlines)

    found = queue.in_time(by_walltime, 10.0, small, bounded=True)
    sizes = {job.id: job.choices[0].request.nodes for job in ranked}
    assert list(found) == [job for job in ranked if 10.0 + limit(job) <= deadlines.get(sizes[job.id], 0.0)]
    assert all(job in queue and job.id in queue for job in in_order)
    assert not any(job in queue for _, job in gone)
    requests = dict(queue.requests())
    assert sum(requests.values()) == len(in_order)


def test_ten_thousand_jobs_keep_their_order() -> None:
    queue = JobQueue(limit)
    list(queue.in_time(by_priority, 0.0, anybody))
    jobs = [job(n, 1 + n % 3, 1 + n % 11) for n in range(10_000)]
    for one in jobs:
        queue.add(one)
    for one in jobs[:4000] + jobs[5000:6000]:
        queue.remove_job(one)
    left = jobs[4000:5000] + jobs[6000:]
    assert list(queue) == left
    line = queue.by(by_priority)
    assert line[0] is jobs[4000]
    assert line[-1] is jobs[-1]
    assert line[998:1002] == left[998:1002]
    with pytest.raises(IndexError):
        line[-len(left) - 1]
    shortest = queue.in_time(by_priority, 0.0, lambda requests: [(SIZES[1], 1.0)])
    assert next(shortest) is next(j for j in left if j.choices[0].request.nodes == 1 and j.walltime == 1)


def test_deadlines_are_asked_for_anew_after_each_job() -> None:
    """Whoever takes a job may leave less room for the next."""
    queue = JobQueue(limit)
    for number in range(4):
        queue.add(job(number, 1 + number % 2))
    allowed = {SIZES[1], SIZES[2]}
    seen = []
    for one in queue.in_time(by_priority, 0.0, lambda requests: [(r, inf) for r in requests if r in allowed]):
        seen.append(one.id)
        allowed.discard(SIZES[2])
    assert seen == ["0", "2"]


def test_jobs_with_several_choices_come_in_any_case() -> None:
    queue = JobQueue(limit)
    assert list(queue.in_time(by_priority, 0.0, nobody)) == []
    several = replace(job(0), choices=(Choice(IMPLEMENTATION, SIZES[1]), Choice(OTHER, SIZES[1])))
    queue.add(several)
    assert list(queue.in_time(by_priority, 0.0, nobody)) == [several]
    assert queue.requests() == {SIZES[1]: 2}
    queue.remove_job(several)
    assert list(queue.in_time(by_priority, 0.0, nobody)) == []
    assert queue.requests() == {}


@pytest.mark.parametrize("count", [3, 200])
def test_what_leaves_is_the_job_itself_also_where_others_were_moved_close_behind_it(count: int) -> None:
    queue = JobQueue(limit)
    jobs = [job(n) for n in range(count)]
    for one in jobs:
        queue.add(one)
    in_order = list(jobs)
    assert list(queue.in_time(by_priority, 0.0, anybody)) == in_order
    for before in range(0, count - 1, 2):  # the last ones go between the first ones, one after the other
        moved = in_order.pop()
        queue.remove_job(moved)
        queue.move_job(moved, jobs[before].id)
        queue.add(moved)
        in_order.insert(in_order.index(jobs[before]) + 1, moved)
        assert list(queue.in_time(by_priority, 0.0, anybody)) == in_order
        queue.remove_job(jobs[before])
        in_order.remove(jobs[before])
        assert list(queue.in_time(by_priority, 0.0, anybody)) == list(queue) == in_order
        if in_order[-1] is jobs[before + 1]:
            break
