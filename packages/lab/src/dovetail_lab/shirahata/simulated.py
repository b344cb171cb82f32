"""Figures 6 to 8 by simulation: 4000 tasks on 1 to 64 nodes, with heartbeats, noise and a shared file system.

The paper prints the times of a task only in section V (Figure 9, another machine), and no value of Figures 6
to 8. So figures are made for the factor that follows from those times, and for the one that its claim of
1.93 would need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.report.intervals import Interval, mean_interval
from dovetail.splitting.finish_time import optimal_makespan
from dovetail.splitting.known import rule_makespan
from dovetail.splitting.rules import RULES
from dovetail_lab.shirahata.play import FileSystem, Played, play_map
from dovetail_lab.tasks import map_tasks

TASKS, NODES = 4000, (1, 2, 4, 8, 16, 32, 64)
CPU_SECONDS, GPU_SECONDS = 77.4, 27.9
ALPHA = CPU_SECONDS / GPU_SECONDS
NEEDED = 8.44
"""The factor with which the throughput of 14 CPU and 2 GPU slots is 1.93 times that of 16 CPU slots."""
ALPHAS = (ALPHA, 4.21, NEEDED, 12.0, 16.0)
"""Of tasks, of the programs in them (65.2 and 15.5 s), needed, and beyond."""
NOISES = (0.1, 0.2, 0.4, 0.6)
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
class Setting:
    """What the paper does not print: everything here is ours.

    A task reads for ``fs_seconds`` when alone; ``fs_streams`` tasks read at full speed together, more slow
    each other down. ``noises`` are standard deviations of a CPU task's logarithm.
    """

    noises: tuple[float, ...] = NOISES
    factor: float = ALPHA
    gpu_noise: float = 0.1
    heartbeat: float = 3.0
    fs_seconds: float = 8.0
    fs_streams: float = 100.0

    @property
    def single_noise(self) -> float:
        """The noise of figures that have only one."""
        return 0.2 if 0.2 in self.noises else self.noises[0]


@dataclass(frozen=True, slots=True)
class Case:
    """One setting. Without ``noise`` there are no heartbeats, and times are known (the clean model)."""

    policy: str
    nodes: int
    alpha: float = ALPHA
    noise: float | None = None
    shared: bool = False
    count_gap: bool = True

    def play_case(self, seed: int, setting: Setting | None = None) -> Played:
        """One play of it."""
        setting = setting or Setting()
        cpus, gpus, rule = POLICIES[self.policy]
        slots, seconds = {"cpu": cpus, "gpu": gpus}, {"cpu": CPU_SECONDS, "gpu": CPU_SECONDS / self.alpha}
        # The clean model has a closed form, which needs no events.
        if self.noise is None and not self.shared:
            every = {kind: count * self.nodes for kind, count in slots.items()}
            return Played(rule_makespan(TASKS, every, seconds, RULES[rule]), {}, {})
        return play_map(
            TASKS,
            slots,
            seconds,
            RULES[rule],
            nodes=self.nodes,
            heartbeat=0.0 if self.noise is None else setting.heartbeat,
            noise={"cpu": self.noise or 0.0, "gpu": setting.gpu_noise if self.noise else 0.0},
            file_system=FileSystem(setting.fs_seconds, setting.fs_streams) if self.shared else None,
            count_gap=self.count_gap,
            rng=np.random.Generator(np.random.PCG64(seed)),
        )

    def exact_optimum(self) -> float:
        """The exact optimum of the clean model."""
        cpus, gpus, _ = POLICIES[self.policy]
        slots = [(cpus * self.nodes, CPU_SECONDS), (gpus * self.nodes, CPU_SECONDS / self.alpha)]
        return optimal_makespan(TASKS, slots)


@dataclass(frozen=True)
class Figures:
    """All plays, by case and seed."""

    seeds: int
    setting: Setting
    plays: Mapping[Case, Sequence[Played]] = field(repr=False)

    def makespan(self, case: Case) -> Interval:
        """Seconds, over the seeds."""
        return _known_interval(mean_interval(played.makespan for played in self.plays[case]))

    def speedup_over(self, case: Case, over: str = "hadoop") -> Interval:
        """How many times faster than another policy in the same setting, seed by seed."""
        # Paired seed by seed, which takes the draw's own difficulty out of the ratio.
        others = self.plays[replace(case, policy=over, count_gap=True)]
        pairs = zip(others, self.plays[case], strict=True)
        return _known_interval(mean_interval(other.makespan / mine.makespan for other, mine in pairs))

    def mean_seconds(self, case: Case, kind: str) -> Interval:
        """Of a task of this kind."""
        return _known_interval(mean_interval(played.mean_seconds[kind] for played in self.plays[case]))

    def task_growth(self, kind: str) -> tuple[float, float]:
        """Figure 7: seconds by which a task grows with each node, and the worst miss of that line.

        The line is fitted to all numbers of nodes; the miss is a share of the line's rise over them, infinite
        where it does not rise.
        """
        cases = [Case("hadoop-gpu2", n, self.setting.factor, shared=True) for n in NODES]
        seconds = [self.mean_seconds(case, kind).mean for case in cases]
        slope, start = np.polyfit(NODES, seconds, 1)
        miss = max(abs(start + slope * n - s) for n, s in zip(NODES, seconds, strict=True))
        rise = float(slope) * (NODES[-1] - NODES[0])
        return float(slope), float(miss) / rise if rise > 1e-6 else float("inf")


def _known_interval(found: Interval | None) -> Interval:
    assert found is not None
    return found


def _all_cases(setting: Setting) -> list[Case]:
    """Everything that the figures and claims need."""
    noises, one_noise, base = setting.noises, setting.single_noise, setting.factor
    alphas = dict.fromkeys((base, NEEDED))
    every = dict.fromkeys((base, *ALPHAS))
    proposals = ("hadoop", "hadoop-gpu2", "shares", "finish-time")
    clean = [Case(p, n, alpha) for alpha in alphas for n in NODES for p in proposals]
    noisy = [Case(p, n, alpha, one_noise) for alpha in alphas for n in NODES for p in proposals]
    many = [Case(p, 64, alpha, noise) for alpha in every for noise in noises for p in proposals]
    one = [Case(p, 1, base, noise) for noise in noises for p in ("hadoop", "shares", "finish-time")]
    gap = [replace(Case("finish-time", 64, alpha, noises[0]), count_gap=False) for alpha in ALPHAS]
    shared = [Case(p, n, base, shared=True) for n in NODES for p in ("hadoop", "hadoop-gpu2", "finish-time")]
    gpus = [
        Case(p, n, base, noise)
        for n in NODES
        for noise in (noises if n == 16 else (one_noise,))
        for p in ("hadoop", "hadoop-gpu2", "finish-time", "hadoop-gpu1", "finish-time-gpu1")
    ]
    return list(dict.fromkeys([*clean, *noisy, *many, *one, *gap, *shared, *gpus]))


def _play_task(task: tuple[Case, int, Setting]) -> Played:
    case, seed, setting = task
    return case.play_case(seed, setting)


def play_figures(
    *,
    seeds: int,
    first_seed: int = 1,
    workers: int,
    setting: Setting | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Figures:
    """Play all cases, those with chance for every seed."""
    setting = setting or Setting(NOISES)
    tasks = [
        (case, seed, setting)
        for case in _all_cases(setting)
        for seed in range(first_seed, first_seed + (1 if case.noise is None else seeds))
    ]
    found: dict[Case, list[Played]] = {}
    for (case, _, _), played in zip(tasks, map_tasks(_play_task, tasks, workers, progress), strict=True):
        found.setdefault(case, []).append(played)
    return Figures(seeds, setting, found)
