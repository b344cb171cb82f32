"""Which job runs beside which on devices, kept while jobs run that share one by what is learned.

A job's part of its run on a device with others, and beside jobs on the same node's cores, is what its history
keeps (`Companions`). Nothing is kept until the first such job comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from dovetail.model import Companions, JobId, Placed, Seconds, bit_indices
from dovetail.records import dataclass

MOST = 16
"""Apps that are kept of one run, those that were there longest."""
_Place = tuple[int, int]
"""A node and one of its devices; -1 is the cores of the node."""


@dataclass(slots=True)
class _Guest:
    """A job that runs, and for how long each app has been beside it."""

    app: str
    since: Seconds
    keeps: bool
    slowdown: float | None = None
    beside: dict[tuple[bool, str], Seconds] = field(default_factory=dict)


class CompanyBook:
    """All that runs, by place; O(jobs at a place) a start and an end."""

    def __init__(self) -> None:
        self._at: dict[_Place, dict[JobId, _Guest]] = {}
        self._guests: dict[JobId, tuple[_Guest, tuple[_Place, ...]]] = {}

    def started(self, placed: Placed, now: Seconds, slowdown: float | None = None) -> None:
        """A job begins; ``slowdown`` is expected of it there."""
        keeps = placed.allocation.request.sharing
        guest = _Guest(placed.job.app.name, now, keeps, slowdown)
        places = tuple(_device_places(placed))
        self._guests[placed.job.id] = guest, places
        for place in places:
            self._at.setdefault(place, {})[placed.job.id] = guest

    def apps_beside(self, placed: Placed) -> list[str]:
        """The apps whose runs are on a device of this job now."""
        here = [self._at.get(place, {}) for place in _device_places(placed) if place[1] >= 0]
        return [guest.app for guests in here for job, guest in guests.items() if job != placed.job.id]

    def ended(self, job: JobId, now: Seconds, alone: Seconds | None) -> Companions | None:
        """A job has ended: what was beside it, if that is kept of it. ``alone``: it was expected to take."""
        found = self._guests.pop(job, None)
        if found is None:
            return None
        guest, places = found
        for place in places:
            here = self._at[place]
            del here[job]
            for other in here.values():
                span = now - max(guest.since, other.since)
                if span > 0:
                    for one, app in ((guest, other.app), (other, guest.app)):
                        if one.keeps:
                            key = place[1] >= 0, app
                            one.beside[key] = one.beside.get(key, 0.0) + span
            if not here:
                del self._at[place]
        if not guest.keeps:
            return None
        longest = sorted(guest.beside.items(), key=lambda pair: -pair[1])
        spans = [
            tuple((app, span) for (on_device, app), span in longest if on_device is which)[:MOST]
            for which in (True, False)
        ]
        return Companions(spans[0], spans[1], alone, guest.slowdown)


def _device_places(placed: Placed) -> Iterator[_Place]:
    for part in placed.allocation.parts:
        for n in bit_indices(part.nodes):
            for d in part.devices:
                yield n, d
            if part.cpus or not part.devices:
                yield n, -1
