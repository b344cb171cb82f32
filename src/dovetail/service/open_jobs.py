"""The jobs that have not ended, page by page: what a page costs is its length, however long the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from dovetail.engine.state.core import Engine
from dovetail.model import Job, JobId, Record


class OpenJobs:
    """Those of an engine. Order: those that run by their start, the queue, those held back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        for of in (_user_of, name_of, _user_and_name_of):
            engine.queue.group_alike(of)
            engine.held.group_alike(of)

    def __len__(self) -> int:
        engine = self._engine
        running = sum(not placed.job.foreign for placed in engine.at_work) + len(engine.handed_over)
        bound = sum(map(len, engine.device_queues.values()))
        return running + bound + len(engine.queue) + len(engine.held)

    def page(
        self, user: str | None, name: str | None, limit: int, offset: int, *, running: bool, waiting: bool
    ) -> tuple[list[Record], int]:
        """Some of those that run, wait, or do either, of a user and name or ``None``, and how many there are.

        O(limit + running jobs); of those held back, O(offset) steps of some 20 ns.
        """
        engine, records = self._engine, self._engine.records

        def filter_jobs(jobs: Iterable[Job]) -> list[Job]:
            return [job for job in jobs if user in (None, job.user) and name in (None, name_of(job))]

        first = (
            filter_jobs(placed.job for placed in engine.at_work if not placed.job.foreign) if running else []
        )
        queue: Sequence[Job] = ()
        held: Collection[JobId] = ()
        if waiting:
            first += filter_jobs(records[job].job for job in engine.handed_over)
            first += filter_jobs(job for fifo in engine.device_queues.values() for job, _ in fifo)
            if user is None and name is None:
                queue, held = engine.queue.submitted, engine.held
            else:
                of, value = _grouping_keys(user, name)
                queue, held = (
                    engine.queue.group_alike(of).get(value, ()),
                    engine.held.group_alike(of).get(value, ()),
                )
        found: list[Record] = []
        for jobs in (first, queue):
            some = jobs[offset : offset + limit - len(found)]
            found += [records[job.id] for job in some]
            offset = max(0, offset - len(jobs))
        found += [records[job] for job in _nearer_part(held, offset, limit - len(found))]
        return found, len(first) + len(queue) + len(held)


def _nearer_part(jobs: Collection[JobId], first: int, count: int) -> list[JobId]:
    """Some of them, from the end that is nearer."""
    behind = len(jobs) - first - count
    if behind >= first or not isinstance(jobs, dict):
        return list(islice(jobs, first, first + count))
    return list(islice(reversed(jobs), max(0, behind), max(0, behind + count)))[::-1]


def _grouping_keys(user: str | None, name: str | None) -> tuple[Callable[[Job], object], object]:
    """What jobs of this user, of this name, or of both have in common."""
    if name is None:
        return _user_of, user
    return (name_of, name) if user is None else (_user_and_name_of, (user, name))


def _user_of(job: Job) -> str | None:
    return job.user


def name_of(job: Job) -> str:
    """What its user calls a job: its name, else that of its app."""
    return job.name or job.app.name


def _user_and_name_of(job: Job) -> tuple[str | None, str]:
    return job.user, name_of(job)
