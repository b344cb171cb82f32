"""pydantic models made from the options of `dovetail.spec.jobs`: of ``[[job]]`` entries and of HTTP forms.

A model has a field for each option that its place has, under its name there; what it holds becomes a part of
a spec with `part_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, create_model
from pydantic_core import PydanticCustomError

from dovetail.files.fields import Entry, Name, make_check
from dovetail.spec import kinds
from dovetail.spec.jobs import SPEC, PartialSpec
from dovetail.spec.kinds import Kind
from dovetail.spec.option import Option
from dovetail.spec.values import MOST_INPUTS

Place: TypeAlias = Literal["http", "file"]


def annotation_of(kind: Kind) -> Any:
    """The type of a field of that kind. Raises `KeyError` for one of which each field has its own."""
    if kind.check is None:
        return _STRUCTURES[kind.name]
    return Annotated[Any, BeforeValidator(make_check(kind.check)), WithJsonSchema(dict(kind.schema))]


def form_of(
    place: Place,
    name: str,
    own: Mapping[str, Any],
    before: Mapping[str, Any] | None = None,
    only: Collection[str] | None = None,
) -> Any:
    """The model of a job in one place. ``own`` are types of fields by name, where the kind has none.

    Fields of ``before`` come first: they are no options of a job. With ``only`` it has no others than these.
    """
    fields: dict[str, Any] = dict(before or {})
    for option in SPEC:
        key = option.http if place == "http" else option.file
        if key and (only is None or option.name in only):
            kind = (option.file_kind if place == "file" else None) or option.kind
            fields[key] = (
                own[option.name] if option.name in own else _field_type(option, kind),
                _make_field(option),
            )
    return create_model(name, __base__=Entry, **fields)


def _field_type(option: Option, kind: Kind | None) -> Any:
    assert kind is not None
    found = annotation_of(kind)
    return found | None if option.default is None else found


def _make_field(option: Option) -> Any:
    default, about = option.default, option.about or None
    if isinstance(default, dict | list):
        return Field(default_factory=type(default), description=about)
    return Field(default=default, description=about)


@cache
def _names_in_place(place: Place) -> Mapping[str, str]:
    """Fields of a spec by their names in a place."""
    return {key: one.name for one in SPEC if (key := one.http if place == "http" else one.file)}


def part_of(form: Entry, place: Place) -> PartialSpec:
    """What a form gives, and only that, as a part of a spec."""
    names, values = _names_in_place(place), form.__dict__
    return {names[key]: values[key] for key in form.model_fields_set if key in names}


def option_field(name: str) -> Any:
    """A field of another entry that is an option of a job too: its default, and what the schemas print."""
    return _make_field(next(option for option in SPEC if option.name == name))


# -- what has a structure ------------------------------------------------------------------------------


def _check_input(value: object) -> float | str:
    """An input of a job: a number or a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return kinds.check_finite(value, "a text or a number")
        except ValueError as error:
            raise PydanticCustomError("dovetail", "expected {what}", {"what": str(error)}) from None
    raise PydanticCustomError("dovetail", "expected a text or a number")


def _check_input_count(value: dict[str, float | str]) -> dict[str, float | str]:
    if len(value) > MOST_INPUTS:
        raise PydanticCustomError("dovetail", f"expected at most {MOST_INPUTS} of them")
    return value


def _check_dependency(value: object) -> object:
    if kinds.is_dependency(value):
        return value
    raise PydanticCustomError("dovetail", "expected afterok:JOB, afternotok:JOB or afterany:JOB")


def _without_null(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("dovetail", "expected text without a null character")
    return value


def discriminate_forms(table: str, other: str, kind: type) -> Discriminator:
    """Separates two forms of a field; anything else is judged as the ``other`` form."""
    choose: Callable[[Any], str] = lambda value: table if isinstance(value, kind) else other  # noqa: E731
    return Discriminator(choose)


Words = Annotated[list[str], Field(min_length=1)]
Argv = Annotated[
    Annotated[str, Tag("~line")] | Annotated[Words, Tag("~words")],
    discriminate_forms("~words", "~line", list),
]
Input = Annotated[
    float | str,
    BeforeValidator(_check_input),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
Inputs = Annotated[dict[Name, Input], AfterValidator(_check_input_count)]
Env = dict[str, str]
Depends = Annotated[
    str,
    BeforeValidator(_check_dependency),
    WithJsonSchema({"type": "string", "pattern": r"^\??after(ok|notok|any|corr)?:."}),
]
Word = Annotated[str, AfterValidator(_without_null)]

_STRUCTURES: Mapping[str, Any] = {
    kinds.ARGV.name: Argv,
    kinds.COMMANDS.name: dict[Name, Argv],
    kinds.KINDS.name: list[Name],
    kinds.WORDS.name: list[Word],
    kinds.OPTIONS.name: list[str],
    kinds.INPUTS.name: Inputs,
    kinds.ENV.name: Env,
    kinds.DEPENDS.name: list[Depends],
}
