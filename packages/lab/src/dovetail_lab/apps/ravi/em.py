"""Expectation maximisation: a mixture of eight Gaussians with axes of their own lengths.

Source: A. Dempster, N. Laird, D. Rubin, "Maximum likelihood from incomplete data via the EM algorithm", J.
Royal Statistical Society B 39 (1977).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL
from dovetail_lab.apps.ravi.sweeps import Part, Sweeps, sum_partials, upload_part, work_items

PARTS, DIMENSIONS, CHUNK = 8, 4, 256
COLUMNS = 1 + 2 * DIMENSIONS
"""Of the state: weight, means, variances; of a sum: weights, weighted points, weighted squares."""
ROOM = 4096
"""Points at a time on the host: their arrays stay in the cache."""
LEAST_VARIANCE = 1e-4

# terms: for each part its logarithm before the squares, its means, and minus half of the inverse variances.
SOURCE = (
    f"""
#define PARTS {PARTS}
"""
    + """
__kernel void expect(__global const float4 *restrict points, __global const float *restrict constants,
                     __global const float4 *restrict means, __global const float4 *restrict narrow,
                     __global float *restrict partial, const uint n)
{
    const uint i = get_global_id(0), items = get_global_size(0);
    float weights[PARTS], likelihood = 0.0f;
    float4 sums[PARTS], squares[PARTS];
    for (uint k = 0; k < PARTS; k++) {
        weights[k] = 0.0f;
        sums[k] = squares[k] = (float4)(0.0f);
    }
    for (uint p = i; p < n; p += items) {
        const float4 point = points[p];
        float each[PARTS], most = -INFINITY, all = 0.0f;
        for (uint k = 0; k < PARTS; k++) {
            const float4 away = point - means[k];
            each[k] = constants[k] + dot(away * away, narrow[k]);
            most = fmax(most, each[k]);
        }
        for (uint k = 0; k < PARTS; k++) {
            each[k] = exp(each[k] - most);
            all += each[k];
        }
        likelihood += most + log(all);
        for (uint k = 0; k < PARTS; k++) {
            const float weight = each[k] / all;
            weights[k] += weight;
            sums[k] += weight * point;
            squares[k] += weight * point * point;
        }
    }
    for (uint k = 0; k < PARTS; k++) {
        __global float *out = partial + 9 * k * items + i;
        out[0] = weights[k];
        out[items] = sums[k].x;
        out[2 * items] = sums[k].y;
        out[3 * items] = sums[k].z;
        out[4 * items] = sums[k].w;
        out[5 * items] = squares[k].x;
        out[6 * items] = squares[k].y;
        out[7 * items] = squares[k].z;
        out[8 * items] = squares[k].w;
    }
    partial[9 * PARTS * items + i] = likelihood;
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``(n, 4)`` float32 points of eight Gaussians, and a first guess at their means."""
    means = rng.random((PARTS, DIMENSIONS)) * 10 - 5
    widths = rng.uniform(0.5, 1.2, (PARTS, DIMENSIONS))
    member = rng.integers(PARTS, size=n)
    points = rng.standard_normal((n, DIMENSIONS), dtype=np.float32)
    points *= widths.astype(np.float32)[member]
    points += means.astype(np.float32)[member]
    return points, means + rng.standard_normal(means.shape) * 0.5


def _initial_state(points: Array, guess: Array) -> Array:
    """A row for each part, and one for the mean logarithm of the likelihood of the state before."""
    state = np.ones((PARTS + 1, COLUMNS))
    state[:PARTS, 0] = 1 / PARTS
    state[:PARTS, 1 : 1 + DIMENSIONS] = guess
    state[PARTS] = 0
    return state


def _density_terms(state: Array) -> tuple[Array, Array, Array]:
    weights, means, variances = np.split(state[:PARTS], [1, 1 + DIMENSIONS], axis=1)
    logarithms = 2 * np.log(weights) - np.log(2 * np.pi * variances).sum(axis=1, keepdims=True)
    terms = logarithms[:, 0] / 2, means, -0.5 / variances
    return terms[0].astype(np.float32), terms[1].astype(np.float32), terms[2].astype(np.float32)


def _sweep_on_host(state: Array, sweep: int, part: Part) -> Array:
    """The sums over the points of a part, ``(9, 9)``, the likelihood in the last row; O(n)."""
    (points,) = part
    constants, means, narrow = _density_terms(state)
    total = np.zeros((PARTS + 1, COLUMNS))
    constants = constants + (means * means * narrow).sum(axis=1)
    for first in range(0, len(points), ROOM):
        some = points[first : first + ROOM]
        squares = some * some
        each = squares @ narrow.T
        each -= some @ (2 * means * narrow).T
        each += constants
        most = each.max(axis=1, keepdims=True)
        np.exp(each - most, out=each)
        all_ = each.sum(axis=1, keepdims=True)
        each /= all_
        total[PARTS, 0] += float((most + np.log(all_)).sum(dtype=np.float64))
        total[:PARTS] += np.column_stack([each.sum(axis=0), each.T @ some, each.T @ squares])
    return total


def _sweep_on_device(device: OpenCL, state: Array, sweep: int, loaded: Any) -> Array:
    points, n = loaded
    kernel = device.kernel(SOURCE, "expect")
    items, values = work_items(n, CHUNK), PARTS * COLUMNS + 1
    partial = device.allocate_buffer(values, items, dtype=np.float32)
    terms = [device.upload_array(array) for array in _density_terms(state)]
    group = device.group(kernel, 64)
    device.launch(kernel, (items,), group, points, *terms, partial, np.uint32(n))
    total = np.zeros((PARTS + 1) * COLUMNS)
    total[:values] = sum_partials(device, partial, values, items)
    return total.reshape(PARTS + 1, COLUMNS)


def _update_state(state: Array, total: Array, n: int) -> Array:
    """Weights, means and variances under which what was expected is likeliest."""
    weights = np.maximum(total[:PARTS, :1], 1e-9)
    means, squares = np.split(total[:PARTS, 1:] / weights, 2, axis=1)
    variances = np.maximum(squares - means * means, LEAST_VARIANCE)
    last = np.zeros((1, COLUMNS))
    last[0, 0] = total[PARTS, 0] / n
    return np.vstack([np.hstack([weights / n, means, variances]), last])


SWEEPS = Sweeps(_initial_state, _sweep_on_host, upload_part, _sweep_on_device, _update_state)
cpu, opencl, both = SWEEPS.cpu, SWEEPS.opencl, SWEEPS.both
