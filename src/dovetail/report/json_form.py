"""The JSON form of a result: what `simulate` and `run` print, and `compare` prints a list of.

The form is a contract (docs/reference/output.md): fields are added, never changed. There is no NaN and
no infinity in it; what does not exist is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from dovetail.model import Cluster, Plan, Record, Result
from dovetail.model.hostlist import compress
from dovetail.report.metrics import Cut, metrics

__all__ = ["dumps", "plain", "to_json"]


def to_json(result: Result, *, cut: Cut | None = None, reference: Result | None = None) -> dict[str, Any]:
    """The result as plain dicts, lists, strings and finite numbers. O(jobs).

    ``cut`` and ``reference`` are those of `metrics`.
    """
    spelt: dict[int, str] = {}
    return {
        "policy": result.policy,
        "options": plain(result.options),
        "workload": result.workload,
        "cluster": _cluster_name(result.cluster),
        "seed": result.seed,
        "knowledge": result.knowledge,
        "makespan": plain(result.makespan),
        "rejected": [r.id for r in result.rejected],
        "jobs": [_job(record, result.cluster, spelt) for record in result.records],
        "metrics": plain(metrics(result, cut=cut, reference=reference)),
        "plan": _plan(result.plan),
        "rejected_reasons": {r.id: r.reason for r in result.rejected},
        "skipped": result.skipped,
        "promises_broken": result.promises_broken,
        "broken_by_overrun": result.broken_by_overrun,
        "overrun": result.overrun,
        "default_walltime": plain(result.default_walltime),
        "live": result.live,
        "started_at": plain(result.started_at),
    }


def dumps(results: Result | Iterable[Result]) -> str:
    """JSON text: an object of one result, a list of several; a line for each job, so that it diffs."""
    if isinstance(results, Result):
        return _dump(to_json(results))
    return "[" + ",\n".join(_dump(to_json(result)) for result in results) + "]"


def _dump(form: Mapping[str, Any]) -> str:
    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = []
    for key, value in form.items():
        if key == "jobs" and value:
            rows = ",\n".join(f"  {text(job)}" for job in value)
            lines.append(f"{text(key)}: [\n{rows}\n ]")
        else:
            lines.append(f"{text(key)}: {text(value)}")
    return "{" + ",\n ".join(lines) + "}"


def _job(record: Record, cluster: Cluster, spelt: dict[int, str]) -> dict[str, Any]:
    job, allocation = record.job, record.allocation
    nodes: str | None = None
    devices: list[str] = []
    if allocation is not None:
        mask = allocation.mask
        if mask not in spelt:
            spelt[mask] = compress(allocation.node_names(cluster))
        nodes = spelt[mask]
        if allocation.donors or any(part.devices for part in allocation.parts):
            devices = allocation.device_names(cluster)
    predicted = record.predicted
    return {
        "id": job.id,
        "app": job.app.name,
        "user": job.user,
        "implementation": record.implementation.name if record.implementation else None,
        "state": str(record.state),
        "submit": _number(job.submit_time),
        "start": _number(record.start),
        "end": _number(record.end),
        "nodes": nodes,
        "devices": devices,
        "predicted": _number(predicted.expected) if predicted else None,
        "exit_code": record.exit_code,
        "predicted_upper": _number(predicted.upper) if predicted else None,
        "promised": _number(record.promised),
        "detail": record.detail or None,
    }


def _plan(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "status": plan.status,
        "bound": _number(plan.bound),
        "gap": _number(plan.gap),
        "seconds": _number(plan.seconds),
        "objective": _number(plan.objective),
    }


def _cluster_name(cluster: Cluster) -> str:
    if cluster.label:
        return cluster.label
    devices = cluster.total_devices
    return f"{len(cluster)} nodes, {cluster.total_cpus} CPUs" + (f", {devices} devices" if devices else "")


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def plain(value: object) -> Any:
    """``value`` in JSON's own types: NaN and infinities become null, unknown objects their text."""
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)
