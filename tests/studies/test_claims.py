"""Verdicts: each can be each, and fewer draws never make a yes easier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.report import Interval, interval
from dovetail_lab.claims import Verdict, all_of, as_printed, matches, ordered, reaches

YES, DIRECTION, NO, OPEN = Verdict.YES, Verdict.DIRECTION, Verdict.NO, Verdict.OPEN


@pytest.mark.parametrize(
    ("paper", "mean", "half", "nothing", "verdict"),
    [
        (2.08, 2.0, 0.1, 1.0, YES),
        (2.08, 1.79, 0.19, 1.0, DIRECTION),
        (2.08, 1.79, 0.90, 1.0, OPEN),
        (2.08, 1.05, 0.10, 1.0, NO),
        (2.08, 0.8, 0.1, 1.0, NO),
        (0.4, 0.6, 0.1, 1.0, DIRECTION),
        (0.4, 1.6, 0.1, 1.0, NO),
        (705.2, 700.0, 10.0, None, YES),
        (705.2, 984.0, 10.0, None, NO),
        (2.08, 2.08, None, 1.0, YES),
        (2.08, 2.0, None, 1.0, DIRECTION),
    ],
)
def test_a_figure_against_an_interval(
    paper: float, mean: float, half: float | None, nothing: float | None, verdict: Verdict
) -> None:
    assert matches(paper, Interval(mean, half, 30), nothing) is verdict
    if nothing is not None:  # the same seen in a mirror
        mirrored = Interval(2 * nothing - mean, half, 30)
        assert matches(2 * nothing - paper, mirrored, nothing) is verdict


@given(
    st.floats(-10, 10),
    st.floats(-10, 10),
    st.floats(0.001, 5),
    st.floats(0.001, 5),
    st.sampled_from([0.0, 1.0]),
)
def test_a_wider_interval_never_turns_another_verdict_into_yes_once_it_holds_no_effect(
    paper: float, mean: float, half: float, more: float, nothing: float
) -> None:
    narrow = matches(paper, Interval(mean, half, 30), nothing)
    wide = matches(paper, Interval(mean, half + more, 5), nothing)
    if mean - half - more <= nothing <= mean + half + more:
        assert wide in (OPEN, NO)
    elif wide is not narrow:
        assert (narrow, wide) == (DIRECTION, YES)  # the figure came into reach, and no effect is left out


def test_more_than() -> None:
    assert reaches(0.8, Interval(0.9, 0.02, 10), 0.0) is YES
    assert reaches(0.8, Interval(0.81, 0.02, 10), 0.0) is YES
    assert reaches(0.8, Interval(0.7, 0.02, 10), 0.0) is DIRECTION
    assert reaches(0.8, Interval(-0.9, 0.02, 10), 0.0) is NO
    assert reaches(1.12, Interval(1.05, 0.02, 10), 2.2) is YES  # "within 12 %", seen from round robin
    assert reaches(1.12, Interval(1.18, 0.02, 10), 2.2) is DIRECTION
    assert reaches(0.8, None, 0.0) is OPEN


def test_differences_in_order() -> None:
    assert ordered([Interval(1.0, 0.5, 9), Interval(2.0, 0.5, 9)]) is YES
    assert ordered([Interval(1.0, 0.5, 9), Interval(2.0, 2.5, 9)]) is DIRECTION
    assert ordered([Interval(1.0, 0.5, 9), Interval(-0.1, 2.5, 9)]) is NO
    assert ordered([Interval(1.0, None, 1)]) is DIRECTION
    assert ordered([None]) is OPEN
    assert ordered([]) is OPEN


def test_the_worst_of_several_and_figures_as_printed() -> None:
    assert all_of([YES, DIRECTION, YES]) is DIRECTION
    assert all_of([YES, OPEN, DIRECTION]) is OPEN
    assert all_of([YES, OPEN, DIRECTION, NO]) is NO
    assert as_printed(0.17, 0.1674, 2) is YES
    assert as_printed(0.17, 0.1754, 2) is NO
    assert interval([1.0, 3.0]) is not None
