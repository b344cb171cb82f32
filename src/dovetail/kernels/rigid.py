"""A whole simulation of rigid jobs on like nodes, compiled: FCFS and EASY, node ids included.

The specification is `dovetail.policies.fcfs` and `dovetail.policies.easy`, run by the engine on nodes of
which every job takes whole ones. Times are the same sums of the same floats, so starts, ends, nodes and
promises are the same job by job; property tests hold it to that.
"""

from __future__ import annotations

import numpy as np

from dovetail.kernels.compiler import njit
from dovetail.kernels.releases import Releases, enter, extra_at, first_release, leave, no_releases
from dovetail.kernels.rigid_world import (
    IDLE,
    OVERRAN,
    PROMISE,
    PROMISED,
    Ints,
    Outcome,
    Rigid,
    Runs,
    Schedule,
    World,
    begin,
    end_next,
    give_back,
    new_world,
    next_end,
    next_instant,
    outcome,
    place_lowest,
    promise,
    settle,
    submitted_by,
)
from dovetail.kernels.waiting import (
    NOBODY,
    Room,
    Waiting,
    arrive,
    first_waiting,
    lines_by_width,
    may_start,
    next_candidate,
    nobody_waits,
    part,
)

__all__ = ["EASY", "FCFS", "simulate_rigid"]

FCFS, EASY = 0, 1


def simulate_rigid(jobs: Rigid, nodes: int, policy: int, skip: int) -> Schedule:
    """Simulate jobs, each of which fits, on so many nodes under `FCFS` (with ``skip``) or `EASY`.

    O(jobs · (log jobs + runs of neighbours + words of the machine)) where the queue is short.
    """
    return Schedule(*_simulate(jobs, nodes, policy, skip))


@njit(cache=True)
def _simulate(jobs: Rigid, nodes: int, policy: int, skip: int) -> Outcome:
    count = jobs.submit.size
    waiting = nobody_waits(lines_by_width(jobs.nodes), jobs.nodes, jobs.bound, jobs.by_rank)
    most = min(nodes, count) + 1
    kept = no_releases(most)
    world = new_world(nodes, count, most)
    low = np.empty(2 * count + nodes, np.int32)
    high = np.empty(2 * count + nodes, np.int32)
    candidates = np.empty(waiting.counts.size, np.int64)
    starting = np.empty(most, np.int64)
    submitted = 0
    while True:
        now = next_instant(jobs, world, submitted, np.inf)
        if now == np.inf:
            break
        ended = _end(jobs, world, kept, low, high, now, policy)
        new, submitted = submitted, submitted_by(jobs, submitted, now)
        for job in range(new, submitted):
            arrive(waiting, job)
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
            low, high = place_lowest(jobs, world, starting[at], low, high)
    found: Outcome = outcome(world, low, high)
    return found


@njit(cache=True)
def _end(jobs: Rigid, world: World, kept: Releases, low: Runs, high: Runs, now: float, policy: int) -> bool:
    """Let end what ends now; whether anything does."""
    ended = False
    while next_end(world) <= now:
        job, ended = end_next(world, now), True
        give_back(world, job, low, high)
        world.whole[IDLE] += jobs.nodes[job]
        bound = world.start[job] + jobs.bound[job]
        if policy == EASY:
            leave(kept, bound, jobs.nodes[job])
        if now > bound:
            world.times[OVERRAN] = now
    return ended


@njit(cache=True)
def _start(jobs: Rigid, world: World, waiting: Waiting, job: int, now: float) -> None:
    """The job leaves the queue and runs."""
    part(waiting, job)
    settle(world, job, now)
    world.whole[IDLE] -= jobs.nodes[job]
    begin(jobs, world, job, now)


@njit(cache=True)
def _fcfs(jobs: Rigid, world: World, waiting: Waiting, now: float, skip: int, starting: Ints) -> int:
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
def _nothing_freed(jobs: Rigid, world: World, ended: bool, now: float, new: int, submitted: int) -> bool:
    """Whether the head still waits, and so does everybody else, as nothing ended and nobody new fits."""
    if world.whole[PROMISED] == NOBODY or ended or world.times[PROMISE] <= now:
        return False
    return bool(np.all(jobs.nodes[new:submitted] > world.whole[IDLE]))


@njit(cache=True)
def _easy(
    jobs: Rigid,
    world: World,
    waiting: Waiting,
    kept: Releases,
    now: float,
    candidates: Ints,
    starting: Ints,
) -> int:
    """From the front while jobs fit; the head is promised its shadow time; who does not delay it may go."""
    whole = world.whole
    chosen: int = 0
    head = whole[PROMISED] if whole[PROMISED] != NOBODY else first_waiting(waiting, 0)
    while head != NOBODY and jobs.nodes[head] <= whole[IDLE]:
        _start(jobs, world, waiting, head, now)
        enter(kept, now + jobs.bound[head], jobs.nodes[head])
        starting[chosen] = head
        chosen += 1
        head = first_waiting(waiting, 0)
    if head == NOBODY:
        return chosen
    shadow, extra = extra_at(kept, whole[IDLE] - jobs.nodes[head], now)
    promise(world, head, shadow, now)
    chosen += _backfill(jobs, world, waiting, kept, now, shadow, extra, candidates, starting[chosen:])
    return chosen


@njit(cache=True)
def _backfill(
    jobs: Rigid,
    world: World,
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
