"""A job on the CPUs is slowed by a job on a GPU of the same node, whose host thread needs a core.

Ravi 2012, Fig. 8: 2.4 to 6.8 %, depending on the two applications.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.errors import InputError
from dovetail.model import EMPTY, JobId, Placed, Seconds, bit_indices

FIG_8 = "EM/GK:0.043,EM/PR:0.068,PR/GK:0.024"
"""Penalties as printed: CPU-only app / GPU-only app."""

MEAN = 0.045
"""The mean of the three, for all other pairs."""


@dataclass(slots=True)
class SharingPenalty:
    """Jobs on the CPUs only take longer while jobs use devices of the same node (Ravi 2012, Fig. 8).

    ``pairs`` lists penalties as ``CPUAPP/GPUAPP:FRACTION,…`` (``*`` stands for any app), ``default`` is
    that of pairs that are not listed: 0.045 means that the run takes 4.5 % longer. Penalties of several
    device jobs on a node add up; a gang is as slow as on its slowest node. Raises `InputError`.
    """

    default: float = MEAN
    pairs: str = FIG_8
    _penalty: dict[tuple[str, str], float] = field(init=False, repr=False, default_factory=dict)
    _on_cpu: dict[int, dict[JobId, Placed]] = field(init=False, repr=False, default_factory=dict)
    _on_device: dict[int, dict[JobId, Placed]] = field(init=False, repr=False, default_factory=dict)
    _rate: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)
    _nodes: dict[JobId, tuple[int, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check_penalty(self.default, f"default={self.default:g}")
        for entry in filter(None, (part.strip() for part in self.pairs.split(","))):
            apps, colon, text = entry.rpartition(":")
            on_cpu, slash, on_device = apps.partition("/")
            if not colon or not slash or not on_cpu or not on_device:
                raise InputError(
                    f"found {entry!r}, expected CPUAPP/GPUAPP:FRACTION", where="rates sharing-penalty: pairs"
                )
            self._penalty[on_cpu, on_device] = _check_penalty(_parse_number(text), entry)

    def penalty(self, on_cpu: str, on_device: str) -> float:
        """The fraction by which a run of one app on the CPUs takes longer beside the other on a device."""
        for pair in ((on_cpu, on_device), (on_cpu, "*"), ("*", on_device)):
            if pair in self._penalty:
                return self._penalty[pair]
        return self.default

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """Rates of the CPU-only jobs on the nodes where something changed; there are no stalls."""
        touched: set[int] = set()
        # Ends before starts: a job that migrates is forgotten at its old place, then noted at the new one.
        for placed in [*ended, *migrated]:
            touched.update(self._forget_nodes(placed.job.id))
        for placed in [*started, *migrated]:
            touched.update(self._note_nodes(placed))
        rates: dict[JobId, float] = {}
        affected = {job: placed for n in touched for job, placed in self._on_cpu.get(n, {}).items()}
        for job, placed in affected.items():
            rate = 1 / (1 + self._slowdown_of_job(placed))
            # The engine schedules the end of every job anew that is returned: only what changed is.
            if rate != self._rate[job]:
                rates[job] = self._rate[job] = rate
        return rates, EMPTY

    def _note_nodes(self, placed: Placed) -> Iterable[int]:
        allocation = placed.allocation
        # A job that has a device on a node is no CPU-only job there, whatever else it holds of it.
        with_device = {n for part in allocation.parts if part.devices for n in bit_indices(part.nodes)}
        on_cpu = {n for part in allocation.parts if part.cpus for n in bit_indices(part.nodes)} - with_device
        job = placed.job.id
        for n in with_device:
            self._on_device.setdefault(n, {})[job] = placed
        for n in on_cpu:
            self._on_cpu.setdefault(n, {})[job] = placed
        self._rate[job] = 1.0
        self._nodes[job] = tuple(with_device | on_cpu)
        return self._nodes[job]

    def _forget_nodes(self, job: JobId) -> Iterable[int]:
        nodes = self._nodes.pop(job, ())
        self._rate.pop(job, None)
        for n in nodes:
            self._on_cpu.get(n, {}).pop(job, None)
            self._on_device.get(n, {}).pop(job, None)
        return nodes

    def _slowdown_of_job(self, placed: Placed) -> float:
        app = placed.job.app.name
        return max(
            (
                sum(self.penalty(app, other.job.app.name) for other in self._on_device.get(n, {}).values())
                for n in self._nodes[placed.job.id]
            ),
            default=0.0,
        )


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_penalty(penalty: float, entry: str) -> float:
    if not 0 <= penalty < math.inf:
        raise InputError(
            f"found {entry!r}, expected a fraction of at least 0, e.g. 0.045", where="rates sharing-penalty"
        )
    return penalty
