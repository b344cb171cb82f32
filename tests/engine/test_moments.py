"""What is on record of a job is when its process began and ended, whatever the clock of its backend is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dovetail.driver.moments import MeasuredMoments
from dovetail.engine.state.books import Books
from dovetail.model import Ended, Record, Span, State
from dovetail.testing.builders import rigid

EPOCH = 1_000_000.0
JOB = rigid([(0.0, 1, 1.0, None)]).jobs[0]


def on_record(start: float, now: float, began: float | None, ended: float | None) -> Record:
    """The record of a job that was started at ``start`` and of whose end the driver hears ``now``."""
    record = Record(JOB, State.COMPLETED, start=start, end=now)
    books = cast("Books", SimpleNamespace(records={"0": record}))
    event = Ended("0", started_at=began, ended_at=ended)
    MeasuredMoments(books).ended([event], now, EPOCH)
    return record


@pytest.mark.parametrize(
    ("began", "ended", "expected"),
    [
        (EPOCH + 1.5, EPOCH + 2.0, (1.5, 2.0)),  # the clock of this machine
        (EPOCH - 30.0, EPOCH - 29.5, (1.0, 1.5)),  # one that is behind: the run time is right
        (EPOCH + 50.0, EPOCH + 50.5, (4.5, 5.0)),  # one that is ahead
        (EPOCH + 1.5, EPOCH + 99.0, (1.0, 5.0)),  # it was set while the job ran: as long as can be
        (EPOCH + 2.0, EPOCH + 1.5, (1.5, 1.5)),  # … and back
        (None, EPOCH + 2.0, (1.0, 2.0)),
        (None, None, (1.0, 5.0)),
    ],
)
def test_moments(began: float | None, ended: float | None, expected: tuple[float, float]) -> None:
    record = on_record(1.0, 5.0, began, ended)
    assert (record.start, record.end) == pytest.approx(expected)


def test_an_attempt_that_is_followed_by_another_at_once_has_its_own_moments() -> None:
    waits: Any = Record(JOB, State.PENDING)
    waits.earlier = (Span(1.0, 5.0, cast("Any", None), cast("Any", None), State.FAILED),)
    books = cast("Books", SimpleNamespace(records={"0": waits}))
    event = Ended("0", State.FAILED, 1, started_at=EPOCH + 2, ended_at=EPOCH + 3)
    MeasuredMoments(books).ended([event], 5.0, EPOCH)
    assert (waits.earlier[0].start, waits.earlier[0].end) == (2.0, 3.0)
    assert waits.start is None
