"""Whether what was read from a file fits its dataclass: field by field, before anything uses it.

Our own files come back from disks, mails and editors. A dataclass takes whatever it is given, so a text where
a number belongs would be found out far from here. Integers pass for floats; numbers are finite, and an
integer that is no mask of nodes has at most 63 bits.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from dovetail.model import Adopted, App, Choice, Implementation, Launch, Part, Plan, Request, Sizing
from dovetail.model.node import Nodes

T = TypeVar("T")

DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What taking apart a damaged form can raise."""

_SHARED = (App,)
"""What many others have in common: checked where it is made, not where it is named."""
_OFTEN = (Choice, Implementation, Launch, Request, Sizing)
"""What many have in common, too, and each names: remembered, so that it is checked once."""
_MOST_KNOWN = 4096
_known: dict[int, object] = {}  # by identity, which what is kept here secures
_ENDLESS: Mapping[type, tuple[str, ...]] = {Plan: ("objective", "bound", "seconds"), Adopted: ("limit",)}
"""Numbers that may be infinite: of what nothing is known."""
_Right = Callable[[Any], bool]


def check_fields(made: T) -> T:
    """The same object. Raises `ValueError` naming the first field that is not of its class's type."""
    kind: type = type(made)
    _check_of(kind)(made)
    return made


@cache
def _check_of(kind: type) -> Callable[[Any], None]:
    """A function that looks at all fields of a class; compiled, as a ledger may hold 100,000 jobs."""
    hints = typing.get_type_hints(kind)
    defaults: Mapping[str, object]
    if dataclasses.is_dataclass(kind):
        defaults = {field.name: field.default for field in dataclasses.fields(kind) if field.init}
    else:
        defaults = dict.fromkeys(kind._fields, dataclasses.MISSING)  # type: ignore[attr-defined]
    needs: dict[str, object] = {"wrong": _raise_wrong_field}
    text = "def check(made):\n pass\n"
    for at, (name, default) in enumerate(defaults.items()):
        right, fine = _make_check(hints[name]), _quick_test(hints[name], needs)
        if name in _ENDLESS.get(kind, ()):
            right = _any_number
        elif kind is Part and name == "nodes":
            right, fine = _is_node_mask, "False"
        needs |= {f"default{at}": default, f"right{at}": right}
        text += f" value = made.{name}\n"
        text += (
            f" if not ({fine} or value is default{at} or right{at}(value)): wrong(made, {name!r}, value)\n"
        )
    exec(text, needs)
    return needs["check"]  # type: ignore[return-value]


def _raise_wrong_field(made: object, name: str, value: object) -> None:
    raise ValueError(f"{type(made).__name__} whose {name} is {value!r:.60}")


def _quick_test(hint: Any, needs: dict[str, object]) -> str:
    """An expression that is soon tested and true of no wrong value; ``needs`` gets the classes in it."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_quick_test(one, needs) for one in typing.get_args(hint))
    if hint is None or hint is type(None):
        return "value is None"
    if hint is float:
        return "value.__class__ is float and -1e300 < value < 1e300"
    if hint is int:
        return f"value.__class__ is int and {-1 << 63} < value < {1 << 63}"
    if isinstance(hint, type) and (hint in (str, bool, bytes, *_SHARED) or issubclass(hint, Enum)):
        needs[hint.__name__] = hint
        return f"value.__class__ is {hint.__name__}"
    return "False"


def _any_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and not math.isnan(value))


def _is_node_mask(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << (1 << 20)


@cache
def _make_check(hint: Any) -> _Right:
    """The check of one type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        rights = tuple(_make_check(argument) for argument in arguments if argument is not type(None))
        if len(rights) == 1 < len(arguments):
            (only,) = rights
            return lambda value: value is None or only(value)
        first, *rest = map(_make_check, arguments)
        return lambda value: first(value) or any(right(value) for right in rest)
    if origin is typing.Literal:
        return lambda value: value in arguments
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        one = _make_check(arguments[0])
        return lambda value: isinstance(value, tuple) and all(map(one, value))
    if origin is tuple:
        rights = tuple(map(_make_check, arguments))
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(rights)
            and all(right(one) for right, one in zip(rights, value, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        key, each = map(_make_check, arguments)

        return lambda value: (
            (type(value) is dict or isinstance(value, Mapping))  # the second takes its time
            and all(map(key, value))
            and all(map(each, value.values()))
        )
    if origin is not None and issubclass(origin, Sequence | Set):
        item = _make_check(arguments[0])
        return lambda value: (
            isinstance(value, list | tuple | Set | Nodes) and all(map(item, _distinct_nodes(value)))
        )
    return _make_plain_check(hint)


def _distinct_nodes(values: Any) -> Any:
    """What is to be checked: of a large cluster one node of each group, whose decoder has seen the names."""
    return (node for node, _ in values.parts) if isinstance(values, Nodes) else values


def _make_plain_check(hint: Any) -> _Right:
    if hint is None or hint is type(None):
        return lambda value: value is None
    if hint is float:
        return lambda value: (
            type(value) in (int, float) and -math.inf < value < math.inf and abs(value) < 1e300
        )
    if hint is int:
        return lambda value: type(value) is int and abs(value) < 1 << 63
    if hint in (str, bool, bytes) or issubclass(hint, Enum):
        return lambda value: isinstance(value, hint)
    if hint in _SHARED:
        return lambda value: isinstance(value, hint)

    def check_nested(value: Any) -> bool:
        if not isinstance(value, hint):
            return False
        if _known.get(id(value)) is not value:
            check_fields(value)
            if hint in _OFTEN:
                if len(_known) >= _MOST_KNOWN:
                    _known.clear()
                _known[id(value)] = value
        return True

    if hint is Any:
        return lambda value: True
    return check_nested
