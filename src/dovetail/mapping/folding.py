"""Reducing results while they come: as a tree whose shape depends on nothing but the items' places.

Every node of the tree covers 2^level neighbouring items, from a multiple of 2^level on. Two neighbours
become their parent as soon as both are there, so combining begins at once, in any order of arrival; each
item's value is combined in the same order whoever ran it, so that sums of floats are the same in each run.
A worker folds its batch before it sends it: what travels are a few nodes instead of a value for each item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

__all__ = ["ByKey", "Fold", "Intervals", "Tree", "fold_run"]

Node = tuple[int, int, Any]
"""Level, index and value: the value of items index * 2^level up to (index + 1) * 2^level."""


@dataclass(frozen=True, slots=True)
class Fold:
    """``reduce(combine)``: values are combined two by two, in the items' order."""

    combine: Callable[[Any, Any], Any]

    def prepared(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What a worker calls for each item."""
        return call

    def folded(self, start: int, values: Sequence[Any]) -> list[Node]:
        """The values of neighbouring items from ``start`` on, as few nodes as there can be."""
        return fold_run(self.combine, start, values)

    def alone(self, index: int, value: Any) -> list[Node]:
        """The node of one item."""
        return [(0, index, value)]


@dataclass(frozen=True, slots=True)
class ByKey(Fold):
    """``reduce_by_key(combine)``: every item gives (key, value) pairs, or a mapping."""

    def prepared(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function's pairs as a dictionary."""
        return partial(_keyed, call, self.combine)

    def folded(self, start: int, values: Sequence[Any]) -> list[Node]:
        """One dictionary for all of them: its level is not a power of two but their number."""
        whole: dict[Any, Any] = {}
        for value in values:
            merge(self.combine, whole, value)
        return [(len(values), start, whole)]

    def alone(self, index: int, value: Any) -> list[Node]:
        """The dictionary of one item."""
        return [(1, index, value)]


def _keyed(call: Callable[[Any], Any], combine: Callable[[Any, Any], Any], item: Any) -> dict[Any, Any]:
    found = call(item)
    whole: dict[Any, Any] = {}
    for key, value in found.items() if isinstance(found, Mapping) else found:
        whole[key] = combine(whole[key], value) if key in whole else value
    return whole


def merge(
    combine: Callable[[Any, Any], Any], left: dict[Any, Any], right: Mapping[Any, Any]
) -> dict[Any, Any]:
    """The values of both by key, those of ``left`` first; changes ``left``."""
    for key, value in right.items():
        left[key] = combine(left[key], value) if key in left else value
    return left


def fold_run(combine: Callable[[Any, Any], Any], start: int, values: Sequence[Any]) -> list[Node]:
    """The largest nodes that neighbouring values make, from left to right. O(n) calls of ``combine``."""
    nodes: list[Node] = []
    at, end = start, start + len(values)
    while at < end:
        level = (at & -at).bit_length() - 1 if at else end.bit_length()
        while at + (1 << level) > end:
            level -= 1
        below = list(values[at - start : at - start + (1 << level)])
        while len(below) > 1:
            below = [combine(below[i], below[i + 1]) for i in range(0, len(below), 2)]
        nodes.append((level, at >> level, below[0]))
        at += 1 << level
    return nodes


class _Hole:
    """Stands for an item that has no value."""


HOLE = _Hole()


class Tree:
    """The tree of a reduce, as far as it has come. At most one node waits on each level and place."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self._combine = combine
        self._waiting: dict[tuple[int, int], Any] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Take nodes in, and combine what has become neighbours."""
        for level, index, value in nodes:
            while (level, index ^ 1) in self._waiting:
                other = self._waiting.pop((level, index ^ 1))
                value = self._both(other, value) if index & 1 else self._both(value, other)
                level, index = level + 1, index >> 1
            self._waiting[level, index] = value

    def skip(self, index: int) -> None:
        """Item ``index`` has no value, and never will."""
        self.add([(0, index, HOLE)])

    @property
    def empty(self) -> bool:
        """Whether no item has a value."""
        return all(isinstance(value, _Hole) for value in self._waiting.values())

    def result(self) -> Any:
        """All values combined, in order; meaningless if there was none."""
        found: Any = HOLE
        ordered = sorted(self._waiting.items(), key=lambda node: node[0][1] << node[0][0], reverse=True)
        for _, value in ordered:  # the nodes at the right end are the smallest: they go together first
            found = self._both(value, found)
        return found

    def _both(self, left: Any, right: Any) -> Any:
        if isinstance(left, _Hole):
            return right
        return left if isinstance(right, _Hole) else self._combine(left, right)


class Intervals:
    """Dictionaries of neighbouring runs of items, merged in the items' order as soon as they meet."""

    def __init__(self, combine: Callable[[Any, Any], Any]) -> None:
        self._combine = combine
        self._by_start: dict[int, tuple[int, dict[Any, Any]]] = {}
        self._by_end: dict[int, int] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Take runs in: (number of items, first item, dictionary)."""
        for length, start, whole in nodes:
            end = start + length
            left = self._by_end.pop(start, None)
            if left is not None:
                _, before = self._by_start.pop(left)
                start, whole = left, merge(self._combine, before, whole)
            right = self._by_start.pop(end, None)
            if right is not None:
                del self._by_end[right[0]]
                end, whole = right[0], merge(self._combine, whole, right[1])
            self._by_start[start], self._by_end[end] = (end, whole), start

    def skip(self, index: int) -> None:
        """Item ``index`` has no value, and never will."""
        self.add([(1, index, {})])

    def result(self) -> dict[Any, Any]:
        """All pairs by key."""
        found: dict[Any, Any] = {}
        for _, (_, whole) in sorted(self._by_start.items()):
            merge(self._combine, found, whole)
        return found
