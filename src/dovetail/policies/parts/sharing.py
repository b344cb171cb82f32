"""Which jobs with ``gpus = "auto"`` share a device: those that end sooner together than one after the other.

What a pair costs is learned from runs that shared (`dovetail.runtimes.sharing`). A pair of which nothing is
known is tried rarely, and only where little can be lost: together two jobs take at worst about twice as long
as one after the other, so at most `RISKED` of what both apps have run so far, `tries_allowed` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

from dovetail.interfaces import View
from dovetail.model import Choice, Implementation, Job, Request, Seconds, Unit, bit_indices, class_on

GAIN = 0.02
"""Part of what two share, one after the other, that must be gained: predictions are no better."""
RISKED = 0.25
"""Of the time that both apps have run, what the shorter of two jobs that are tried together may take."""
REACH = 16
"""Jobs of a FIFO among which a partner is looked for."""


class Guest(NamedTuple):
    """A job on a device, and the seconds that are left of it if it were alone; ``None``: not known."""

    job: Job
    implementation: Implementation
    request: Request
    left: Seconds | None


class Together(NamedTuple):
    """When the job that is there, and the one that comes, end if they share: seconds from now."""

    there: Seconds
    comes: Seconds


def run_together(left: Seconds, slows: float, takes: Seconds, slowed: float) -> Together:
    """Two jobs on one device, the first ``slows`` times as slow beside the second, which is ``slowed``.

    >>> run_together(10.0, 1.25, 10.0, 1.25), run_together(4.0, 2.0, 10.0, 2.0)
    (Together(there=12.5, comes=12.5), Together(there=8.0, comes=14.0))
    """
    first, second = left * slows, takes * slowed
    # When the first of both ends, the other goes on at full speed with what it has left.
    if first <= second:
        return Together(first, first + takes - first / slowed)
    return Together(second + left - second / slows, second)


def pays_off(left: Seconds, takes: Seconds, ends: Together) -> bool:
    """Whether both have ended sooner so than one after the other, by enough of what the shorter one takes.

    >>> together = run_together(0.5, 1.2, 10.0, 1.2)  # half a second is left, of which 0.4 s are gained
    >>> pays_off(0.5, 10.0, together), pays_off(10.0, 10.0, run_together(10.0, 1.98, 10.0, 1.98))
    (True, False)
    """
    # By what they share: of a job that is nearly over little can be gained, and little lost.
    return left + takes - max(ends) >= 2 * GAIN * min(left, takes)


def tries_allowed(runs: int) -> int:
    """How often a pair that is not expected to pay may be tried when its apps have run so often alone.

    >>> [tries_allowed(runs) for runs in (3, 4, 63, 64, 1024)]
    [0, 1, 1, 2, 3]
    """
    return int((log(max(runs, 1)) / log(4) + 1) / 2 + 1e-9)


class Sharing:
    """Who is on each device at this instant, and who may come beside them. Made at its first use."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._at: dict[int, list[Guest]] = {}
        at = {(unit.node, unit.device): unit.index for unit in view.cluster.units}
        for placed in view.running.values():
            left = None if placed.predicted is None else view.remaining(placed)
            guest = Guest(placed.job, placed.implementation, placed.allocation.request, left)
            for part in placed.allocation.parts:
                for n in bit_indices(part.nodes) if part.devices else ():
                    for d in part.devices:
                        self._at.setdefault(at[n, d], []).append(guest)

    def copy(self) -> Sharing:
        """An independent one, to try ideas on."""
        made = Sharing.__new__(Sharing)
        made._view, made._at = self._view, {index: list(guests) for index, guests in self._at.items()}
        return made

    def is_empty(self, unit: Unit) -> bool:
        """Whether that device is empty."""
        return unit.index not in self._at

    def note_start(self, job: Job, choice: Choice, unit: Unit) -> None:
        """A job starts there at this instant."""
        alone = self._seconds_alone(job, choice.implementation, choice.request, unit)
        self._at.setdefault(unit.index, []).append(Guest(job, choice.implementation, choice.request, alone))

    def may_join(self, job: Job, choice: Choice, unit: Unit, *, within: bool = False) -> bool:
        """Whether a job may start on that device; ``within``: only if it ends before who is there.

        Always where it is empty.
        """
        ends = self.outlook(job, choice, unit)
        return ends is not None and (not within or ends.comes <= ends.there)

    def outlook(self, job: Job, choice: Choice, unit: Unit) -> Together | None:
        """When both would end; ``None`` where it is not to share. What is tried counts as half as fast."""
        takes = self._seconds_alone(job, choice.implementation, choice.request, unit)
        guests = self._at.get(unit.index, ())
        if not guests:
            return Together(0.0, inf if takes is None else takes)
        # At most two on one device; and without a prediction for both there is nothing to weigh.
        if takes is None or len(guests) > 1 or not guests[0].request.sharing or guests[0].left is None:
            return None
        guest = guests[0]
        left = guest.left or 0.0
        ours, theirs = self._mutual_slowdowns(job, choice, guest, unit)
        if ours is not None and theirs is not None:
            ends = run_together(left, theirs, takes, ours)
            if pays_off(left, takes, ends):
                return ends
        if self._may_be_tried(job, choice, takes, guest, unit, foreseen=ours is not None):
            return run_together(left, ours or 2.0, takes, theirs or 2.0)
        return None

    def _mutual_slowdowns(
        self, job: Job, choice: Choice, guest: Guest, unit: Unit
    ) -> tuple[float | None, float | None]:
        """How many times as long the job takes beside the guest, and the guest beside the job."""
        way, request = choice.implementation, choice.request
        return (
            self._slowdown_beside(job, way, request, unit, guest.job.app.name),
            self._slowdown_beside(guest.job, guest.implementation, guest.request, unit, job.app.name),
        )

    def _slowdown_beside(
        self, job: Job, way: Implementation, request: Request, unit: Unit, other: str
    ) -> float | None:
        alone = self._seconds_alone(job, way, request, unit)
        found = self._view.predict(job, way, request, class_on(way, unit).beside(other))
        return None if found is None or not alone else found.expected / alone

    def _seconds_alone(self, job: Job, way: Implementation, request: Request, unit: Unit) -> Seconds | None:
        found = self._view.predict(job, way, request, class_on(way, unit))
        return None if found is None else found.expected

    def _may_be_tried(
        self, job: Job, choice: Choice, takes: Seconds, guest: Guest, unit: Unit, *, foreseen: bool
    ) -> bool:
        """Whether a trial of a pair can lose little, there were few, and no other goes on.

        One that is ``foreseen`` not to pay has to wait longer for its first.
        """
        mine = job.app.name, choice.implementation.name, class_on(choice.implementation, unit)
        its = guest.job.app.name, guest.implementation.name, class_on(guest.implementation, unit)
        runs = self._view.runtimes.runs
        times = {
            mine: takes,
            its: self._seconds_alone(guest.job, guest.implementation, guest.request, unit) or 0.0,
        }
        counts = {one: runs(*one) for one in times}
        tried = runs(mine[0], mine[1], mine[2].beside(its[0]))
        # A slowdown is measured against runs alone: without one of each app a trial would show nothing.
        if min(counts.values()) < 1 or tried >= tries_allowed(sum(counts.values())) - (
            foreseen and not tried
        ):
            return False
        # The most that a trial can lose is the shorter of both, and that has to be little beside all that
        # these apps have run.
        if min(guest.left or 0.0, takes) > RISKED * sum(counts[one] * times[one] for one in times):
            return False
        # One trial at a time, so that the next is chosen with what this one shows.
        return not any(self._is_trial(guests, index) for index, guests in self._at.items())

    def _is_trial(self, guests: Sequence[Guest], index: int) -> bool:
        """Whether a pair shares a device of which nothing is known yet."""
        if len(guests) < 2 or not guests[0].request.sharing:
            return False
        unit, (first, second) = self._view.cluster.units[index], guests[:2]
        choice = Choice(first.implementation, first.request)
        return None in self._mutual_slowdowns(first.job, choice, second, unit)
