"""PrefixSum: running totals of small integers, by one work-group that walks along them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 256
HIGHEST = 7
MOST = (1 << 31) // HIGHEST - 1  # with more numbers the total might not fit into an int32

# Hillis and Steele's scan of one tile in local memory (1986), then the next tile with the total carried over.
# Two halves of the scratch are used by turns, so that no item overwrites what another still reads.
SOURCE = """
__kernel void prefix_sum(__global const int *restrict x, __global int *restrict totals, const uint n,
                         __local int *scratch)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    int carry = 0;
    for (uint start = 0; start < n; start += lanes) {
        uint now = 0, next = lanes;
        scratch[lane] = x[start + lane];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint reach = 1; reach < lanes; reach *= 2) {
            const int before = lane >= reach ? scratch[now + lane - reach] : 0;
            scratch[next + lane] = scratch[now + lane] + before;
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint swap = now;
            now = next;
            next = swap;
        }
        totals[start + lane] = carry + scratch[now + lane];
        carry += scratch[now + lanes - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` int32 numbers from 0 to 7.

    Raises:
        InputError: the total might exceed an int32.
    """
    if n > MOST:
        raise InputError(f"n is {n}; prefixsum takes {MOST} numbers at most")
    return (rng.integers(0, HIGHEST + 1, n, dtype=np.int32),)


def cpu(x: Array) -> Array:
    """The inclusive running totals by ``numpy.cumsum``, as int32; O(n)."""
    return np.cumsum(x, dtype=np.int32)


def array_api(xp: Any, x: Any) -> Any:
    """The same by ``xp.cumulative_sum``."""
    return xp.cumulative_sum(x, axis=0, dtype=xp.int32)


def opencl(device: OpenCL, x: Array) -> Array:
    """One work-group over all numbers: right for short arrays, a poor use of a wide device for long ones."""
    items = round_up(x.size, GROUP)
    kernel = device.kernel(SOURCE, "prefix_sum")
    (group,) = device.group(kernel, GROUP)
    numbers = device.upload_array(x, (items,))
    totals = device.allocate_buffer(items, dtype=np.int32)
    scratch = device.local_memory(2 * 4 * group)
    if items:
        device.launch(kernel, (group,), (group,), numbers, totals, np.uint32(items), scratch)
    return device.download_array(totals, (x.size,), np.int32)
