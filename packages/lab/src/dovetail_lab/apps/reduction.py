"""Reduction: the sum of single-precision numbers, accumulated in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64
LANES = 4  # numbers that a work-item reads at once
CHUNK = 64 * GROUP * LANES  # numbers that a work-group adds; they fit into a CPU's nearest cache

# Each work-group adds one chunk: its items take vectors of four by turns, then add up in a tree.
SOURCE = """
__kernel void add(__global const float *restrict x, __global double *restrict sums, const uint vectors,
                  __local double *scratch)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    __global const float *restrict chunk = x + get_group_id(0) * (size_t)vectors * 4;
    double4 s = 0;
    for (uint v = lane; v < vectors; v += lanes)
        s += convert_double4(vload4(v, chunk));
    scratch[lane] = s.x + s.y + s.z + s.w;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint left = lanes / 2; left > 0; left /= 2) {
        if (lane < left)
            scratch[lane] += scratch[lane + left];
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
    """One sum per chunk on the device; the host adds those, one for every 16384 numbers."""
    device.require_double("reduction")
    kernel = device.kernel(SOURCE, "add")
    (group,) = device.group(kernel, GROUP)
    chunks = round_up(x.size, CHUNK) // CHUNK
    numbers = device.upload_array(x, (chunks * CHUNK,))
    sums = device.allocate_buffer(chunks, dtype=np.float64)
    scratch = device.local_memory(8 * group)
    device.launch(kernel, (chunks * group,), (group,), numbers, sums, np.uint32(CHUNK // LANES), scratch)
    return np.asarray([device.download_array(sums, (chunks,), np.float64).sum()])
