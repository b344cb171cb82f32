"""What an algorithm returns: packs, or a schedule without packs, and how good it is.

Frozen values over plain numbers; tasks are numbered from 0.  Seconds everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InvariantError
from dovetail_lab.packing.compiled import fill_packs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedTask:
    """A task of a pack: its processors, and its seconds on them."""

    task: int
    processors: int
    time: float


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A task of a schedule without packs."""

    task: int
    processors: int
    time: float
    start: float

    @property
    def end(self) -> float:
        """When it ends."""
        return self.start + self.time


@dataclass(frozen=True, slots=True)
class Packing:
    """Packs in execution order: by increasing cost, ties by lowest task; tasks ascending in each."""

    packs: tuple[tuple[PackedTask, ...], ...]

    @property
    def pack_costs(self) -> tuple[float, ...]:
        """Seconds of each pack: its longest task."""
        return tuple(max(entry.time for entry in pack) for pack in self.packs)

    @property
    def total_cost(self) -> float:
        """Seconds of the co-schedule: the packs run one after the other."""
        return float(sum(self.pack_costs))

    def started(self) -> tuple[StartedTask, ...]:
        """Every task with the start of its pack, in execution order."""
        begin = 0.0
        tasks: list[StartedTask] = []
        for pack, cost in zip(self.packs, self.pack_costs, strict=True):
            tasks += [StartedTask(entry.task, entry.processors, entry.time, begin) for entry in pack]
            begin += cost
        return tuple(tasks)


@dataclass(frozen=True, slots=True)
class ListSchedule:
    """A schedule without packs: tasks by start, ties by lowest task."""

    tasks: tuple[StartedTask, ...]

    @property
    def total_cost(self) -> float:
        """The makespan."""
        return max(entry.end for entry in self.tasks)

    def started(self) -> tuple[StartedTask, ...]:
        """Every task with its start."""
        return self.tasks


@dataclass(frozen=True, slots=True)
class Outcome:
    """An algorithm's schedule, what it knows about the optimum, and remarks for a person."""

    schedule: Packing | ListSchedule
    lower_bound: float | None = None
    proven_optimal: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metrics:
    """The measures of Aupy 2013, section 6, and the processor-seconds behind them."""

    cost: float
    relative_cost: float
    packing_ratio: float
    relative_response_time: float
    busy: float
    idle: float

    def energy_joules(self, idle_watts: float, busy_watts: float) -> float:
        """Joules, for the watts that a processor draws while idle and while busy."""
        return self.busy * busy_watts + self.idle * idle_watts


def fill_groups(times: Floats, groups: Iterable[Sequence[int]]) -> Packing:
    """Give every group of tasks its optimal processors (Algorithm 1) and put the packs in order.

    The groups need not hold all tasks, but none twice.  O(p * size) for each pack.
    """
    # Numbers rather than lists from here on, since the kernel works on all packs at once.
    pack_of = np.full(times.shape[0], -1, np.int64)
    for pack, group in enumerate(groups):
        pack_of[list(group)] = pack
    # Tasks that are in no group, in a partial packing, are left out of the arrays.
    present = np.flatnonzero(pack_of >= 0)
    if len(present) == len(pack_of):
        return fill_partition(times, pack_of)
    return _build_packing(times, present, *_fill_by_number(times[present], pack_of[present]))


def fill_partition(times: Floats, pack_of: Ints) -> Packing:
    """Like ``fill``, from the pack of each task: 0, 1, ... without a gap."""
    return _build_packing(times, np.arange(len(pack_of)), *_fill_by_number(times, pack_of))


def _fill_by_number(times: Floats, pack_of: Ints) -> tuple[Ints, Ints]:
    sigma = np.empty(len(pack_of), np.int64)
    packs = int(pack_of.max(initial=-1)) + 1
    fill_packs(times, pack_of, packs, sigma, np.empty(packs))
    return pack_of, sigma


def _build_packing(times: Floats, tasks: Ints, pack_of: Ints, sigma: Ints) -> Packing:
    """Packs in execution order; ``tasks`` ascends, so that the tasks of a pack do."""
    seconds = times[tasks, sigma - 1].tolist()
    packs: list[list[PackedTask]] = [[] for _ in range(int(pack_of.max(initial=-1)) + 1)]
    for pack, task, count, time in zip(
        pack_of.tolist(), tasks.tolist(), sigma.tolist(), seconds, strict=True
    ):
        packs[pack].append(PackedTask(task, count, time))
    # By cost, so that the mean response time is least; by the lowest task among equals, so that one packing
    # has one spelling.
    packs.sort(key=lambda pack: (max(entry.time for entry in pack), pack[0].task))
    return Packing(tuple(map(tuple, packs)))


def place_packs(times: Floats, packs: Iterable[Sequence[tuple[int, int]]]) -> Packing:
    """A packing from (task, processors) pairs, in execution order."""
    filled = [
        tuple(
            PackedTask(task, processors, float(times[task, processors - 1]))
            for task, processors in sorted(pack)
        )
        for pack in packs
    ]
    filled.sort(key=lambda pack: (max(entry.time for entry in pack), pack[0].task))
    return Packing(tuple(filled))


def groups_of(pack_of: Ints) -> list[list[int]]:
    """The tasks of each pack, from the pack of each task; empty packs are left out."""
    groups: dict[int, list[int]] = {}
    for task, pack in enumerate(pack_of.tolist()):
        groups.setdefault(pack, []).append(task)
    return [groups[pack] for pack in sorted(groups)]


def measure_schedule(times: Floats, schedule: Packing | ListSchedule) -> Metrics:
    """The measures of section 6.

    Relative cost is against running every task alone on all processors; the packing ratio is the work
    done over processors times cost; the relative response time is the mean completion time over that
    of all tasks alone, shortest first.
    """
    n, p = times.shape
    started = schedule.started()
    # Shortest first, in order that the reference is the best that one task at a time can do for response
    # times.
    alone = np.sort(times[:, p - 1])
    work = sum(entry.processors * entry.time for entry in started)
    response = sum(entry.end for entry in started) / n
    cost = schedule.total_cost
    return Metrics(
        cost=cost,
        relative_cost=cost / float(alone.sum()),
        packing_ratio=work / (p * cost),
        relative_response_time=response / float(np.cumsum(alone).mean()),
        busy=work,
        idle=p * cost - work,
    )


def check_schedule(times: Floats, k: int, schedule: Packing | ListSchedule) -> None:
    """Raise ``InvariantError`` unless every task runs once, with its time, within k and p."""
    n, p = times.shape
    started = schedule.started()
    if sorted(entry.task for entry in started) != list(range(n)):
        raise InvariantError("a task is missing or runs twice")
    for entry in started:
        # Exactly equal: a time that was computed instead of looked up would be another instance's.
        if not 1 <= entry.processors <= p or entry.time != times[entry.task, entry.processors - 1]:
            raise InvariantError(f"task {entry.task} has {entry.processors} processors for {entry.time} s")
    if isinstance(schedule, Packing):
        for pack in schedule.packs:
            if len(pack) > k:
                raise InvariantError(f"a pack holds {len(pack)} tasks, more than k = {k}")
            if sum(entry.processors for entry in pack) > p:
                raise InvariantError(f"a pack uses more than {p} processors")
        return
    # Ends before starts at one instant, as processors change hands there.
    changes = sorted(
        [(entry.start, 1, entry.processors) for entry in started]
        + [(entry.end, 0, -entry.processors) for entry in started]
    )
    used = 0
    for now, _, change in changes:
        used += change
        if used > p:
            raise InvariantError(f"{used} of {p} processors in use at {now} s")
