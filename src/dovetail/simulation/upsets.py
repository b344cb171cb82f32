"""What happens to the nodes of a simulated machine beside its jobs: failures, repairs, windows.

Random failures are drawn in the order in which they happen, one stream of random numbers for the times
between failures and one for repairs. So they depend on the seed alone, and not on the policy or the jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import count
from math import gamma, inf
from typing import TYPE_CHECKING

from dovetail.model import (
    Conditions,
    Event,
    Failures,
    NodeJoined,
    NodeLost,
    Outage,
    Placed,
    Reservation,
    Reserved,
    Seconds,
    Window,
    WindowHeld,
)
from dovetail.records import dataclass

if TYPE_CHECKING:
    from numpy.random import Generator

AHEAD = 3
"""So many times a window that repeats is known beyond the present one, so that plans keep off it."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """A node's failure or its return; ``repair`` of a listed failure, else it is drawn."""

    node: int
    fails: bool
    repair: Seconds | None = None
    drawn: bool = False


class NodeFailures:
    """Nodes that fail and are repaired. A node with two failures at once is back when both are repaired."""

    def __init__(self, failures: Failures, between: Generator, repairs: Generator) -> None:
        self._failures, self._between, self._repairs = failures, between, repairs
        self._heap: list[tuple[Seconds, int, _Turn]] = []
        self._number = count()
        self._faults: dict[int, int] = {}
        self._since: dict[int, Seconds] = {}
        self.outages: list[Outage] = []
        """Those that are over."""
        if failures.mtbf is not None:
            self._scale = failures.mtbf / gamma(1 + 1 / failures.shape)
            draws = between.weibull(failures.shape, len(failures.nodes)) * self._scale
            for node, at in zip(failures.nodes, draws.tolist(), strict=True):
                self._add(at, _Turn(node, True, drawn=True))
        for listed in failures.listed:
            self._add(listed.at, _Turn(listed.node, True, listed.repair))

    def _add(self, at: Seconds, turn: _Turn) -> None:
        if at < inf:
            heapq.heappush(self._heap, (at, next(self._number), turn))

    @property
    def next_time(self) -> Seconds:
        """When the next node fails or is back; infinite if none does."""
        return self._heap[0][0] if self._heap else inf

    def is_down(self, node: int) -> bool:
        """Whether a node has a failure that is not repaired."""
        return bool(self._faults.get(node))

    def due(self, now: Seconds) -> list[Event]:
        """What happens up to now."""
        events: list[Event] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, turn = heapq.heappop(self._heap)
            events += self._fail(at, turn) if turn.fails else self._return(at, turn)
        return events

    def _fail(self, at: Seconds, turn: _Turn) -> list[Event]:
        repair = turn.repair
        if repair is None:
            repair = float(self._repairs.exponential(self._failures.mttr)) if self._failures.mttr else 0.0
        self._add(at + repair, replace(turn, fails=False))
        self._faults[turn.node] = self._faults.get(turn.node, 0) + 1
        for_good = repair == inf
        if self._faults[turn.node] > 1:
            # Lost for good while it is down already: the engine gets that event too.
            return [NodeLost(turn.node, for_good=True)] if for_good else []
        self._since[turn.node] = at
        return [NodeLost(turn.node, for_good=for_good)]

    def _return(self, at: Seconds, turn: _Turn) -> list[Event]:
        if turn.drawn:
            self._add(
                at + float(self._between.weibull(self._failures.shape)) * self._scale,
                replace(turn, fails=True, repair=None),
            )
        self._faults[turn.node] -= 1
        if self._faults[turn.node]:
            return []
        self.outages.append(Outage(turn.node, self._since.pop(turn.node), at))
        return [NodeJoined(turn.node)]

    def all_outages(self) -> tuple[Outage, ...]:
        """Those that are over, and those that are not, by their start."""
        still = [Outage(node, since, inf) for node, since in self._since.items()]
        return tuple(sorted([*self.outages, *still], key=lambda one: (one.start, one.node)))


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """The ``number``-th time of a window, from 0."""

    window: Window
    number: int
    bit: int

    @property
    def start(self) -> Seconds:
        return self.window.start + self.number * (self.window.every or 0.0)

    @property
    def end(self) -> Seconds:
        return self.start + self.window.span

    def reservation(self) -> Reservation:
        """As the engine knows it."""
        window = self.window
        name = f"{window.name} {self.number + 1}" if window.every is not None else window.name
        return Reservation(
            name, window.users, window.devices, self.start, self.end, self.bit, window.name, window.nodes
        )


