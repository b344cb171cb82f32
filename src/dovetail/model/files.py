"""Reading the files that people write: every fault becomes one sentence of an `InputError`.

A sentence names the file, the place in it (entries are counted from 1), what was found and what was
expected, for example ``jobs.toml: app 2 'mm', implementation 1 'cpu', cpus: found -3, expected a whole
number of at least 1``.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from dovetail.errors import InputError

__all__ = [
    "LONGEST",
    "NAME",
    "Bytes",
    "Entry",
    "Name",
    "Seconds",
    "closest",
    "read_text",
    "read_toml",
    "real",
    "shown",
    "validated",
    "whole",
]

LONGEST = 1e12
"""Seconds; more than 30,000 years is taken for a mistake, and sums of times stay finite."""
MOST_BYTES = 10**18

M = TypeVar("M", bound=BaseModel)


class Entry(BaseModel):
    """Base of all entries: no conversion between types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def shown(value: object) -> str:
    """A value as the sentences show it: short, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number beyond all bounds"
    if isinstance(value, Mapping):
        return "a table" if value else "an empty table"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = repr(value) if isinstance(value, str | int | float) or value is None else str(value)
    return text if len(text) <= 60 else f"{text[:40]}…{text[-12:]}"


def closest(word: str, known: Sequence[str]) -> str:
    """``, expected one of a, b; did you mean 'b'?``: the end of a sentence about an unknown word."""
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(known[:24]) + (" …" if len(known) > 24 else "")
    return f", expected one of {listed}{hint}"


# -- checks that give their own sentence ---------------------------------------------------------------


def _wrong(expected: str) -> PydanticCustomError:
    # The text is data, not a template: braces in it must not be read as fields.
    return PydanticCustomError("dovetail", "expected {expected}", {"expected": expected})


def whole(least: int = 0, most: int = 1_000_000) -> Callable[[object], object]:
    """A check for whole numbers in a range; booleans are not numbers, nor is 2.0 a whole number."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _wrong(f"a whole number of at least {least}")
        if value > most:
            raise _wrong(f"at most {most}")
        return value

    return check


def real(what: str, *, most: float = math.inf, above_zero: bool = False) -> Callable[[object], float]:
    """A check for finite numbers, 0 or more (or more than 0); ``what`` says what they measure."""

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(f"{what}, a finite number of at least 0")
        if isinstance(value, int) and value.bit_length() > 1000:  # float() would overflow
            raise _wrong(f"{what}, a finite number")
        number = float(value)
        if not math.isfinite(number) or number < 0:
            raise _wrong(f"{what}, a finite number of at least 0")
        if above_zero and not number:
            raise _wrong(f"{what}, a finite number above 0")
        if number > most:
            raise _wrong(f"{what}, at most {most:g}")
        return number

    return check


def _bytes(value: object) -> int:
    return math.ceil(real("bytes", most=MOST_BYTES)(value))


NAME = "a name: text of 1 to 200 characters, no control characters, no blanks around it"


def is_name(value: object) -> bool:
    """Whether this is what the sentences call a name."""
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value.strip() == value


def _name(value: object) -> object:
    if not is_name(value):
        raise _wrong(NAME)
    return value


Seconds = Annotated[float, Field(ge=0, le=LONGEST), BeforeValidator(real("seconds", most=LONGEST))]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES), BeforeValidator(_bytes)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), BeforeValidator(_name)]


# -- reading -------------------------------------------------------------------------------------------


