"""Placeholders in commands: ``{n}`` is the job's input n, ``{device}`` the device that it was given.

``{{`` and ``}}`` stand for single braces. Nothing else is interpreted: no shell, no format codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

DEVICE = "device"
"""The placeholder that stands for the device."""

# Doubled braces first, as in `str.format`: they are characters, and never the edge of a placeholder.
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_WORDS = {"gpu": "cuda"}


def device_word(kind: str) -> str:
    """What ``{device}`` becomes for an implementation of this kind.

    ``cpu``, ``cuda`` (for ``gpu`` and ``cpu+gpu``: the word that array libraries use), or the kind itself.
    """
    device = kind.removeprefix("cpu+")
    return _WORDS.get(device, device)


def placeholder_names(texts: Iterable[str]) -> list[str]:
    """Names between braces, each once, in order of appearance. Raises `ValueError` at a single brace."""
    found: dict[str, None] = {}
    for text in texts:
        for match in _TOKEN.finditer(text):
            if match[1] is not None:
                found[match[1]] = None
            elif len(match[0]) == 1:
                raise ValueError(f"a single {match[0]!r} (write {match[0] * 2!r} for the character)")
    return list(found)


def render_template(text: str, values: Mapping[str, float | str]) -> str:
    """``text`` with its placeholders filled in; whole numbers are written without a point.

    Raises `KeyError` for a placeholder that has no value.
    """

    def fill_placeholder(match: re.Match[str]) -> str:
        # `match[0][0]`: of a doubled brace the first one.
        return match[0][0] if match[1] is None else _value_text(values[match[1]])

    return _TOKEN.sub(fill_placeholder, text)


def bind_template(text: str, values: Mapping[str, str]) -> str:
    """``text`` with some placeholders filled in for good; it stays a template for the others.

    >>> bind_template("{file} {n} {{}}", {"file": "a{b"})
    'a{{b {n} {{}}'
    """

    def fill_or_keep(match: re.Match[str]) -> str:
        return escape_template(values[match[1]]) if match[1] in values else match[0]

    return _TOKEN.sub(fill_or_keep, text)


def escape_template(text: str) -> str:
    """``text`` such that rendering gives it back unchanged."""
    return text.replace("{", "{{").replace("}", "}}")


def _value_text(value: float | str) -> str:
    # Above 1e15 a float no longer holds every whole number: its digits would be made up.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
