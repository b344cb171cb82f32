"""Every kernel against its plain twin."""

from __future__ import annotations

import numpy as np
import packing_plain
import pytest
from numpy.typing import NDArray

from dovetail_lab.packing import compiled as kernels
from dovetail_lab.packing import compiled_lists, compiled_pricing, compiled_subsets

Floats = NDArray[np.float64]


def random_times(rng: np.random.Generator, n: int, p: int) -> Floats:
    """Equations 1 and 2 hold; every other instance is of whole seconds, with ties."""
    times = np.empty((n, p))
    times[:, 0] = rng.uniform(1.0, 60.0, size=n)
    for j in range(1, p):
        times[:, j] = times[:, j - 1] * (j + rng.random(n)) / (j + 1)
    if rng.random() < 0.5:
        times = np.minimum.accumulate(np.ceil(times), axis=1)
    return times


def instances(count: int, seed: int) -> list[tuple[np.random.Generator, Floats, int]]:
    rng = np.random.default_rng(seed)
    return [
        (rng, random_times(rng, int(rng.integers(1, 14)), p), int(rng.integers(1, p + 1)))
        for p in rng.integers(1, 11, size=count).tolist()
    ]


def by_first_time(times: Floats) -> NDArray[np.int64]:
    return np.argsort(-times[:, 0], kind="stable").astype(np.int64)


def groups(pack_of: NDArray[np.int64]) -> list[list[int]]:
    return [np.flatnonzero(pack_of == pack).tolist() for pack in range(int(pack_of.max()) + 1)]


def test_one_pack_and_its_cost() -> None:
    for rng, times, _ in instances(300, 1):
        n, p = times.shape
        tasks = rng.permutation(n)[:p].astype(np.int64)
        sigma, current = np.empty(len(tasks), np.int64), np.empty(len(tasks))
        cost = kernels.one_pack(times, tasks, len(tasks), sigma, current)
        expected, given = packing_plain.one_pack(times, tasks.tolist())
        assert cost == expected
        assert sigma.tolist() == given
        # From any state on the greedy path the cost is the same.
        state = np.array([1 + int((times[i] > cost * 1.3).sum()) for i in tasks], np.int64)
        assert kernels.pack_cost(times, tasks, len(tasks), np.minimum(state, p), current) == cost


def test_make_pack_pack_approx_and_pack_by_pack() -> None:
    for rng, times, k in instances(200, 2):
        n, p = times.shape
        sigma = rng.integers(1, p + 1, size=n).astype(np.int64)
        order = np.argsort(-times[np.arange(n), sigma - 1], kind="stable").astype(np.int64)
        pack_of, best = np.empty(n, np.int64), np.empty(n, np.int64)
        cost = kernels.make_pack(times, order, sigma, k, pack_of)
        expected, packs = packing_plain.make_pack(times, order.tolist(), sigma.tolist(), k)
        assert cost == pytest.approx(expected, rel=1e-12)
        assert groups(pack_of) == [sorted(pack) for pack in packs]

        cost = kernels.pack_approx(times, by_first_time(times), k, pack_of, best)
        expected, packs, given = packing_plain.pack_approx(times, k)
        assert cost == pytest.approx(expected, rel=1e-12)
        assert groups(pack_of) == [sorted(pack) for pack in packs]
        assert best.tolist() == given

        epsilon = float(rng.choice([0.1, 0.3, 0.5, 0.9]))
        cost = kernels.pack_by_pack(times, by_first_time(times), k, epsilon, pack_of)
        expected, packs = packing_plain.pack_by_pack(times, k, epsilon)
        assert cost == pytest.approx(expected, rel=1e-12)
        assert groups(pack_of) == [sorted(pack) for pack in packs]


def test_contiguous() -> None:
    for rng, times, k in instances(150, 3):
        n = times.shape[0]
        order = rng.permutation(n).astype(np.int64)
        best, cut = np.empty(n + 1), np.empty(n + 1, np.int64)
        cost = kernels.contiguous(times, order, k, best, cut)
        assert cost == pytest.approx(packing_plain.contiguous(times, order.tolist(), k)[0], rel=1e-12)


