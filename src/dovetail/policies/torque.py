"""TORQUE as Ravi 2012 takes it (section IV.D): every job gets what its user requested, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Choice, Decision, Job, Start, Wait, predicted_way
from dovetail.policies.parts.asked_for import asked_for
from dovetail.policies.parts.gang_placer import GangPlacer
from dovetail.policies.parts.ready_times import ReadyTimes
from dovetail.policies.parts.trials import Trials, fastest_or_first, nothing_known


@dataclass(frozen=True, slots=True)
class Torque:
    """First come, first served with what was requested: nodes and implementation; no job overtakes.

    A job without ``implementation`` takes the one that is fastest at its node count. Ignores priorities.
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.D"
    traits: ClassVar[Traits] = Traits(settles=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front of the queue while jobs fit. O(jobs started), and what `GangPlacer` takes."""
        placer, trials = GangPlacer(view), Trials(view)
        for job in view.queue:
            choice = tried_or_asked_for(view, job, trials, lambda choice: placer.free.fit(choice.request))
            allocation = placer.claim(choice.request, predicted_way(view, job, choice).least_seconds)
            if allocation is None:
                yield Wait(job.id, f"waits for {choice.implementation.name} on {choice.request.nodes} nodes")
                return
            yield Start(job.id, choice.implementation.name, allocation)


@dataclass(frozen=True, slots=True)
class TorquePlan:
    """What was requested, reserved on submission for the earliest start that the nodes allow.

    Of more nodes than it needs for that start a job takes those that are ready last (see
    `dovetail.kernels.gangs.place`), so that a later job may start earlier on the others; gaps before a
    reservation stay empty. Ignores priorities.
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.D, read with reservations"
    traits: ClassVar[Traits] = Traits(settles=True)
    walltime: ClassVar[str] = "learned"

    def decide(self, view: View) -> Iterable[Decision]:
        """Start the reservations that are due, then reserve for what was submitted. O(promises + nodes)."""
        times = ReadyTimes(view)
        yield from times.keep_promises()
        trials = Trials(view)
        for job in view.queue:
            if job.id in view.reservations:
                continue
            choice = tried_or_asked_for(view, job, trials, partial(times.starts_now, job))
            if not job.implementation and nothing_known(view, job):
                choice = fastest_or_first(view, job, times.sure_start)
            gang = times.find_gang(job, predicted_way(view, job, choice), packed=True)
            decision = None if gang is None else times.commit_gang(gang)
            if decision is None:
                yield Wait(job.id, f"waits for {choice.implementation.name} on {choice.request.nodes} nodes")
                return
            yield decision


def tried_or_asked_for(view: View, job: Job, trials: Trials, fits: Callable[[Choice], object]) -> Choice:
    """The user's request; without an ``implementation``, first one that was never tried and fits now."""
    untried = None if job.implementation else trials.choice(job, fits)
    return untried or asked_for(view, job)
