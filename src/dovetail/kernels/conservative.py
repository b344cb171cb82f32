"""A whole simulation of rigid jobs on like nodes under conservative backfilling, compiled.

The specification is `dovetail.policies.conservative`, run by the engine on nodes of which every job takes
whole ones, where every job has a bound above zero and none runs past it: then every promise is kept. What is
free over time is that of `dovetail.kernels.free_steps`. Each job stands for itself here, and the queue is
passed through at every early end; but nearly all of it costs one comparison a job: of its promised start
with the earliest time from which enough for its class of widths was given back since the last pass began.
"""

from __future__ import annotations

import numpy as np

from dovetail.kernels.compiler import njit
from dovetail.kernels.free_steps import (
    DEPTH,
    MEMO,
    VERSION,
    add,
    classes_up_to,
    drop_past,
    first_gap,
    forget_log,
    gap_before,
    give,
    given_first,
    move,
    room_for,
    steps_of,
)
from dovetail.kernels.promised_line import LOOKED_AT, SIZE, Line, in_order, line_up, nobody, take_due
from dovetail.kernels.rigid_world import (
    Floats,
    Ints,
    Outcome,
    Rigid,
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
    submitted_by,
)

__all__ = ["simulate_conservative"]


def simulate_conservative(jobs: Rigid, nodes: int) -> Schedule:
    """Simulate jobs, each of which fits, on so many nodes.

    O(jobs · (log jobs + runs of neighbours + words of the machine + jobs waiting)), the last one with a small
    constant.
    """
    classes = classes_up_to(nodes)
    begin_at = float(jobs.submit[0])
    counts, times = steps_of(np.array([begin_at]), np.array([nodes]))
    return Schedule(*_simulate(jobs, nodes, classes, counts, times))


@njit(cache=True)
def _simulate(jobs: Rigid, nodes: int, classes: Ints, counts: Ints, times: Floats) -> Outcome:
    count = jobs.submit.size
    most = min(nodes, count) + 1
    world = new_world(nodes, count, most)
    line = nobody(jobs.by_rank)
    log = np.zeros((classes[-1] + 1, DEPTH + 3), np.int64)
    since, memo = np.zeros((classes[-1] + 1, DEPTH)), np.zeros((MEMO, 4))
    low, high = np.empty(2 * count + nodes, np.int32), np.empty(2 * count + nodes, np.int32)
    starting = np.empty(most, np.int64)
    submitted, due = 0, np.inf
    while True:
        now = next_instant(jobs, world, submitted, due)
        if now == np.inf:
            break
        drop_past(counts, times, now)
        early = False
        while next_end(world) <= now:
            job = end_next(world, now)
            give_back(world, job, low, high)
            bound = world.start[job] + jobs.bound[job]
            if now < bound:
                early = True
                counts, times = room_for(counts, times, 2)
                give(counts, times, classes, log, since, now, bound, jobs.nodes[job])
        if early:
            counts, times, due = _renew(jobs, world, line, counts, times, classes, log, since, memo, now)
        chosen = 0
        if due <= now:
            chosen, due = take_due(line, now, starting)
        new, submitted = submitted, submitted_by(jobs, submitted, now)
        for job in in_order(line.rank, new, submitted):
            counts, times = room_for(counts, times, 2)
            width, bound = jobs.nodes[job], jobs.bound[job]
            start = first_gap(counts, times, width, bound, np.inf, now)
            add(counts, times, start, start + bound, -width)
            if start <= now:
                starting[chosen] = job
                chosen += 1
            else:
                world.promised[job] = start
                line_up(line, job, start, classes[width], counts[-1, VERSION])
                due = min(due, start)
        for at in range(chosen):
            begin(jobs, world, starting[at], now)
            low, high = place_lowest(jobs, world, starting[at], low, high)
    found: Outcome = outcome(world, low, high)
    return found


@njit(cache=True)
def _renew(
    jobs: Rigid,
    world: World,
    line: Line,
    counts: Ints,
    times: Floats,
    classes: Ints,
    log: Ints,
    since: Floats,
    memo: Floats,
    now: float,
) -> tuple[Ints, Floats, float]:
    """Make every promise anew in turn; the arrays of what is free, and when the next promise is due."""
    forget_log(log, line.whole[LOOKED_AT])
    line.whole[LOOKED_AT] = counts[-1, VERSION]
    reach = np.empty(len(log))
    given_first(log, since, reach)
    due = np.inf
    for at in range(line.whole[SIZE]):
        start = line.start[at]
        if reach[line.kind[at]] < start and now < start:
            job = line.job[at]
            width, bound = jobs.nodes[job], jobs.bound[job]
            found = gap_before(
                counts, times, log, since, memo, now, width, bound, line.kind[at], line.version[job], start
            )
            if found < start:
                counts, times = room_for(counts, times, 4)
                move(counts, times, classes, log, since, width, start, found, bound)
                given_first(log, since, reach)
                line.start[at] = start = found
                if found > now:
                    world.promised[job] = found
            line.version[job] = counts[-1, VERSION]
        due = min(due, start)
    return counts, times, due
