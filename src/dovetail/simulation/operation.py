"""A simulated machine under its conditions: what they bring, and what that means for the runs of jobs.

`dovetail.model.conditions` has the conditions; nothing here is used without any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf

from numpy.random import PCG64, Generator, SeedSequence

from dovetail.driver.driver import Driver
from dovetail.driver.fair_shares import FairShares
from dovetail.driver.multifactor import Multifactor
from dovetail.driver.preemption import SUSPENDED, Preemption
from dovetail.driver.priority import Priorities
from dovetail.errors import InputError, UnsupportedWorkload
from dovetail.interfaces import Planner, Policy, traits_of
from dovetail.model import (
    Conditions,
    Event,
    Job,
    JobId,
    NodeLost,
    Operated,
    Placed,
    Replicate,
    Seconds,
    Workload,
)
from dovetail.plugins import LoadedPolicy
from dovetail.simulation.upsets import Upsets
from dovetail.simulation.work_left import WorkLeft

MOST_PREEMPTIONS = 1_000_000
"""So often a job is preempted at most where no failures limit its restarts."""
VAIN = 100_000
"""Times at which nodes fail or are back, without any start of a job, after which waiting is in vain."""


class Operation:
    """The conditions of one simulation as it goes on. ``chance``: for times between failures, for repairs."""

    def __init__(
        self, conditions: Conditions, workload: Workload, chance: tuple[Generator, Generator]
    ) -> None:
        self.conditions = conditions
        self.work = WorkLeft(workload.truth, conditions.checkpoints)
        ranked = conditions.preemption is not None or conditions.priority is not None
        self._ranks = {job.id: job.priority for job in workload.jobs} if ranked else {}
        self.upsets = Upsets(conditions, chance)
        self._vain = 0

    @property
    def requeues(self) -> bool:
        """Whether a job waits again that has lost its node."""
        failures = self.conditions.failures
        return failures is None or failures.jobs == "requeue"

    @property
    def most_restarts(self) -> int | None:
        """How often a job starts again at most; ``None``: as in any run."""
        failures = self.conditions.failures
        if failures is None:
            return None if self.conditions.preemption is None else MOST_PREEMPTIONS
        return failures.most_restarts

    def due(self, now: Seconds, driver: Driver, ending: Collection[JobId]) -> list[Event]:
        """What happens to nodes now; of the jobs there what is kept of their work is noted.

        Jobs that are ``ending`` end by themselves now. One that stood still on a node that fails waits again.
        """
        held_on, preemption = driver.engine.occupancy.held_on, driver.preemption
        still = _no_jobs if preemption is None else preemption.on_node
        events = self.upsets.due(now, held_on, still, ending)
        if preemption is not None:
            lost = [event.node for event in events if isinstance(event, NodeLost)]
            for job in [job for node in lost for job in preemption.on_node(node)]:
                if job in preemption.suspending:  # not lost by another of these nodes
                    self.work.lose(job)
                    preemption.lose(job)
        cut: dict[JobId, Placed] = {}
        for event in events:
            if isinstance(event, NodeLost):
                cut |= {placed.job.id: placed for placed in held_on(event.node)}
        for job, placed in cut.items():
            if job not in ending:
                self.work.cut(placed, now)
        return events

    def count_vain(self, *, busy: bool, waiting: Iterable[Job] = ()) -> None:
        """Note whether anything runs or comes; `UnsupportedWorkload` where nothing has for very long."""
        self._vain = 0 if busy else self._vain + 1
        if self._vain > VAIN:
            job = next(iter(waiting), None)
            who = "jobs wait" if job is None else f"job {job.id} waits"
            raise UnsupportedWorkload(
                f"failures: {who} in vain: nodes failed and were repaired {VAIN:,} times without a start, "
                "expected times at which enough nodes are up together (mtbf, mttr)"
            )

    def _rank(self, job: Job) -> float:
        """A job's priority by its class, or its own."""
        return self._ranks[job.id]

    def order_in(self, driver: Driver, *, priorities: bool) -> None:
        """Have a driver preempt jobs by class, and order the queue, where the conditions have that.

        ``priorities``: whether the driver is to see to priorities, since the policy does not.
        """
        conditions, rule = self.conditions, self.conditions.priority
        if conditions.preemption is not None:
            suspends = conditions.preemption.mode == "suspend"
            driver.preemption = Preemption(driver.engine, conditions.class_of, self._rank, suspends=suspends)
        if rule is None:
            return
        shares = FairShares(rule.half_life, rule.shares)
        if not rule.weighs:
            driver.order_by_priority(Priorities(priorities=priorities, shares=shares), 0.0)
            return
        preempts = _never if driver.preemption is None else driver.preemption.preempts
        most = max(self._ranks.values(), default=0.0)
        driver.multifactor = Multifactor(rule, shares, driver.engine.cluster, self._rank, most, preempts)

    def stopped(self, placed: Placed, detail: str, now: Seconds) -> None:
        """A job is stopped for another one: what it has done is kept if it only stands still."""
        self.work.cut(placed, now, kept=detail.startswith(SUSPENDED))

    def limit(self, job: Job, walltime: Seconds) -> Seconds:
        """After how long the next run of a job is at its limit."""
        return walltime if walltime == inf else self.work.limit(job, walltime)

    def operated(self) -> Operated:
        """What the machine was under."""
        return Operated(self.conditions, self.upsets.outages(), self.upsets.windows())


