from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from three_partition import theorem_2

from dovetail.errors import InputError
from dovetail.testing.builders import full
from dovetail_lab.packing.profiles import check_times, describe_repairs, fit_times, repair_times
from dovetail_lab.packing.synthetic import (
    FORMS,
    KAPPAS,
    generate_forms,
    generate_times,
    model_times,
    set_1_like,
    set_2,
    set_3,
)


def satisfies(times: np.ndarray) -> bool:
    counts = np.arange(1, times.shape[1] + 1)
    work = counts * times
    return bool(np.all(np.diff(times) <= 0) and np.all(np.diff(work) >= -1e-8 * work[:, 1:]))


def fitted(observations: list[tuple[int, float]], processors: int) -> np.ndarray:
    return repair_times(fit_times(observations, processors)[None, :])[0][0]


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6))
@settings(max_examples=full(100, 25), deadline=None, derandomize=True)
def test_repair_gives_equations_1_and_2_and_is_stable(n: int, p: int, seed: int) -> None:
    times = np.random.default_rng(seed).uniform(0.1, 10.0, size=(n, p))
    repaired, repairs = repair_times(times)
    assert satisfies(repaired)
    changed = {found.task for found in repairs}
    assert changed == set(np.flatnonzero((repaired != times).any(axis=1)).tolist())
    again, none = repair_times(repaired)
    assert np.array_equal(again, repaired)
    assert none == []
    assert describe_repairs(none, []) is None


def test_repair_by_hand() -> None:
    repaired, repairs = repair_times(np.array([[12.0, 5.0, 5.5, 4.0]]))
    assert repaired.tolist() == [[12.0, 6.0, 5.0, 4.0]]
    (found,) = repairs
    assert (found.slower_than_fewer, found.superlinear) == (1, 1)


def test_many_repairs_are_counted() -> None:
    times = np.tile([1.0, 2.0], (8, 1))
    _, repairs = repair_times(times)
    message = describe_repairs(repairs, [f"t{i}" for i in range(8)])
    assert message is not None
    assert message.endswith("and 3 more tasks")


def test_fit_meets_the_medians_and_the_equations() -> None:
    observed = [(1, 100.0), (1, 104.0), (1, 102.0), (4, 30.0), (16, 12.0)]
    profile = fitted(observed, 16)
    assert profile[[0, 3, 15]] == pytest.approx([102.0, 30.0, 12.0])
    assert satisfies(profile[None, :])
    assert 30.0 < profile[1] < 102.0


def test_fit_recovers_an_amdahl_profile() -> None:
    truth = 20.0 + 80.0 / np.arange(1, 17)
    profile = fitted([(j, truth[j - 1]) for j in (1, 2, 8)], 16)
    assert profile == pytest.approx(truth, rel=1e-6)


def test_fit_beyond_and_below_the_measured_counts() -> None:
    profile = fitted([(2, 50.0), (4, 30.0)], 8)
    assert profile[1] == pytest.approx(50.0)
    assert profile[3] == pytest.approx(30.0)
    assert 50.0 < profile[0] <= 100.0
    assert 15.0 <= profile[7] <= 30.0


def test_one_count_gives_the_slowest_possible_profile() -> None:
    assert fitted([(2, 30.0)], 4).tolist() == [60.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("observed", [[], [(0, 1.0)], [(1, 0.0)], [(1, float("nan"))], [(-1, 2.0)]])
def test_fit_refuses(observed: list[tuple[int, float]]) -> None:
    with pytest.raises(InputError):
        fitted(observed, 4)


def test_arrays_are_checked_too() -> None:
    assert check_times(np.array([[2.0, 1.0]])).tolist() == [[2.0, 1.0]]
    with pytest.raises(InputError, match="task 0"):
        check_times(np.array([[np.nan, 1.0]]))


def test_generators() -> None:
    for make, shape in ((set_1_like, (10, 16)), (set_2, (65, 16)), (set_3, (260, 32))):
        times = make(np.random.default_rng(1))
        assert times.shape == shape
        assert satisfies(times)
        assert np.array_equal(times, make(np.random.default_rng(1)))
    ratios = []
    for spread in (1.0, 10.0, 100.0):
        first = generate_times(500, 1, np.random.default_rng(1), spread=spread, size=1.0)[0::5, 0]  # f = 0
        ratios.append(float(first.max() / first.min()))
    assert ratios == pytest.approx([1.0, 10.0, 100.0], rel=0.1)


def test_the_forms_of_the_paper() -> None:
    # 120 tasks are the 120 combinations; at spread 1 all take the same time on one processor's first core.
    times = generate_forms(120, 4, np.random.default_rng(1), spread=1.0)
    assert satisfies(times)
    assert len(np.unique(times[:, 0])) == 5 * 6  # f and the overhead; all four forms are scaled to one size
    assert FORMS["c m log2 m"](1024.0) == 10240.0
    assert FORMS["c m^3"](10.0) == 1000.0
    wide = generate_forms(120, 1, np.random.default_rng(2), spread=1000.0, scale=1e9)
    assert 100 < wide.max() / wide.min() < 1000 * 8  # the cubes span 1000, and f divides by 8 cores at most
    sixty_five = generate_forms(65, 16, np.random.default_rng(3), spread=1.0)
    assert len(np.unique(sixty_five, axis=0)) > 25


def test_the_model_by_hand() -> None:
    times = model_times(1000.0, 0.1, "(log2 q)^2", 2)
    assert times == pytest.approx([100 + 900 / 8 + 9, 100 + 900 / 16 + 16])
    assert set(KAPPAS) >= {"log2 q", "q log2 q", "(m/q) log2 q", "sqrt(m/q)", "m log2 q"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: model_times(-1.0, 0.1, "none", 4),
        lambda: model_times(1.0, 0.1, "none", 0),
        lambda: model_times(1.0, 0.1, "none", 4, size=0.0),
        lambda: generate_times(0, 4, np.random.default_rng(1)),
        lambda: generate_times(4, 4, np.random.default_rng(1), spread=0.5),
    ],
)
def test_generators_refuse(call: object) -> None:
    assert callable(call)
    with pytest.raises(InputError):
        call()


def test_the_gadget_satisfies_the_equations() -> None:
    for k in (3, 4, 5):
        times = theorem_2([2, 4, 6, 3, 4, 5], k)
        assert times.shape == (6 + 2 * (k - 3), 12 + (k - 3) * 13)
        assert satisfies(times)
