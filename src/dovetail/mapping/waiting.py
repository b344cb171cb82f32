"""A map's items: where they come from, which wait, how they become tasks: neighbours, the longest first."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import field
from typing import Any

import numpy as np

from dovetail.mapping.crew import Slot
from dovetail.mapping.health import Blame
from dovetail.mapping.running import Failure
from dovetail.records import dataclass
from dovetail.splitting.finish_time import Floats, fluid_finish
from dovetail.splitting.rules import FinishTime, Rule, SplitState
from dovetail.splitting.sized import next_task

LEAST = 1e-300
"""Sums of costs that are taken away one by one may end a little below 0."""


@dataclass(eq=False, slots=True)
class Task:
    """Items that go to a worker together. ``costs`` is what they cost in all, by kind; ``None``: 1 each.

    ``tries`` counts how often its item failed on every kind, ``deaths`` how often its worker was lost with
    it; ``copies`` are the workers that run it now, ``doubled``: it was given to a second one.
    ``blames`` has one entry for each try that failed, ``errors`` the last failure of each kind;
    ``elsewhere``: it waits for a kind on which it was not tried, ``killed``: its worker was. ``check``
    marks a run whose result is compared, not delivered.
    """

    indices: Sequence[int]
    items: list[Any]
    costs: Mapping[str, float] | None = None
    tries: int = 0
    deaths: int = 0
    done: bool = False
    copies: int = 0
    doubled: bool = False
    check: Any = None
    blames: Sequence[Blame] = ()
    errors: Mapping[str, Failure] = field(default_factory=dict)
    elsewhere: bool = False
    killed: bool = False

    def __len__(self) -> int:
        return len(self.items)

    def cost_on_kind(self, kind: str) -> float:
        """What it costs on workers of this kind."""
        return float(len(self.items)) if self.costs is None else self.costs[kind]

    @property
    def start(self) -> int:
        """Its first item's place if its items are neighbours, else -1."""
        return self.indices[0] if isinstance(self.indices, range) or len(self.indices) == 1 else -1

    def part(self, low: int, high: int) -> Task:
        """Some of its items as a task of their own, with the same past."""
        share = (high - low) / len(self.items)
        costs = None if self.costs is None else {kind: cost * share for kind, cost in self.costs.items()}
        return Task(
            self.indices[low:high],
            self.items[low:high],
            costs,
            self.tries,
            self.deaths,
            blames=self.blames,
            errors=self.errors,
        )

    def add_blame(self, blame: Blame, failure: Failure) -> None:
        """A try has failed."""
        self.blames = (*self.blames, blame)
        self.errors = {**self.errors, blame.slot.kind: failure}


