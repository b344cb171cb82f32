"""Gridding kernel: visibilities of a radio interferometer, spread over the cells of a grid around them.

Source: J. Romein, "An efficient work-distribution strategy for gridding radio-telescope data on GPUs" (ICS
2012). A sweep is a frequency channel: the same baselines are a little longer in wavelengths. The convolution
function is a Gaussian of 7 x 7 cells, tabulated at eighths of a cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL
from dovetail_lab.apps.ravi.sweeps import Part, Sweeps

SIDE, SUPPORT, EIGHTHS = 512, 7, 8
HALF = SUPPORT // 2
ROOM = 16384
"""Visibilities at a time on the host."""
CHANNELS = 64
"""The channels repeat after so many."""

# A work-item owns a row of the grid, so that no two write to one cell.  Visibilities come in the order of
# their rows; `bounds` holds which of them reach this one.  What decides the cell must not become an fma.
SOURCE = (
    f"""
#define SIDE {SIDE}
#define SUPPORT {SUPPORT}
#define HALF {HALF}
#define EIGHTHS {EIGHTHS}
"""
    + """
#pragma OPENCL FP_CONTRACT OFF

__kernel void spread(__global const float2 *restrict where, __global const float2 *restrict value,
                     __global const float *restrict table, __global const uint *restrict bounds,
                     __global float *restrict grid, const float scale)
{
    const int row = get_global_id(0);
    __global float *restrict real = grid + row * SIDE, *restrict imaginary = real + SIDE * SIDE;
    for (uint i = 0; i < SIDE; i++)
        real[i] = imaginary[i] = 0.0f;
    for (uint i = bounds[row]; i < bounds[SIDE + row]; i++) {
        const float u = where[i].x * scale, v = where[i].y * scale;
        const float x = u + SIDE / 2, y = v + SIDE / 2;
        const int column = (int)floor(x), line = (int)floor(y);
        const int part_x = (int)((x - column) * EIGHTHS), part_y = (int)((y - line) * EIGHTHS);
        const float2 weighted = value[i] * table[part_y * SUPPORT + row - line + HALF];
        for (int tap = 0; tap < SUPPORT; tap++) {
            const float weight = table[part_x * SUPPORT + tap];
            real[column - HALF + tap] += weighted.x * weight;
            imaginary[column - HALF + tap] += weighted.y * weight;
        }
    }
}
"""
)


def convolution_table() -> Array:
    """The convolution function, ``(8, 7)`` float32: a row for each eighth of a cell, of sum 1."""
    away = np.arange(-HALF, HALF + 1) - np.arange(EIGHTHS)[:, None] / EIGHTHS
    weights = np.exp(-(away**2))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Places in cells from the grid's middle, ``(n, 2)`` float32, dense there, and complex values."""
    radius = 0.4 * SIDE * rng.random(n, dtype=np.float32)
    angle = 2 * np.pi * rng.random(n, dtype=np.float32)
    places = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    return places, rng.standard_normal((n, 2), dtype=np.float32)


def baseline_scale(sweep: int) -> np.float32:
    """How much longer the baselines of a channel are."""
    return np.float32(1 + 0.002 * (sweep % CHANNELS))


def cells_of_places(places: Array, sweep: int) -> tuple[Array, Array]:
    """The cell of each place, and the eighth of it, along both axes."""
    at = places * baseline_scale(sweep) + np.float32(SIDE // 2)
    whole = np.floor(at)
    return whole.astype(np.int64), ((at - whole) * EIGHTHS).astype(np.int64)


def _initial_state(places: Array, values: Array) -> Array:
    return np.zeros((2, SIDE, SIDE))


def _sweep_on_host(state: Array, sweep: int, part: Part) -> Array:
    """The grid of a part, real and imaginary, ``(2, 512, 512)``; O(49 n)."""
    weights = convolution_table()
    taps = np.arange(-HALF, HALF + 1)
    grid = np.zeros((2, SIDE * SIDE))
    for first in range(0, len(part[0]), ROOM):
        places, values = (array[first : first + ROOM] for array in part)
        whole, eighth = cells_of_places(places, sweep)
        across, down = weights[eighth[:, 0]], weights[eighth[:, 1]]
        rows = (whole[:, 1, None] + taps) * SIDE
        index = (rows[:, :, None] + (whole[:, 0, None] + taps)[:, None, :]).reshape(-1)
        spread = down[:, :, None] * across[:, None, :]
        for plane, value in zip(grid, values.T, strict=True):
            plane += np.bincount(index, (spread * value[:, None, None]).reshape(-1), SIDE * SIDE)
    return grid.reshape(2, SIDE, SIDE)


def _load_part(device: OpenCL, part: Part) -> Any:
    places, values = part
    order = np.argsort(places[:, 1], kind="stable")
    return places[order], *map(device.upload_array, (places[order], values[order], convolution_table()))


def _sweep_on_device(device: OpenCL, state: Array, sweep: int, loaded: Any) -> Array:
    sorted_, places, values, weights = loaded
    kernel = device.kernel(SOURCE, "spread")
    lines, rows = cells_of_places(sorted_, sweep)[0][:, 1], np.arange(SIDE)
    firsts, ends = np.searchsorted(lines, rows - HALF), np.searchsorted(lines, rows + HALF, "right")
    bounds = device.upload_array(np.concatenate([firsts, ends]).astype(np.uint32))
    grid = device.allocate_buffer(2, SIDE, SIDE, dtype=np.float32)
    device.launch(
        kernel,
        (SIDE,),
        device.group(kernel, 16),
        places,
        values,
        weights,
        bounds,
        grid,
        baseline_scale(sweep),
    )
    return (
        device.download_array(grid, (2 * SIDE * SIDE,), np.float32).reshape(2, SIDE, SIDE).astype(np.float64)
    )


def _update_state(state: Array, total: Array, n: int) -> Array:
    return state + total


SWEEPS = Sweeps(_initial_state, _sweep_on_host, _load_part, _sweep_on_device, _update_state, divided=2)
cpu, opencl, both = SWEEPS.cpu, SWEEPS.opencl, SWEEPS.both
