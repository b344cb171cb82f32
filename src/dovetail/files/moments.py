"""When a job may begin: the forms of ``--begin`` that sbatch takes."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_LATER = re.compile(r"now(?:\s*([+-])\s*(\d{1,9})\s*([a-z]*))?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap]m)?", re.ASCII)
_NAMED = {"midnight": time(0), "noon": time(12), "fika": time(15), "teatime": time(16)}
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[t ](.+))?", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})(?:[/.](\d{2}|\d{4}))?(?:[- t](.+))?", re.ASCII)
_RUN = re.compile(r"(\d{2})(\d{2})(\d{2})?", re.ASCII)
EXPECTED = "a moment such as now+1hour, 16:00, tomorrow or 2030-01-20T12:34:00"


def parse_begin(text: str, now: datetime) -> datetime:
    """The moment that ``--begin`` means, in the zone of ``now``. Raises `ValueError` with what is expected.

    A time of day that is past is tomorrow's, a date without a year that is past is next year's.

    >>> noon = datetime(2026, 3, 4, 12)
    >>> str(parse_begin("now+2hours", noon)), str(parse_begin("11:30", noon)), str(parse_begin("03/01", noon))
    ('2026-03-04 14:00:00', '2026-03-05 11:30:00', '2027-03-01 00:00:00')
    """
    words = text.strip().lower()
    try:
        # In this order: "now" is no day, and a day's name no date.
        found = _moment_later(words, now) or _of_day(words, now) or _of_date(words, now)
    except (ValueError, OverflowError):
        # A 30th of February, an hour of 25.
        found = None
    if found is None:
        raise ValueError(EXPECTED)
    return found


def _moment_later(words: str, now: datetime) -> datetime | None:
    match = _LATER.fullmatch(words)
    if match is None:
        return None
    if match[1] is None:
        return now
    unit = 1 if not match[3] else _UNITS.get(match[3].removesuffix("s"))
    if unit is None:
        return None
    return now + timedelta(seconds=int(match[2]) * unit * (-1 if match[1] == "-" else 1))


def _of_day(words: str, now: datetime) -> datetime | None:
    """A time of day, or ``today`` and ``tomorrow`` with or without one."""
    day, _, rest = words.partition(" ")
    if day in ("today", "tomorrow"):
        clock = _parse_clock(rest.strip()) if rest.strip() else (now.time() if day == "today" else time(0))
        if clock is None:
            return None
        return _combine_moment(now.date() + timedelta(days=day == "tomorrow"), clock, now)
    clock = _parse_clock(words)
    if clock is None:
        return None
    found = _combine_moment(now.date(), clock, now)
    return found if found > now else _combine_moment(now.date() + timedelta(days=1), clock, now)


def _of_date(words: str, now: datetime) -> datetime | None:
    if match := _ISO.fullmatch(words):
        day = date(int(match[1]), int(match[2]), int(match[3]))
        rest: str | None = match[4]
        return _moment_on_day(day, rest, now)
    match = _SLASHED.fullmatch(words)
    if match is None and (run := _RUN.fullmatch(words)):
        match = _SLASHED.fullmatch("/".join(part for part in run.groups() if part))
    if match is None:
        return None
    month, number, year, rest = int(match[1]), int(match[2]), match[3], match[4]
    if year is not None:
        return _moment_on_day(
            date(int(year) if len(year) == 4 else 2000 + int(year), month, number), rest, now
        )
    found = _moment_on_day(date(now.year, month, number), rest, now)
    if found is None or found >= now:
        return found
    return _moment_on_day(date(now.year + 1, month, number), rest, now)


def _moment_on_day(day: date, clock: str | None, now: datetime) -> datetime | None:
    at = time(0) if clock is None else _parse_clock(clock.strip())
    return None if at is None else _combine_moment(day, at, now)


def _parse_clock(words: str) -> time | None:
    if words in _NAMED:
        return _NAMED[words]
    match = _CLOCK.fullmatch(words)
    if match is None:
        return None
    hour = int(match[1])
    if match[4]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return time(hour, int(match[2]), int(match[3] or 0))


def _combine_moment(day: date, clock: time, now: datetime) -> datetime:
    return datetime.combine(day, clock, now.tzinfo)