def test_insertion_gives_the_cost_of_algorithm_1() -> None:
    for rng, times, _ in instances(300, 4):
        n, p = times.shape
        tasks, sigma, lost = np.empty(p, np.int64), np.empty(p, np.int64), np.empty(p)
        level, used = 0.0, 0
        order = rng.permutation(n)[:p].tolist()
        for size, task in enumerate(order):
            level, used = kernels.insert_cost(times, tasks, size, sigma, lost, level, used, task)
            assert level == packing_plain.one_pack(times, order[: size + 1])[0]
            assert used <= p


def test_annealing_takes_the_same_moves() -> None:
    for rng, times, k in instances(25, 5):
        n = times.shape[0]
        k = min(k, n)
        start = [list(range(i, min(i + k, n))) for i in range(0, n, k)]
        members, sizes, costs = np.zeros((n, k), np.int64), np.zeros(n, np.int64), np.zeros(n)
        for b, pack in enumerate(start):
            members[b, : len(pack)], sizes[b] = pack, len(pack)
            costs[b] = packing_plain.one_pack(times, pack)[0]
        total = float(costs.sum())
        draws = rng.random((150, 4))
        best_members, best_sizes = members.copy(), sizes.copy()
        packs, best_packs, best = kernels.anneal(
            times, members, sizes, costs, len(start), draws, 3.0, 0.3, best_members, best_sizes, total
        )
        now, expected, found = packing_plain.anneal(times, k, start, draws, 3.0, 0.3)
        assert best == pytest.approx(expected, rel=1e-12)
        assert [members[b, : sizes[b]].tolist() for b in range(packs)] == now
        assert (best_packs < 0) == (found is None)
        if found is not None:
            assert [sorted(best_members[b, : best_sizes[b]].tolist()) for b in range(best_packs)] == [
                sorted(pack) for pack in found
            ]


def test_subset_program_and_partitions() -> None:
    rng = np.random.default_rng(6)
    for _ in range(12):
        n, p = int(rng.integers(1, 8)), int(rng.integers(1, 7))
        k = int(rng.integers(1, p + 1))
        times = random_times(rng, n, p)
        size = 1 << n
        costs, best, choice = np.empty(size), np.zeros(size), np.zeros(size, np.int32)
        compiled_subsets.subset_costs(times, k, costs, 0, size)
        for subset in range(1, size):
            tasks = [i for i in range(n) if subset >> i & 1]
            assert costs[subset] == (packing_plain.one_pack(times, tasks)[0] if len(tasks) <= k else np.inf)
        compiled_subsets.subset_program(costs, best, choice, 0, size - 1, 2)
        compiled_subsets.subset_program(costs, best, choice, size - 1, size, 1)
        pack_of = np.empty(n, np.int64)
        assert best[size - 1] == pytest.approx(packing_plain.subset_program(times, k), rel=1e-12)
        least = compiled_subsets.cheapest_partition(costs, n, pack_of)
        assert least == pytest.approx(packing_plain.partitions(times, k), rel=1e-12)
        filled, each = np.empty(n, np.int64), np.empty(n)
        total = kernels.fill_packs(times, pack_of, int(pack_of.max()) + 1, filled, each)
        assert total == pytest.approx(least, rel=1e-12)
        for b, pack in enumerate(groups(pack_of)):
            assert (each[b], filled[pack].tolist()) == packing_plain.one_pack(times, pack)


