"""Multifactor priority: a weighted sum of age, fair share, size and class decides who goes first.

The parts are those of Slurm's priority/multifactor plugin, each between 0 and 1; `dovetail.model.conditions`
has their definitions. Usage is counted by `FairShares`, as by the service. A job gets its priority when it
comes, and every few minutes all that wait get theirs anew: policies that look at priorities see just numbers.
A promise to a job lasts until its priority changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dovetail.driver.fair_shares import FairShares
from dovetail.engine.state.books import Books
from dovetail.model import (
    WHOLE_POOL,
    Cluster,
    Event,
    Job,
    PriorityRule,
    Requeued,
    Seconds,
    Submitted,
    Updated,
)

AHEAD = 1e12
"""What jobs of classes that preempt are before all others by: their places would else go to others."""


class Multifactor:
    """The priorities of one run. ``rank`` is a job's priority by its class or its own, at most ``most``."""

    def __init__(
        self,
        rule: PriorityRule,
        shares: FairShares,
        cluster: Cluster,
        rank: Callable[[Job], float],
        most: float,
        preempts: Callable[[Job], bool],
    ) -> None:
        self.rule, self.shares, self._cluster = rule, shares, cluster
        self._rank, self._most, self._preempts = rank, most, preempts
        self._next: Seconds = 0.0
        self._factors: dict[str, float] = {}

    def priority(self, job: Job, now: Seconds) -> float:
        """A whole number; only differences between jobs mean something. O(1) but for the first of a user.

        What all waiting jobs gain by growing older is left out: so mostly it stays the same.
        """
        rule = self.rule
        age = -max(job.submit_time, now - rule.max_age) / rule.max_age
        size = self._size_of(job)
        value = (
            rule.age * age
            + rule.fair_share * self._factor(job.user or "", now)
            + rule.size * (size if rule.favor == "large" else 1.0 - size)
            + rule.job_class * (self._rank(job) / self._most if self._most else 0.0)
        )
        return round(value) + (AHEAD * (1.0 + self._rank(job)) if self._preempts(job) else 0.0)

    def _factor(self, user: str, now: Seconds) -> float:
        if not self.rule.fair_share:
            return 0.0
        if user not in self._factors:
            self._factors[user] = self.shares.factor(user, now)
        return self._factors[user]

    def _size_of(self, job: Job) -> float:
        """The larger of the parts of the CPUs and of the devices that a job requests, of its first choice."""
        request, cluster = job.choices[0].request, self._cluster
        whole = request.cpus == WHOLE_POOL
        cpus = request.nodes / len(cluster) if whole else 0.0
        if not whole and cluster.total_cpus:
            cpus = request.nodes * max(0, request.cpus) / cluster.total_cpus
        devices = request.nodes * request.gpus / cluster.total_devices if cluster.total_devices else 0.0
        return min(1.0, max(cpus, devices))

    def ranked(self, batch: Sequence[Event], books: Books, now: Seconds) -> list[Event]:
        """The events with the priorities of the jobs that come in, and of all when it is time for that."""
        due = now >= self._next
        comes = any(isinstance(event, Submitted | Requeued) for event in batch)
        if not (due or comes):
            return list(batch)
        self._factors.clear()
        events = [
            replace(event, job=self._with_priority(event.job, now)) if isinstance(event, Submitted) else event
            for event in batch
        ]
        if due:
            touched = {getattr(event, "job", None) for event in batch}
            events += (event for event in self._renewed(books, now) if event.job not in touched)
            self._next = now + self.rule.every
        # While nothing runs nothing is used: what waits then waits for nodes, which have events of their own.
        if comes or books.running:
            books.wake_at(self._next, now)
        return events

    def _with_priority(self, job: Job, now: Seconds) -> Job:
        return replace(job, priority=self.priority(job, now))

    def _renewed(self, books: Books, now: Seconds) -> Iterator[Updated]:
        for job in list(books.queue):
            found = self.priority(job, now)
            if found != job.priority:
                yield Updated(job.id, replace(books.choices.whole(job.id), priority=found), ("priority",))
