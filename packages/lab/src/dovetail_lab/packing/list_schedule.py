"""Moldable tasks without packs: list scheduling (after Turek and Ludwig), then annealing.

It shows what the pack barrier costs: a task starts as soon as its processors are free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.bounds import area_bound, needed_processors
from dovetail_lab.packing.compiled_lists import anneal_list
from dovetail_lab.packing.compiled_lists import list_schedule as list_schedule_kernel
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.schedule import ListSchedule, StartedTask

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 60_000
CHUNK = 1_000
ACCEPTED_GAP = 1e-4  # annealing stops this close to the bound


def best_list(times: Floats, deadline: Deadline | None = None) -> tuple[float, Ints, Ints]:
    """The best list schedule over all levels: (makespan, list order, processors).

    For every T among the times each task gets the least processors that meet T; the list is longest
    first, widest first or largest work first.  A level is passed over when its work or its longest task
    alone takes as long as the best schedule.  Levels are tried from the lower bound outwards.
    O(n p) levels of O(n^2) at worst.
    """
    n, p = times.shape
    deadline = deadline or Deadline()
    rows = np.arange(n)
    levels = np.unique(times)
    # Below the longest task's least time no level is feasible.
    levels = levels[levels >= times[:, p - 1].max()]
    bound = area_bound(times)
    starts = np.empty(n)
    best, best_order, best_sigma = np.inf, np.empty(0, np.int64), np.empty(0, np.int64)
    # From the bound outwards: a good schedule found early rules most levels out.
    for level in levels[np.argsort(np.abs(levels - bound), kind="stable")]:
        if deadline.has_passed() and best < np.inf:
            break
        sigma = needed_processors(times, level)
        current = times[rows, sigma - 1]
        work = sigma * current
        # Neither work nor longest task leaves room for a better schedule.
        if current.max() >= best or work.sum() / p >= best:
            continue
        for key in (current, sigma, work):
            order = np.lexsort((-current, -key)).astype(np.int64)
            makespan = float(list_schedule_kernel(times, sigma, order, starts, best))
            if makespan < best:
                best, best_order, best_sigma = makespan, order, sigma
    return best, best_order, best_sigma


def improve_list(
    times: Floats,
    order: Ints,
    sigma: Ints,
    rng: np.random.Generator,
    *,
    steps: int = STEPS,
    deadline: Deadline | None = None,
) -> ListSchedule:
    """Anneal a list schedule: one processor more or less, or another place in the list, per step.

    Stops at the deadline or once the makespan is within 0.01 % of ``area_bound``.  O(n^2) a step at worst.
    """
    n = times.shape[0]
    deadline = deadline or Deadline()
    order, sigma = order.copy(), sigma.copy()
    best_order, best_sigma = order.copy(), sigma.copy()
    starts = np.empty(n)
    makespan = best = float(list_schedule_kernel(times, sigma, order, starts, np.inf))
    bound = area_bound(times)
    chunks = max(1, -(-steps // CHUNK))
    hot = 5e-3 * best
    step = 1e-3 ** (1.0 / chunks)
    for chunk in range(chunks):
        # Within the accepted gap of a proven bound more time is wasted.
        if deadline.has_passed() or best <= bound * (1.0 + ACCEPTED_GAP):
            break
        draws = rng.random((min(CHUNK, steps - chunk * CHUNK), 4))
        makespan, best = anneal_list(
            times, order, sigma, makespan, draws, hot, hot * step, best_order, best_sigma, best
        )
        hot *= step
    list_schedule_kernel(times, best_sigma, best_order, starts, np.inf)
    tasks = [
        StartedTask(i, int(best_sigma[i]), float(times[i, best_sigma[i] - 1]), float(starts[i]))
        for i in range(n)
    ]
    return ListSchedule(tuple(sorted(tasks, key=lambda entry: (entry.start, entry.task))))
