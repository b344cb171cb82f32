"""Gregg 2011, section 5.2, Figure 2: from an empty history, how soon does the scheduler know enough?

A repetition starts from an empty history. Training runs schedule the sixteen applications of Table 2 in a
random order with random input sizes (0.5 to 1.5 of the table's; times go with the size) and 5 % noise on
every time, and are recorded. After each one the table itself, its own sizes in its own order, is scheduled
with what the history then knows, and nothing of that test is recorded ("to normalize the results").
Predictions are the paper's (``least-squares``). The same draws serve every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail import Cluster, Job, Workload
from dovetail.history import MemoryHistory
from dovetail.model import Seconds, TableTruth
from dovetail.runtimes import make_model
from dovetail_lab.published.gregg import gregg_table2
from dovetail_lab.tasks import map_tasks

Floats = NDArray[np.float64]

MACHINE = Cluster.parse("1x1cpu+1gpu")
SPREAD = 0.5
"""Sizes lie between 1 - SPREAD and 1 + SPREAD of the table's."""
NOISE = 0.05
CHUNK = 25
"""Repetitions in one task of a worker process."""

VARIANTS = ("history", "history?explore=false", "history-guarded")

REFERENCE: dict[int, Seconds] = {
    0: 9.095, 1: 9.070, 2: 6.058, 3: 4.687, 4: 4.070, 5: 3.350, 6: 3.122, 7: 3.023, 10: 3.005,
}  # fmt: skip
"""Mean test makespan of ``history`` by training runs, from an independent program with 100 repetitions."""

GPU_ONLY: Seconds = 4.2276
"""All sixteen on the GPU: the dashed line of the figure."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One training run: order (16,), sizes (16,), and factors on the times, (16, 2) for GPU and CPU."""

    order: NDArray[np.int64]
    sizes: Floats
    noise: Floats


@dataclass(frozen=True, slots=True)
class Curve:
    """What one policy did: (repetitions, runs + 1) test makespans and (repetitions, runs) training ratios.

    ``tests[i, r]`` is the makespan in seconds of the test after r training runs; ``ratios[i, r]`` is the
    makespan of training run r over that of the same run all on the GPU.
    """

    policy: str
    tests: Floats
    ratios: Floats


def draw_run(seed: int, repetition: int, run: int, noise: float = NOISE, spread: float = SPREAD) -> Draw:
    """The training run of a repetition; orders, sizes and noise each have a stream of their own."""
    # Streams of their own, so that another noise does not change orders and sizes.
    order, sizes, errors = (
        np.random.Generator(np.random.PCG64([seed, repetition, run, purpose])) for purpose in range(3)
    )
    return Draw(
        order.permutation(16),
        sizes.uniform(1 - spread, 1 + spread, 16),
        # Never below a tenth: a normal error could make a time negative.
        np.maximum(0.1, errors.normal(1.0, noise, (16, 2))),
    )


def suite_workload(draw: Draw | None) -> Workload:
    """The sixteen applications as drawn; as in the table where nothing was drawn."""
    table = gregg_table2()
    jobs: list[Job] = []
    times: dict[tuple[str, str, int], Seconds] = {}
    # The place in the drawn order is the order of submission.
    for place, i in enumerate(range(16) if draw is None else draw.order.tolist()):
        job = table.jobs[i]
        size = 1.0 if draw is None else float(draw.sizes[i])
        jobs.append(Job(job.id, job.app, job.choices, index=place, inputs={"size": size}))
        for column, choice in zip((1, 0), job.choices, strict=True):
            seconds = table.truth.seconds(job, choice.implementation, choice.request)
            assert seconds is not None
            noise = 1.0 if draw is None else float(draw.noise[i, column])
            times[job.id, choice.implementation.name, 1] = seconds * size * noise
    return Workload(table.name, jobs, TableTruth(times))


def gpu_only(workload: Workload) -> Seconds:
    """The makespan with every job on the GPU: the sum of its times there."""
    assert isinstance(workload.truth, TableTruth)
    return sum(workload.truth.table[job.id, "gpu", 1] for job in workload.jobs)


def schedule_makespan(workload: Workload, policy: str, history: MemoryHistory, *, record: bool) -> Seconds:
    """The makespan with what the history knows; ``record`` writes what ends into it."""
    model = make_model("least-squares", history)
    return dovetail.simulate(
        workload, cluster=MACHINE, policy=policy, model=model, history=history, learn=record
    ).makespan


def train_once(
    policy: str, seed: int, repetition: int, runs: int, noise: float = NOISE, spread: float = SPREAD
) -> tuple[list[Seconds], list[float]]:
    """One repetition from an empty history: the tests' makespans, the training runs' ratios to GPU only."""
    history, test = MemoryHistory(), suite_workload(None)
    # Tested before the first training run as well: the curve begins untrained.
    tests = [schedule_makespan(test, policy, history, record=False)]
    ratios = []
    for run in range(runs):
        workload = suite_workload(draw_run(seed, repetition, run, noise, spread))
        ratios.append(schedule_makespan(workload, policy, history, record=True) / gpu_only(workload))
        # The test itself must teach nothing, or later points would know its answers.
        tests.append(schedule_makespan(test, policy, history, record=False))
    return tests, ratios


def training_curves(
    policies: Sequence[str] = VARIANTS,
    *,
    repetitions: int = 100,
    runs: int = 10,
    seed: int = 1,
    noise: float = NOISE,
    spread: float = SPREAD,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Curve]:
    """The curves of these policies. About 5 ms a scheduled queue: 2 (runs + 1) a repetition and policy."""
    tasks = [
        (policy, seed, start, min(start + CHUNK, repetitions), runs, noise, spread)
        for policy in policies
        for start in range(0, repetitions, CHUNK)
    ]
    parts = map_tasks(_train_chunk, tasks, workers, progress)
    curves = []
    for policy in policies:
        own = [part for task, part in zip(tasks, parts, strict=True) if task[0] == policy]
        tests = np.array([t for part in own for t, _ in part])
        curves.append(Curve(policy, tests, np.array([r for part in own for _, r in part])))
    return curves


def _train_chunk(
    task: tuple[str, int, int, int, int, float, float],
) -> list[tuple[list[Seconds], list[float]]]:
    policy, seed, start, stop, *rest = task
    runs, noise, spread = rest
    return [
        train_once(policy, seed, repetition, int(runs), noise, spread) for repetition in range(start, stop)
    ]
