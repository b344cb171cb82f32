"""PDE solver: Poisson's equation on a square by Jacobi's method (Numerical Recipes, section 20.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

# u'' = f with u = 0 around the square; f comes multiplied by the square of the mesh width.  Points beyond the
# square are computed too, and set to zero: a condition would keep PoCL from vectorising.
SOURCE = """
__kernel void sweep(__global const float *restrict u, __global const float *restrict f,
                    __global float *restrict next, const uint n)
{
    const uint x = get_global_id(0), y = get_global_id(1), pitch = get_global_size(0) + 2;
    const size_t i = (size_t)(y + 1) * pitch + x + 1;
    const float value = 0.25f * (u[i - 1] + u[i + 1] + u[i - pitch] + u[i + pitch] - f[i]);
    next[i] = x < n && y < n ? value : 0.0f;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """The first guess, zeros of ``(n + 2, n + 2)`` with the rim, and f inside of it, uniform in [-1, 1)."""
    return np.zeros((n + 2, n + 2), np.float32), rng.random((n, n), dtype=np.float32) * 2 - 1


def array_api(xp: Any, guess: Any, f: Any, iterations: int = 1) -> Any:
    """Every point becomes the mean of its neighbours, less f / 4, so many times; O(n^2 iterations)."""
    u = xp.zeros_like(guess)
    for _ in range(iterations):
        next_ = u[:-2, 1:-1] + u[2:, 1:-1]
        next_ += u[1:-1, :-2]
        next_ += u[1:-1, 2:]
        next_ -= f
        next_ *= 0.25
        u[1:-1, 1:-1] = next_
    return u[1:-1, 1:-1]


def cpu(guess: Array, f: Array, iterations: int = 1) -> Array:
    """The same in NumPy."""
    return np.asarray(array_api(np, guess, f, iterations))


def opencl(device: OpenCL, guess: Array, f: Array, iterations: int = 1) -> Array:
    """One work-item per point; two buffers change places."""
    n = f.shape[0]
    rows, columns = round_up(n, 4), round_up(n, 64)
    framed = (rows + 2, columns + 2)
    kernel = device.kernel(SOURCE, "sweep")
    u, next_ = device.upload_array(guess, framed), device.upload_array(guess, framed)
    source = device.upload_array(f, framed, origin=(1, 1))
    for _ in range(iterations):
        device.launch(kernel, (columns, rows), device.group(kernel, 64, 4), u, source, next_, np.uint32(n))
        u, next_ = next_, u
    return device.download_array(u, (n + 2, n + 2), np.float32, columns + 2)[1:-1, 1:-1]
