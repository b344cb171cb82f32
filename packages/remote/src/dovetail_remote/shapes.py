"""Types and shapes of results, learned: what is known needs no question, and cannot fail.

What a function makes of arguments of the same types and shapes, and the same other arguments, has the same
type and shape every time (but for the few functions where these depend on the elements). The server sends it
once for each combination; from then on it is known when the call is made. Element-wise functions are learned
by types alone, since shapes follow by broadcasting, and so are parts of arrays by numbers and slices. A call
that was carried out once, and whose function cannot fail for the elements, cannot fail the next time either.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dovetail.records import dataclass
from dovetail_remote.standard import functions_having, with_operators

Meta = tuple[str, tuple[int, ...]]
"""Data type and shape."""

SURE, MAY_FAIL, UNKNOWN = 0, 1, 2
"""Of a call: it will give what is known; the same, unless it fails; nothing is known."""

LARGE = 1 << 26
"""Bytes of a result from which on there may be no memory for it."""

_BY_ELEMENTS = functions_having("sized-by-elements")
_FAILS_FOR_ELEMENTS = functions_having("fails-for-elements")
_POWERS = with_operators(["pow"])
"""Which fail for integers, where the second is negative."""
_DIVISIONS = with_operators(["floor_divide", "remainder"])
"""Which fail for integers, where the second is 0; NumPy and OpenCL give a number instead."""
_ELEMENTWISE = with_operators(functions_having("elementwise"))
_ANY_NUMBER = _ELEMENTWISE.union(("full_like", "where", "clip", "__setitem__"))
"""Functions that make the same type and shape of a number of the same type."""
_BROADCAST = _ELEMENTWISE.union(("where", "clip", "astype"))
"""Functions whose type follows from types, and whose shape from shapes."""
_STRETCHES = functions_having("stretch")
"""Functions that may give read-only views."""
_VIEWS = functions_having("view") | {"__getitem__"}
"""Functions that may give read-only views of read-only arrays."""
_LIMITS = [-(1 << bits) for bits in (63, 31, 15, 7)] + [0] + [1 << bits for bits in (7, 8, 15, 16, 31, 32)]
"""Between two of these, whole numbers fit into the same data types."""
_SIZES = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4,
          "complex128": 16}  # fmt: skip
_MOST_LEARNED = 1 << 14
_MOST_ASKED = 1 << 10

_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call whose result the server is to describe, with what was known of its arguments."""

    handle: int
    name: str
    arguments: Sequence[Any]
    named: Mapping[str, Any] | None
    known: Mapping[int, Meta]


