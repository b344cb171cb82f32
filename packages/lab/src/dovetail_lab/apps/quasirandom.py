"""QuasiRandomSequence: points of the Sobol sequence in eight dimensions, each from its index alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

BITS = 32
DIMENSIONS = 8

# Degree, coefficients and first direction numbers of the primitive polynomials of dimensions 2 to 8:
# S. Joe, F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional projections" (2008).
_POLYNOMIALS: tuple[tuple[int, int, tuple[int, ...]], ...] = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
)

# A point is the exclusive or of the direction numbers that the Gray code of its index selects.  A float holds
# the upper 24 bits exactly, so that all devices give the same bits and none rounds up to 1.
SOURCE = """
__kernel void sobol(__global const uint *restrict directions, __global float *restrict points)
{
    const uint index = get_global_id(0), dimension = get_global_id(1);
    __global const uint *restrict direction = directions + dimension * 32;
    const uint gray = index ^ (index >> 1);
    uint value = 0;
    #pragma unroll
    for (uint bit = 0; bit < 32; bit++)
        value ^= direction[bit] & -((gray >> bit) & 1);
    points[(size_t)dimension * get_global_size(0) + index] = (int)(value >> 8) * 0x1p-24f;
}
"""


def direction_numbers() -> Array:
    """Return the direction numbers, ``(8, 32)`` uint32, by the recurrence of Bratley and Fox (1988)."""
    table = np.zeros((DIMENSIONS, BITS), dtype=np.uint32)
    table[0] = [1 << (BITS - 1 - bit) for bit in range(BITS)]
    for dimension, (degree, coefficients, first) in enumerate(_POLYNOMIALS, start=1):
        numbers = [value << (BITS - 1 - bit) for bit, value in enumerate(first)]
        for bit in range(degree, BITS):
            value = numbers[bit - degree] ^ (numbers[bit - degree] >> degree)
            for term in range(1, degree):
                if coefficients >> (degree - 1 - term) & 1:
                    value ^= numbers[bit - term]
            numbers.append(value)
        table[dimension] = numbers
    return table


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """The indices 0 to n - 1 as uint32 and the direction numbers; nothing here is random."""
    return np.arange(n, dtype=np.uint32), direction_numbers()


def cpu(index: Array, table: Array) -> Array:
    """The points as ``(8, n)`` float32: one pass per dimension and bit of the index; O(n log n)."""
    gray = index ^ (index >> np.uint32(1))
    value, selected = np.empty_like(index), np.empty_like(index)
    points = np.empty((DIMENSIONS, index.size), dtype=np.float32)
    used = max(0, index.size - 1).bit_length()
    for dimension in range(DIMENSIONS):
        value[:] = 0
        for bit in range(used):
            np.right_shift(gray, np.uint32(bit), out=selected)
            selected &= np.uint32(1)
            selected *= table[dimension, bit]
            value ^= selected
        value >>= np.uint32(8)
        np.multiply(value, np.float32(2.0**-24), out=points[dimension], casting="unsafe")
    return points


def array_api(xp: Any, index: Any, table: Any) -> Any:
    """The same passes, over all dimensions at once; in int64, since the standard has no uint32 in PyTorch."""
    index, table = xp.astype(index, xp.int64), xp.astype(table, xp.int64)
    gray = xp.bitwise_xor(index, index // 2)[None, :]
    value = zeros_like_device(xp, (table.shape[0], index.shape[0]), index)
    for bit in range(max(0, index.shape[0] - 1).bit_length()):
        selected = (gray // (1 << bit)) % 2
        value = xp.bitwise_xor(value, selected * table[:, bit : bit + 1])
    return xp.astype(value // 256, xp.float32) * 2.0**-24


def opencl(device: OpenCL, index: Array, table: Array) -> Array:
    """One work-item per point and dimension; the index is the work-item's own, so only the table is sent."""
    n = index.size
    columns = round_up(n, 64)
    kernel = device.kernel(SOURCE, "sobol")
    numbers = device.upload_array(table)
    points = device.allocate_buffer(DIMENSIONS, columns, dtype=np.float32)
    device.launch(kernel, (columns, DIMENSIONS), device.group(kernel, 64, 1), numbers, points)
    return device.download_array(points, (DIMENSIONS, n), np.float32, columns)
