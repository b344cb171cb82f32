"""MCT: minimum completion time over the types of resource (Maheswaran et al. 1999; Ravi 2012, IV.D)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, nextafter
from operator import itemgetter
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Allocation, Decision, Seconds, Start, Wait, predicted_way
from dovetail.policies.parts.asked_for import by_kind
from dovetail.policies.parts.gang_placer import GangPlacer
from dovetail.policies.parts.trials import Trials, without_untried


@dataclass(frozen=True, slots=True)
class Mct:
    """In order, each job by the implementation with which it is expected to end first; no job overtakes.

    The wait for CPUs, GPUs or both counts; the node count is the requested one. Ties: the
    implementation that uses most of a node. Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran et al. 1999, section 3.2; Ravi 2012, section IV.D"
    traits: ClassVar[Traits] = Traits(settles=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front while the best way to run a job is to start it now."""
        placer, trials = GangPlacer(view), Trials(view)
        free = placer.free
        releases = _expected_releases(view)
        for job in view.queue:
            best, end, start = None, inf, inf
            untried = trials.choice(job, lambda choice: free.fit(choice.request))
            choices = [untried] if untried is not None else by_kind(job.asked or job.choices)
            for known in without_untried(view, job, [predicted_way(view, job, choice) for choice in choices]):
                found = free.earliest(known.choice.request, releases, view.now)
                if found is not None and found[0] + known.least_seconds < end:
                    best, end, start = known, found[0] + known.least_seconds, found[0]
            if best is None:
                return  # it fits once a lost node is back
            if start > view.now:
                name = best.choice.implementation.name
                yield Wait(job.id, f"ends first as {name}, from {start:g} s on")
                return
            place = placer.claim(best.choice.request, best.least_seconds)
            if place is None:
                return  # never: it fits at this instant
            releases.append((max(end, nextafter(view.now, inf)), place))
            releases.sort(key=itemgetter(0))
            yield Start(job.id, best.choice.implementation.name, place)


def _expected_releases(view: View) -> list[tuple[Seconds, Allocation]]:
    """When running jobs are expected to end, ascending, always after now, and what they free."""
    soonest = nextafter(view.now, inf)
    found = [
        (max(placed.start_time + (placed.predicted or 0.0), soonest), placed.allocation)
        for placed in view.running.values()
    ]
    return sorted(found, key=itemgetter(0))
