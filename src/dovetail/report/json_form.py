"""The JSON form of a result: what `simulate` and `run` print, and `compare` prints a list of.

The form is a contract (docs/reference/output.md): fields are added, never changed. There is no NaN and
no infinity in it; what does not exist is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from dovetail.model import Cluster, Plan, Record, Result, bits
from dovetail.model.hostlist import compress
from dovetail.report.intervals import label
from dovetail.report.metrics import Cut, breakdown, later_than, metrics
from dovetail.report.wording import machine

__all__ = ["dumps", "plain", "text_of", "to_json"]


def to_json(
    result: Result,
    *,
    cut: Cut | None = None,
    reference: Result | None = None,
    by: Sequence[str] = (),
) -> dict[str, Any]:
    """The result as plain dicts, lists, strings and finite numbers. O(jobs).

    ``cut`` and ``reference`` are those of `metrics`, ``by`` names break-downs; each adds a field.
    """
    spelt = Spelling(result.cluster)
    form = {
        "policy": result.policy,
        "options": plain(result.options),
        "workload": result.workload,
        "cluster": result.cluster.label or machine(result.cluster),
        "seed": result.seed,
        "knowledge": result.knowledge,
        "makespan": plain(result.makespan),
        "rejected": [r.id for r in result.rejected],
        "jobs": [_job(record, spelt) for record in result.records],
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
        "load": plain(result.load),
        "ignores_priorities": result.ignores_priorities,
    }
    if cut is not None:
        form["cut"] = {"warmup": cut.warmup, "cooldown": cut.cooldown, "fraction": cut.fraction}
    if by:
        form["breakdown"] = {name: plain(breakdown(result, name, cut=cut)) for name in by}
    if reference is not None:
        form["later_than"] = {"policy": label(reference), "jobs": plain(later_than(result, reference))}
    return form


def dumps(results: Result | Iterable[Result]) -> str:
    """JSON text: an object of one result, a list of several; a line for each job, so that it diffs."""
    if isinstance(results, Result):
        return text_of(to_json(results))
    return text_of([to_json(result) for result in results])


def text_of(forms: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """JSON text of what `to_json` gave, or of a list of these, laid out as by `dumps`."""
    if isinstance(forms, Mapping):
        return _dump(forms)
    return "[" + ",\n".join(_dump(form) for form in forms) + "]"


class Spelling:
    """Hostlists of node masks. Where nodes are named like n0, n1, … runs of bits are spelt directly.

    That is what keeps the JSON form of 100,000 jobs on scattered nodes from taking longer than their
    simulation.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._known: dict[int, str] = {}
        stem = cluster.nodes[0].name[:-1] if cluster.nodes else ""
        plain_stem = bool(stem) and not stem[-1].isdigit() and not set("[],") & set(stem)
        numbered = all(node.name == f"{stem}{i}" for i, node in enumerate(cluster.nodes))
        self._stem = stem if plain_stem and numbered else None

    def __call__(self, mask: int) -> str:
        """The hostlist of the nodes of ``mask``, as `compress` gives it."""
        found = self._known.get(mask)
        if found is None:
            names = (self.cluster.nodes[n].name for n in bits(mask))
            found = compress(names) if self._stem is None else self._direct(mask)
            self._known[mask] = found
        return found

    def _direct(self, mask: int) -> str:
        runs, place = [], 0
        while mask:
            gap = (mask & -mask).bit_length() - 1
            mask >>= gap
            length = (~mask & (mask + 1)).bit_length() - 1
            low = place + gap
            runs.append(str(low) if length == 1 else f"{low}-{low + length - 1}")
            mask >>= length
            place = low + length
        single = len(runs) == 1 and "-" not in runs[0]
        return f"{self._stem}{runs[0]}" if single else f"{self._stem}[{','.join(runs)}]"


def _dump(form: Mapping[str, Any]) -> str:
    text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    lines = []
    for key, value in form.items():
        if key == "jobs" and value:
            rows = ",\n".join(f"  {text(job)}" for job in value)
            lines.append(f"{text(key)}: [\n{rows}\n ]")
        else:
            lines.append(f"{text(key)}: {text(value)}")
    return "{" + ",\n ".join(lines) + "}"


def _job(record: Record, spelt: Spelling) -> dict[str, Any]:
    job, allocation = record.job, record.allocation
    nodes: str | None = None
    devices: list[str] = []
    if allocation is not None:
        nodes = spelt(allocation.mask)
        if allocation.donors or any(part.devices for part in allocation.parts):
            devices = allocation.device_names(spelt.cluster)
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
