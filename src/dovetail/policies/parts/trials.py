"""Trying a class of device of which nothing is known for an app, while such a device is idle.

Papers that decide by predicted times are silent about apps that never ran. With nothing predicted all
classes look alike, and a policy would send every such job to the same one. So while a device is idle of a
class on which an app was never tried, one waiting job of the app is tried there, devices before CPUs (as
Gregg 2011, 5.2, has it). Where everything is predicted, as with perfect knowledge, this changes nothing;
nor does it under the papers' own model, ``least-squares``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from dovetail.interfaces import Free, View
from dovetail.model import (
    CPU,
    Choice,
    Decision,
    DeviceClass,
    Job,
    Unit,
    class_on,
    classes_for,
    device_kind,
    fastest,
    one_node_choices,
    seconds_on,
)
from dovetail.policies.parts.idle_units import Assignment, IdleUnits

__all__ = ["Trials", "idle_trials", "nothing_known"]


class Trials:
    """Which ways to run a job were never tried, at one instant; one trial for each app and class."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._begun: set[tuple[str, str, DeviceClass]] = set()

    @cached_property
    def _running(self) -> set[tuple[str, str]]:
        return {(placed.job.app.name, placed.implementation.name) for placed in self._view.running.values()}

    def untried(self, job: Job, choice: Choice, device: DeviceClass) -> bool:
        """Whether nothing is known or told of the app there, and no job of it is being tried."""
        view, name = self._view, choice.implementation.name
        if job.speedup.get(name) or seconds_on(view, job, choice, device) is not None:
            return False
        key = (job.app.name, name, device)
        return (
            key not in self._begun
            and key[:2] not in self._running
            and view.untried(job.app.name, name, device)
        )

    def begin(self, job: Job, choice: Choice, device: DeviceClass) -> None:
        """A job is tried there."""
        self._begun.add((job.app.name, choice.implementation.name, device))

    def choice(self, job: Job, fits: Callable[[Choice], object]) -> Choice | None:
        """An untried way to run the job that ``fits`` now, which is then begun; ``None`` if there is none.

        Of a moldable job only the node count that was asked for counts.
        """
        choices = job.asked or job.choices
        if len(choices) < 2:
            return None
        for choice in sorted(choices, key=lambda choice: choice.implementation.kind.startswith(CPU)):
            classes = classes_for(self._view.cluster, choice)
            if classes and all(self.untried(job, choice, device) for device in classes) and fits(choice):
                for device in classes:
                    self.begin(job, choice, device)
                return choice
        return None

    def preferred(self, job: Job, free: Free) -> Choice:
        """An untried way that fits now, else the one that is predicted to be fastest."""
        if len(job.choices) == 1:
            return job.choices[0]
        return self.choice(job, lambda choice: free.fit(choice.request)) or fastest(self._view, job)


def nothing_known(view: View, job: Job) -> bool:
    """Whether nothing is predicted or told of any way to run the job, so that all are alike."""
    return not job.speedup and all(
        seconds_on(view, job, choice, device) is None
        and view.untried(job.app.name, choice.implementation.name, device)
        for choice in job.asked or job.choices
        for device in classes_for(view.cluster, choice)
    )


def idle_trials(view: View, units: IdleUnits) -> Iterator[Decision]:
    """Start one waiting job of each app on each idle unit of a class on which the app was never tried."""
    idle: dict[DeviceClass, list[Unit]] = {}
    for unit in sorted(units.open, key=lambda unit: unit.kind == CPU):
        if view.occupant(unit) is None:
            idle.setdefault(unit.device_class, []).append(unit)
    trials = Trials(view)
    for job in view.queue if idle else ():
        if len(job.choices) > 1:
            found = _trial(trials, units, idle, job)
            if found is not None:
                yield found
                if not idle:
                    return


def _trial(
    trials: Trials, units: IdleUnits, idle: dict[DeviceClass, list[Unit]], job: Job
) -> Decision | None:
    """Start the job on the first idle unit that fits, of a class on which its app was never tried."""
    choices = one_node_choices(job)
    for like, those in idle.items():
        for choice in choices:
            if device_kind(choice.request) != like.kind:
                continue
            device = class_on(choice.implementation, those[0])
            if not trials.untried(job, choice, device):
                continue
            for unit in those:
                allocation = units.free.fit_unit(choice.request, unit)
                if allocation is not None:
                    trials.begin(job, choice, device)
                    those.remove(unit)
                    if not those:
                        del idle[like]
                    return units.start(unit, Assignment(job, choice, allocation))
    return None
