"""Devices that take no job of ours now, as sentences: foreign jobs stand for that (`Job.foreign`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dovetail.model.allocation import bit_indices
from dovetail.model.cluster import Cluster
from dovetail.model.node import CPU
from dovetail.model.record import Placed

__all__ = ["BARRED", "barred_devices", "device_kinds"]

BARRED = "barred"
"""The app of such a job; its name is the reason."""
MOST_NAMED = 3
"""Devices that a sentence names."""


def barred_devices(running: Iterable[Placed], cluster: Cluster, kinds: Collection[str]) -> str:
    """Which devices of these kinds take no job of ours now, and why: the words of the jobs that hold them.

    Empty where there is none.
    """
    words: list[str] = []
    for placed in running:
        if placed.job.app.name == BARRED and placed.job.foreign and placed.implementation.kind in kinds:
            names = [
                cluster.short_name(n, cluster.nodes[n].devices[d].name)
                for part in placed.allocation.parts
                for n in bit_indices(part.nodes)
                for d in part.devices
            ]
            words.append(f"{', '.join(names)} {placed.job.name}")
    more = len(words) - MOST_NAMED
    return "; ".join(words[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def device_kinds(kinds: Iterable[str]) -> set[str]:
    """The kinds of device that implementations of these kinds use."""
    return {kind.removeprefix("cpu+") for kind in kinds if kind != CPU}
