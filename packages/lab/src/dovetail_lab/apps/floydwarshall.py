"""FloydWarshall: the lengths of the shortest paths between all pairs of nodes of a directed graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

#: The length of an edge that is not there; twice it still fits into an int32.
NO_EDGE = 1 << 29

# One pass per intermediate node k, from one matrix to another: reading and writing the same one would leave
# the compiler unsure whether row k changes under it.
SOURCE = """
__kernel void relax(__global const int *restrict from, __global int *restrict to, const uint n, const uint k)
{
    const size_t j = get_global_id(0), i = get_global_id(1);
    __global const int *restrict row = from + i * n;
    __global const int *restrict via = from + (size_t)k * n;
    const int old = row[j];
    const int new = row[k] + via[j];
    to[i * n + j] = new < old ? new : old;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` int32 matrix of edge lengths 1 to 1000; half of the edges are missing."""
    lengths = rng.integers(1, 2001, (n, n), dtype=np.int32)
    lengths[lengths > 1000] = NO_EDGE
    np.fill_diagonal(lengths, 0)
    return (lengths,)


def cpu(lengths: Array) -> Array:
    """One vectorised relaxation of the whole matrix per intermediate node; O(n^3)."""
    distance = lengths.copy()
    through = np.empty_like(distance)
    for k in range(distance.shape[0]):
        # Row and column k do not change in step k, because distance[k, k] is 0; so this may be done in place.
        np.add(distance[:, k, None], distance[k], out=through)
        np.minimum(distance, through, out=distance)
    return distance


def array_api(xp: Any, lengths: Any) -> Any:
    """The same relaxation, without writing in place."""
    distance = lengths
    for k in range(lengths.shape[0]):
        distance = xp.minimum(distance, distance[:, k : k + 1] + distance[k : k + 1, :])
    return distance


def opencl(device: OpenCL, lengths: Array) -> Array:
    """One kernel launch per intermediate node; the matrix is padded with nodes that have no edges."""
    n = lengths.shape[0]
    rows, columns = round_up(n, 4), round_up(n, 64)
    kernel = device.kernel(SOURCE, "relax")
    group = device.group(kernel, 64, 4)
    now = device.upload_array(lengths, (rows, columns), fill=NO_EDGE)
    after = device.allocate_buffer(rows, columns, dtype=np.int32)
    for k in range(n):
        device.launch(kernel, (columns, rows), group, now, after, np.uint32(columns), np.uint32(k))
        now, after = after, now
    return device.download_array(now, (n, n), np.int32, columns)
