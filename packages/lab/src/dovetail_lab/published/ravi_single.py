"""Ravi 2012, Fig. 1: ten single-node benchmarks, and the mixes of 24 jobs that are drawn from them.

A job is known by its seconds on one core (SQ) and its speedups over that on all CPUs of a node (MP) and on
a GPU (GP). The paper runs each benchmark with a small data set, a large one (the table) and with many
iterations, but prints the large one only; a `Pool` defines how the other two are derived from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.errors import InputError
from dovetail.model import App, Choice, Implementation, Job, Seconds, TableTruth, Workload, request_for


class Benchmark(NamedTuple):
    """A benchmark in one of its three configurations."""

    app: str
    configuration: str  # small, large, iterations
    sequential: Seconds  # SQ
    gpu: float  # GP
    cpu: float  # MP

    @property
    def cpu_friendly(self) -> bool:
        """Whether it is faster on the CPUs."""
        return self.cpu > self.gpu

    @property
    def best_seconds(self) -> Seconds:
        """Seconds on the faster of the two."""
        return self.sequential / max(self.cpu, self.gpu)

    def with_best_time(self, best: Seconds) -> Benchmark:
        """The same speedups, with SQ such that its best time is this."""
        return self._replace(sequential=best * max(self.cpu, self.gpu))


FIG_1: tuple[Benchmark, ...] = tuple(
    Benchmark(app, "large", sequential, gpu, cpu)
    for app, sequential, gpu, cpu in (
        ("PDESolver", 7.3, 4.7, 6.8),
        ("ImageProcessing", 33.8, 5.1, 7.8),
        ("FDTD", 8.4, 2.2, 7.6),
        ("BlackScholes", 2.6, 2.1, 7.2),
        ("BinomialOptions", 11.8, 5.6, 4.2),
        ("MonteCarlo", 45.4, 38.4, 7.9),
        ("Kmeans", 330.0, 12.1, 7.8),
        ("KNN", 67.3, 7.8, 6.2),
        ("PCA", 142.0, 9.7, 5.6),
        ("MolecularDynamics", 46.6, 12.9, 7.9),
    )
)
"""The large data sets, as printed."""


@dataclass(frozen=True, slots=True)
class Pool:
    """How the small and the many-iterations jobs follow from the large ones.

    ``small`` and ``iterations`` are factors on (SQ, GP). ``iterations_best`` and ``every_best`` set SQ such
    that the best time of the iterations jobs, or of every job, is so many seconds; ``drawn`` draws that of
    each iterations job from a uniform distribution.
    """

    small: tuple[float, float]
    iterations: tuple[float, float]
    iterations_best: Seconds | None = None
    every_best: Seconds | None = None
    drawn: tuple[Seconds, Seconds] | None = None


POOLS: dict[str, Pool] = {
    "A": Pool((0.1, 0.63), (10, 1.5)),
    "B": Pool((0.1, 0.63), (50, 1.5)),
    "C": Pool((0.1, 0.63), (10, 2)),
    "D": Pool((0.1, 0.63), (1, 1.5), iterations_best=300.0),
    "E": Pool((0.5, 0.63), (3, 1.5)),
    "F": Pool((0.1, 0.63), (10, 1.5), every_best=105.0),
    "G": Pool((0.1, 0.63), (10, 1.5), drawn=(100.0, 400.0)),
    "H": Pool((0.1, 0.63), (50, 1.2)),
}
"""The paper's 30 jobs are not printed; these are eight readings. With a factor of 0.63 on GP, seven of the
ten small jobs are faster on the CPUs, as in the paper."""

MIXES: dict[str, float] = {"uniform": 0.5, "cpu75": 0.75, "gpu75": 0.25}
"""Share of jobs that are faster on the CPUs."""


def pool_jobs(name: str, rng: np.random.Generator) -> list[Benchmark]:
    """The 30 jobs of a pool: small, large, iterations, in table order. Only pool G draws from ``rng``."""
    pool = POOLS[name]
    jobs = [_scale_benchmark(b, "small", *pool.small) for b in FIG_1]
    jobs += FIG_1
    iterations = [_scale_benchmark(b, "iterations", *pool.iterations) for b in FIG_1]
    if pool.iterations_best is not None:
        iterations = [b.with_best_time(pool.iterations_best) for b in iterations]
    if pool.drawn is not None:
        iterations = [b.with_best_time(float(rng.uniform(*pool.drawn))) for b in iterations]
    jobs += iterations
    return jobs if pool.every_best is None else [b.with_best_time(pool.every_best) for b in jobs]


def _scale_benchmark(b: Benchmark, configuration: str, sequential: float, gpu: float) -> Benchmark:
    return Benchmark(b.app, configuration, b.sequential * sequential, b.gpu * gpu, b.cpu)


def ravi_single(mix: str = "uniform", jobs: int = 24, pool: str = "B", seed: int = 1) -> Workload:
    """Ravi 2012, section IV.C: single-node jobs drawn from the pool, all at t = 0.

    ``mix``: uniform, cpu75 or gpu75, the share of jobs that are faster on the CPUs. Draws are with
    replacement: a mix of 75 % needs 18 jobs of one sort, and the pool of 30 cannot have 18 of both.
    """
    if mix not in MIXES:
        raise InputError(f"mix: found {mix!r}, expected one of {', '.join(MIXES)}")
    if pool not in POOLS:
        raise InputError(f"pool: found {pool!r}, expected one of {', '.join(POOLS)}")
    if not 1 <= jobs <= 1_000_000:
        raise InputError(f"jobs: found {jobs}, expected 1 to 1000000")
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = np.random.Generator(np.random.PCG64([seed, 1]))
    drawn_from = pool_jobs(pool, lengths)
    on_cpu = [b for b in drawn_from if b.cpu_friendly]
    on_gpu = [b for b in drawn_from if not b.cpu_friendly]
    share = round(jobs * MIXES[mix])
    drawn = [on_cpu[i] for i in rng.integers(len(on_cpu), size=share)]
    drawn += [on_gpu[i] for i in rng.integers(len(on_gpu), size=jobs - share)]
    return _make_workload("published:ravi-single", (drawn[i] for i in rng.permutation(jobs)))


def ravi_single_table(jobs: int = 24) -> Workload:
    """Ravi 2012, Fig. 1, in table order, repeated to so many jobs, all at t = 0."""
    if not 1 <= jobs <= 1_000_000:
        raise InputError(f"jobs: found {jobs}, expected 1 to 1000000")
    return _make_workload("published:ravi-single-table", (FIG_1[i % len(FIG_1)] for i in range(jobs)))


def _make_workload(name: str, benchmarks: Iterable[Benchmark]) -> Workload:
    forms = tuple(Implementation(kind, kind, request_for(kind)) for kind in ("cpu", "gpu"))
    choices = tuple(Choice(form, form.request) for form in forms)
    apps = {b.app: App(b.app, forms) for b in FIG_1}
    counts = dict.fromkeys(apps, 0)
    made: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for index, b in enumerate(benchmarks):
        counts[b.app] += 1
        id = f"{b.app}-{counts[b.app]}"
        speedup = {"cpu": b.cpu, "gpu": b.gpu}
        made.append(
            Job(
                id,
                apps[b.app],
                choices,
                index=index,
                inputs={"configuration": b.configuration},
                sequential=b.sequential,
                speedup=speedup,
            )
        )
        for kind, factor in speedup.items():
            table[id, kind, 1] = b.sequential / factor
    return Workload(name, made, TableTruth(table))