class Shapes:
    """What is known of arrays, by handle, and what was learned of functions.

    Attributes:
        known: types and shapes by handle.
        readonly: handles of arrays that are perhaps read-only.

    Args:
        divides: whether the library gives a number where an integer is divided by 0, instead of failing.
    """

    def __init__(self, divides: bool = True) -> None:
        self.known: dict[int, Meta] = {}
        self.readonly: set[int] = set()
        self._learned: dict[_Key, tuple[Meta, int]] = {}
        self._types: dict[_Key, str] = {}
        self._asked: list[_Asked] = []
        self._untold: set[int] = set()  # of these, the arrays that are still there
        self._launched: set[_Key] = set()
        self._fails_for_integers = _POWERS if divides else _POWERS | _DIVISIONS

    def expect_call(self, handle: int, name: str, arguments: list[Any], named: dict[str, Any] | None) -> int:
        """Note a call (as it is encoded) that makes an array: `SURE`, `MAY_FAIL`, `UNKNOWN`.

        Where it is unknown the server is to describe what it makes.
        """
        known = self.known
        if name in _STRETCHES or (self.readonly and self.is_view(name, arguments)):
            self.readonly.add(handle)
        key = _call_key(name, arguments, named, known)
        if key is not None:
            found = self._learned.get(key) or self._derive_result(key, named)
            if found is not None:
                known[handle] = found[0]
                return found[1]
        # No questions for functions whose shapes depend on elements: the answer would be wrong next time.
        if name not in _BY_ELEMENTS and len(self._asked) < _MOST_ASKED:
            inside = _encoded_handles([arguments, list((named or {}).values())])
            given = {h: known[h] for h in inside if h in known}
            self._asked.append(_Asked(handle, name, arguments, named, given))
            self._untold.add(handle)
        return UNKNOWN

    def is_view(self, name: str, arguments: Sequence[Any]) -> bool:
        """Whether a call may give a read-only view."""
        return name in _STRETCHES or (name in _VIEWS and arguments[:1][0] in self.readonly)

    def expect_change(self, name: str, arguments: list[Any]) -> tuple[int, _Key | None]:
        """The answer of `expect_call` for a call that changes an array, and what to give `changed` once it
        has."""
        key = _call_key(name, arguments, None, self.known)
        if key is None:
            return UNKNOWN, None
        found = self._learned.get(key)
        if found is None:
            found = self._result_of_setting(key) if name == "__setitem__" else self._derive_result(key, None)
        # The server would refuse it; it is waited for, so the program sees the library's own error.
        if found is not None and found[0] != key[1]:
            return UNKNOWN, None  # it fits into no other type and shape
        if found is None:
            return UNKNOWN, key
        return MAY_FAIL if arguments[0] in self.readonly else found[1], None

    def changed(self, handle: int, key: _Key | None) -> None:
        """A change was carried out: it is known from now on."""
        self.readonly.discard(handle)
        if key is not None:
            self._learn_result(key, key[1])

    def drop_array(self, handle: int) -> None:
        """An array is gone."""
        self.known.pop(handle, None)
        self._untold.discard(handle)
        self.readonly.discard(handle)

    def is_new(self, launch: list[Any]) -> bool:
        """Whether a kernel was never launched with arguments of these types and shapes."""
        number, *extents, given = launch
        key = number, str(extents), _freeze_argument(given, self.known)
        new = key not in self._launched
        self._launched.add(key)
        return new

    def learn_results(self, found: Sequence[Sequence[Any]]) -> None:
        """Learn from the server's descriptions of the calls that were unknown."""
        if not self._asked:
            return
        metas: dict[int, Meta] = {handle: (dtype, tuple(shape)) for handle, dtype, shape in found}
        # Only arrays that still exist: a handle that died meanwhile must not come back.
        self.known.update((handle, metas[handle]) for handle in self._untold & metas.keys())
        self._untold.clear()
        pending, self._asked = self._asked, []
        for call in pending:
            meta = metas.get(call.handle)  # none: it failed
            key = _call_key(call.name, call.arguments, call.named, {**metas, **call.known}) if meta else None
            if meta is not None and key is not None:
                self._learn_result(key, meta)

    def _learn_result(self, key: _Key, meta: Meta) -> tuple[Meta, int]:
        # All at once rather than the oldest: programs change phase as a whole, and this stays O(1).
        if len(self._learned) >= _MOST_LEARNED:
            self._learned.clear()
        found = self._learned[key] = meta, self._call_certainty(key, meta)
        name = key[0]
        if name in _BROADCAST or name == "__setitem__":
            self._types[_types_of(key)] = meta[0]
        return found

    def _call_certainty(self, key: _Key, meta: Meta) -> int:
        """Whether a call that is known may fail for the elements, or for want of memory."""
        name, (dtype, shape) = key[0], meta
        integers = "int" in dtype
        if name in _FAILS_FOR_ELEMENTS or (integers and name in self._fails_for_integers):
            return MAY_FAIL
        # NumPy raises for what does not fit an integer, torch truncates: it is waited for.
        if integers and name in ("__setitem__", "full_like") and (float in key or "f" in key):
            return MAY_FAIL  # a number that no integer is
        if name in ("__getitem__", "__setitem__") and _has_arrays(key[2]):
            return MAY_FAIL
        # A large result may not fit; whether it does depends on other clients.
        large = math.prod(shape) * _SIZES.get(dtype, 8) >= LARGE
        return MAY_FAIL if large else SURE

    def _derive_result(self, key: _Key, named: Mapping[str, Any] | None) -> tuple[Meta, int] | None:
        """What a call makes that was made with other shapes."""
        name = key[0]
        if name == "__getitem__":
            shape = _part_shape(key[1][1], key[2])
            if shape is None:
                return None
            meta = key[1][0], shape
            return meta, self._call_certainty(key, meta)
        if name not in _BROADCAST or named:
            return None
        dtype = self._types.get(_types_of(key))
        if dtype is None:
            return None
        joined = _broadcast_shape(*[part[1] for part in key[1:] if _is_meta(part)])
        return None if joined is None else self._learn_result(key, (dtype, joined))

    def _result_of_setting(self, key: _Key) -> tuple[Meta, int] | None:
        """What becomes of an array of which a part is set, where parts of other shapes were set."""
        shape = _part_shape(key[1][1], key[2])
        if shape is None or _types_of(key) not in self._types:
            return None
        value = key[3][1] if _is_meta(key[3]) else ()
        if len(value) > len(shape) or _broadcast_shape(shape, value) != shape:
            return None
        return key[1], self._call_certainty(key, key[1])


