"""Devices that are kept for a user between two moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dovetail.model.job import Choice, Job, Seconds
from dovetail.records import dataclass

__all__ = ["Reservation", "avoids_of", "kept_devices", "with_avoids"]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices on which between ``start`` and ``end`` only jobs of these users run.

    ``devices`` are pairs of a node's index and a device's index there. ``bit`` distinguishes the reservations
    of one moment: `Request.avoids` has it set for jobs that are to stay off these devices.
    """

    id: str
    users: tuple[str, ...]
    devices: tuple[tuple[int, int], ...]
    start: Seconds
    end: Seconds
    bit: int = 0
    name: str = ""

    @property
    def mask(self) -> int:
        """Its bit as a mask."""
        return 1 << self.bit


def kept_devices(reservations: Iterable[Reservation]) -> dict[tuple[int, int], int]:
    """For each device that is reserved, now or later, the bits of its reservations. O(devices)."""
    kept: dict[tuple[int, int], int] = {}
    for one in reservations:
        for place in one.devices:
            kept[place] = kept.get(place, 0) | one.mask
    return kept


def avoids_of(job: Job) -> int:
    """The reservations that a job stays off; 0 for one that uses no device."""
    return max((choice.request.avoids for choice in job.choices), default=0)


def with_avoids(job: Job, avoids: int) -> Job:
    """The job staying off these reservations; the same object where nothing changes.

    Choices without devices stay as they are: what they use is never reserved.
    """
    if all(choice.request.avoids == avoids for choice in job.choices if choice.request.devices):
        return job
    choices = tuple(
        Choice(choice.implementation, replace(choice.request, avoids=avoids))
        if choice.request.devices
        else choice
        for choice in job.choices
    )
    return replace(job, choices=choices)
