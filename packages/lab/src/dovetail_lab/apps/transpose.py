"""MatrixTranspose: a square matrix in single precision, transposed in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

TILE = 16

# A group turns one tile in local memory, so that both reads and writes of global memory are along rows; one
# more column per row keeps the column reads of a GPU's local memory free of bank conflicts.
SOURCE = """
__kernel void transpose(__global const float *restrict matrix, __global float *restrict turned,
                        const uint side, __local float *tile)
{
    const uint tile_side = get_local_size(0), x = get_local_id(0), y = get_local_id(1);
    const size_t left = get_group_id(0) * tile_side, top = get_group_id(1) * tile_side;
    tile[y * (tile_side + 1) + x] = matrix[(top + y) * side + left + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    turned[(left + y) * side + top + x] = tile[x * (tile_side + 1) + y];
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` float32 matrix, uniform in [0, 1)."""
    return (rng.random((n, n), dtype=np.float32),)


def cpu(matrix: Array) -> Array:
    """The transpose, copied to rows by NumPy; O(n^2)."""
    return np.ascontiguousarray(matrix.T)


def array_api(xp: Any, matrix: Any) -> Any:
    """The transpose, copied."""
    return xp.asarray(xp.matrix_transpose(matrix), copy=True)


def opencl(device: OpenCL, matrix: Array) -> Array:
    """One work-group per tile of 16 x 16, or of less where the device cannot run such a group."""
    n = matrix.shape[0]
    side = round_up(n, TILE)
    kernel = device.kernel(SOURCE, "transpose")
    tile = min(device.group(kernel, TILE, TILE))
    source = device.upload_array(matrix, (side, side))
    turned = device.allocate_buffer(side, side, dtype=np.float32)
    scratch = device.local_memory(4 * tile * (tile + 1))
    device.launch(kernel, (side, side), (tile, tile), source, turned, np.uint32(side), scratch)
    return device.download_array(turned, (n, n), np.float32, side)
