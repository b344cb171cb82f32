"""The machine of a compiled simulation of rigid jobs on like nodes: what runs where, and what came of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.node_bits import WIDTH, give, node_set, take_lowest
from dovetail.kernels.waiting import NOBODY

__all__ = [
    "BROKEN",
    "BY_OVERRUN",
    "IDLE",
    "MADE",
    "OVERRAN",
    "PROMISE",
    "PROMISED",
    "RUNNING",
    "RUNS",
    "Floats",
    "Ints",
    "Rigid",
    "Runs",
    "Schedule",
    "World",
    "begin",
    "end_next",
    "give_back",
    "new_world",
    "next_end",
    "next_instant",
    "outcome",
    "place_lowest",
    "promise",
    "settle",
    "submitted_by",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Runs = npt.NDArray[np.int32]
Outcome = tuple[Any, ...]
"""The fields of a `Schedule`."""

TOLERANCE = 1e-9
"""Relative slack of promises, as in `dovetail.engine.promises`."""

# Places of what changes as one number; from PROMISED on: the promise to EASY's head, and what came of such.
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


class World(NamedTuple):
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
def new_world(nodes: int, count: int, most: int) -> World:
    """All nodes are free, nothing runs; ``most`` is above the jobs that can run at once."""
    whole, times = np.zeros(8, np.int64), np.zeros(3)
    whole[IDLE] = nodes
    whole[PROMISED] = NOBODY
    times[OVERRAN] = -np.inf
    return World(
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
def _push(world: World, end: float, job: int, turn: int) -> None:
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
def _pop(world: World) -> int:
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
def _room_for_runs(values: Runs, used: int, more: int) -> Runs:
    """The same values with room for so many more."""
    if used + more <= values.size:
        return values
    larger = np.empty(2 * values.size + more, values.dtype)
    larger[:used] = values[:used]
    return larger


@njit(cache=True)
def place_lowest(jobs: Rigid, world: World, job: int, low: Runs, high: Runs) -> tuple[Runs, Runs]:
    """Give a job that starts the lowest free nodes; the arrays of runs, or larger ones."""
    whole, nodes = world.whole, jobs.nodes[job]
    low = _room_for_runs(low, whole[RUNS], nodes)
    high = _room_for_runs(high, whole[RUNS], nodes)
    world.first[job] = whole[RUNS]
    runs, word = take_lowest(world.free, whole[FIRST_WORD], nodes, low, high, whole[RUNS])
    world.runs[job] = runs - whole[RUNS]
    whole[RUNS], whole[FIRST_WORD] = runs, word
    return low, high


@njit(cache=True)
def next_end(world: World) -> float:
    """When the next job ends; infinite where nothing runs."""
    return np.inf if world.whole[RUNNING] == 0 else world.ends[0]


@njit(cache=True)
def next_instant(jobs: Rigid, world: World, submitted: int, due: float) -> float:
    """When a job ends, is submitted, or what is due happens, whichever comes next; infinite: none of it."""
    now: float = min(next_end(world), due)
    if submitted < jobs.submit.size:
        now = min(now, jobs.submit[submitted])
    return now


@njit(cache=True)
def submitted_by(jobs: Rigid, submitted: int, now: float) -> int:
    """How many jobs have been submitted by then; so many were before."""
    while submitted < jobs.submit.size and jobs.submit[submitted] <= now:
        submitted += 1
    return submitted


@njit(cache=True)
def begin(jobs: Rigid, world: World, job: int, now: float) -> None:
    """The job runs; where is settled by `place_lowest`."""
    whole = world.whole
    whole[STARTED] += 1
    world.start[job] = now
    end, limit = now + jobs.seconds[job], now + jobs.limit[job]
    if end > limit:
        end = limit
        world.killed[job] = True
    _push(world, end, job, whole[STARTED])


@njit(cache=True)
def promise(world: World, head: int, start: float, now: float) -> None:
    """The head of EASY's queue is promised a start, unless it holds one as early."""
    whole, times = world.whole, world.times
    if start < (times[PROMISE] if head == whole[PROMISED] else np.inf):
        if head != whole[PROMISED]:
            times[MADE] = now
        whole[PROMISED] = head
        times[PROMISE] = start


@njit(cache=True)
def settle(world: World, job: int, now: float) -> None:
    """The job starts: the promise that it holds, if it does, is kept or broken."""
    whole, times = world.whole, world.times
    if job != whole[PROMISED]:
        return
    start = times[PROMISE]
    world.promised[job] = start
    whole[PROMISED] = NOBODY
    if now > start + TOLERANCE * max(1.0, abs(start)):
        whole[BROKEN] += 1
        if times[OVERRAN] >= times[MADE]:
            whole[BY_OVERRUN] += 1


@njit(cache=True)
def end_next(world: World, now: float) -> int:
    """End the job that ends next; which one it was."""
    job: int = _pop(world)
    world.end[job] = now
    return job


@njit(cache=True)
def give_back(world: World, job: int, low: Runs, high: Runs) -> None:
    """Free the nodes of a job that has ended."""
    whole = world.whole
    for run in range(world.first[job], world.first[job] + world.runs[job]):
        give(world.free, low[run], high[run])
        whole[FIRST_WORD] = min(whole[FIRST_WORD], low[run] // WIDTH)


@njit(cache=True)
def outcome(world: World, low: Runs, high: Runs) -> Outcome:
    """The fields of a `Schedule`."""
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
