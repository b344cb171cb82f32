"""Dataclasses that are cheap to define: a start of Dovetail defines 160, each in a quarter of the time.

``dataclass`` here is ``dataclasses.dataclass`` for the type checker, and does the same at run time. The
standard library compiles up to eight functions for a class (0.5 ms). Here one is compiled, ``__init__``; the
others are shared by all classes. Options that no record of ours needs are left out: use the standard
library's for those, and for policies and models, from which people derive their own.
"""

from __future__ import annotations

import dataclasses
import sys
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        unsafe_hash: bool = False,
    ) -> Any:
        """As ``dataclasses.dataclass``; a frozen one guards all attributes, also those that are no fields."""

        def made(cls: type) -> type:
            # Python puts `__hash__ = None` into a class that defines `__eq__`: that is no hash of its own.
            own = set(vars(cls)) - ({"__hash__"} if vars(cls).get("__hash__", 0) is None else set())
            kept = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
            # The standard one makes the fields and slots; the functions, whose compilation takes the time,
            # are ours.
            methods = {"__init__": _init(kept, guarded=frozen, slots=slots), "__repr__": _repr}
            if eq:
                kept._compared = _compared(kept)
                methods |= {"__eq__": _eq, "__hash__": _hash if frozen or unsafe_hash else None}
            if frozen:
                methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
            # With slots there is no `__dict__` for pickle to take, and a frozen class refuses `setattr`.
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
            for name, method in methods.items():
                # What the class defines itself is kept, as the standard one does.
                if name not in own:
                    setattr(kept, name, method)
            return kept

        return made if cls is None else made(cls)


def _init(cls: type, *, guarded: bool, slots: bool) -> Any:
    """The function that sets all fields, each to what is given, its default, or what its factory makes."""
    # Through `object`, since a frozen class refuses its own `__setattr__`.
    given, body, needs = ["self"], [], {"_set": object.__setattr__, "_unset": object()}
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            needs[f"_default_{name}"] = field.default_factory
            # A factory is called in `__init__`, once an instance; `_unset` and not `None`, which is a value.
            given += [f"{name}=_unset"] if field.init else []
            made = f"_default_{name}()"
            value = f"{made} if {name} is _unset else {name}" if field.init else made
        elif field.default is not dataclasses.MISSING:
            needs[f"_default_{name}"] = field.default
            given += [f"{name}=_default_{name}"] if field.init else []
            if not field.init and not slots:
                continue  # the class has it
            value = name if field.init else f"_default_{name}"
        elif field.init:
            given.append(name)
        else:
            continue  # `__post_init__` sets it
        body.append(f"_set(self, {name!r}, {value})" if guarded else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def make({', '.join(needs)}):\n def __init__({', '.join(given)}):\n  "
    text += "\n  ".join(body or ["pass"]) + "\n return __init__"
    # Nothing from outside is in the text: names of fields only, as the class's own source has them.
    found: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), found)
    made = found["make"](**needs)
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    return made


def _compared(cls: type) -> Any:
    """What makes the tuple that instances are compared and hashed by."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    # `attrgetter` gives a tuple only for two names and more.
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(lambda made: tuple(getattr(made, name) for name in names))


def _eq(self: Any, other: Any) -> Any:
    # As in the standard library: a subclass is never equal to its base, whatever their fields.
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, value: object = dataclasses.MISSING) -> None:
    how = "delete" if value is dataclasses.MISSING else "assign to"
    raise dataclasses.FrozenInstanceError(f"cannot {how} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
