"""The queue of a batch system as a whole, with the jobs of others: what its guest foresees starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dovetail.model import Cluster, Request, Seconds
from dovetail.starts.rolling import Situation, StartDraws


class OwnJob(NamedTuple):
    """A job of ours as the batch system sees it; ``target`` are its queues, with commas.

    ``cpus`` are those of each node. Of one that has run, all times are known, seconds since the epoch.
    """

    name: str
    target: str
    request: Request
    cpus: int
    walltime: Seconds | None
    submitted: Seconds
    started: Seconds | None = None
    ended: Seconds | None = None


class QueueSight(NamedTuple):
    """A batch system's queue at a moment; the keys of its jobs are the batch system's ids.

    ``tested`` are the keys of jobs that are not in the queue, in their order, empty for those that could
    never start. ``known`` are jobs that have ended, ``rules`` what is assumed, in sentences.
    """

    situation: Situation
    draws: StartDraws
    known: int
    tested: Sequence[str] = ()
    rules: Sequence[str] = ()


class OutsideQueue(Protocol):
    """Reads a batch system's queue as any of its users may; nothing is changed there."""

    @property
    def lasts(self) -> Seconds:
        """For how long a look holds: the batch system is not read more often."""
        ...

    def look(
        self,
        now: Seconds,
        ran: Sequence[OwnJob] = (),
        tested: Mapping[str, OwnJob] | None = None,
        replaced: str = "",
    ) -> QueueSight:
        """What runs and waits there. Raises `DovetailError` where it does not answer.

        ``ran`` are ended jobs of ours, which count where the batch system keeps no account of them;
        ``tested`` some that are not submitted, by names that no other job has; they stand in the place of the
        waiting job ``replaced``, if there is one of that id.
        """
        ...

    def task_id(self, id: str, index: int | None) -> str:
        """The id of a job, or of one task of an array."""
        ...


@runtime_checkable
class WatchesQueue(Protocol):
    """A backend whose jobs wait in a batch system's queue that can be read as a whole."""

    def watch_queue(self, cluster: Cluster) -> OutsideQueue:
        """The queue in which jobs of such a guest wait."""
        ...
