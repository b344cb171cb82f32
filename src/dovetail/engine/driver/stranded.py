"""Which waiting jobs no node can ever run any more, because nodes have left for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dovetail.engine.driver.prepare import Validator
from dovetail.engine.state.core import Engine
from dovetail.model import Cluster, Event, Job, JobId, NodeJoined, NodeLost, Rejected, Requeued, Submitted

__all__ = ["NO_NODE", "Stranded"]

NO_NODE = "no node is left that could run it"
"""How the detail begins of jobs that were cancelled for that: another cluster can take them up."""


class Stranded:
    """Nodes that are gone for good, and the jobs that came to wait since it was last asked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._gone: set[int] = set()
        self._validator: Validator | None = None  # of the nodes that are left
        self._came: list[JobId] = []

    def heard(self, batch: Iterable[Event]) -> None:
        """Take in what has happened. O(batch)."""
        for event in batch:
            if isinstance(event, NodeLost) and event.for_good:
                self._gone.add(event.node)
                self._validator = None
            elif isinstance(event, NodeJoined):
                self._gone.discard(event.node)
                self._validator = None
            elif self._gone and isinstance(event, Submitted | Requeued):
                self._came.append(event.job.id if isinstance(event, Submitted) else event.job)

    def find(self) -> Mapping[JobId, str]:
        """Jobs that can never start, and why; those that wait for others come first.

        O(queue) after nodes have left, else O(jobs that came since).
        """
        engine, validator = self._engine, self._validator
        if not self._gone:
            return {}
        came, self._came = [job for job in self._came if engine.records[job].end is None], []
        if validator is None:
            left = [node for n, node in enumerate(engine.cluster.nodes) if n not in self._gone]
            validator = self._validator = Validator(Cluster(left))
            bound = [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
            came = [*(job.id for job in engine.queue), *bound, *engine.held]
        found: dict[JobId, str] = {}
        for job in map(self._as_submitted, came):
            told = validator.admit(job)
            if isinstance(told, Rejected):
                found[job.id] = f"{NO_NODE}: {told.reason}"
        behind = self._waiting_for(found)
        while behind:
            found |= behind
            behind = self._waiting_for(found)
        return dict(reversed(found.items()))

    def _as_submitted(self, job: JobId) -> Job:
        """With all its choices, also those that cannot end before the cluster does."""
        return self._engine.horizon.narrowed.get(job) or self._engine.records[job].job

    def _waiting_for(self, found: Mapping[JobId, str]) -> dict[JobId, str]:
        """Jobs, not among these, that wait for one of these."""
        engine = self._engine
        held: Sequence[Job] = [engine.records[job].job for job in engine.held if job not in found]
        first = {job.id: next((d.job for d in job.depends if d.job in found), None) for job in held}
        return {job: f"{NO_NODE}: it waits for job {other}" for job, other in first.items() if other}
