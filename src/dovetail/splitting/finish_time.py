"""When N whole tasks can be done at the earliest: the moment T* on which the finish-time rule rests.

A slot that is free at time r and takes t seconds a task ends tasks at r + t, r + 2 t, …; over all slots
these are the moments at which a task can end, and the N-th smallest is the least time by which N tasks can
be done: the optimum for tasks of one size, for any slots and any times at which they become free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CLOSE = 1e-12
"""Relative: 0.3 s hold three tasks of 0.1 s, though 0.3 / 0.1 is a little below 3 in binary."""


FEW = 1000
"""Moments among which the right one is looked up at once."""


def whole_tasks(span: float, seconds: float) -> int:
    """How many tasks of so many seconds, one after the other, end within a span; 0 if it is negative."""
    return max(0, math.floor(span / seconds * (1 + CLOSE)))


def fluid_finish(ready: Mapping[str, Floats], seconds: Mapping[str, float], tasks: float) -> float:
    """When the tasks would be done if they could be cut at will: a lower bound of `least_finish`.

    ``ready`` has, by kind, the moment at which each slot is free; ``seconds`` the time of a task, by kind.
    Newton's method on a convex, piecewise linear function: a few passes over the slots.
    """
    parts = [(array, seconds[kind]) for kind, array in ready.items() if len(array)]
    if not parts:
        raise ValueError("there are no slots")
    end = max(float(array.max()) for array, _ in parts) + tasks * min(time for _, time in parts)
    while True:
        done = speed = 0.0
        for array, time in parts:
            spans = end - array
            spans = spans[spans > 0]
            done += float(spans.sum()) / time
            speed += len(spans) / time
        if not speed:
            return end
        earlier = end - (done - tasks) / speed
        if not earlier < end:
            return end
        end = earlier


def least_finish(ready: Mapping[str, Floats], seconds: Mapping[str, float], tasks: int) -> float:
    """T*: the least time by which ``tasks`` tasks can be done.

    ``ready`` has, by kind, the moment at which each slot is free; ``seconds`` the time of a task, by kind.
    With no tasks it is the first such moment. Raises `ValueError` without slots. A few passes over the slots.
    """
    used = {kind: array for kind, array in ready.items() if len(array)}
    if not used:
        raise ValueError("there are no slots")
    # Seconds since the first of these moments: clocks show numbers that microseconds get lost in.
    origin = min(float(array.min()) for array in used.values())
    if tasks <= 0:
        return origin
    return origin + _least_from_zero({k: array - origin for k, array in used.items()}, seconds, tasks)


def _least_from_zero(ready: Mapping[str, Floats], seconds: Mapping[str, float], tasks: int) -> float:
    """`least_finish` from 0 on."""
    kinds = [(array, seconds[kind]) for kind, array in ready.items()]
    low = fluid_finish(ready, seconds, tasks)
    done = [_count_ended(array, time, low) for array, time in kinds]
    missing = tasks - sum(int(ended.sum()) for ended in done)
    # Whole tasks fill the time exactly.
    if missing <= 0:
        return max(
            float((array + n * time)[n > 0].max())
            for (array, time), n in zip(kinds, done, strict=True)
            if n.any()
        )
    # One more task on each slot would be enough: by then T* has come.
    high = max(float((array + (n + 1) * time).max()) for (array, time), n in zip(kinds, done, strict=True))
    while True:
        later = [_count_ended(array, time, high) - n for (array, time), n in zip(kinds, done, strict=True)]
        if sum(int(more.sum()) for more in later) <= FEW + 4 * sum(map(len, later)):
            break
        middle = (low + high) / 2
        ended = [_count_ended(array, time, middle) for array, time in kinds]
        count = sum(int(n.sum()) for n in ended)
        if count >= tasks:
            high = middle
        else:
            low, done, missing = middle, ended, tasks - count
    moments = np.concatenate(
        [_end_moments(*kind, n, more) for kind, n, more in zip(kinds, done, later, strict=True)]
    )
    if not len(moments):  # by a rounding error
        return high
    nth = min(missing, len(moments)) - 1
    return float(np.partition(moments, nth)[nth])


def _count_ended(ready: Floats, time: float, moment: float) -> npt.NDArray[np.int64]:
    """How many tasks each slot can have ended by a moment."""
    return np.floor(np.maximum(moment - ready, 0.0) / time * (1 + CLOSE)).astype(np.int64)


def _end_moments(
    ready: Floats, time: float, done: npt.NDArray[np.int64], more: npt.NDArray[np.int64]
) -> Floats:
    """When each slot ends the tasks that follow its first ``done``, so many ``more`` of them."""
    slots = np.repeat(np.arange(len(ready)), more)
    place = np.arange(len(slots)) - np.repeat(np.cumsum(more) - more, more)
    return ready[slots] + (done[slots] + place + 1) * time


def optimal_makespan(tasks: int, slots: Sequence[tuple[int, float]]) -> float:
    """The least makespan of so many whole tasks; ``slots`` has a count and seconds a task for each kind.

    The least T among the multiples of the times with sum(count * floor(T / time)) >= tasks, that is, T*
    for slots that are all free at 0. O(kinds² log tasks). Raises `ValueError` without slots.
    """
    if tasks <= 0:
        return 0.0
    used = [(count, time) for count, time in slots if count > 0]
    if not used:
        raise ValueError("there are no slots")

    def tasks_done_by(end: float) -> int:
        return sum(count * whole_tasks(end, time) for count, time in used)

    best = math.inf
    for count, time in used:
        # This kind alone has done all in `high` waves.
        low, high = 0, -(-tasks // count)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if tasks_done_by(middle * time) >= tasks else (middle, high)
        best = min(best, high * time)
    return best
