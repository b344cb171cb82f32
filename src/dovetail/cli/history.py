"""``dovetail history``: look at what was measured, get predictions, move runs in and out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from math import inf
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TextIO

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable, suggest_closest
from dovetail.files.streams import print_note
from dovetail.files.writing import write_text
from dovetail.history import Aggregate, Group, SqliteHistory
from dovetail.history.base import RequestKey, canonical_inputs, request_key
from dovetail.model import DeviceClass, Prediction, Run, Usage
from dovetail.report import tables, wording

if TYPE_CHECKING:
    from dovetail.runtimes.base import Query

history_app = opt.command_group("Look at measured runs, predict from them, export and import them.")


@contextmanager
def open_history(path: Path | None, *, create: bool = False) -> Iterator[SqliteHistory]:
    """The history database, which must be there unless ``create``."""
    with SqliteHistory(path, must_exist=not create) as history:
        yield history


def matching_groups(
    history: SqliteHistory, app: str, device: str | None, implementation: str | None
) -> Sequence[Group]:
    """The groups of an app that match; raises `InputError` with those that there are if none does."""
    groups = history.list_groups(app)
    if not groups:
        known = sorted({group.app for group in history.list_groups()})
        what = ", ".join(known[:12]) + (", …" if len(known) > 12 else "") if known else "an empty history"
        raise InputError(f"found no run of app {app!r}, expected one of: {what}", where=str(history.path))
    found = groups
    if implementation is not None:
        found = [group for group in found if group.implementation == implementation]
        if not found:
            names = ", ".join(sorted({group.implementation for group in groups}))
            raise InputError(f"found {implementation!r}, expected one of: {names}", where="--implementation")
    if device is not None:
        classes = sorted({group.device_class for group in found})
        wanted = device.lower()
        # The narrowest meaning first: a class by its full name, then all of a kind, then a model.
        for matches in (
            [c for c in classes if str(c).lower() == wanted],
            [c for c in classes if c.kind.lower() == wanted],
            [c for c in classes if c.model.lower() == wanted],
        ):
            if matches:
                return [group for group in found if group.device_class in matches]
        raise InputError(
            f"found {device!r}, expected a kind or class that has run {app}: {', '.join(map(str, classes))}",
            where="--device",
        )
    return found


NEWEST = 128
"""Newest runs of which the largest peak of memory is shown."""
MOST_INPUTS = 4
"""Up to so many inputs have a column each."""


def inputs_words(inputs: Mapping[str, float | str]) -> str:
    """Inputs for people: ``n=2048 kind=dense``."""
    words = (f"{k}={v if isinstance(v, str) else format(v, '.10g')}" for k, v in sorted(inputs.items()))
    return make_printable(" ".join(words)) or "-"


def request_words(request: tuple[int, int, float]) -> str:
    """(nodes, cpus, gpus) for people; -1 CPUs are all of the node, -2 the host's share."""
    # Negative numbers are codes of whole pools, not amounts.
    nodes, cpus, gpus = request
    cores = {-1: "all CPUs", -2: "host CPUs"}.get(cpus, wording.count_things(cpus, "CPU"))
    share = " + ".join([*([cores] if cpus or not gpus else []), *([f"{gpus:g} device"] if gpus else [])])
    return share if nodes == 1 else f"{nodes} nodes with {share}"


@opt.takes_options("history list", history_app)
def list_apps(history: Path | None, as_json: bool) -> None:
    """List apps, implementations and device classes with their numbers of runs."""
    with open_history(history) as store:
        groups = store.list_groups()
        peaks = [_largest_peak(store, group) for group in groups]
    if as_json:
        forms = [
            {"app": g.app, **place_form(g.implementation, g.device_class, g.request)}
            | {"runs": g.completed, "failed": g.failed, "largest_peak": peak}
            for g, peak in zip(groups, peaks, strict=True)
        ]
        print(json.dumps(forms, indent=2))
        return
    if not groups:
        print("The history is empty.")
        return
    tables.print_table(
        tables.name_cells("App", (g.app for g in groups)),
        tables.name_cells("Implementation", (g.implementation for g in groups)),
        tables.name_cells("Device class", (g.device_class for g in groups)),
        tables.name_cells("Request", (request_words(g.request) for g in groups), 1),
        tables.Cells("Runs", [wording.format_count(g.completed) for g in groups]),
        tables.Cells("Memory", [_format_megabytes(peak) if peak else "-" for peak in peaks], rank=3),
        tables.Cells("Failed", [wording.format_count(g.failed) for g in groups], rank=2),
    )


