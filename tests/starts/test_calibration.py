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
        made = calibration.foretell(turn, now, log_wait(3600.0), spread)
        held.append(wait_of(made.low) <= wait <= wait_of(made.high))
        calibration.start(turn, now + wait)
    return held


@pytest.mark.parametrize("spread", [0.25, 1.0, 4.0])
def test_ninety_in_a_hundred_hold_whatever_the_roll_outs_say(spread: float) -> None:
    truth = 3600.0 * np.exp(np.random.Generator(np.random.PCG64(1)).normal(0.4, 1.0, 2000))
    assert np.mean(walk(truth, spread)[300:]) == pytest.approx(0.9, abs=0.02)


def test_a_drift_is_followed() -> None:
    chance = np.random.Generator(np.random.PCG64(2))
    truth = 600.0 * np.exp(chance.normal(0.0, 0.5, 2000) + np.linspace(0.0, 3.0, 2000))
    held = walk(truth, 0.5)
    assert all(np.mean(part) == pytest.approx(0.9, abs=0.05) for part in np.array_split(held[100:], 4))


def test_who_still_waits_is_not_left_out() -> None:
    """Known outcomes alone are the short waits."""
    calibration = Calibration()
    for turn in range(200):
        calibration.foretell(turn, 0.0, log_wait(600.0), 1.0)
        if turn % 2:
            calibration.start(turn, 600.0)
    known_only = Calibration()
    for turn in range(100):
        known_only.foretell(turn, 0.0, log_wait(600.0), 1.0)
        known_only.start(turn, 600.0)
    high = calibration.interval(36_000.0, log_wait(600.0), 1.0)[1]
    assert high > known_only.interval(36_000.0, log_wait(600.0), 1.0)[1] + 1.0


def test_a_job_that_never_starts_counts_for_nothing() -> None:
    calibration, other = Calibration(), Calibration()
    for one in (calibration, other):
        one.foretell("a", 0.0, 5.0, 1.0)
        one.start("a", 100.0)
    calibration.foretell("b", 1.0, 5.0, 1.0)
    calibration.drop("b")
    assert calibration.interval(1e9, 5.0, 1.0) == pytest.approx(other.interval(1e9, 5.0, 1.0), rel=0.1)
    assert calibration.judged == 1
