"""KNN: the distances of query points to their nearest neighbours, by looking at all points.

Source: T. Cover, P. Hart, "Nearest neighbor pattern classification", IEEE Trans. Information Theory 13
(1967). ``iterations`` are queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

NEIGHBOURS = 10
DIMENSIONS = 4
CHUNK = 1024
"""Points that a work-item looks at."""

# A work-item keeps the nearest of its points, in order: a new one sinks to its place, the last one falls out.
SOURCE = (
    f"""
#define NEIGHBOURS {NEIGHBOURS}
#define CHUNK {CHUNK}
"""
    + """
__kernel void nearest(__global const float4 *restrict points, __global float *restrict found,
                      const float4 query)
{
    const size_t i = get_global_id(0), items = get_global_size(0);
    float best[NEIGHBOURS];
    for (uint k = 0; k < NEIGHBOURS; k++)
        best[k] = INFINITY;
    for (uint p = 0; p < CHUNK; p++) {
        const float4 away = points[p * items + i] - query;
        float square = dot(away, away);
        if (square >= best[NEIGHBOURS - 1])
            continue;
        for (uint k = 0; k < NEIGHBOURS; k++) {
            const float nearer = fmin(best[k], square);
            square = fmax(best[k], square);
            best[k] = nearer;
        }
    }
    for (uint k = 0; k < NEIGHBOURS; k++)
        found[k * items + i] = best[k];
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``(n, 4)`` float32 points in the unit cube; queries lie on a line through it."""
    return (rng.random((n, DIMENSIONS), dtype=np.float32),)


def query_points(iterations: int) -> Array:
    """Points along the diagonal, ``(iterations, 4)``."""
    steps = (np.arange(iterations, dtype=np.float32) + 0.5) / iterations
    return np.repeat(steps[:, None], DIMENSIONS, axis=1)


def array_api(xp: Any, points: Any, iterations: int = 1) -> Any:
    """All distances of a query, sorted; O(n log n) a query."""
    rows = []
    for query in query_points(iterations):
        away = [points[:, d] - float(query[d]) for d in range(DIMENSIONS)]
        square = away[0] * away[0] + away[1] * away[1] + away[2] * away[2] + away[3] * away[3]
        rows.append(xp.sort(square)[:NEIGHBOURS])
    return xp.sqrt(xp.stack(rows))


def cpu(points: Array, iterations: int = 1) -> Array:
    """The distances, ascending, ``(iterations, min(n, 10))``, by partition; O(n) a query."""
    nearest = min(NEIGHBOURS, points.shape[0])
    found = np.empty((iterations, nearest), np.float32)
    for row, query in zip(found, query_points(iterations), strict=True):
        away = points - query
        squares = np.einsum("ij,ij->i", away, away)
        row[:] = squares if squares.size == nearest else np.partition(squares, nearest)[:nearest]
    found.sort(axis=1)
    return np.sqrt(found)


def opencl(device: OpenCL, points: Array, iterations: int = 1) -> Array:
    """A work-item per chunk of points; the host merges what they found."""
    n = points.shape[0]
    items = max(64, round_up(-(-n // CHUNK), 64))
    kernel = device.kernel(SOURCE, "nearest")
    there = device.upload_array(points, (items * CHUNK, DIMENSIONS), fill=np.inf)
    best = device.allocate_buffer(NEIGHBOURS, items, dtype=np.float32)
    nearest = min(NEIGHBOURS, n)
    found = np.empty((iterations, nearest), np.float32)
    for row, query in zip(found, query_points(iterations), strict=True):
        device.launch(kernel, (items,), device.group(kernel, 64), there, best, query)
        row[:] = np.sort(device.download_array(best, (NEIGHBOURS * items,), np.float32))[:nearest]
    return np.sqrt(found)
