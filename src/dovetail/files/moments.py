"""When a job may begin: the forms of ``--begin`` that sbatch takes.

A text is read from left to right as sbatch does (Slurm 22.05, ``src/common/parse_time.c``): a day, a time
of day, each once and in any order, with blanks, ``-`` or ``T`` between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_NAMED = {"midnight": time(0), "noon": time(12), "fika": time(15), "teatime": time(16)}
_EPOCH = re.compile(r"uts(\d{7,12})", re.ASCII)
_GAP = re.compile(r"[\s\-t]")
_NOW = re.compile(r"now(?:\s*([+-])\s*(\d{1,9})\s*([a-z]*))?(?!\s*[+-])", re.ASCII)
_DAY = re.compile(r"today|tomorrow")
_NAME = re.compile("|".join(_NAMED))
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap]m)?", re.ASCII)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{1,2})(?!\d)", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})[/.](\d{1,2})(?:[/.](\d{2}))?(?![\d/.])", re.ASCII)
_RUN = re.compile(r"(\d{2})(\d{2})(\d{2})?(?!\d)", re.ASCII)
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
        if match := _EPOCH.fullmatch(words):
            return datetime.fromtimestamp(int(match[1]), now.tzinfo)
        return _Moment(now).read(words)
    except (ValueError, OverflowError):
        # A 30th of February, an hour of 25.
        raise ValueError(EXPECTED) from None


@dataclass
class _Moment:
    """What has been read of a moment: its day (``month_day``: one without a year), its time, or all of it."""

    now: datetime
    day: date | None = None
    month_day: tuple[int, int] | None = None
    clock: time | None = None

    def read(self, words: str) -> datetime:
        """The moment of a text. Raises `ValueError`."""
        # In this order: "now" is no day, a day's name begins with a "t" as gaps do, and 2030-01-20 with 2030.
        parts: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = (
            (_NOW, self._take_later),
            (_DAY, self._take_day),
            (_NAME, lambda match: self._set_clock(_NAMED[match[0]])),
            (_CLOCK, lambda match: self._set_clock(_clock_of(match))),
            (_ISO, lambda match: self._set_day(date(*map(int, match.groups())))),
            (_SLASHED, self._take_date),
            (_RUN, self._take_date),
            (_GAP, lambda match: None),
        )
        at = 0
        while at < len(words):
            for pattern, take in parts:
                if match := pattern.match(words, at):
                    take(match)
                    at = match.end()
                    break
            else:
                raise ValueError(words)
        return self._moment()

    def _set_clock(self, clock: time) -> None:
        if self.clock is not None:
            raise ValueError("two times of day")
        self.clock = clock

    def _set_day(self, day: date) -> None:
        if self.day is not None or self.month_day is not None:
            raise ValueError("two days")
        self.day = day

    def _take_later(self, match: re.Match[str]) -> None:
        moment = self.now
        if match[1] is not None:
            unit = 1 if not match[3] else _UNITS[match[3].removesuffix("s")] if match[3] in _PLURALS else 0
            if not unit:
                raise ValueError(match[3])
            moment += timedelta(seconds=int(match[2]) * unit * (-1 if match[1] == "-" else 1))
        self._set_day(moment.date())
        self._set_clock(moment.time())

    def _take_day(self, match: re.Match[str]) -> None:
        self._set_day(self.now.date() + timedelta(days=match[0] == "tomorrow"))

    def _take_date(self, match: re.Match[str]) -> None:
        month, day, year = int(match[1]), int(match[2]), match[3]
        if year is not None:
            self._set_day(date(2000 + int(year), month, day))
            return
        self._set_day(date(self.now.year, month, day))
        self.day, self.month_day = None, (month, day)

    def _moment(self) -> datetime:
        """The next moment that fits. Slurm compares whole minutes: a day or year goes over in that of now."""
        now, clock = self.now, self.clock
        if self.month_day is not None:
            at = clock or time(0)
            is_later = (*self.month_day, at.hour, at.minute) > (now.month, now.day, now.hour, now.minute)
            day = date(now.year + (not is_later), *self.month_day)
        elif self.day is not None:
            day = self.day
        elif clock is not None:
            is_later = (clock.hour, clock.minute) > (now.hour, now.minute)
            day = now.date() + timedelta(days=not is_later)
        else:
            raise ValueError("neither day nor time")
        return datetime.combine(day, clock or time(0), now.tzinfo)


_PLURALS = {*_UNITS, *(f"{unit}s" for unit in _UNITS)}


def _clock_of(match: re.Match[str]) -> time:
    hour = int(match[1])
    if match[4]:
        if hour > 12:
            raise ValueError(match[0])
        hour = hour % 12 + (12 if match[4] == "pm" else 0)
    return time(hour, int(match[2]), int(match[3] or 0))
