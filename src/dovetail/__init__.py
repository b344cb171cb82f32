"""Dovetail schedules jobs on machines and clusters with CPUs and GPUs, and learns how long they take.

    import dovetail
    report = dovetail.simulate("jobs.toml", cluster="16x8cpu+1gpu", policy="fms")
    report.makespan
    dovetail.run("jobs.toml", policy="history")
    for result in dovetail.map(function, items, workers="cpu:14,gpu:2"): ...

This module is the public API and nothing else; parts are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dovetail.version import __version__ as __version__

if TYPE_CHECKING:
    from dovetail.api import run, simulate
    from dovetail.client.futures import Client
    from dovetail.comparison import compare
    from dovetail.errors import DovetailError, InputError, ItemError, MapError
    from dovetail.mapping.api import Workers, function, map  # noqa: A004
    from dovetail.model import Cluster, Job, Workload
    from dovetail.pools.executor import Executor
    from dovetail.report.report import Comparison, Report
    from dovetail.workloads.load import load_workload


__all__ = [
    "Client",
    "Cluster",
    "Comparison",
    "DovetailError",
    "Executor",
    "InputError",
    "ItemError",
    "Job",
    "MapError",
    "Report",
    "Workers",
    "Workload",
    "compare",
    "function",
    "load_workload",
    "map",
    "run",
    "simulate",
]

_HOMES = {
    "Client": "dovetail.client.futures",
    "Cluster": "dovetail.model",
    "Comparison": "dovetail.report.report",
    "DovetailError": "dovetail.errors",
    "Executor": "dovetail.pools.executor",
    "InputError": "dovetail.errors",
    "ItemError": "dovetail.errors",
    "Job": "dovetail.model",
    "MapError": "dovetail.errors",
    "Report": "dovetail.report.report",
    "Workers": "dovetail.mapping.api",
    "Workload": "dovetail.model",
    "compare": "dovetail.comparison",
    "function": "dovetail.mapping.api",
    "load_workload": "dovetail.workloads.load",
    "map": "dovetail.mapping.api",
    "run": "dovetail.api",
    "simulate": "dovetail.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dovetail' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
