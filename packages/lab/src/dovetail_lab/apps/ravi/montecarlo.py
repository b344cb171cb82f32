"""MonteCarlo: call prices of European options as means over random paths.

Sources: P. Boyle, "Options: a Monte Carlo approach", J. Financial Economics 4 (1977); normal numbers by Box
and Muller (1958). All options see the same paths. An iteration is a block of paths; each block shifts the
first one's uniform numbers modulo 1 (R. Cranley, T. Patterson, SIAM J. Numerical Analysis 13, 1976).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

RATE, VOLATILITY = 0.06, 0.10
PATHS = 1024
"""Of a block."""
SHIFTS = math.sqrt(2), math.sqrt(3)
LEAST = 2.0**-24
"""In the place of zero, whose logarithm is none."""

SOURCE = (
    f"""
#define RATE {RATE}f
#define VOLATILITY {VOLATILITY}f
#define PATHS {PATHS}
"""
    + """
__kernel void draw(__global const float *restrict first, __global const float *restrict second,
                   __global float *restrict normal, const float by_first, const float by_second)
{
    const size_t i = get_global_id(0);
    const float a = first[i] + by_first, b = second[i] + by_second;
    const float u = fmax(a - floor(a), 0x1p-24f), v = b - floor(b);
    normal[i] = sqrt(-2.0f * log(u)) * cos(6.2831853f * v);
}

__kernel void walk(__global const float *restrict spot, __global const float *restrict strike,
                   __global const float *restrict years, __global const float *restrict normal,
                   __global float *restrict sums)
{
    const size_t i = get_global_id(0);
    const float s = spot[i], k = strike[i], t = years[i];
    const float drift = (RATE - 0.5f * VOLATILITY * VOLATILITY) * t, deviation = VOLATILITY * sqrt(t);
    float sum = 0.0f;
    for (uint path = 0; path < PATHS; path++) {
        const float gain = s * exp(drift + deviation * normal[path]) - k;
        sum += gain > 0.0f ? gain : 0.0f;
    }
    sums[i] += sum * exp(-RATE * t) / PATHS;
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Spot and strike prices from 5 to 50 and from 10 to 25, years from 1 to 5, and two numbers a path."""
    ranges = (5, 50), (10, 25), (1, 5)
    options = tuple(low + (high - low) * rng.random(n, dtype=np.float32) for low, high in ranges)
    return (*options, rng.random(PATHS, dtype=np.float32), rng.random(PATHS, dtype=np.float32))


def block_shifts(iterations: int) -> list[tuple[float, ...]]:
    """By how much each block shifts its two uniform numbers."""
    return [tuple((block * shift) % 1.0 for shift in SHIFTS) for block in range(iterations)]


def array_api(
    xp: Any, spot: Any, strike: Any, years: Any, first: Any, second: Any, iterations: int = 1
) -> Any:
    """The discounted mean gain of each option; O(n PATHS iterations)."""
    drift, deviation = (RATE - 0.5 * VOLATILITY**2) * years, VOLATILITY * xp.sqrt(years)
    sums = xp.zeros_like(spot)
    for by_first, by_second in block_shifts(iterations):
        a, b = first + by_first, second + by_second
        u, v = a - xp.floor(a), b - xp.floor(b)
        u = xp.where(u < LEAST, xp.ones_like(u) * LEAST, u)
        normal = xp.sqrt(-2 * xp.log(u)) * xp.cos(2 * math.pi * v)
        gain = drift[:, None] + deviation[:, None] * normal
        gain = spot[:, None] * xp.exp(gain)
        gain -= strike[:, None]
        gain *= xp.astype(gain > 0, gain.dtype) if hasattr(xp, "astype") else gain > 0
        sums += xp.mean(gain, axis=1)
    return sums * xp.exp(-RATE * years) / iterations


def cpu(spot: Array, strike: Array, years: Array, first: Array, second: Array, iterations: int = 1) -> Array:
    """The same in NumPy."""
    return np.asarray(array_api(np, spot, strike, years, first, second, iterations))


def opencl(
    device: OpenCL, spot: Array, strike: Array, years: Array, first: Array, second: Array, iterations: int = 1
) -> Array:
    """The paths' normal numbers once a block, then a work-item per option."""
    n = spot.size
    items = (round_up(n, 64),)
    draw, walk = device.kernel(SOURCE, "draw"), device.kernel(SOURCE, "walk")
    options = [device.upload_array(array, items, fill=1) for array in (spot, strike, years)]
    uniform = [device.upload_array(array) for array in (first, second)]
    normal = device.allocate_buffer(PATHS, dtype=np.float32)
    sums = device.upload_array(np.zeros(0, np.float32), items)
    for by in block_shifts(iterations):
        device.launch(draw, (PATHS,), device.group(draw, 64), *uniform, normal, *map(np.float32, by))
        device.launch(walk, items, device.group(walk, 64), *options, normal, sums)
    return device.download_array(sums, (n,), np.float32) / np.float32(iterations)
