"""Workloads: jobs to run, and for simulation the true times that no policy may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from dovetail.model.allocation import Allocation
from dovetail.model.cluster import Cluster
from dovetail.model.job import EMPTY, Implementation, Job, JobId, Request, Seconds
from dovetail.records import dataclass

if TYPE_CHECKING:
    from dovetail.model.tables import JobTable

__all__ = ["Rejected", "TableTruth", "Truth", "Workload"]


class Truth(Protocol):
    """True run times; only `simulate` reads them (and a model of perfect knowledge)."""

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """True seconds of the job in this way of running it, ``None`` where unknown."""
        ...


@dataclass(slots=True)
class TableTruth:
    """True times by job, implementation and node count; or one time a job, however it runs."""

    table: Mapping[tuple[JobId, str, int], Seconds] = field(default_factory=dict)
    fixed: Mapping[JobId, Seconds] = field(default_factory=dict)

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """True seconds, ``None`` where unknown. O(1)."""
        # One dictionary lookup for the common case, a trace: one time a job, whatever it runs on.
        if self.table:
            found = self.table.get((job.id, implementation.name, request.nodes))
            if found is not None:
                return found
        return self.fixed.get(job.id)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A job that cannot run here, and why, in a few words."""

    id: JobId
    reason: str


# `eq=False`: comparing millions of jobs is never meant, and a workload is a key of caches by identity.
@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs sorted by (submit time, file order), their true times, and what was left out.

    ``skipped`` counts malformed lines that a lenient reader passed over. ``machine`` is the cluster that
    the file itself names, which a simulation takes where no other is given. ``recorded`` is when jobs really
    started, where a log has it; ``placed`` in which implementation and where, on ``machine``. ``ran``:
    the times are measured, so that a history may know those of the ways in which no job ran. ``follows``
    gives of jobs that are submitted some seconds after the end of another one which one, and these seconds: a
    simulation moves their submission with that end.
    """

    name: str
    jobs: Sequence[Job]
    truth: Truth
    rejected: Sequence[Rejected] = ()
    skipped: int = 0
    machine: Cluster | None = None
    recorded: Mapping[JobId, Seconds] = EMPTY
    placed: Mapping[JobId, tuple[str, Allocation]] = EMPTY
    ran: bool = False
    follows: Mapping[JobId, tuple[JobId, Seconds]] = EMPTY

    @property
    def table(self) -> JobTable | None:
        """The jobs as columns, where a reader kept them so and the times there are the true ones."""
        jobs: Any = self.jobs
        times = getattr(jobs, "times", None)  # only a `JobTable` has them
        truth = self.truth
        # By identity: a workload whose truth was replaced has columns that are out of date.
        if times is None or not isinstance(truth, TableTruth) or truth.table or truth.fixed is not times:
            return None
        table: JobTable = jobs
        return table

    def without(self, rejected: Sequence[Rejected]) -> Workload:
        """The same workload with more jobs rejected."""
        if not rejected:
            return self
        gone = {r.id for r in rejected}
        kept = [job for job in self.jobs if job.id not in gone]
        return replace(self, jobs=kept, rejected=[*self.rejected, *rejected])

    # Cached: it walks all jobs, and is read for each simulation of a comparison.
    @cached_property
    def fully_timed(self) -> bool:
        """Whether every job gives its times: those of the ways in which a simulation may run it."""
        if self.table is not None:
            return True
        seconds = self.truth.seconds
        return all(
            any(seconds(job, c.implementation, c.request) is not None for c in job.choices)
            for job in self.jobs
        )
