"""Moments and durations as accounting tools print them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from dovetail.files.tables import LARGEST, Malformed
from dovetail.files.units import seconds_of

__all__ = ["duration", "unix_seconds", "wall_clock"]

PRINTED = re.compile(r"[0-9:.-]+")
DIGITS = re.compile(r"\d{1,12}", re.ASCII)


def unix_seconds(text: str) -> float:
    """Seconds since 1970 of an ISO moment or of a count of seconds. Raises `ValueError`.

    A moment without a zone is taken as it stands: differences within one log are right except across a
    change of daylight saving time.
    """
    if DIGITS.fullmatch(text):
        return float(text)
    moment = datetime.fromisoformat(text)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except OverflowError as error:
        raise ValueError(text) from error


def wall_clock(row: Mapping[str, str], field: str) -> float:
    """A column that holds a moment, as seconds. Raises `Malformed`."""
    try:
        return unix_seconds(row[field])
    except ValueError:
        raise Malformed(field, row[field], "a moment such as 2017-10-02 00:01:55") from None


def duration(text: str) -> float:
    """Seconds of ``[DAYS-][HOURS:]MINUTES:SECONDS``, or of a plain count of seconds.

    With days, hours come first: ``1-02:03`` is a day, two hours and three minutes. Raises `ValueError`.

    >>> duration("1-02:03"), duration("00:02:00"), duration("90")
    (93780.0, 120.0, 90.0)
    """
    if not PRINTED.fullmatch(text):
        raise ValueError(text)
    seconds = seconds_of(text)
    if seconds >= LARGEST:
        raise ValueError(text)
    return seconds
