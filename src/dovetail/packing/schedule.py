"""What an algorithm returns: packs, or a schedule without packs, and how good it is.

Frozen values over plain numbers; tasks are numbered from 0.  Seconds everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InvariantError
from dovetail.kernels.packing import one_pack

__all__ = [
    "ListSchedule",
    "Metrics",
    "Outcome",
    "PackedTask",
    "Packing",
    "StartedTask",
    "check",
    "fill",
    "measure",
    "place",
]

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
    def costs(self) -> tuple[float, ...]:
        """Seconds of each pack: its longest task."""
        return tuple(max(entry.time for entry in pack) for pack in self.packs)

    @property
    def cost(self) -> float:
        """Seconds of the co-schedule: the packs run one after the other."""
        return float(sum(self.costs))

    def started(self) -> tuple[StartedTask, ...]:
        """Every task with the start of its pack, in execution order."""
        begin = 0.0
        tasks: list[StartedTask] = []
        for pack, cost in zip(self.packs, self.costs, strict=True):
            tasks += [StartedTask(entry.task, entry.processors, entry.time, begin) for entry in pack]
            begin += cost
        return tuple(tasks)


@dataclass(frozen=True, slots=True)
class ListSchedule:
    """A schedule without packs: tasks by start, ties by lowest task."""

    tasks: tuple[StartedTask, ...]

    @property
    def cost(self) -> float:
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

    def energy(self, idle_watts: float, busy_watts: float) -> float:
        """Joules, for the watts that a processor draws while idle and while busy."""
        return self.busy * busy_watts + self.idle * idle_watts


def fill(times: Floats, groups: Iterable[Sequence[int]]) -> Packing:
    """Give every group of tasks its optimal processors (Algorithm 1) and put the packs in order.

    O(p * size) for each pack.
    """
    n = times.shape[0]
    sigma = np.empty(n, np.int64)
    current = np.empty(n)
    packs = []
    for group in groups:
        tasks = np.array(sorted(group), dtype=np.int64)
        one_pack(times, tasks, len(tasks), sigma, current)
        packs.append([(int(task), int(sigma[a])) for a, task in enumerate(tasks)])
    return place(times, packs)


def place(times: Floats, packs: Iterable[Sequence[tuple[int, int]]]) -> Packing:
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


def measure(times: Floats, schedule: Packing | ListSchedule) -> Metrics:
    """The measures of section 6.

    Relative cost is against running every task alone on all processors; the packing ratio is the work
    done over processors times cost; the relative response time is the mean completion time over that
    of all tasks alone, shortest first.
    """
    n, p = times.shape
    started = schedule.started()
    alone = np.sort(times[:, p - 1])
    work = sum(entry.processors * entry.time for entry in started)
    response = sum(entry.end for entry in started) / n
    cost = schedule.cost
    return Metrics(
        cost=cost,
        relative_cost=cost / float(alone.sum()),
        packing_ratio=work / (p * cost),
        relative_response_time=response / float(np.cumsum(alone).mean()),
        busy=work,
        idle=p * cost - work,
    )


def check(times: Floats, k: int, schedule: Packing | ListSchedule) -> None:
    """Raise ``InvariantError`` unless every task runs once, with its time, within k and p."""
    n, p = times.shape
    started = schedule.started()
    if sorted(entry.task for entry in started) != list(range(n)):
        raise InvariantError("a task is missing or runs twice")
    for entry in started:
        if not 1 <= entry.processors <= p or entry.time != times[entry.task, entry.processors - 1]:
            raise InvariantError(f"task {entry.task} has {entry.processors} processors for {entry.time} s")
    if isinstance(schedule, Packing):
        for pack in schedule.packs:
            if len(pack) > k:
                raise InvariantError(f"a pack holds {len(pack)} tasks, more than k = {k}")
            if sum(entry.processors for entry in pack) > p:
                raise InvariantError(f"a pack uses more than {p} processors")
        return
    changes = sorted(
        [(entry.start, 1, entry.processors) for entry in started]
        + [(entry.end, 0, -entry.processors) for entry in started]
    )
    used = 0
    for now, _, change in changes:
        used += change
        if used > p:
            raise InvariantError(f"{used} of {p} processors in use at {now} s")
