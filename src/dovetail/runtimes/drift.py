"""How much longer jobs take here than their CPU time, of late: what else the machine is doing.

A program that computes takes as long as its CPU time when it has its cores to itself, and longer when others
want them. How much longer is much the same for all programs that run at about the same time, while the CPU
time of a run depends little on its neighbours. So a law of CPU time times the present *slowdown* is a better
guess of the next run than a law of run times that were slowed down in their own time, each differently.

For a run with run time w and CPU time c let r = log(w / c). An app's own ratio (threads, waiting for disks
or networks) is the median of r less the slowdown at the time. The slowdown before a run is the median of the
last `LAST` values of r, each less its app's own ratio. Both look backwards only, so the values depend on the
order of the runs alone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field

from dovetail.history.base import MeasuredHistory, RequestKey, request_key
from dovetail.model import DeviceClass, Run, Seconds
from dovetail.records import dataclass

LAST = 5
"""Runs of which the slowdown is the median: two odd ones do no harm, and it is of late."""
OWN = 32
"""Newest runs of an app of which its own ratio is the median."""
WINDOW = 256
"""Newest runs of all apps that are looked at, at least."""
BLOCK = 128
"""The window begins at a multiple of this: what is known of it is carried forward meanwhile."""
LEAST: Seconds = 1e-3
"""CPU times below this are mostly the start of a process, and measured badly."""

_App = tuple[str, str, RequestKey]


def median_value(values: Iterable[float]) -> float:
    """As ``statistics.median``, without fractions and decimals, which that imports: 3 ms of every start."""
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def cpu_time(run: Run) -> Seconds | None:
    """The CPU seconds of a run on one node; ``None`` where they were not measured or mean nothing."""
    if run.usage is None or run.usage.cpu_time is None or run.nodes != 1 or run.seconds <= 0:
        return None
    return run.usage.cpu_time if run.usage.cpu_time >= LEAST else None


@dataclass(frozen=True, slots=True)
class Timed:
    """A run with its log ratio of run time to CPU time, and the log slowdown as it was known before it."""

    run: Run
    ratio: float
    before: float


@dataclass(slots=True)
class _Place:
    """What has run on one device class: the last slowdowns, and the runs of each app."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    own: dict[_App, deque[float]] = field(default_factory=dict)
    runs: dict[_App, list[Timed]] = field(default_factory=dict)

    @property
    def slowdown(self) -> float:
        """Its logarithm; 0 where nothing is known."""
        return median_value(self.last) if self.last else 0.0

    def add(self, run: Run, cpu: Seconds) -> None:
        app = (run.app, run.implementation, request_key(run))
        # The slowdown before this run: with its own it would explain itself.
        ratio, before = math.log(run.seconds / cpu), self.slowdown
        own = self.own.setdefault(app, deque(maxlen=OWN))
        if own:  # the first run of an app shows nothing of the machine
            self.last.append(ratio - median_value(own))
        own.append(ratio - before)
        self.runs.setdefault(app, []).append(Timed(run, ratio, before))


class Drift:
    """The slowdown on each device class, brought up to date run by run.

    Whatever the order of queries, the same history gives the same values: the runs that count begin at a
    multiple of `BLOCK`, counted over the whole history.
    """

    def __init__(self, history: MeasuredHistory) -> None:
        self._history = history
        self._total = self._begin = 0
        self._places: dict[DeviceClass, _Place] = {}

    def take_in_runs(self) -> int:
        """Take in what has run since; returns the number of runs of the history. O(1) for each new one."""
        total = self._history.total()
        if total != self._total:
            # From a block's edge on, the values depend on the history alone, not on when the model was made.
            begin = max(0, (total - WINDOW) // BLOCK * BLOCK)
            if begin != self._begin or total < self._total:
                self._places.clear()
                self._begin, self._total = begin, begin
            for run in self._history.latest_runs(total - self._total):
                cpu = cpu_time(run)
                if cpu is not None:
                    self._places.setdefault(run.device_class, _Place()).add(run, cpu)
            self._total = total
        return total

    def slowdown(self, device: DeviceClass) -> float:
        """Logarithm of how much longer runs take there at present than their apps usually do."""
        place = self._places.get(device)
        return 0.0 if place is None else place.slowdown

    def runs(
        self, app: str, implementation: str, device: DeviceClass, request: RequestKey
    ) -> Sequence[Timed]:
        """The runs of the window with a CPU time, oldest first."""
        place = self._places.get(device)
        return () if place is None else place.runs.get((app, implementation, request), ())
