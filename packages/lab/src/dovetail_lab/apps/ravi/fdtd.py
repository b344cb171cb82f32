"""FDTD: an electromagnetic wave in a box with conducting walls, by finite differences in the time domain.

Source: K. Yee, "Numerical solution of initial boundary value problems involving Maxwell's equations in
isotropic media", IEEE Trans. Antennas and Propagation 14 (1966): here in two dimensions, the electric field
across them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

COURANT = 0.5
"""Speed of light times time step over mesh width; stable below 1 / sqrt(2)."""

# hx[y, x] lies between e[y, x] and e[y, x + 1], hy[y, x] between e[y, x] and e[y + 1, x].
SOURCE = """
__kernel void magnetic(__global const float *restrict e, __global float *restrict hx,
                       __global float *restrict hy)
{
    const uint pitch = get_global_size(0) + 1;
    const size_t i = (size_t)get_global_id(1) * pitch + get_global_id(0);
    hx[i] -= 0.5f * (e[i + 1] - e[i]);
    hy[i] += 0.5f * (e[i + pitch] - e[i]);
}

__kernel void electric(__global float *restrict e, __global const float *restrict hx,
                       __global const float *restrict hy, const uint n, const uint pitch)
{
    const uint x = get_global_id(0), y = get_global_id(1);
    const size_t i = (size_t)(y + 1) * pitch + x + 1;
    const float value = e[i] + 0.5f * ((hy[i] - hy[i - pitch]) - (hx[i] - hx[i - 1]));
    e[i] = x < n && y < n ? value : 0.0f;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """The electric field at the start, uniform in [-1, 1), of ``(n + 2, n + 2)`` with walls of 0."""
    return (np.pad(rng.random((n, n), dtype=np.float32) * 2 - 1, 1),)


def array_api(xp: Any, start: Any, iterations: int = 1) -> Any:
    """The magnetic field half a step, the electric field the other half, so many times; O(n^2 iterations)."""
    e = xp.zeros_like(start)
    e[...] = start
    hx, hy = xp.zeros_like(start[:, 1:]), xp.zeros_like(start[1:, :])
    for _ in range(iterations):
        hx -= COURANT * (e[:, 1:] - e[:, :-1])
        hy += COURANT * (e[1:, :] - e[:-1, :])
        curl = hy[1:, 1:-1] - hy[:-1, 1:-1]
        curl -= hx[1:-1, 1:]
        curl += hx[1:-1, :-1]
        curl *= COURANT
        e[1:-1, 1:-1] += curl
    return e[1:-1, 1:-1]


def cpu(start: Array, iterations: int = 1) -> Array:
    """The same in NumPy."""
    return np.asarray(array_api(np, start, iterations))


def opencl(device: OpenCL, start: Array, iterations: int = 1) -> Array:
    """Two launches a step, a work-item per point."""
    n = start.shape[0] - 2
    rows, columns = round_up(n + 1, 4), round_up(n + 1, 64)
    magnetic, electric = device.kernel(SOURCE, "magnetic"), device.kernel(SOURCE, "electric")
    shape = (rows + 1, columns + 1)
    e, nothing = device.upload_array(start, shape), np.zeros((0, 0), np.float32)
    hx, hy = device.upload_array(nothing, shape), device.upload_array(nothing, shape)
    for _ in range(iterations):
        device.launch(magnetic, (columns, rows), device.group(magnetic, 64, 4), e, hx, hy)
        sizes = np.uint32(n), np.uint32(columns + 1)
        inside = (round_up(n, 64), round_up(n, 4))
        device.launch(electric, inside, device.group(electric, 64, 4), e, hx, hy, *sizes)
    return device.download_array(e, (n + 2, n + 2), np.float32, columns + 1)[1:-1, 1:-1]