def test_listed_program() -> None:
    rng = np.random.default_rng(16)
    for _ in range(20):
        n = int(rng.integers(1, 7))
        count = int(rng.integers(1, 20))
        masks = np.unique(rng.integers(1, 1 << n, size=count))
        costs = rng.integers(1, 30, size=len(masks)).astype(np.float64)
        lowest = np.array([(int(mask) & -int(mask)).bit_length() - 1 for mask in masks])
        order = np.lexsort((costs, lowest))
        first = np.searchsorted(lowest[order], np.arange(n + 1)).astype(np.int64)
        best, choice = np.zeros(1 << n), np.zeros(1 << n, np.int64)
        compiled_subsets.listed_program(masks[order], costs[order], first, best, choice, 0, 1 << n, 1)
        listed = [
            (cost, frozenset(i for i in range(n) if int(mask) >> i & 1))
            for cost, mask in zip(costs.tolist(), masks.tolist(), strict=True)
        ]
        assert best[-1] == packing_plain.listed_program(n, listed)
        left, total = (1 << n) - 1, 0.0
        while left and np.isfinite(best[-1]):
            taken = order[choice[left]]
            assert masks[taken] & left == masks[taken]
            left ^= int(masks[taken])
            total += costs[taken]
        assert total == (best[-1] if np.isfinite(best[-1]) else 0.0)


def test_pricing_bounds_every_pack() -> None:
    rng = np.random.default_rng(7)
    for trial in range(50):
        n, p = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        k = int(rng.integers(1, p + 1))
        times = random_times(rng, n, p)
        prices = np.maximum(rng.uniform(-5.0, 30.0, size=n), 0.0)
        if prices.max() == 0.0:
            continue
        levels = np.unique(times)
        # Steps of a branching put prices of either sign on all levels from theirs on.
        extra = np.zeros(len(levels))
        for _ in range(trial % 4):
            extra[int(rng.integers(len(levels))) :] += rng.uniform(-40.0, 40.0)
        exact = packing_plain.best_ratio(times, prices, k, extra)
        by_price = np.argsort(-prices, kind="stable").astype(np.int64)
        for share, most in ((1.0, len(levels)), (0.5, len(levels)), (0.5, min(3, len(levels)))):
            visited, values = np.empty(most, np.int64), np.empty(most)
            ratio, looked = compiled_pricing.best_ratio(
                times, levels, prices, extra, by_price, k, share, most, visited, values
            )
            assert ratio >= exact - 1e-12 * abs(exact)
            if share == 1.0 and exact > 1.0:
                assert ratio == pytest.approx(exact, rel=1e-12)
            column = np.empty(k, np.int64)
            for r in range(looked):
                level = float(levels[visited[r]])
                size = compiled_pricing.best_column(times, level, prices, by_price, k, column)
                pack = column[:size].tolist()
                assert len(set(pack)) == size <= k
                worth = (prices[pack].sum() + extra[visited[r]]) / level
                assert worth == pytest.approx(values[r], rel=1e-12, abs=1e-12)
                assert packing_plain.one_pack(times, pack)[0] <= level


def test_list_schedules() -> None:
    for rng, times, _ in instances(150, 8):
        n, p = times.shape
        sigma = rng.integers(1, p + 1, size=n).astype(np.int64)
        order = rng.permutation(n).astype(np.int64)
        starts = np.empty(n)
        makespan = compiled_lists.list_schedule(times, sigma, order, starts, np.inf)
        expected, begins = packing_plain.list_schedule(times, sigma.tolist(), order.tolist())
        assert makespan == expected
        assert starts.tolist() == begins
        assert compiled_lists.list_schedule(times, sigma, order, starts, makespan) == np.inf


def test_list_annealing_takes_the_same_moves() -> None:
    for rng, times, _ in instances(25, 9):
        n, p = times.shape
        sigma = rng.integers(1, p + 1, size=n).astype(np.int64)
        order = rng.permutation(n).astype(np.int64)
        makespan, _ = packing_plain.list_schedule(times, sigma.tolist(), order.tolist())
        draws = rng.random((150, 4))
        expected = packing_plain.anneal_list(times, order.tolist(), sigma.tolist(), draws, 3.0, 0.3)
        best_order, best_sigma = order.copy(), sigma.copy()
        _, best = compiled_lists.anneal_list(
            times, order.copy(), sigma.copy(), makespan, draws, 3.0, 0.3, best_order, best_sigma, makespan
        )
        assert (best, best_order.tolist(), best_sigma.tolist()) == expected
