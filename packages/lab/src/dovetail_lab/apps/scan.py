"""ScanLargeArrays: the exclusive running sums of single-precision numbers, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

GROUP = 64
RUN = 256  # numbers that one work-item adds one after the other

# Reduce, then scan: each work-item sums a run, one group scans the sums, and each work-item adds its run
# again from its own start.
SOURCE = """
__kernel void run_sums(__global const float *restrict x, __global double *restrict sums)
{
    const size_t item = get_global_id(0);
    __global const float *restrict run = x + item * RUN;
    double4 s = 0;
    for (uint i = 0; i < RUN / 4; i++)
        s += convert_double4(vload4(i, run));
    sums[item] = s.x + s.y + s.z + s.w;
}

__kernel void scan_sums(__global double *restrict sums, const uint runs, __local double *scratch)
{
    const uint lane = get_local_id(0), lanes = get_local_size(0);
    double carry = 0;
    for (uint start = 0; start < runs; start += lanes) {
        uint now = 0, next = lanes;
        const double sum = sums[start + lane];
        scratch[lane] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint reach = 1; reach < lanes; reach *= 2) {
            const double before = lane >= reach ? scratch[now + lane - reach] : 0;
            scratch[next + lane] = scratch[now + lane] + before;
            barrier(CLK_LOCAL_MEM_FENCE);
            const uint swap = now;
            now = next;
            next = swap;
        }
        sums[start + lane] = carry + (lane ? scratch[now + lane - 1] : 0);
        carry += scratch[now + lanes - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel void scan_runs(__global const float *restrict x, __global const double *restrict sums,
                        __global double *restrict result)
{
    const size_t item = get_global_id(0);
    __global const float *restrict run = x + item * RUN;
    __global double *restrict out = result + item * RUN;
    double total = sums[item];
    for (uint i = 0; i < RUN; i++) {
        out[i] = total;
        total += run[i];
    }
}
""".replace("RUN", str(RUN))


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """``n`` float32 numbers, uniform in [0, 1)."""
    return (rng.random(n, dtype=np.float32),)


def cpu(x: Array) -> Array:
    """The sum of all numbers before each one, as float64, by ``numpy.cumsum``; O(n)."""
    result = np.zeros(x.size, dtype=np.float64)
    np.cumsum(x[:-1], dtype=np.float64, out=result[1:])
    return result


def array_api(xp: Any, x: Any) -> Any:
    """The same by ``xp.cumulative_sum``."""
    if x.shape[0] == 0:
        return xp.astype(x, xp.float64)
    return xp.cumulative_sum(x[:-1], axis=0, dtype=xp.float64, include_initial=True)


def opencl(device: OpenCL, x: Array) -> Array:
    """Three launches: sums of runs, their scan, the runs."""
    device.require_double("scan")
    length = round_up(x.size, RUN * GROUP)
    items = length // RUN
    numbers = device.upload_array(x, (length,))
    sums, result = (
        device.allocate_buffer(items, dtype=np.float64),
        device.allocate_buffer(length, dtype=np.float64),
    )
    kernel = device.kernel(SOURCE, "run_sums")
    device.launch(kernel, (items,), device.group(kernel, GROUP), numbers, sums)
    if items:
        kernel = device.kernel(SOURCE, "scan_sums")
        (group,) = device.group(kernel, GROUP)
        scratch = device.local_memory(2 * 8 * group)
        device.launch(kernel, (group,), (group,), sums, np.uint32(items), scratch)
    kernel = device.kernel(SOURCE, "scan_runs")
    device.launch(kernel, (items,), device.group(kernel, GROUP), numbers, sums, result)
    return device.download_array(result, (x.size,), np.float64)
