"""Ways to run moldable jobs as arrays, for the rule of `fms` and its kernel.

The requests of all jobs come in few *shapes*: what is asked of each node, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from dovetail.files.arrays import Bools, Floats, Ints, np
from dovetail.kernels.gangs import occupy, place
from dovetail.model import Request, Seconds, Way
from dovetail.policies.parts.ready_times import ReadyTimes, Shape

__all__ = ["Shapes", "Table", "Tables"]


class Table(NamedTuple):
    """Ways to run jobs, as arrays: (shape, nodes) of each, and its seconds."""

    forms: Ints
    seconds: Floats

    def after(self, at: int) -> Table:
        """All but the first ``at``."""
        return Table(self.forms[at:], self.seconds[at:])


class Shapes(NamedTuple):
    """What each shape asks of a node: its ``pool``, so many ``devices`` of the ``eligible`` ones.

    Shapes are (shapes,), (shapes, nodes, 1 + devices), and (shapes, nodes) for the nodes that are ``able``.
    """

    pool: Bools
    devices: Ints
    eligible: Bools
    able: Bools

    def put(self, ready: Floats, table: Table, option: int, *, packed: bool) -> Seconds:
        """Let a job hold the nodes on which it starts first; its end, infinite if it starts nowhere."""
        (shape, nodes), seconds = table.forms[option], float(table.seconds[option])
        pool, count, eligible = self.pool[shape], self.devices[shape], self.eligible[shape]
        total = len(ready)
        chosen, keys, at = np.empty(total, np.int64), np.empty(total), np.empty(total)
        able = self.able[shape]
        start = place(ready, 1, pool, count, eligible, able, nodes, packed, chosen, keys, at)
        if start < inf:
            occupy(ready, 1, pool, count, eligible, chosen, nodes, start, start + seconds)
        return start + seconds

    def units_of(self, table: Table, option: int) -> int:
        """Pools and devices that a job holds."""
        shape, nodes = table.forms[option]
        return int((int(self.pool[shape]) + self.devices[shape]) * nodes)


class Tables:
    """Numbers the shapes of the requests seen so far, and writes ways as arrays."""

    def __init__(self, times: ReadyTimes) -> None:
        self._times = times
        self._number: dict[Request, int] = {}
        self._seen: list[Shape] = []
        self._all: Shapes | None = None

    def of(self, ways: Sequence[Way]) -> Table:
        """The ways as arrays."""
        forms = [(self._of(way.choice.request), way.choice.request.nodes) for way in ways]
        seconds = np.array([way.least for way in ways], np.float64)
        return Table(np.array(forms, np.int64).reshape(len(forms), 2), seconds)

    def _of(self, request: Request) -> int:
        one = request.on(1)
        found = self._number.get(one)
        if found is None:
            found = self._number[one] = len(self._seen)
            self._seen.append(self._times.shape(request))
            self._all = None
        return found

    def shapes(self) -> Shapes:
        """All shapes so far."""
        if self._all is None:
            self._all = Shapes(
                np.array([shape.pool for shape in self._seen]),
                np.array([shape.count for shape in self._seen], np.int64),
                np.stack([shape.eligible for shape in self._seen]),
                np.stack([shape.able for shape in self._seen]),
            )
        return self._all
