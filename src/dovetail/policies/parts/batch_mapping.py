"""Mapping a whole batch onto units by expected completion times (Maheswaran et al. 1999, section 3.3).

Min-min, max-min and sufferage differ only in which job is mapped next; every job goes where it is expected
to end first. Here the whole queue is mapped anew at each event, and only what can start now is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from dovetail.files.arrays import Bools, Floats, np
from dovetail.interfaces import View
from dovetail.model import (
    Choice,
    Decision,
    DeviceClass,
    Unit,
    class_on,
    fits_unit,
    one_node_choices,
    seconds_on,
)
from dovetail.policies.parts.idle_units import Assignment, IdleUnits
from dovetail.policies.parts.trials import never_tried, nothing_known

Times = Floats


@dataclass(slots=True)
class Completions:
    """Expected completion of every unmapped job: shape (jobs,), seconds from now; mapped ones infinite.

    ``best`` is the least over all units, ``second`` the least over all but the one with the least
    (infinite where there is no other).
    """

    best: Times
    second: Times
    unmapped: Bools


Pick = Callable[[Completions], int]
"""Which job is mapped next; ties: the lowest index, which is the order of submission."""


def map_batch(view: View, pick: Pick) -> Iterator[Decision]:
    """Map the queue by the rule; start the jobs whose turn on their unit is now.

    O(jobs² · sets of like units) array steps in the worst case; ends as soon as no unit has
    room left, since what is mapped afterwards cannot start now.
    """
    units = IdleUnits(view)
    if units.open:
        yield from units.trials()
        yield from _Mapping(view, units).run(pick)


class _Mapping:
    """Expected times of the jobs on sets of like units, and when each resource is ready."""

    def __init__(self, view: View, units: IdleUnits) -> None:
        self.view = view
        self.units = units
        self.jobs = [job for job in view.queue if units.waits(job)]
        self.alike = _like_units(view)
        self.times = np.full((len(self.jobs), len(self.alike)), np.inf)
        self.choices: dict[tuple[int, int], Choice] = {}
        self._untried: dict[tuple[int, int], Choice] = {}
        for g, like in enumerate(self.alike):
            self._unit_seconds(g, like[0])
        # A job that fits only where it was never tried is tried there: it may need more memory than before.
        nowhere = ~np.isfinite(self.times).any(axis=1)
        for (j, g), choice in self._untried.items():
            if nowhere[j]:
                self.times[j, g], self.choices[j, g] = 0.0, choice
        self.open = {unit.index for unit in units.open if units.has_room(unit)}
        self.ready = [
            np.array([0.0 if unit.index in self.open else units.seconds_until_free(unit) for unit in like])
            for like in self.alike
        ]

    def _unit_seconds(self, g: int, unit: Unit) -> None:
        """Seconds of each job on one of the like units, by its fastest choice; 0 where unknown.

        What was never tried there does not wait for that unit, if something is known of the job.
        """
        view = self.view
        for j, job in enumerate(self.jobs):
            for choice in one_node_choices(job):
                if fits_unit(view.cluster, choice.request, unit):
                    device = class_on(choice.implementation, unit)
                    seconds = seconds_on(view, job, choice, device)
                    if seconds is None and never_tried(view, job, choice, device):
                        seconds = 0.0 if nothing_known(view, job) else inf
                        if seconds == inf:
                            self._untried.setdefault((j, g), choice)
                    if (seconds or 0.0) < self.times[j, g]:
                        self.times[j, g] = seconds or 0.0
                        self.choices[j, g] = choice

    def run(self, pick: Pick) -> Iterator[Decision]:
        """Map job after job; yields the starts."""
        unmapped = np.isfinite(self.times).any(axis=1)
        while self.open and unmapped.any():
            ends = self.times + np.array([ready.min() for ready in self.ready])
            best = np.where(unmapped, ends.min(axis=1), np.inf)
            second = np.where(unmapped, self._second_completions(ends), np.inf)
            j = pick(Completions(best, second, unmapped))
            unmapped[j] = False
            yield from self._assign_job(j, self._earliest_unit(ends[j]))

    def _second_completions(self, ends: Times) -> Times:
        """The least completion over all units but the best one; shape (jobs,)."""
        # Of like units the second that is ready counts as another unit, so the least over all but the best
        # unit is among the two earliest of each set.
        next_ready = [np.partition(ready, 1)[1] if len(ready) > 1 else np.inf for ready in self.ready]
        both = np.concatenate([ends, self.times + np.array(next_ready)], axis=1)
        return both.min(axis=1) if both.shape[1] == 1 else np.partition(both, 1, axis=1)[:, 1]

    def _earliest_unit(self, ends: Times) -> tuple[int, int]:
        """(set of like units, place in it) of the first unit, by its index, with the least completion."""
        least = ends.min()
        ties = [(int(g), int(self.ready[g].argmin())) for g in np.flatnonzero(ends == least)]
        return min(ties, key=lambda at: self.alike[at[0]][at[1]].index)

    def _assign_job(self, j: int, at: tuple[int, int]) -> Iterator[Decision]:
        g, i = at
        job, unit, choice = self.jobs[j], self.alike[g][i], self.choices[j, g]
        units, seconds = self.units, self.times[j, g]
        # Nothing starts on a busy unit, but what is mapped there counts for the jobs after it.
        if unit.index not in self.open:
            self.ready[g][i] += seconds
            return
        allocation = units.free.fit_unit(choice.request, unit)
        if allocation is None:  # there is room, but not for this one: it waits there
            self.open.discard(unit.index)
            self.ready[g][i] = units.seconds_until_free(unit) + seconds
            return
        yield units.start(unit, Assignment(job, choice, allocation))
        if not units.has_room(unit):
            self.open.discard(unit.index)
            self.ready[g][i] = units.seconds_until_free(unit)


def _like_units(view: View) -> list[list[Unit]]:
    """Units of the same class on like nodes that are there together, in order of their first index."""
    sets: dict[tuple[DeviceClass, object], list[Unit]] = {}
    for unit in view.cluster.units:
        if unit.node in view.cluster.gone:
            continue
        # A class of devices does not decide alone what fits a unit: the node's CPUs, memory and partitions
        # do, too.
        node = view.cluster.nodes[unit.node]
        models = tuple((device.kind, device.model) for device in node.devices)
        alike = (node.cpus, node.host_cpus, node.memory, node.cpu_model, node.partitions, models)
        sets.setdefault((unit.device_class, alike), []).append(unit)
    return list(sets.values())
