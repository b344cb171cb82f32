"""MatrixMultiplication: the product of two square matrices in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

# Each work-item makes a block of 4 rows and 8 columns in registers, so that a value loaded serves four to
# eight products; a group of 4 x 8 items covers 32 x 32 elements.
SOURCE = """
__kernel void multiply(__global const float *restrict a, __global const float *restrict b,
                       __global float *restrict c, const uint n)
{
    const size_t column = get_global_id(0) * 8, row = get_global_id(1) * 4;
    __global const float *restrict a0 = a + row * n;
    __global const float *restrict b0 = b + column;
    float8 c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    for (uint k = 0; k < n; k++) {
        const float8 v = vload8(0, b0 + (size_t)k * n);
        c0 += a0[k] * v;
        c1 += a0[k + n] * v;
        c2 += a0[k + 2 * (size_t)n] * v;
        c3 += a0[k + 3 * (size_t)n] * v;
    }
    __global float *restrict r = c + row * n + column;
    vstore8(c0, 0, r);
    vstore8(c1, 0, r + n);
    vstore8(c2, 0, r + 2 * (size_t)n);
    vstore8(c3, 0, r + 3 * (size_t)n);
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Two ``(n, n)`` float32 matrices, uniform in [0, 1)."""
    return rng.random((n, n), dtype=np.float32), rng.random((n, n), dtype=np.float32)


def cpu(a: Array, b: Array) -> Array:
    """The product by the BLAS of NumPy; O(n^3)."""
    return np.asarray(a @ b)


def array_api(xp: Any, a: Any, b: Any) -> Any:
    """The product by ``xp.matmul``."""
    return xp.matmul(a, b)


def opencl(device: OpenCL, a: Array, b: Array) -> Array:
    """The product by register blocks; matrices are padded with zeros to a multiple of 32."""
    n = a.shape[0]
    side = round_up(n, 32)
    kernel = device.kernel(SOURCE, "multiply")
    left, right = device.upload_array(a, (side, side)), device.upload_array(b, (side, side))
    product = device.allocate_buffer(side, side, dtype=np.float32)
    device.launch(
        kernel, (side // 8, side // 4), device.group(kernel, 4, 8), left, right, product, np.uint32(side)
    )
    return device.download_array(product, (n, n), np.float32, side)
