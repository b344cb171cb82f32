"""Gregg 2011's scheduler with a guard on what exploration may cost, and without its trap.

Under the plain rules one exploratory run can cost more than the whole queue, and an app that always
arrives in the same place of the queue may never be tried on its better device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import itemgetter
from typing import ClassVar, NamedTuple

from dovetail.interfaces import View
from dovetail.model import CPU, Decision, Dequeue, Job, Seconds
from dovetail.policies.history import whatever_is_idle
from dovetail.policies.parts.backlog import Backlog, DynamicQueue, UnitChoice, place_of, places_for
from dovetail.policies.parts.trials import nothing_known

LOOK_AHEAD = 100
"""Waiting jobs that a decision about exploring looks at: bounds its time."""


@dataclass(frozen=True)
class HistoryGuarded(DynamicQueue):
    """As history, but explores only behind work that takes long enough to hide a slow run.

    1. An app that never ran goes to an idle device. Where none is idle its first job goes to an idle CPU; the
       others wait. (Under ``least-squares``: to the first class that is not a CPU, and waits for it.)
    2. A CPU that the app has never used is feared to take ``caution`` times as long as the best known
       class. The fear halves with every further run of the app, down to one time as long.
    3. The cheapest waiting job of the app tries an idle CPU while the other units have so much to do that
       the feared time is hidden; after ``patience`` runs of the app in any case.
    4. So that no class stays untried because it is always busy, it is thought faster and faster: a device
       that is not a CPU takes half as long as the best known class after the first run, a CPU after twice
       ``patience`` runs, and half of that after each further run.
    5. Else a job goes where it ends first by these times. A unit on which an app is being tried is thought
       to be held for as long as was feared, and then for as long again as it has been.

    6. Whenever a job has ended and a unit is idle, what waits in FIFOs is thought about again: the job that
       gains most by starting there leaves its FIFO, or else the one that explores at the least cost.

    While one job of an app tries a class, no other does (rules 3 and 4).

    Here the last job waits for the GPU until a third run has made the CPU less to be feared (rules 2 and 6):

    >>> from dovetail.testing.examples import one_node
    >>> jobs = [("a", {"cpu": 3.0, "gpu": 1.0})] * 2 + [("a", {"cpu": 3.0, "gpu": 1.0}, 10.0)] * 4
    >>> one_node(HistoryGuarded(), "1x1cpu+1gpu", jobs, model="mean")
    a-1 gpu 0 to 1, a-2 gpu 1 to 2, a-3 gpu 10 to 11, a-4 gpu 11 to 12, a-5 gpu 12 to 13, a-6 cpu 11 to 14
    """

    caution: float = 8.0
    patience: int = 8
    paper: ClassVar[str] = "beyond Gregg 2011, section 4.1"

    def __post_init__(self) -> None:
        if not self.caution >= 1:
            raise ValueError(f"caution is {self.caution}, expected 1 or more")
        if self.patience < 1:
            raise ValueError(f"patience is {self.patience}, expected 1 or more")

    def decide(self, view: View) -> Iterable[Decision]:
        """The paper's rules 1 and 4; while a unit is idle then, think again about what waits (rule 6)."""
        # Reconsidered only when the first pass has done nothing: one change at a time.
        return list(super().decide(view)) or self.reconsider_fifos(view)

    def choose_place(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> UnitChoice | None:
        """Exploration where it is hidden, else the earliest end by what is known or assumed."""
        known = known_of(backlog, job, places)
        if known is None:  # rule 1
            if not nothing_known(backlog.view, job):
                return first_try(backlog, places)
            # Once a job of the app is placed only devices take more: on a CPU one may run for very long.
            tried = any(backlog.is_assigned(job, place) for place in places)
            return whatever_is_idle(backlog, [p for p in places if p.unit.kind != CPU or not tried])
        return self.exploration_place(backlog, job, known) or self.earliest(backlog, known)[1]

    def exploration_place(self, backlog: Backlog, job: Job, known: AppTimes) -> UnitChoice | None:
        """Where the job is to be the first of its app, if anywhere (rule 3)."""
        for place, untried in zip(known.places, known.untried, strict=True):
            if untried and self.explores_now(backlog, job, place, known.best, known.experience):
                return place
        return None

    def earliest(self, backlog: Backlog, known: AppTimes) -> tuple[Seconds, UnitChoice]:
        """Seconds until the earliest end, and where that is, by these times (rules 4 and 5)."""
        ends: list[tuple[Seconds, Seconds, int]] = []
        for place, seconds, untried in zip(known.places, known.times, known.untried, strict=True):
            counted = self.assumed_seconds(place, known.best, known.experience) if untried else seconds
            own = inf if counted is None else counted
            wait = backlog.work_ahead(place).seconds + self.feared_rest(backlog, place)
            # Ties by the job's own time, then by the unit, so that the order is the same everywhere.
            ends.append((wait + own, own, place.unit.index))
        least = min(ends)
        return least[0], known.places[ends.index(least)]

    def reconsider_fifos(self, view: View) -> list[Decision]:
        """Of the jobs in FIFOs the one that should rather start on an idle unit now: it does (rule 6)."""
        if not view.device_queues or not view.changes.ended:
            return []
        everything, ahead = Backlog(view), Backlog(view)
        if not any(everything.idle):
            return []
        movers: list[tuple[bool, Seconds, Job, UnitChoice]] = []
        for index, fifo in view.device_queues.items():
            # Only the last few of a FIFO: those in front start soon anyway.
            for job, implementation in reversed(fifo[-LOOK_AHEAD:]):
                here = place_of(view, job, implementation, index)
                # Taken out first, so a job does not wait for itself.
                ahead.take_out(job, here)
                known = known_of(everything, job, places_for(view, job))
                if known is None:
                    continue
                end, there = self.earliest(ahead, known)
                now_here = ahead.work_ahead(here).seconds + (ahead.seconds(job, here) or 0.0)
                # A hair sooner is no reason to move: rounding alone would make jobs wander.
                if there.unit.index != index and ahead.can_start(there) and end < now_here * (1 - 1e-9):
                    movers.append((False, end - now_here, job, there))
                elif (there_first := self.exploration_place(everything, job, known)) is not None:
                    movers.append((True, known.best, job, there_first))
        if not movers:
            return []
        _, _, job, there = min(movers, key=itemgetter(0, 1))
        # The one that gains most; the next call looks at the others, with this one in its new place.
        return [Dequeue(job.id), everything.assign_job(job, there)]

    def explores_now(
        self, backlog: Backlog, job: Job, place: UnitChoice, best: Seconds, experience: int
    ) -> bool:
        """Whether this job is to try an idle CPU now: hidden behind other work, or overdue (rule 3)."""
        if place.unit.kind != CPU or not backlog.can_start(place):
            return False
        waiting = [
            other
            for other in islice(backlog.view.queue, LOOK_AHEAD + len(backlog.decided))
            if other is not job and other.id not in backlog.decided
        ]
        own_app = (best_time(backlog, other) for other in waiting if other.app.name == job.app.name)
        if any(other is not None and other < best for other in own_app):
            return False  # a cheaper job of the app will
        # The fear halves with each run elsewhere, as the experience with the app grows (rule 2).
        fear = max(1.0, self.caution / 2.0 ** min(experience - 1, 60)) * best  # rule 2
        return experience >= self.patience or is_hidden(backlog, place, waiting, fear)

    def assumed_seconds(self, place: UnitChoice, best: Seconds, experience: int) -> Seconds | None:
        """What an untried class counts as in a comparison; ``None``: it does not count yet (rule 4)."""
        halvings = experience - 2 * self.patience + 1 if place.unit.kind == CPU else experience
        return best / 2.0 ** min(halvings, 60) if halvings > 0 else None

    def feared_rest(self, backlog: Backlog, place: UnitChoice) -> Seconds:
        """Seconds for which a job that explores there is thought to hold the unit yet (rule 5).

        Twice as long in all as it has run where it has outlasted the fear; 0 where nothing explores. On a
        device that is not a CPU the fear is the best known time, once.
        """
        occupant = backlog.view.occupant(place.unit)
        if occupant is None or occupant.predicted is not None:
            return 0.0
        spent = backlog.view.now - occupant.start_time
        caution = self.caution if place.unit.kind == CPU else 1.0
        # At least as long as it has run already: it has outlasted what was feared.
        return max(caution * (best_time(backlog, occupant.job) or 0.0) - spent, spent)


class AppTimes(NamedTuple):
    """What is known of a job's app: its predicted seconds by place, which places are to be tried, the least
    of the seconds, and the most runs on one class.
    """

    places: Sequence[UnitChoice]
    times: Sequence[Seconds | None]
    untried: Sequence[bool]
    best: Seconds
    experience: int


def known_of(backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> AppTimes | None:
    """What is known of a job; ``None`` if nothing is."""
    times = [known_time(backlog, job, place) for place in places]
    best = min((seconds for seconds in times if seconds is not None), default=None)
    if best is None:
        return None
    untried = [
        seconds is None and not backlog.is_assigned(job, place)
        for place, seconds in zip(places, times, strict=True)
    ]
    return AppTimes(places, times, untried, best, max(backlog.runs(job, place) for place in places))


def first_try(backlog: Backlog, places: Sequence[UnitChoice]) -> UnitChoice:
    """For an app that never ran: of the first class that is not a CPU the unit with the fewest jobs."""
    first = next((place for place in places if place.unit.kind != CPU), places[0])
    # Within one class only: which implementation is the better one is not known yet either.
    same = [
        place
        for place in places
        if place.unit.device_class == first.unit.device_class and place.choice is first.choice
    ]

    def work_ahead_of(place: UnitChoice) -> tuple[int, Seconds, int]:
        jobs = 0 if backlog.can_start(place) else 1 + backlog.fifo[place.unit.index]
        return jobs, backlog.work_ahead(place).seconds, place.unit.index

    return min(same, key=work_ahead_of)


def is_hidden(backlog: Backlog, place: UnitChoice, waiting: Sequence[Job], seconds: Seconds) -> bool:
    """Whether the other units are busy for so long, on average, with what they hold and what waits."""
    others = [unit.index for unit in backlog.view.cluster.units if unit is not place.unit]
    needed = seconds * len(others) - sum(backlog.load(other) for other in others)
    for job in waiting:
        if needed <= 0:
            break
        needed -= best_time(backlog, job) or 0.0
    return bool(others) and needed <= 0


def known_time(backlog: Backlog, job: Job, place: UnitChoice) -> Seconds | None:
    """Predicted seconds there, ``None`` on a class that the app has never used."""
    return backlog.seconds(job, place) if backlog.runs(job, place) else None


def best_time(backlog: Backlog, job: Job) -> Seconds | None:
    """The least predicted seconds over the classes that the app has used."""
    times = (known_time(backlog, job, place) for place in places_for(backlog.view, job))
    return min((seconds for seconds in times if seconds is not None), default=None)
