"""Packs listed by their prices: none that matters is left out, and the cheapest are found."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.testing.builders import full
from dovetail_lab.packing.column_generation import ColumnPool, generate_columns
from dovetail_lab.packing.contiguous import contiguous_packs
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.exhaustive import subset_dp
from dovetail_lab.packing.level_program import level_prices, some_levels
from dovetail_lab.packing.listed import cheapest_schedule, list_packs
from dovetail_lab.packing.schedule import Packing, check_schedule, fill_groups
from dovetail_lab.packing.synthetic import generate_times, set_2

Floats = NDArray[np.float64]


def instance(rng: np.random.Generator) -> tuple[Floats, int]:
    n, p = int(rng.integers(4, 13)), int(rng.integers(2, 13))
    times = generate_times(n, p, rng, spread=float(rng.choice([1.0, 10.0, 100.0])), scale=1e6)
    return times, int(rng.integers(2, p + 1))


def solved(times: Floats, k: int) -> tuple[ColumnPool, Packing]:
    best = contiguous_packs(times, k)
    start = [[i] for i in range(times.shape[0])]
    pool, _ = generate_columns(times, k, start, upper_bound=best.total_cost * 2)
    return pool, best


def test_the_cheapest_of_the_listed_packs_is_the_optimum() -> None:
    rng = np.random.default_rng(1)
    for _ in range(full(300, 15)):
        times, k = instance(rng)
        pool, best = solved(times, k)
        optimum = subset_dp(times, k)
        assert optimum is not None
        # Even from a worse bound, and from one that nothing is below.
        for upper in (best.total_cost, 1.3 * best.total_cost, optimum.total_cost):
            packs = list_packs(pool, upper, Deadline())
            assert packs is not None
            found, proven = cheapest_schedule(times, packs, best, Deadline())
            check_schedule(times, k, found)
            assert proven
            assert found.total_cost == pytest.approx(optimum.total_cost, rel=1e-9)


def test_every_pack_of_a_cheaper_schedule_is_listed() -> None:
    rng = np.random.default_rng(2)
    for _ in range(full(100, 8)):
        times, k = instance(rng)
        pool, best = solved(times, k)
        optimum = subset_dp(times, k)
        assert optimum is not None
        packs = list_packs(pool, best.total_cost, Deadline())
        assert packs is not None
        known = {tuple(packs.group(c)): cost for c, cost in enumerate(packs.costs)}
        if optimum.total_cost < best.total_cost * (1 - 1e-9):
            for pack, cost in zip(optimum.packs, optimum.pack_costs, strict=True):
                assert known[tuple(entry.task for entry in pack)] == cost
        assert len(known) < 2 ** times.shape[0]


def test_no_time_proves_nothing() -> None:
    times = generate_times(12, 8, np.random.default_rng(1))
    pool, best = solved(times, 4)
    assert list_packs(pool, best.total_cost, Deadline(0.0)) is None
    packs = list_packs(pool, 2 * best.total_cost, Deadline())
    assert packs is not None
    assert cheapest_schedule(times, packs, best, Deadline(0.0)) == (best, False)


def test_levels_span_the_times_and_admit_every_task() -> None:
    times = set_2(np.random.default_rng(1), spread=10.0)
    levels = some_levels(times, 50_000.0, 60)
    assert 40 <= len(levels) <= 61
    assert np.all(np.diff(levels) > 0)
    assert np.isin(levels, times).all()
    assert levels[-1] >= times[:, -1].max()


def test_the_level_program_begins_near_the_master() -> None:
    times = set_2(np.random.default_rng(1), spread=10.0)
    best = contiguous_packs(times, 8)
    prices = level_prices(times, 8, some_levels(times, max(best.pack_costs), 60))
    assert prices is not None
    assert prices.shape == (65,)
    pool, root = generate_columns(times, 8, [[e.task for e in pack] for pack in best.packs])
    assert pool.converged
    assert prices.sum() == pytest.approx(root.bound, rel=0.05)
    assert level_prices(times, 8, some_levels(times, max(best.pack_costs), 60), Deadline(0.0)) is None


def test_the_scale_of_the_times_does_not_matter() -> None:
    times = generate_times(30, 8, np.random.default_rng(3))
    bounds = []
    for scale in (1e-9, 1.0, 1e6):
        start = [[i] for i in range(30)]
        pool, root = generate_columns(times * scale, 4, start)
        assert pool.converged
        bounds.append(root.bound / scale)
        assert fill_groups(times, [pool.groups[c] for c in range(3)]).packs
    assert bounds == pytest.approx([bounds[1]] * 3, rel=1e-6)
