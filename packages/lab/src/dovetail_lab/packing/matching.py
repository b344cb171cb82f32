"""k = 1 and k = 2, solved exactly (Theorem 1 of Aupy 2013)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.schedule import Packing, fill_groups

Floats = NDArray[np.float64]


def each_alone(times: Floats) -> Packing:
    """k = 1: every task on all processors, O(n)."""
    return fill_groups(times, ([i] for i in range(times.shape[0])))


def pair_costs(times: Floats) -> Floats:
    """The cost of every pair in one pack: min over l of max(t_{i,p-l}, t_{j,l}).

    Shape ``(n, n)``; O(n^2 p).
    """
    n, p = times.shape
    costs = np.full((n, n), np.inf)
    for share in range(1, p):
        costs = np.minimum(costs, np.maximum(times[:, None, p - share - 1], times[None, :, share - 1]))
    return costs


def match_pairs(times: Floats, k: int = 2) -> Packing:
    """The optimal packs of at most two tasks, by matching.

    The paper uses a perfect matching of least weight in a graph with a loop for each task; as much
    is a matching of most saving, where pairing i and j saves t_{i,p} + t_{j,p} - cost(i, j) and only
    pairs that save are edges.  Savings are rounded to integers of 50 bits, in which the matching is
    exact.  O(n^3).  Raises ``InputError`` when k is not 2.
    """
    if k != 2:
        raise InputError(f"matching solves k = 2 only, k is {k}")
    n, p = times.shape
    alone = times[:, p - 1]
    if p == 1:
        return each_alone(times)
    saving = alone[:, None] + alone[None, :] - pair_costs(times)
    scale = 2.0**50 / float(alone.max())
    import networkx as nx  # takes long to import: `dovetail policies` lists what uses this

    graph: nx.Graph[int] = nx.Graph()
    rows, columns = np.nonzero(np.triu(saving > 0.0, k=1))
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        graph.add_edge(i, j, weight=round(float(saving[i, j]) * scale))
    pairs = [sorted(pair) for pair in nx.max_weight_matching(graph)]
    paired = {i for pair in pairs for i in pair}
    return fill_groups(times, pairs + [[i] for i in range(n) if i not in paired])
