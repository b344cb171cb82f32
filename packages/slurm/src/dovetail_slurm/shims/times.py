"""Times and lengths of time as Slurm writes and reads them."""

from __future__ import annotations

import re
import time

_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)
_DATE = re.compile(r"(\d{1,2})[/.](\d{1,2})(?:[/.](\d{2,4}))?(?:-(\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(am|pm)?", re.ASCII | re.IGNORECASE)
_NOW = re.compile(r"now(?:\s*([+-])\s*(\d+)\s*([a-z]*))?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


def format_moment(when: float | None, unknown: str = "Unknown") -> str:
    """``2030-01-20T12:34:56`` in local time."""
    return unknown if when is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(when))


def format_short(seconds: float) -> str:
    """As squeue: ``0:02``, ``1:00:00``, ``2-03:04:05``."""
    total = max(0, int(seconds))
    days, rest = divmod(total, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def format_full(seconds: float) -> str:
    """As sacct and scontrol: ``00:10:00``, ``2-03:04:05``."""
    days, rest = divmod(max(0, int(seconds)), 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def format_cpu_time(seconds: float | None) -> str:
    """CPU time as sacct: ``00:01.234`` below an hour, then as `format_full`."""
    if seconds is None:
        return "00:00:00"
    if seconds >= 3600:
        return format_full(seconds)
    return f"{int(seconds) // 60:02d}:{seconds % 60:06.3f}"


def parse_moment(text: str, now: float | None = None) -> float:
    """Seconds since the epoch of ``now-2days``, ``2030-01-20T12:34``, ``16:00``, ``midnight``, ``0120``.

    Raises `ValueError`.
    """
    now = time.time() if now is None else now
    bare = text.strip()
    if match := _NOW.fullmatch(bare):
        unit = (match[3] or "").lower().rstrip("s") if match[3] else ""
        near = [seconds for name, seconds in _UNITS.items() if name.startswith(unit)] if unit else [1]
        if not near:
            raise ValueError(text)
        return now + (-1 if match[1] == "-" else 1) * int(match[2] or 0) * near[0]
    today = time.localtime(now)
    named = {"midnight": (0, 0), "noon": (12, 0), "teatime": (16, 0), "elevenses": (11, 0)}
    if bare.lower() in named:
        hour, minute = named[bare.lower()]
        return time.mktime((*today[:3], hour, minute, 0, 0, 0, -1))
    if bare.lower() in ("today", "tomorrow", "yesterday"):
        day = {"today": 0, "tomorrow": 1, "yesterday": -1}[bare.lower()]
        return time.mktime((today.tm_year, today.tm_mon, today.tm_mday + day, 0, 0, 0, 0, 0, -1))
    if match := _ISO.fullmatch(bare):
        parts = [int(part or 0) for part in match.groups()]
        return time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]
    if match := _DATE.fullmatch(bare):
        month, mday, named_year, *rest = match.groups()
        year = (
            today.tm_year if named_year is None else int(named_year) + (2000 if len(named_year) == 2 else 0)
        )
        hour, minute, second = (int(part or 0) for part in rest)
        return time.mktime((year, int(month), int(mday), hour, minute, second, 0, 0, -1))
    if re.fullmatch(r"\d{4}|\d{6}", bare, re.ASCII):
        year = today.tm_year if len(bare) == 4 else 2000 + int(bare[4:])
        return time.mktime((year, int(bare[:2]), int(bare[2:4]), 0, 0, 0, 0, 0, -1))
    if match := _CLOCK.fullmatch(bare):
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        hour = hour % 12 + (12 if match[4].lower() == "pm" else 0) if match[4] else hour
        return time.mktime((*today[:3], hour, minute, second, 0, 0, -1))
    raise ValueError(text)
