"""BitonicSort: integers into ascending order; Batcher's sorting network on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64

# One comparison of the network (Batcher 1968): partners are 2^log_stride apart, and runs of 2^log_run are
# ordered up and down by turns.  No two items touch the same number, so this is done in place.
SOURCE = """
__kernel void compare(__global int *numbers, const uint pairs, const uint log_run, const uint log_stride)
{
    const uint i = get_global_id(0);
    if (i >= pairs)
        return;
    const uint stride = 1u << log_stride;
    const uint low = ((i >> log_stride) << (log_stride + 1)) | (i & (stride - 1));
    const uint descending = (low >> log_run) & 1;
    const int a = numbers[low], b = numbers[low + stride];
    const int least = a < b ? a : b, most = a < b ? b : a;
    numbers[low] = descending ? most : least;
    numbers[low + stride] = descending ? least : most;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` int32 numbers over their whole range."""
    return (rng.integers(-(1 << 31), 1 << 31, n, dtype=np.int32),)


def cpu(numbers: Array) -> Array:
    """The numbers in ascending order by ``numpy.sort``; O(n log n)."""
    return np.sort(numbers)


def array_api(xp: Any, numbers: Any) -> Any:
    """The same by ``xp.sort``."""
    return xp.sort(numbers)


def opencl(device: OpenCL, numbers: Array) -> Array:
    """All comparisons of the network, O(n log^2 n); padded with the greatest number to a power of two."""
    n = numbers.size
    exponent = max(0, n - 1).bit_length()
    length = 1 << exponent
    kernel = device.kernel(SOURCE, "compare")
    group = device.group(kernel, GROUP)
    data = device.upload_array(numbers, (length,), fill=np.iinfo(np.int32).max)
    pairs = length // 2
    for log_run in range(1, exponent + 1):
        for log_stride in reversed(range(log_run)):
            steps = np.uint32(pairs), np.uint32(log_run), np.uint32(log_stride)
            device.launch(kernel, (round_up(pairs, GROUP),), group, data, *steps)
    return device.download_array(data, (n,), np.int32)