def _largest_peak(store: SqliteHistory, group: Group) -> int | None:
    # The newest only: a peak of years ago may be of another version.
    """The largest peak of memory of the group's newest runs, where any was measured."""
    runs = store.recent(group.app, group.implementation, group.device_class, NEWEST)
    peaks = [run.usage.peak_memory or 0 for run in runs if run.usage and request_key(run) == group.request]
    return max(peaks, default=0) or None


def place_form(implementation: str, device: DeviceClass, request: RequestKey) -> dict[str, Any]:
    """Where and with what runs ran, as JSON has it."""
    return {
        "implementation": implementation,
        "device": str(device),
        **dict(zip(("nodes", "cpus", "gpus"), request, strict=True)),
    }


@opt.takes_options("history show", history_app)
def show(
    app: str, device: str | None, implementation: str | None, runs: int, history: Path | None, as_json: bool
) -> None:
    """Show an app's averages by inputs (Table 1 of Gregg 2011), or its last runs."""
    from dovetail.history.exchange import as_dict

    with open_history(history) as store:
        found = matching_groups(store, app, device, implementation)
        # One place may have several requests; runs are kept by implementation and class.
        kept = dict.fromkeys((group.implementation, group.device_class) for group in found)
        if runs:
            shown = [run for place in kept for run in store.recent(app, *place, runs)]
            if as_json:
                print(json.dumps([as_dict(run) for run in shown], indent=2))
            else:
                _print_runs(shown)
            return
        aggregates = [a for place in kept for a in store.list_aggregates(app, *place)]
    if as_json:
        print(json.dumps([_aggregate_form(a) for a in aggregates], indent=2))
        return
    seconds = [wording.spell_seconds(a.mean) if a.count else "-" for a in aggregates]
    tables.print_table(
        tables.name_cells("Device class", (a.device_class for a in aggregates)),
        tables.name_cells("Implementation", (a.implementation for a in aggregates), 3),
        tables.name_cells("Request", (request_words(a.request) for a in aggregates), 4),
        *inputs_columns([dict(a.inputs) for a in aggregates]),
        tables.Cells("Runs", [wording.format_count(a.count) for a in aggregates]),
        tables.Cells("Mean", seconds),
        tables.Cells(
            "Stdev",
            [wording.spell_seconds(a.sample_deviation) if a.count > 1 else "-" for a in aggregates],
            rank=1,
        ),
        tables.Cells(
            "Min", [wording.spell_seconds(a.minimum) if a.count else "-" for a in aggregates], rank=2
        ),
        tables.Cells(
            "Max", [wording.spell_seconds(a.maximum) if a.count else "-" for a in aggregates], rank=2
        ),
        tables.Cells("Failed", [str(a.failed or "-") for a in aggregates], rank=1),
    )


def inputs_columns(rows: Sequence[Mapping[str, float | str]]) -> list[tables.Cells]:
    """A column for each input, numbers never cut; one column of words where there are too many."""
    # Sorted, so that the columns do not depend on which run came first.
    names = sorted({name for row in rows for name in row})
    if len(names) > MOST_INPUTS:
        return [tables.Cells("Inputs", [inputs_words(row) for row in rows], right=False)]
    columns = []
    for name in names:
        values = [row.get(name, "-") for row in rows]
        # A dash stands for a missing number, and must not make a column of words.
        figures = all(isinstance(value, float | int) or value == "-" for value in values)
        cells = [v if isinstance(v, str) else format(v, ".10g") for v in values]
        columns.append(tables.Cells(name, cells, figures))
    return columns


def _print_runs(runs: Sequence[Run]) -> None:
    """Runs as a table, oldest first on each device."""
    usages = [run.usage or Usage() for run in runs]
    ended = (
        datetime.fromtimestamp(run.when).strftime("%Y-%m-%d %H:%M:%S") if run.when else "-" for run in runs
    )
    tables.print_table(
        tables.name_cells("Ended", ended, 1),
        tables.name_cells("Device class", (r.device_class for r in runs), 2),
        tables.name_cells("Implementation", (r.implementation for r in runs), 4),
        *inputs_columns([r.inputs for r in runs]),
        tables.name_cells("State", (r.state for r in runs), 3),
        tables.Cells("Seconds", [wording.spell_seconds(r.seconds) for r in runs]),
        tables.Cells(
            "CPU", [wording.spell_seconds(u.cpu_time) if u.cpu_time else "-" for u in usages], rank=1
        ),
        tables.Cells(
            "Memory MB", [f"{u.peak_memory / 1e6:,.0f}" if u.peak_memory else "-" for u in usages], rank=5
        ),
    )


