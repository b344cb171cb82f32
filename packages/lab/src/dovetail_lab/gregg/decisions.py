"""Gregg 2011, section 4.3: what a scheduling decision costs, by how many applications wait.

The paper measured 0.7 ms (standard deviation 0.2 ms) on its machine, in Python, with the database in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import dovetail
from dovetail import Job, Workload
from dovetail.history import MemoryHistory
from dovetail.model import Run, Seconds, TableTruth
from dovetail.runtimes import make_model
from dovetail_lab.gregg.training import MACHINE, SPREAD
from dovetail_lab.published.gregg import gregg_table2

PAPER: Seconds = 0.0007
QUEUES = (10, 100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """Seconds in the policy, over a whole run of ``queued`` jobs that are all there from the start.

    ``per_job`` is the sum over the run divided by its jobs, ``mean``, ``stdev`` and ``longest`` are of
    single calls: one call may decide on many jobs, or on none.
    """

    queued: int
    calls: int
    per_job: Seconds
    mean: Seconds
    stdev: Seconds
    longest: Seconds


def draw_queue(jobs: int, seed: int) -> Workload:
    """So many applications drawn from Table 2, with sizes from 0.5 to 1.5 of the table's, all at t = 0."""
    rng = np.random.Generator(np.random.PCG64([seed, jobs]))
    table = gregg_table2()
    found: list[Job] = []
    times: dict[tuple[str, str, int], Seconds] = {}
    for i, (which, size) in enumerate(
        zip(
            rng.integers(16, size=jobs).tolist(),
            rng.uniform(1 - SPREAD, 1 + SPREAD, jobs).tolist(),
            strict=True,
        )
    ):
        job = table.jobs[which]
        found.append(Job(f"{job.id}-{i}", job.app, job.choices, index=i, inputs={"size": size}))
        for choice in job.choices:
            seconds = table.truth.seconds(job, choice.implementation, choice.request)
            assert seconds is not None
            times[found[-1].id, choice.implementation.name, 1] = seconds * size
    return Workload(table.name, found, TableTruth(times))


def train_history(history: MemoryHistory, seed: int = 1, sizes: int = 5) -> MemoryHistory:
    """Records so many runs of every application on both devices, with 5 % noise."""
    # A stream of its own, so that the queue's draws stay the same.
    rng = np.random.Generator(np.random.PCG64([seed, 0]))
    table = gregg_table2()
    for job in table.jobs:
        for choice in job.choices:
            seconds = table.truth.seconds(job, choice.implementation, choice.request)
            assert seconds is not None
            nodes, _, gpus = Run.resolved_request(choice.request)
            device = MACHINE.device_classes(choice.implementation.kind)[0]
            for size in rng.uniform(1 - SPREAD, 1 + SPREAD, sizes).tolist():
                history.record(
                    Run(
                        job.app.name,
                        choice.implementation.name,
                        device,
                        nodes,
                        0 if gpus else 1,
                        gpus,
                        {"size": size},
                        # Normal noise has no lower end; half the time is far below anything that is drawn in
                        # practice.
                        seconds * size * max(0.5, float(rng.normal(1.0, 0.05))),
                    )
                )
    return history


def decision_time(
    queued: int, policy: str = "history", *, model: str = "least-squares", learn: bool = True, seed: int = 1
) -> DecisionTime:
    """Schedule so many applications with a trained history and time every decision.

    ``learn`` records what ends, so that predictions are made anew as in a live run.
    """
    history = train_history(MemoryHistory(), seed)
    report = dovetail.simulate(
        draw_queue(queued, seed),
        cluster=MACHINE,
        policy=policy,
        model=make_model(model, history),
        history=history,
        learn=learn,
    )
    spent = np.array(report.result.decision_seconds)
    return DecisionTime(
        queued,
        len(spent),
        float(spent.sum()) / queued,
        float(spent.mean()),
        float(spent.std(ddof=1)) if len(spent) > 1 else 0.0,
        float(spent.max()),
    )
