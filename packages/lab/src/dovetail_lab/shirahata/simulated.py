"""Figures 6 to 8 by simulation: 4000 tasks on 1 to 64 nodes, with heartbeats, noise and a shared file system.

The paper prints the times of a task only in section V (Figure 9, another machine), and no value of Figures 6
to 8. So figures are made for the factor that follows from those times, and for the one that its claim of
1.93 would need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dovetail.report.intervals import Interval, interval
from dovetail.splitting.finish_time import optimal_makespan
from dovetail.splitting.rules import RULES
from dovetail.splitting.simulate import FileSystem, Played, play
from dovetail.workers import mapped

__all__ = ["ALPHA", "ALPHAS", "NEEDED", "NODES", "NOISES", "POLICIES", "TASKS", "Case", "Figures", "figures"]

TASKS, NODES = 4000, (1, 2, 4, 8, 16, 32, 64)
CPU_SECONDS, GPU_SECONDS = 77.4, 27.9
ALPHA = CPU_SECONDS / GPU_SECONDS
NEEDED = 8.44
"""The factor with which the throughput of 14 CPU and 2 GPU slots is 1.93 times that of 16 CPU slots."""
ALPHAS = (ALPHA, 4.21, NEEDED, 12.0, 16.0)
"""Of tasks, of the programs in them (65.2 and 15.5 s), needed, and beyond."""
HEARTBEAT = 3.0
GPU_NOISE = 0.1
NOISES = (0.1, 0.2, 0.4, 0.6)
SHARED = FileSystem(seconds=8.0, streams=100.0)
"""A task reads for 8 s when alone; a hundred read at full speed together, more slow each other down."""
POLICIES: Mapping[str, tuple[int, int, str]] = {
    "hadoop": (16, 0, "greedy"),
    "hadoop-gpu2": (14, 2, "greedy"),
    "shares": (14, 2, "shares"),
    "finish-time": (14, 2, "finish-time"),
    "hadoop-gpu1": (15, 1, "greedy"),
    "finish-time-gpu1": (15, 1, "finish-time"),
}
"""CPU and GPU slots of a node, and the rule. ``hadoop`` and ``hadoop-gpu2`` are the paper's names; its
proposal is ``shares``, on the tasks that remain."""


@dataclass(frozen=True, slots=True)
class Case:
    """One setting. Without ``noise`` there are no heartbeats, and times are known (the clean model)."""

    policy: str
    nodes: int
    alpha: float = ALPHA
    noise: float | None = None
    shared: bool = False
    count_gap: bool = True

    def played(self, seed: int) -> Played:
        """One play of it."""
        cpus, gpus, rule = POLICIES[self.policy]
        noisy = self.noise is not None
        return play(
            TASKS,
            {"cpu": cpus, "gpu": gpus},
            {"cpu": CPU_SECONDS, "gpu": CPU_SECONDS / self.alpha},
            RULES[rule],
            nodes=self.nodes,
            heartbeat=HEARTBEAT if noisy else 0.0,
            noise={"cpu": self.noise or 0.0, "gpu": GPU_NOISE if self.noise else 0.0},
            file_system=SHARED if self.shared else None,
            known=not noisy and not self.shared,
            count_gap=self.count_gap,
            rng=np.random.Generator(np.random.PCG64(seed)),
        )

    def optimum(self) -> float:
        """The exact optimum of the clean model."""
        cpus, gpus, _ = POLICIES[self.policy]
        slots = [(cpus * self.nodes, CPU_SECONDS), (gpus * self.nodes, CPU_SECONDS / self.alpha)]
        return optimal_makespan(TASKS, slots)


@dataclass(frozen=True)
class Figures:
    """All plays, by case and seed."""

    seeds: int
    plays: Mapping[Case, Sequence[Played]] = field(repr=False)

    def makespan(self, case: Case) -> Interval:
        """Seconds, over the seeds."""
        return _known(interval(played.makespan for played in self.plays[case]))

    def speedup(self, case: Case, over: str = "hadoop") -> Interval:
        """How many times faster than another policy in the same setting, seed by seed."""
        others = self.plays[replace(case, policy=over, count_gap=True)]
        pairs = zip(others, self.plays[case], strict=True)
        return _known(interval(other.makespan / mine.makespan for other, mine in pairs))

    def mean_seconds(self, case: Case, kind: str) -> Interval:
        """Of a task of this kind."""
        return _known(interval(played.mean_seconds[kind] for played in self.plays[case]))

    @cached_property
    def slope(self) -> tuple[float, float]:
        """Figure 7: seconds by which a CPU and a GPU task grow with each node, from 16 to 64 nodes."""
        first, last = Case("hadoop-gpu2", 16, shared=True), Case("hadoop-gpu2", 64, shared=True)
        cpu, gpu = (
            (self.mean_seconds(last, kind).mean - self.mean_seconds(first, kind).mean) / 48
            for kind in ("cpu", "gpu")
        )
        return cpu, gpu


def _known(found: Interval | None) -> Interval:
    assert found is not None
    return found


def _cases() -> list[Case]:
    """Everything that the figures and claims need."""
    proposals = ("hadoop", "hadoop-gpu2", "shares", "finish-time")
    clean = [Case(p, n, alpha) for alpha in (ALPHA, NEEDED) for n in NODES for p in proposals]
    noisy = [Case(p, n, alpha, 0.2) for alpha in (ALPHA, NEEDED) for n in NODES for p in proposals]
    many = [Case(p, 64, alpha, noise) for alpha in ALPHAS for noise in NOISES for p in proposals]
    one = [Case(p, 1, alpha, 0.2) for alpha in ALPHAS for p in ("hadoop", "finish-time")]
    gap = [replace(Case("finish-time", 64, alpha, 0.1), count_gap=False) for alpha in ALPHAS]
    shared = [Case(p, n, shared=True) for n in NODES for p in ("hadoop", "hadoop-gpu2", "finish-time")]
    gpus = [Case(p, n, noise=0.2) for n in NODES for p in ("hadoop-gpu1", "finish-time-gpu1")]
    return list(dict.fromkeys([*clean, *noisy, *many, *one, *gap, *shared, *gpus]))


def _play(task: tuple[Case, int]) -> Played:
    case, seed = task
    return case.played(seed)


def figures(*, seeds: int, workers: int, tell: Callable[[int, int], None] | None = None) -> Figures:
    """Play all cases, those with chance for every seed."""
    tasks = [(case, seed) for case in _cases() for seed in range(1, (1 if case.noise is None else seeds) + 1)]
    found: dict[Case, list[Played]] = {}
    for (case, _), played in zip(tasks, mapped(_play, tasks, workers, tell), strict=True):
        found.setdefault(case, []).append(played)
    return Figures(seeds, found)
