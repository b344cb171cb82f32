"""Synthetic workloads: ``synthetic:KIND?option=value&…``, from a seed, for a wanted load.

``rigid``
    The fixed workload of this project's benchmarks. Sizes are 2^i processors, i = 0, 1, … up to a quarter
    of the machine, with weights 0.75^i; run times are log-normal with median 1,200 s and sigma 1.3, clipped
    to 30 s .. 1 day; the requested time is the run time times U(1, 5), rounded up to the next 5 minutes;
    arrivals are Poisson. Options: ``jobs`` (100000), ``nodes`` (the cluster's CPUs, else 256), ``load``
    (0.85), ``seed`` (1).

``lublin``
    In the manner of Lublin and Feitelson, "The workload on parallel supercomputers: modeling the
    characteristics of rigid jobs", JPDC 63(11), 2003, with GPU jobs added; see `Lublin`.
    Options: ``jobs`` (1000), ``nodes`` (the cluster's, else 256), ``cpus_per_node`` (the cluster's, else 1),
    ``load`` (none: the model's own arrivals), ``gpus`` (share of the jobs that use GPUs, 0),
    ``gpus_per_node`` (the cluster's, else 8), ``fractions`` (share of the one-GPU jobs that request part of a
    GPU, 0), ``users`` (32), ``walltimes`` (1; 0: jobs give no requested time), ``seed`` (1).

All times are whole seconds, as in logs. ``load`` is the offered load: resources times run time, over
capacity times the span of submit times; gaps between arrivals are scaled so that it is met but for the
rounding. In ``lublin`` with GPU jobs it is the load of the GPUs or of the CPUs, whichever is higher. Random
numbers: ``Generator(PCG64(seed))``, one spawned stream each for sizes, run times, estimates, arrivals,
users and GPUs, so that an option changes only what it is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, Generator, SeedSequence

from dovetail.errors import InputError
from dovetail.extras import needing_extra
from dovetail.files.sentences import show_value, suggest_closest
from dovetail.files.specs import split_spec
from dovetail.model import Cluster, Request, Workload
from dovetail.records import dataclass
from dovetail.spec.values import MOST_NODES
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.swf import swf_request, swf_workload
from dovetail.workloads.swf_arrays import SwfArrays
from dovetail.workloads.tables import philly_request

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
PREFIX = "synthetic:"
FIVE_MINUTES, HALF_HOUR, DAY = 300.0, 1800.0, 86_400.0
HALF_HOURS = 48
MOST_JOBS = 10_000_000
MOST_SEED = 2**53


class Options:
    """The options of one specification, each checked against its range when it is read."""

    def __init__(self, spec: str, values: Mapping[str, str]) -> None:
        self.where = show_value(spec, limit=100)
        self._values = values
        self._asked: list[str] = []

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """The option, or its default. Raises `InputError`."""
        # Noted, so that an option which no kind reads is refused.
        self._asked.append(name)
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            # NaN fails the comparison below.
            value = math.nan
        if not least <= value <= most:
            expected = f"a number from {least:.15g} to {most:.15g}"
            raise InputError(
                f"option {name}: found {show_value(text)}, expected {expected}", where=self.where
            )
        return value

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """The option as a whole number, or its default. Raises `InputError`."""
        value = self.number(name, least, most, default)
        if value != int(value):
            raise InputError(f"option {name}: found {value:g}, expected a whole number", where=self.where)
        return int(value)

    def refuse_others(self) -> None:
        """Raise `InputError` for an option that was given and never read."""
        for name in self._values:
            if name not in self._asked:
                expected = ", ".join(self._asked)
                raise InputError(
                    f"found the option {show_value(name)}, expected {expected}", where=self.where
                )


def synthesize_workload(
    spec: str, cluster: Cluster | None = None, *, lenient: bool = False, seed: int | None = None
) -> Workload:
    """The workload of ``[synthetic:]KIND[?option=value&…]``; O(jobs). ``seed`` wins over the option.

    ``lenient`` is there for the reader's protocol: there are no lines to skip.

    Nodes, CPUs and GPUs a node default to those of ``cluster``; jobs that do not fit it are rejected.
    Raises `InputError` for a kind, an option or a value that is not there.
    """
    kind, options = parse_spec(spec)
    if seed is not None:
        options["seed"] = str(seed)
    return KINDS[kind](spec, Options(spec, options), cluster)


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Kind and options of a specification. Raises `InputError`."""
    kind, options = split_spec(spec)
    kind = kind.removeprefix(PREFIX)
    if kind not in KINDS:
        found = f"found the kind {show_value(kind)}{suggest_closest(kind, KINDS)}"
        raise InputError(found, where=show_value(spec, limit=100))
    return kind, options


def seed_of(spec: str) -> int:
    """The seed of a specification, 1 where it names none. Raises `InputError`."""
    return Options(spec, parse_spec(spec)[1]).whole("seed", 0, MOST_SEED, 1)


