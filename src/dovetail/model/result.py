"""The outcome of a simulation or a live run: what reports are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from dovetail.model.cluster import Cluster
from dovetail.model.conditions import Operated
from dovetail.model.job import EMPTY, JobId, Seconds
from dovetail.model.plan import Plan
from dovetail.model.record import Record
from dovetail.model.workload import Rejected
from dovetail.records import dataclass
from dovetail.spec.values import Overrun

__all__ = ["Replicate", "Result"]


@dataclass(frozen=True, slots=True)
class Replicate:
    """Which replicate of a workload was simulated: 0 is the workload as it is.

    Others have submissions that moved by up to ``jitter`` seconds and, with ``bootstrap``, weeks that were
    drawn anew of the ``weeks`` that the trace has. ``fresh``: drawn from a model, or in a random order, by
    the seed of the result, and not from this trace.
    """

    number: int = 0
    jitter: Seconds = 0.0
    bootstrap: bool = False
    weeks: int = 0
    seed: int = 1
    fresh: bool = False


# A plain object, so that it can be pickled between processes; what is computed from it is in `report`.
@dataclass(frozen=True, eq=False)
class Result:
    """Every job's record, in file order, and what reports need beside it.

    ``best`` is each job's least true (live: predicted) time over its implementations at the requested node
    count. ``decision_seconds`` holds the seconds of each call of ``decide``. ``promises_broken`` counts
    jobs that started after a promised start, ``broken_by_overrun`` those of them that had a blocker past
    its bound. ``overrun`` and ``default_walltime`` are how walltimes were taken. ``load`` is the offered
    load that the workload was scaled to, if it was. ``ignores_priorities``: jobs have priorities, which this
    policy does not look at. ``simulation_seconds`` is the CPU time of the simulation itself. ``notes`` are
    sentences about what was assumed, for people, with codes for programs. Not ``known``: too little is known
    to predict what would happen; there are no records then, and no metrics. ``replicate`` is of which draw of
    the workload it is the result. ``interpreted`` is the reason why the engine simulated, where a compiled
    simulation might have. ``operated`` is what the machine's conditions brought, where it has any.
    """

    policy: str
    workload: str
    cluster: Cluster
    records: Sequence[Record]
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    knowledge: str = "perfect"
    rejected: Sequence[Rejected] = ()
    skipped: int = 0
    decision_seconds: Sequence[float] = ()
    plan: Plan | None = None
    best: Mapping[JobId, Seconds] = EMPTY
    promises_broken: int = 0
    broken_by_overrun: int = 0
    overrun: Overrun = "kill"
    default_walltime: Seconds | Literal["actual"] | None = None
    live: bool = False
    started_at: float | None = None
    load: float | None = None
    ignores_priorities: bool = False
    simulation_seconds: float | None = None
    notes: Sequence[str] = ()
    known: bool = True
    replicate: Replicate = Replicate()
    interpreted: str = ""
    operated: Operated | None = None

    @property
    def makespan(self) -> Seconds:
        """First submission to last end over the jobs that ran.

        0 without jobs; NaN if not `known`, or where none of them ran: 0 s would be the best of all.
        """
        if not self.known:
            return math.nan
        known: float | None = getattr(self.records, "makespan", None)  # of records that are columns
        if known is not None:
            return known
        # Rejected jobs and those that were cancelled before their start do not stretch the schedule.
        ends = [r.end for r in self.records if r.end is not None and r.start is not None]
        if not ends:
            return math.nan if self.records else 0.0
        return max(ends) - min(r.job.submit_time for r in self.records)
