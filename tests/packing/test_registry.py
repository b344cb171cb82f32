from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.testing.builders import full
from dovetail_lab.packing import compiled, compiled_lists, compiled_pricing, compiled_subsets
from dovetail_lab.packing.registry import ALGORITHMS, Options, solve
from dovetail_lab.packing.schedule import Packing
from dovetail_lab.packing.synthetic import generate_times, set_2, set_3

Floats = NDArray[np.float64]


def signatures() -> dict[str, int]:
    """Signatures of every kernel so far."""
    found: dict[str, int] = {}
    for module in (compiled, compiled_lists, compiled_pricing, compiled_subsets):
        for name, value in vars(module).items():
            dispatcher: Any = value
            if hasattr(dispatcher, "signatures"):
                found[f"{module.__name__}.{name}"] = len(dispatcher.signatures)
    return found


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("ilp", "cp-sat")])
def test_kernels_are_loaded_before_the_clock_starts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail_lab.packing import registry

    size = 4 if name == "one-pack" else 12 if name in ("exhaustive", "subset-dp") else 24
    times = generate_times(size, 8, np.random.default_rng(1))
    k = 2 if name == "matching" else 4
    loaded: dict[str, int] = {}
    real = registry.load_kernels

    def load(*arguments: Any) -> None:
        real(*arguments)
        loaded.update(signatures())

    monkeypatch.setattr(registry, "load_kernels", load)
    solve(times, k, name)
    assert signatures() == loaded


