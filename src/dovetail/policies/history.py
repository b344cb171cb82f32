"""The dynamic scheduler that learns from recorded run times (Gregg 2011, section 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Cluster, Decision, Job, Seconds, Unit
from dovetail.policies.devices import (
    Devices,
    class_on,
    one_node_choices,
    refuse_gangs,
    start_heads,
    units_for,
)

__all__ = ["DynamicQueue", "History", "Option", "earliest_end", "known"]

Option = tuple[Choice, Unit]


class DynamicQueue(ABC):
    """Rules 1 and 4: the FIFOs of the devices, and a main queue that is emptied while a device is idle."""

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """One pass over the queue while a device is idle (rule 4)."""
        heads = list(start_heads(view))  # rule 1
        if heads or not len(view.queue):
            yield from heads
            return  # asked again once they run
        devices = Devices(view)
        for job in view.queue:
            options = [(c, u) for c in one_node_choices(job) for u in units_for(view.cluster, c)]
            options.sort(key=lambda option: option[1].index)  # device order, whatever the file's
            if not any(devices.idle) and not any(devices.can_start(*option) for option in options):
                return
            choice, unit = self.place(devices, job, options)
            yield devices.assign(job, choice, unit)

    @abstractmethod
    def place(self, devices: Devices, job: Job, options: Sequence[Option]) -> Option:
        """Where the next job goes: started there if it is idle, else into its FIFO (rules 2 and 3)."""


@dataclass(frozen=True)
class History(DynamicQueue):
    """Run each job where it is predicted to end first; explore what was never tried (the paper's rules).

    Rules 1 to 4 of section 4.1, over any number of devices and nodes. A job whose best device is busy
    waits in that device's FIFO if it ends earlier so than on an idle, slower device. With
    ``explore=false`` no app that is known on one device is sent to another just to try it; the paper does.
    """

    explore: bool = True
    paper: ClassVar[str] = "Gregg 2011, section 4.1"

    def place(self, devices: Devices, job: Job, options: Sequence[Option]) -> Option:
        """Exploration first (rule 2), else the earliest predicted end (rule 3)."""
        new = [o for o in options if not known(devices.view, job, o)]
        if new:
            idle = [o for o in options if devices.can_start(*o)]
            if all(devices.idle):
                accelerated = [o for o in idle if o[1].kind != CPU]
                if accelerated:
                    return accelerated[0]
            unexplored = [o for o in idle if o in new]
            if unexplored and (self.explore or len(new) == len(options)):
                return unexplored[0]
        return earliest_end(devices, job, [o for o in options if o not in new] or options)


def known(view: View, job: Job, option: Option) -> bool:
    """Whether this app and implementation ever completed on this class, whatever the inputs."""
    implementation, unit = option[0].implementation, option[1]
    return view.runtimes.runs(job.app.name, implementation.name, class_on(implementation, unit)) > 0


def earliest_end(devices: Devices, job: Job, options: Sequence[Option]) -> Option:
    """The option predicted to end first; ties: the faster class, then device order."""

    def end(option: Option) -> tuple[Seconds, Seconds, int]:
        seconds = devices.time(job, option[0].implementation, option[1])
        own = float("inf") if seconds is None else seconds
        return devices.ready_in(*option) + own, own, option[1].index

    return min(options, key=end)