class WindowCalendar:
    """Windows, each known from the beginning on; of one that repeats only the next few times are."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._open: list[_Occurrence] = []
        self._begins: list[tuple[Seconds, int, _Occurrence]] = []
        self._order = count()
        self.held: list[WindowHeld] = []
        """What was known of so far, also of windows that had not begun when all jobs were over."""
        self._announced = not windows
        for window in windows:
            for number in range(1 if window.every is None else AHEAD + 1):
                self._open_next(window, number)

    def _open_next(self, window: Window, number: int) -> None:
        used = {one.bit for one in self._open}
        made = _Occurrence(window, number, next(bit for bit in count() if bit not in used))
        self._open.append(made)
        heapq.heappush(self._begins, (made.start, next(self._order), made))
        self.held.append(WindowHeld(window, made.start, made.end))

    @property
    def next_time(self) -> Seconds:
        """When the next one begins (0: nothing has been announced yet)."""
        if not self._announced:
            return 0.0
        return self._begins[0][0] if self._begins else inf

    def due(self, now: Seconds) -> tuple[list[Event], list[int]]:
        """What is known from now on, and the nodes on which nothing may run from now on."""
        changed, cleared = not self._announced, list[int]()
        self._announced = True
        while self._begins and self._begins[0][0] <= now:
            _, _, begun = heapq.heappop(self._begins)
            if begun.window.is_maintenance:
                cleared += begun.window.nodes
            if begun.window.every is not None:
                self._open_next(begun.window, begun.number + AHEAD + 1)
                changed = True
        self._open = [one for one in self._open if one.end > now]
        events: list[Event] = []
        if changed:
            events.append(Reserved(tuple(one.reservation() for one in self._open)))
        return events, cleared


class Upsets:
    """All that happens to nodes. ``chance`` are two streams of random numbers: for failures, for repairs."""

    def __init__(self, conditions: Conditions, chance: tuple[Generator, Generator]) -> None:
        self._failures = NodeFailures(conditions.failures or Failures(), *chance)
        self._calendar = WindowCalendar(conditions.windows)

    @property
    def next_time(self) -> Seconds:
        """When the next thing happens; infinite if nothing does."""
        return min(self._failures.next_time, self._calendar.next_time)

    def due(
        self,
        now: Seconds,
        held_on: Callable[[int], Sequence[Placed]],
        still_on: Callable[[int], Sequence[str]],
        ending: Collection[str],
    ) -> list[Event]:
        """What happens up to now. ``held_on`` gives the jobs on a node, of which those ``ending`` end anyway.

        A job that still runs where maintenance begins, or stands still there (``still_on``), loses its node
        as by a failure.
        """
        events = self._failures.due(now)
        known, cleared = self._calendar.due(now)
        for node in cleared:
            runs = any(placed.job.id not in ending for placed in held_on(node))
            late = not self._failures.is_down(node) and (runs or bool(still_on(node)))
            events += [NodeLost(node), NodeJoined(node)] if late else []
        return events + known

    def outages(self) -> tuple[Outage, ...]:
        """When nodes were down."""
        return self._failures.all_outages()

    def windows(self) -> tuple[WindowHeld, ...]:
        """When windows were, or were going to be."""
        return tuple(self._calendar.held)
