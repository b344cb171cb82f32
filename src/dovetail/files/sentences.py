"""How the sentences of errors show what was found, where, and what may have been meant."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

NAME = "a name: text of 1 to 200 characters, no control characters, no blanks around it"


def is_name(value: object) -> bool:
    """Whether this is what the sentences call a name."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value.strip() == value


LISTED = 40
"""So many known words a sentence lists."""


def show_value(value: object, *, limit: int = 60, spell: Callable[[object], str] = repr) -> str:
    """A value as the sentences show it: on one line, nothing unprintable, cut to a length that fits.

    ``spell=ascii`` also shows which letters and digits only look like others.

    >>> show_value("a\\n"), show_value(True), show_value({"a": 1}), show_value("x" * 99, limit=5)
    ("'a\\\\n'", 'true', 'a table', "'xxxx… (99 characters)")
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number beyond all bounds"
    if isinstance(value, Mapping):
        return "a table" if value else "an empty table"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, str | bytes):
        head = spell(value[: limit + 1])
        return head if len(value) <= limit >= len(head) else f"{head[:limit]}… ({len(value)} characters)"
    text = repr(value) if isinstance(value, int | float) or value is None else ascii(str(value))[1:-1]
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def suggest_closest(word: str, known: Iterable[str]) -> str:
    """``, expected one of a, b; did you mean 'b'?``: the end of a sentence about an unknown word.

    >>> suggest_closest("esay", ["easy", "fcfs"])
    ", expected one of easy, fcfs; did you mean 'easy'?"
    """
    words = list(known)
    # Only a wrong word waits for it.
    import difflib

    near = difflib.get_close_matches(word, words, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(words[:LISTED]) + (" …" if len(words) > LISTED else "")
    return f", expected one of {listed}{hint}"


def make_printable(text: str) -> str:
    """Names as they are, control characters as ``?``: no name moves the cursor or breaks a row."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def spell_bytes(text: str) -> str:
    r"""A text whose bytes that are no UTF-8 are spelt out, for files that hold characters alone.

    >>> spell_bytes("caf\udce9")
    'caf\\xe9'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def file_name(path: str | os.PathLike[str]) -> str:
    """A path as the sentences show it: on one line, whatever characters it has."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def error_reason(error: OSError | ValueError) -> str:
    """Why the system refused, in its own words, for the middle of a sentence.

    >>> error_reason(FileNotFoundError(2, "No such file or directory"))
    'no such file or directory'
    """
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]
