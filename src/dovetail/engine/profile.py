"""Free capacity over time on any nodes, and the first gap that a job fits into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from math import inf

from dovetail.engine.capacity import FreeCapacity, Layout, Share
from dovetail.engine.timeline import NodeTimeline
from dovetail.interfaces import Slot
from dovetail.model import FRACTION_UNITS, Allocation, Request, Seconds, bits

__all__ = ["NodeProfile", "instants_first"]


class NodeProfile:
    """A profile of any nodes: a `NodeTimeline` of each on which something runs or is promised.

    A slot names nodes and devices, and has them from start to end. Nodes on which nothing will change
    are kept as masks by state, so that they cost nothing. A query is O(busy nodes) where nothing has
    changed since the same was asked (first gaps are remembered, by request and duration), and else
    O(steps of a timeline) for each changed node.
    """

    def __init__(self, layout: Layout, now: Seconds, idle: dict[int, int]) -> None:
        self.now = now
        self._layout = layout
        self._idle = idle  # state -> nodes on which nothing will change
        self._lines: dict[int, NodeTimeline] = {}
        self._keys: dict[tuple[Request, Seconds], int] = {}
        self._bounds: dict[int, Seconds] = {}  # by key; until something changes

    def copy(self) -> NodeProfile:
        """An independent copy; timelines are shared, being never changed. O(busy nodes)."""
        twin = NodeProfile(self._layout, self.now, self._idle.copy())
        twin._lines = self._lines.copy()
        twin._keys = self._keys  # only ever added to
        twin._bounds = self._bounds.copy()
        return twin

    def advance(self, now: Seconds) -> None:
        """Time has passed: what begins before ``now`` is over."""
        if now != self.now:
            self.now = now
            self._bounds.clear()

    def _key(self, request: Request, duration: Seconds) -> int:
        return self._keys.setdefault((request, duration), len(self._keys))

    def _idle_fit(self, request: Request) -> dict[int, int]:
        """Idle nodes that fit, by state."""
        fits = self._layout.fits(request)
        found: dict[int, int] = {}
        for state, mask in self._idle.items():
            fit = fits[state] if state in fits else self._layout.fit_state(request, state)
            if fit is not None:
                found[state] = mask
        return found

    def _bound(self, request: Request, duration: Seconds) -> Seconds:
        """A time before which the request has no gap: for one node, the first gap's."""
        key = self._key(request, duration)
        bound = self._bounds.get(key)
        if bound is None:
            missing = request.nodes - sum(mask.bit_count() for mask in self._idle_fit(request).values())
            if missing <= 0:
                bound = self.now
            elif missing > len(self._lines):
                bound = inf
            else:
                layout, now = self._layout, self.now
                firsts = [line.first(layout, request, duration, now, key) for line in self._lines.values()]
                bound = min(firsts) if missing == 1 else nsmallest(missing, firsts)[-1]
            self._bounds[key] = bound
        return bound

    def may_move(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """``False`` if a held slot could not begin earlier if it were given back.

        Another gap would have to begin earlier, or the slot's own nodes be free just before it.
        """
        request = allocation.request
        if start <= self.now:
            return False
        if self._bound(request, duration) < start:
            return True
        layout, lines = self._layout, self._lines
        fits = layout.fits(request)
        for node in bits(allocation.mask):
            state = lines[node].before(start)
            if (fits[state] if state in fits else layout.fit_state(request, state)) is not None:
                return True
        return False

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first gap, and the nodes by the placement rule."""
        start = self._bound(request, duration)
        key = self._key(request, duration)
        layout, now = self._layout, self.now
        idle = sum(mask.bit_count() for mask in self._idle_fit(request).values())
        while start < before:
            ready: list[int] = []
            later: list[Seconds] = []
            for node, line in self._lines.items():
                first = line.first(layout, request, duration, now, key)
                if first < start:
                    first = line.following(layout, request, duration, start)
                if first == start:
                    ready.append(node)
                elif first < before:
                    later.append(first)
            missing = request.nodes - idle - len(ready)
            if missing <= 0:
                return start, self._place(ready, request, start, duration)
            if missing > len(later):
                return None
            start = nsmallest(missing, later)[-1]  # no earlier than this are there enough
        return None

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """Where the request fits for so long from that very time."""
        following = (
            (node, line.following(self._layout, request, duration, start))
            for node, line in self._lines.items()
        )
        return self._fit([node for node, first in following if first == start], request, start, duration)

    def _place(self, nodes: Iterable[int], request: Request, start: Seconds, duration: Seconds) -> Allocation:
        allocation = self._fit(nodes, request, start, duration)
        assert allocation is not None
        return allocation

    def _fit(
        self, nodes: Iterable[int], request: Request, start: Seconds, duration: Seconds
    ) -> Allocation | None:
        """By the placement rule, on idle nodes and on these."""
        least = self._idle_fit(request)
        for node in nodes:
            state = self._lines[node].least(self._layout, start, duration)
            least[state] = least.get(state, 0) | 1 << node
        in_order = sorted(least.items(), key=_lowest_node)  # so that parts do not depend on what came before
        return FreeCapacity(self._layout, dict(in_order)).fit(request)

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        return self._change(start, start + duration, allocation, giving=False)

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free (the profile is then of no use)."""
        return all(self.hold(*slot) for slot in instants_first(slots))

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back, or what is left of it."""
        self.give(start, start + duration, allocation)

    def give(self, start: Seconds, end: Seconds, allocation: Allocation) -> None:
        """The same with the end given; raises `ValueError` if it was not held."""
        if not self._change(start, end, allocation, giving=True):
            raise ValueError("a slot is given back that was not held")

    def take(self, start: Seconds, end: Seconds, allocation: Allocation) -> bool:
        """`hold` with the end given."""
        return self._change(start, end, allocation, giving=False)

    def _change(self, start: Seconds, end: Seconds, allocation: Allocation, *, giving: bool) -> bool:
        layout, now, lines = self._layout, self.now, self._lines
        changed: dict[int, NodeTimeline] = {}
        for node, share in _shares(allocation):
            line = changed.get(node) or lines.get(node) or self._wake(node)
            after = None if line is None else line.changed(layout, now, start, end, share, giving=giving)
            if after is None:
                return False
            changed[node] = after
        lines.update(changed)
        self._bounds.clear()
        return True

    def rest(self, allocation: Allocation) -> None:
        """Count its nodes as idle again where nothing is to come."""
        for node, _ in _shares(allocation):
            line = self._lines.get(node)
            if line is not None and line.times[-1] <= self.now:
                del self._lines[node]
                state = line.states[-1]
                self._idle[state] = self._idle.get(state, 0) | 1 << node

    def _wake(self, node: int) -> NodeTimeline | None:
        """The timeline of an idle node, which is idle no more; ``None`` if the node is lost."""
        bit = 1 << node
        for state, mask in self._idle.items():
            if mask & bit:
                if mask == bit:
                    del self._idle[state]
                else:
                    self._idle[state] = mask ^ bit
                line = self._lines[node] = NodeTimeline([self.now], [state], [None])
                return line
        return None


def _lowest_node(item: tuple[int, int]) -> int:
    return item[1] & -item[1]


def _shares(allocation: Allocation) -> Iterator[tuple[int, Share]]:
    """Each node of an allocation, and what it gives."""
    for part in allocation.parts:
        share = Share(*part[1:])
        for node in bits(part.nodes):
            yield node, share
    for donor in allocation.donors:
        yield donor.donor, Share(0, (donor.device,), FRACTION_UNITS, 0)


def instants_first(slots: Iterable[Slot]) -> list[Slot]:
    """Slots of no length go before others of their time."""
    return sorted(slots, key=lambda slot: slot[1] > 0)
