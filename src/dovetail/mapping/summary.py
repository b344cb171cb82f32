"""What is counted while a map runs, and the summary at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dovetail.errors import ItemError
from dovetail.mapping.health import Health
from dovetail.mapping.places import Place
from dovetail.mapping.waiting import Task
from dovetail.model import CPU
from dovetail.records import dataclass


@dataclass(slots=True)
class Sample:
    """Items of about one size on workers of one kind: how many, and their seconds in all."""

    items: int = 0
    seconds: float = 0.0
    size: float = 0.0

    def add(self, items: int, seconds: float, size: float) -> None:
        """Take more items in; ``size`` is their mean."""
        self.items += items
        self.seconds += seconds
        self.size += items * size


@dataclass(slots=True)
class Tally:
    """The counts of one map. Seconds of a task are those from its giving out to its result."""

    learned: Mapping[str, float]
    size_of: Callable[[int], float] | None = None
    tasks: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    own: dict[str, float] = field(default_factory=dict)
    retried: int = 0
    duplicated: int = 0
    lost: int = 0
    failed: list[ItemError] = field(default_factory=list)
    samples: dict[tuple[str, int], Sample] = field(default_factory=dict)
    cold: dict[tuple[str, int], Sample] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def done(self, kind: str, good: int, seconds: float, own: float) -> None:
        """A task has ended, ``good`` of its items well; ``own`` seconds are the function's."""
        self.tasks[kind] += good
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
        self.own[kind] = self.own.get(kind, 0.0) + own

    def learn(self, place: Place, task: Task, seconds: float, *, first: bool) -> None:
        """A task whose items were all well has taken so many seconds; ``first``: of its worker."""
        self.places.setdefault(place.kind, place)
        size = 0.0 if self.size_of is None else sum(map(self.size_of, task.indices)) / len(task)
        bucket = int(size).bit_length()
        kept = self.cold if first else self.samples
        kept.setdefault((place.kind, bucket), Sample()).add(len(task), seconds, size)

    def mean_seconds(self) -> dict[str, float]:
        """Of an item, by kind."""
        return {kind: self.seconds[kind] / count for kind, count in self.tasks.items() if count}

    def make_summary(
        self, seconds: float, workers: Sequence[str], compared: int, health: Health
    ) -> MapSummary:
        """The summary at the end."""
        mean = self.mean_seconds()
        other = next((kind for kind in mean if kind != CPU), None)
        factor = mean[CPU] / mean[other] if CPU in mean and other is not None and mean[other] else None
        items = sum(self.tasks.values())
        spent = sum(self.seconds.values()) - sum(self.own.values())
        return MapSummary(
            items=items,
            seconds=seconds,
            tasks=dict(self.tasks),
            mean_seconds=mean,
            acceleration=factor,
            overhead_per_task=spent / items if items else None,
            retried=self.retried,
            duplicated=self.duplicated,
            lost_workers=self.lost,
            compared=compared,
            failed=[{"index": e.index, "reason": str(e)} for e in self.failed],
            workers=list(workers),
            suspended=health.suspended_seconds(),
            failed_on=health.failed_tries(),
        )


@dataclass(frozen=True, slots=True)
class MapSummary:
    """What came of a map.

    ``items`` gave a result in ``seconds``; ``tasks`` and ``mean_seconds`` are by kind of worker: how many
    items each kind ran, and the mean time of one, from its giving out to its result. ``acceleration`` is
    the CPU's mean over the other kind's. ``overhead_per_task`` is the part of the mean that is not the
    function's own. ``retried`` items were run again because a run failed or a worker was lost,
    ``duplicated`` ones a second time beside the first, ``compared`` ones on every kind. ``suspended`` has,
    by kind, the seconds during which a worker of it was suspended because it failed where others succeeded;
    ``failed_on`` how many tries of items failed on each kind, whatever became of the items.
    """

    items: int = 0
    seconds: float = 0.0
    tasks: Mapping[str, int] = field(default_factory=dict)
    mean_seconds: Mapping[str, float] = field(default_factory=dict)
    acceleration: float | None = None
    overhead_per_task: float | None = None
    retried: int = 0
    duplicated: int = 0
    lost_workers: int = 0
    compared: int = 0
    failed: Sequence[Mapping[str, Any]] = ()
    workers: Sequence[str] = ()
    suspended: Mapping[str, float] = field(default_factory=dict)
    failed_on: Mapping[str, int] = field(default_factory=dict)
