"""Packs of moldable jobs (Aupy 2013), as a planner: ``follow-plan`` carries its plan out.

Processors are the nodes of a cluster, or the cores of a single node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.interfaces import Traits, View
from dovetail.model import CPU, WHOLE_POOL, Choice, Cluster, DeviceClass, Job, Plan, PlanItem, Seconds
from dovetail_lab.packing.profiles import repair_times

if TYPE_CHECKING:  # with its numba kernels: `dovetail policies` need not wait for them
    from dovetail_lab.packing.registry import Solution


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
    traits: ClassVar[Traits] = Traits(each_unit=True)

    def __post_init__(self) -> None:
        from dovetail_lab.packing.registry import ALGORITHMS

        limit = self.time_limit
        for name, found, good, expected in (
            ("algorithm", self.algorithm, self.algorithm in ALGORITHMS, f"one of {', '.join(ALGORITHMS)}"),
            ("k", self.k, self.k >= 0, "a whole number of at least 0"),
            ("seed", self.seed, self.seed >= 0, "a whole number of at least 0"),
            ("time_limit", limit, limit is None or (isfinite(limit) and limit > 0), "seconds above 0"),
        ):
            if not good:
                raise InputError(f"found {found!r}, expected {expected}", where=f"policy pack: {name}")

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Jobs that cannot run on one processor, or need more than CPUs, are refused."""
        for job in jobs:
            choices = _cpu_choices(job)
            if not choices:
                return f"packs jobs on CPUs; job {job.id} has no implementation for them"
            least = min(width_on(cluster, choice) for choice in choices)
            if least > 1:
                what, cure = (
                    ("nodes", "a time on 1 node") if len(cluster) > 1 else ("cores", "one with cpus = 1")
                )
                return (
                    f"needs each job's time on one processor; job {job.id} has no implementation on fewer "
                    f"than {least} {what}, expected {cure}"
                )
        return None

    def plan(self, view: View) -> Plan:
        """Packs for all waiting jobs; complexity as of the algorithm.

        Jobs that take no time cost nothing wherever they are: they go first, in packs of their own, and the
        others are packed without them.
        """
        jobs = list(view.queue)
        processors = processors_of(view.cluster)
        times, chosen = _job_profiles(view, jobs, processors)
        k = self.k or processors
        most = min(k, processors)
        timeless = [i for i in range(len(jobs)) if times[i, 0] == 0.0]
        timed = [i for i in range(len(jobs)) if times[i, 0] > 0.0]
        items: list[PlanItem] = []

        def add_item(i: int, count: int, start: Seconds, pack: int | None) -> None:
            choice, seconds = chosen[i][count]
            name = choice.implementation.name
            items.append(PlanItem(jobs[i].id, name, choice.request, view.now + start, seconds, pack=pack))

        for place, i in enumerate(timeless):
            add_item(i, 1, 0.0, None if self.algorithm == "list" else place // most)
        if not timed:
            return Plan(tuple(items), 0.0, "optimal", 0.0)
        solution = self._solve_profiles(times[timed], k)
        # Packs of jobs without length come first, and take the first numbers.
        first = -(-len(timeless) // most)
        packs = getattr(solution.schedule, "packs", ())
        pack_of = {entry.task: first + b for b, pack in enumerate(packs) for entry in pack}
        for entry in solution.schedule.started():
            add_item(timed[entry.task], entry.processors, entry.start, pack_of.get(entry.task))
        return Plan(
            tuple(items),
            solution.metrics.cost,
            "optimal" if solution.proven_optimal else "feasible",
            solution.metrics.cost if solution.proven_optimal else solution.lower_bound,
            solution.seconds,
        )

    def _solve_profiles(self, times: NDArray[np.float64], k: int) -> Solution:
        from dovetail_lab.packing.registry import Options, solve

        # Learned times need not fall with processors, which the algorithms rely on (Equations 1 and 2).
        repaired, _ = repair_times(times)
        return solve(repaired, k, self.algorithm, Options(seed=self.seed, time_limit=self.time_limit))


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


def _job_profiles(
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
            # Of equally fast choices the widest, as the job holds the processors anyway.
            usable = [(seconds, -width, choice) for width, seconds, choice in options if width <= j]
            if not usable:
                raise InputError(f"job {job.id} has no known time on {j} processors", where="policy pack")
            seconds, _, choice = min(usable, key=lambda entry: entry[:2])
            row.append((choice, seconds))
            times[i, j - 1] = seconds
        # Index 0 only shifts the counts, which begin at 1.
        chosen.append([row[0], *row])
    return times, chosen
