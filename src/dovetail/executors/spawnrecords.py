"""What the records of a spawn log must be for everything that reads them to understand them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.model import State

Right = Callable[[Any], bool]


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a line of a spawn log is a record that can be worked with; of a kind unknown here, too."""
    kind = record.get("t")
    if not isinstance(kind, str):
        return False
    if kind == "end" and "error" not in record:
        kind = "measured"
    return all(right(record.get(name)) for name, right in _FIELDS.get(kind, {}).items())


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _time(value: Any) -> bool:
    return _number(value) and abs(value) <= 1e12


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _pid(value: Any) -> bool:
    return _count(value) and 1 < value < 1 << 31


def _list_of(right: Right, *, count: int | None = None) -> Right:
    def check(value: Any) -> bool:
        return isinstance(value, list) and count in (None, len(value)) and all(map(right, value))

    return check


def _maybe(right: Right) -> Right:
    return lambda value: value is None or right(value)


def _command(value: Any) -> bool:
    return bool(value) and _list_of(_text)(value)


def _inputs(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(one) or _number(one) for one in value.values())


def _status(value: Any) -> bool:
    """A wait status of a process that has ended."""
    return _count(value) and value <= 0xFFFF and (os.WIFEXITED(value) or os.WIFSIGNALED(value))


def _shared(value: Any) -> bool:
    """What the history keeps of all runs of an implementation on one place."""
    return isinstance(value, dict) and all(right(value.get(name)) for name, right in _RUN.items())


_RUN: Mapping[str, Right] = {
    "app": _text,
    "implementation": _text,
    "class": _list_of(_text, count=2),
    "nodes": _count,
    "cpus": _count,
    "gpus": _time,
}
_CLIENT: Mapping[str, Right] = {"boot_id": _text, "pid": _pid, "boot": _maybe(_time)}
_END: Mapping[str, Right] = {"uid": _text, "from": _time, "at": _time, "why": _maybe(_text)}
_FIELDS: Mapping[str, Mapping[str, Right]] = {
    "run": {**_CLIENT, "time": _time},
    "client": _CLIENT,
    "supervisor": {"pid": _pid, "boot": _time},
    "groups": {"place": _text},
    "setup": {"setup": _count, "run": _shared, "cores": _list_of(_count)},
    "environ": {"environ": _count},
    "intent": {
        "uid": _text,
        "job": _text,
        "attempt": _maybe(_count),
        "setup": _count,
        "argv": _command,
        "files": _list_of(_text, count=2),
        "inputs": _inputs,
        "walltime": _maybe(_time),
        "user": _maybe(_text),
    },
    "start": {"uid": _text, "pid": _pid, "at": _time, "boot": _time, "group": _maybe(_text)},
    "end": {**_END, "error": _text, "state": _maybe(lambda value: value in set(State))},
    "measured": {**_END, "status": _status, "cpu": _time, "rss": _count, "stop": _maybe(_text)},
}