def file_name(path: str | os.PathLike[str]) -> str:
    """A path as the sentences show it: on one line, whatever characters it has."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """The text of a UTF-8 file; ``expected`` says what kind of file was wanted.

    Raises `InputError` if it cannot be read, is not UTF-8, or is empty.
    """
    source = file_name(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        reason = {FileNotFoundError: "no such file", IsADirectoryError: "a directory"}.get(
            type(error), f"a file that cannot be read ({(error.strerror or str(error)).lower()})"
        )
        raise InputError(f"found {reason}, expected {expected}", where=source) from None
    except ValueError:  # a null character in the path
        raise InputError(f"found the file name {source}, expected {expected}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"line {line}: found a byte 0x{raw[error.start]:02x}, expected text in UTF-8",
            where=source,
        ) from None
    if not text.strip():
        raise InputError(f"found an empty file, expected {expected}", where=source)
    return text


def read_toml(path: str | os.PathLike[str], expected: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises `InputError` as `read_text`, and at the line of a syntax error."""
    text = read_text(path, expected)
    where = file_name(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax(str(error), text), where=where) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, hundreds of nested brackets
        raise InputError(
            "found a number or a nesting beyond all bounds, expected TOML", where=where
        ) from None
    if not data:
        raise InputError(f"found only comments, expected {expected}", where=where)
    return data


def _syntax(message: str, text: str) -> str:
    """``line 3, column 5: …`` from what tomllib says."""
    match = re.match(r"(.*) \(at (line [0-9]+, column [0-9]+)\)$", message, re.DOTALL)
    place = match[2] if match else f"line {text.rstrip().count(chr(10)) + 1}"
    fault = " ".join((match[1] if match else message.removesuffix(" (at end of document)")).split())
    if "overwrite a value" in fault or "more than once" in fault:
        return f"{place}: found a key or table a second time, expected it once"
    if fault.startswith("Expected "):
        return f"{place}: found a fault in the TOML, e{fault[1:]}"
    return f"{place}: found a fault in the TOML ({fault[:1].lower()}{fault[1:]}), expected 'key = value'"


def validated(model: type[M], data: Mapping[str, Any], source: str) -> M:
    """``data`` as ``model``. Raises `InputError` with the first fault, and the number of the others."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # An unknown key first: where one is misspelt, another may be missing.
        faults = sorted(error.errors(include_url=False), key=lambda f: f["type"] != "extra_forbidden")
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(_sentence(model, data, faults[0]) + more, where=source) from None


def _sentence(model: type[BaseModel], data: Mapping[str, Any], fault: ErrorDetails) -> str:
    # Tags of unions begin with "~" and are ours; "[key]" marks a fault in a key.
    path = [p for p in fault["loc"] if not (isinstance(p, str) and (p.startswith("~") or p == "[key]"))]
    kind, found = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        key = str(path.pop())
        return f"{_place(data, path)}found an unknown key {shown(key)}{closest(key, _fields(model, path))}"
    place = _place(data, path)
    if kind == "missing":
        return f"{place}found nothing, expected it to be given"
    if fault["loc"] and fault["loc"][-1] == "[key]":
        found = path[-1]
    expected = {
        "model_type": "a table",
        "model_attributes_type": "a table",
        "dict_type": "a table",
        "list_type": "a list",
        "string_type": "text",
        "too_short": "at least one entry",
    }.get(kind)
    if expected is None:
        message = fault["msg"]
        expected = message.removeprefix("expected ") if kind == "dovetail" else message.lower()
    return f"{place}found {shown(found)}, expected {expected}"


def _place(data: object, path: Sequence[str | int]) -> str:
    """``app 2 'mm', implementation 1 'cpu', cpus: `` for a path into the data."""
    words: list[str] = []
    for step in path:
        data = _step(data, step)
        if isinstance(step, str):
            words.append(step)
            continue
        label = data.get("id", data.get("name")) if isinstance(data, Mapping) else None
        number = f"{step + 1} {shown(label)}" if isinstance(label, str) else f"{step + 1}"
        words[-1:] = [f"{words[-1]} {number}"] if words else [number]
    return ", ".join(words) + ": " if words else ""


def _step(data: object, step: str | int) -> object:
    if isinstance(step, int):
        return data[step] if isinstance(data, list) and step < len(data) else None
    return data.get(step) if isinstance(data, Mapping) else None


def _fields(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Names of the keys that are known at this place."""
    here = model
    for step in path:
        if isinstance(step, str) and step in here.model_fields:
            here = next(_models(here.model_fields[step].annotation), here)
    return list(here.model_fields)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
