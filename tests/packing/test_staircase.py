"""Branching on how many packs cost at least a level: bounds that hold, and gaps that close."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.testing.builders import full
from dovetail_lab.packing.column_generation import Relaxation, Step, generate_columns, solve_relaxation
from dovetail_lab.packing.contiguous import contiguous_packs
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.exhaustive import subset_dp
from dovetail_lab.packing.schedule import Packing, check_schedule, fill_groups
from dovetail_lab.packing.staircase import branch_and_bound, widest_step
from dovetail_lab.packing.synthetic import generate_times

Floats = NDArray[np.float64]


def singles(times: Floats) -> list[list[int]]:
    return [[i] for i in range(times.shape[0])]


def optimum(times: Floats, k: int) -> Packing:
    packing = subset_dp(times, k)
    assert packing is not None
    return packing


def random_instance(rng: np.random.Generator) -> tuple[Floats, int]:
    n, p = int(rng.integers(5, 13)), int(rng.integers(3, 17))
    times = generate_times(n, p, rng, spread=float(rng.choice([1.0, 10.0, 100.0])), scale=1e6)
    return times, int(rng.integers(3, min(p, 6) + 1))


def test_the_bound_never_passes_the_optimum_and_mostly_meets_it() -> None:
    rng = np.random.default_rng(1)
    met = 0
    count = full(400, 10)
    for _ in range(count):
        times, k = random_instance(rng)
        best = optimum(times, k)
        pool, root = generate_columns(times, k, singles(times))
        assert pool.lower_bound <= best.total_cost * (1 + 1e-12)
        start = fill_groups(times, singles(times))
        bound, found = branch_and_bound(pool, root, start, deadline=Deadline(0.6, cpu=True), gap=1e-3)
        check_schedule(times, k, found)
        assert pool.lower_bound <= bound <= best.total_cost * (1 + 1e-12)
        met += bound >= best.total_cost * (1 - 2e-3)
    assert met >= 0.8 * count


def test_a_step_bounds_the_schedules_that_keep_it() -> None:
    rng = np.random.default_rng(2)
    for _ in range(full(200, 6)):
        times, k = random_instance(rng)
        best = optimum(times, k)
        pool, root = generate_columns(times, k, singles(times))
        for cost in sorted(set(best.pack_costs)):
            packs = sum(other >= cost for other in best.pack_costs)
            for sense in (1, -1):
                step = Step(cost, sense, packs)
                under = solve_relaxation(
                    pool, Relaxation((step,), 0.0, np.inf, None, root.active), upper_bound=best.total_cost
                )
                assert under.bound <= best.total_cost * (1 + 1e-12)


def test_five_equal_tasks_in_pairs_need_three_packs() -> None:
    # The linear program makes do with 2.5: every pair is as good as any other.
    times = np.repeat([[6.0, 3.0, 2.5, 2.25]], 5, axis=0)
    pool, root = generate_columns(times, 2, singles(times))
    assert pool.lower_bound == pytest.approx(2.25 + 2.5 * 3.0 - 1.5 * 1.5, rel=0.2)
    bound, found = branch_and_bound(pool, root, contiguous_packs(times, 2), deadline=Deadline(10.0, cpu=True))
    assert found.total_cost == optimum(times, 2).total_cost == 8.25
    assert bound == pytest.approx(8.25, rel=1e-5)
    assert root.bound < 8.0


def test_the_step_splits_the_widest_fraction() -> None:
    times = np.repeat([[6.0, 3.0, 2.5, 2.25]], 5, axis=0)
    pool, root = generate_columns(times, 2, singles(times))
    step = widest_step(pool, root)
    assert step is not None
    assert step.sense == -1
    packs = sum(x for c, x in zip(root.columns, root.weights, strict=True) if pool.costs[c] >= step.level)
    assert step.count == int(packs)
    assert 0.01 < packs - step.count < 0.99


def test_no_time_leaves_the_root_bound() -> None:
    times = generate_times(20, 8, np.random.default_rng(3))
    pool, root = generate_columns(times, 4, singles(times))
    best = contiguous_packs(times, 4)
    assert branch_and_bound(pool, root, best, deadline=Deadline(0.0)) == (root.bound, best)
