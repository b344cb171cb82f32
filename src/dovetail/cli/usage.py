"""Values of the command line, read without pydantic, and a wrong use of it as one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from dovetail.errors import InputError


def read_plainly(command: Any) -> None:
    """Have the parameters of a command of typer's read their values themselves where their types are plain.

    Typer builds an adapter of pydantic's for each parameter, which costs 40 ms where none was loaded.
    """
    for parameter in command.params:
        _set_reader(parameter)
    help_option = command.get_help_option

    def read_help_option(ctx: Any) -> Any:
        found = help_option(ctx)
        if found is not None:
            _set_reader(found)
        return found

    command.get_help_option = read_help_option


def _set_reader(parameter: Any) -> None:
    about = parameter.type_descriptor.parameter_info
    kind = parameter.type_descriptor.annotation
    inner = get_args(kind)[0] if get_origin(kind) is list else kind
    read = about.parser or _choose_reader(inner, about)
    if read is not None:
        parameter.get_runtime_param = lambda: _Plain(read, about.parser is not None)


def _choose_reader(kind: Any, about: Any) -> Callable[[str], Any] | None:
    """What reads a text; raises `ValueError` with what was expected."""
    if kind in (str, bool):
        return kind  # type: ignore[no-any-return]
    if kind in (int, float):
        return lambda text: _read_number(kind, text, about)
    if kind is Path and not about.exists and not about.resolve_path:
        return lambda text: _read_path(text, about)
    return partial(read_choice, choices=get_args(kind)) if get_origin(kind) is Literal else None


def _read_number(kind: Callable[[str], Any], text: str, about: Any) -> Any:
    try:
        found = kind(text)
    except ValueError:
        raise ValueError("a whole number" if kind is int else "a number") from None
    if about.min is not None and not found >= about.min:
        raise ValueError(f"at least {about.min}")
    if about.max is not None and not found <= about.max:
        raise ValueError(f"at most {about.max}")
    return found


def _read_path(text: str, about: Any) -> Path:
    found = Path(text)
    if not about.dir_okay and found.is_dir():
        raise ValueError("a file, not a folder")
    return found


def read_choice(text: str, choices: Sequence[str]) -> str:
    """The text, which is one of these; raises `ValueError`."""
    if text not in choices:
        raise ValueError(f"one of {', '.join(choices)}")
    return text


class _Plain:
    """Stands for typer's own reader of a parameter's value."""

    def __init__(self, read: Callable[[Any], Any], reads_all: bool) -> None:
        self._read, self._reads_all = read, reads_all

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of the parameter's type. Raises `InputError`."""
        if param.multiple or param.nargs == -1:
            return [self._read_one(one, param, ctx) for one in value or ()] or (value and [])
        return None if value is None else self._read_one(value, param, ctx)

    def _read_one(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str) and not self._reads_all:
            return value  # a default, which is of the type already
        try:
            return self._read(value)
        except ValueError as error:
            names = [name for name in param.opts if name.startswith("-")]
            where = names[0] if names else str(param.make_metavar(ctx))
            raise InputError(f"found {value!r}, expected {error}", where=where) from None


_EXTRA = re.compile(r"Got unexpected extra argument\(?s?\)? \((.*)\)")
WHOLE = {"pause": "hold", "resume": "release"}
"""Commands of the whole queue, and what does that to single jobs."""


def used_wrongly(error: Any) -> str:
    """The sentence about an error of typer's, with where help is."""
    message = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    extra = _EXTRA.fullmatch(message)
    if extra is not None and context is not None:
        of_jobs = WHOLE.get(context.info_name)
        more = "" if of_jobs is None else f"single jobs: dovetail {of_jobs} {extra[1]}; "
        return f"found {extra[1]!r}, expected nothing there ({more}see '{context.command_path} --help')"
    if context is None or message.endswith((")", "?")):  # typer's own guess at what was meant
        return message
    return f"{message} (see '{context.command_path} --help')"