def _aggregate_form(a: Aggregate) -> dict[str, Any]:
    form: dict[str, Any] = {
        "app": a.app,
        **place_form(a.implementation, a.device_class, a.request),
        "inputs": dict(a.inputs),
        "count": a.count,
        "failed": a.failed,
    }
    if a.count:
        form |= {"mean": a.mean, "min": a.minimum, "max": a.maximum, "m2": a.m2, "stdev": a.sample_deviation}
    if a.transfers:
        names = ("transfers", "sent", "sent_time", "received", "received_time")
        form |= {name: getattr(a, name) for name in names}
    return form


@opt.takes_options("history predict", history_app)
def predict(
    app: str,
    values: list[str] | None,
    device: str | None,
    inputs: list[str] | None,
    implementation: str | None,
    nodes: int | None,
    cpus: int | None,
    gpus: float | None,
    walltime: float | None,
    user: str | None,
    model: str,
    memory: bool,
    history: Path | None,
    as_json: bool,
) -> None:
    """Predict how long an app takes with these inputs, on each device class that has run it."""
    from dovetail.runtimes import make_model
    from dovetail.runtimes.base import HistoryModel, Query
    from dovetail.runtimes.last_two import LastTwoModel
    from dovetail.runtimes.memory import MemoryModel

    # An input without its dashes is a mistake that would otherwise be taken for an app's name.
    word = next((word for word in values or [] if "=" not in word), None)
    if word is not None:
        raise InputError(
            f"found {word!r} after the app {app}, expected its inputs, NAME=VALUE; "
            "'dovetail explain -- COMMAND' predicts a command"
        )
    given = opt.read_inputs([*(values or []), *(inputs or [])])
    with open_history(history) as store:
        found = matching_groups(store, app, device, implementation)
        # A wrong input would silently predict for another size.
        _refuse_unknown(store, app, found, given)
        predictor: HistoryModel = MemoryModel(store) if memory else make_model(model, store)
        rows: list[tuple[Query, Prediction | None]] = []
        for name, where in dict.fromkeys((group.implementation, group.device_class) for group in found):
            request = _complete_request(found, name, where, nodes, cpus, gpus)
            query = Query(app, name, where, request, canonical_inputs(given), walltime)
            if isinstance(predictor, LastTwoModel):
                rows.append((query, predictor.last_two(app, name, where, user, walltime)))
            else:
                rows.append((query, predictor.ask(query)))
        reserved = [
            round(predictor.choose_reservation(query, request=inf, machine=0.0).amount)
            if isinstance(predictor, MemoryModel) and answer is not None
            else None
            for query, answer in rows
        ]
    if as_json:
        forms = [_prediction_form(query, answer) for query, answer in rows]
        if memory:
            forms = [form | {"reserve": amount} for form, amount in zip(forms, reserved, strict=True)]
        single = forms[0] if len(forms) == 1 else {}
        print(
            json.dumps(
                {"app": app, "model": "memory" if memory else model, "inputs": given}
                | single
                | {"predictions": forms},
                indent=2,
            )
        )
        return
    written = _format_megabytes if memory else wording.spell_seconds
    tables.print_table(
        tables.name_cells("Device class", (q.device for q, _ in rows)),
        tables.name_cells("Implementation", (q.implementation for q, _ in rows), 2),
        tables.name_cells("Request", (request_words(q.request) for q, _ in rows), 3),
        tables.Cells("Expected", [written(p.expected) if p else "nothing known" for _, p in rows]),
        tables.Cells(
            "90 % between", [f"{written(p.lower)} and {written(p.upper)}" if p else "-" for _, p in rows]
        ),
        *([tables.Cells("Reserve", [written(r) if r else "-" for r in reserved])] if memory else []),
        tables.Cells("Runs", [wording.format_count(p.samples) if p else "-" for _, p in rows], rank=1),
    )
    for query, answer in rows:
        if answer is not None:
            print(f"{query.device}: {answer.basis}")


def _format_megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def _complete_request(
    groups: Sequence[Group],
    implementation: str,
    device: DeviceClass,
    nodes: int | None,
    cpus: int | None,
    gpus: float | None,
) -> tuple[int, int, float]:
    """The request of the options, completed from the one of this class that has run most often."""
    here = [g for g in groups if (g.implementation, g.device_class) == (implementation, device)]
    wanted = (nodes, cpus, gpus)
    fitting = [g for g in here if all(w is None or w == r for w, r in zip(wanted, g.request, strict=True))]
    usual = max(fitting or here, key=lambda group: group.completed).request
    return (
        usual[0] if nodes is None else nodes,
        usual[1] if cpus is None else cpus,
        usual[2] if gpus is None else gpus,
    )


