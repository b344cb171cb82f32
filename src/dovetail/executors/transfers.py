"""What an app says of itself: one JSON object as the last line of its standard output.

Keys: ``bytes_to_device``, ``bytes_from_device``, and seconds either as ``transfer_seconds`` (both ways
together) or as ``seconds_to_device`` and ``seconds_from_device``. Anything else is ignored.
"""

from __future__ import annotations

import json
import math

from dovetail.model import Usage

__all__ = ["reported"]


def reported(line: str, cpu_time: float, peak_memory: int, wall_time: float) -> Usage:
    """Usage with the transfers of the line, if it reports any.

    A joint ``transfer_seconds`` is divided between the two ways by bytes, since the app measured no more.
    """
    usage = Usage(cpu_time, peak_memory, wall_time=wall_time)
    if not line.startswith("{") or "device" not in line:
        return usage
    try:
        said = json.loads(line)
    except ValueError:
        return usage
    if not isinstance(said, dict):
        return usage
    sent, received = _number(said.get("bytes_to_device")), _number(said.get("bytes_from_device"))
    sent_time, received_time = (
        _number(said.get("seconds_to_device")),
        _number(said.get("seconds_from_device")),
    )
    both = _number(said.get("transfer_seconds"))
    moved = (sent or 0.0) + (received or 0.0)
    if both is not None and sent_time is None and received_time is None and moved > 0:
        sent_time, received_time = both * (sent or 0.0) / moved, both * (received or 0.0) / moved
    return Usage(cpu_time, peak_memory, sent, sent_time, received, received_time, wall_time)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
