"""Whose running job gives its place to a waiting one of a higher class, and what becomes of it.

The driver looks once an instant, after the policy has decided: a job of a class that preempts, which could
not start, takes the places of as few jobs of lower rank as it needs, those of lowest rank first, of
these the one that began last (as Slurm's ``preempt_youngest_first``). They wait again (requeue), or stand
still where they are (suspend) until no such job waits and their place is free again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dovetail.engine.capacity.free import FreeCapacity
from dovetail.engine.state.core import Engine
from dovetail.model import Allocation, Choice, Job, JobClass, JobId, Placed, Seconds, Start
from dovetail.records import dataclass

PREEMPTED, SUSPENDED = "preempted by", "suspended for"
"""How the detail of a stint begins that ended so."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A running job that gives its place to another one."""

    placed: Placed
    why: str


class Preemption:
    """The classes of a run's jobs; ``suspends``: preempted jobs stand still, else they wait again.

    ``rank`` is a job's priority by its class, or its own, whatever orders the queue.
    """

    def __init__(
        self,
        engine: Engine,
        class_of: Callable[[Job], JobClass | None],
        rank: Callable[[Job], float],
        *,
        suspends: bool,
    ) -> None:
        self._engine, self._class_of, self._rank = engine, class_of, rank
        self.suspends = suspends
        self.suspending: dict[JobId, Placed] = {}
        """Jobs that stand still, or are about to, with what they held."""
        self.lost: list[JobId] = []
        """Jobs that stood still on nodes that failed: they wait as any other from the next instant on."""
        self._of = self.preempts  # one object: the queue keeps a line for each function that it is given
        self._classes: dict[JobId, JobClass | None] = {}
        self._looked: tuple[Seconds, set[JobId]] = (-1.0, set())

    def _known_class(self, job: Job) -> JobClass | None:
        if job.id not in self._classes:
            self._classes[job.id] = self._class_of(job)
        return self._classes[job.id]

    def preempts(self, job: Job) -> bool:
        """Whether a job is of a class that preempts."""
        found = self._known_class(job)
        return found is not None and found.preempts

    def _waiting(self) -> list[Job]:
        """Waiting jobs of classes that preempt, the highest rank first, then by submission."""
        return sorted(
            self._engine.queue.group_alike(self._of).get(True, ()), key=lambda job: -self._rank(job)
        )

    def choose(self, now: Seconds) -> list[Victim]:
        """Whose places are taken now. A job looks once an instant. O(waiting of such classes · running)."""
        engine = self._engine
        if self._looked[0] != now:
            self._looked = now, set()
        found: list[Victim] = []
        free: FreeCapacity | None = None
        lower = [
            placed
            for placed in engine.running.values()
            if not placed.job.foreign
            and ((known := self._known_class(placed.job)) is None or known.preemptable)
        ]
        for job in self._waiting():
            if job.id in self._looked[1]:
                continue
            self._looked[1].add(job.id)
            free = engine.free.copy() if free is None else free
            if any(free.fit(choice.request) is not None for choice in job.choices):
                continue  # there is room: the policy has its reasons
            chosen = self._fewest(job, [one for one in lower if self._rank(one.job) < self._rank(job)], free)
            if chosen:
                word = SUSPENDED if self.suspends else PREEMPTED
                found += [Victim(one, f"{word} job {job.id}") for one in chosen]
                lower = [one for one in lower if one not in chosen]
        return found

    def _fewest(self, job: Job, lower: Sequence[Placed], free: FreeCapacity) -> list[Placed]:
        """The jobs that must leave for this one, then taken from ``free``; empty: none are enough."""
        order = sorted(lower, key=lambda one: (self._rank(one.job), -one.start_time, -one.job.index))
        for choice in job.choices:
            trial = free.copy()
            taken: list[Placed] = []
            for one in order:
                trial.give(one.allocation)
                taken.append(one)
                if trial.fit(choice.request) is not None:
                    break
            else:
                continue
            # Those that came first may not be needed: what each gave is taken back if the job still fits.
            for one in taken[:-1].copy():
                trial.take(one.allocation)
                if trial.fit(choice.request) is None:
                    trial.give(one.allocation)
                else:
                    taken.remove(one)
            for one in taken:
                free.give(one.allocation)
            free.claim(choice.request)
            return taken
        return []

    def resumable(self) -> Iterator[tuple[JobId, Start]]:
        """Suspended jobs that can go on where they were, the highest priority first; each comes up once.

        Not while a job of a class that preempts waits, which may need the place.
        """
        engine = self._engine
        for job, placed in sorted(
            self.suspending.items(), key=lambda entry: (-self._rank(entry[1].job), entry[1].start_time)
        ):
            if job not in engine.held:
                continue  # its end has not come yet
            if any(self._rank(one) > self._rank(placed.job) for one in self._waiting()):
                continue
            choice = _same_way(engine.records[job].job, placed)
            mask = placed.allocation.mask
            fits = engine.free.fit(choice.request, within=mask)
            if fits is None or any(node in engine.lost for node in placed.allocation.nodes):
                continue
            try:
                engine.free.copy().take(placed.allocation)
            except ValueError:
                continue
            place = Allocation(choice.request, placed.allocation.parts)
            yield job, Start(job, choice.implementation.name, place)

    def on_node(self, node: int) -> list[JobId]:
        """Suspended jobs that stand on a node."""
        return [job for job, placed in self.suspending.items() if placed.allocation.mask >> node & 1]

    def lose(self, job: JobId) -> None:
        """A suspended job has lost its node."""
        del self.suspending[job]
        self.lost.append(job)


def _same_way(job: Job, placed: Placed) -> Choice:
    """The choice of a waiting job in which it ran, staying off what is reserved now."""
    before = replace(placed.allocation.request, avoids=0)
    return next(
        choice
        for choice in job.choices
        if choice.implementation.name == placed.implementation.name
        and replace(choice.request, avoids=0) == before
    )