def _refuse_unknown(
    store: SqliteHistory, app: str, groups: Sequence[Group], given: Mapping[str, float | str]
) -> None:
    """Refuse an input that no run of the app had there, and a word where all runs had numbers."""
    from dovetail.runtimes.base import MAX_KEYS

    values: dict[str, set[type]] = {}
    for name, device in dict.fromkeys((group.implementation, group.device_class) for group in groups):
        for aggregate in store.list_aggregates(app, name, device, MAX_KEYS):
            for key, value in aggregate.inputs:
                values.setdefault(key, set()).add(type(value))
    for key, value in given.items():
        if key not in values:
            expected = (
                suggest_closest(key, sorted(values)) if values else ", expected none: its runs have no inputs"
            )
            raise InputError(f"found {key!r}, which is no input of {app}{expected}", where="--input")
        if type(value) not in values[key]:
            kind = "a number" if float in values[key] else "a word"
            raise InputError(
                f"{key}: found {value!r}, expected {kind}, as in the runs of {app}", where="--input"
            )


def _prediction_form(query: Query, answer: Prediction | None) -> dict[str, Any]:
    return {
        **place_form(query.implementation, query.device, query.request),
        "expected": answer.expected if answer else None,
        "lower": answer.lower if answer else None,
        "upper": answer.upper if answer else None,
        "samples": answer.samples if answer else 0,
        "basis": answer.basis if answer else "nothing known",
    }


@opt.takes_options("history forget", history_app)
def forget(
    app: str | None,
    device: str | None,
    implementation: str | None,
    before: datetime | None,
    everything: bool,
    history: Path | None,
    as_json: bool,
) -> None:
    """Delete runs of an app, or with --all of every app."""
    if (app is None) != everything:
        raise InputError("expected either the name of an app or --all", where="forget")
    limit = None if before is None else before.timestamp()
    with open_history(history) as store:
        if app is None:
            if device is not None or implementation is not None:
                raise InputError("expected an app with --device or --implementation", where="forget")
            deleted = store.delete_runs(before=limit)
        else:
            kept = {
                (g.implementation, g.device_class)
                for g in matching_groups(store, app, device, implementation)
            }
            deleted = sum(store.delete_runs(app, *place, before=limit) for place in sorted(kept))
    print(json.dumps({"deleted": deleted}) if as_json else f"{wording.count_things(deleted, 'run')} deleted.")


@opt.takes_options("history export", history_app)
def export(file: str, app: str | None, form: str | None, history: Path | None, as_json: bool) -> None:
    """Write all runs, failed ones too, to a JSON Lines or CSV file."""
    from dovetail.history.exchange import csv_lines, json_lines

    form, count = _choose_form(file, form), 0
    with open_history(history) as store:
        if app is not None:
            matching_groups(store, app, None, None)
        names = {name for run in store.all_runs(app) for name in run.inputs} if form == "csv" else set()

        def count_runs() -> Iterator[Run]:
            nonlocal count
            for count, run in enumerate(store.all_runs(app), 1):  # noqa: B007 - printed at the end
                yield run

        lines = csv_lines(count_runs(), names) if form == "csv" else json_lines(count_runs())
        if file == "-":
            sys.stdout.writelines(lines)
        else:
            write_text(file, lines)
    if as_json:
        print(json.dumps({"runs": count, "file": file}), file=sys.stderr if file == "-" else sys.stdout)
    elif file != "-":
        print(f"{wording.count_things(count, 'run')} written to {file}.")


@opt.takes_options("history import", history_app)
def import_runs(file: str, form: str | None, history: Path | None, as_json: bool) -> None:
    """Add the runs of a JSON Lines or CSV file: all, or none if one is malformed; known ones are skipped.

    They are written in pieces, so that other Dovetails go on recording meanwhile.
    """
    from dovetail.history.exchange import read_csv, read_json_lines

    form = _choose_form(file, form)
    parse = read_csv if form == "csv" else read_json_lines
    where = "standard input" if file == "-" else file
    try:
        with open_rereadable(file) as lines:
            read = sum(1 for _ in parse(lines, where))  # a malformed line is found before anything is written
            lines.seek(0)
            with open_history(history, create=True) as store:
                new = store.record_in_pieces(parse(lines, where))
    except UnicodeDecodeError as error:
        raise InputError(f"found bytes that are no UTF-8 text ({error.reason})", where=where) from error
    if as_json:
        print(json.dumps({"read": read, "new": new, "known": read - new}))
    else:
        were = "was" if read - new == 1 else "were"
        known = f", {read - new:,} {were} known already" if read > new else ""
        print(f"{wording.count_things(new, 'run')} added{known}.")


