"""Static placement: each job is bound to a device when it is submitted, and never moved.

Three baselines of Gregg 2011, section 5: everything on the CPU, everything on the GPU, and each job on
the device that runs it fastest ("static").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Cluster, Decision, Job, Seconds, Unit
from dovetail.policies.devices import Devices, one_node_choices, refuse_gangs, start_heads, units_for

__all__ = ["BestDevice", "CpuOnly", "GpuOnly"]

UNKNOWN = float("inf")


class _Bound:
    """Bind each job on submission to the least loaded device of the class that it wants; FIFO there."""

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start what can start, then bind what has been submitted."""
        heads = list(start_heads(view))
        if heads or not len(view.queue):
            yield from heads
            return  # asked again once they run
        devices = Devices(view)
        for job in view.queue:
            options = [(c, u) for c in one_node_choices(job) for u in units_for(view.cluster, c)]
            wanted = self.wanted(devices, job, options)
            choice, unit = min(wanted, key=lambda cu: (devices.ready_in(*cu), cu[1].index))
            yield devices.assign(job, choice, unit)

    def wanted(
        self, devices: Devices, job: Job, options: Sequence[tuple[Choice, Unit]]
    ) -> Sequence[tuple[Choice, Unit]]:
        """The (choice, unit) pairs of the class that the job is to run on."""
        raise TypeError("one of the policies below says which")


def _time(devices: Devices, job: Job, option: tuple[Choice, Unit]) -> Seconds:
    seconds = devices.time(job, option[0].implementation, option[1])
    return UNKNOWN if seconds is None else seconds


def _same_kind(
    devices: Devices, job: Job, options: Sequence[tuple[Choice, Unit]]
) -> Sequence[tuple[Choice, Unit]]:
    """The units of the fastest kind, whatever their models, each with its fastest implementation."""
    kind = min(options, key=lambda o: _time(devices, job, o))[0].implementation.kind
    usable = [o for o in options if o[0].implementation.kind == kind]
    units = dict.fromkeys(unit for _, unit in usable)
    return [min((o for o in usable if o[1] is u), key=lambda o: _time(devices, job, o)) for u in units]


@dataclass(frozen=True)
class CpuOnly(_Bound):
    """Every job on a CPU pool, first in first out; a job without a CPU implementation uses what it has."""

    paper: ClassVar[str] = "Gregg 2011, section 5"

    def wanted(
        self, devices: Devices, job: Job, options: Sequence[tuple[Choice, Unit]]
    ) -> Sequence[tuple[Choice, Unit]]:
        """CPU pools, with the fastest CPU implementation."""
        usable = [o for o in options if o[0].implementation.kind == CPU] or options
        return _same_kind(devices, job, usable)


@dataclass(frozen=True)
class GpuOnly(_Bound):
    """Every job on the fastest kind of device that is not a CPU, first in first out."""

    paper: ClassVar[str] = "Gregg 2011, section 5"

    def wanted(
        self, devices: Devices, job: Job, options: Sequence[tuple[Choice, Unit]]
    ) -> Sequence[tuple[Choice, Unit]]:
        """Devices of the fastest kind that is not a CPU; the CPU if there is none."""
        usable = [o for o in options if o[0].implementation.kind != CPU] or options
        return _same_kind(devices, job, usable)


@dataclass(frozen=True)
class BestDevice(_Bound):
    """Every job on the class that is predicted to run it fastest, first in first out ("static")."""

    paper: ClassVar[str] = "Gregg 2011, section 5"

    def wanted(
        self, devices: Devices, job: Job, options: Sequence[tuple[Choice, Unit]]
    ) -> Sequence[tuple[Choice, Unit]]:
        """Units of the fastest class; of equally fast ones, not the CPU."""
        best = min(options, key=lambda o: (_time(devices, job, o), o[0].implementation.kind == CPU))
        return [o for o in options if o[0] is best[0] and o[1].device_class == best[1].device_class]
