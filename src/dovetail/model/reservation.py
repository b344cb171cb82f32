"""Devices and nodes that are kept for users, or from all, between two moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dovetail.model.job import Choice, Job, Seconds
from dovetail.records import dataclass

__all__ = ["NODE", "Reservation", "avoids_of", "kept_devices", "with_avoids"]

NODE = -1
"""Stands for a whole node among its devices."""
PLANNED_BITS, NODE_BITS = 64, 128
"""Reservations of devices have the bits below both, those of nodes bits from each of them on."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices, or whole nodes, on which between ``start`` and ``end`` only jobs of these users run.

    ``devices`` are pairs of a node's index and a device's index there. ``bit`` distinguishes the reservations
    of one moment: `Request.avoids` has its ``mask`` set for jobs that are to stay off these places now. Where
    whole ``nodes`` are reserved it has ``planned`` set for all jobs of others: what policies plan with knows
    from when to when the nodes are not theirs.
    """

    id: str
    users: tuple[str, ...]
    devices: tuple[tuple[int, int], ...]
    start: Seconds
    end: Seconds
    bit: int = 0
    name: str = ""
    nodes: tuple[int, ...] = ()

    @property
    def mask(self) -> int:
        """Its bit as a mask: of jobs that stay off it now."""
        return 1 << (self.bit + (NODE_BITS if self.nodes else 0))

    @property
    def planned(self) -> int:
        """The bit of all jobs that may not use its nodes while it lasts; 0 where it has devices alone."""
        return 1 << (self.bit + PLANNED_BITS) if self.nodes else 0


def kept_devices(reservations: Iterable[Reservation]) -> dict[tuple[int, int], int]:
    """For each device that is reserved, now or later, the bits of its reservations. O(devices + nodes).

    A whole node stands as its device `NODE`.
    """
    kept: dict[tuple[int, int], int] = {}
    for one in reservations:
        for place in one.devices:
            kept[place] = kept.get(place, 0) | one.mask
        for node in one.nodes:
            kept[node, NODE] = kept.get((node, NODE), 0) | one.mask
    return kept


def avoids_of(job: Job) -> int:
    """The reservations that a job stays off; of devices 0 for one that uses none."""
    found = 0
    for choice in job.choices:
        found |= choice.request.avoids
    return found


def with_avoids(job: Job, avoids: int) -> Job:
    """The job staying off these reservations; the same object where nothing changes.

    Choices without devices stay off whole nodes alone.
    """
    of_nodes = avoids >> PLANNED_BITS << PLANNED_BITS
    wanted = [avoids if choice.request.devices else of_nodes for choice in job.choices]
    if all(choice.request.avoids == bits for choice, bits in zip(job.choices, wanted, strict=True)):
        return job
    choices = tuple(
        choice
        if choice.request.avoids == bits
        else Choice(choice.implementation, replace(choice.request, avoids=bits))
        for choice, bits in zip(job.choices, wanted, strict=True)
    )
    return replace(job, choices=choices)
