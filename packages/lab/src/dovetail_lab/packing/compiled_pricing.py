"""The compiled pricing step of column generation; ``packing_plain`` holds the readable twin.

For a price on every task, which pack is worth most for its cost?  A pack that costs at most T gives
each of its tasks the least processors with which it takes at most T, so for every T among the times
the question is a knapsack: p processors, at most k tasks.  Prices on costs, which branching adds, are
the same for all packs of one T.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True)
def _worthwhile_items(
    times: Floats, level: float, prices: Floats, by_price: Ints, k: int, items: Ints, weights: Ints
) -> int:
    """The tasks worth a thought at cost ``level``, with the processors they need; returns how many.

    Of the tasks that need w processors, no pack holds more than min(k, p // w), and it may as well
    hold the dearest.
    """
    n, p = times.shape
    seen = np.zeros(p + 1, np.int64)
    count = 0
    for position in range(n):
        i = by_price[position]
        # By price in falling order: all that follow are worth nothing, too.
        if prices[i] <= 0.0:
            break
        if times[i, p - 1] > level:
            continue
        low = 0
        high = p - 1  # least j with times[i, j] <= level, by bisection
        while low < high:
            middle = (low + high) // 2
            if times[i, middle] <= level:
                high = middle
            else:
                low = middle + 1
        weight = low + 1
        if seen[weight] < min(k, p // weight):
            seen[weight] += 1
            items[count] = i
            weights[count] = weight
            count += 1
    return count


@njit(cache=True)
def _solve_knapsack(items: Ints, weights: Ints, count: int, prices: Floats, k: int, value: Floats) -> float:
    """Most value of at most k items within p processors; ``value`` is scratch of shape ``(k + 1, p + 1)``.

    With k >= p the number of tasks never binds, and one row does.
    """
    p = value.shape[1] - 1
    if k >= p:
        row = value[0]
        row[:] = 0.0
        for a in range(count):
            w = weights[a]
            price = prices[items[a]]
            # Downwards, so that each item is counted once: row[q - w] does not hold it yet.
            for q in range(p, w - 1, -1):
                row[q] = max(row[q], row[q - w] + price)
        return float(row[p])
    value[: k + 1] = 0.0
    for a in range(count):
        w = weights[a]
        price = prices[items[a]]
        # Downwards in the number of items as well, for the same reason.
        for c in range(min(k, a + 1), 0, -1):
            row = value[c, w:]
            below = value[c - 1, : p + 1 - w]
            for q in range(p + 1 - w):
                row[q] = max(row[q], below[q] + price)
    best = 0.0
    for c in range(k + 1):
        best = max(best, value[c, p])
    return best


@njit(cache=True)
def best_ratio(
    times: Floats,
    levels: Floats,
    prices: Floats,
    extra: Floats,
    by_price: Ints,
    k: int,
    share: float,
    most: int,
    visited: Ints,
    values: Floats,
) -> tuple[float, int]:
    """An upper bound on (prices in a pack + extra[T]) / T over all packs and T from its cost on.

    ``levels`` are the distinct times, ascending, and ``extra`` a price, of either sign, on each.  Writes
    the index of every level looked at to ``visited`` and its ratio to ``values``; returns the bound and
    how many levels they are.  The knapsack value grows with the level, so the levels a..b-1 hold no
    ratio above max over them of (value(b) + extra[T]) / T: they are skipped where that is at most
    1 + ``share`` * (best ratio seen - 1), or once ``most`` levels (at least 1, the length of
    ``visited``) were looked at, and enter the bound.  Intervals are halved breadth first, so that the
    bound is even when ``most`` stops it.  With share 1 and no stop the bound is the exact maximum.
    O(most * n * k * p + levels log levels).
    """
    n, p = times.shape
    items = np.empty(n, np.int64)
    weights = np.empty(n, np.int64)
    value = np.empty((k + 1, p + 1))
    top = levels.shape[0] - 1
    count = _worthwhile_items(times, levels[top], prices, by_price, k, items, weights)
    # Halving adds two intervals for each level looked at, which bounds the queue.
    queue = np.empty((2 * most + 1, 2), np.int64)
    above = np.empty(2 * most + 1)  # the knapsack value at the level just above the interval
    queue[0, 0] = 0
    queue[0, 1] = top
    above[0] = _solve_knapsack(items, weights, count, prices, k, value)
    visited[0] = top
    values[0] = (above[0] + extra[top]) / levels[top]
    looked = 1
    best = values[0]
    bound = best
    first = 0
    last = 1 if top > 0 else 0
    while first < last:
        low = queue[first, 0]
        high = queue[first, 1]
        known = above[first]
        first += 1
        ratio = (known + extra[low]) / levels[low]
        # No level in the interval has more value than `known`, found just above it, so this bounds all of
        # their ratios.
        for level in range(low + 1, high):
            ratio = max(ratio, (known + extra[level]) / levels[level])
        if ratio <= 1.0 + share * (best - 1.0) or looked == most:
            bound = max(bound, ratio)
            continue
        middle = (low + high - 1) // 2
        count = _worthwhile_items(times, levels[middle], prices, by_price, k, items, weights)
        here = _solve_knapsack(items, weights, count, prices, k, value)
        visited[looked] = middle
        values[looked] = (here + extra[middle]) / levels[middle]
        best = max(best, values[looked])
        if low < middle:
            queue[last, 0] = low
            queue[last, 1] = middle
            above[last] = here
            last += 1
        if middle + 1 < high:
            queue[last, 0] = middle + 1
            queue[last, 1] = high
            above[last] = known
            last += 1
        looked += 1
    return max(best, bound), looked


@njit(cache=True)
def best_column(times: Floats, level: float, prices: Floats, by_price: Ints, k: int, column: Ints) -> int:
    """Write the tasks of a pack of most value at cost ``level`` to ``column``; return how many."""
    n, p = times.shape
    items = np.empty(n, np.int64)
    weights = np.empty(n, np.int64)
    count = _worthwhile_items(times, level, prices, by_price, k, items, weights)
    rows = min(k, p)
    value = np.zeros((count + 1, rows + 1, p + 1))
    for a in range(count):
        w = weights[a]
        price = prices[items[a]]
        for c in range(rows + 1):
            for q in range(p + 1):
                best = value[a, c, q]
                if c > 0 and q >= w and value[a, c - 1, q - w] + price > best:
                    best = value[a, c - 1, q - w] + price
                value[a + 1, c, q] = best
    # Backwards through the tables: an item is in the pack where it has raised the value.
    c = rows
    q = p
    size = 0
    for a in range(count - 1, -1, -1):
        if value[a + 1, c, q] > value[a, c, q]:
            column[size] = items[a]
            size += 1
            c -= 1
            q -= weights[a]
    return size
