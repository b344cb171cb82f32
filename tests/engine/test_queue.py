"""The queue against sorting all of it again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.queue import JobQueue
from dovetail.model import App, Choice, Implementation, Job, Request

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


def by_priority(job: Job) -> float:
    return -job.priority


def by_walltime(job: Job, limit: float) -> float:
    return limit


steps = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 9), st.integers(0, 2)
    ),
    max_size=300,
)


@settings(deadline=None, max_examples=60)
@given(steps, st.booleans())
def test_orders_and_groups_agree_with_sorting(
    steps: list[tuple[int, int, int, int, int]], early: bool
) -> None:
    """Jobs come, leave from anywhere, and come back to their old places."""
    queue = JobQueue(limit)
    if early:
        queue.by(by_priority), queue.groups(by_walltime, bounded=True)
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
            queue.remove(gone[-1][1])
        else:
            place, back = gone.pop(pick % len(gone))
            waiting[place] = back
            queue.add(back)
    in_order = [waiting[place] for place in sorted(waiting)]
    assert list(queue) == in_order
    assert len(queue) == len(in_order)
    assert bool(queue) == bool(in_order)
    assert list(queue.by(by_priority)) == sorted(in_order, key=by_priority)
    ranked = sorted(in_order, key=limit)
    assert list(queue.by(by_walltime, bounded=True)) == ranked
    groups = queue.groups(by_walltime, bounded=True)
    assert groups is not None
    for size, request in SIZES.items():
        of_size = [job for job in ranked if job.nodes == 1 and job.choices[0].request is request]
        group = groups.get(request)
        assert ([] if group is None else list(group)) == of_size, size
        if group is not None and group.size:
            entry = group.first(None)
            seen = []
            while entry is not None:
                seen.append(entry[3])
                later = group.first_in_time(entry, 10.0, 15.0)
                expected = [job for job in of_size[len(seen) :] if limit(job) <= 5]
                assert (later[3] if later else None) == (expected[0] if expected else None)
                entry = group.first(entry)
            assert seen == of_size
    assert all(job in queue and job.id in queue for job in in_order)
    assert not any(job in queue for _, job in gone)
    requests = dict(queue.requests())
    assert sum(requests.values()) == len(in_order)


def test_ten_thousand_jobs_keep_their_order() -> None:
    queue = JobQueue(limit)
    queue.groups(by_priority)
    jobs = [job(n, 1 + n % 3, 1 + n % 11) for n in range(10_000)]
    for one in jobs:
        queue.add(one)
    for one in jobs[:4000] + jobs[5000:6000]:
        queue.remove(one)
    left = jobs[4000:5000] + jobs[6000:]
    assert list(queue) == left
    line = queue.by(by_priority)
    assert line[0] is jobs[4000]
    assert line[-1] is jobs[-1]
    assert line[998:1002] == left[998:1002]
    with pytest.raises(IndexError):
        line[-len(left) - 1]
    groups = queue.groups(by_priority)
    assert groups is not None
    found = groups[SIZES[1]].first_in_time(None, 0.0, 1.0)
    assert found is not None
    assert found[3] is next(j for j in left if j.choices[0].request.nodes == 1 and j.walltime == 1)


def test_jobs_with_several_choices_have_no_group() -> None:
    queue = JobQueue(limit)
    assert queue.groups(by_priority) == {}
    several = replace(job(0), choices=(Choice(IMPLEMENTATION, SIZES[1]), Choice(OTHER, SIZES[1])))
    queue.add(several)
    assert queue.groups(by_priority) is None
    assert queue.requests() == {SIZES[1]: 2}
    queue.remove(several)
    assert queue.groups(by_priority) == {}
    assert queue.requests() == {}
