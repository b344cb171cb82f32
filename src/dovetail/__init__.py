"""Dovetail schedules jobs on machines and clusters with CPUs and GPUs, and learns how long they take.

    import dovetail
    report = dovetail.simulate("jobs.toml", cluster="16x8cpu+1gpu", policy="fms")
    report.makespan
    dovetail.run("jobs.toml", policy="history")

This module is the public API and nothing else; parts are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.api import compare, run, simulate
    from dovetail.errors import DovetailError, InputError
    from dovetail.model import Cluster, Job, Workload
    from dovetail.report import Comparison, Report
    from dovetail.workloads.load import load_workload

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Comparison",
    "DovetailError",
    "InputError",
    "Job",
    "Report",
    "Workload",
    "compare",
    "load_workload",
    "run",
    "simulate",
]

_HOMES = {
    "Cluster": "dovetail.model",
    "Comparison": "dovetail.report",
    "DovetailError": "dovetail.errors",
    "InputError": "dovetail.errors",
    "Job": "dovetail.model",
    "Report": "dovetail.report",
    "Workload": "dovetail.model",
    "compare": "dovetail.api",
    "load_workload": "dovetail.workloads.load",
    "run": "dovetail.api",
    "simulate": "dovetail.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
