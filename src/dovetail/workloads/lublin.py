"""Workloads in the manner of Lublin and Feitelson 2003, with GPU jobs added."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from dovetail.extras import needing
from dovetail.model import Cluster, Request, Workload
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.draws import requested_times, streams
from dovetail.workloads.philly import philly_request
from dovetail.workloads.swf import swf_request

__all__ = ["Lublin", "lublin_workload"]

with needing("synthetic:lublin"):
    from scipy.special import gammainc

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HALF_HOUR = 1800.0
HALF_HOURS = 48
DAY = HALF_HOUR * HALF_HOURS


@dataclass(frozen=True, slots=True)
class Lublin:
    """Parameters; the defaults are those that the authors fitted to all jobs of their logs together.

    Sizes: serial with probability ``serial``; else log2 of the size is uniform over [``low``, top - 2.5]
    with probability ``first_stage`` and over [top - 2.5, top] otherwise, top = log2(processors); with
    probability ``power_of_two`` it is rounded, so that the size is a power of two.
    Run times: their natural logarithm is hyper-gamma: with probability ``slope`` * size + ``intercept``
    from gamma(``short``), else from gamma(``long``), at most 12.
    Arrivals: the logarithm of the gap, as it would be at the mean hour, is gamma(``gap``), at most 13; the
    day's rhythm gives each half hour its share of gamma(``rhythm``) over half hours from 5:30 on.
    Gammas are (shape, scale).

    Added here: ``gpu_share`` of the jobs use GPUs instead of CPUs, 2^i of them with weights 0.3^i up to a
    quarter of the machine's, on as few nodes as hold them; of those with one GPU, ``fraction_share`` ask for
    0.1, 0.2, … 0.9 of it. User k of ``users`` submits in proportion to 1/k. ``load`` scales the gaps, not
    the rhythm.
    """

    jobs: int = 1000
    nodes: int = 256
    cpus_per_node: int = 1
    load: float | None = None
    gpu_share: float = 0.0
    gpus_per_node: int = 8
    fraction_share: float = 0.0
    users: int = 32
    walltimes: bool = True
    serial: float = 0.244
    power_of_two: float = 0.576
    low: float = 0.8
    first_stage: float = 0.86
    short: tuple[float, float] = (4.2, 0.94)
    long: tuple[float, float] = (312.0, 0.03)
    slope: float = -0.0054
    intercept: float = 0.78
    gap: tuple[float, float] = (10.2303 * 1.0225, 0.4871)
    rhythm: tuple[float, float] = (8.1737, 3.9631)

    @property
    def processors(self) -> int:
        """CPUs of the machine."""
        return self.nodes * self.cpus_per_node

    @property
    def gpus(self) -> int:
        """GPUs of the machine."""
        return self.nodes * self.gpus_per_node


def lublin_workload(model: Lublin, seed: int, cluster: Cluster | None = None, *, name: str) -> Workload:
    """Jobs of the model; those that do not fit ``cluster`` are rejected. O(jobs)."""
    size_rng, run_rng, estimate_rng, arrival_rng, user_rng, gpu_rng = streams(seed, 6)
    sizes = _sizes(model, size_rng)
    runs = _run_times(model, run_rng, sizes)
    limits = requested_times(estimate_rng, runs)
    requests = _requests(model, gpu_rng, sizes)
    submits = _arrivals(model, arrival_rng, _span_for_load(model, requests, runs))
    weights = 1.0 / np.arange(1, model.users + 1)
    users = user_rng.choice(model.users, size=model.jobs, p=weights / weights.sum())
    builder = TraceBuilder(name, cluster, app="lublin")
    for i, (submit, run, request, limit, user) in enumerate(
        zip(submits.tolist(), runs.tolist(), requests, limits.tolist(), users.tolist(), strict=True), start=1
    ):
        walltime = limit if model.walltimes else None
        builder.add(str(i), submit, run, request, walltime=walltime, user=f"u{user + 1}")
    return builder.workload()


def _sizes(model: Lublin, rng: Generator) -> Ints:
    top = math.log2(model.processors)
    low = min(model.low, top)
    middle = max(low, top - 2.5)
    stage = rng.random(model.jobs) < model.first_stage
    spot = rng.random(model.jobs)
    log_size = np.where(stage, low + spot * (middle - low), middle + spot * (top - middle))
    log_size = np.where(rng.random(model.jobs) < model.power_of_two, np.rint(log_size), log_size)
    sizes = np.rint(2.0**log_size)
    sizes = np.where(rng.random(model.jobs) < model.serial, 1, sizes)
    return np.clip(sizes, 1, model.processors).astype(np.int64)


def _run_times(model: Lublin, rng: Generator, sizes: Ints) -> Floats:
    first = rng.random(model.jobs) < np.clip(model.slope * sizes + model.intercept, 0.0, 1.0)
    short = rng.gamma(*model.short, size=model.jobs)
    long = rng.gamma(*model.long, size=model.jobs)
    return np.maximum(1.0, np.rint(np.exp(np.minimum(np.where(first, short, long), 12.0))))


def _requests(model: Lublin, rng: Generator, sizes: Ints) -> list[Request]:
    on_gpu = rng.random(model.jobs) < model.gpu_share
    powers = np.arange(int(math.log2(max(1, model.gpus // 4))) + 1)
    weights = 0.3**powers
    gpus = 2 ** rng.choice(powers, size=model.jobs, p=weights / weights.sum())
    part = (gpus == 1) & (rng.random(model.jobs) < model.fraction_share)
    tenths = rng.integers(1, 10, size=model.jobs)
    known: dict[tuple[bool, int, int], Request] = {}
    requests: list[Request] = []
    for size, use, count, shared, tenth in zip(
        sizes.tolist(), on_gpu.tolist(), gpus.tolist(), part.tolist(), tenths.tolist(), strict=True
    ):
        key = (use, count if use else size, tenth if use and shared else 0)
        if key not in known:
            if not use:
                known[key] = swf_request(size, model.cpus_per_node)
            elif shared:
                known[key] = gpu_request(1, tenth / 10)
            else:
                known[key] = philly_request(count, model.gpus_per_node)
        requests.append(known[key])
    return requests


def _span_for_load(model: Lublin, requests: list[Request], runs: Floats) -> float | None:
    """Seconds between the first and the last submission that give the wanted load."""
    if model.load is None:
        return None
    cpus = np.array([r.nodes * max(0, r.cpus) for r in requests], dtype=np.float64)
    gpus = np.array([r.nodes * r.gpus for r in requests], dtype=np.float64)
    return max(float(cpus @ runs) / model.processors, float(gpus @ runs) / model.gpus) / model.load


def _arrivals(model: Lublin, rng: Generator, span: float | None) -> Floats:
    """Whole seconds from 0 (midnight), through the day's rhythm; scaled to end at ``span`` if given."""
    gaps = np.exp(np.minimum(rng.gamma(*model.gap, size=max(0, model.jobs - 1)), 13.0))
    even = np.concatenate([[0.0], np.cumsum(gaps)])  # as if every hour were alike
    passed = _rhythm(model)
    clock = np.arange(HALF_HOURS + 1) * HALF_HOUR
    if span is not None and even[-1] > 0:
        days, rest = divmod(span, DAY)
        even *= (days * DAY + np.interp(rest, clock, passed)) / even[-1]
    days_passed = np.floor(even / DAY)
    submits: Floats = np.rint(days_passed * DAY + np.interp(even - days_passed * DAY, passed, clock))
    return submits


def _rhythm(model: Lublin) -> Floats:
    """Even time that has passed at each half hour of the day; shape (49,), from 0 to one day."""
    shape, scale = model.rhythm
    hours = np.arange(11, 11 + HALF_HOURS)
    share = gammainc(shape, (hours + 0.5) / scale) - gammainc(shape, (hours - 0.5) / scale)
    weights = np.zeros(HALF_HOURS)
    weights[hours % HALF_HOURS] = share
    return np.concatenate([[0.0], np.cumsum(weights) / weights.sum()]) * DAY
