"""The entries of the files that people write: every fault becomes one sentence of an `InputError`.

A sentence names the file, the place in it (entries are counted from 1), what was found and what was
expected, for example ``jobs.toml: app 2 'mm', implementation 1 'cpu', cpus: found -3, expected a whole
number of at least 1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from dovetail.errors import InputError
from dovetail.files.sentences import NAME, is_name, show_value, suggest_closest
from dovetail.files.units import DURATION, LONGEST, MOST_BYTES, SIZE, bytes_of, seconds_of

M = TypeVar("M", bound=BaseModel)


class Entry(BaseModel):
    """Base of all entries: no conversion between types, no unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def default_values(form: type[Entry]) -> dict[str, Any]:
    """What each field of an entry is where a file does not give it; of those that it must give, nothing."""
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in form.model_fields.items()
        if not field.is_required()
    }


# -- checks that give their own sentence ---------------------------------------------------------------


def _make_fault(expected: str) -> PydanticCustomError:
    # The text is data, not a template: braces in it must not be read as fields.
    return PydanticCustomError("dovetail", "expected {expected}", {"expected": expected})


def make_check(check: Callable[[object], Any]) -> Callable[[object], Any]:
    """A check that raises `ValueError` with what was expected, as one whose sentence gives just that."""

    def run_check(value: object) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise _make_fault(str(error)) from None

    return run_check


def whole_number(least: int = 0, most: int = 1_000_000) -> Callable[[object], object]:
    """A check for whole numbers in a range; booleans are not numbers, nor is 2.0 a whole number."""

    def check_whole_number(value: object) -> object:
        # bool is a subclass of int: `cpus = true` must not mean 1.
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _make_fault(f"a whole number of at least {least}")
        if value > most:
            raise _make_fault(f"at most {most}")
        return value

    return check_whole_number


def real_number(what: str, *, most: float = math.inf, above_zero: bool = False) -> Callable[[object], float]:
    """A check for finite numbers, 0 or more (or more than 0); ``what`` names what they measure."""

    def check_real_number(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _make_fault(f"{what}, a finite number of at least 0")
        if isinstance(value, int) and value.bit_length() > 1000:  # float() would overflow
            raise _make_fault(f"{what}, a finite number")
        number = float(value)
        # What is kept of it could not be read back (`journal.checked`).
        if not 0 <= number < 1e300:
            raise _make_fault(f"{what}, a finite number of at least 0 and below 1e300")
        if above_zero and not number:
            raise _make_fault(f"{what}, a finite number above 0")
        if number > most:
            raise _make_fault(f"{what}, at most {most:g}")
        return number

    return check_real_number


def duration_check(*, above_zero: bool = False) -> Callable[[object], float]:
    """A check for seconds: a number, or a text such as ``1h30m`` (`dovetail.files.units`)."""
    return _in_units(seconds_of, DURATION, real_number("seconds", most=LONGEST, above_zero=above_zero))


def size_check() -> Callable[[object], float]:
    """A check for bytes: a number, or a text such as ``8GB`` (`dovetail.files.units`)."""
    return _in_units(bytes_of, SIZE, real_number("bytes", most=MOST_BYTES))


def _in_units(
    read: Callable[[str], float], expected: str, check: Callable[[object], float]
) -> Callable[[object], float]:
    def read_either(value: object) -> float:
        if not isinstance(value, str):
            return check(value)
        try:
            number = read(value)
        except ValueError:
            raise _make_fault(expected) from None
        return check(number)

    return read_either


def number_or_text(*, least: float = 0, most: float | None = None, above: bool = False) -> WithJsonSchema:
    """The JSON Schema of a number that may also be written with a unit."""
    number: dict[str, Any] = {"type": "number", "exclusiveMinimum" if above else "minimum": least}
    if most is not None:
        number["maximum"] = most
    return WithJsonSchema({"anyOf": [number, {"type": "string"}]})


_SIZE = size_check()


def _whole_bytes(value: object) -> int:
    return math.ceil(_SIZE(value))


def _check_name(value: object) -> object:
    if not is_name(value):
        raise _make_fault(NAME)
    return value


Seconds = Annotated[float, BeforeValidator(duration_check()), number_or_text(most=LONGEST)]
Bytes = Annotated[int, BeforeValidator(_whole_bytes), number_or_text(most=MOST_BYTES)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), BeforeValidator(_check_name)]


# -- validation ----------------------------------------------------------------------------------------


def validate_data(model: type[M], data: Mapping[str, Any], source: str) -> M:
    """``data`` as ``model``. Raises `InputError` with the first fault, and the number of the others."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # An unknown key first: where one is misspelt, another may be missing.
        faults = sorted(error.errors(include_url=False), key=lambda f: f["type"] != "extra_forbidden")
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(_fault_sentence(model, data, faults[0]) + more, where=source) from None


def _fault_sentence(model: type[BaseModel], data: Mapping[str, Any], fault: ErrorDetails) -> str:
    # Tags of unions begin with "~" and are ours; "[key]" marks a fault in a key.
    path = [p for p in fault["loc"] if not (isinstance(p, str) and (p.startswith("~") or p == "[key]"))]
    kind, found = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        key = str(path.pop())
        return (
            f"{_fault_place(data, path)}found an unknown key "
            f"{show_value(key)}{suggest_closest(key, _known_fields(model, path))}"
        )
    place = _fault_place(data, path)
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
    return f"{place}found {show_value(found)}, expected {expected}"


def _fault_place(data: object, path: Sequence[str | int]) -> str:
    """``app 2 'mm', implementation 1 'cpu', cpus: `` for a path into the data."""
    words: list[str] = []
    for step in path:
        data = _follow_step(data, step)
        if isinstance(step, str):
            words.append(step if is_name(step) else show_value(step))
            continue
        label = data.get("id", data.get("name")) if isinstance(data, Mapping) else None
        number = f"{step + 1} {show_value(label)}" if isinstance(label, str) else f"{step + 1}"
        words[-1:] = [f"{words[-1]} {number}"] if words else [number]
    return ", ".join(words) + ": " if words else ""


def _follow_step(data: object, step: str | int) -> object:
    if isinstance(step, int):
        return data[step] if isinstance(data, list) and step < len(data) else None
    return data.get(step) if isinstance(data, Mapping) else None


def _known_fields(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Names of the keys that are known at this place."""
    here = model
    for step in path:
        found = [field for name, field in here.model_fields.items() if step in (field.alias, name)]
        if isinstance(step, str) and found:
            here = next(_nested_models(found[0].annotation), here)
    return [field.alias or name for name, field in here.model_fields.items()]


def _nested_models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _nested_models(part)
