"""Image processing: smoothing by the 5 x 5 binomial mask, again and again.

Source of the mask, (1 4 6 4 1) / 16 along rows and columns: P. Burt, E. Adelson, "The Laplacian pyramid as a
compact image code", IEEE Trans. Communications 31 (1983). Pixels outside the image are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

SOURCE = """
float row(__global const float *restrict p)
{
    return p[-2] + p[2] + 4.0f * (p[-1] + p[1]) + 6.0f * p[0];
}

__kernel void smooth(__global const float *restrict image, __global float *restrict smoothed, const uint n)
{
    const uint x = get_global_id(0), y = get_global_id(1), pitch = get_global_size(0) + 4;
    const size_t i = (size_t)(y + 2) * pitch + x + 2;
    __global const float *restrict p = image + i;
    const float sum = row(p - 2 * pitch) + row(p + 2 * pitch) + 4.0f * (row(p - pitch) + row(p + pitch))
                    + 6.0f * row(p);
    smoothed[i] = x < n && y < n ? sum / 256.0f : 0.0f;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """An ``(n, n)`` float32 image, uniform in [0, 1), in a frame of zeros two pixels wide."""
    return (np.pad(rng.random((n, n), dtype=np.float32), 2),)


def array_api(xp: Any, framed: Any, iterations: int = 1) -> Any:
    """Along the columns, then along the rows; O(n^2 iterations)."""
    image = xp.zeros_like(framed)
    image[...] = framed
    for _ in range(iterations):
        down = image[1:-3, :] + image[3:-1, :]
        down *= 4.0
        down += image[:-4, :]
        down += image[4:, :]
        down += 6.0 * image[2:-2, :]
        across = down[:, 1:-3] + down[:, 3:-1]
        across *= 4.0
        across += down[:, :-4]
        across += down[:, 4:]
        across += 6.0 * down[:, 2:-2]
        across *= 1 / 256
        image[2:-2, 2:-2] = across
    return image[2:-2, 2:-2]


def cpu(framed: Array, iterations: int = 1) -> Array:
    """The same in NumPy."""
    return np.asarray(array_api(np, framed, iterations))


def opencl(device: OpenCL, framed: Array, iterations: int = 1) -> Array:
    """One work-item per pixel; two buffers change places."""
    n = framed.shape[0] - 4
    rows, columns = round_up(n, 4), round_up(n, 64)
    kernel = device.kernel(SOURCE, "smooth")
    image, smoothed = (device.upload_array(framed, (rows + 4, columns + 4)) for _ in range(2))
    for _ in range(iterations):
        device.launch(kernel, (columns, rows), device.group(kernel, 64, 4), image, smoothed, np.uint32(n))
        image, smoothed = smoothed, image
    return device.download_array(image, (n + 4, n + 4), np.float32, columns + 4)[2:-2, 2:-2]
