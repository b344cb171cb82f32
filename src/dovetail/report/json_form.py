"""The JSON form of a result: what `simulate` and `run` print, and `compare` prints a list of.

The form is a contract (docs/reference/output.md): fields are added, never changed. There is no NaN and
no infinity in it; what does not exist is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from dovetail.model import Allocation, Checkpoints, Note, Plan, Record, Result
from dovetail.model.masks import bit_runs
from dovetail.model.tables import RecordTable
from dovetail.report.columns import Floats, TableColumns, columns_of
from dovetail.report.drift import drift_of
from dovetail.report.energy import energy_metrics
from dovetail.report.intervals import policy_label
from dovetail.report.metrics import break_down, compute_metrics, later_than
from dovetail.report.operated import NO_CHECKPOINTS, costs_of
from dovetail.report.options import ReportOptions
from dovetail.report.spelling import Spelling
from dovetail.report.wording import machine_name

CHUNK = 1_000
"""Rows that are made at once: few, so that the memory of one chunk serves the next."""


def to_json(result: Result, options: ReportOptions | None = None) -> dict[str, Any]:
    """The result as plain dicts, lists, strings and finite numbers. O(jobs).

    A cut, a drift, break-downs and a reference each add a field.
    """
    form = form_of(result, options)
    form["jobs"] = list(form["jobs"])
    return form


def form_of(result: Result, options: ReportOptions | None = None) -> dict[str, Any]:
    """The same, but a row of ``jobs`` is made when it is read: for `pieces_of`."""
    options = options or ReportOptions()
    cut, reference = options.cut, options.reference(result)
    found = compute_metrics(result, cut=cut, reference=reference) | energy_metrics(result, options.watts)
    form = {
        "policy": result.policy,
        "options": to_plain_json(result.options),
        "workload": result.workload,
        "cluster": result.cluster.label or machine_name(result.cluster),
        "seed": result.seed,
        "knowledge": result.knowledge,
        "makespan": to_plain_json(result.makespan),  # null where nothing is known
        "rejected": [r.id for r in result.rejected],
        "jobs": JobForms(result),
        "metrics": to_plain_json(found) if result.known else None,
        "plan": _plan_form(result.plan),
        "rejected_reasons": {r.id: r.reason for r in result.rejected},
        "skipped": result.skipped,
        "promises_broken": result.promises_broken,
        "broken_by_overrun": result.broken_by_overrun,
        "overrun": result.overrun,
        "default_walltime": to_plain_json(result.default_walltime),
        "live": result.live,
        "started_at": to_plain_json(result.started_at),
        "load": to_plain_json(result.load),
        "ignores_priorities": result.ignores_priorities,
        "replicate": result.replicate.number,
        "notes": [{"code": Note.code_of(note), "text": str(note)} for note in result.notes],
    }
    if cut is not None:
        form["cut"] = {"warmup": cut.warmup, "cooldown": cut.cooldown, "fraction": cut.fraction}
    if options.drift and not result.replicate.number:
        drift = drift_of(result, cut)
        form["drift"] = None if drift is None else to_plain_json(drift.json_form())
    if options.by:
        form["breakdown"] = {name: to_plain_json(break_down(result, name, cut=cut)) for name in options.by}
    if reference is not None:
        form["later_than"] = {
            "policy": policy_label(reference),
            "jobs": to_plain_json(later_than(result, reference)),
        }
    return form


def text_of(forms: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """JSON text of what `to_json` gave, or of a list of these; a line for each job, so that it diffs."""
    return "".join(pieces_of(forms))


def pieces_of(forms: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """`text_of` piece by piece, so that the whole text never stands in memory."""
    if isinstance(forms, Mapping):
        yield from _dump_parts(forms)
        return
    yield "["
    for number, form in enumerate(forms):
        yield ",\n" if number else ""
        yield from _dump_parts(form)
    yield "]"


def _dump_parts(form: Mapping[str, Any]) -> Iterator[str]:
    opening = "{"
    for key, value in form.items():
        yield f"{opening}{_dump_value(key)}: "
        opening = ",\n "
        if key == "jobs" and len(value):
            for first in range(0, len(value), CHUNK):
                yield "[\n  " if not first else ",\n  "
                part = slice(first, first + CHUNK)
                yield value.text(part) if isinstance(value, JobForms) else _dump_rows(value[part])
            yield "\n ]"
        else:
            yield _dump_value(list(value) if key == "jobs" else value)
    yield "}"


def _dump_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON, each on a line of its own."""
    whole = _dump_value(rows)[1:-1]
    if whole.count("},{") == len(rows) - 1:  # nowhere but between them: all at once
        return whole.replace("},{", "},\n  {")
    return ",\n  ".join(map(_dump_value, rows))


