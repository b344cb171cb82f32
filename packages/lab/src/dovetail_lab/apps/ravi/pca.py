"""PCA: the four main directions of 32-dimensional data, and the variances along them.

Orthogonal iteration (G. Golub, C. Van Loan, Matrix Computations, section 8.2): a sweep multiplies four
directions by the covariance matrix without ever making it, X'(XV), and makes them orthonormal again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL
from dovetail_lab.apps.ravi.sweeps import Part, Sweeps, sum_partials, upload_part, work_items

DIMENSIONS, DIRECTIONS, CHUNK = 32, 4, 256
COLUMNS = DIRECTIONS + 1

SOURCE = (
    f"""
#define DIMENSIONS {DIMENSIONS}
"""
    + """
__kernel void multiply(__global const float *restrict data, __global const float4 *restrict directions,
                       __global float *restrict partial, const uint n)
{
    const uint i = get_global_id(0), items = get_global_size(0);
    float4 products[DIMENSIONS];
    float sums[DIMENSIONS];
    for (uint d = 0; d < DIMENSIONS; d++) {
        products[d] = (float4)(0.0f);
        sums[d] = 0.0f;
    }
    for (uint p = i; p < n; p += items) {
        __global const float *restrict row = data + (size_t)p * DIMENSIONS;
        float4 along = (float4)(0.0f);
        for (uint d = 0; d < DIMENSIONS; d++)
            along += row[d] * directions[d];
        for (uint d = 0; d < DIMENSIONS; d++) {
            products[d] += row[d] * along;
            sums[d] += row[d];
        }
    }
    for (uint d = 0; d < DIMENSIONS; d++) {
        partial[(5 * d) * items + i] = products[d].x;
        partial[(5 * d + 1) * items + i] = products[d].y;
        partial[(5 * d + 2) * items + i] = products[d].z;
        partial[(5 * d + 3) * items + i] = products[d].w;
        partial[(5 * d + 4) * items + i] = sums[d];
    }
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``(n, 32)`` float32 data whose variances halve along hidden axes, and four first directions."""
    axes = np.linalg.qr(rng.standard_normal((DIMENSIONS, DIMENSIONS)))[0]
    scales = 2.0 ** (-np.arange(DIMENSIONS) / 2)
    mixing = (scales[:, None] * axes.T).astype(np.float32)
    data = rng.standard_normal((n, DIMENSIONS), dtype=np.float32) @ mixing + np.float32(1)
    return data, rng.standard_normal((DIMENSIONS, DIRECTIONS))


def _initial_state(data: Array, guess: Array) -> Array:
    """Directions, with their variances as the last row, ``(33, 4)``."""
    return np.vstack([np.linalg.qr(guess)[0], np.zeros(DIRECTIONS)])


def _sweep_on_host(state: Array, sweep: int, part: Part) -> Array:
    """X'(XV), and the sums of X's columns, ``(32, 5)``; O(n)."""
    (data,) = part
    products = data.T @ (data @ state[:-1].astype(np.float32))
    return np.column_stack([products, data.sum(axis=0)]).astype(np.float64)


def _sweep_on_device(device: OpenCL, state: Array, sweep: int, loaded: Any) -> Array:
    data, n = loaded
    kernel = device.kernel(SOURCE, "multiply")
    items = work_items(n, CHUNK)
    partial = device.allocate_buffer(COLUMNS * DIMENSIONS, items, dtype=np.float32)
    directions = device.upload_array(state[:-1].astype(np.float32))
    group = device.group(kernel, 64)
    device.launch(kernel, (items,), group, data, directions, partial, np.uint32(n))
    return sum_partials(device, partial, COLUMNS * DIMENSIONS, items).reshape(DIMENSIONS, COLUMNS)


def _update_state(state: Array, total: Array, n: int) -> Array:
    """What the mean adds to X'(XV) is taken off; signs are such that the variances are positive."""
    means = total[:, -1] / n
    covariance = total[:, :-1] / n - np.outer(means, means @ state[:-1])
    directions, upper = np.linalg.qr(covariance)
    signs = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.vstack([directions * signs, np.abs(np.diag(upper))])


SWEEPS = Sweeps(_initial_state, _sweep_on_host, upload_part, _sweep_on_device, _update_state)
cpu, opencl, both = SWEEPS.cpu, SWEEPS.opencl, SWEEPS.both
