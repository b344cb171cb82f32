"""Jobs that share like nodes: what they ask, what each node has, and what a simulation makes of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.node_bits import ones
from dovetail.kernels.rigid_world import Rigid

__all__ = [
    "FIRST",
    "PACK",
    "SPREAD",
    "Demand",
    "LikeNodes",
    "PerNode",
    "Placed",
    "Places",
    "demand_of",
    "devices_in",
    "fits",
    "no_places",
    "of_least_rank",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PACK, SPREAD, FIRST = range(3)
MOST_CPUS = 1 << 40


class PerNode(NamedTuple):
    """What each job asks of each of its nodes, shape (jobs,): CPUs, whole devices, bytes of memory."""

    cpus: Ints
    devices: Ints
    memory: Ints


class Demand(NamedTuple):
    """What a job asks of each of so many ``nodes``; the memory is 0 where nodes do not count it."""

    nodes: int
    cpus: int
    devices: int
    memory: int


class LikeNodes(NamedTuple):
    """How many nodes, what each has, and the placement rule: `PACK`, `SPREAD` or `FIRST`.

    ``memory`` is 0 where it is not counted.
    """

    nodes: int
    cpus: int
    devices: int
    memory: int
    placement: int


class Placed(NamedTuple):
    """What came of it, job by job.

    ``promised`` is the start that was promised, NaN where none was; ``killed`` says that the limit ended the
    job. Of ``node`` and ``devices`` (as bits) a job has those from ``first`` on, up to the next job's first.
    ``events``, shape (2 · jobs,), are starts and ends as they came: the job, or ``~job`` for its end.
    ``broken`` and ``by_overrun`` count broken promises.
    """

    start: Floats
    end: Floats
    promised: Floats
    killed: npt.NDArray[np.bool_]
    first: Ints
    node: Ints
    devices: Ints
    events: Ints
    broken: int
    by_overrun: int


class Places(NamedTuple):
    """Where each job runs: ``node`` and ``devices`` (as bits) from ``first`` on, up to the next job's."""

    first: Ints
    node: Ints
    devices: Ints


@njit(cache=True)
def demand_of(jobs: Rigid, asked: PerNode, job: int) -> Demand:
    """What one job asks."""
    return Demand(jobs.nodes[job], asked.cpus[job], asked.devices[job], asked.memory[job])


@njit(cache=True)
def no_places(wanted: Ints) -> Places:
    """No job, each of which wants so many nodes, has a place yet."""
    first = np.zeros(wanted.size + 1, np.int64)
    first[1:] = np.cumsum(wanted)
    return Places(first, np.empty(first[-1], np.int64), np.zeros(first[-1], np.int64))


@njit(cache=True, forceinline=True)
def devices_in(bits: int) -> int:
    """How many devices; a node has fewer than 63."""
    found: int = ones(bits & 0xFFFFFFFF) + ones(bits >> 32)
    return found


@njit(cache=True, forceinline=True)
def fits(cpus: int, devices: int, memory: int, demand: Demand) -> bool:
    """Whether a node that has this free meets the demand."""
    return cpus >= demand.cpus and memory >= demand.memory and devices_in(devices) >= demand.devices


@njit(cache=True)
def of_least_rank(
    demand: Demand,
    placement: int,
    cpus: int,
    devices: int,
    node: int,
    found: int,
    ranks: Ints,
    node_of: Ints,
    devices_of: Ints,
) -> int:
    """Take a node that fits among those of least rank, of which so many were found; how many there are then.

    Nodes come by index: of like rank the lowest stay. ``cpus`` and ``devices`` are what it has free; the
    arrays are those of the nodes found, shape (demanded nodes,), by rank.
    """
    rank = 0
    if placement == PACK:
        rank = devices_in(devices)
    elif placement == SPREAD:
        rank = -(devices_in(devices) * MOST_CPUS + cpus)
    if found == demand.nodes:
        if rank >= ranks[found - 1]:
            return found
        found -= 1
    at = found
    while at > 0 and ranks[at - 1] > rank:
        ranks[at], node_of[at], devices_of[at] = ranks[at - 1], node_of[at - 1], devices_of[at - 1]
        at -= 1
    ranks[at], node_of[at] = rank, node
    chosen = 0
    for _ in range(demand.devices):
        chosen |= devices & ~chosen & -(devices & ~chosen)
    devices_of[at] = chosen
    return found + 1
