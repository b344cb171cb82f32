"""A map played on nodes: heartbeats, noise, a shared file system (Shirahata 2010, section V).

Each node has the same slots. Without heartbeats an idle slot is seen at once; with them, when its node next
reports (every ``heartbeat`` seconds, at a random phase), and all idle slots of the node are then filled.
Nothing here knows what a task will take before it has ended; where times are known and nothing of this is
there it is `dovetail.splitting.known`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.splitting.finish_time import CLOSE, Floats
from dovetail.splitting.rules import Rule, SplitState


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A file system that all nodes share: the rate model of Figure 7.

    Every task first reads its input, ``seconds`` long when no other task reads. ``streams`` tasks can read at
    full speed at a time; when more do, all of them slow down alike (processor sharing).
    """

    seconds: float
    streams: float


@dataclass(frozen=True, slots=True)
class Played:
    """What came out; ``mean_seconds`` are those of the tasks themselves, without waits for heartbeats."""

    makespan: float
    tasks: Mapping[str, int]
    mean_seconds: Mapping[str, float]


@dataclass(slots=True)
class _Kind:
    """The slots of one kind, over all nodes, node by node."""

    name: str
    per_node: int
    time: float
    sigma: float
    start: Floats
    busy: npt.NDArray[np.bool_]
    tasks: int = 0
    total: float = 0.0
    reported: int = 0
    reported_total: float = 0.0


class _Reading:
    """The file system: who reads, and when the next one has read all. All readers are equally fast."""

    def __init__(self, system: FileSystem) -> None:
        self._system = system
        self._heap: list[tuple[float, int, tuple[int, int]]] = []
        self._clock = 0.0  # seconds that one reader would have been read for, had it been there always
        self._at = 0.0
        self._count = 0

    def _reading_speed(self) -> float:
        # Processor sharing: with more readers than streams all slow down alike.
        return min(1.0, self._system.streams / len(self._heap)) if self._heap else 1.0

    def _advance_clock(self, now: float) -> None:
        self._clock += (now - self._at) * self._reading_speed()
        self._at = now

    def begin_reading(self, now: float, slot: tuple[int, int]) -> None:
        self._advance_clock(now)
        self._count += 1
        # In units of one reader's own progress, so that ends stay in order whatever the speed does.
        heapq.heappush(self._heap, (self._clock + self._system.seconds, self._count, slot))

    def next_end(self) -> float:
        if not self._heap:
            return math.inf
        return self._at + max(0.0, self._heap[0][0] - self._clock) / self._reading_speed()

    def take(self, now: float) -> tuple[int, int]:
        self._advance_clock(now)
        end, _, slot = heapq.heappop(self._heap)
        # The clock may lag behind by rounding: an end that was taken lies in the past.
        self._clock = max(self._clock, end)
        return slot


