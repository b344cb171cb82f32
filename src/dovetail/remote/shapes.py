"""Types and shapes of results, learned: so that ``x.shape`` need not wait for the server.

What a function makes of arguments of the same types and shapes, and the same other arguments, has the same
type and shape every time (but for the few functions where these depend on the elements). The server tells it
once for each combination, in its answer to the next question; from then on it is known when the call is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.remote.standard import BINARY_OPERATORS, FUNCTIONS, REFLECTED_OPERATORS

__all__ = ["Meta", "Shapes"]

Meta = tuple[str, tuple[int, ...]]
"""Data type and shape."""

_BY_ELEMENTS = frozenset(
    ("nonzero", "repeat", "unique_all", "unique_counts", "unique_inverse", "unique_values")
)
"""Functions whose results' shapes depend on the elements."""
_ANY_NUMBER = frozenset([f.name for f in FUNCTIONS.values() if f.elementwise]).union(
    BINARY_OPERATORS, REFLECTED_OPERATORS, ("full_like", "where", "clip")
)
"""Functions that make the same type and shape of a number of the same type."""
_MOST_LEARNED = 1 << 14
_MOST_ASKED = 1 << 10


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call whose result the server is to tell of, with what was known of its arguments."""

    handle: int
    name: str
    arguments: Sequence[Any]
    named: Mapping[str, Any] | None
    known: Mapping[int, Meta]


class Shapes:
    """What is known of arrays, by handle, and what was learned of functions."""

    def __init__(self) -> None:
        self.known: dict[int, Meta] = {}
        self._learned: dict[Any, Meta] = {}
        self._asked: list[_Asked] = []

    def expect(self, handle: int, name: str, arguments: list[Any], named: dict[str, Any] | None) -> bool:
        """Note a call (as it is encoded); whether the server is to tell what its result is."""
        key = _key(name, arguments, named, self.known)
        meta = self._learned.get(key) if key is not None else None
        if meta is not None:
            self.known[handle] = meta
            return False
        if name in _BY_ELEMENTS or len(self._asked) >= _MOST_ASKED:
            return False
        inside = _handles([arguments, list((named or {}).values())])
        known = {h: self.known[h] for h in inside if h in self.known}
        self._asked.append(_Asked(handle, name, arguments, named, known))
        return True

    def told(self, found: Sequence[Sequence[Any]]) -> None:
        """Learn from what the server tells of the calls that were asked about."""
        if not self._asked:
            return
        metas: dict[int, Meta] = {handle: (dtype, tuple(shape)) for handle, dtype, shape in found}
        asked, self._asked = self._asked, []
        for call in asked:
            meta = metas.get(call.handle)  # none: it failed
            key = _key(call.name, call.arguments, call.named, {**metas, **call.known}) if meta else None
            if meta is not None and key is not None:
                if len(self._learned) >= _MOST_LEARNED:
                    self._learned.clear()
                self._learned[key] = meta

    def forget(self) -> None:
        """Everything: another server, with another library, makes other types."""
        self.known.clear()
        self._learned.clear()
        self._asked.clear()


def _handles(value: Any) -> list[int]:
    """Handles in encoded arguments; lists that are tagged as something else hold none."""
    if type(value) is int:
        return [value]
    if type(value) is not list or (value and type(value[0]) is str and value[0] not in ("t", "l")):
        return []
    return [handle for item in value for handle in _handles(item)]


def _key(
    name: str, arguments: Sequence[Any], named: Mapping[str, Any] | None, known: Mapping[int, Meta]
) -> tuple[Any, ...] | None:
    """What the result depends on; None where that is not known."""
    any_number = name in _ANY_NUMBER
    parts: list[Any] = [name]
    for argument in arguments:
        kind = type(argument)
        if any_number and (kind is float or (kind is list and argument[0] in ("i", "f", "c"))):
            parts.append(kind if kind is float else argument[0])
            continue
        part = known.get(argument) if kind is int else _frozen(argument, known)
        if part is None:
            return None
        parts.append(part)
    if name == "__getitem__" and _masks(parts[2]):
        return None
    if named:
        for key in sorted(named):
            part = _frozen(named[key], known)
            if part is None:
                return None
            parts.append((key, part))
    return tuple(parts)


def _frozen(value: Any, known: Mapping[int, Meta]) -> Any:
    """An encoded argument as something to look up by; None where an array in it is not known."""
    kind = type(value)
    if kind is int:
        return known.get(value)
    if kind is not list:
        return (kind, value)
    if value[0] not in ("t", "l"):
        return _plain(value)
    parts = [_frozen(item, known) for item in value[1:]]
    return None if None in parts else (value[0], *parts)


def _plain(value: Any) -> Any:
    """A tagged value as something to look up by: a complex number of infinities is a list of lists."""
    return tuple(map(_plain, value)) if type(value) is list else value


def _masks(part: Any) -> bool:
    """Whether a key of ``__getitem__`` has an array of booleans in it: its shape depends on the elements."""
    if not isinstance(part, tuple) or not part:
        return False
    return part[0] == "bool" or (part[0] in ("t", "l") and any(_masks(item) for item in part[1:]))
