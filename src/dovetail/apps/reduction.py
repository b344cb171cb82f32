"""Reduction: the sum of single-precision numbers, accumulated in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.apps.devices import Array
from dovetail.apps.opencl import OpenCL, round_up

GROUP = 64
ITEMS = 64 * GROUP  # work-items of the first pass
LANES = 4  # numbers that a work-item reads at once

# First each work-item adds every ITEMS-th vector of four, then each group adds its items in a tree.
SOURCE = """
__kernel void add(__global const float *restrict x, __global double *restrict sums, const uint vectors,
                  __local double *scratch)
{
    const size_t items = get_global_size(0);
    const uint lane = get_local_id(0);
    double4 s = 0;
    for (size_t v = get_global_id(0); v < vectors; v += items)
        s += convert_double4(vload4(v, x));
    scratch[lane] = s.x + s.y + s.z + s.w;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint half_group = get_local_size(0) / 2; half_group > 0; half_group /= 2) {
        if (lane < half_group)
            scratch[lane] += scratch[lane + half_group];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lane == 0)
        sums[get_group_id(0)] = scratch[0];
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` float32 numbers, uniform in [0, 1)."""
    return (rng.random(n, dtype=np.float32),)


def cpu(x: Array) -> Array:
    """The sum as an array of one float64; O(n)."""
    return np.asarray([x.sum(dtype=np.float64)])


def array_api(xp: Any, x: Any) -> Any:
    """The same sum by ``xp.sum``."""
    return xp.reshape(xp.sum(x, dtype=xp.float64), (1,))


def opencl(device: OpenCL, x: Array) -> Array:
    """One sum per work-group on the device; the last few are added on the host."""
    device.require_double("reduction")
    kernel = device.kernel(SOURCE, "add")
    (group,) = device.group(kernel, GROUP)
    length = round_up(x.size, LANES)
    numbers = device.upload(x, (length,))
    sums = device.allocate(ITEMS // group, dtype=np.float64)
    scratch = device.local_memory(8 * group)
    device.launch(kernel, (ITEMS,), (group,), numbers, sums, np.uint32(length // LANES), scratch)
    return np.asarray([device.download(sums, (ITEMS // group,), np.float64).sum()])
