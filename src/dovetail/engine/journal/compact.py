"""JSON in as few bytes and microseconds as possible, for what is written at every instant."""

from __future__ import annotations

import json
from typing import Any

import orjson

__all__ = ["decoded", "encoded"]

_SLOWLY = json.JSONEncoder(separators=(",", ":")).encode


def encoded(form: Any) -> bytes:
    """A form as JSON: finite numbers only; names may be bytes that are no UTF-8."""
    try:
        return orjson.dumps(form)
    except TypeError:  # lone surrogates, integers beyond 64 bits
        return _SLOWLY(form).encode()


def decoded(data: bytes) -> Any:
    """The form again. Raises `ValueError` where it is none."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)
