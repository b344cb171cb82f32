"""Markthub 2015, Table 4: jobs on many GPUs, drawn at random, for 100 nodes of 3 GPUs (Table 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Communication,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    TableTruth,
    Workload,
)
from dovetail.model.remote_times import MEMORY
from dovetail.workloads.synthetic import random_streams

NODES = 100
_PURPOSES = (
    *("nodes", "gpus", "memory", "arrivals", "other", "calls", "mean of calls"),
    *("bytes", "mean of bytes", "net calls", "net bytes"),
)
Floats = np.ndarray[Any, np.dtype[np.float64]]


def markthub_machine(nodes: int = NODES) -> Cluster:
    """So many nodes of 8 CPUs, 3 GPUs and 22 GB (Table 3)."""
    gpus = tuple(Device("gpu", "", g) for g in range(3))
    made = tuple(Node(f"n{i}", tuple(range(8)), gpus, MEMORY) for i in range(nodes))
    return Cluster(made, f"{nodes}x8cpu+3gpu")


def markthub(
    jobs: int = 10_000,
    gpu_calls: str = "1e6",
    gpu_bytes: str = "1e9",
    nodes_mean: float = 30.0,
    nodes_sd: float = 30.0,
    gpus: str = "0.1,0.8,0.1",
    interarrival: float = 1.0,
    other: float = 1000.0,
    spread: str = "narrow",
    other_spread: str = "narrow",
    negative: str = "clip",
    seed: int = 1,
) -> Workload:
    """Markthub 2015, Table 4: gangs of 1 to 100 nodes with 1 to 3 GPUs each, one after the other.

    Nodes are Gauss(``nodes_mean``, ``nodes_sd``), CPUs are as many as GPUs (``gpus``: probabilities of
    1, 2 and 3), ``interarrival`` seconds are the mean of an exponential. With ``spread=narrow`` calls
    and bytes have the deviations of Table 4 (a tenth of the calls, the mean less 1 of the bytes), with
    ``wide`` both the mean less 1, as in Fig. 7; ``other_spread`` is the same for the time of everything
    else (Fig. 8). ``gpu_calls=1e5|3e8`` takes one of the two for each job, likewise ``gpu_bytes``. What
    is drawn below 0 (below 1 second, 1 node) is clipped, or drawn again (``negative=redraw``). The
    machine is 100 nodes of 8 CPUs and 3 GPUs.
    """
    _one_of(spread, "spread")
    _one_of(other_spread, "other_spread")
    if negative not in ("clip", "redraw"):
        raise InputError(f"negative: found {negative!r}, expected clip or redraw")
    calls_means, bytes_means = _parse_means(gpu_calls, "gpu_calls"), _parse_means(gpu_bytes, "gpu_bytes")
    share = _parse_probabilities(gpus)

    rng = dict(zip(_PURPOSES, random_streams(seed, len(_PURPOSES)), strict=True))

    def draw_gauss(
        purpose: str, mean: Floats | float, sd: Floats | float, least: float, most: float
    ) -> Floats:
        return _draw_normal(rng[purpose], mean, sd, jobs, least, most, negative)

    calls_mean = rng["mean of calls"].choice(calls_means, jobs)
    bytes_mean = rng["mean of bytes"].choice(bytes_means, jobs)
    other_sd = max(0.0, other - 1) if other_spread == "wide" else other / 10
    calls_sd = np.maximum(0.0, calls_mean - 1) if spread == "wide" else calls_mean / 10
    columns = (
        np.rint(draw_gauss("nodes", nodes_mean, nodes_sd, 1, NODES)),
        rng["gpus"].choice([1, 2, 3], jobs, p=share),
        np.rint(draw_gauss("memory", 8e9, 1e9, 0, MEMORY)),
        np.cumsum(rng["arrivals"].exponential(interarrival, jobs)),
        draw_gauss("other", other, other_sd, 1, math.inf),
        draw_gauss("calls", calls_mean, calls_sd, 0, math.inf),
        draw_gauss("bytes", bytes_mean, np.maximum(0.0, bytes_mean - 1), 0, math.inf),
        draw_gauss("net calls", 1e4, 1e3, 0, math.inf),
        draw_gauss("net bytes", 4e9, 1e9, 0, math.inf),
    )
    made = _make_jobs(list(zip(*(column.tolist() for column in columns), strict=True)))
    return Workload("published:markthub", made, TableTruth(), machine=markthub_machine())


def _make_jobs(rows: list[tuple[float, ...]]) -> list[Job]:
    """Jobs whose communication gives how long they take; those with the same request share an app."""
    forms: dict[tuple[int, int], Implementation] = {}
    jobs: list[Job] = []
    for i, (nodes, gpus, memory, submit, other, calls, size, net_calls, net_bytes) in enumerate(rows):
        key = (int(gpus), int(memory))
        if key not in forms:
            request = Request(1, int(gpus), (("gpu", float(gpus)),), int(memory))
            forms[key] = Implementation("gpu", "gpu", request)
        implementation = forms[key]
        jobs.append(
            Job(
                f"j{i}",
                App("communication", (implementation,)),
                (Choice(implementation, implementation.request.on(int(nodes))),),
                index=i,
                submit_time=submit,
                nodes=int(nodes),
                communication=Communication(other, calls, size, net_calls, net_bytes),
            )
        )
    return jobs


def _draw_normal(
    rng: np.random.Generator,
    mean: Floats | float,
    sd: Floats | float,
    count: int,
    least: float,
    most: float,
    negative: str,
) -> Floats:
    drawn: Floats = rng.normal(mean, sd, count)
    if negative == "redraw":
        means, sds = np.broadcast_to(mean, count), np.broadcast_to(sd, count)
        while (outside := (drawn < least) | (drawn > most)).any():
            drawn[outside] = rng.normal(means[outside], sds[outside])
    return np.clip(drawn, least, most)


def _one_of(spread: str, option: str) -> None:
    if spread not in ("narrow", "wide"):
        raise InputError(f"{option}: found {spread!r}, expected narrow or wide")


def _parse_numbers(text: str, separator: str, option: str, expected: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(separator)]
    except ValueError:
        found = [math.nan]
    if not all(0 <= number < math.inf for number in found):
        raise InputError(f"{option}: found {text!r}, expected {expected}")
    return found


def _parse_means(text: str, option: str) -> list[float]:
    return _parse_numbers(text, "|", option, "a number, or several with '|' between them")


def _parse_probabilities(text: str) -> Floats:
    found = np.array(_parse_numbers(text, ",", "gpus", "three probabilities with commas between them"))
    if len(found) != 3 or abs(found.sum() - 1) > 1e-6:
        raise InputError(f"gpus: found {text!r}, expected three probabilities that add up to 1")
    return np.asarray(found / found.sum(), dtype=np.float64)
