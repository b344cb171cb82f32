"""Gregg 2011, Figures 3 to 5 and section 4.1: Table 2 under every placement, in the table's and other orders.

The table prints kernel times, the figures show times of whole applications: 4.05 s of kernels on the GPU
against 10.0 s. A constant cost of about 0.46 s an application on either device explains three of the paper's
figures at once, so every figure is made on both clocks, and with the interference that section 4.3 speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

import dovetail
from dovetail import Cluster, Job, Report, Workload
from dovetail.model import CPU, JobId, Result, Seconds
from dovetail.workloads.edit import shuffle_together
from dovetail_lab.published.gregg import TABLE_2, gregg_table2
from dovetail_lab.tasks import map_tasks

MACHINE = Cluster.parse("1x1cpu+1gpu")
CHUNK = 50
LATE: Seconds = 1e-9


@dataclass(frozen=True, slots=True)
class Case:
    """One reading of the paper's clocks.

    ``gpu_cost`` and ``cpu_cost`` are seconds an application takes beside its kernel, ``slowdown`` is the
    factor on GPU applications while the CPU computes. ``reference`` holds what the rules yield, from an
    independent program (seconds and shares), ``paper`` what the paper prints of the figure on this clock.
    """

    name: str
    only: str = ""
    gpu_cost: Seconds = 0.0
    cpu_cost: Seconds = 0.0
    slowdown: float = 1.0
    reference: dict[str, float] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)

    def case_workload(self) -> Workload:
        """Table 2 on this clock, in table order."""
        return gregg_table2(self.only, self.gpu_cost, self.cpu_cost)


FIGURE_3 = {
    "gpu-only": 11.6,
    "static": 10.0,
    "dynamic": 7.1,
    "static_cpu_utilisation": 0.17,
    "cpu_utilisation": 0.67,
    "less_than_static": 0.29,
    "less_than_gpu_only": 0.39,
}
"""Figures 3 and 4; 11.6 s is what "39 %" makes of 7.1 s: the text has no number for GPU only."""
FIGURE_5 = {
    "gpu-only": 10.1,
    "dynamic": 7.6,
    "cpu_utilisation": 0.90,
    "less_than_gpu_only": 0.248,
    "gpu_only_over_dynamic": 1.33,
}
"""Figure 5; the paper prints the ratio, of which 24.8 % is the reduction (1 - 7.6 / 10.1)."""

SECONDS = ("gpu-only", "cpu-only", "static", "dynamic", "optimum")
SHARES = ("cpu_utilisation", "less_than_static", "less_than_gpu_only")
STATIC = "static_cpu_utilisation"
"""The CPU's under static placement, Figure 4(a)."""


def _comparable_shares(paper: dict[str, float]) -> dict[str, float]:
    """What of the paper's figures can be compared with kernel times: shares and ratios, not seconds."""
    # Seconds depend on the clock; shares and ratios can be compared across clocks.
    return {name: value for name, value in paper.items() if name not in SECONDS}


def _reference_figures(*values: float | None) -> dict[str, float]:
    return {name: value for name, value in zip((*SECONDS, *SHARES), values, strict=True) if value is not None}


CASES: tuple[Case, ...] = (
    Case(
        "kernels, 16",
        reference=_reference_figures(4.2276, 22.4072, 4.054, 3.0186, 2.492, 0.87, 0.255, 0.286),
        paper=_comparable_shares(FIGURE_3),
    ),
    Case(
        "kernels, 13",
        "gpu-faster",
        reference=_reference_figures(4.054, 22.400, 4.054, 3.017, 2.492, 0.87, 0.256, 0.256),
        paper=_comparable_shares(FIGURE_5),
    ),
    Case(
        "+0.46 s each, 16",
        "",
        0.46,
        0.46,
        reference=_reference_figures(11.5876, 29.7672, 10.034, 6.286, 6.286, 1.00, 0.374, 0.458),
        paper=FIGURE_3,
    ),
    Case(
        "+0.46 s each, 13",
        "gpu-faster",
        0.46,
        0.46,
        reference=_reference_figures(10.034, 28.380, 10.034, 6.209, 5.790, 1.00, 0.381, 0.381),
        paper=FIGURE_5,
    ),
    Case(
        "+0.46 s GPU, +0.56 s CPU, 16",
        "",
        0.46,
        0.56,
        reference=_reference_figures(11.588, 31.367, 10.034, 7.366, 6.494, 0.94, 0.266, 0.364)
        | {STATIC: 0.17},
        paper=FIGURE_3,
    ),
    Case(
        "+0.46 s GPU, +0.56 s CPU, 13",
        "gpu-faster",
        0.46,
        0.56,
        reference=_reference_figures(10.034, 29.680, 10.034, 6.574, 5.868, 0.93, 0.345, 0.345),
        paper=FIGURE_5,
    ),
    Case(
        "+0.46 s each, GPU slowed 1.2x, 16",
        "",
        0.46,
        0.46,
        1.2,
        reference=_reference_figures(11.588, None, 10.265, 7.128, None, 0.94, 0.306, 0.385),
        paper=FIGURE_3,
    ),
    Case("+0.46 s each, GPU slowed 1.2x, 13", "gpu-faster", 0.46, 0.46, 1.2, paper=FIGURE_5),
)


