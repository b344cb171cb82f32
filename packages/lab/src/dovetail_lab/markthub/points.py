"""Points of the figures: a workload of Table 4 with some options, under several policies, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

import dovetail
from dovetail import Workload
from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.markthub.lifetimes import Lifetimes, simulate_lifetimes
from dovetail_lab.tasks import map_tasks

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

    def draw_workload(self, jobs: int, seed: int) -> Workload:
        """The jobs of one seed."""
        options = (("jobs", jobs), ("seed", seed), *self.options)
        text = "&".join(f"{name}={value}" for name, value in options)
        return dovetail.load_workload(f"published:markthub?{text}")

    def policy_name(self, policy: str) -> str:
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


def mixture_point(*, wide: bool) -> Point:
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


def play_point(task: Task) -> list[Lives]:
    """One point with one seed under ``fcfs`` and its policies."""
    point, jobs, seed = task
    rates = f"remote_gpu?{point.rates}" if point.rates else "remote_gpu"
    policies = [point.policy_name(policy) for policy in ("fcfs", *point.policies)]
    found = list(simulate_lifetimes(point.draw_workload(jobs, seed), policies, rates=rates))
    return [_make_lives(one, found[0]) for one in found]


def _make_lives(found: Lifetimes, base: Lifetimes) -> Lives:
    lives, before = found.lifetime_seconds, base.lifetime_seconds
    return Lives(
        found.policy.partition("?")[0],
        float(np.median(100 * (before - lives) / before)),
        # A tie that only rounding decides is no sacrifice.
        float(np.mean(lives > before * (1 + 1e-12))),
        found.held_share,
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

    def mean_over_seeds(self, point: Point, policy: str, what: Callable[[Lives], float]) -> Interval:
        """A figure of a policy at a point, over the seeds."""
        found = mean_interval(what(self.of(lives, policy)) for lives in self.lives[point])
        assert found is not None
        return found

    def median_decrease(self, point: Point, policy: str) -> Interval:
        """The median decrease of lifetimes in percent, over the seeds."""
        return self.mean_over_seeds(point, policy, lambda lives: lives.decrease)

    def beyond_others(self, point: Point, policy: str, others: Sequence[str] = ("fcfs", "mrq")) -> Interval:
        """By how many percent points it is beyond the best of others, seed by seed."""
        found = mean_interval(
            self.of(lives, policy).decrease - max(self.of(lives, other).decrease for other in others)
            for lives in self.lives[point]
        )
        assert found is not None
        return found

    def mean_crossing(self, points: Mapping[float, Point], policy: str) -> Interval | None:
        """Where the decrease crosses zero along an axis, over the seeds in which it does."""
        return mean_interval(self.crossings_by_seed(points, policy))

    def crossings_by_seed(self, points: Mapping[float, Point], policy: str) -> list[float | None]:
        """The same seed by seed."""
        return [
            find_crossing([(x, self.of(self.lives[p][seed], policy).decrease) for x, p in points.items()])
            for seed in range(self.seeds)
        ]

    def distance_of_crossings(
        self,
        points: Mapping[float, Point],
        how: Callable[[float, float], float] = lambda rq, mrq: mrq - rq,
    ) -> Interval | None:
        """How far apart RQ's and MRQ's gains cross zero, over the seeds in which both do."""
        both = zip(self.crossings_by_seed(points, "rq"), self.crossings_by_seed(points, "mrq"), strict=True)
        return mean_interval(None if rq is None or mrq is None else how(rq, mrq) for rq, mrq in both)

    def difference_between(self, more: Point, less: Point, policy: str) -> Interval | None:
        """By how many percent points one point's decrease is above another's, seed by seed."""
        both = zip(self.lives[more], self.lives[less], strict=True)
        return mean_interval(self.of(a, policy).decrease - self.of(b, policy).decrease for a, b in both)

    @staticmethod
    def of(lives: Sequence[Lives], policy: str) -> Lives:
        """Of one seed, what this policy made."""
        return next(one for one in lives if one.policy == policy)


def find_crossing(series: Sequence[tuple[float, float]]) -> float | None:
    """Where values change sign along x, linearly between neighbours; ``None`` where they do not.

    The last change counts: what lies before it may be noise about zero.

    >>> find_crossing([(7.0, 3.0), (8.0, -1.0), (9.0, -5.0)])
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
    for (point, _, _), found in zip(tasks, map_tasks(play_point, tasks, workers, progress), strict=True):
        lives.setdefault(point, []).append(found)
    return PointOutcomes(jobs, seeds, lives, first_seed)
