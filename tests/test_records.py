"""`dovetail.records.dataclass` does what the standard library's does, for all that our records use."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
import typing
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from dovetail import records

Decorate = Callable[..., Any]
OPTIONS = [
    {},
    {"slots": True},
    {"slots": True, "eq": False},
    {"slots": True, "unsafe_hash": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
]


def plain(decorate: Decorate, **options: Any) -> Any:
    class Plain:
        """Of each kind of field one."""

        shared: ClassVar[int] = 3
        first: int
        second: float = math.inf
        third: list[int] = field(default_factory=list)
        label: str = field(default="", compare=False)
        hidden: int = field(default=7, init=False, repr=False)
        made: list[int] = field(init=False, default_factory=lambda: [4])

        def __post_init__(self) -> None:
            object.__setattr__(self, "third", [*self.third, self.first])

    return decorate(**options)(Plain)


def own(decorate: Decorate, **options: Any) -> Any:
    class Own:
        """What a class says itself stays."""

        first: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    return decorate(**options)(Own)


def nothing(decorate: Decorate, **options: Any) -> Any:
    class Nothing:
        """A mark without fields."""

    return decorate(**options)(Nothing)


def both(make: Decorate, options: dict[str, Any]) -> tuple[Any, Any]:
    return make(dataclasses.dataclass, **options), make(records.dataclass, **options)


def what_becomes(of: Callable[..., Any], *given: Any) -> Any:
    try:
        return of(*given)
    except (TypeError, AttributeError) as error:
        return type(error)


def assign(made: Any) -> None:
    made.first = 4


def delete(made: Any) -> None:
    del made.first


def hashed(made: Any) -> str:
    hash(made)
    return "has one"


USES = [
    assign,
    delete,
    hashed,
    repr,
    dataclasses.asdict,
    lambda made: made == copy.copy(made),
    lambda made: made == copy.deepcopy(made),
    lambda made: made == (),
]
GIVEN: list[tuple[Any, ...]] = [
    (),
    (1,),
    (1, 2.0),
    (2, math.inf),
    (1, 2.0, [3]),
    (1, 2.0, [3], "a"),
    (1,) * 9,
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("make", [plain, own, nothing])
def test_as_the_standard_library(make: Decorate, options: dict[str, Any]) -> None:
    if make is own and "unsafe_hash" in options:
        pytest.skip("the standard library refuses a second __hash__")
    theirs, ours = both(make, options)
    for given in GIVEN:
        if isinstance(what_becomes(theirs, *given), type):
            assert what_becomes(ours, *given) is what_becomes(theirs, *given)
            continue
        for use in USES if make is not nothing else USES[2:]:  # it has no field to assign to
            assert what_becomes(use, ours(*given)) == what_becomes(use, theirs(*given)), use


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_introspection(options: dict[str, Any]) -> None:
    theirs, ours = both(plain, options)
    assert [*inspect.signature(theirs).parameters] == [*inspect.signature(ours).parameters]
    assert ours.__match_args__ == theirs.__match_args__
    assert typing.get_type_hints(ours.__init__) == typing.get_type_hints(theirs.__init__)
    assert dataclasses.replace(ours(1), second=5.0).second == 5.0
    assert (ours(1) == ours(1)) is (theirs(1) == theirs(1))
    assert hasattr(ours, "__slots__") is hasattr(theirs, "__slots__")


@records.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, so that it can be pickled."""

    name: str
    inner: Kept | None = None


def test_pickled_and_recursive() -> None:
    made = Kept("a", Kept("b"))
    assert pickle.loads(pickle.dumps(made)) == made
    assert len({made, Kept("a", Kept("b")), Kept("b")}) == 2
    object.__setattr__(made, "inner", made)
    assert repr(made) == "Kept(name='a', inner=...)"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        made.name = "c"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del made.name


def test_compared_as_tuples_are_in_every_version() -> None:
    """From Python 3.13 on the standard library's compare field by field: the same NaN is unlike itself."""
    kind = plain(records.dataclass, slots=True)
    assert kind(1, math.nan) == kind(1, math.nan)
    assert kind(1, math.nan) != kind(1, float("nan"))


def test_a_subclass_adds_fields() -> None:
    @records.dataclass(frozen=True, slots=True)
    class More(Kept):
        """One field more."""

        count: int = 1

    assert repr(More("a", None, 2)).endswith("More(name='a', inner=None, count=2)")
    assert More("a") != Kept("a")
    assert More("a").__init__.__qualname__.endswith("More.__init__")