class Items:
    """Items in their order: a sequence is cut, anything else is read ahead by a thread of its own.

    So a slow generator blocks nothing else. ``sequence`` is the sequence, ``None`` where there
    is none. ``arrived`` is called when the first items come after none were there, and at the end. ``error``
    is what the user's iterable raised; there are no items after it.
    """

    def __init__(self, items: Iterable[Any], arrived: Callable[[], None]) -> None:
        # A list, a NumPy array, …
        is_sequence = isinstance(items, Sequence) or hasattr(items, "__array_interface__")
        self.sequence: Sequence[Any] | None = items if is_sequence else None  # type: ignore[assignment]
        self._total: float = len(items) if isinstance(items, Sized) else math.inf
        self._arrived = arrived
        self._buffer: deque[Any] = deque()
        self._most = 2
        self._room = threading.Condition()
        self._ended = self._closed = False
        self.taken = 0
        self.error: BaseException | None = None
        if self.sequence is None:
            read = threading.Thread(
                target=self._read_items, args=(items,), name="dovetail-map-items", daemon=True
            )
            read.start()

    @property
    def left(self) -> float:
        """Items not given out, as far as is known; infinite where more may come."""
        if self._ended:
            return len(self._buffer)
        return max(self._total - self.taken, len(self._buffer))

    @property
    def at_hand(self) -> int:
        """Items that can be had at once."""
        return len(self._buffer) if self.sequence is None else int(self._total) - self.taken

    def take(self, most: int) -> list[Any]:
        """The next items, up to ``most``; fewer, or none, where there are no more at hand."""
        count = min(most, self.at_hand)
        if self.sequence is None:
            with self._room:
                found = [self._buffer.popleft() for _ in range(count)]
                # The reading thread waits for room: it stays only a little ahead of the workers.
                self._room.notify()
        elif isinstance(self.sequence, list | tuple | range):
            found = list(self.sequence[self.taken : self.taken + count])
        else:
            found = [self.sequence[i] for i in range(self.taken, self.taken + count)]
        self.taken += count
        return found

    def set_readahead(self, items: int) -> None:
        """How many items to hold ready."""
        if items > self._most:
            with self._room:
                self._most = items
                self._room.notify()

    def close(self) -> None:
        """No more are wanted: the thread ends at the next item."""
        with self._room:
            self._closed = True
            self._room.notify()

    def _read_items(self, items: Iterable[Any]) -> None:
        try:
            for item in items:
                self._buffer.append(item)
                # Only from none to one: a wake for each item would cost more than the item.
                if len(self._buffer) == 1:
                    self._arrived()
                with self._room:
                    self._room.wait_for(lambda: self._closed or len(self._buffer) < self._most)
                if self._closed:
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the map is used
            self.error = error
        self._ended = True
        self._arrived()


class Waiting(ABC):
    """Items that have not been given to anybody; what comes back goes before all others."""

    def __init__(self) -> None:
        self._redo: deque[Task] = deque()

    @property
    @abstractmethod
    def fresh(self) -> float:
        """Items that were never given out; infinite where more may come."""

    def take(self, slot: Slot, most: int, cost: float) -> Task | None:
        """A task of up to ``most`` items and about this cost; ``None`` if there is nothing at hand."""
        if not self._redo:
            return self._take_task(slot, most, cost)
        task = self._redo.popleft()
        if len(task) > most:
            self._redo.appendleft(task.part(most, len(task)))
            task = task.part(0, most)
        return task

    @abstractmethod
    def _take_task(self, slot: Slot, most: int, cost: float) -> Task | None:
        """A task of items that were never given out."""

    @property
    def left(self) -> float:
        """All items that wait; infinite where more may come."""
        return self.fresh + sum(map(len, self._redo))

    @property
    def at_hand(self) -> int:
        """How many could be given out now."""
        return int(self.left)

    @property
    def has_returned_items(self) -> bool:
        """Whether something comes back that others may wait for."""
        return bool(self._redo)

    def quota_of_slot(self, kind: str, slot: int, rule: Rule, at: SplitState) -> float:
        """How many items an idle worker may take now; ``slot`` is its place in ``at.ready[kind]``."""
        return rule.slot_quota(kind, at)

    def finish(self, at: SplitState) -> float:
        """When all that waits can be done: T*."""
        return at.finish

    def take_back(self, task: Task) -> None:
        """A task comes back: its items are to be run again, before all others."""
        self._redo.appendleft(task)


class InTurn(Waiting):
    """Items of one size, in their order."""

    def __init__(self, items: Items) -> None:
        super().__init__()
        self._items = items

    @property
    def fresh(self) -> float:
        """What has not been taken."""
        return self._items.left

    @property
    def at_hand(self) -> int:
        """Items that can be had at once."""
        return self._items.at_hand + sum(map(len, self._redo))

    def _take_task(self, slot: Slot, most: int, cost: float) -> Task | None:
        """The next neighbours; each costs 1."""
        start = self._items.taken
        items = self._items.take(max(1, min(most, int(cost))))
        return Task(range(start, start + len(items)), items) if items else None


