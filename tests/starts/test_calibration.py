"""Intervals are corrected by what came of those before."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.starts.calibration import Calibration, log_wait, wait_of


def walk(truth: np.ndarray, spread: float) -> list[bool]:
    """Forecasts of an hour by roll-outs that are sure of it; one starts before the next is made."""
    calibration = Calibration()
    held = []
    for turn, wait in enumerate(truth.tolist()):
        now = turn * 1e6
        made = calibration.make_forecast(turn, now, log_wait(3600.0), spread)
        held.append(wait_of(made.low) <= wait <= wait_of(made.high))
        calibration.start(turn, now + wait)
    return held


@pytest.mark.parametrize("spread", [0.25, 0.5, 1.0])
def test_ninety_in_a_hundred_hold_whatever_the_roll_outs_say(spread: float) -> None:
    truth = 3600.0 * np.exp(np.random.Generator(np.random.PCG64(1)).normal(0.4, 1.0, 2000))
    assert np.mean(walk(truth, spread)[300:]) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("spread", [2.0, 4.0])
def test_roll_outs_that_are_far_too_unsure_leave_intervals_a_little_too_wide(spread: float) -> None:
    """The outcomes that are made up stay among the others, and are then far wider than the true ones."""
    truth = 3600.0 * np.exp(np.random.Generator(np.random.PCG64(1)).normal(0.4, 1.0, 2000))
    assert 0.9 < np.mean(walk(truth, spread)[300:]) < 0.95


def test_a_drift_is_followed() -> None:
    chance = np.random.Generator(np.random.PCG64(2))
    truth = 600.0 * np.exp(chance.normal(0.0, 0.5, 2000) + np.linspace(0.0, 3.0, 2000))
    held = walk(truth, 0.5)
    assert all(np.mean(part) == pytest.approx(0.9, abs=0.05) for part in np.array_split(held[100:], 4))


def test_who_still_waits_is_not_left_out() -> None:
    """Known outcomes alone are the short waits."""
    calibration = Calibration()
    for turn in range(200):
        calibration.make_forecast(turn, 0.0, log_wait(600.0), 1.0)
        if turn % 2:
            calibration.start(turn, 600.0)
    known_only = Calibration()
    for turn in range(100):
        known_only.make_forecast(turn, 0.0, log_wait(600.0), 1.0)
        known_only.start(turn, 600.0)
    high = calibration.wait_interval(36_000.0, log_wait(600.0), 1.0)[1]
    assert high > known_only.wait_interval(36_000.0, log_wait(600.0), 1.0)[1] + 1.0


def test_outcomes_of_waits_like_this_one_weigh_more() -> None:
    """Forecasts of minutes are right, those of a day are off: each keeps its own interval."""
    calibration = Calibration()
    for turn in range(300):
        now, long = turn * 1e6, turn % 2
        middle = log_wait(86_400.0 if long else 120.0)
        calibration.make_forecast(turn, now, middle, 0.5)
        calibration.start(turn, now + wait_of(middle + (turn % 10 - 5) * (0.3 if long else 0.01)))
    widths = [
        high - low
        for middle in (log_wait(120.0), log_wait(86_400.0))
        for low, high in (calibration.wait_interval(1e12, middle, 0.5),)
    ]
    assert widths[0] < 0.6 * widths[1]


def test_a_bad_week_is_forgotten() -> None:
    """Many misses widen the intervals; they do not stay wide to make up for them."""
    calibration = Calibration()
    widths = []
    for turn in range(700):
        now = turn * 1e6
        made = calibration.make_forecast(turn, now, log_wait(3600.0), 0.5)
        widths.append(made.high - made.low)
        far = 3.0 if 200 <= turn < 240 else 0.4
        calibration.start(turn, now + wait_of(log_wait(3600.0) + far * (turn % 7 - 3) / 3))
    assert max(widths[205:280]) > 1.5 * widths[199]
    assert widths[-1] < 1.2 * widths[199]


def test_calibration_goes_on_where_it_was_kept() -> None:
    import json

    one, other = Calibration(), Calibration()
    for turn in range(50):
        one.make_forecast(str(turn), turn * 100.0, log_wait(600.0), 0.5)
        if turn > 3:
            one.start(str(turn - 3), turn * 100.0)
    other.restore_state(json.loads(json.dumps(one.as_dict())))
    for calibration in (one, other):
        for turn in range(50, 80):
            calibration.make_forecast(str(turn), turn * 100.0, log_wait(600.0), 0.5)
            calibration.start(str(turn - 3), turn * 100.0)
    assert one.wait_interval(9000.0, 6.0, 0.5) == pytest.approx(other.wait_interval(9000.0, 6.0, 0.5))
    assert (one.judged, one.missed_above) == (other.judged, other.missed_above)


def test_a_job_that_never_starts_counts_for_nothing() -> None:
    calibration, other = Calibration(), Calibration()
    for one in (calibration, other):
        one.make_forecast("a", 0.0, 5.0, 1.0)
        one.start("a", 100.0)
    calibration.make_forecast("b", 1.0, 5.0, 1.0)
    calibration.drop_forecast("b")
    assert calibration.wait_interval(1e9, 5.0, 1.0) == pytest.approx(
        other.wait_interval(1e9, 5.0, 1.0), rel=0.1
    )
    assert calibration.judged == 1
