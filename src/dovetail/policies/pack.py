"""Packs of moldable jobs (Aupy 2013), as a planner: ``follow-plan`` carries its plan out.

Processors are the nodes of a cluster, or the cores of a single node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.interfaces import View
from dovetail.model import CPU, WHOLE_POOL, Choice, Cluster, DeviceClass, Job, Plan, PlanItem, Seconds
from dovetail.packing.profiles import repair
from dovetail.packing.registry import ALGORITHMS, Options, solve

__all__ = ["Pack", "processors_of", "width_on"]


@dataclass(frozen=True)
class Pack:
    """Waiting jobs in packs that run one after the other; the sum of the packs' times is least.

    ``algorithm`` is one of ``dovetail pack`` (``list``: without packs); ``k`` the most jobs in a pack
    (0: as many as there are processors). Jobs that are submitted later are packed when they come.
    """

    algorithm: str = "auto"
    k: int = 0
    seed: int = 1
    time_limit: float | None = None
    paper: ClassVar[str] = "Aupy 2013"

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}, expected one of {', '.join(ALGORITHMS)}")

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Jobs that cannot run on one processor, or need more than CPUs, are refused."""
        for job in jobs:
            choices = _cpu_choices(job)
            if not choices:
                return f"packs jobs on CPUs; job {job.id} has no implementation for them"
            if min(width_on(cluster, choice) for choice in choices) > 1:
                return f"needs each job's time on one processor; job {job.id} gives none"
        return None

    def plan(self, view: View) -> Plan:
        """Packs for all waiting jobs; complexity as of the algorithm."""
        jobs = list(view.queue)
        if not jobs:
            return Plan((), 0.0, "optimal", 0.0)
        processors = processors_of(view.cluster)
        times, chosen = _profiles(view, jobs, processors)
        times, _ = repair(times)
        options = Options(seed=self.seed, time_limit=self.time_limit)
        solution = solve(times, self.k or processors, self.algorithm, options)
        items: list[PlanItem] = []
        packs = getattr(solution.schedule, "packs", None)
        pack_of = {entry.task: b for b, pack in enumerate(packs or ()) for entry in pack}
        for entry in solution.schedule.started():
            choice, seconds = chosen[entry.task][entry.processors]
            items.append(
                PlanItem(
                    jobs[entry.task].id,
                    choice.implementation.name,
                    choice.request,
                    view.now + entry.start,
                    seconds,
                    pack=pack_of.get(entry.task),
                )
            )
        status = "optimal" if solution.proven_optimal else "feasible"
        return Plan(
            tuple(items),
            solution.metrics.cost,
            status,  # type: ignore[arg-type]
            solution.metrics.cost if solution.proven_optimal else solution.lower_bound,
            solution.seconds,
        )


def processors_of(cluster: Cluster) -> int:
    """Nodes, or the cores of a cluster of one node."""
    return len(cluster) if len(cluster) > 1 else max(1, cluster.total_cpus)


def width_on(cluster: Cluster, choice: Choice) -> int:
    """Processors that a choice takes."""
    if len(cluster) > 1:
        return choice.request.nodes
    cpus = choice.request.cpus
    return cluster.nodes[0].cpus if cpus == WHOLE_POOL else cpus


def _cpu_choices(job: Job) -> list[Choice]:
    return [choice for choice in job.choices if choice.implementation.kind == CPU]


def _profiles(
    view: View, jobs: Sequence[Job], processors: int
) -> tuple[NDArray[np.float64], list[list[tuple[Choice, Seconds]]]]:
    """Times on 1..p processors, shape (jobs, p), and the choice behind each (index 0 unused).

    Counts without a choice of their own take the best choice on fewer processors (Equation 1).
    """
    times = np.empty((len(jobs), processors))
    chosen: list[list[tuple[Choice, Seconds]]] = []
    for i, job in enumerate(jobs):
        options = []
        for choice in _cpu_choices(job):
            width = width_on(view.cluster, choice)
            device = next(iter(view.cluster.device_classes(CPU)), DeviceClass(CPU))
            found = view.predict(job, choice.implementation, choice.request, device)
            if found is not None and width <= processors:
                options.append((width, found.expected, choice))
        row: list[tuple[Choice, Seconds]] = []
        for j in range(1, processors + 1):
            usable = [(seconds, -width, choice) for width, seconds, choice in options if width <= j]
            if not usable:
                raise InputError(f"job {job.id} has no known time on {j} processors", where="policy pack")
            seconds, _, choice = min(usable, key=lambda entry: entry[:2])
            row.append((choice, seconds))
            times[i, j - 1] = seconds
        chosen.append([row[0], *row])
    return times, chosen
