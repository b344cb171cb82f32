"""A wrong use of the command line as one sentence: what was found, what was expected, where help is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["used_wrongly"]

_EXPECTED = (
    (r"Input should be a valid integer", "a whole number"),
    (r"Input should be a valid number", "a number"),
    (r"Input should be a finite number", "a finite number"),
    (r"Input should be greater than or equal to (\S+)", r"at least \1"),
    (r"Input should be greater than (\S+)", r"more than \1"),
    (r"Input should be less than or equal to (\S+)", r"at most \1"),
    (r"Value error, .* is not one of (.+?)\.?$", r"one of \1"),
    (r"[Ff]ile .* is a directory\.?$", "a file, not a folder"),
)
"""What typer says of a value, and what a sentence of ours says was expected instead."""


def used_wrongly(error: Any, arguments: Sequence[str]) -> str:
    """The sentence about an error of typer's; ``arguments`` are those of the command line.

    Of an option with a wrong value it names the option, the value and what was expected. Whatever typer
    says beyond what is known here is passed on in its words.
    """
    expected = _expected(str(error.message))
    param = getattr(error, "param", None)
    if param is not None and expected is not None:
        names = [name for name in param.opts if name.startswith("-")]
        found = next(_values(names, arguments), None)
        where = names[0] if names else str(param.make_metavar(error.ctx))
        return f"{where}: " + ("" if found is None else f"found {found!r}, ") + f"expected {expected}"
    said = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None or said.endswith((")", "?")):  # typer's own guess at what was meant
        return said
    return f"{said} (see '{context.command_path} --help')"


def _expected(message: str) -> str | None:
    for pattern, words in _EXPECTED:
        match = re.search(pattern, message)
        if match is not None:
            return match.expand(words).replace("'", "")
    return None


def _values(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """What the command line gives an option of these names, the last first."""
    for at in reversed(range(len(arguments))):
        name, equals, value = arguments[at].partition("=")
        if name in names:
            if equals:
                yield value
            elif at + 1 < len(arguments):
                yield arguments[at + 1]