def named_machine(spec: str) -> Cluster | None:
    """The machine that a specification names by its ``nodes``; ``None`` where it leaves that open.

    Raises `InputError`.
    """
    kind, given = parse_spec(spec)
    if "nodes" not in given:
        return None
    options = Options(spec, given)
    nodes = options.whole("nodes", 1, MOST_NODES, 256)
    if kind == "rigid":
        return Cluster.uniform(nodes, 1)
    cpus = options.whole("cpus_per_node", 1, 4096, 1)
    gpus = options.whole("gpus_per_node", 1, 64, 8) if options.number("gpus", 0.0, 1.0, 0.0) else 0
    return Cluster.uniform(nodes, cpus, gpus)


def random_streams(seed: int, count: int) -> list[Generator]:
    """Independent generators, one for each purpose."""
    # One stream for each purpose: an option that needs more numbers changes no other column.
    return [Generator(PCG64(child)) for child in SeedSequence(seed).spawn(count)]


def requested_times(rng: Generator, runs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Run times times U(1, 5), up to the next 5 minutes; the same shape, seconds."""
    return np.ceil(runs * rng.uniform(1.0, 5.0, runs.size) / FIVE_MINUTES) * FIVE_MINUTES


def rigid_arrays(jobs: int, nodes: int, load: float, seed: int) -> SwfArrays:
    """The benchmark's fixed workload as arrays of shape (jobs,); see the module. O(jobs)."""
    sizes_rng, runs_rng, estimates_rng, arrivals_rng = random_streams(seed, 4)
    # Up to a quarter of the machine: larger jobs would decide every figure alone.
    powers = np.arange(int(math.log2(max(1, nodes // 4))) + 1)
    weights = 0.75**powers
    sizes = 2 ** sizes_rng.choice(powers, size=jobs, p=weights / weights.sum())
    runs = np.rint(np.clip(runs_rng.lognormal(math.log(1200.0), 1.3, jobs), 30.0, DAY))
    requested = requested_times(estimates_rng, runs)
    # load = work / (capacity · span), solved for the span.
    span = float(sizes @ runs) / (nodes * load)
    unknown = np.full(jobs, -1, dtype=np.int64)
    return SwfArrays(
        number=np.arange(1, jobs + 1),
        submit=_arrival_times(arrivals_rng.exponential(size=max(0, jobs - 1)), span),
        run=runs,
        processors=sizes.astype(np.int64),
        walltime=requested,
        user=unknown,
        group=unknown,
        application=unknown,
        queue=unknown,
        header={"MaxProcs": str(nodes)},
    )


def _arrival_times(gaps: Floats, span: float) -> Floats:
    """Whole-second moments from 0 to ``span`` in proportion to the gaps."""
    moments = np.concatenate([[0.0], np.cumsum(gaps)])
    return np.rint(moments * (span / moments[-1] if moments[-1] > 0 else 0.0))


def _rigid_workload(spec: str, options: Options, cluster: Cluster | None) -> Workload:
    jobs = options.whole("jobs", 1, MOST_JOBS, 100_000)
    nodes = options.whole("nodes", 1, MOST_NODES, max(1, cluster.total_cpus) if cluster else 256)
    load = options.number("load", 0.001, 1000.0, 0.85)
    seed = options.whole("seed", 0, MOST_SEED, 1)
    options.refuse_others()
    return swf_workload(rigid_arrays(jobs, nodes, load, seed), cluster, name=spec)


def _lublin(spec: str, options: Options, cluster: Cluster | None) -> Workload:
    nodes = [group.node for group in cluster.groups] if cluster is not None else []
    cpus = max((node.cpus for node in nodes), default=1)
    gpus = max((len(node.devices) for node in nodes), default=8)
    model = Lublin(
        jobs=options.whole("jobs", 1, MOST_JOBS, 1000),
        nodes=options.whole("nodes", 1, MOST_NODES, len(cluster or ()) or 256),
        cpus_per_node=options.whole("cpus_per_node", 1, 4096, cpus or 1),
        load=options.number("load", 0.001, 1000.0, 0.0) or None,
        gpu_share=options.number("gpus", 0.0, 1.0, 0.0),
        gpus_per_node=options.whole("gpus_per_node", 1, 64, gpus or 8),
        fraction_share=options.number("fractions", 0.0, 1.0, 0.0),
        users=options.whole("users", 1, 1_000_000, 32),
        walltimes=options.whole("walltimes", 0, 1, 1) == 1,
    )
    seed = options.whole("seed", 0, MOST_SEED, 1)
    options.refuse_others()
    # Only a cluster that is given can lack what the option wants.
    if model.gpu_share and nodes and not gpus:
        raise InputError("option gpus: the cluster has no GPU, expected one that has", where=options.where)
    return _lublin_workload(model, seed, cluster, name=spec)


# -- lublin ------------------------------------------------------------------------------------------


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
    quarter of the machine's, on as few nodes as hold them; of those with one GPU, ``fraction_share`` request
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


def _lublin_workload(model: Lublin, seed: int, cluster: Cluster | None = None, *, name: str) -> Workload:
    """Jobs of the model; those that do not fit ``cluster`` are rejected. O(jobs)."""
    size_rng, run_rng, estimate_rng, arrival_rng, user_rng, gpu_rng = random_streams(seed, 6)
    sizes = _draw_sizes(model, size_rng)
    runs = _run_times(model, run_rng, sizes)
    limits = requested_times(estimate_rng, runs)
    requests = _draw_requests(model, gpu_rng, sizes)
    submits = _lublin_arrivals(model, arrival_rng, _span_for_load(model, requests, runs))
    weights = 1.0 / np.arange(1, model.users + 1)
    users = user_rng.choice(model.users, size=model.jobs, p=weights / weights.sum())
    builder = TraceBuilder(name, cluster, app="lublin")
    for i, (submit, run, request, limit, user) in enumerate(
        zip(submits.tolist(), runs.tolist(), requests, limits.tolist(), users.tolist(), strict=True), start=1
    ):
        walltime = limit if model.walltimes else None
        builder.add(str(i), submit, run, request, walltime=walltime, user=f"u{user + 1}")
    return builder.build_workload()


def _draw_sizes(model: Lublin, rng: Generator) -> Ints:
    top = math.log2(model.processors)
    low = min(model.low, top)
    # A machine of few processors has no second stage.
    middle = max(low, top - 2.5)
    stage = rng.random(model.jobs) < model.first_stage
    spot = rng.random(model.jobs)
    log_size = np.where(stage, low + spot * (middle - low), middle + spot * (top - middle))
    # Rounding the logarithm gives the powers of two, which logs prefer.
    log_size = np.where(rng.random(model.jobs) < model.power_of_two, np.rint(log_size), log_size)
    sizes = np.rint(2.0**log_size)
    sizes = np.where(rng.random(model.jobs) < model.serial, 1, sizes)
    return np.clip(sizes, 1, model.processors).astype(np.int64)


def _run_times(model: Lublin, rng: Generator, sizes: Ints) -> Floats:
    first = rng.random(model.jobs) < np.clip(model.slope * sizes + model.intercept, 0.0, 1.0)
    short = rng.gamma(*model.short, size=model.jobs)
    long = rng.gamma(*model.long, size=model.jobs)
    return np.maximum(1.0, np.rint(np.exp(np.minimum(np.where(first, short, long), 12.0))))


def _draw_requests(model: Lublin, rng: Generator, sizes: Ints) -> list[Request]:
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
    # The higher of both loads: neither devices nor CPUs may be overloaded unseen.
    return max(float(cpus @ runs) / model.processors, float(gpus @ runs) / model.gpus) / model.load


def _lublin_arrivals(model: Lublin, rng: Generator, span: float | None) -> Floats:
    """Whole seconds from 0 (midnight), through the day's rhythm; scaled to end at ``span`` if given."""
    gaps = np.exp(np.minimum(rng.gamma(*model.gap, size=max(0, model.jobs - 1)), 13.0))
    # As if every hour were alike.
    even = np.concatenate([[0.0], np.cumsum(gaps)])
    passed = _daily_rhythm(model)
    clock = np.arange(HALF_HOURS + 1) * HALF_HOUR
    if span is not None and even[-1] > 0:
        days, rest = divmod(span, DAY)
        # Scaled in even time, so that the rhythm of the day stays where it is.
        even *= (days * DAY + np.interp(rest, clock, passed)) / even[-1]
    days_passed = np.floor(even / DAY)
    submits: Floats = np.rint(days_passed * DAY + np.interp(even - days_passed * DAY, passed, clock))
    return submits


def _daily_rhythm(model: Lublin) -> Floats:
    """Even time that has passed at each half hour of the day; shape (49,), from 0 to one day."""
    with needing_extra("synthetic:lublin"):
        # Only who draws such jobs waits for it.
        from scipy.special import gammainc

    shape, scale = model.rhythm
    # The paper's day begins at 5:30, with half hour 11.
    hours = np.arange(11, 11 + HALF_HOURS)
    share = gammainc(shape, (hours + 0.5) / scale) - gammainc(shape, (hours - 0.5) / scale)
    weights = np.zeros(HALF_HOURS)
    weights[hours % HALF_HOURS] = share
    return np.concatenate([[0.0], np.cumsum(weights) / weights.sum()]) * DAY


KINDS: Mapping[str, Callable[[str, Options, Cluster | None], Workload]] = {
    "rigid": _rigid_workload,
    "lublin": _lublin,
}
