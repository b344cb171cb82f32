"""TOML: read within bounds, a fault named with its line; written one field a line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import file_name

MOST_PARTS = 64
"""Parts of a dotted key. The parser keeps every prefix of a key, so its memory grows with their square."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""'  # strings of several lines hold what looks like keys
    r"|'''.*?'''"
    r"|#[^\n]*"
    r'|(?P<part>[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<dot>[ \t]*\.[ \t]*)"
    r"|(?P<other>.)",
    re.DOTALL,
)


def read_toml(path: str | os.PathLike[str], expected: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises `InputError` as `read_text`, and at the line of a syntax error."""
    # 5 ms: only who reads a file of it waits for it.
    import tomllib

    text = read_text(path, expected)
    where = file_name(path)
    long = _long_key(text)
    if long:
        raise InputError(
            f"line {long}: found a key of more than {MOST_PARTS} parts, expected {expected}", where=where
        )
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax_place(str(error), text), where=where) from None
    except (ValueError, RecursionError):
        # A number of thousands of digits, hundreds of nested brackets.
        raise InputError(
            "found a number or a nesting beyond all bounds, expected TOML", where=where
        ) from None
    if not data:
        raise InputError(f"found only comments, expected {expected}", where=where)
    return data


def _long_key(text: str) -> int:
    """The line of the first dotted key that is too long, 0 if there is none. O(text)."""
    # Almost every file ends here, without the slow look at each token.
    if max((line.count(".") for line in text.splitlines()), default=0) < MOST_PARTS:
        return 0
    parts, joined = 0, False
    for token in _TOKEN.finditer(text):
        if token["part"] is not None:
            parts, joined = parts + 1 if joined else 1, False
            if parts > MOST_PARTS:
                return text.count("\n", 0, token.start()) + 1
        else:
            joined = token["dot"] is not None and parts > 0
            parts = parts if joined else 0
    return 0


def _syntax_place(message: str, text: str) -> str:
    """``line 3, column 5: …`` from tomllib's message."""
    match = re.match(r"(.*) \(at (line [0-9]+, column [0-9]+)\)$", message, re.DOTALL)
    place = match[2] if match else f"line {text.rstrip().count(chr(10)) + 1}"
    fault = " ".join((match[1] if match else message.removesuffix(" (at end of document)")).split())
    if "overwrite a value" in fault or "more than once" in fault:
        return f"{place}: found a key or table a second time, expected it once"
    if fault.startswith("Expected "):
        return f"{place}: found a fault in the TOML, e{fault[1:]}"
    return f"{place}: found a fault in the TOML ({fault[:1].lower()}{fault[1:]}), expected 'key = value'"


def toml_lines(values: Mapping[str, object], defaults: Mapping[str, object]) -> list[str]:
    """``key = value`` for each field, but for those that are ``None`` or what a reader takes by default."""
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return [
        f"{_toml_key(key)} = {toml_value(value)}"
        for key, value in given.items()
        if value is not None and value != defaults.get(key)
    ]


def toml_value(value: object) -> str:
    """A text, a number, a list or a table, on one line; whole numbers are written without a point.

    >>> toml_value({"n": 2.0, "a b": ["x", True]})
    '{ n = 2, "a b" = ["x", true] }'
    """
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'
    # Before numbers, since a bool is one.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f"{_toml_key(str(key))} = {toml_value(one)}" for key, one in value.items())
            + " }"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and value < 1e15 else repr(value)
    return str(value)


def _toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_value(key)