def _no_jobs(node: int) -> list[JobId]:
    return []


def _never(job: Job) -> bool:
    return False


def in_classes(workload: Workload, conditions: Conditions) -> Workload:
    """The workload with the priorities of its classes, for jobs that give none themselves. O(jobs)."""
    if not any(one.priority for one in conditions.classes):
        return workload
    jobs = []
    for job in workload.jobs:
        found = None if job.priority else conditions.class_of(job)
        jobs.append(job if found is None else replace(job, priority=found.priority))
    return replace(workload, jobs=jobs)


def chance_of(
    conditions: Conditions, seed: int | None = None, replicate: Replicate | None = None
) -> tuple[Generator, Generator]:
    """The random numbers of failures: for the times between them, and for repairs.

    They depend on the seed of the file and on that of the simulation, and on which replicate it is: policies
    that are compared meet the same failures.
    """
    own = 1 if conditions.failures is None else conditions.failures.seed
    number = 0 if replicate is None else replicate.number
    between, repairs = (Generator(PCG64(child)) for child in SeedSequence([own, seed or 0, number]).spawn(2))
    return between, repairs


def check_conditions(conditions: Conditions, loaded: LoadedPolicy, *, rated: bool, journal: bool) -> None:
    """Refuse what is not simulated together. Raises `InputError`."""
    which = ", ".join(conditions.fields) or "conditions"
    if rated:
        raise InputError(
            f"{which}: found jobs that slow each other down by a rate model, expected none of these beside it"
        )
    if conditions.windows and isinstance(loaded.policy, Planner) and not isinstance(loaded.policy, Policy):
        raise InputError(
            f"policy {loaded.name} makes its plan without windows (maintenance, reservation), expected "
            "another policy: fcfs, easy and conservative plan around them"
        )
    rule = conditions.priority
    looks = (
        ("class", any(one.priority for one in conditions.classes)),
        ("priority", rule is not None and rule.weighs),
    )
    for key, used in looks:
        if used and not traits_of(loaded.policy).priorities:
            raise InputError(
                f"policy {loaded.name} does not look at priorities, which {key} gives to jobs, expected "
                "another policy, such as fcfs, easy or conservative"
            )
    if conditions.preemption is not None and rule is not None and not rule.weighs:
        raise InputError(
            "priority: found no weights beside a class that preempts, expected weights: ranks by fair share "
            "alone hold jobs back from the policy"
        )
    if journal and conditions.preemption is not None:
        raise InputError(
            "a journal has no preemptions, expected a class that preempts or --journal, not both"
        )
