"""What like nodes have free at one time, node by node, and how many nodes have the same.

A machine of thousands of nodes has some hundred states: whether a job fits is asked of these. The readable
twin is `dovetail.engine.capacity`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.like_nodes import FIRST, PACK, Demand, devices_in, of_least_rank

__all__ = [
    "Nodes",
    "States",
    "all_free",
    "change",
    "change_states",
    "has_room",
    "how_many_fit",
    "how_many_of",
    "one_state",
    "place",
]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CPUS, DEVICES, MEMORY, WHOLE, NODES = range(5)


class Nodes(NamedTuple):
    """CPUs, devices (as bits), memory and number of devices that nodes have free, shape (nodes,)."""

    cpus: Ints
    devices: Ints
    memory: Ints
    whole: Ints


class States(NamedTuple):
    """The states that nodes are in: the row of each node, shape (nodes,), and the rows, shape (nodes + 1, 5).

    A row holds the fields of `Nodes` and how many nodes have that free; rows from ``used`` on are empty, and
    so are those before it that have no nodes.
    """

    of_node: Ints
    rows: Ints
    used: Ints


@njit(cache=True)
def all_free(nodes: int, cpus: int, devices: int, memory: int) -> Nodes:
    """So many nodes on which nothing runs."""
    return Nodes(
        np.full(nodes, cpus),
        np.full(nodes, (1 << devices) - 1),
        np.full(nodes, memory),
        np.full(nodes, devices),
    )


@njit(cache=True)
def one_state(free: Nodes) -> States:
    """The states of nodes on which nothing runs: they are all in one."""
    nodes = free.cpus.size
    rows = np.zeros((nodes + 1, 5), np.int64)
    rows[0, CPUS], rows[0, DEVICES], rows[0, MEMORY] = free.cpus[0], free.devices[0], free.memory[0]
    rows[0, WHOLE], rows[0, NODES] = free.whole[0], nodes
    return States(np.zeros(nodes, np.int64), rows, np.ones(1, np.int64))


@njit(cache=True)
def change(free: Nodes, demand: Demand, node_of: Ints, devices_of: Ints, sign: int) -> None:
    """Take what a job holds on its nodes (-1), or give it back (+1)."""
    for at in range(demand.nodes):
        node = node_of[at]
        free.cpus[node] += sign * demand.cpus
        free.devices[node] ^= devices_of[at]
        free.memory[node] += sign * demand.memory
        free.whole[node] += sign * demand.devices


@njit(cache=True)
def change_states(
    states: States, free: Nodes, demand: Demand, node_of: Ints, devices_of: Ints, sign: int
) -> None:
    """Note what `change` is about to do. O(nodes of the job · states), less where neighbours are alike."""
    rows, before, after, held = states.rows, -1, -1, 0
    for at in range(demand.nodes):
        node = node_of[at]
        row = states.of_node[node]
        if row != before or devices_of[at] != held:
            before, held = row, devices_of[at]
            after = _row(
                states,
                free.cpus[node] + sign * demand.cpus,
                free.devices[node] ^ held,
                free.memory[node] + sign * demand.memory,
            )
        rows[row, NODES] -= 1
        rows[after, NODES] += 1
        states.of_node[node] = after


@njit(cache=True)
def _row(states: States, cpus: int, devices: int, memory: int) -> int:
    """The row of a state, which is made if there is none."""
    rows = states.rows
    used: int = states.used[0]
    spare = used
    for row in range(used):
        if not rows[row, NODES]:
            spare = row
        elif rows[row, CPUS] == cpus and rows[row, DEVICES] == devices and rows[row, MEMORY] == memory:
            return row
    rows[spare, CPUS], rows[spare, DEVICES], rows[spare, MEMORY] = cpus, devices, memory
    rows[spare, WHOLE] = devices_in(devices)
    states.used[0] = max(used, spare + 1)
    return spare


@njit(cache=True, forceinline=True)
def _meets(cpus: int, whole: int, memory: int, demand: Demand) -> bool:
    return cpus >= demand.cpus and whole >= demand.devices and memory >= demand.memory


@njit(cache=True)
def how_many_fit(states: States, demand: Demand) -> int:
    """The nodes that could each give what is demanded of one. O(states)."""
    found: int = 0
    rows = states.rows
    for row in range(states.used[0]):
        if _meets(rows[row, CPUS], rows[row, WHOLE], rows[row, MEMORY], demand):
            found += rows[row, NODES]
    return found


@njit(cache=True)
def has_room(states: States, demand: Demand) -> bool:
    """Whether the demand can be met. O(states)."""
    return bool(how_many_fit(states, demand) >= demand.nodes)


@njit(cache=True)
def how_many_of(free: Nodes, demand: Demand, node_of: Ints) -> int:
    """The same of these nodes only."""
    found: int = 0
    for node in node_of:
        found += _meets(free.cpus[node], free.whole[node], free.memory[node], demand)
    return found


@njit(cache=True)
def place(
    free: Nodes, demand: Demand, placement: int, barred: Flags, node_of: Ints, devices_of: Ints, ranks: Ints
) -> bool:
    """Where the demand is met by the placement rule, on nodes that are not ``barred``; whether it is.

    Nodes and devices are written to ``node_of`` and ``devices_of``; ``ranks`` is space. O(nodes).
    """
    found: int = 0
    for node in range(free.cpus.size):
        if not _meets(free.cpus[node], free.whole[node], free.memory[node], demand) or barred[node]:
            continue
        found = of_least_rank(
            demand, placement, free.cpus[node], free.devices[node], node, found, ranks, node_of, devices_of
        )
        if found == demand.nodes and (
            placement == FIRST or (placement == PACK and ranks[found - 1] == demand.devices)
        ):
            break  # no node has a lower rank
    return bool(found == demand.nodes)
