"""Formulas: what they say gives the times they were learned from."""

from __future__ import annotations

import math

import pytest
from made_up_apps import CPU, LAWS, run

from dovetail.history import MemoryHistory
from dovetail.runtimes.base import Query
from dovetail.runtimes.describe import law_formula, law_shares
from dovetail.runtimes.evaluation import held_out
from dovetail.runtimes.learned import LearnedModel


def value(text: str, n: float) -> float:
    """The formula evaluated."""
    text = text.replace("(n ln n)", f"({n} * log({n}))").replace("^", "**")
    return float(eval(text, {"n": n, "log": math.log}))


@pytest.mark.parametrize("name", LAWS)
def test_formula_gives_the_predictions(name: str) -> None:
    sizes = [100.0, 300.0, 900.0, 2700.0, 8100.0]
    law = LAWS[name]
    runs = [run(law(n) / law(8100.0) + 0.02, {"n": n}) for n in sizes]
    model = LearnedModel(MemoryHistory(runs))
    fit = model.fit(Query("mm", "cpu", CPU, (1, -1, 0.0), (("n", 500.0),)))
    assert fit is not None
    for surface in fit.surfaces:
        if surface.amplitude == 0:
            row = fit.design.design_row((1, -1, 0.0), (("n", 500.0),))
            if surface.law.log_size:
                continue
            expected = math.exp(float(surface.law.at(row[None])[0][0]))
            assert value(law_formula(fit, surface), 500.0) == pytest.approx(expected, rel=0.02)
    assert sum(share for _, share in law_shares(fit)) == pytest.approx(1.0)
    actual = law(500.0) / law(8100.0) + 0.02
    assert value(law_formula(fit), 500.0) == pytest.approx(actual, rel=0.1)


def test_held_out_errors_of_an_exact_line() -> None:
    runs = [run(1.0 + 0.1 * n, {"n": n}) for n in (1.0, 2.0, 4.0, 8.0, 16.0) for _ in range(2)]
    history = MemoryHistory(runs)
    rows = held_out(history, "mm", ["mean", "least-squares", "learned"], [("cpu", CPU)])
    mean, line, learned = rows
    assert (mean.model, mean.unpredicted, list(mean.errors)) == ("mean", 10, [])
    assert math.isnan(mean.median_error)
    assert line.median_error < 1e-9
    assert learned.median_error < 0.05
    assert len(learned.errors) == 10
    assert held_out(history, "mm", ["mean"], [("gpu", CPU)]) == []