@pytest.mark.parametrize(
    ("k", "name", "options", "message"),
    [
        (0, "auto", Options(), "k is 0"),
        (-3, "contiguous", Options(), "k is -3"),
        (4, "best", Options(), "not known"),
        (4, "one-pack", Options(), "at most min"),
        (3, "matching", Options(), "k = 2 only"),
        (4, "exhaustive", Options(), "at most 12 tasks"),
        (4, "subset-dp", Options(), "at most 20 tasks"),
        (4, "auto", Options(time_limit=0.0), "time limit"),
        (4, "auto", Options(time_limit=float("nan")), "time limit"),
    ],
)
def test_refusals(k: int, name: str, options: Options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        solve(set_2(np.random.default_rng(1)), k, name, options)


def test_k_above_p_counts_as_p(golden: Floats) -> None:
    assert solve(golden, 40, "auto").schedule == solve(golden, 4, "auto").schedule
    assert solve(golden[:, :2], 7, "matching").proven_optimal
    assert solve(golden[:, :1], 2, "matching").metrics.cost == golden[:, 0].sum()


def test_one_processor_and_one_task(golden: Floats) -> None:
    for name in ALGORITHMS:
        if name in ("matching", "one-pack"):
            continue
        if name == "cp-sat":
            pytest.importorskip("ortools")
        assert solve(golden[:, :1], 1, name).metrics.cost == golden[:, 0].sum(), name
        assert solve(golden[:1], 4, name).metrics.cost == 20, name


def test_the_seed_decides() -> None:
    times = set_2(np.random.default_rng(1))
    for name in ("random-pack-9", "random-proc-1", "annealing", "list"):
        first, again = solve(times, 4, name, Options(seed=3)), solve(times, 4, name, Options(seed=3))
        assert first.schedule == again.schedule
        assert solve(times, 4, name, Options(seed=4)).schedule != first.schedule


def test_random_proc_ranges() -> None:
    times = set_2(np.random.default_rng(1))
    share = solve(times, 8, "random-proc-9")
    full = solve(times, 8, "random-proc-9", Options(full_range=True))
    assert share.metrics.cost < full.metrics.cost


@pytest.mark.parametrize("name", ["auto", "column-generation", "annealing", "list"])
def test_time_limits_are_kept(name: str) -> None:
    times = generate_times(260, 32, np.random.default_rng(1))
    solve(times[:30, :8], 4, name, Options(time_limit=0.2))  # kernels
    begin = time.process_time()
    solution = solve(times, 32, name, Options(time_limit=1.0))
    # Of the CPU, whatever else the machine does: without a limit these take from 10 s to minutes.
    assert time.process_time() - begin < 8.0
    assert solution.lower_bound is None or 0 < solution.lower_bound <= solution.metrics.cost


@pytest.mark.parametrize("k", [2, 4, 8, 16])
def test_auto_is_near_its_bound(k: int) -> None:
    """Within 0.5 % of the lower bound on 65 tasks; the benchmarks take ten seeds."""
    gaps = []
    for seed in range(1, full(5, 1) + 1):
        times = set_2(np.random.default_rng(seed), spread=10.0)
        for limit in (full(6.0, 2.0), 60.0):  # on a busy machine it gets less done in a second
            solution = solve(times, k, "auto", Options(time_limit=limit))
            assert solution.gap is not None
            if solution.gap <= 0.005:
                break
        gaps.append(solution.gap)
        assert solution.metrics.cost <= solve(times, k, "pack-by-pack-9").metrics.cost
    assert np.median(gaps) <= 0.005


@pytest.mark.parametrize("k", [2, 4, 8, 16, 32])
def test_auto_is_near_its_bound_on_260_tasks(k: int) -> None:
    """It was 3 to 29 % from it at k >= 4, since the root did not converge; benchmarks ask how soon."""
    if not full(1, 0):
        pytest.skip("hundreds of tasks take a while: make test-all")
    solution = solve(set_3(np.random.default_rng(1), spread=10.0), k, "auto", Options(time_limit=20.0))
    assert solution.gap is not None
    assert solution.gap <= {2: 0.002, 4: 0.005, 8: 0.01, 16: 0.025, 32: 0.015}[k]


@pytest.mark.parametrize(("n", "p", "k"), [(18, 16, 16), (20, 16, 4), (20, 16, 16), (22, 16, 8)])
def test_auto_proves_some_twenty_tasks(n: int, p: int, k: int) -> None:
    times = generate_times(n, p, np.random.default_rng(1))
    solution = solve(times, k, "auto")
    assert solution.proven_optimal
    assert solution.lower_bound == pytest.approx(solution.metrics.cost, rel=1e-6)
    if full(1, 0) and n <= 20:
        assert solution.metrics.cost == pytest.approx(solve(times, k, "subset-dp").metrics.cost, rel=1e-9)


@pytest.mark.parametrize(("n", "p", "k"), [(10, 8, 3), (12, 12, 12), (16, 16, 8), (18, 16, 16)])
def test_cp_sat_proves_what_the_subset_program_proves(n: int, p: int, k: int) -> None:
    """The strong program alone was at 146.7 of 196.5 after 100 s on ten tasks and eight processors."""
    pytest.importorskip("ortools")
    times = generate_times(n, p, np.random.default_rng(1))
    solution = solve(times, k, "cp-sat", Options(time_limit=200.0))
    assert solution.proven_optimal
    assert solution.metrics.cost == pytest.approx(solve(times, k, "subset-dp").metrics.cost, rel=1e-6)


def test_cp_sat_beyond_a_list_has_the_bound_of_column_generation() -> None:
    pytest.importorskip("ortools")
    times = set_2(np.random.default_rng(1), spread=10.0)
    for limit in (3.0, 60.0):  # on a busy machine it gets less done in a second
        solution = solve(times, 4, "cp-sat", Options(time_limit=limit))
        assert solution.gap is not None
        if solution.gap < 0.05:
            return
    raise AssertionError(solution.gap)


def test_list_shows_the_barrier() -> None:
    times = set_2(np.random.default_rng(1), spread=10.0)
    free, packed = solve(times, 16, "list"), solve(times, 16, "contiguous")
    assert free.lower_bound is not None
    assert free.metrics.cost <= 1.03 * free.lower_bound
    assert packed.metrics.cost > 1.2 * free.metrics.cost


def test_packs_are_in_order_of_cost() -> None:
    schedule = solve(set_2(np.random.default_rng(1)), 4, "contiguous").schedule
    assert isinstance(schedule, Packing)
    assert list(schedule.pack_costs) == sorted(schedule.pack_costs)
    starts = [entry.start for entry in schedule.started()]
    assert starts == sorted(starts)
