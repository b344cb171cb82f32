"""Verdicts: each can be each, and fewer draws only open a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.claims import (
    TOLERANCE,
    Chosen,
    Claim,
    Constant,
    Verdict,
    all_of,
    as_printed,
    judge_match,
    judge_order,
    judge_reach,
    judge_readings,
)

YES, DIRECTION, NO, OPEN = Verdict.YES, Verdict.DIRECTION, Verdict.NO, Verdict.OPEN


@pytest.mark.parametrize(
    ("paper", "mean", "half", "nothing", "verdict"),
    [
        (2.08, 2.1, 0.05, 1.0, YES),
        (2.08, 1.79, 0.17, 1.0, DIRECTION),
        (2.08, 2.9, 0.1, 1.0, DIRECTION),
        (2.08, 2.036, 0.32, 1.0, OPEN),  # eight draws of ravi-single: yes to 108 % until then
        (2.08, 1.79, 0.90, 1.0, OPEN),
        (2.08, 1.05, 0.40, 1.0, OPEN),  # without the figure, and with "nothing": who knows
        (2.08, 1.02, 0.05, 1.0, NO),
        (2.08, 0.8, 0.1, 1.0, NO),
        (0.4, 0.6, 0.1, 1.0, DIRECTION),
        (0.4, 1.6, 0.1, 1.0, NO),
        (705.2, 700.0, 10.0, None, YES),
        (705.2, 984.0, 10.0, None, NO),
        (705.2, 784.0, 40.0, None, OPEN),
        (2.08, 2.08, None, 1.0, OPEN),
    ],
)
def test_a_figure_against_an_interval(
    paper: float, mean: float, half: float | None, nothing: float | None, verdict: Verdict
) -> None:
    assert judge_match(paper, Interval(mean, half, 30), nothing) is verdict
    if nothing is not None:  # the same seen in a mirror
        mirrored = Interval(2 * nothing - mean, half, 30)
        assert judge_match(2 * nothing - paper, mirrored, nothing) is verdict


@given(
    st.floats(-10, 10).filter(lambda paper: min(abs(paper), abs(paper - 1)) > 0.01),
    st.floats(-10, 10),
    st.floats(0.001, 5),
    st.floats(0.001, 5),
    st.sampled_from([0.0, 1.0]),
)
def test_fewer_draws_only_open_a_verdict(
    paper: float, mean: float, half: float, more: float, nothing: float
) -> None:
    for judge in (judge_match, judge_reach):
        narrow = judge(paper, Interval(mean, half, 30), nothing)
        wide = judge(paper, Interval(mean, half + more, 5), nothing)
        assert wide in (narrow, OPEN)


def test_more_than() -> None:
    assert judge_reach(0.8, Interval(0.9, 0.02, 10), 0.0) is YES
    assert judge_reach(0.8, Interval(0.81, 0.02, 10), 0.0) is OPEN
    assert judge_reach(0.8, Interval(0.7, 0.02, 10), 0.0) is DIRECTION
    assert judge_reach(0.8, Interval(-0.9, 0.02, 10), 0.0) is NO
    assert judge_reach(1.12, Interval(1.05, 0.02, 10), 2.2) is YES  # "within 12 %", seen from round robin
    assert judge_reach(1.12, Interval(1.18, 0.02, 10), 2.2) is DIRECTION
    assert judge_reach(0.8, None, 0.0) is OPEN


def test_differences_in_order() -> None:
    assert judge_order([Interval(1.0, 0.5, 9), Interval(2.0, 0.5, 9)]) is YES
    assert judge_order([Interval(1.0, 0.5, 9), Interval(2.0, 2.5, 9)]) is OPEN
    assert judge_order([Interval(1.0, 0.5, 9), Interval(-3.0, 2.5, 9)]) is NO
    assert judge_order([Interval(1.0, None, 1)]) is OPEN
    assert judge_order([None]) is OPEN
    assert judge_order([]) is OPEN


def test_readings_that_disagree_are_open() -> None:
    assert judge_readings({"a": YES, "b": YES}) is YES
    assert judge_readings({"a": YES, "b": DIRECTION}) is OPEN
    assert judge_readings({"a": YES, "b": NO}) is OPEN
    assert Claim("", "", "", "", OPEN, (), {"a": YES, "b": NO, "c": YES}).readings_text == "yes: a / c; no: b"


KNOWN = (TOLERANCE, Constant("pool", ("A", "B"), "which jobs", among=("A", "B")))


def test_constants_are_set_by_name() -> None:
    plain = Chosen.of(KNOWN, None)
    assert (plain.number("tolerance"), plain.all("pool")) == (0.1, ("A", "B"))
    set_one = Chosen.of(KNOWN, ["tolerance=0.5", "pool=B"])
    assert (set_one.number("tolerance"), set_one.all("pool")) == (0.5, ("B",))
    assert set_one.as_dict()["pool"] == {"values": ["B"], "about": "which jobs", "set": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tolerence=1", "--set: found 'tolerence', expected one of tolerance, pool"),
        ("tolerance", "--set: found 'tolerance', expected tolerance=VALUE"),
        ("tolerance=nan", "--set tolerance: found 'nan', expected a number of at least 0"),
        ("tolerance=-1", "--set tolerance: found '-1', expected a number of at least 0"),
        ("pool=Z", "--set pool: found 'Z', expected one of A, B"),
    ],
)
def test_what_cannot_be_set_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        Chosen.of(KNOWN, [text])
    assert str(refused.value) == said


def test_the_worst_of_several_and_figures_as_printed() -> None:
    assert all_of([YES, DIRECTION, YES]) is DIRECTION
    assert all_of([YES, OPEN, DIRECTION]) is OPEN
    assert all_of([YES, OPEN, DIRECTION, NO]) is NO
    assert as_printed(0.17, 0.1674, 2) is YES
    assert as_printed(0.17, 0.1754, 2) is NO
    assert mean_interval([1.0, 3.0]) is not None
