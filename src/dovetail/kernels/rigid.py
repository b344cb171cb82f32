"""A whole simulation of rigid jobs on like nodes, compiled: FCFS and EASY, node ids included.

The specification is `dovetail.policies.fcfs` and `dovetail.policies.easy`, run by the engine on nodes of
which every job takes whole ones. Times are the same sums of the same floats, so starts, ends, nodes and
promises are the same job by job; property tests hold it to that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from dovetail.kernels.node_bits import WIDTH, give, node_set, take_lowest
from dovetail.kernels.releases import Releases, enter, extra_at, first_release, leave, no_releases
from dovetail.kernels.waiting import (
    NOBODY,
    Room,
    Waiting,
    arrive,
    first_waiting,
    may_start,
    next_candidate,
    nobody_waits,
    part,
)

__all__ = ["EASY", "FCFS", "Rigid", "Schedule", "simulate_rigid"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Runs = npt.NDArray[np.int32]

FCFS, EASY = 0, 1
TOLERANCE = 1e-9
"""Relative slack of promises, as in `dovetail.engine.promises`."""

# Places of what changes as one number.
IDLE, FIRST_WORD, RUNNING, STARTED, RUNS, PROMISED, BROKEN, BY_OVERRUN = range(8)
PROMISE, MADE, OVERRAN = range(3)


class Rigid(NamedTuple):
    """Jobs in order of submission; all arrays have shape (jobs,).

    ``bound`` is what is known beforehand of the run time (infinite: nothing), at ``limit`` after its start a
    job is ended (infinite: never). ``by_rank`` are the jobs in the order of the queue.
    """

    submit: Floats
    nodes: Ints
    seconds: Floats
    bound: Floats
    limit: Floats
    by_rank: Ints


class Schedule(NamedTuple):
    """What came of it, job by job.

    ``promised`` is the start that was promised, NaN where none was; ``killed`` says that the limit ended the
    job. Of ``low`` and ``high`` (the first node of a run of neighbours and the one after its last) a job has
    ``runs`` from ``first`` on. ``broken`` and ``by_overrun`` count broken promises.
    """

    start: Floats
    end: Floats
    promised: Floats
    killed: npt.NDArray[np.bool_]
    first: Ints
    runs: Ints
    low: Runs
    high: Runs
    broken: int
    by_overrun: int


class _World(NamedTuple):
    """Everything that changes, beside the queue and the releases; ``ends`` is a heap of running jobs."""

    whole: Ints
    times: Floats
    free: Ints
    ends: Floats
    jobs: Ints
    turns: Ints  # in which the jobs started: the last tie-break
    start: Floats
    end: Floats
    promised: Floats
    killed: npt.NDArray[np.bool_]
    first: Ints
    runs: Ints


@njit(cache=True)
def _push(world: _World, end: float, job: int, turn: int) -> None:
    ends, jobs, turns = world.ends, world.jobs, world.turns
    at = world.whole[RUNNING]
    world.whole[RUNNING] += 1
    while at > 0:
        above = (at - 1) // 2
        if ends[above] < end or (ends[above] == end and turns[above] < turn):
            break
        ends[at], jobs[at], turns[at] = ends[above], jobs[above], turns[above]
        at = above
    ends[at], jobs[at], turns[at] = end, job, turn


@njit(cache=True)
def _pop(world: _World) -> int:
    ends, jobs, turns = world.ends, world.jobs, world.turns
    found: int = jobs[0]
    world.whole[RUNNING] -= 1
    count = world.whole[RUNNING]
    end, job, turn = ends[count], jobs[count], turns[count]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        right = below + 1
        if right < count and (
            ends[right] < ends[below] or (ends[right] == ends[below] and turns[right] < turns[below])
        ):
            below = right
        if end < ends[below] or (end == ends[below] and turn < turns[below]):
            break
        ends[at], jobs[at], turns[at] = ends[below], jobs[below], turns[below]
        at = below
    if count:
        ends[at], jobs[at], turns[at] = end, job, turn
    return found


@njit(cache=True)
def _room(values: Runs, used: int, more: int) -> Runs:
    """The same values with room for so many more."""
    if used + more <= values.size:
        return values
    larger = np.empty(2 * values.size + more, values.dtype)
    larger[:used] = values[:used]
    return larger


def simulate_rigid(jobs: Rigid, nodes: int, policy: int, skip: int) -> Schedule:
    """Simulate jobs, each of which fits, on so many nodes under `FCFS` (with ``skip``) or `EASY`.

    O(jobs · (log jobs + runs of neighbours + words of the machine)) where the queue is short.
    """
    # A named tuple is made by Python code: a Ctrl-C that waits for the kernel's end would be raised there,
    # within what the compiled code calls, and the process would crash.
    return Schedule(*_simulate(jobs, nodes, policy, skip))


@njit(cache=True)
def _simulate(jobs: Rigid, nodes: int, policy: int, skip: int) -> tuple[Any, ...]:
    count = jobs.submit.size
    waiting = nobody_waits(jobs.nodes, jobs.bound, jobs.by_rank)
    most = min(nodes, count) + 1
    kept = no_releases(most)
    world = _new_world(nodes, count, most)
    low = np.empty(2 * count + nodes, np.int32)
    high = np.empty(2 * count + nodes, np.int32)
    candidates = np.empty(waiting.counts.size, np.int64)
    starting = np.empty(most, np.int64)
    submitted = 0
    while True:
        now = world.ends[0] if world.whole[RUNNING] else np.inf
        if submitted < count and jobs.submit[submitted] < now:
            now = jobs.submit[submitted]
        if now == np.inf:
            break
        ended = _end(jobs, world, kept, low, high, now, policy)
        new = submitted
        while submitted < count and jobs.submit[submitted] <= now:
            arrive(waiting, submitted)
            submitted += 1
        if first_release(kept) < now:
            world.times[OVERRAN] = now
        # Who starts is decided first, one after the other; where is a matter of that order alone.
        if policy == FCFS:
            chosen = _fcfs(jobs, world, waiting, now, skip, starting)
        elif _nothing_freed(jobs, world, ended, now, new, submitted):
            chosen = 0
        else:
            chosen = _easy(jobs, world, waiting, kept, now, candidates, starting)
        for at in range(chosen):
            low = _room(low, world.whole[RUNS], jobs.nodes[starting[at]])
            high = _room(high, world.whole[RUNS], jobs.nodes[starting[at]])
            _place(jobs, world, starting[at], low, high)
    runs, whole = world.whole[RUNS], world.whole
    return (
        world.start,
        world.end,
        world.promised,
        world.killed,
        world.first,
        world.runs,
        low[:runs],
        high[:runs],
        whole[BROKEN],
        whole[BY_OVERRUN],
    )


@njit(cache=True)
def _new_world(nodes: int, count: int, most: int) -> _World:
    """All nodes are free, nothing runs; ``most`` is above the jobs that can run at once."""
    whole, times = np.zeros(8, np.int64), np.zeros(3)
    whole[IDLE] = nodes
    whole[PROMISED] = NOBODY
    times[OVERRAN] = -np.inf
    return _World(
        whole,
        times,
        node_set(nodes),
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(count),
        np.empty(count),
        np.full(count, np.nan),
        np.zeros(count, np.bool_),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
    )


@njit(cache=True)
def _end(jobs: Rigid, world: _World, kept: Releases, low: Runs, high: Runs, now: float, policy: int) -> bool:
    """Let end what ends now; whether anything does."""
    whole, ended = world.whole, False
    while whole[RUNNING] and world.ends[0] <= now:
        job, ended = _pop(world), True
        world.end[job] = now
        for run in range(world.first[job], world.first[job] + world.runs[job]):
            give(world.free, low[run], high[run])
            whole[FIRST_WORD] = min(whole[FIRST_WORD], low[run] // WIDTH)
        whole[IDLE] += jobs.nodes[job]
        bound = world.start[job] + jobs.bound[job]
        if policy == EASY:
            leave(kept, bound, jobs.nodes[job])
        if now > bound:
            world.times[OVERRAN] = now
    return ended


@njit(cache=True)
def _place(jobs: Rigid, world: _World, job: int, low: Runs, high: Runs) -> None:
    """Give a job that starts the lowest free nodes."""
    whole = world.whole
    world.first[job] = whole[RUNS]
    runs, word = take_lowest(world.free, whole[FIRST_WORD], jobs.nodes[job], low, high, whole[RUNS])
    world.runs[job] = runs - whole[RUNS]
    whole[RUNS], whole[FIRST_WORD] = runs, word


@njit(cache=True)
def _start(jobs: Rigid, world: _World, waiting: Waiting, job: int, now: float) -> None:
    """The job leaves the queue and runs."""
    whole, times = world.whole, world.times
    part(waiting, job)
    if job == whole[PROMISED]:
        promise = times[PROMISE]
        world.promised[job] = promise
        whole[PROMISED] = NOBODY
        if now > promise + TOLERANCE * max(1.0, abs(promise)):
            whole[BROKEN] += 1
            if times[OVERRAN] >= times[MADE]:
                whole[BY_OVERRUN] += 1
    whole[IDLE] -= jobs.nodes[job]
    whole[STARTED] += 1
    world.start[job] = now
    end, limit = now + jobs.seconds[job], now + jobs.limit[job]
    if end > limit:
        end = limit
        world.killed[job] = True
    _push(world, end, job, whole[STARTED])


@njit(cache=True)
def _fcfs(jobs: Rigid, world: _World, waiting: Waiting, now: float, skip: int, starting: Ints) -> int:
    """From the front of the queue, while jobs fit; so many that do not are passed over."""
    chosen, passed = 0, 0
    job = first_waiting(waiting, 0)
    while job != NOBODY:
        if jobs.nodes[job] > world.whole[IDLE]:
            passed += 1
            if passed > skip:
                break
        else:
            _start(jobs, world, waiting, job, now)
            starting[chosen] = job
            chosen += 1
        job = first_waiting(waiting, waiting.rank[job] + 1)
    return chosen


@njit(cache=True)
def _nothing_freed(jobs: Rigid, world: _World, ended: bool, now: float, new: int, submitted: int) -> bool:
    """Whether the head still waits, and so does everybody else, as nothing ended and nobody new fits."""
    if world.whole[PROMISED] == NOBODY or ended or world.times[PROMISE] <= now:
        return False
    return bool(np.all(jobs.nodes[new:submitted] > world.whole[IDLE]))


@njit(cache=True)
def _easy(
    jobs: Rigid,
    world: _World,
    waiting: Waiting,
    kept: Releases,
    now: float,
    candidates: Ints,
    starting: Ints,
) -> int:
    """From the front while jobs fit; the head is promised its shadow time; who does not delay it may go."""
    whole, times = world.whole, world.times
    held: int = whole[PROMISED]
    chosen: int = 0
    head = held if held != NOBODY else first_waiting(waiting, 0)
    while head != NOBODY and jobs.nodes[head] <= whole[IDLE]:
        _start(jobs, world, waiting, head, now)
        enter(kept, now + jobs.bound[head], jobs.nodes[head])
        starting[chosen] = head
        chosen += 1
        head = first_waiting(waiting, 0)
    if head == NOBODY:
        return chosen
    shadow, extra = extra_at(kept, whole[IDLE] - jobs.nodes[head], now)
    if shadow < (times[PROMISE] if head == held else np.inf):
        if head != held:
            times[MADE] = now
        whole[PROMISED] = head
        times[PROMISE] = shadow
    chosen += _backfill(jobs, world, waiting, kept, now, shadow, extra, candidates, starting[chosen:])
    return chosen


@njit(cache=True)
def _backfill(
    jobs: Rigid,
    world: _World,
    waiting: Waiting,
    kept: Releases,
    now: float,
    shadow: float,
    extra: int,
    candidates: Ints,
    starting: Ints,
) -> int:
    """In the order of the queue, each job that ends by the shadow time or uses extra nodes only.

    The head is no candidate: it does not fit. ``candidates`` are the first ones of each line, as places.
    """
    chosen = 0
    room = Room(world.whole[IDLE], extra, now, shadow if shadow < np.inf else -np.inf)
    for line in range(candidates.size):
        candidates[line] = -1
        if waiting.counts[line] and room.idle > 0:
            candidates[line] = next_candidate(waiting, line, waiting.begins[line], room)
    while True:
        best = NOBODY
        for place in candidates:
            if place >= 0:
                job = waiting.job_at[place]
                if best == NOBODY or waiting.rank[job] < waiting.rank[best]:
                    best = job
        if best == NOBODY:
            return chosen
        if not now + jobs.bound[best] <= room.end:
            extra -= jobs.nodes[best]
        _start(jobs, world, waiting, best, now)
        enter(kept, now + jobs.bound[best], jobs.nodes[best])
        starting[chosen] = best
        chosen += 1
        room = Room(world.whole[IDLE], extra, now, room.end)
        for line in range(candidates.size):
            place = candidates[line]
            if place >= 0:
                job = waiting.job_at[place]
                if job == best or not may_start(jobs.nodes[job], jobs.bound[job], room):
                    candidates[line] = next_candidate(waiting, line, place, room)
