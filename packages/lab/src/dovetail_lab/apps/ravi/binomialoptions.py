"""Binomial options: American puts on a tree of so many steps.

Source: J. Cox, S. Ross, M. Rubinstein, "Option pricing: a simplified approach", J. Financial
Economics 7 (1979).
``iterations`` are sixteens of steps: work grows with their square.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL

RATE, VOLATILITY = 0.1, 0.4
STEPS = 16

# A work-group prices an option, its work-items the nodes of a step; values of two steps take turns.
SOURCE = """
__kernel void price(__global const float *restrict spot, __global const float *restrict strike,
                    __global const float *restrict step_up, __global const float *restrict discount,
                    __global const float *restrict chance, __global float *restrict prices,
                    __local float *restrict ends, __local float *restrict even, __local float *restrict odd,
                    const uint steps)
{
    const uint option = get_group_id(0), item = get_local_id(0), items = get_local_size(0);
    const float k = strike[option], up = step_up[option];
    for (uint j = item; j <= steps; j += items) {
        ends[j] = spot[option] * exp(up * (2.0f * j - steps));
        even[j] = fmax(k - ends[j], 0.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float rise = discount[option] * chance[option], fall = discount[option] - rise;
    for (uint left = steps; left > 0; left--) {
        __local const float *later = (steps - left) & 1 ? odd : even;
        __local float *now = (steps - left) & 1 ? even : odd;
        const float back = exp(up * (steps - left + 1));
        for (uint j = item; j < left; j += items)
            now[j] = fmax(rise * later[j + 1] + fall * later[j], k - ends[j] * back);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0)
        prices[option] = steps & 1 ? odd[0] : even[0];
}
"""


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Spot and strike prices from 30 to 70, and years from 0.25 to 2, float32."""
    ranges = (30, 70), (30, 70), (0.25, 2)
    return tuple(low + (high - low) * rng.random(n, dtype=np.float32) for low, high in ranges)


def tree_steps(xp: Any, years: Any, steps: int) -> tuple[Any, Any, Any]:
    """The logarithm of a step up, the discount of a step, and the chance of a step up, of each option."""
    step = years / steps
    up, discount = VOLATILITY * xp.sqrt(step), xp.exp(-RATE * step)
    chance = (xp.exp(RATE * step) - xp.exp(-up)) / (xp.exp(up) - xp.exp(-up))
    return up, discount, chance


def array_api(xp: Any, spot: Any, strike: Any, years: Any, iterations: int = 1) -> Any:
    """Backwards through the tree: what waiting is worth, or exercising, if that is more; O(n steps^2)."""
    steps = iterations * STEPS
    up, discount, chance = tree_steps(xp, years, steps)
    where = {"device": up.device} if hasattr(up, "device") else {}  # NumPy before 2 has no devices
    nodes = xp.reshape(xp.arange(-steps, steps + 1, 2, dtype=up.dtype, **where), (-1, 1))
    ends = spot * xp.exp(up * nodes)
    value = xp.where(ends < strike, strike - ends, xp.zeros_like(ends))
    rise, fall = discount * chance, discount * (1 - chance)
    for left in range(steps, 0, -1):
        kept = rise * value[1:, :]
        kept += fall * value[:-1, :]
        exercised = strike - ends[:left, :] * xp.exp(up * (steps - left + 1))
        value = xp.where(kept > exercised, kept, exercised)
    return value[0, :]


def cpu(spot: Array, strike: Array, years: Array, iterations: int = 1) -> Array:
    """The same in NumPy."""
    return np.asarray(array_api(np, spot, strike, years, iterations))


def opencl(device: OpenCL, spot: Array, strike: Array, years: Array, iterations: int = 1) -> Array:
    """One work-group per option."""
    n, steps = spot.size, iterations * STEPS
    kernel = device.kernel(SOURCE, "price")
    given = [device.upload_array(array) for array in (spot, strike, *tree_steps(np, years, steps))]
    prices = device.allocate_buffer(n, dtype=np.float32)
    group = device.group(kernel, 128)
    room = [device.local_memory(4 * (steps + 1)) for _ in range(3)]
    device.launch(kernel, (n * group[0],), group, *given, prices, *room, np.uint32(steps))
    return device.download_array(prices, (n,), np.float32)