def _encoded_handles(value: Any) -> list[int]:
    """Handles in encoded arguments; lists that are tagged as something else hold none."""
    if type(value) is int:
        return [value]
    if type(value) is not list or (value and type(value[0]) is str and value[0] not in ("t", "l")):
        return []
    return [handle for item in value for handle in _encoded_handles(item)]


def _call_key(
    name: str, arguments: Sequence[Any], named: Mapping[str, Any] | None, known: Mapping[int, Meta]
) -> _Key | None:
    """What the result depends on; None where that is not known."""
    any_number = name in _ANY_NUMBER
    parts: list[Any] = [name]
    for argument in arguments:
        kind = type(argument)
        if any_number:
            if kind is float:
                parts.append(kind)
                continue
            if (
                kind is list
                and argument[0] in ("i", "f", "c", "n")
                and (name != "__setitem__" or len(parts) > 2)
            ):
                if argument[0] == "i":
                    # Sent as text, beyond 62 bits: the type then depends on the library's own rules.
                    if type(argument[1]) is str:
                        return None
                    parts.append(bisect_right(_LIMITS, argument[1]))
                else:
                    parts.append((argument[1],) if argument[0] == "n" else argument[0])
                continue
        part = known.get(argument) if kind is int else _freeze_argument(argument, known)
        if part is None:
            return None
        parts.append(part)
    if name == "__getitem__" and _has_mask(parts[2]):
        return None
    if named:
        for key in sorted(named):
            part = _freeze_argument(named[key], known)
            if part is None:
                return None
            parts.append((key, part))
    return tuple(parts)


def _freeze_argument(value: Any, known: Mapping[int, Meta]) -> Any:
    """An encoded argument as something to look up by; None where an array in it is not known."""
    kind = type(value)
    if kind is int:
        return known.get(value)
    if kind is not list:
        return (kind, value)
    if value[0] not in ("t", "l"):
        return _plain_value(value)
    parts = [_freeze_argument(item, known) for item in value[1:]]
    return None if None in parts else (value[0], *parts)


def _plain_value(value: Any) -> Any:
    """A tagged value as something to look up by: a complex number of infinities is a list of lists."""
    return tuple(map(_plain_value, value)) if type(value) is list else value


def _is_meta(part: Any) -> bool:
    """Whether a part of a key is an array's type and shape."""
    return type(part) is tuple and len(part) == 2 and type(part[0]) is str and type(part[1]) is tuple


def _types_of(key: _Key) -> _Key:
    """A key without shapes; but arrays of no dimension have other types than others in some libraries."""
    if key[0] == "__setitem__":
        return key[0], key[1][0], (key[3][0],) if _is_meta(key[3]) else key[3]
    return tuple((part[0], not part[1]) if _is_meta(part) else part for part in key)


def _has_mask(part: Any) -> bool:
    """Whether a key of ``__getitem__`` has an array of booleans in it: its shape depends on the elements."""
    if not isinstance(part, tuple) or not part:
        return False
    return part[0] == "bool" or (part[0] in ("t", "l") and any(_has_mask(item) for item in part[1:]))


def _has_arrays(part: Any) -> bool:
    """Whether a key of ``__getitem__`` has an array in it."""
    if _is_meta(part):
        return True
    return isinstance(part, tuple) and part[:1] in (("t",), ("l",)) and any(map(_has_arrays, part[1:]))


@lru_cache(1 << 12)
def _broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that all have together; None where there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


_NO_MEMORY = np.empty(())


@lru_cache(1 << 12)
def _part_shape(shape: tuple[int, ...], key: Any) -> tuple[int, ...] | None:
    """The shape of a part by whole numbers, slices, ``...`` and None; None for others, and where it fails.

    Not by slices that go backwards, which not all libraries know.
    """
    keys: list[Any] = []
    for one in key[1:] if key[:1] == ("t",) else (key,):
        if one[0] == "s" and str not in map(type, one[1:]) and (one[3] is None or one[3] > 0):
            keys.append(slice(*one[1:]))
        elif one[0] == "i" and type(one[1]) is int:
            keys.append(one[1])
        elif one == ("e",) or one[0] is type(None):
            keys.append(... if one == ("e",) else None)
        else:
            return None
    try:
        return np.broadcast_to(_NO_MEMORY, shape)[(*keys, *[...] * (... not in keys))].shape
    except IndexError:
        return None
