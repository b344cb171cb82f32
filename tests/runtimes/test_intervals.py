"""Student's quantile against SciPy's, and the interval of a mean."""

from __future__ import annotations

import math

import pytest

from dovetail.history.base import Aggregate
from dovetail.model import DeviceClass
from dovetail.runtimes.intervals import EXACT, LEVEL, NORMAL, of_aggregate, student_quantile


@pytest.mark.parametrize("freedom", [*range(1, 70), 99, 100, EXACT - 1, EXACT, EXACT + 1, 1000, 10**6])
def test_students_quantile_is_that_of_scipy(freedom: int) -> None:
    from scipy.special import stdtrit

    assert student_quantile(freedom) == pytest.approx(stdtrit(freedom, 0.5 + LEVEL / 2), rel=1e-12)


def test_with_much_data_the_quantile_is_the_normal_one() -> None:
    assert student_quantile(10**9) == pytest.approx(NORMAL, rel=1e-8)


def test_no_degree_of_freedom_is_refused() -> None:
    with pytest.raises(ValueError, match="found 0 degrees of freedom, expected at least 1"):
        student_quantile(0)


def test_the_interval_of_a_mean_is_that_of_one_more_run() -> None:
    found = Aggregate("a", "cpu", DeviceClass("cpu", "x"), (1, 1, 0.0), (), 3, 2.0, 1.0, 3.0, 2.0)
    prediction = of_aggregate(found, "")
    half = 2.919985580353724 * math.sqrt(1 + 1 / 3)
    assert prediction.expected == 2.0
    assert prediction.upper == pytest.approx(2 + half)
    assert prediction.lower == 0.0
