"""Points of the figures: a workload of Table 4 with some options, under several policies, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

import dovetail
from dovetail import Workload
from dovetail.report.intervals import Interval, interval
from dovetail_lab.markthub.lifetimes import Lifetimes, lifetimes
from dovetail_lab.tasks import mapped

POLICIES = ("rq", "mrq", "mrq-aware")
"""Compared with ``fcfs``, in this order."""
AWARE = "mrq-aware"


@dataclass(frozen=True, slots=True)
class Point:
    """Options of ``published:markthub``, what they are compared with, and readings of the rest.

    ``reading`` are options that every policy is given, ``rates`` those of the rate model.
    """

    options: tuple[tuple[str, str], ...] = ()
    policies: tuple[str, ...] = POLICIES
    reading: str = ""
    rates: str = ""

    def workload(self, jobs: int, seed: int) -> Workload:
        """The jobs of one seed."""
        options = (("jobs", jobs), ("seed", seed), *self.options)
        text = "&".join(f"{name}={value}" for name, value in options)
        return dovetail.load_workload(f"published:markthub?{text}")

    def named(self, policy: str) -> str:
        """A policy with this reading; ``fcfs`` never borrows, so that a local GPU at least is no matter."""
        takes = self.reading and not (policy == "fcfs" and "local" in self.reading)
        return f"{policy}?{self.reading}" if takes else policy


def table_4(
    *,
    policies: tuple[str, ...] = POLICIES,
    reading: str = "",
    rates: str = "",
    **options: object,
) -> Point:
    """A point with Table 4's defaults but for these options."""
    # Sorted, so that one point is one key, however its options are written.
    given = tuple(sorted((name, str(value)) for name, value in options.items()))
    return Point(given, policies, reading, rates)


def mixture(*, wide: bool) -> Point:
    """Jobs that hardly communicate and jobs that do nothing else, in one queue."""
    return table_4(gpu_calls="1e5|3e8", spread="wide" if wide else "narrow")


@dataclass(frozen=True, slots=True)
class Lives:
    """What one policy makes of the jobs of one seed.

    ``decrease`` is the median decrease of lifetimes against ``fcfs`` in percent, ``sacrificed`` the share of
    jobs that live longer than there, ``borrowed`` that of jobs which start with a borrowed GPU.
    """

    policy: str
    decrease: float
    sacrificed: float
    utilisation: float
    borrowed: float
    migrations: int
    median_life: float


Task = tuple[Point, int, int]
"""A point, the number of jobs, a seed."""


def play(task: Task) -> list[Lives]:
    """One point with one seed under ``fcfs`` and its policies."""
    point, jobs, seed = task
    rates = f"remote_gpu?{point.rates}" if point.rates else "remote_gpu"
    policies = [point.named(policy) for policy in ("fcfs", *point.policies)]
    found = list(lifetimes(point.workload(jobs, seed), policies, rates=rates))
    return [_lives(one, found[0]) for one in found]


def _lives(found: Lifetimes, base: Lifetimes) -> Lives:
    lives, before = found.lifetime, base.lifetime
    return Lives(
        found.policy.partition("?")[0],
        float(np.median(100 * (before - lives) / before)),
        # A tie that only rounding decides is no sacrifice.
        float(np.mean(lives > before * (1 + 1e-12))),
        found.utilisation,
        float(np.mean(found.borrowed > 0)),
        found.migrations,
        float(np.median(lives)),
    )


@dataclass(frozen=True)
class PointOutcomes:
    """All that was played: by point, for each seed what each policy made of it."""

    jobs: int
    seeds: int
    lives: Mapping[Point, Sequence[Sequence[Lives]]] = field(repr=False)
    first_seed: int = 1

    def over(self, point: Point, policy: str, what: Callable[[Lives], float]) -> Interval:
        """A figure of a policy at a point, over the seeds."""
        found = interval(what(self.of(lives, policy)) for lives in self.lives[point])
        assert found is not None
        return found

    def decrease(self, point: Point, policy: str) -> Interval:
        """The median decrease of lifetimes in percent, over the seeds."""
        return self.over(point, policy, lambda lives: lives.decrease)

    def beyond(self, point: Point, policy: str, others: Sequence[str] = ("fcfs", "mrq")) -> Interval:
        """By how many percent points it is beyond the best of others, seed by seed."""
        found = interval(
            self.of(lives, policy).decrease - max(self.of(lives, other).decrease for other in others)
            for lives in self.lives[point]
        )
        assert found is not None
        return found

    def crossing(self, points: Mapping[float, Point], policy: str) -> Interval | None:
        """Where the decrease crosses zero along an axis, over the seeds in which it does."""
        return interval(self.crossings(points, policy))

    def crossings(self, points: Mapping[float, Point], policy: str) -> list[float | None]:
        """The same seed by seed."""
        return [
            crossing([(x, self.of(self.lives[p][seed], policy).decrease) for x, p in points.items()])
            for seed in range(self.seeds)
        ]

    def apart(
        self,
        points: Mapping[float, Point],
        how: Callable[[float, float], float] = lambda rq, mrq: mrq - rq,
    ) -> Interval | None:
        """How far apart RQ's and MRQ's gains cross zero, over the seeds in which both do."""
        both = zip(self.crossings(points, "rq"), self.crossings(points, "mrq"), strict=True)
        return interval(None if rq is None or mrq is None else how(rq, mrq) for rq, mrq in both)

    def between(self, more: Point, less: Point, policy: str) -> Interval | None:
        """By how many percent points one point's decrease is above another's, seed by seed."""
        both = zip(self.lives[more], self.lives[less], strict=True)
        return interval(self.of(a, policy).decrease - self.of(b, policy).decrease for a, b in both)

    @staticmethod
    def of(lives: Sequence[Lives], policy: str) -> Lives:
        """Of one seed, what this policy made."""
        return next(one for one in lives if one.policy == policy)


def crossing(series: Sequence[tuple[float, float]]) -> float | None:
    """Where values change sign along x, linearly between neighbours; ``None`` where they do not.

    The last change counts: what lies before it may be noise about zero.

    >>> crossing([(7.0, 3.0), (8.0, -1.0), (9.0, -5.0)])
    7.75
    """
    found = None
    for (x, y), (x_next, y_next) in pairwise(series):
        if (y > 0) != (y_next > 0):
            found = x + (x_next - x) * y / (y - y_next)
    return found


def play_all(
    points: Sequence[Point],
    *,
    jobs: int,
    seeds: int,
    first_seed: int = 1,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> PointOutcomes:
    """Play each point once for every seed; one that is needed for more policies is played for all of them."""
    distinct = list(dict.fromkeys(points))
    tasks: list[Task] = [
        (point, jobs, seed) for point in distinct for seed in range(first_seed, first_seed + seeds)
    ]
    lives: dict[Point, list[Sequence[Lives]]] = {}
    for (point, _, _), found in zip(tasks, mapped(play, tasks, workers, progress), strict=True):
        lives.setdefault(point, []).append(found)
    return PointOutcomes(jobs, seeds, lives, first_seed)
