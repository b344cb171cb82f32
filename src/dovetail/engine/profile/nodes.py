"""Free capacity over time on any nodes, and the first gap that a job fits into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import nsmallest
from math import inf, nextafter

from dovetail.engine.capacity.free import Fits, FreeCapacity, Layout, Share
from dovetail.engine.profile.timeline import NodeTimeline
from dovetail.model import FRACTION_UNITS, Allocation, Request, Seconds, bit_indices

Slot = tuple[Seconds, Seconds, Allocation]
"""Start, duration, and what is held."""


def instants_first(slots: Iterable[Slot]) -> list[Slot]:
    """Slots of no length go before others of their time."""
    return sorted(slots, key=lambda slot: slot[1] > 0)


class NodeProfile:
    """A profile of any nodes: a `NodeTimeline` of each on which something runs or is promised.

    A slot names nodes and devices, and has them from start to end. Nodes on which nothing will change
    are kept as masks by state, so that they cost nothing.

    A slot can begin earlier only where something has been given back since it was last found that it could
    not. So a profile counts what is given back (its *version*), notes when each node was last given
    something, and with each slot as of which version it has no earlier gap.
    """

    def __init__(self, layout: Layout, now: Seconds, idle: dict[int, int]) -> None:
        self.now = now
        self._layout = layout
        self._idle = idle  # state -> nodes on which nothing will change
        self._lines: dict[int, NodeTimeline] = {}
        self._version = self._copied_at = 0
        self._given: dict[int, int] = {}  # node -> version
        self._given_since: dict[int, list[int]] = {}  # version -> nodes; until the next version
        # (version, request's fits, duration) -> time before which there is no gap; until something changes
        self._closed: dict[tuple[int, int, Seconds], Seconds] = {}
        self._settled: dict[int, tuple[Allocation, int]] = {}  # by the identity of the slot's allocation

    def copy(self) -> NodeProfile:
        """A copy to plan with; timelines are shared, being never changed. O(busy nodes).

        What is found of slots is found for the original too, as of its version: it learns what the copy gives
        back, or that is taken again.
        """
        twin = NodeProfile(self._layout, self.now, self._idle.copy())
        twin._lines = self._lines.copy()
        twin._version = twin._copied_at = self._version
        twin._given = self._given.copy()
        twin._settled = self._settled
        return twin

    def _idle_fit(self, request: Request) -> dict[int, int]:
        """Idle nodes that fit, by state."""
        fits = self._layout.fits[request]
        found: dict[int, int] = {}
        for state, mask in self._idle.items():
            fit = fits[state] if state in fits else self._layout.fit_state(request, state)
            if fit is not None:
                found[state] = mask
        return found

    def pull_slot(
        self, start: Seconds, duration: Seconds, allocation: Allocation
    ) -> tuple[Seconds, Allocation] | None:
        """Move a held slot to the first gap that begins earlier; where to, or ``None`` if it stays."""
        # Most slots cannot move: finding that out is much cheaper than giving the slot back and searching.
        if not self._may_move(start, duration, allocation):
            self._settled[id(allocation)] = allocation, self._copied_at
            return None
        lines, given = self._lines, self._given
        before = {node: (lines[node], given.get(node, 0)) for node in bit_indices(allocation.mask)}
        self.give(start, start + duration, allocation)
        found = self.earliest(allocation.request, duration, start)
        if found is None:
            # Back as it was, with the versions: the slot was given back only to search, and nothing has
            # changed.
            for node, (line, version) in before.items():
                lines[node], given[node] = line, version
            self._given_since.clear()
            self._closed.clear()
            self._settled[id(allocation)] = allocation, self._copied_at
            return None
        self.hold(found[0], duration, found[1])
        if found[0] > self.now:
            self._settled[id(found[1])] = found[1], self._copied_at
        return found

    def _may_move(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """``False`` if a held slot could not begin earlier if it were given back.

        Another gap would have to begin earlier, or the slot's own nodes be free just before it.
        """
        if start <= self.now:
            return False
        request = allocation.request
        known = self._settled.get(id(allocation))
        version = -1 if known is None else known[1]
        fits = self._layout.fits[request]
        key = version, id(fits), duration
        if self._closed.get(key, self.now) < start:
            # For a request and a duration the answer holds for all later slots: each line is searched once.
            if self._opens_earlier_gap(version, request, fits, duration, start):
                return True
            self._closed[key] = start
        # Its own nodes: where less is held just before it, the slot itself may slide forward.
        for node in bit_indices(allocation.mask):
            if self._given.get(node, 0) > version:
                state = self._lines[node].before(start)
                fit = fits[state] if state in fits else self._layout.fit_state(request, state)
                if fit is not None:
                    return True
        return False

    def _opens_earlier_gap(
        self, version: int, request: Request, fits: Fits, duration: Seconds, before: Seconds
    ) -> bool:
        """Whether a node to which something was given after that version has a gap before that time."""
        layout, lines, now = self._layout, self._lines, self.now
        idle = sum(self._idle_fit(request).values())
        if version < 0:
            if idle:
                return True
            given: Collection[int] = lines
        else:
            given = self._nodes_given(version)
        for node in given:
            line = lines.get(node)
            if line is None:
                if idle >> node & 1:
                    return True
            elif line.next_fitting_time(layout, request, fits, duration, now, before) < before:
                return True
        return False

    def _nodes_given(self, version: int) -> Collection[int]:
        """Nodes to which something was given after that version."""
        nodes = self._given_since.get(version)
        if nodes is None:
            nodes = self._given_since[version] = [n for n, when in self._given.items() if when > version]
        return nodes

    def forget_slot(self, allocation: Allocation) -> None:
        """Such a slot is held no more."""
        self._settled.pop(id(allocation), None)

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first gap, and the nodes by the placement rule. O(busy nodes · their open steps)."""
        layout, start = self._layout, self.now
        fits = layout.fits[request]
        missing = request.nodes - sum(mask.bit_count() for mask in self._idle_fit(request).values())
        firsts = dict.fromkeys(self._lines, start)
        while start < before:
            until = before
            for node, first in firsts.items():
                if first <= start:
                    first = self._lines[node].next_fitting_time(layout, request, fits, duration, start, until)
                    firsts[node] = first
                    if missing == 1 and first < until:
                        # Later ones are of no use, but those of the same time are: hence the next
                        # representable time.
                        until = nextafter(first, inf)  # later ones are of no use, others of that time are
            ready = [node for node, first in firsts.items() if first == start]
            if missing <= len(ready):
                return start, self._place_request(ready, request, start, duration)
            later = [first for first in firsts.values() if start < first < before]
            if missing - len(ready) > len(later):
                return None
            start = nsmallest(missing - len(ready), later)[-1]  # no earlier than this are there enough
        return None

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """Where the request fits for so long from that very time."""
        layout, fits = self._layout, self._layout.fits[request]
        able = [
            node
            for node, line in self._lines.items()
            if line.next_fitting_time(layout, request, fits, duration, start, nextafter(start, inf)) == start
        ]
        return self._fit_request(able, request, start, duration)

    def _place_request(
        self, nodes: Iterable[int], request: Request, start: Seconds, duration: Seconds
    ) -> Allocation:
        allocation = self._fit_request(nodes, request, start, duration)
        assert allocation is not None
        return allocation

    def _fit_request(
        self, nodes: Iterable[int], request: Request, start: Seconds, duration: Seconds
    ) -> Allocation | None:
        """By the placement rule, on idle nodes and on these."""
        least = self._idle_fit(request)
        for node in nodes:
            state = self._lines[node].least_free_state(self._layout, start, duration)
            least[state] = least.get(state, 0) | 1 << node
        return FreeCapacity(self._layout, least).fit(request)

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        return self._change_timelines(start, start + duration, allocation, giving=False)

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free (the profile is then of no use)."""
        return all(self.hold(*slot) for slot in instants_first(slots))

    def give(self, start: Seconds, end: Seconds, allocation: Allocation) -> None:
        """Give a held slot back, or what is left of it; raises `ValueError` if it was not held."""
        if not self._change_timelines(start, end, allocation, giving=True):
            raise ValueError("a slot is given back that was not held")
        self.was_given(allocation)

    def was_given(self, allocation: Allocation) -> None:
        """Note that nodes have been given something, as a copy sees it or this profile."""
        self._version += 1
        self._given_since.clear()
        for node, _ in _node_shares(allocation):
            self._given[node] = self._version

    def take(self, start: Seconds, end: Seconds, allocation: Allocation) -> bool:
        """`hold` with the end given."""
        return self._change_timelines(start, end, allocation, giving=False)

    def _change_timelines(
        self, start: Seconds, end: Seconds, allocation: Allocation, *, giving: bool
    ) -> bool:
        layout, now, lines = self._layout, self.now, self._lines
        changed: dict[int, NodeTimeline] = {}
        for node, share in _node_shares(allocation):
            line = changed.get(node) or lines.get(node) or self._wake_node(node)
            after = None if line is None else line.changed(layout, now, start, end, share, giving=giving)
            if after is None:
                return False
            changed[node] = after
        lines.update(changed)
        # What was closed may be open now, and the other way round.
        self._closed.clear()
        return True

    def keep_node(self, node: int, start: Seconds, end: Seconds, bits: int) -> None:
        """A node is reserved from ``start``, not before now, to ``end``; nothing for one that is lost."""
        line = self._lines.get(node) or self._wake_node(node)
        if line is not None:
            self._lines[node] = line.kept(self._layout, start, end, bits)

    def rest(self, allocation: Allocation) -> None:
        """Count its nodes as idle again where nothing is to come."""
        for node, _ in _node_shares(allocation):
            line = self._lines.get(node)
            if line is not None and line.times[-1] <= self.now:
                del self._lines[node]
                state = line.states[-1]
                self._idle[state] = self._idle.get(state, 0) | 1 << node

    def _wake_node(self, node: int) -> NodeTimeline | None:
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


def _node_shares(allocation: Allocation) -> Iterator[tuple[int, Share]]:
    """Each node of an allocation, and what it gives."""
    for part in allocation.parts:
        share = Share(*part[1:])
        for node in bit_indices(part.nodes):
            yield node, share
    for donor in allocation.donors:
        yield donor.donor, Share(0, (donor.device,), FRACTION_UNITS, 0)
