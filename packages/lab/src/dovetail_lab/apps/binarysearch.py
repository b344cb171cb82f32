"""BinarySearch: where each of n keys belongs in n sorted numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64
MOST = 1 << 30  # beyond it the numbers would not fit into an int32

# The position grows by falling powers of two: no branch depends on the key, so all items take the same steps.
SOURCE = """
__kernel void search(__global const int *restrict numbers, __global const int *restrict keys,
                     __global int *restrict positions, const uint n, const uint first_step)
{
    const size_t i = get_global_id(0);
    const int key = keys[i];
    uint position = 0;
    for (uint step = first_step; step > 0; step /= 2) {
        const uint next = position + step;
        if (next <= n && numbers[next - 1] < key)
            position = next;
    }
    positions[i] = position;
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` ascending int32 numbers with repetitions, and ``n`` keys in their range.

    Raises:
        InputError: ``n`` exceeds 2**30.
    """
    if n > MOST:
        raise InputError(f"n is {n}; binarysearch takes {MOST} numbers at most")
    numbers = np.cumsum(rng.integers(0, 3, n, dtype=np.uint8), dtype=np.int32)
    highest = int(numbers[-1]) if n else 0
    return numbers, rng.integers(0, highest + 2, n, dtype=np.int32)


def cpu(numbers: Array, keys: Array) -> Array:
    """The first position of each key by ``numpy.searchsorted``, as int32; O(n log n)."""
    return np.searchsorted(numbers, keys).astype(np.int32)


def array_api(xp: Any, numbers: Any, keys: Any) -> Any:
    """The same by ``xp.searchsorted``."""
    return xp.astype(xp.searchsorted(numbers, keys), xp.int32)


def opencl(device: OpenCL, numbers: Array, keys: Array) -> Array:
    """One work-item per key."""
    n = keys.size
    items = round_up(n, GROUP)
    kernel = device.kernel(SOURCE, "search")
    sorted_, wanted = device.upload_array(numbers), device.upload_array(keys, (items,))
    positions = device.allocate_buffer(items, dtype=np.int32)
    first_step = np.uint32(1 << max(0, n.bit_length() - 1))
    group = device.group(kernel, GROUP)
    device.launch(kernel, (items,), group, sorted_, wanted, positions, np.uint32(n), first_step)
    return device.download_array(positions, (n,), np.int32)
