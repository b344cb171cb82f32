"""Gregg 2011's scheduler with a bound on what exploration may cost, and without its trap.

Under the plain rules one exploratory run can cost more than the whole queue, and an app that always
arrives in the same place of the queue may never be tried on its better device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.model import CPU, Job, Seconds
from dovetail.policies.devices import Devices, class_on
from dovetail.policies.history import History, Option

__all__ = ["HistoryGuarded"]


@dataclass(frozen=True)
class HistoryGuarded(History):
    """As history, but an untried class is assumed to be `caution` times slower until experience says more.

    An app that was never run goes to the first class that is not a CPU. An app known on one class is
    assumed to take ``caution`` times as long on an untried CPU (as long, on another untried device); the
    assumption halves with every further run, and the job goes where it then ends first. So exploration
    happens at first only where even a slow run hides behind a longer queue, it is postponed otherwise,
    and it always comes in the end. One job of an app explores at a time.
    """

    caution: float = 16.0
    paper: ClassVar[str] = "beyond Gregg 2011, section 4.1"

    def __post_init__(self) -> None:
        if not self.caution >= 1:
            raise ValueError(f"caution is {self.caution}, expected 1 or more")

    def place(self, devices: Devices, job: Job, options: Sequence[Option]) -> Option:
        """Where the next job is assumed to end first."""
        runs = [self._runs(devices, job, option) for option in options]
        times = [
            devices.time(job, choice.implementation, unit) if count else None
            for (choice, unit), count in zip(options, runs, strict=True)
        ]
        known = [t for t in times if t is not None]
        if not known:
            first = next((o for o in options if o[1].kind != CPU), options[0])
            same = [o for o in options if o[1].device_class == first[1].device_class and o[0] is first[0]]
            return min(same, key=lambda o: (devices.ready_in(*o), o[1].index))
        experience = max(runs)

        def end(position: int) -> tuple[Seconds, Seconds, int]:
            option, seconds = options[position], times[position]
            if seconds is None:
                target = class_on(option[0].implementation, option[1])
                if (job.app.name, option[0].implementation.name, target) in devices.underway:
                    return float("inf"), float("inf"), option[1].index  # it will soon be known
                doubt = self.caution if option[1].kind == CPU else 1.0
                seconds = min(known) * max(1.0, doubt / 2.0 ** min(experience - 1, 60))
            return devices.ready_in(*option) + seconds, seconds, option[1].index

        return options[min(range(len(options)), key=end)]

    @staticmethod
    def _runs(devices: Devices, job: Job, option: Option) -> int:
        implementation, unit = option[0].implementation, option[1]
        runtimes = devices.view.runtimes
        return runtimes.runs(job.app.name, implementation.name, class_on(implementation, unit))