class ByNode(Waiting):
    """Items of one size whose data lies on nodes: a worker takes those of its own node while there are any.

    Then it helps the node that has most left. ``nodes`` has the node of each item.
    """

    def __init__(self, items: Sequence[Any], nodes: Sequence[str]) -> None:
        super().__init__()
        self._items = items
        self._of_node: dict[str, deque[int]] = {}
        for i, node in enumerate(nodes):
            self._of_node.setdefault(node, deque()).append(i)

    @property
    def fresh(self) -> float:
        """Those of all nodes."""
        return sum(map(len, self._of_node.values()))

    def _take_task(self, slot: Slot, most: int, cost: float) -> Task | None:
        """The worker's own node's items; each costs 1."""
        # The fullest other node: its own workers take longest to come to the end.
        own = self._of_node.get(slot.node) or max(self._of_node.values(), key=len)
        indices = [own.popleft() for _ in range(min(len(own), max(1, min(most, int(cost)))))]
        return Task(indices, [self._items[i] for i in indices]) if indices else None


class BySize(Waiting):
    """Items of different size, the longest first (or in their order); ``costs`` has them all, by kind.

    Costs are what was predicted, in seconds or any unit: only their proportions count, since the pace of
    each kind is measured.
    """

    def __init__(self, items: Sequence[Any], costs: Mapping[str, Floats], *, ordered: bool) -> None:
        super().__init__()
        self._items, self._costs = items, costs
        # By the longest time on any kind: an item that is long somewhere must not come last there.
        longest = np.maximum.reduce(list(costs.values()))
        order = np.arange(len(items)) if ordered else np.argsort(-longest, kind="stable")
        self._order: deque[int] = deque(order.tolist())
        self._totals = {kind: float(cost.sum()) for kind, cost in costs.items()}
        self._chosen: int | None = None

    @property
    def fresh(self) -> float:
        """Those that are left of the order."""
        return len(self._order)

    def quota_of_slot(self, kind: str, slot: int, rule: Rule, at: SplitState) -> float:
        """By the finish-time rule what the plan gives the worker first; other rules count the items."""
        self._chosen = None
        # What comes back goes first, so the plan of the others waits.
        if rule.name != FinishTime.name or not at.is_known or not self._order or self._redo:
            return rule.slot_quota(kind, self._counted_state(at))
        longest = float(self._costs[kind][self._order[0]]) * at.seconds[kind]
        totals = {k: max(self._totals[k], LEAST) * at.seconds[k] for k in at.seconds}

        def planned_times() -> Mapping[str, Sequence[float]]:
            order = np.fromiter(self._order, dtype=np.intp)
            return {k: (self._costs[k][order] * at.seconds[k]).tolist() for k in at.seconds}

        self._chosen = next_task(kind, slot, at.now, longest, totals, at.ready, planned_times)
        return 0 if self._chosen is None else math.inf

    def finish(self, at: SplitState) -> float:
        """As if the items could be cut."""
        return fluid_finish(at.ready, self._counted_state(at).seconds, at.left)

    def _counted_state(self, at: SplitState) -> SplitState:
        """The same with seconds for an item of mean cost."""
        count = max(1, len(self._order))
        mean = {k: seconds * self._totals[k] / count for k, seconds in at.seconds.items()}
        return SplitState(at.now, at.left, at.ready, mean)

    def _take_task(self, slot: Slot, most: int, cost: float) -> Task | None:
        """The item that was chosen, or the next; small ones with others that follow it."""
        if not self._order:
            return None
        at, self._chosen = self._chosen or 0, None
        taken: list[int] = []
        spent = 0.0
        while at < len(self._order) and len(taken) < most:
            one = float(self._costs[slot.kind][self._order[at]])
            if taken and spent + one > cost:
                break
            taken.append(self._order[at])
            del self._order[at]
            spent += one
        costs = {k: float(array[taken].sum()) for k, array in self._costs.items()}
        for k, whole in costs.items():
            self._totals[k] -= whole
        return Task(taken, [self._items[i] for i in taken], costs)
