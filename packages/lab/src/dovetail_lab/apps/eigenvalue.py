"""EigenValue: all eigenvalues of a symmetric tridiagonal matrix in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 16
cpu_needs = ("scipy.linalg",)
LANES = 4  # eigenvalues that a work-item finds side by side
ITERATIONS = 56  # halvings of the interval; 2^-56 of its width is below the rounding of the matrix

# Bisection (Barth, Martin, Wilkinson 1967): the number of eigenvalues below x is the number of negative
# pivots of the matrix less x, so each work-item halves the intervals of its own eigenvalues by itself.
SOURCE = """
__kernel void bisect(__global const double *restrict diagonal, __global const double *restrict squares,
                     __global double *restrict eigenvalues, const uint n, const uint iterations,
                     const double least, const double most, const double tiny)
{
    const long item = get_global_id(0);
    const long4 index = min(4 * item + (long4)(0, 1, 2, 3), (long4)(n - 1));
    double4 low = least, high = most;
    for (uint round = 0; round < iterations; round++) {
        const double4 x = 0.5 * (low + high);
        double4 pivot = diagonal[0] - x;
        long4 below = 0;
        for (uint i = 0;;) {
            pivot = fabs(pivot) < tiny ? (double4)(-tiny) : pivot;
            below -= pivot < 0.0;
            if (++i == n)
                break;
            pivot = diagonal[i] - x - squares[i - 1] / pivot;
        }
        low = below <= index ? x : low;
        high = below <= index ? high : x;
    }
    vstore4(0.5 * (low + high), item, eigenvalues);
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """The diagonal, ``(n,)``, and the off-diagonal, ``(max(n - 1, 0),)``; float64, uniform in [-1, 1)."""
    return rng.uniform(-1, 1, n), rng.uniform(-1, 1, max(0, n - 1))


def cpu(diagonal: Array, off_diagonal: Array) -> Array:
    """The eigenvalues in ascending order by LAPACK through SciPy; O(n^2)."""
    if not diagonal.size:
        return diagonal.copy()
    from scipy.linalg import eigvalsh_tridiagonal

    return np.asarray(eigvalsh_tridiagonal(diagonal, off_diagonal))


def array_api(xp: Any, diagonal: Any, off_diagonal: Any) -> Any:
    """The same from the dense matrix, since the standard has no banded solver; O(n^3)."""
    n = diagonal.shape[0]
    if n == 0:
        return diagonal
    # Rows of n + 1 numbers, read as rows of n, move one column to the right from row to row.
    beside = xp.concat((off_diagonal, zeros_like_device(xp, (1,), diagonal)))
    rows = xp.stack((diagonal, beside), axis=1)[:, : min(n, 2)]
    band = xp.concat((rows, zeros_like_device(xp, (n, n + 1 - rows.shape[1]), diagonal)), axis=1)
    upper = xp.reshape(xp.reshape(band, (n * (n + 1),))[: n * n], (n, n))
    return xp.linalg.eigvalsh(upper + xp.matrix_transpose(xp.triu(upper, k=1)))


def opencl(device: OpenCL, diagonal: Array, off_diagonal: Array) -> Array:
    """Bisection from Gershgorin's bounds, four eigenvalues per work-item; O(n^2) per halving."""
    device.require_double("eigenvalue")
    n = diagonal.size
    if n == 0:
        return diagonal.copy()
    kernel = device.kernel(SOURCE, "bisect")
    magnitude = np.abs(off_diagonal)
    radius = np.append(magnitude, 0.0) + np.append(0.0, magnitude)
    least, most = float((diagonal - radius).min()), float((diagonal + radius).max())
    squares = off_diagonal**2
    tiny = np.finfo(np.float64).tiny * max(1.0, float(squares.max(initial=0.0))) * 4
    items = round_up(n, GROUP * LANES) // LANES
    entries, below = device.upload_array(diagonal), device.upload_array(squares)
    eigenvalues = device.allocate_buffer(items * LANES, dtype=np.float64)
    sizes = np.uint32(n), np.uint32(ITERATIONS)
    bounds = np.float64(least), np.float64(most), np.float64(tiny)
    group = device.group(kernel, GROUP)
    device.launch(kernel, (items,), group, entries, below, eigenvalues, *sizes, *bounds)
    return device.download_array(eigenvalues, (n,), np.float64)