def clock_readings(
    gpu_cost: Seconds | None, cpu_cost: Seconds | None, slowdown: float | None
) -> tuple[Case, ...]:
    """The readings of the clocks, with what is given put in the place of theirs; each reading once."""
    # All three left open: the readings as the paper has them.
    if gpu_cost is cpu_cost is slowdown is None:
        return CASES
    made: dict[tuple[str, float, float, float], Case] = {}
    for case in CASES:
        gpu = case.gpu_cost if gpu_cost is None else gpu_cost
        cpu = case.cpu_cost if cpu_cost is None else cpu_cost
        slow = case.slowdown if slowdown is None else slowdown
        key = (case.only, gpu, cpu, slow)
        # A reading that is one of the paper's keeps its name and its reference.
        if key == (case.only, case.gpu_cost, case.cpu_cost, case.slowdown):
            made[key] = case
            continue
        slower = f", GPU slowed {slow:g}x" if slow > 1 else ""
        many = "13" if case.only else "16"
        name = f"+{gpu:g} s GPU, +{cpu:g} s CPU{slower}, {many}"
        made.setdefault(key, Case(name, case.only, gpu, cpu, slow, {}, case.paper))
    return tuple(made.values())


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """One order of the queue: makespans by placement, the CPU's use, and who is late.

    ``late`` counts applications that end later under the dynamic rules than under static placement, FIFO,
    in the same order (section 4.1 calls a schedule fair if there is none); ``latest`` is by how much.
    """

    makespans: dict[str, Seconds]
    cpu_utilisation: float
    static_cpu_utilisation: float
    late: int
    latest: Seconds


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """A case in table order, and over random orders."""

    case: Case
    table: QueueOrder
    orders: tuple[QueueOrder, ...]
    optimum: Seconds | None

    def table_order_figures(self) -> dict[str, float]:
        """Table order, under the names of ``case.reference`` and ``case.paper``."""
        best = {} if self.optimum is None else {"optimum": self.optimum}
        return {
            **self.table.makespans,
            **best,
            STATIC: self.table.static_cpu_utilisation,
            "cpu_utilisation": self.table.cpu_utilisation,
            "less_than_static": self.makespan_reduction("static"),
            "less_than_gpu_only": self.makespan_reduction("gpu-only"),
            "gpu_only_over_dynamic": self.table.makespans["gpu-only"] / self.table.makespans["dynamic"],
        }

    def makespan_reduction(self, against: str) -> float:
        """By which share of itself the makespan of ``against`` falls under the dynamic rules.

        One of two senses of the paper's "% faster"; the other one is a ratio, less 1.
        """
        return 1 - self.table.makespans["dynamic"] / self.table.makespans[against]

    def dynamic_makespans(self) -> tuple[Seconds, Seconds, Seconds]:
        """Mean, least and greatest dynamic makespan over the random orders."""
        # Without random orders the order of the table stands for all.
        spans = [order.makespans["dynamic"] for order in self.orders] or [self.table.makespans["dynamic"]]
        return fmean(spans), min(spans), max(spans)


