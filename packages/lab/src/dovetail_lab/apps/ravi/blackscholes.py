"""BlackScholes: call and put prices of European options, on each of so many days before their end.

Sources: F. Black, M. Scholes, "The pricing of options and corporate liabilities", J. Political Economy 81
(1973); the polynomial of the normal distribution is 26.2.17 of Abramowitz and Stegun (error below 7.5e-8).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

RATE, VOLATILITY = 0.02, 0.30
"""A year; the same for all options."""
cpu_needs = ("scipy.special",)

SOURCE = (
    f"""
#define RATE {RATE}f
#define VOLATILITY {VOLATILITY}f
"""
    + """
float normal(const float x)
{
    return 0.5f * erfc(-0.70710678f * x);
}

__kernel void price(__global const float *restrict spot, __global const float *restrict strike,
                    __global const float *restrict years, __global float *restrict calls,
                    __global float *restrict puts, const float left)
{
    const size_t i = get_global_id(0);
    const float s = spot[i], k = strike[i], t = years[i] * left, deviation = VOLATILITY * sqrt(t);
    const float d1 = (log(s / k) + (RATE + 0.5f * VOLATILITY * VOLATILITY) * t) / deviation;
    const float d2 = d1 - deviation, discounted = k * exp(-RATE * t);
    const float call = s * normal(d1) - discounted * normal(d2);
    calls[i] += call;
    puts[i] += call - s + discounted;
}
"""
)


def inputs(n: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Spot and strike prices from 5 to 30 and from 1 to 100, and years from 0.25 to 10, float32."""
    ranges = (5, 30), (1, 100), (0.25, 10)
    return tuple(low + (high - low) * rng.random(n, dtype=np.float32) for low, high in ranges)


def _normal_distribution(xp: Any, x: Any) -> Any:
    t = 1 / (1 + 0.2316419 * xp.abs(x))
    powers = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = 0.3989422804014327 * xp.exp(-0.5 * x * x) * powers
    return xp.where(x < 0, tail, 1 - tail)


def _mean_prices(
    xp: Any, normal: Callable[[Any], Any], spot: Any, strike: Any, years: Any, iterations: int
) -> Any:
    calls, puts = xp.zeros_like(spot), xp.zeros_like(spot)
    moneyness = xp.log(spot / strike)
    for left in remaining_fractions(iterations):
        t = years * left
        deviation = VOLATILITY * xp.sqrt(t)
        d1 = (moneyness + (RATE + 0.5 * VOLATILITY**2) * t) / deviation
        discounted = strike * xp.exp(-RATE * t)
        call = spot * normal(d1) - discounted * normal(d1 - deviation)
        calls += call
        puts += call - spot + discounted
    return xp.stack((calls, puts)) / iterations


def remaining_fractions(iterations: int) -> list[float]:
    """The fractions of its time that an option still has."""
    return [1 - day / iterations for day in range(iterations)]


def array_api(xp: Any, spot: Any, strike: Any, years: Any, iterations: int = 1) -> Any:
    """Mean prices of calls and puts over the days, by the polynomial."""
    return _mean_prices(xp, partial(_normal_distribution, xp), spot, strike, years, iterations)


def cpu(spot: Array, strike: Array, years: Array, iterations: int = 1) -> Array:
    """Mean prices of calls and puts over the days, ``(2, n)``, by SciPy; O(n iterations)."""
    from scipy.special import ndtr

    return np.asarray(_mean_prices(np, ndtr, spot, strike, years, iterations))


def opencl(device: OpenCL, spot: Array, strike: Array, years: Array, iterations: int = 1) -> Array:
    """One work-item per option, a launch per day."""
    n = spot.size
    items = (round_up(n, 64),)
    kernel = device.kernel(SOURCE, "price")
    given = [device.upload_array(array, items, fill=1) for array in (spot, strike, years)]
    sums = [device.upload_array(np.zeros(0, np.float32), items) for _ in range(2)]
    for left in remaining_fractions(iterations):
        device.launch(kernel, items, device.group(kernel, 64), *given, *sums, np.float32(left))
    return np.stack([device.download_array(one, (n,), np.float32) for one in sums]) / np.float32(iterations)
