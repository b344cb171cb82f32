"""The paper's predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.history import MemoryHistory
from dovetail.model import DeviceClass, Run
from dovetail.runtimes.base import TINY, Query
from dovetail.runtimes.least_squares import LeastSquaresModel
from dovetail.testing.builders import full

CPU = DeviceClass("cpu")


def _run(n: float, seconds: float) -> Run:
    return Run("mm", "cpu", CPU, 1, -1, 0.0, {"n": n}, seconds)


def _ask(model: LeastSquaresModel, n: float) -> object:
    return model.ask(Query("mm", "cpu", CPU, (1, -1, 0.0), (("n", n),)))


def test_same_inputs_give_their_mean_even_off_the_line(run, ask) -> None:  # type: ignore[no-untyped-def]
    model = LeastSquaresModel(MemoryHistory([run(1.0, 1), run(2.0, 2), run(9.0, 3), run(11.0, 3)]))
    assert ask(model, {"n": 3}).expected == 10.0


def test_one_other_size_scales_in_proportion(run, ask) -> None:  # type: ignore[no-untyped-def]
    model = LeastSquaresModel(MemoryHistory([run(2.0, 100), run(4.0, 100)]))
    found = ask(model, {"n": 250})
    assert found.expected == pytest.approx(7.5)
    assert found.samples == 2
    assert found.basis == "in proportion to size 100 (2 runs)"
    assert found.lower < 7.5 < found.upper


def test_two_sizes_make_a_line_weighted_by_runs(run, ask) -> None:  # type: ignore[no-untyped-def]
    runs = [run(t, n) for n, t in ((10, 1.0), (10, 1.4), (20, 2.0), (40, 5.0), (40, 5.2), (40, 5.4))]
    model = LeastSquaresModel(MemoryHistory(runs))
    slope, intercept = np.polyfit([r.inputs["n"] for r in runs], [r.seconds for r in runs], 1)
    found = ask(model, {"n": 30})
    assert found.expected == pytest.approx(intercept + 30 * slope)
    assert found.basis == "least squares over 3 sizes (6 runs)"
    assert found.samples == 6


def test_never_negative(run, ask) -> None:  # type: ignore[no-untyped-def]
    model = LeastSquaresModel(MemoryHistory([run(1.0, 10), run(9.0, 20)]))
    found = ask(model, {"n": 1})
    assert found.expected == TINY
    assert 0 <= found.lower <= found.expected <= found.upper


def test_size_is_the_product_of_the_numbers(run, ask) -> None:  # type: ignore[no-untyped-def]
    sizes = [(10, 10), (20, 10), (5, 60)]
    runs = [run(0.5 + 0.01 * x * y, inputs={"x": x, "y": y}) for x, y in sizes]
    found = ask(LeastSquaresModel(MemoryHistory(runs)), {"x": 40, "y": 5})
    assert found.expected == pytest.approx(2.5)


def test_categories_names_and_requests_are_not_mixed(run, ask) -> None:  # type: ignore[no-untyped-def]
    runs = [run(1.0, inputs={"n": 1, "kind": "a"}), run(2.0, inputs={"n": 2, "kind": "a"})]
    model = LeastSquaresModel(MemoryHistory(runs))
    assert ask(model, {"n": 3, "kind": "a"}).expected == pytest.approx(3.0)
    assert ask(model, {"n": 3, "kind": "b"}) is None
    assert ask(model, {"n": 3}) is None
    assert ask(model, {"n": 3, "kind": "a"}, nodes=2) is None
    assert ask(model, {}) is None


sizes = st.lists(st.floats(1, 1e6), min_size=2, max_size=12)
times = st.floats(1e-6, 1e5)


@settings(deadline=None, derandomize=True, max_examples=full(100, 25))
@given(st.lists(st.tuples(st.floats(1, 1e6), times), min_size=1, max_size=12), st.floats(0.1, 1e7))
def test_interval_holds_the_expected_time_and_all_is_positive(
    pairs: list[tuple[float, float]], n: float
) -> None:
    found = _ask(LeastSquaresModel(MemoryHistory(_run(*pair) for pair in pairs)), n)
    assert found.expected > 0  # type: ignore[attr-defined]
    assert 0 <= found.lower <= found.expected <= found.upper  # type: ignore[attr-defined]


@settings(deadline=None, derandomize=True, max_examples=full(60, 20))
@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 100)), min_size=3, max_size=30))
def test_the_line_through_averages_is_that_through_all_runs(pairs: list[tuple[int, float]]) -> None:
    if len({n for n, _ in pairs}) < 2:
        return
    slope, intercept = np.polyfit([n for n, _ in pairs], [t for _, t in pairs], 1)
    found = _ask(LeastSquaresModel(MemoryHistory(_run(*pair) for pair in pairs)), 77.0)
    assert found.expected == pytest.approx(max(intercept + 77 * slope, TINY), rel=1e-6, abs=1e-6)  # type: ignore[attr-defined]
