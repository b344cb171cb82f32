from __future__ import annotations

from collections.abc import Callable

import pytest

from dovetail.errors import InputError
from dovetail.model import Record, Result
from dovetail.report.intervals import (
    chance_beyond,
    compare_paired,
    group_variants,
    mean_interval,
    policy_label,
    student_quantile,
)

Make = Callable[..., Record]
Build = Callable[..., Result]


def test_interval_by_the_table_of_students_t() -> None:
    """n = 5: t(0.975, 4) = 2.776; s = sqrt(2.5)."""
    found = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0, None, float("nan")])
    assert found is not None
    assert (found.mean, found.n) == (3.0, 5)
    assert found.half_width == pytest.approx(2.7764 * 2.5**0.5 / 5**0.5, rel=1e-4)
    assert found.upper_end - found.lower_end == pytest.approx(2 * found.half_width)
    wide = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0], confidence=0.99)
    assert wide is not None
    assert wide.half_width == pytest.approx(4.6041 * 2.5**0.5 / 5**0.5, rel=1e-4)


def test_one_value_has_no_interval_and_none_is_none() -> None:
    one = mean_interval([2.0])
    assert one is not None
    assert (one.lower_end, one.upper_end, one.half_width) == (2, 2, None)
    assert mean_interval([None]) is None


def series(make_record: Make, make_result: Build, policy: str, ends: dict[int, float]) -> list[Result]:
    return [make_result([make_record("a", end=e)], policy=policy, seed=s) for s, e in ends.items()]


def test_paired_takes_the_seeds_that_both_have(make_record: Make, make_result: Build) -> None:
    a = series(make_record, make_result, "fms", {1: 10, 2: 20, 3: 30, 4: 40})
    b = series(make_record, make_result, "mct", {4: 41, 3: 33, 2: 20, 9: 1})
    found = compare_paired(a, b)
    assert (found.a, found.b) == ("fms", "mct")
    assert found.difference.mean == pytest.approx((0 - 3 - 1) / 3)
    assert (found.wins, found.ties, found.losses) == (2, 1, 0)
    assert found.ratio == pytest.approx(90 / 94)
    assert not found.is_significant
    better = compare_paired(
        series(make_record, make_result, "a", {1: 1, 2: 2.1}),
        series(make_record, make_result, "b", {1: 5, 2: 6}),
    )
    assert better.is_significant


def test_paired_refuses_what_cannot_be_paired(make_record: Make, make_result: Build) -> None:
    a = series(make_record, make_result, "fms", {1: 10})
    with pytest.raises(InputError, match="no seed has it under both"):
        compare_paired(a, series(make_record, make_result, "mct", {2: 10}))
    with pytest.raises(InputError, match="no seed"):
        compare_paired(a, [])
    with pytest.raises(InputError, match="there twice"):
        compare_paired([*a, *a], a)


def test_labels(make_result: Build) -> None:
    assert (
        policy_label(make_result([], policy="fms", options={"score": "area", "k": 2})) == "fms?score=area&k=2"
    )
    groups = group_variants([make_result([], policy=p) for p in ("b", "a", "b")])
    assert {name: len(group) for name, group in groups.items()} == {"b": 2, "a": 1}


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 10, 19, 99, 1000, 9999])
def test_students_t_is_that_of_scipy(freedom: int) -> None:
    """Without scipy `compare` says the same of two policies."""
    special = pytest.importorskip("scipy.special")
    for confidence in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
        found = student_quantile(freedom, confidence)
        assert found == pytest.approx(special.stdtrit(freedom, 0.5 + confidence / 2), rel=1e-10)
        assert chance_beyond(found, freedom) == pytest.approx(1 - confidence, rel=1e-9)
    for t in (0.0, 1e-3, 0.1, 0.9, 1.0, 1.1, 2.5, 5.0, 12.0, 100.0, 1e8):
        for beyond in (chance_beyond(t, freedom), chance_beyond(-t, freedom)):
            assert beyond == pytest.approx(2 * special.stdtr(freedom, -t), rel=1e-10, abs=1e-300)
