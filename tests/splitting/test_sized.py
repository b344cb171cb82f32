from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.splitting.finish_time import least_finish
from dovetail.splitting.sized import next_task, plan_tasks

sizes = st.lists(st.floats(0.1, 20.0), min_size=1, max_size=7)


def optimum(costs: Sequence[float], speeds: Sequence[float]) -> float:
    """Of all ways to give tasks to slots."""
    best = float("inf")
    for given_to in itertools.product(range(len(speeds)), repeat=len(costs)):
        loads = [0.0] * len(speeds)
        for cost, slot in zip(costs, given_to, strict=True):
            loads[slot] += cost / speeds[slot]
        best = min(best, max(loads))
    return best


@given(sizes, st.integers(1, 2), st.floats(1.0, 12.0))
def test_longest_first_stays_near_the_optimum(costs: list[float], cpus: int, alpha: float) -> None:
    """Dobson 1984: at most 19/12 on uniform machines."""
    costs = sorted(costs, reverse=True)
    times = {"cpu": costs, "gpu": [cost / alpha for cost in costs]}
    found = plan_tasks(times, {"cpu": np.zeros(cpus), "gpu": np.zeros(1)})
    best = optimum(costs, [1.0] * cpus + [alpha])
    assert best * (1 - 1e-9) <= found.finish <= best * 19 / 12 * (1 + 1e-9)
    loads: dict[tuple[str, int], float] = {}
    for task, slot in enumerate(found.slots):
        loads[slot] = loads.get(slot, 0.0) + times[slot[0]][task]
    assert max(loads.values()) == pytest.approx(found.finish)


@given(
    st.integers(1, 40), st.lists(st.floats(0, 30), min_size=1, max_size=4),
    st.lists(st.floats(0, 30), max_size=3), st.floats(1.0, 10.0), st.floats(0.5, 3.0),
)  # fmt: skip
def test_of_one_size_it_is_the_finish_time_rule(
    tasks: int, cpu: list[float], gpu: list[float], slow: float, fast: float
) -> None:
    ready = {"cpu": np.array(cpu), "gpu": np.array(gpu)}
    seconds = {"cpu": slow, "gpu": fast}
    found = plan_tasks({"cpu": [slow] * tasks, "gpu": [fast] * tasks}, ready)
    assert found.finish == pytest.approx(least_finish(ready, seconds, tasks))


def follow(costs: list[float], alpha: float) -> float:
    """Two slots that ask `next_task` whenever they are idle."""
    left = sorted(costs, reverse=True)
    free = {"cpu": 0.0, "gpu": 0.0}
    end = now = 0.0
    while left:
        started = False
        for kind, speed in (("gpu", alpha), ("cpu", 1.0)):
            if free[kind] > now or not left:
                continue
            times = {"cpu": list(left), "gpu": [cost / alpha for cost in left]}
            totals = {k: sum(t) for k, t in times.items()}
            ready = {k: np.array([max(now, moment)]) for k, moment in free.items()}
            chosen = next_task(kind, 0, now, times[kind][0], totals, ready, lambda times=times: times)
            if chosen is not None:
                free[kind] = now + left.pop(chosen) / speed
                end = max(end, free[kind])
                started = True
        if left and not started:
            now = min(moment for moment in free.values() if moment > now)
    return end


@given(sizes, st.floats(1.0, 12.0))
def test_followed_step_by_step_it_ends_where_the_plan_ends_or_sooner(
    costs: list[float], alpha: float
) -> None:
    costs = sorted(costs, reverse=True)
    times = {"cpu": costs, "gpu": [cost / alpha for cost in costs]}
    planned = plan_tasks(times, {"cpu": np.zeros(1), "gpu": np.zeros(1)}).finish
    assert follow(costs, alpha) <= max(planned, optimum(costs, [1.0, alpha]) * 19 / 12) * (1 + 1e-9)


def test_the_slow_slot_leaves_the_last_long_one_to_the_fast_slot() -> None:
    assert follow([10.0], 5.0) == 2.0
    assert follow([10.0, 1.9], 5.0) == pytest.approx(2.0)
    assert follow([10.0, 2.5], 5.0) == pytest.approx(2.5)


def test_without_slots_there_is_no_plan() -> None:
    with pytest.raises(ValueError, match="no slots"):
        plan_tasks({"cpu": [1.0]}, {"cpu": np.array([])})