class _Play:
    """One map being played."""

    def __init__(
        self,
        kinds: list[_Kind],
        tasks: int,
        nodes: int,
        rule: Rule,
        rng: np.random.Generator,
        heartbeat: float,
        reading: _Reading | None,
        count_gap: bool,
    ) -> None:
        self.kinds, self.left, self.nodes, self.rule, self.rng = kinds, tasks, nodes, rule, rng
        self.heartbeat, self.reading, self.count_gap = heartbeat, reading, count_gap
        self.now = 0.0
        self.running = 0
        self.ends: list[tuple[float, int, int]] = []  # time, kind, slot
        self.waiting: list[list[tuple[int, int, float]]] = [[] for _ in range(nodes)]  # ended, not reported
        self.beats: list[tuple[float, int]] = []
        if heartbeat:
            # Phases are drawn: nodes that all report at once would be a pattern of the model.
            self.beats = [(float(phase), n) for n, phase in enumerate(rng.uniform(0, heartbeat, nodes))]
            heapq.heapify(self.beats)

    def run(self) -> float:
        """Until the last task has ended."""
        finish = 0.0
        # Without heartbeats nodes report at once, so all slots are filled from the start.
        if not self.heartbeat:
            self.fill_slots(range(self.nodes))
        while self.left or self.running:
            read = self.reading.next_end() if self.reading else math.inf
            end = self.ends[0][0] if self.ends else math.inf
            beat = self.beats[0][0] if self.beats else math.inf
            self.now = min(read, end, beat)
            # Reads first at equal times: a task must have its input before it can end.
            if read <= min(end, beat):
                assert self.reading is not None
                self.compute_task(*self.reading.take(self.now))
            elif end <= beat:
                finish = self.now
                self.end_all(self.now)
            else:
                _, node = heapq.heapreplace(self.beats, (self.now + self.heartbeat, self.beats[0][1]))
                self.report_node(node)
                self.fill_slots(range(node, node + 1))
        return finish

    def end_all(self, moment: float) -> None:
        """Tasks that end at one moment (but for rounding); without heartbeats they are seen at once."""
        touched = set()
        while self.ends and self.ends[0][0] <= moment * (1 + CLOSE):
            end, k, slot = heapq.heappop(self.ends)
            kind = self.kinds[k]
            self.running -= 1
            kind.tasks += 1
            kind.total += end - float(kind.start[slot])
            node = slot // kind.per_node
            self.waiting[node].append((k, slot, end))
            touched.add(node)
        if not self.heartbeat:
            for node in touched:
                self.report_node(node)
            self.fill_slots(range(self.nodes))

    def report_node(self, node: int) -> None:
        """The node reports which of its tasks have ended."""
        for k, slot, end in self.waiting[node]:
            kind = self.kinds[k]
            kind.busy[slot] = False
            kind.reported += 1
            kind.reported_total += (self.now if self.count_gap else end) - float(kind.start[slot])
        self.waiting[node].clear()

    def split_state(self) -> SplitState:
        """What the rule may know now."""
        means = {}
        ready = {}
        for kind in self.kinds:
            if kind.reported:
                means[kind.name] = kind.reported_total / kind.reported
            expected = kind.start + means.get(kind.name, 0.0)
            ready[kind.name] = np.where(kind.busy, np.maximum(expected, self.now), self.now)
        return SplitState(self.now, self.left, ready, means)

    def fill_slots(self, nodes: range) -> None:
        """Apply the rule to every idle slot of these nodes, the fastest kind first."""
        if not self.left:
            return
        at: SplitState | None = None
        order = sorted(range(len(self.kinds)), key=lambda k: self.mean(self.kinds[k]))
        for k in order:
            kind = self.kinds[k]
            low, high = nodes.start * kind.per_node, nodes.stop * kind.per_node
            for slot in (low + np.flatnonzero(~kind.busy[low:high])).tolist():
                at = at or self.split_state()
                if not self.left or self.rule.slot_quota(kind.name, at) < 1:
                    break
                self.begin_task(k, slot)
                at.left -= 1

    def mean(self, kind: _Kind) -> float:
        """What is known of its time, for the order of the slots."""
        return kind.reported_total / kind.reported if kind.reported else 0.0

    def begin_task(self, k: int, slot: int) -> None:
        """A task starts: first it reads, if there is a file system, then it computes."""
        kind = self.kinds[k]
        kind.start[slot], kind.busy[slot] = self.now, True
        self.left -= 1
        self.running += 1
        if self.reading is None:
            self.compute_task(k, slot)
        else:
            self.reading.begin_reading(self.now, (k, slot))

    def compute_task(self, k: int, slot: int) -> None:
        """The task computes from now on."""
        kind = self.kinds[k]
        noise = math.exp(kind.sigma * self.rng.standard_normal() - kind.sigma**2 / 2)
        heapq.heappush(self.ends, (self.now + kind.time * noise, k, slot))


def play_map(
    tasks: int,
    slots: Mapping[str, int],
    seconds: Mapping[str, float],
    rule: Rule,
    *,
    nodes: int = 1,
    heartbeat: float = 0.0,
    noise: Mapping[str, float] | None = None,
    file_system: FileSystem | None = None,
    count_gap: bool = True,
    rng: np.random.Generator | None = None,
) -> Played:
    """Play a map of ``tasks`` tasks of one size on ``nodes`` nodes with these slots each.

    ``seconds`` is a task's time by kind, ``noise`` the standard deviation of its logarithm (the mean stays).
    The rule learns means from what nodes report, with ``count_gap`` from a task's start until its node's
    report, without it until its end. Random phases
    and noise come from ``rng``. O((tasks + heartbeats) slots). Raises `ValueError` without slots.
    """
    noise = noise or {}
    kinds = [
        _Kind(
            name,
            count,
            seconds[name],
            noise.get(name, 0.0),
            np.zeros(count * nodes),
            np.zeros(count * nodes, dtype=bool),
        )
        for name, count in slots.items()
        if count
    ]
    if not kinds:
        raise ValueError("there are no slots")
    if rng is None:
        rng = np.random.Generator(np.random.PCG64(1))
    reading = _Reading(file_system) if file_system is not None else None
    game = _Play(kinds, tasks, nodes, rule, rng, heartbeat, reading, count_gap)
    makespan = game.run()
    return Played(
        makespan,
        {kind.name: kind.tasks for kind in kinds},
        {kind.name: kind.total / kind.tasks for kind in kinds if kind.tasks},
    )