@opt.takes_options("history vacuum", history_app)
def vacuum(history: Path | None, as_json: bool) -> None:
    """Give unused space in the database file back."""
    with open_history(history) as store:
        before, after = store.vacuum_file()
    if as_json:
        print(json.dumps({"bytes_before": before, "bytes_after": after}))
    else:
        print(f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now.")


def _choose_form(file: str, form: str | None) -> str:
    if form is None:
        return "csv" if file.lower().endswith(".csv") else "jsonl"
    if form not in ("jsonl", "csv"):
        raise InputError(f"found {form!r}, expected jsonl or csv", where="--format")
    return form


@contextmanager
def open_rereadable(file: str) -> Iterator[TextIO]:
    """The file's text, which can be read twice; what comes through a pipe is kept on disk for that."""
    with ExitStack() as stack:
        try:
            lines = (
                sys.stdin if file == "-" else stack.enter_context(open(file, encoding="utf-8", newline=""))
            )
            if not lines.seekable():
                kept = stack.enter_context(TemporaryFile("w+", encoding="utf-8", newline=""))
                copyfileobj(lines, kept)
                kept.seek(0)
                lines = kept
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=file) from error
        yield lines


# -- what other schedulers and workflow systems have measured counts, too ------------------------------


MOST_NAMED = 20
"""So many lines that were left out are named, each with its reason."""


def _record_new_runs(
    runs: Sequence[Run], history: Path | None, *, as_json: bool, rejected: int | None = None
) -> None:
    """Record what is new, and show how many; and how many lines were ``rejected``, where that is counted."""
    with open_history(history, create=True) as store:
        new = store.record_in_pieces(iter(runs))
    apps = len({run.app for run in runs})
    peaks = sum(run.usage is not None and run.usage.peak_memory is not None for run in runs)
    if as_json:
        known = len(runs) - new
        form = {"read": len(runs), "new": new, "known": known, "apps": apps, "peaks": peaks}
        print(json.dumps(form if rejected is None else {**form, "rejected": rejected}))
    else:
        added = f"{wording.count_things(new, 'run')} of {wording.count_things(apps, 'app')} added"
        left_out = f"; {wording.count_things(rejected, 'line')} left out" if rejected else ""
        print(f"{added}, {len(runs) - new:,} known already; {peaks:,} with their peak of memory{left_out}.")


@opt.takes_options("history import-slurm", history_app)
def import_slurm(file: str | None, since: str, lenient: bool, history: Path | None, as_json: bool) -> None:
    """Add the jobs that Slurm's accounting knows, so that the first of your own are predicted already.

    An app is a job name, its implementation gpu where GPUs were allotted, else cpu; a peak of memory is the
    largest MaxRSS of its steps. Completed jobs of yours alone; those that are known already are skipped. Jobs
    that no history can hold are left out, and named.
    """
    from dovetail.plugins import load_named
    from dovetail.workloads.slurm_history import COLUMNS, read_runs

    if file is None:
        where = "sacct"
        lines = load_named("dovetail.accounting", "slurm", "accounting of")(COLUMNS, since)
    else:
        where = "standard input" if file == "-" else file
        with open_rereadable(file) as text:
            lines = text.read().split("\n")
    found = read_runs(lines, where, lenient=lenient or file is None)
    for place, reason in found.rejected[:MOST_NAMED]:
        print_note(f"{place}: left out: {reason}")
    if len(found.rejected) > MOST_NAMED:
        print_note(f"{len(found.rejected) - MOST_NAMED:,} more lines are left out")
    _record_new_runs(found.runs, history, as_json=as_json, rejected=len(found.rejected))


@opt.takes_options("history import-nextflow", history_app)
def import_nextflow(files: list[Path], history: Path | None, as_json: bool) -> None:
    """Add the tasks of Nextflow's traces (-with-trace), by tabs or by commas.

    An app is a process; times, peaks of memory and the bytes read are taken of tasks that completed.
    """
    from dovetail.workloads.nextflow import read_nextflow, run_of

    _record_new_runs(
        [run_of(task) for file in files for task in read_nextflow(file)], history, as_json=as_json
    )


@opt.takes_options("history import-snakemake", history_app)
def import_snakemake(files: list[Path], app: str | None, history: Path | None, as_json: bool) -> None:
    """Add the runs of Snakemake's benchmark files (tables, JSON Lines): times and peaks of memory."""
    from dovetail.workloads.snakemake import benchmark_files, read_snakemake

    found = [run for path in files for file in benchmark_files(path) for run in read_snakemake(file, app)]
    _record_new_runs(found, history, as_json=as_json)
