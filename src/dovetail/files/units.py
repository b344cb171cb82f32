"""Durations and sizes as people write them: ``1h30m``, ``00:10:00``, ``8GB``, ``512MiB``.

A plain number is seconds, or bytes. What is written here is read everywhere: in job files and cluster files,
and by the options of commands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress

from dovetail.errors import InputError
from dovetail.files.sentences import show_value

LONGEST = 1e12
"""Seconds; more than 30,000 years is taken for a mistake, and sums of times stay finite."""
MOST_BYTES = 10**18
DURATION = "seconds, or a duration such as 1h30m, 2d or 00:10:00"
"""What `seconds_of` reads, for sentences."""
SIZE = "bytes, or a size such as 8GB or 512MiB"
"""What `bytes_of` reads, for sentences."""

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_PLAIN = re.compile(_NUMBER)
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1, "ms": 1e-3}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(w|d|h|min|ms|m|s)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-5][0-9](?:\.[0-9]+)?)")
_DAYS_AND_HOURS = re.compile(r"([0-9]{1,6})-([0-9]{1,2})")
_BYTES = re.compile(rf"({_NUMBER}) ?([kmgtpe]?)(i?)b?", re.IGNORECASE)
_LONGEST_TEXT = 60
_BARE = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SCALED = re.compile(r"([0-9]+\.?[0-9]*)([kKMGT])(i?)B?")
_SCALE = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def seconds_of(text: str) -> float:
    """Seconds of a duration; raises `ValueError` for anything else.

    Read are a number of seconds; numbers with w, d, h, m (or min), s, ms, largest unit first;
    ``[DAYS-]HOURS:MINUTES:SECONDS``, ``MINUTES:SECONDS`` and ``DAYS-HOURS[:MINUTES]``, as Slurm has them.

    >>> seconds_of("1h30m"), seconds_of("00:10:00"), seconds_of("2-12"), seconds_of("1.5d"), seconds_of("90")
    (5400.0, 600.0, 216000.0, 129600.0, 90.0)
    """
    found = _parse_seconds(text.strip()) if len(text) <= _LONGEST_TEXT and text.isascii() else None
    if found is None or not math.isfinite(found):
        raise ValueError(f"found {text[:_LONGEST_TEXT]!r}, expected {DURATION}")
    return found


def _parse_seconds(text: str) -> float | None:
    if _PLAIN.fullmatch(text):
        return float(text)
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, hours, minutes, seconds = clock.groups()
        # Without an hour field, the first of two is hours after a day, else minutes, as in Slurm.
        if days is not None and hours is None:  # DAYS-HOURS:MINUTES
            return float(int(days) * 86400 + int(minutes) * 3600) + float(seconds) * 60
        return float(int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60) + float(seconds)
    whole = _DAYS_AND_HOURS.fullmatch(text)
    if whole is not None:
        return float(int(whole[1]) * 86400 + int(whole[2]) * 3600)
    return _of_parts(text)


def _of_parts(text: str) -> float | None:
    """``1d 2h 30m``: each unit once, the largest first."""
    total, at, below = 0.0, 0, math.inf
    while at < len(text):
        part = _PART.match(text, at)
        unit = math.inf if part is None else _SECONDS[part[2].lower()]
        # Descending units refuse "5s2h", which is more likely a mistake than a sum.
        if part is None or unit >= below:
            return None
        below = unit
        total += float(part[1]) * unit
        at = part.end()
        while at < len(text) and text[at] == " ":
            at += 1
    return total if text else None


def bytes_of(text: str) -> float:
    """Bytes of a size; raises `ValueError` for anything else. k, M, G … are 1000s, Ki, Mi, Gi … 1024s.

    >>> bytes_of("8GB"), bytes_of("512MiB"), bytes_of("4e9"), bytes_of("1.5k")
    (8000000000.0, 536870912.0, 4000000000.0, 1500.0)
    """
    match = _BYTES.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT and text.isascii() else None
    found = math.inf
    if match is not None and (match[2] or not match[3]):
        base, power = 1024.0 if match[3] else 1000.0, " kmgtpe".index(match[2].lower() or " ")
        found = float(match[1]) * math.pow(base, power)
    if not math.isfinite(found):
        raise ValueError(f"found {text[:_LONGEST_TEXT]!r}, expected {SIZE}")
    return found


def spell_duration(seconds: float) -> str:
    """A round duration in its largest whole unit, as `seconds_of` reads it.

    >>> spell_duration(7776000), spell_duration(5400), spell_duration(0.5)
    ('90d', '90m', '500ms')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    unit = next(unit for unit in ("d", "h", "m", "s") if unit == "s" or seconds % _SECONDS[unit] == 0)
    return f"{seconds / _SECONDS[unit]:g}{unit}"


def spell_size(size: float) -> str:
    """A round number of bytes in its largest whole unit, as `bytes_of` reads it.

    >>> spell_size(8_000_000), spell_size(10)
    ('8MB', '10B')
    """
    power = next(power for power in (4, 3, 2, 1, 0) if size % 1000**power == 0)
    return f"{size / 1000**power:g}{' KMGT'[power].strip()}B"


def seconds_given(value: float | str, where: str, *, above_zero: bool = False) -> float:
    """Seconds given as a number or as a duration; raises `InputError` which begins with ``where``.

    >>> seconds_given("1m", "--grace"), seconds_given(5, "grace")
    (60.0, 5.0)
    """
    return _read_given(value, where, seconds_of, DURATION, above_zero)


def bytes_given(value: float | str, where: str, *, above_zero: bool = False) -> int:
    """Bytes given as a number or as a size; raises `InputError` that begins with ``where``.

    >>> bytes_given("8g", "--memory"), bytes_given(4e9, "memory")
    (8000000000, 4000000000)
    """
    return int(_read_given(value, where, bytes_of, SIZE, above_zero))


def _read_given(
    value: float | str, where: str, read: Callable[[str], float], expected: str, above_zero: bool
) -> float:
    found = -1.0
    # Reported below, with what else may be wrong.
    with suppress(TypeError, ValueError, OverflowError):
        found = read(value) if isinstance(value, str) else float(value)
    if not 0 <= found < math.inf or (above_zero and not found) or isinstance(value, bool):
        what, rest = expected.split(",", 1)
        named = str(value) if _is_number(value) else show_value(value)
        raise InputError(f"found {named}, expected {what}{' above 0' * above_zero},{rest}", where=where)
    return found


def _is_number(value: object) -> bool:
    with suppress(ValueError):
        if isinstance(value, str):
            float(value)
        return True
    return False


def number_of(text: str) -> float | None:
    """A finite number of at least 0, also with k, M, G, T (1000) or Ki, Mi … (1024); or ``None``.

    >>> number_of("10k"), number_of("2Mi"), number_of("1e6"), number_of("ten")
    (10000.0, 2097152.0, 1000000.0, None)
    """
    if _BARE.fullmatch(text):
        value = float(text)
        return value if value < 1e300 else None
    match = _SCALED.fullmatch(text)
    if match is None or len(text) > 30:
        return None
    base = 1024.0 if match[3] else 1000.0
    return float(match[1]) * math.pow(base, _SCALE[match[2]])
