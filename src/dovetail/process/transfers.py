"""An app's report on itself: one JSON object as the last line of its standard output.

Keys: ``bytes_to_device``, ``bytes_from_device``, and seconds either as ``transfer_seconds`` (both ways
together) or as ``seconds_to_device`` and ``seconds_from_device``. Anything else is ignored.

What a job prints comes from a stranger: it is looked at here and nowhere else, and what cannot be kept is
passed over with a note, whatever it is.
"""

from __future__ import annotations

import json

from dovetail.files.sentences import show_value
from dovetail.model import Usage

MOST_BYTES = 10**18
"""Bytes that a report may speak of: an exabyte."""
MOST_SECONDS = 1e9
"""Seconds that it may: thirty years."""
_BOUNDS = {
    "bytes_to_device": MOST_BYTES,
    "bytes_from_device": MOST_BYTES,
    "seconds_to_device": MOST_SECONDS,
    "seconds_from_device": MOST_SECONDS,
    "transfer_seconds": MOST_SECONDS,
}


def reported_usage(line: str, cpu_time: float, peak_memory: int, wall_time: float) -> tuple[Usage, str]:
    """Usage with the transfers of the line, if it reports any; and a note where they cannot be kept.

    A joint ``transfer_seconds`` is divided between the two ways by bytes, since the app measured no more.
    """
    usage = Usage(cpu_time, peak_memory, wall_time=wall_time)
    if not line.startswith("{") or not any(f'"{name}"' in line for name in _BOUNDS):
        return usage, ""
    try:
        record = json.loads(line)
        numbers = {name: _check_number(name, record[name]) for name in _BOUNDS if name in record}
    except (ValueError, RecursionError) as error:
        # Brackets within brackets exhaust the parser.
        why = str(error) if isinstance(error, _BadReportError) else "it is no JSON"
        return usage, f"what it reported of its transfers is ignored: {why}"
    sent, received = numbers.get("bytes_to_device"), numbers.get("bytes_from_device")
    sent_time, received_time = numbers.get("seconds_to_device"), numbers.get("seconds_from_device")
    both = numbers.get("transfer_seconds")
    moved = (sent or 0.0) + (received or 0.0)
    if both is not None and sent_time is None and received_time is None and moved > 0:
        sent_time, received_time = both * ((sent or 0.0) / moved), both * ((received or 0.0) / moved)
    return Usage(cpu_time, peak_memory, sent, sent_time, received, received_time, wall_time), ""


class _BadReportError(ValueError):
    """A field of a report is not what it should be; the text names what was found."""


def _check_number(name: str, value: object) -> float | None:
    if value is None:
        return None
    most = _BOUNDS[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _BadReportError(f"{name}: found {show_value(value)}, expected a number from 0 to {most:g}")
    return float(value)
