"""Kmeans: points in 16 clusters by Lloyd's method, ``iterations`` rounds.

Source: S. Lloyd, "Least squares quantization in PCM", IEEE Trans. Information Theory 28 (1982).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL
from dovetail_lab.apps.ravi.sweeps import Part, Sweeps, sum_partials, upload_part, work_items

CLUSTERS, DIMENSIONS, CHUNK = 16, 4, 512

SOURCE = (
    f"""
#define CLUSTERS {CLUSTERS}
"""
    + """
__kernel void gather(__global const float4 *restrict points, __global const float4 *restrict centres,
                     __global float *restrict partial, const uint n)
{
    const uint i = get_global_id(0), items = get_global_size(0);
    float4 sums[CLUSTERS];
    float counts[CLUSTERS];
    for (uint c = 0; c < CLUSTERS; c++) {
        sums[c] = (float4)(0.0f);
        counts[c] = 0.0f;
    }
    for (uint p = i; p < n; p += items) {
        const float4 point = points[p];
        float least = INFINITY;
        uint nearest = 0;
        for (uint c = 0; c < CLUSTERS; c++) {
            const float4 away = point - centres[c];
            const float square = dot(away, away);
            nearest = square < least ? c : nearest;
            least = fmin(square, least);
        }
        sums[nearest] += point;
        counts[nearest] += 1.0f;
    }
    for (uint c = 0; c < CLUSTERS; c++) {
        partial[(5 * c) * items + i] = counts[c];
        partial[(5 * c + 1) * items + i] = sums[c].x;
        partial[(5 * c + 2) * items + i] = sums[c].y;
        partial[(5 * c + 3) * items + i] = sums[c].z;
        partial[(5 * c + 4) * items + i] = sums[c].w;
    }
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``(n, 4)`` float32 points around 16 places of a cube, and the first guess at those."""
    places = rng.random((CLUSTERS, DIMENSIONS), dtype=np.float32) * 10
    points = rng.standard_normal((n, DIMENSIONS), dtype=np.float32) * np.float32(0.3)
    points += places[rng.integers(CLUSTERS, size=n)]
    return points, places + rng.standard_normal(places.shape, dtype=np.float32) * np.float32(0.5)


def _initial_state(points: Array, guess: Array) -> Array:
    return guess


def _sweep_on_host(centres: Array, sweep: int, part: Part) -> Array:
    """Counts and sums of the points nearest to each centre, ``(16, 5)``; O(n)."""
    (points,) = part
    distances = points @ (-2 * centres.T)
    distances += np.einsum("ij,ij->i", centres, centres)
    nearest = np.argmin(distances, axis=1)
    columns = [np.bincount(nearest, points[:, d], CLUSTERS) for d in range(DIMENSIONS)]
    return np.stack([np.bincount(nearest, minlength=CLUSTERS), *columns], axis=1)


def _sweep_on_device(device: OpenCL, centres: Array, sweep: int, loaded: Any) -> Array:
    points, n = loaded
    kernel = device.kernel(SOURCE, "gather")
    items = work_items(n, CHUNK)
    partial = device.allocate_buffer(5 * CLUSTERS, items, dtype=np.float32)
    group = device.group(kernel, 64)
    device.launch(kernel, (items,), group, points, device.upload_array(centres), partial, np.uint32(n))
    return sum_partials(device, partial, 5 * CLUSTERS, items).reshape(CLUSTERS, 5)


def _update_state(centres: Array, total: Array, n: int) -> Array:
    """The means; a centre that lost all its points stays."""
    counts = np.maximum(total[:, :1], 1)
    return np.where(total[:, :1] > 0, total[:, 1:] / counts, centres).astype(np.float32)


SWEEPS = Sweeps(_initial_state, _sweep_on_host, upload_part, _sweep_on_device, _update_state)
cpu, opencl, both = SWEEPS.cpu, SWEEPS.opencl, SWEEPS.both
