"""Core ids of jobs that share nodes: the lowest free ones, at each start."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.kernels.borrowing_arrays import Columns, Outcome
from dovetail.kernels.borrowing_room import lowest
from dovetail.kernels.compiler import njit

__all__ = ["assign_cores"]

Ints = npt.NDArray[np.int64]


def assign_cores(jobs: Columns, outcome: Outcome, pools: Ints) -> Ints:
    """Mask of the cores of each place of ``outcome.node``; ``pools``: cores of each node. O(places log jobs).

    Ends before starts at one instant, starts in order of the jobs, as the engine does.
    """
    total = len(jobs.submit)
    times = np.concatenate((outcome.end, outcome.start))
    starts = np.repeat((0, 1), total)
    order = np.lexsort((np.tile(np.arange(total), 2), starts, times))
    free = np.array([(1 << int(cores)) - 1 for cores in pools], np.int64)
    masks = np.zeros(len(outcome.node), np.int64)
    _assign(jobs, order.astype(np.int64), outcome.first_node, outcome.node, free, masks)
    return masks


@njit(cache=True)
def _assign(jobs, order, first_node, node, free, masks):  # type: ignore[no-untyped-def]
    total = len(jobs.submit)
    for event in order:
        j = event % total
        for k in range(first_node[j], first_node[j] + jobs.nodes[j]):
            if event >= total:
                masks[k] = lowest(free[node[k]], jobs.cpus[j])
                free[node[k]] &= ~masks[k]
            else:
                free[node[k]] |= masks[k]
