"""Compiled list scheduling of tasks without packs; ``packing_plain`` holds the readable twins."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True)
def list_schedule(times: Floats, sigma: Ints, order: Ints, starts: Floats, limit: float) -> float:
    """Start tasks as early as the list allows: at every end, scan ``order`` and start all that fit.

    Writes the starts and returns the makespan; gives up with infinity once it would reach ``limit``.
    O(n^2) at worst.
    """
    n, p = times.shape
    # A linked list, as tasks leave it in the middle while it is read.
    following = np.empty(n + 1, np.int64)  # a linked list of what waits; n is its head
    previous = n
    for position in range(n):
        following[previous] = order[position]
        previous = order[position]
    following[previous] = -1
    ends = np.empty(p)
    widths = np.empty(p, np.int64)
    running = 0
    free = p
    now = 0.0
    makespan = 0.0
    while following[n] >= 0:
        previous = n
        task = following[n]
        while task >= 0 and free > 0:
            if sigma[task] <= free:
                starts[task] = now
                end = now + float(times[task, sigma[task] - 1])
                # Most moves of the annealing make things worse: those end here, long before their schedule is
                # complete.
                if end >= limit:
                    return np.inf
                makespan = max(makespan, end)
                ends[running] = end
                widths[running] = sigma[task]
                running += 1
                free -= sigma[task]
                following[previous] = following[task]
            else:
                previous = task
            task = following[previous]
        now = np.inf
        for a in range(running):
            now = min(now, float(ends[a]))
        a = 0
        while a < running:
            if ends[a] <= now:
                free += widths[a]
                running -= 1
                # The last one takes the freed place: the order of what runs does not matter.
                ends[a] = ends[running]
                widths[a] = widths[running]
            else:
                a += 1
    return makespan


@njit(cache=True)
def anneal_list(
    times: Floats,
    order: Ints,
    sigma: Ints,
    makespan: float,
    draws: Floats,
    hot: float,
    cold: float,
    best_order: Ints,
    best_sigma: Ints,
    best: float,
) -> tuple[float, float]:
    """Anneal the list and the processors: one move for each row of ``draws`` (shape ``(steps, 4)``).

    A move gives a random task one processor more or less, or takes it to another place of the list.
    Changes ``order`` and ``sigma`` in place, returns the makespan now and the best.
    """
    n, p = times.shape
    steps = draws.shape[0]
    starts = np.empty(n)
    cooling = (cold / hot) ** (1.0 / max(steps, 1))
    temperature = hot
    for step in range(steps):
        temperature *= cooling
        position = int(draws[step, 0] * n)
        task = order[position]
        # The Metropolis rule turned round: the draw decides beforehand which makespan is still accepted, and
        # becomes the limit.
        allowed = makespan - temperature * np.log(1.0 - draws[step, 3])
        limit = allowed * (1.0 + 1e-12)
        if draws[step, 1] < 0.5:
            old = sigma[task]
            new = old + 1 if draws[step, 2] < 0.5 else old - 1
            if new < 1 or new > p:
                continue
            sigma[task] = new
            candidate = list_schedule(times, sigma, order, starts, limit)
            if candidate == np.inf:
                sigma[task] = old
                continue
        else:
            target = int(draws[step, 2] * n)
            _move_entry(order, position, target)
            candidate = list_schedule(times, sigma, order, starts, limit)
            if candidate == np.inf:
                _move_entry(order, target, position)
                continue
        makespan = candidate
        if makespan < best:
            best = makespan
            best_order[:] = order
            best_sigma[:] = sigma
    return makespan, best


@njit(cache=True)
def _move_entry(order: Ints, origin: int, target: int) -> None:
    """Take the entry at ``origin`` to ``target``; those between close up."""
    task = order[origin]
    if origin < target:
        for position in range(origin, target):
            order[position] = order[position + 1]
    else:
        for position in range(origin, target, -1):
            order[position] = order[position - 1]
    order[target] = task
