"""Reducing results while they come: as a tree whose shape depends on nothing but the items' places.

Every node of the tree covers 2^level neighbouring items, from a multiple of 2^level on. Two neighbours
become their parent as soon as both are there, so combining begins at once, in any order of arrival; each
item's value is combined in the same order on any worker, so that sums of floats are the same in each run.
A worker folds its batch before it sends it: what travels are a few nodes instead of a value for each item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dovetail.records import dataclass

Node = tuple[int, int, Any]
"""Level, index and value: the value of items index * 2^level up to (index + 1) * 2^level."""


@dataclass(frozen=True, slots=True)
class Fold:
    """How results are combined: two by two, in the items' order.

    ``by_key``: every item gives (key, value) pairs, or a mapping, and the values of each key are combined.
    """

    combine: Callable[[Any, Any], Any]
    by_key: bool = False

    def prepare_call(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What a worker calls for each item."""
        return partial(_call_keyed, call, self.combine) if self.by_key else call

    def fold_values(self, start: int, values: Sequence[Any]) -> list[Node]:
        """The values of neighbouring items from ``start`` on, as few nodes as there can be."""
        return fold_run(self.both, start, [dict(value) for value in values] if self.by_key else values)

    def both(self, left: Any, right: Any) -> Any:
        """The node of two neighbours; by key it is ``left``, which changes."""
        if not self.by_key:
            return self.combine(left, right)
        for key, value in right.items():
            left[key] = self.combine(left[key], value) if key in left else value
        return left


def _call_keyed(call: Callable[[Any], Any], combine: Callable[[Any, Any], Any], item: Any) -> dict[Any, Any]:
    """The function's pairs as a dictionary."""
    found = call(item)
    whole: dict[Any, Any] = {}
    for key, value in found.items() if isinstance(found, Mapping) else found:
        whole[key] = combine(whole[key], value) if key in whole else value
    return whole


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
                value = self._combine_nodes(other, value) if index & 1 else self._combine_nodes(value, other)
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
        # The nodes at the right end are the smallest: they go together first.
        for _, value in ordered:
            found = self._combine_nodes(value, found)
        return found

    def _combine_nodes(self, left: Any, right: Any) -> Any:
        if isinstance(left, _Hole):
            return right
        return left if isinstance(right, _Hole) else self._combine(left, right)
