"""What the synthetic workloads draw alike: streams of random numbers and requested times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, Generator, SeedSequence

__all__ = ["requested_times", "streams"]

FIVE_MINUTES = 300.0


def streams(seed: int, count: int) -> list[Generator]:
    """Independent generators, one for each purpose."""
    return [Generator(PCG64(child)) for child in SeedSequence(seed).spawn(count)]


def requested_times(rng: Generator, runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Run times times U(1, 5), up to the next 5 minutes; the same shape, seconds."""
    return np.ceil(runs * rng.uniform(1.0, 5.0, runs.size) / FIVE_MINUTES) * FIVE_MINUTES
