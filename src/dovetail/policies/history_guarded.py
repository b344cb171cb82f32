"""Gregg 2011's scheduler with a guard on what exploration may cost, and without its trap.

Under the plain rules one exploratory run can cost more than the whole queue, and an app that always
arrives in the same place of the queue may never be tried on its better device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from dovetail.model import CPU, Job, Seconds
from dovetail.policies.devices import Devices, class_on, one_node_choices, units_for
from dovetail.policies.history import DynamicQueue, Option

__all__ = ["HistoryGuarded"]

LOOK_AHEAD = 100
"""Waiting jobs that a decision about exploring looks at: bounds its time."""


@dataclass(frozen=True)
class HistoryGuarded(DynamicQueue):
    """As history, but explores only behind work that takes long enough to hide a slow run.

    An app that never ran goes to the first class that is not a CPU, and waits for it. An untried CPU is
    assumed to take ``caution`` times as long as the best known class; the assumption halves with every
    further run of the app, down to one. The cheapest waiting job of an app explores, on an idle CPU, while
    what else runs and waits keeps the other devices busy for that long, after ``patience`` runs in any case.
    Nothing stays untried because it always finds the device busy: an untried CPU counts as half as long as
    the best known class, halving on, after twice ``patience`` runs, another device from the first run on.
    """

    caution: float = 8.0
    patience: int = 8
    paper: ClassVar[str] = "beyond Gregg 2011, section 4.1"

    def __post_init__(self) -> None:
        if not self.caution >= 1:
            raise ValueError(f"caution is {self.caution}, expected 1 or more")
        if self.patience < 1:
            raise ValueError(f"patience is {self.patience}, expected 1 or more")

    def place(self, devices: Devices, job: Job, options: Sequence[Option]) -> Option:
        """Exploration where it is hidden, else the earliest end by what is known or assumed."""
        times = [known_time(devices, job, option) for option in options]
        known = [seconds for seconds in times if seconds is not None]
        if not known:
            return first_try(devices, options)
        best, experience = min(known), max(runs(devices, job, option) for option in options)
        ends: list[tuple[Seconds, Seconds, int]] = []
        for option, seconds in zip(options, times, strict=True):
            if seconds is None and not underway(devices, job, option):
                if self.explores(devices, job, option, best, experience):
                    return option
                seconds = self.assumed(option, best, experience)
            own = float("inf") if seconds is None else seconds
            wait = devices.ready_in(*option) + self.unknown_rest(devices, option)
            ends.append((wait + own, own, option[1].index))
        return options[ends.index(min(ends))]

    def explores(self, devices: Devices, job: Job, option: Option, best: Seconds, experience: int) -> bool:
        """Whether this job is to try an idle CPU now: hidden behind other work, or overdue."""
        if option[1].kind != CPU or not devices.can_start(*option):
            return False
        waiting = [
            other
            for other in islice(devices.view.queue, LOOK_AHEAD + len(devices.decided))
            if other is not job and other.id not in devices.decided
        ]
        own_app = (best_time(devices, other) for other in waiting if other.app.name == job.app.name)
        if any(other is not None and other < best for other in own_app):
            return False
        doubt = max(1.0, self.caution / 2.0 ** min(experience - 1, 60))
        return experience >= self.patience or hidden(devices, option, waiting, doubt * best)

    def assumed(self, option: Option, best: Seconds, experience: int) -> Seconds | None:
        """What an untried class counts as in a comparison; ``None``: it does not count yet."""
        halvings = experience - 2 * self.patience + 1 if option[1].kind == CPU else experience
        return best / 2.0 ** min(halvings, 60) if halvings > 0 else None

    def unknown_rest(self, devices: Devices, option: Option) -> Seconds:
        """Seconds that an exploring job is assumed to hold the device yet; 0 where nothing explores.

        What is left of ``caution`` times its best known time (once, on a device that is not a CPU), or as
        long again as it has run by now.
        """
        occupant = devices.view.occupant(option[1])
        if occupant is None or occupant.predicted is not None:
            return 0.0
        spent = devices.view.now - occupant.start_time
        doubt = self.caution if option[1].kind == CPU else 1.0
        return max(doubt * (best_time(devices, occupant.job) or 0.0) - spent, spent)


def first_try(devices: Devices, options: Sequence[Option]) -> Option:
    """For an app that never ran: of the first class that is not a CPU the unit with the fewest jobs."""
    first = next((o for o in options if o[1].kind != CPU), options[0])
    same = [o for o in options if o[1].device_class == first[1].device_class and o[0] is first[0]]

    def ahead(option: Option) -> tuple[int, Seconds, int]:
        jobs = 0 if devices.can_start(*option) else 1 + devices.fifo[option[1].index]
        return jobs, devices.ready_in(*option), option[1].index

    return min(same, key=ahead)


def hidden(devices: Devices, option: Option, waiting: Sequence[Job], seconds: Seconds) -> bool:
    """Whether the other units are busy for so long, on average, with what they hold and what waits."""
    others = [u for u in range(len(devices.backlog)) if u != option[1].index]
    needed = seconds * len(others) - sum(devices.backlog[u] for u in others)
    for job in waiting:
        if needed <= 0:
            break
        needed -= best_time(devices, job) or 0.0
    return bool(others) and needed <= 0


def underway(devices: Devices, job: Job, option: Option) -> bool:
    """Whether a job of the app runs or waits on that class already: it will soon be known."""
    target = class_on(option[0].implementation, option[1])
    return (job.app.name, option[0].implementation.name, target) in devices.underway


def runs(devices: Devices, job: Job, option: Option) -> int:
    """Completed runs of the app in this way."""
    implementation, unit = option[0].implementation, option[1]
    return devices.view.runtimes.runs(job.app.name, implementation.name, class_on(implementation, unit))


def known_time(devices: Devices, job: Job, option: Option) -> Seconds | None:
    """Predicted seconds there, ``None`` on a class that the app has never used."""
    return devices.time(job, option[0].implementation, option[1]) if runs(devices, job, option) else None


def best_time(devices: Devices, job: Job) -> Seconds | None:
    """The least predicted seconds over the classes that the app has used."""
    options = [(c, u) for c in one_node_choices(job) for u in units_for(devices.view.cluster, c)]
    times = [t for o in options if (t := known_time(devices, job, o)) is not None]
    return min(times, default=None)
