"""Every value of the golden instance (p = 4)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail_lab.packing.pack_approx import pack_approx_literal
from dovetail_lab.packing.pack_by_pack import NINE, pack_by_pack
from dovetail_lab.packing.registry import solve
from dovetail_lab.packing.schedule import Packing, check_schedule, fill_groups, measure_schedule

Floats = NDArray[np.float64]

COSTS = {
    "pack-approx-literal": {1: 186, 2: 104, 3: 78, 4: 78},
    "pack-approx": {1: 77, 2: 72, 3: 72, 4: 72},
    "pack-by-pack-1": {1: 77, 2: 65, 3: 72, 4: 72},
    "pack-by-pack-9": {1: 77, 2: 65, 3: 65, 4: 65},
    "contiguous": {1: 77, 2: 65, 3: 65, 4: 65},
    "matching": {2: 65},
    "exhaustive": {1: 77, 2: 65, 3: 65, 4: 65},
    "subset-dp": {1: 77, 2: 65, 3: 65, 4: 65},
    "ilp": {1: 77, 2: 65, 3: 65, 4: 65},
    "cp-sat": {1: 77, 2: 65, 3: 65, 4: 65},
    "column-generation": {1: 77, 2: 65, 3: 65, 4: 65},
    "annealing": {1: 77, 2: 65, 3: 65, 4: 65},
    "auto": {1: 77, 2: 65, 3: 65, 4: 65},
}
EXACT = ("matching", "exhaustive", "subset-dp", "ilp", "cp-sat", "auto")


@pytest.mark.parametrize(("algorithm", "k"), [(name, k) for name, costs in COSTS.items() for k in costs])
def test_cost(golden: Floats, algorithm: str, k: int) -> None:
    if algorithm == "cp-sat":
        pytest.importorskip("ortools")
    solution = solve(golden, k, algorithm)
    check_schedule(golden, k, solution.schedule)
    assert solution.metrics.cost == COSTS[algorithm][k]
    assert solution.proven_optimal == (algorithm in EXACT) or algorithm == "column-generation"
    if solution.lower_bound is not None:
        assert solution.lower_bound <= solution.metrics.cost
        if solution.proven_optimal:
            assert solution.lower_bound == pytest.approx(solution.metrics.cost, rel=2e-6)


@pytest.mark.parametrize(
    ("tasks", "sigma", "cost"),
    [((0, 1), (2, 2), 32), ((0, 1, 2), (2, 1, 1), 48), ((0, 1, 2, 3), (1, 1, 1, 1), 60)],
)
def test_one_pack(golden: Floats, tasks: tuple[int, ...], sigma: tuple[int, ...], cost: float) -> None:
    packing = fill_groups(golden, [tasks])
    assert packing.total_cost == cost
    assert tuple(entry.processors for entry in packing.packs[0]) == sigma
    assert solve(golden[list(tasks)], 4, "one-pack").metrics.cost == cost


@pytest.mark.parametrize("algorithm", ["matching", "exhaustive", "subset-dp"])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_optimal_packs(golden: Floats, algorithm: str, k: int) -> None:
    if algorithm == "matching" and k != 2:
        pytest.skip("matching is for pairs")
    schedule = solve(golden, k, algorithm).schedule
    assert isinstance(schedule, Packing)
    if k == 2:
        assert [[entry.task for entry in pack] for pack in schedule.packs] == [[4, 5], [2, 3], [0, 1]]
    assert schedule.pack_costs == tuple(sorted(schedule.pack_costs))


def test_pack_approx_takes_two_steps(golden: Floats) -> None:
    for k in (1, 2, 3, 4):
        packing = pack_approx_literal(golden, k)
        given = {entry.task: entry.processors for pack in packing.packs for entry in pack}
        assert given in (dict.fromkeys(range(6), 1), {0: 2, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1})


def test_best_epsilon_is_the_second(golden: Floats) -> None:
    costs = [pack_by_pack(golden, 3, [epsilon]).total_cost for epsilon in NINE]
    assert costs.index(min(costs)) == 1


def test_measures(golden: Floats) -> None:
    metrics = measure_schedule(golden, fill_groups(golden, [[0, 1], [2, 3], [4, 5]]))
    assert metrics.cost == 65
    assert metrics.relative_cost == pytest.approx(0.8442, abs=5e-5)
    assert metrics.packing_ratio == pytest.approx(0.9500, abs=5e-5)
    assert metrics.relative_response_time == pytest.approx(0.9727, abs=5e-5)
    assert (metrics.busy, metrics.idle) == (247, 13)
    assert metrics.energy_joules(10, 100) == 13 * 10 + 247 * 100
