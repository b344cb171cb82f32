"""DwtHaar1D: the full orthonormal Haar wavelet decomposition of a signal."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.arrays import zeros_like_device
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64
ROOT_HALF = float(np.sqrt(0.5))

# One level: sums go on to the next level, differences are final.
SOURCE = """
__kernel void level(__global const float *restrict x, __global float *restrict sums,
                    __global float *restrict result, const uint half_length)
{
    const uint i = get_global_id(0);
    if (i >= half_length)
        return;
    const float a = x[2 * i] * M_SQRT1_2_F, b = x[2 * i + 1] * M_SQRT1_2_F;
    sums[i] = a + b;
    result[half_length + i] = a - b;
    if (half_length == 1)
        result[0] = a + b;
}
"""


def _padded_length(n: int) -> int:
    return 1 << (n - 1).bit_length() if n else 0


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` float32 numbers, uniform in [0, 1)."""
    return (rng.random(n, dtype=np.float32),)


def cpu(x: Array) -> Array:
    """The coefficients of ``x`` with zeros up to a power of two: mean first, finest details last; O(n)."""
    length = _padded_length(x.size)
    result = np.zeros(length, dtype=np.float32)
    result[: x.size] = x
    while length > 1:
        scaled = result[:length] * np.float32(ROOT_HALF)
        even, odd = scaled[0::2], scaled[1::2]
        length //= 2
        np.add(even, odd, out=result[:length])
        np.subtract(even, odd, out=result[length : 2 * length])
    return result


def array_api(xp: Any, x: Any) -> Any:
    """The same levels, collected from the finest to the coarsest."""
    n = x.shape[0]
    length = _padded_length(n)
    sums = xp.concat((x, zeros_like_device(xp, (length - n,), x)))
    details = []
    while length > 1:
        length //= 2
        pairs = xp.reshape(sums * ROOT_HALF, (length, 2))
        details.append(pairs[:, 0] - pairs[:, 1])
        sums = pairs[:, 0] + pairs[:, 1]
    return xp.concat((sums, *reversed(details)))


def opencl(device: OpenCL, x: Array) -> Array:
    """One launch per level."""
    length = _padded_length(x.size)
    if length < 2:
        return x.copy()
    kernel = device.kernel(SOURCE, "level")
    group = device.group(kernel, GROUP)
    data = device.upload_array(x, (length,))
    result = device.allocate_buffer(length, dtype=np.float32)
    sums, spare = (device.allocate_buffer(length // 2, dtype=np.float32) for _ in range(2))
    half = length // 2
    while half:
        device.launch(kernel, (round_up(half, GROUP),), group, data, sums, result, np.uint32(half))
        data, sums, spare = sums, spare, sums
        half //= 2
    return device.download_array(result, (length,), np.float32)
