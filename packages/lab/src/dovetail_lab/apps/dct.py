"""DCT: the cosine transform (type II, orthonormal, in two dimensions) of the 8 x 8 blocks of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

BLOCK = 8

# A work-item transforms one block in registers: along the rows by sums of the columns of the basis, along the
# columns by sums of the rows of the block.
SOURCE = """
float8 along_row(const float8 v, __global const float *restrict turned)
{
    return v.s0 * vload8(0, turned) + v.s1 * vload8(1, turned) + v.s2 * vload8(2, turned)
         + v.s3 * vload8(3, turned) + v.s4 * vload8(4, turned) + v.s5 * vload8(5, turned)
         + v.s6 * vload8(6, turned) + v.s7 * vload8(7, turned);
}

__kernel void dct(__global const float *restrict image, __global float *restrict spectrum,
                  __global const float *restrict basis, __global const float *restrict turned,
                  const uint pitch, const uint blocks)
{
    if (get_global_id(0) >= blocks)
        return;
    const size_t corner = get_global_id(1) * 8 * pitch + get_global_id(0) * 8;
    __global const float *restrict block = image + corner;
    const float8 r0 = along_row(vload8(0, block), turned);
    const float8 r1 = along_row(vload8(0, block + pitch), turned);
    const float8 r2 = along_row(vload8(0, block + 2 * pitch), turned);
    const float8 r3 = along_row(vload8(0, block + 3 * pitch), turned);
    const float8 r4 = along_row(vload8(0, block + 4 * pitch), turned);
    const float8 r5 = along_row(vload8(0, block + 5 * pitch), turned);
    const float8 r6 = along_row(vload8(0, block + 6 * pitch), turned);
    const float8 r7 = along_row(vload8(0, block + 7 * pitch), turned);
    for (uint k = 0; k < 8; k++) {
        const float8 b = vload8(k, basis);
        const float8 row = b.s0 * r0 + b.s1 * r1 + b.s2 * r2 + b.s3 * r3
                         + b.s4 * r4 + b.s5 * r5 + b.s6 * r6 + b.s7 * r7;
        vstore8(row, 0, spectrum + corner + (size_t)k * pitch);
    }
}
"""


def cosine_basis() -> Array:
    """Return the basis as an ``(8, 8)`` float32 matrix: ``basis() @ x`` transforms a vector ``x``."""
    k, i = np.arange(BLOCK)[:, None], np.arange(BLOCK)
    matrix = np.sqrt(2 / BLOCK) * np.cos(np.pi * k * (2 * i + 1) / (2 * BLOCK))
    matrix[0] /= np.sqrt(2)
    return np.asarray(matrix, dtype=np.float32)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` float32 image, uniform in [0, 1), and the basis."""
    return rng.random((n, n), dtype=np.float32), cosine_basis()


def cpu(image: Array, matrix: Array) -> Array:
    """The transform of the image with zeros up to a multiple of 8, as two products per block row; O(n^2)."""
    n = image.shape[0]
    side = round_up(n, BLOCK)
    framed = image if side == n else np.pad(image, (0, side - n))
    rows = framed.reshape(side * side // BLOCK, BLOCK) @ matrix.T
    columns = matrix @ rows.reshape(side // BLOCK, BLOCK, side)
    return np.asarray(columns.reshape(side, side))


def array_api(xp: Any, image: Any, matrix: Any) -> Any:
    """The same products."""
    n = image.shape[0]
    side = round_up(n, BLOCK)
    framed = xp.concat((image, zeros_like_device(xp, (n, side - n), image)), axis=1)
    framed = xp.concat((framed, zeros_like_device(xp, (side - n, side), image)), axis=0)
    rows = xp.matmul(xp.reshape(framed, (side * side // BLOCK, BLOCK)), xp.matrix_transpose(matrix))
    columns = xp.matmul(matrix, xp.reshape(rows, (side // BLOCK, BLOCK, side)))
    return xp.reshape(columns, (side, side))


def opencl(device: OpenCL, image: Array, matrix: Array) -> Array:
    """One work-item per block."""
    side = round_up(image.shape[0], BLOCK)
    blocks = side // BLOCK
    kernel = device.kernel(SOURCE, "dct")
    source = device.upload_array(image, (side, side))
    straight, turned = device.upload_array(matrix), device.upload_array(np.ascontiguousarray(matrix.T))
    spectrum = device.allocate_buffer(side, side, dtype=np.float32)
    sizes = np.uint32(side), np.uint32(blocks)
    group = device.group(kernel, 16, 1)
    device.launch(kernel, (round_up(blocks, 16), blocks), group, source, spectrum, straight, turned, *sizes)
    return device.download_array(spectrum, (side, side), np.float32)
