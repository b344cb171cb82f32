"""A long instant is a warning with its cause; a short one costs next to nothing, and none wakes anything."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from dovetail.model import Cancelled, Woken
from dovetail.running import watchdog
from dovetail.running.watchdog import Watchdog


def compute_for_long(found: Watchdog, seconds: float) -> None:
    """What an instant may be lost in: so long, and until it was looked at while it was long already."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not found._seen:
        sum(range(100))


def test_a_long_instant_is_a_warning_with_what_it_took_in_and_where(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LOOK", 0.02)
    found = Watchdog(long=0.3)
    with caplog.at_level(logging.WARNING):
        found.begin_instant()
        compute_for_long(found, 0.6)
        found.end([Cancelled("a"), Cancelled("b"), Woken()])
    found.close()
    (record,) = caplog.records
    assert "in which nothing was answered; it took in 2 Cancelled, 1 Woken; " in record.getMessage()
    assert "% in compute_for_long (test_watchdog.py:" in record.getMessage()
    assert found.longest >= 0.6


def test_short_instants_are_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    found = Watchdog(long=1000.0)
    for _ in range(1000):
        found.begin_instant()
        found.end([])
    found.close()
    assert not caplog.records
    assert not [one for one in threading.enumerate() if one.name == "watchdog"]


def test_it_sleeps_where_no_instant_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "IDLE", 0.0)
    monkeypatch.setattr(watchdog, "LOOK", 0.001)
    found = Watchdog()
    found.begin_instant()
    found.end([])
    deadline = time.monotonic() + 60
    looks = -1
    while looks != (looks := found.looks) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert looks == found.looks, "nothing wakes it"
    found.begin_instant()
    found.end([])
    while found.looks == looks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found.close()
