"""Trying a class of device of which nothing is known for an app, while such a device is idle.

Papers that decide by predicted times are silent about apps that never ran. With nothing predicted all
classes look alike, and a policy would send every such job to the same one. So while a device is idle of a
class on which an app was never tried, one waiting job of the app is tried there, devices before CPUs (as
Gregg 2011, 5.2, has it). While no such device is idle, a job whose time is known elsewhere does not wait for
one; a job of which nothing is known takes whatever is idle, or will be first. Where everything is predicted,
as with perfect knowledge, this changes nothing; nor does it under the papers' own model, ``least-squares``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from dovetail.interfaces import Free, View
from dovetail.model import (
    CPU,
    Choice,
    DeviceClass,
    Job,
    Promise,
    Seconds,
    Way,
    classes_for,
    fastest_choice,
    seconds_on,
)


class Trials:
    """Which ways to run a job were never tried, at one instant; one trial for each app and class."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._begun: set[tuple[str, str, DeviceClass]] = set()

    @cached_property
    def _running_ways(self) -> set[tuple[str, str]]:
        return {(placed.job.app.name, placed.implementation.name) for placed in self._view.running.values()}

    def untried(self, job: Job, choice: Choice, device: DeviceClass) -> bool:
        """Whether nothing is known or declared of the app there, and no job of it is being tried."""
        key = (job.app.name, choice.implementation.name, device)
        return (
            key not in self._begun
            and key[:2] not in self._running_ways
            and never_tried(self._view, job, choice, device)
        )

    def begin_trial(self, job: Job, choice: Choice, device: DeviceClass) -> None:
        """A job is tried there."""
        self._begun.add((job.app.name, choice.implementation.name, device))

    def choice(self, job: Job, fits: Callable[[Choice], object]) -> Choice | None:
        """An untried way to run the job that ``fits`` now, which is then begun; ``None`` if there is none.

        With nothing known of the job any that fits. Of a moldable job only the requested node count
        counts.
        """
        if len(job.asked or job.choices) < 2:
            return None
        choices = sorted(
            job.asked or job.choices, key=lambda choice: choice.implementation.kind.startswith(CPU)
        )
        for choice in choices:
            classes = classes_for(self._view.cluster, choice)
            if classes and all(self.untried(job, choice, device) for device in classes) and fits(choice):
                for device in classes:
                    self.begin_trial(job, choice, device)
                return choice
        return next(filter(fits, choices), None) if nothing_known(self._view, job) else None

    def preferred_choice(self, job: Job, free: Free, promise: Promise | None = None) -> Choice:
        """An untried way that fits now, else as it was promised, else the one predicted to be fastest."""
        if len(job.choices) == 1:
            return job.choices[0]
        found = self.choice(job, lambda choice: free.fit(choice.request))
        if found is None and promise is not None and promise.job is job:
            return Choice(promise.implementation, promise.allocation.request)
        return found or fastest_choice(self._view, job)


def never_tried(view: View, job: Job, choice: Choice, device: DeviceClass) -> bool:
    """Whether nothing is predicted or declared of the job there, and no run of the app has completed."""
    name = choice.implementation.name
    if job.speedup.get(name) or seconds_on(view, job, choice, device) is not None:
        return False
    return view.untried(job.app.name, name, device)


def nothing_known(view: View, job: Job) -> bool:
    """Whether nothing is predicted or declared of any way to run the job, so that all are alike."""
    return not job.speedup and all(
        never_tried(view, job, choice, device)
        for choice in job.asked or job.choices
        for device in classes_for(view.cluster, choice)
    )


def without_untried(view: View, job: Job, ways: list[Way]) -> list[Way]:
    """The ways to compare: those that were never tried wait for an idle device, unless all are such."""
    if all(way.seconds is None for way in ways) or all(way.seconds is not None for way in ways):
        return ways
    cluster = view.cluster
    return [
        way
        for way in ways
        if way.seconds is not None
        or not all(never_tried(view, job, way.choice, device) for device in classes_for(cluster, way.choice))
    ]


def fastest_or_first(view: View, job: Job, start: Callable[[Job, Choice], Seconds]) -> Choice:
    """The choice predicted to be fastest; with nothing predicted the one that can end first by its bound.

    ``start`` gives when the job could start so.
    """
    choices = job.asked or job.choices
    if len(choices) == 1 or not nothing_known(view, job):
        return fastest_choice(view, job)

    def predicted_end(choice: Choice) -> tuple[Seconds, Seconds]:
        at = start(job, choice)
        return at + view.bound(job, choice.implementation, choice.request), at

    return min(choices, key=predicted_end)
