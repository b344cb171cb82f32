"""FastWalshTransform: the Walsh-Hadamard transform in natural order, not normalised."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64

# One level of butterflies, from one buffer to the other.
SOURCE = """
__kernel void butterfly(__global const float *restrict x, __global float *restrict y, const uint pairs,
                        const uint log_stride)
{
    const uint i = get_global_id(0);
    if (i >= pairs)
        return;
    const uint stride = 1u << log_stride;
    const uint low = ((i >> log_stride) << (log_stride + 1)) | (i & (stride - 1));
    const float a = x[low], b = x[low + stride];
    y[low] = a + b;
    y[low + stride] = a - b;
}
"""


def _padded_length(n: int) -> int:
    return 1 << (n - 1).bit_length() if n else 0


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` float32 numbers, uniform in [-0.5, 0.5)."""
    return (rng.random(n, dtype=np.float32) - np.float32(0.5),)


def cpu(x: Array) -> Array:
    """The transform of ``x`` with zeros up to a power of two, one vectorised pass per level; O(n log n)."""
    length = _padded_length(x.size)
    data = np.zeros(length, dtype=np.float32)
    data[: x.size] = x
    stride = 1
    while stride < length:
        pairs = data.reshape(-1, 2, stride)
        difference = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = difference
        stride *= 2
    return data


def array_api(xp: Any, x: Any) -> Any:
    """The same passes, without writing in place."""
    n = x.shape[0]
    length = _padded_length(n)
    data = xp.concat((x, zeros_like_device(xp, (length - n,), x)))
    stride = 1
    while stride < length:
        pairs = xp.reshape(data, (length // (2 * stride), 2, stride))
        first, second = pairs[:, 0, :], pairs[:, 1, :]
        data = xp.stack((first + second, first - second), axis=1)
        stride *= 2
    return xp.reshape(data, (length,))


def opencl(device: OpenCL, x: Array) -> Array:
    """One launch per level."""
    length = _padded_length(x.size)
    kernel = device.kernel(SOURCE, "butterfly")
    group = device.group(kernel, GROUP)
    data, spare = device.upload_array(x, (length,)), device.allocate_buffer(length, dtype=np.float32)
    pairs = length // 2
    for log_stride in range(max(0, length.bit_length() - 1)):
        sizes = np.uint32(pairs), np.uint32(log_stride)
        device.launch(kernel, (round_up(pairs, GROUP),), group, data, spare, *sizes)
        data, spare = spare, data
    return device.download_array(data, (length,), np.float32)
