"""What a batch system's queue lets a guest's jobs expect: the queue as a whole, and which of it are ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dovetail.batch.ids import BatchIds
from dovetail.errors import DovetailError
from dovetail.model import HOST_CPUS, WHOLE_POOL, Choice, Cluster, Job, JobId, Request, Seconds
from dovetail.model.batch_options import options_for, partition_of
from dovetail.plugins import named_backend
from dovetail.running.entry import Entry
from dovetail.starts.outside import OutsideQueue, OwnJob, WatchesQueue
from dovetail.starts.rolling import Situation, StartDraws

_log = logging.getLogger(__name__)
OUR_OWN = ("local", "ray")
"""Executors with no batch system behind them, which need not be loaded to see that."""
PAUSE: Seconds = 30.0
"""After a look that failed, until the next one."""


class GuestSight(NamedTuple):
    """A batch system's queue; ``own`` are those of its jobs that are ours, by their keys in it.

    ``known`` jobs have ended.
    """

    situation: Situation
    draws: StartDraws
    known: int
    own: Mapping[str, JobId]


class GuestQueue:
    """The queue in which the jobs of a service wait that is a batch system's guest."""

    def __init__(self, folder: Path, queue: OutsideQueue, cluster: Cluster) -> None:
        self._queue, self._cluster = queue, cluster
        self._ids = BatchIds(folder)
        self._failed_at: Seconds | None = None

    @property
    def lasts(self) -> Seconds:
        """For how long a look holds, whatever happens in the service."""
        return self._queue.lasts

    def look(self, now: Seconds, ended: Sequence[Entry]) -> GuestSight | None:
        """The queue as it stands; ``None``: the batch system does not answer, or has not just now."""
        if self._failed_at is not None and 0 <= now - self._failed_at < PAUSE:
            return None
        try:
            found = self.test(now, ended, ())
        except DovetailError as error:
            _log.warning("there are no intervals of starts: %s", error)
            self._failed_at = now
            return None
        self._failed_at = None
        return found

    def test(
        self,
        now: Seconds,
        ended: Sequence[Entry],
        tested: Sequence[tuple[Job, Choice]],
        instead: JobId | None = None,
    ) -> GuestSight:
        """The same with jobs that are not submitted, ``instead`` of one of ours. Raises `DovetailError`."""
        new = {f"test {job.id}": self._new_job(job, choice, now) for job, choice in tested}
        ran = [_ended_job(entry) for entry in ended if entry.allocation is not None]
        own = {self._queue.task_id(id, index): job for job, (id, index) in self._ids.known_ids().items()}
        replaced = next((id for id, job in own.items() if job == instead), "")
        sight = self._queue.look(now, ran, new, replaced)
        own |= {name: name.removeprefix("test ") for name in sight.tested if name}
        return GuestSight(sight.situation, sight.draws, sight.known, own)

    def _new_job(self, job: Job, choice: Choice, now: Seconds) -> OwnJob:
        """A job of ours as it would be handed over, to all partitions that it may use."""
        options = options_for(job.batch_options, choice.implementation)
        target = partition_of(options) or choice.request.partition
        names = dict.fromkeys(name for node in self._cluster.nodes for name in node.partitions)
        target = target or ",".join(name for name in names if name not in self._cluster.closed)
        return OwnJob(
            job.name or job.app.name, target, choice.request, self._cpus(choice.request), job.walltime, now
        )

    def _cpus(self, request: Request) -> int:
        node = self._cluster.nodes[0]
        return {WHOLE_POOL: node.cpus, HOST_CPUS: node.host_cpus}.get(request.cpus, request.cpus)


def open_guest_queue(folder: Path, executor: str, cluster: Cluster) -> GuestQueue | None:
    """The queue behind this executor; ``None`` where it has none that can be read."""
    if executor.partition("?")[0] in OUR_OWN:
        return None
    backend = named_backend(executor)
    if not isinstance(backend, WatchesQueue):
        return None
    return GuestQueue(folder, backend.watch_queue(cluster), cluster)


def _ended_job(entry: Entry) -> OwnJob:
    place, job = entry.allocation, entry.job
    assert place is not None
    name, cpus = job.name or job.app.name, place.parts[0].cpus
    target = place.request.partition
    return OwnJob(
        name, target, place.request, cpus, job.walltime, entry.submitted, entry.started, entry.ended
    )


def fastest_choice(job: Job, seconds: Callable[[Job, Choice], Seconds | None]) -> Choice:
    """The choice that is expected to run for the shortest time; the first one where nothing is known."""
    known = [(found, choice) for choice in job.choices if (found := seconds(job, choice)) is not None]
    return min(known, key=lambda one: one[0])[1] if known else job.choices[0]