def _dump_value(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # whole numbers of more than 64 bits, names that are no UTF-8
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JobForms:
    """A row for each record, in file order, made when it is read."""

    def __init__(self, result: Result) -> None:
        self._records = result.records
        self._costs = None if result.operated is None else _checkpoints_of(result)
        self._spelt = Spelling(result.cluster)
        as_columns = isinstance(result.records, RecordTable)
        self._columns = columns_of(result) if as_columns else None

    def __len__(self) -> int:
        return len(self._records)

    def text(self, part: slice) -> str:
        """Some rows as JSON, each on a line of its own."""
        if isinstance(self._columns, TableColumns):
            return ",\n  ".join(_lines_of_table(self._columns, part, self._spelt))
        return _dump_rows([self._row(record) for record in self._records[part]])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if isinstance(self._columns, TableColumns):
            for first in range(0, len(self), CHUNK):
                yield from orjson.loads(f"[{self.text(slice(first, first + CHUNK))}]")
        else:
            yield from map(self._row, self._records)

    def _row(self, record: Record) -> dict[str, Any]:
        row = _record_row(record, self._spelt)
        return row if self._costs is None else row | _operated_row(record, self._costs, self._spelt)


def _lines_of_table(columns: TableColumns, part: slice, spelt: Spelling) -> Iterator[str]:
    """As `_record_row`, of records of which no one needs an object: 100,000 take a third of the time so."""
    app, user, name = (_texts_of(columns, by, part) for by in ("app", "user", "implementation"))
    promised = columns.table.in_order(columns.table.promised)
    times = (columns.submit, columns.start, columns.end, columns.predictions[:, 0], promised)
    submit, start, end, known, promise = (_number_texts(column[part]) for column in times)
    ids = _inner_texts(columns.ids[part])
    nodes = _inner_texts(spelt.of_all(*columns.node_runs(part)))
    ends = [_ENDS[killed] for killed in columns.killed[part].tolist()]
    return (
        f'{{"id":"{id}","app":{app},"user":{user},"implementation":{name},"state":{state},"submit":{submit},'
        f'"start":{start},"end":{end},"nodes":"{nodes}","devices":[],"predicted":{known},"exit_code":{code},'
        f'"predicted_upper":{known},"promised":{promise},"detail":null,"stdout":null,"stderr":null,'
        '"remote_gpus":0,"migrations":0}'
        for id, app, user, name, (state, code), submit, start, end, known, promise, nodes in zip(
            ids, app, user, name, ends, submit, start, end, known, promise, nodes, strict=True
        )
    )


_ENDS = ('"COMPLETED"', "0"), ('"TIMEOUT"', "null")
"""State and exit code of a job that ran to its own end, and of one that was killed."""


def _texts_of(columns: TableColumns, by: str, part: slice) -> list[str]:
    names, places = columns.keys(by)
    texts = [_dump_value(name or None) for name in names]
    return [texts[place] for place in places[part].tolist()]


def _inner_texts(texts: Sequence[str]) -> Sequence[str]:
    """Texts as JSON has them, without their quotes."""
    every = "".join(texts)
    if every.isascii() and every.isprintable() and '"' not in every and "\\" not in every:
        return texts
    found = _dump_value(texts)[2:-2].split('","')
    return found if len(found) == len(texts) else [_dump_value(text)[1:-1] for text in texts]


def _number_texts(values: Floats) -> list[str]:
    """Numbers as JSON has them; NaN is null."""
    return orjson.dumps(values.tolist()).decode()[1:-1].split(",") if len(values) else []


def _record_row(record: Record, spelt: Spelling) -> dict[str, Any]:
    return {
        "id": record.job.id,
        "app": record.job.app.name,
        "user": record.job.user,
        "implementation": record.implementation.name if record.implementation else None,
        "state": record.state.value,
        "submit": record.job.submit_time,
        "start": record.start,
        "end": record.end,
        "nodes": None if record.allocation is None else spelt(record.allocation.mask),
        "devices": _device_names(record.allocation, spelt),
        "predicted": to_plain_json(record.predicted.expected) if record.predicted else None,
        "exit_code": record.exit_code,
        "predicted_upper": to_plain_json(record.predicted.upper) if record.predicted else None,
        "promised": record.promised,
        "detail": record.detail or None,
        "stdout": record.stdout,
        "stderr": record.stderr,
        "remote_gpus": record.remote_gpus,
        "migrations": record.migrations,
    }


def _checkpoints_of(result: Result) -> Checkpoints:
    found = None if result.operated is None else result.operated.conditions.checkpoints
    return found or NO_CHECKPOINTS


def _operated_row(record: Record, checkpoints: Checkpoints, spelt: Spelling) -> dict[str, Any]:
    """What a row has besides where the machine had conditions: each stint but the last, and their cost."""
    costs = costs_of(record, checkpoints)
    return {
        "attempts": record.attempts,
        "earlier": [
            {
                "start": span.start,
                "end": span.end,
                "nodes": spelt(span.allocation.mask),
                "state": None if span.state is None else span.state.value,
                "detail": span.detail or None,
            }
            for span in record.earlier
        ],
        "lost": costs.lost,
        "overhead": costs.overhead,
    }


def _device_names(allocation: Allocation | None, spelt: Spelling) -> list[str]:
    if allocation is None or not (allocation.donors or any(part.devices for part in allocation.parts)):
        return []
    names, first = spelt.devices
    held: list[int] = []
    for part in allocation.parts:
        devices = part.devices
        for low, high in bit_runs(part.nodes):
            held += [of_node + d for of_node in first[low:high] for d in devices]
    held += [first[donor.donor] + donor.device for donor in allocation.donors]
    held.sort()
    return [names[place] for place in held]


def _plan_form(plan: Plan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    names = ("status", "bound", "gap", "seconds", "objective")
    return {name: to_plain_json(getattr(plan, name)) for name in names}


def to_plain_json(value: object) -> Any:
    """``value`` in JSON's own types: NaN and infinities become null, unknown objects their text."""
    if isinstance(value, Enum):
        return to_plain_json(value.value)
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):
        return to_plain_json(value.item())
    return str(value)
