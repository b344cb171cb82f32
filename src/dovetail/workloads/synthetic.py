"""Synthetic workloads: ``synthetic:KIND?option=value&…``, from a seed, for a wanted load.

``rigid``
    The fixed workload of this project's benchmarks. Sizes are 2^i processors, i = 0, 1, … up to a quarter
    of the machine, with weights 0.75^i; run times are log-normal with median 1,200 s and sigma 1.3, clipped
    to 30 s .. 1 day; the requested time is the run time times U(1, 5), rounded up to the next 5 minutes;
    arrivals are Poisson. Options: ``jobs`` (100000), ``nodes`` (the cluster's CPUs, else 256), ``load``
    (0.85), ``seed`` (1).

``lublin``
    In the manner of Lublin and Feitelson, "The workload on parallel supercomputers: modeling the
    characteristics of rigid jobs", JPDC 63(11), 2003, with GPU jobs added; see `dovetail.workloads.lublin`.
    Options: ``jobs`` (1000), ``nodes`` (the cluster's, else 256), ``cpus_per_node`` (the cluster's, else 1),
    ``load`` (none: the model's own arrivals), ``gpus`` (share of the jobs that use GPUs, 0),
    ``gpus_per_node`` (the cluster's, else 8), ``fractions`` (share of the one-GPU jobs that ask for part of a
    GPU, 0), ``users`` (32), ``walltimes`` (1; 0: nobody tells a requested time), ``seed`` (1).

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

from dovetail.errors import InputError
from dovetail.files.sentences import closest, shown
from dovetail.files.specs import split_spec
from dovetail.model import Cluster, Workload
from dovetail.spec.values import MOST_NODES
from dovetail.workloads.draws import requested_times, streams
from dovetail.workloads.swf import swf_workload
from dovetail.workloads.swf_arrays import SwfArrays

__all__ = ["KINDS", "named_machine", "parse_spec", "rigid_arrays", "seed_of", "synthesize"]

Floats = npt.NDArray[np.float64]
PREFIX = "synthetic:"
DAY = 86_400.0
MOST_JOBS = 10_000_000
MOST_SEED = 2**53


class Options:
    """The options of one specification, each checked against its range when it is asked for."""

    def __init__(self, spec: str, values: Mapping[str, str]) -> None:
        self.where = shown(spec, limit=100)
        self._values = values
        self._asked: list[str] = []

    def number(self, name: str, least: float, most: float, default: float) -> float:
        """The option, or its default. Raises `InputError`."""
        self._asked.append(name)
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            expected = f"a number from {least:.15g} to {most:.15g}"
            raise InputError(f"option {name}: found {shown(text)}, expected {expected}", where=self.where)
        return value

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """The option as a whole number, or its default. Raises `InputError`."""
        value = self.number(name, least, most, default)
        if value != int(value):
            raise InputError(f"option {name}: found {value:g}, expected a whole number", where=self.where)
        return int(value)

    def refuse_others(self) -> None:
        """Raise `InputError` for an option that was given and never asked for."""
        for name in self._values:
            if name not in self._asked:
                expected = ", ".join(self._asked)
                raise InputError(f"found the option {shown(name)}, expected {expected}", where=self.where)


def synthesize(
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
        found = f"found the kind {shown(kind)}{closest(kind, KINDS)}"
        raise InputError(found, where=shown(spec, limit=100))
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


def rigid_arrays(jobs: int, nodes: int, load: float, seed: int) -> SwfArrays:
    """The benchmark's fixed workload as arrays of shape (jobs,); see the module. O(jobs)."""
    sizes_rng, runs_rng, estimates_rng, arrivals_rng = streams(seed, 4)
    powers = np.arange(int(math.log2(max(1, nodes // 4))) + 1)
    weights = 0.75**powers
    sizes = 2 ** sizes_rng.choice(powers, size=jobs, p=weights / weights.sum())
    runs = np.rint(np.clip(runs_rng.lognormal(math.log(1200.0), 1.3, jobs), 30.0, DAY))
    requested = requested_times(estimates_rng, runs)
    span = float(sizes @ runs) / (nodes * load)
    unknown = np.full(jobs, -1, dtype=np.int64)
    return SwfArrays(
        number=np.arange(1, jobs + 1),
        submit=_arrivals(arrivals_rng.exponential(size=max(0, jobs - 1)), span),
        run=runs,
        processors=sizes.astype(np.int64),
        walltime=requested,
        user=unknown,
        group=unknown,
        application=unknown,
        queue=unknown,
        header={"MaxProcs": str(nodes)},
    )


def _arrivals(gaps: Floats, span: float) -> Floats:
    """Whole-second moments from 0 to ``span`` in proportion to the gaps."""
    moments = np.concatenate([[0.0], np.cumsum(gaps)])
    return np.rint(moments * (span / moments[-1] if moments[-1] > 0 else 0.0))


def _rigid(spec: str, options: Options, cluster: Cluster | None) -> Workload:
    jobs = options.whole("jobs", 1, MOST_JOBS, 100_000)
    nodes = options.whole("nodes", 1, MOST_NODES, max(1, cluster.total_cpus) if cluster else 256)
    load = options.number("load", 0.001, 1000.0, 0.85)
    seed = options.whole("seed", 0, MOST_SEED, 1)
    options.refuse_others()
    return swf_workload(rigid_arrays(jobs, nodes, load, seed), cluster, name=spec)


def _lublin(spec: str, options: Options, cluster: Cluster | None) -> Workload:
    from dovetail.workloads.lublin import Lublin, lublin_workload  # scipy: only when it is needed

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
    if model.gpu_share and nodes and not gpus:
        raise InputError("option gpus: the cluster has no GPU, expected one that has", where=options.where)
    return lublin_workload(model, seed, cluster, name=spec)


KINDS: Mapping[str, Callable[[str, Options, Cluster | None], Workload]] = {
    "rigid": _rigid,
    "lublin": _lublin,
}
