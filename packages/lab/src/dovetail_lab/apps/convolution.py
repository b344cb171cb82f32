"""SimpleConvolution: an image convolved with a mask of 5 x 5; pixels outside the image are 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

MASK = 5
MARGIN = MASK // 2

# The image lies inside a frame of zeros, so that no item needs to look for the border.
SOURCE = """
__kernel void convolve(__global const float *restrict image, __global const float *restrict mask,
                       __global float *restrict result, const uint pitch)
{
    const size_t x = get_global_id(0), y = get_global_id(1);
    __global const float *restrict corner = image + y * pitch + x;
    float sum = 0;
    #pragma unroll
    for (uint i = 0; i < 5; i++)
        #pragma unroll
        for (uint j = 0; j < 5; j++)
            sum += mask[i * 5 + j] * corner[(size_t)i * pitch + j];
    result[y * get_global_size(0) + x] = sum;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` float32 image and a ``(5, 5)`` float32 mask, uniform in [0, 1)."""
    return rng.random((n, n), dtype=np.float32), rng.random((MASK, MASK), dtype=np.float32)


def cpu(image: Array, mask: Array) -> Array:
    """The convolution by one shifted sum per element of the mask; O(n^2)."""
    n = image.shape[0]
    framed = np.pad(image, MARGIN)
    result, term = np.zeros_like(image), np.empty_like(image)
    for i in range(MASK):
        for j in range(MASK):
            np.multiply(framed[i : i + n, j : j + n], mask[MASK - 1 - i, MASK - 1 - j], out=term)
            result += term
    return result


def array_api(xp: Any, image: Any, mask: Any) -> Any:
    """The same shifted sums."""
    n = image.shape[0]
    column, row = (
        zeros_like_device(xp, (n, MARGIN), image),
        zeros_like_device(xp, (MARGIN, n + 2 * MARGIN), image),
    )
    framed = xp.concat((row, xp.concat((column, image, column), axis=1), row), axis=0)
    result = zeros_like_device(xp, (n, n), image)
    for i in range(MASK):
        for j in range(MASK):
            result = result + framed[i : i + n, j : j + n] * mask[MASK - 1 - i, MASK - 1 - j]
    return result


def opencl(device: OpenCL, image: Array, mask: Array) -> Array:
    """One work-item per pixel; the mask is turned over on the host."""
    n = image.shape[0]
    rows, columns = round_up(n, 4), round_up(n, 64)
    pitch = columns + 2 * MARGIN
    kernel = device.kernel(SOURCE, "convolve")
    framed = device.upload_array(image, (rows + 2 * MARGIN, pitch), origin=(MARGIN, MARGIN))
    turned = device.upload_array(np.ascontiguousarray(mask[::-1, ::-1]))
    result = device.allocate_buffer(rows, columns, dtype=np.float32)
    group = device.group(kernel, 64, 4)
    device.launch(kernel, (columns, rows), group, framed, turned, result, np.uint32(pitch))
    return device.download_array(result, (n, n), np.float32, columns)
