"""What must hold on random instances, whatever the algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from three_partition import theorem_2

from dovetail.testing.builders import full
from dovetail_lab.packing.bounds import area_bound, batch_bound, quick_bound
from dovetail_lab.packing.exhaustive import search_exhaustively, subset_dp
from dovetail_lab.packing.matching import match_pairs
from dovetail_lab.packing.one_pack import single_pack
from dovetail_lab.packing.pack_approx import pack_approx_literal
from dovetail_lab.packing.profiles import repair_times
from dovetail_lab.packing.registry import ALGORITHMS, Options, solve
from dovetail_lab.packing.schedule import check_schedule

Floats = NDArray[np.float64]

SLOW = {"ilp", "cp-sat", "column-generation"}
FAST = [name for name in ALGORITHMS if name not in SLOW | {"one-pack", "matching"}]


def random_times(rng: np.random.Generator, n: int, p: int, *, whole: bool = False) -> Floats:
    """Random profiles between no and full speed-up; whole numbers make ties."""
    first = rng.integers(1, 60, size=n).astype(np.float64) if whole else rng.uniform(1.0, 60.0, size=n)
    times = np.empty((n, p))
    times[:, 0] = first
    for j in range(1, p):
        least = j / (j + 1)
        times[:, j] = times[:, j - 1] * (least + (1.0 - least) * rng.random(n) ** rng.choice([0.3, 1.0, 4.0]))
        if whole:
            times[:, j] = np.minimum(np.ceil(times[:, j]), times[:, j - 1])
    return repair_times(times)[0]


def one_pack_by_program(times: Floats) -> float:
    """The cost of the best single pack by c(i, q) = min over q' of max(c(i-1, q-q'), t(i, q')).

    Section 4.2; O(n p^2).  It needs no Equation 2, only times that do not grow along a row.
    """
    n, p = times.shape
    best = times[0].copy()
    for i in range(1, n):
        following = np.full(p, np.inf)
        for q in range(i, p):
            # q + 1 processors in all: task i takes q' = 1..q, the others q + 1 - q'
            following[q] = np.min(np.maximum(best[q - 1 :: -1] if q else best[:0], times[i, :q]))
        best = following
    return float(best[p - 1])


def test_algorithm_1_equals_the_dynamic_program() -> None:
    rng = np.random.default_rng(1)
    for trial in range(full(6000, 200)):
        p = int(rng.integers(1, 13))
        times = random_times(rng, int(rng.integers(1, p + 1)), p, whole=trial % 2 == 0)
        packing = single_pack(times, p)
        check_schedule(times, p, packing)
        assert packing.total_cost == one_pack_by_program(times)


def test_no_algorithm_beats_the_optimum_or_breaks_k_or_p() -> None:
    rng = np.random.default_rng(2)
    for trial in range(full(1000, 40)):
        n, p = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        k = int(rng.integers(1, p + 3))
        times = random_times(rng, n, p, whole=trial % 3 == 0)
        optimum = search_exhaustively(times, k).total_cost
        program = subset_dp(times, k)
        assert program is not None
        assert program.total_cost == pytest.approx(optimum, rel=1e-12)
        assert quick_bound(times, k) <= optimum * (1 + 1e-12)
        names = FAST + (["column-generation"] if trial % 4 == 0 else []) + (["matching"] if k == 2 else [])
        for name in names:
            if name == "annealing" and trial % 10:
                continue
            solution = solve(times, k, name, Options(seed=trial))
            if name == "list":
                check_schedule(times, n, solution.schedule)
                assert area_bound(times) <= solution.metrics.cost * (1 + 1e-12)
                continue
            check_schedule(times, min(k, p), solution.schedule)
            assert solution.metrics.cost >= optimum * (1 - 1e-12), name
            if solution.lower_bound is not None:
                assert solution.lower_bound <= optimum * (1 + 1e-12), name
            if solution.proven_optimal:
                assert solution.metrics.cost == pytest.approx(optimum, rel=2e-6), name


def test_pack_approx_is_within_three_for_k_equal_p() -> None:
    rng = np.random.default_rng(3)
    worst = 0.0
    for trial in range(full(3000, 80)):
        n, p = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        times = random_times(rng, n, p, whole=trial % 2 == 0)
        worst = max(
            worst, pack_approx_literal(times, p).total_cost / search_exhaustively(times, p).total_cost
        )
    assert worst <= 3.0


def test_matching_is_optimal_for_pairs() -> None:
    rng = np.random.default_rng(4)
    for trial in range(full(1000, 30)):
        times = random_times(rng, int(rng.integers(1, 11)), int(rng.integers(2, 9)), whole=trial % 2 == 0)
        assert match_pairs(times).total_cost == pytest.approx(
            search_exhaustively(times, 2).total_cost, rel=1e-12
        )


@pytest.mark.parametrize("name", ["ilp", "cp-sat", "column-generation"])
def test_solvers_agree_with_the_optimum(name: str) -> None:
    if name == "cp-sat":
        pytest.importorskip("ortools")
    rng = np.random.default_rng(5)
    for _ in range(full(20, 4)):
        n, p = int(rng.integers(3, 7)), int(rng.integers(3, 6))
        k = int(rng.integers(2, p + 1))
        times = random_times(rng, n, p)
        optimum = search_exhaustively(times, k).total_cost
        solution = solve(times, k, name, Options(time_limit=60.0))
        assert solution.lower_bound is not None
        assert solution.lower_bound <= optimum * (1 + 1e-9)
        if name != "column-generation":
            assert solution.proven_optimal
        assert solution.metrics.cost == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize("name", ["pack-approx", "pack-by-pack-9", "contiguous", "matching", "subset-dp"])
def test_relabelling_tasks_changes_nothing(name: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        n, p = int(rng.integers(2, 12)), int(rng.integers(2, 9))
        times = random_times(rng, n, p)  # no ties, almost surely
        order = rng.permutation(n)
        before, after = solve(times, 2, name), solve(times[order], 2, name)
        assert after.metrics.cost == pytest.approx(before.metrics.cost, rel=1e-12)
        if name in ("pack-approx", "pack-by-pack-9"):  # the others may meet several optima
            assert after.metrics.packing_ratio == pytest.approx(before.metrics.packing_ratio, rel=1e-9)


def test_pack_approx_by_pack_and_list_are_blind_to_units() -> None:
    rng = np.random.default_rng(7)
    times = random_times(rng, 20, 8)
    for name in ("pack-approx", "pack-by-pack-9", "contiguous", "list"):
        assert solve(times * 1024.0, 4, name).metrics.cost == 1024.0 * solve(times, 4, name).metrics.cost


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
@settings(max_examples=full(60, 20), deadline=None, derandomize=True)
def test_bounds_hold(n: int, p: int, seed: int) -> None:
    times = random_times(np.random.default_rng(seed), n, p)
    for k in (1, 2, p):
        optimum = search_exhaustively(times, k).total_cost
        assert area_bound(times) <= optimum * (1 + 1e-12)
        assert batch_bound(times, k) <= optimum * (1 + 1e-12)


@pytest.mark.parametrize("k", [3, 4])
def test_the_gadget_of_theorem_2(k: int) -> None:
    # 3-Partition of B = 12: (2, 4, 6), (3, 4, 5), (2, 3, 7) is a solution, so that the optimum is m = 3.
    times = theorem_2([2, 4, 6, 3, 4, 5, 2, 3, 7], k)
    packing = search_exhaustively(times, k) if k == 3 else subset_dp(times, k)
    assert packing is not None
    assert packing.total_cost == 3.0
    # The first integers sum to 2 B as well, but no triple of them sums to B.
    assert search_exhaustively(theorem_2([1, 1, 1, 1, 9, 11], 3), 3).total_cost > 2.0


def test_the_subset_program_takes_twenty_tasks() -> None:
    rng = np.random.default_rng(8)
    n = full(20, 14)
    times = random_times(rng, n, 16)
    solution = solve(times, 16, "subset-dp")
    assert solution.proven_optimal
    assert solution.metrics.cost <= solve(times, 16, "contiguous").metrics.cost
