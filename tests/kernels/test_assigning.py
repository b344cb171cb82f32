"""The search for plans of one-node jobs against all plans there are, on small instances."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels.assigning import least_makespan, least_total, makespan_bound
from dovetail.testing.builders import full

NOBODY = np.empty(0, np.int64)


@st.composite
def instances(draw: st.DrawFn, most: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Times (some infinite, never all of a job's) and ready times."""
    jobs, machines = draw(st.integers(1, most)), draw(st.integers(1, 3))
    whole = st.integers(1, 40)
    times = np.array(draw(st.lists(whole, min_size=jobs * machines, max_size=jobs * machines)), float)
    times = times.reshape(jobs, machines)
    for j in range(jobs):
        if machines > 1 and draw(st.booleans()):
            times[j, draw(st.integers(0, machines - 1))] = np.inf
    return times, np.array(draw(st.lists(st.integers(0, 30), min_size=machines, max_size=machines)), float)


def plans(times: np.ndarray) -> list[tuple[int, ...]]:
    jobs, machines = times.shape
    return [
        plan
        for plan in product(range(machines), repeat=jobs)
        if all(np.isfinite(times[j, u]) for j, u in enumerate(plan))
    ]


def last_end(times: np.ndarray, ready: np.ndarray, plan: tuple[int, ...]) -> float:
    load = ready.copy()
    for j, u in enumerate(plan):
        load[u] += times[j, u]
    return float(load.max())


def total(
    times: np.ndarray, ready: np.ndarray, weight: np.ndarray, own: float, plan: tuple[int, ...]
) -> float:
    """The least weighted sum over every order of each machine's jobs."""
    found = 0.0
    for u in set(plan):
        here = [j for j in range(len(plan)) if plan[j] == u]
        best = np.inf
        for order in permutations(here):
            at, cost = ready[u], 0.0
            for j in order:
                cost += weight[j] * (at + own * times[j, u])
                at += times[j, u]
            best = min(best, cost)
        found += best
    return found


@given(instances())
@settings(max_examples=full(1000, 100), deadline=None, derandomize=True)
def test_the_last_end_is_the_least_of_all_plans(instance: tuple[np.ndarray, np.ndarray]) -> None:
    times, ready = instance
    kinds = np.arange(len(ready))
    plan, end, bound = least_makespan(times, ready, kinds, NOBODY, 2000, 1)
    least = min(last_end(times, ready, other) for other in plans(times))
    assert end == pytest.approx(last_end(times, ready, tuple(plan)))
    assert bound <= least * (1 + 1e-9)
    assert end <= least * 1.001 + 1e-9


@given(instances(5), st.sampled_from([0.0, 1.0]), st.data())
@settings(max_examples=full(500, 60), deadline=None, derandomize=True)
def test_the_sum_of_completions_is_the_least_of_all_plans(
    instance: tuple[np.ndarray, np.ndarray], own: float, data: st.DataObject
) -> None:
    times, ready = instance
    jobs = len(times)
    weight = np.array(data.draw(st.lists(st.integers(1, 5), min_size=jobs, max_size=jobs)), float)
    plan = least_total(times, ready, weight, own, np.arange(len(ready)), NOBODY, 2000, 1)
    least = min(total(times, ready, weight, own, other) for other in plans(times))
    assert total(times, ready, weight, own, tuple(plan)) <= least * (1 + 1e-9)


def test_the_bound_is_that_of_the_fractional_plan() -> None:
    # Two jobs of 2 s on either machine and one of 2 s: 3 s if it could be split.
    assert makespan_bound(np.full((3, 2), 2.0), np.zeros(2)) == pytest.approx(3.0)
    # The second machine is busy for 10 s, and everything fits on the first until then.
    assert makespan_bound(np.full((2, 2), 2.0), np.array([0.0, 10.0])) == pytest.approx(10.0, rel=0.01)


def test_a_plan_in_force_is_kept_where_nothing_beats_it() -> None:
    times = np.full((4, 2), 5.0)
    before = np.array([1, 0, 1, 0])
    plan, _, _ = least_makespan(times, np.zeros(2), np.zeros(2, np.int64), before, 20_000, 1)
    assert plan.tolist() == before.tolist()


def test_the_same_question_has_the_same_answer() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    times, ready = rng.uniform(1, 100, (40, 5)), rng.uniform(0, 50, 5)
    kinds = np.arange(5)
    first = least_makespan(times, ready, kinds, NOBODY, 5000, 7)[0]
    assert first.tolist() == least_makespan(times, ready, kinds, NOBODY, 5000, 7)[0].tolist()
