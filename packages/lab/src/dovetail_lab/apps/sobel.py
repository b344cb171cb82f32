"""SobelFilter: the magnitude of the brightness gradient of an 8-bit grey image."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

# The image lies one row and one column inside a frame of zeros; sums of 8-bit values stay exact in float.
SOURCE = """
__kernel void sobel(__global const uchar *restrict image, __global float *restrict gradient, const uint pitch)
{
    const size_t x = get_global_id(0), y = get_global_id(1);
    __global const uchar *restrict up = image + y * pitch + x;
    __global const uchar *restrict here = up + pitch;
    __global const uchar *restrict down = here + pitch;
    const int gx = up[2] - up[0] + 2 * (here[2] - here[0]) + down[2] - down[0];
    const int gy = down[0] - up[0] + 2 * (down[1] - up[1]) + down[2] - up[2];
    gradient[y * get_global_size(0) + x] = sqrt((float)(gx * gx + gy * gy));
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` uint8 image of noise."""
    return (rng.integers(0, 256, (n, n), dtype=np.uint8),)


def cpu(image: Array) -> Array:
    """The two 3 x 3 differences as sums of shifted images; pixels outside the image are 0.  O(n^2).

    Each 3 x 3 mask is a column of weights times a row of weights, so columns are combined first.
    """
    framed = np.pad(image, 1).astype(np.int16)
    up, here, down = framed[:-2], framed[1:-1], framed[2:]
    column = up + down
    column += here
    column += here
    gradient = np.subtract(column[:, 2:], column[:, :-2], dtype=np.float32)
    np.multiply(gradient, gradient, out=gradient)
    np.subtract(down, up, out=column)
    downward = np.add(column[:, :-2], column[:, 2:], dtype=np.float32)
    downward += column[:, 1:-1]
    downward += column[:, 1:-1]
    np.multiply(downward, downward, out=downward)
    gradient += downward
    return np.asarray(np.sqrt(gradient, out=gradient))


def array_api(xp: Any, image: Any) -> Any:
    """The same sums of shifted images."""
    n = image.shape[0]
    pixels = xp.astype(image, xp.int32)
    column, row = zeros_like_device(xp, (n, 1), pixels), zeros_like_device(xp, (1, n + 2), pixels)
    framed = xp.concat((column, pixels, column), axis=1)
    framed = xp.concat((row, framed, row), axis=0)
    up, here, down = framed[:n, :], framed[1 : n + 1, :], framed[2:, :]
    gx = up[:, 2:] - up[:, :n] + 2 * (here[:, 2:] - here[:, :n]) + down[:, 2:] - down[:, :n]
    gy = down[:, :n] - up[:, :n] + 2 * (down[:, 1 : n + 1] - up[:, 1 : n + 1]) + down[:, 2:] - up[:, 2:]
    return xp.sqrt(xp.astype(gx * gx + gy * gy, xp.float32))


def opencl(device: OpenCL, image: Array) -> Array:
    """One work-item per pixel of the image, padded to whole work-groups and framed by zeros."""
    n = image.shape[0]
    rows, columns = round_up(n, 4), round_up(n, 64)
    kernel = device.kernel(SOURCE, "sobel")
    framed = device.upload_array(image, (rows + 2, columns + 2), origin=(1, 1))
    gradient = device.allocate_buffer(rows, columns, dtype=np.float32)
    device.launch(
        kernel, (columns, rows), device.group(kernel, 64, 4), framed, gradient, np.uint32(columns + 2)
    )
    return device.download_array(gradient, (n, n), np.float32, columns)
