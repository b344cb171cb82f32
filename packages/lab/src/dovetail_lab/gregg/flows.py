"""Gregg 2011, Figures 4 and 5: which application runs where and when; and the ten of section 5.4.

The figures show times of applications; the clock is the one on which their numbers come out best (0.46 s
beside each kernel on the GPU, 0.56 s on the CPU).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from dovetail import Report
from dovetail.model import CPU, JobId, Seconds
from dovetail_lab.gregg.placements import cpu_utilisation, least_makespan, on_preferred_devices, run_policy
from dovetail_lab.published.gregg import gregg_identical, gregg_table2


@dataclass(frozen=True, slots=True)
class OnDevice:
    """One application: where and when."""

    name: JobId
    device: str
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class Flow:
    """The applications of one schedule by their start; the paper's own figures where it prints them."""

    title: str
    jobs: tuple[OnDevice, ...]
    makespan: Seconds
    gpu_only: Seconds
    cpu_utilisation: float
    paper_makespan: Seconds | None
    paper_cpu_utilisation: float | None
    report: Report

    def words(self) -> str:
        """What it is, ours and the paper's."""
        ours = f"{self.makespan:.1f} s, CPU {self.cpu_utilisation:.0%}"
        if self.paper_makespan is None or self.paper_cpu_utilisation is None:
            return f"{self.title}: {ours}"
        paper = f"{self.paper_makespan:.1f} s, CPU {self.paper_cpu_utilisation:.0%}"
        return f"{self.title}: {ours} (paper: {paper})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "report"}


def _make_flow(
    title: str, report: Report, gpu_only: Seconds, paper: tuple[Seconds, float] | None = None
) -> Flow:
    jobs = [
        OnDevice(r.job.id, r.implementation.kind, r.start, r.end)
        for r in report.result.records
        if r.implementation is not None and r.start is not None and r.end is not None
    ]
    return Flow(
        title,
        tuple(sorted(jobs, key=lambda job: (job.start, job.device))),
        report.makespan,
        gpu_only,
        cpu_utilisation(report.result),
        None if paper is None else paper[0],
        None if paper is None else paper[1],
        report,
    )


def figure_4(gpu_cost: Seconds = 0.46, cpu_cost: Seconds = 0.56) -> tuple[Flow, Flow]:
    """All sixteen: (a) static placement, (b) the dynamic rules."""
    workload = gregg_table2("", gpu_cost, cpu_cost)
    gpu_only = run_policy(workload, "gpu-only").makespan
    # Static placement knows the faster device of each job, as the paper's does.
    static = run_policy(on_preferred_devices(workload), "best-device")
    return (
        _make_flow("(a) each on its faster device", static, gpu_only, (10.0, 0.17)),
        _make_flow("(b) dynamic", run_policy(workload, "history"), gpu_only, (7.1, 0.67)),
    )


def figure_5(gpu_cost: Seconds = 0.46, cpu_cost: Seconds = 0.56) -> tuple[Flow, Flow]:
    """The thirteen that are faster on the GPU: (a) all there, (b) the dynamic rules."""
    workload = gregg_table2("gpu-faster", gpu_cost, cpu_cost)
    everything = run_policy(workload, "gpu-only")
    gpu_only = everything.makespan
    return (
        _make_flow("(a) GPU only", everything, gpu_only, (10.1, 0.0)),
        _make_flow("(b) dynamic", run_policy(workload, "history"), gpu_only, (7.6, 0.90)),
    )


@dataclass(frozen=True, slots=True)
class Identical:
    """Section 5.4: ten applications, each five times faster on the GPU, 1 s there.

    ``first_on_cpu`` counts from 1; in the paper it is the seventh.
    """

    flow: Flow
    first_on_cpu: int
    optimum: Seconds
    paper_first_on_cpu: int = 7


def run_identical() -> Identical:
    """The ten under the dynamic rules, with perfect predictions."""
    workload = gregg_identical()
    report = run_policy(workload, "history")
    flow = _make_flow("ten identical applications", report, run_policy(workload, "gpu-only").makespan)
    on_cpu = {job.name for job in flow.jobs if job.device == CPU}
    first = next(i for i, job in enumerate(workload.jobs, 1) if job.id in on_cpu)
    return Identical(flow, first, least_makespan(workload))