def on_preferred_devices(workload: Workload) -> Workload:
    """Each job on the device with the shorter kernel only: the paper's static schedule.

    It goes by kernel times even where a constant cost makes the other device the faster one.
    """
    kernels = {name: (cpu, gpu) for name, gpu, cpu in TABLE_2}
    jobs: list[Job] = []
    for job in workload.jobs:
        cpu, gpu = kernels[job.app.name]
        kind = "cpu" if cpu < gpu else "gpu"
        kept = tuple(choice for choice in job.choices if choice.implementation.kind == kind)
        jobs.append(replace(job, choices=kept))
    return replace(workload, jobs=jobs)


def least_makespan(workload: Workload) -> Seconds:
    """Least makespan of one CPU and one GPU: all 2^n assignments at once. 16 jobs take a millisecond."""
    cpu, gpu = np.zeros(1), np.zeros(1)
    for job in workload.jobs:
        own: dict[str, Seconds] = {}
        for choice in job.choices:
            seconds = workload.truth.seconds(job, choice.implementation, choice.request)
            assert seconds is not None
            own[choice.implementation.kind] = seconds
        # Each job doubles the assignments: the first half has it on the GPU, the second on the CPU.
        cpu = np.concatenate([cpu, cpu + own["cpu"]])
        gpu = np.concatenate([gpu + own["gpu"], gpu])
    return float(np.maximum(cpu, gpu).min())


def run_policy(workload: Workload, policy: str, slowdown: float = 1.0) -> Report:
    """The workload under a policy that knows its times, the GPU slowed beside a busy CPU."""
    rates = f"gpu-slowdown?factor={slowdown:g}" if slowdown > 1 else None
    return dovetail.simulate(workload, cluster=MACHINE, policy=policy, rates=rates)


def _job_ends(result: Result) -> dict[JobId, Seconds]:
    return {r.job.id: r.end for r in result.records if r.end is not None}


def cpu_utilisation(result: Result) -> float:
    """The share of the makespan in which the CPU computes."""
    busy = sum(
        r.run_time or 0.0
        for r in result.records
        if r.implementation is not None and r.implementation.kind == CPU
    )
    return busy / result.makespan


def in_order(case: Case, workload: Workload) -> QueueOrder:
    """The workload as it is ordered, under every placement of Figure 3."""
    # The static schedule is the paper's: by kernel times, in the order of the queue, on the preferred device.
    static = run_policy(on_preferred_devices(workload), "best-device", case.slowdown).result
    dynamic = run_policy(workload, "history", case.slowdown).result
    ends = _job_ends(static)
    later = [end - ends[job] for job, end in _job_ends(dynamic).items() if end > ends[job] + LATE]
    return QueueOrder(
        {
            "cpu-only": run_policy(workload, "cpu-only", case.slowdown).makespan,
            "gpu-only": run_policy(workload, "gpu-only", case.slowdown).makespan,
            "static": static.makespan,
            "dynamic": dynamic.makespan,
        },
        cpu_utilisation(dynamic),
        cpu_utilisation(static),
        len(later),
        max(later, default=0.0),
    )


def run_cases(
    *,
    orders: int = 100,
    seed: int = 1,
    workers: int = 1,
    readings: Sequence[Case] = CASES,
    progress: Callable[[int, int], None] | None = None,
) -> list[CaseOutcome]:
    """All readings, in table order and in ``orders`` random ones. About 15 ms an order and case."""
    tasks = [
        (i, case, seed, start, min(start + CHUNK, orders))
        for i, case in enumerate(readings)
        for start in range(0, max(orders, 1), CHUNK)
    ]
    parts = map_tasks(_run_chunk, tasks, workers, progress)
    found = []
    for i, case in enumerate(readings):
        workload = case.case_workload()
        shuffles = [o for task, part in zip(tasks, parts, strict=True) if task[0] == i for o in part]
        # A slowdown depends on what else runs, so the optimum of fixed times is none there.
        best = least_makespan(workload) if case.slowdown == 1 else None
        found.append(CaseOutcome(case, in_order(case, workload), tuple(shuffles), best))
    return found


def _run_chunk(task: tuple[int, Case, int, int, int]) -> Sequence[QueueOrder]:
    _, case, seed, start, stop = task
    workload = case.case_workload()
    return [
        # A generator for each order, so that order 7 is the same however the orders are divided among
        # processes.
        in_order(case, shuffle_together(workload, np.random.Generator(np.random.PCG64([seed, order]))))
        for order in range(start, stop)
    ]
