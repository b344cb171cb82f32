"""What the algorithms did on the workloads of Aupy 2013: the numbers that figures and verdicts rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.report.intervals import Interval, mean_interval

Floats = NDArray[np.float64]

SETS: dict[str, tuple[int, ...]] = {
    "I-like": (2, 4, 6, 8, 10),
    "II": (2, 4, 6, 8, 10, 12, 14, 16),
    "III": (2, 4, 8, 16, 32),
}
"""The workloads and the k of their figures."""

MEASURES = ("relative_cost", "packing_ratio", "relative_response_time")

FULL = " (1..p)"
"""Marks Random-Proc with processors from 1 to p, one reading of the text; the other is 1 to floor(p / k)."""

ALGORITHMS: dict[str, tuple[str, bool]] = {
    "optimum": ("subset-dp", False),
    "pack-approx": ("pack-approx", False),
    "pack-by-pack-1": ("pack-by-pack-1", False),
    "pack-by-pack-9": ("pack-by-pack-9", False),
    "random-pack-1": ("random-pack-1", False),
    "random-pack-9": ("random-pack-9", False),
    "random-proc-1": ("random-proc-1", False),
    "random-proc-9": ("random-proc-9", False),
    f"random-proc-1{FULL}": ("random-proc-1", True),
    f"random-proc-9{FULL}": ("random-proc-9", True),
}
"""Label: algorithm, and whether it draws from the whole range; the optimum of the I-like set only."""


@dataclass(frozen=True, slots=True)
class Point:
    """Means over the seeds of one algorithm on one set with packs of at most ``k``."""

    workload: str
    k: int
    algorithm: str
    relative_cost: float
    packing_ratio: float
    relative_response_time: float


@dataclass(frozen=True, slots=True)
class Timing:
    """A cell of Table 1: milliseconds here (median over k and seeds) and in the paper."""

    workload: str
    algorithm: str
    milliseconds: float
    paper: float


@dataclass(frozen=True, slots=True)
class StudySamples:
    """``samples[workload, k, label]`` is (seeds, measures); ``steps`` are those of pack-Approx, by seed."""

    samples: Mapping[tuple[str, int, str], Floats]
    timings: tuple[Timing, ...]
    steps: Mapping[str, Sequence[int]]

    def algorithm_labels(self, workload: str) -> list[str]:
        """The algorithms that ran on a workload, in order."""
        return list(dict.fromkeys(label for name, _, label in self.samples if name == workload))

    def values(self, workload: str, k: int, label: str, measure: str = "relative_cost") -> Floats:
        """One measure by seed."""
        found: Floats = self.samples[workload, k, label][:, MEASURES.index(measure)]
        return found

    def mean(self, workload: str, k: int, label: str, which: int = 0) -> float:
        """The mean of one of the `MEASURES`."""
        return float(self.samples[workload, k, label][:, which].mean())

    def over_k(self, workload: str, of: str, less: str) -> list[Interval | None]:
        """By how much the relative cost of one exceeds another's, seed by seed, for every k."""
        return [
            mean_interval((self.values(workload, k, of) - self.values(workload, k, less)).tolist())
            for k in SETS[workload]
        ]

    def excess_intervals(self, workload: str, of: str, over: str) -> list[Interval | None]:
        """By which fraction one costs more than another, seed by seed, for every k."""
        return [
            mean_interval((self.values(workload, k, of) / self.values(workload, k, over) - 1.0).tolist())
            for k in SETS[workload]
        ]

    def points(self) -> list[Point]:
        """Means over the seeds, for JSON."""
        return [Point(*place, *samples.mean(axis=0).tolist()) for place, samples in self.samples.items()]
