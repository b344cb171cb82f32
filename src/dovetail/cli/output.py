"""Where results go: standard output, JSON, CSV, charts, a folder with everything."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from dovetail.errors import InputError
from dovetail.model import Result
from dovetail.report import Comparison, Cut, Report, label, tables, wording
from dovetail.report.energy import Watts, energy_metrics, use_of
from dovetail.report.intervals import by_policy, comparable
from dovetail.report.json_form import text_of, to_json
from dovetail.report.report import check_figure
from dovetail.workloads.textfile import write_text

__all__ = [
    "Asked",
    "check_targets",
    "file_names",
    "make_folder",
    "note",
    "note_rejected",
    "show",
    "show_comparison",
    "watts_of",
    "write_folder",
    "write_text",
]

JOBS_SHOWN = 40
ALL_JOBS, ALL_UNITS = 400, 40
"""Up to so many jobs, and units, the terminal shows a chart."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of every result: a cut of warm-up and cool-down, break-downs, the energy."""

    cut: Cut | None = None
    by: Sequence[str] = ()
    watts: Watts | None = None


def show(
    report: Report,
    *,
    as_json: bool,
    csv: Path | None,
    gantt: Path | None,
    folder: Path | None,
    asked: Asked | None = None,
    reference: Result | None = None,
) -> None:
    """Write what was asked for, then the tables (or the JSON) to standard output."""
    result, asked = report.result, asked or Asked()
    if csv is not None:
        _write_csv(result, csv)
    if gantt is not None:
        report.gantt(gantt)
    if folder is not None:
        write_folder([result], folder, asked, [reference])
    if as_json:
        form = to_json(result, cut=asked.cut, reference=reference, by=asked.by)
        form["metrics"] |= energy_metrics(result, asked.watts)
        print(text_of(form))
        return
    console = tables.console()
    width = console.width
    if len(result.records):
        console.print(tables.job_table(result, width=width, limit=JOBS_SHOWN))
        console.print()
    if 0 < len(result.records) <= ALL_JOBS and len(result.cluster.units) <= ALL_UNITS:
        from dovetail.report import gantt as charts  # with what it needs, it takes its time

        console.print(charts.terminal(result, width=width))
        console.print()
    console.print(tables.summary_table(result, cut=asked.cut, reference=reference, width=width))
    if asked.watts is not None:
        console.print(_energy(result, asked.watts), soft_wrap=True)
    for by in asked.by:
        console.print()
        console.print(tables.breakdown_table(result, by, cut=asked.cut, width=width))
    if reference is not None:
        console.print()
        console.print(tables.fairness_table(result, reference, width=width))
    if folder is not None:
        print(f"\nReport: {folder / 'index.html'}")


def _energy(result: Result, watts: Watts) -> str:
    use = use_of(result)
    share = use.busy / (use.busy + use.idle) if use.busy + use.idle else 0.0
    return (
        f"Energy {use.energy(watts):,.0f} J; processors busy for {use.busy:,.6g} s and idle for "
        f"{use.idle:,.6g} s, summed ({share:.1%} busy)"
    )


def watts_of(idle: float | None, busy: float | None) -> Watts | None:
    """``--idle-watts`` and ``--busy-watts``, which go together; raises `InputError`."""
    given = {"--idle-watts": idle, "--busy-watts": busy}
    for name, value in given.items():
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"found {value:g}, expected a number of at least 0", where=name)
    if idle is None and busy is None:
        return None
    if idle is None or busy is None:
        missing = "--idle-watts" if idle is None else "--busy-watts"
        raise InputError("is missing, expected both idle and busy watts, or neither", where=missing)
    return Watts(idle, busy)


def show_comparison(
    results: Sequence[Result],
    *,
    as_json: bool,
    folder: Path | None,
    html: Path | None = None,
    asked: Asked | None = None,
    references: Sequence[Result | None] = (),
) -> None:
    """The comparison as tables, one for each load, or as a list of JSON forms.

    ``references`` has, for each result, that of the reference policy on the same jobs, or is empty.
    """
    asked = asked or Asked()
    references = references or [None] * len(results)
    loads = _by_load(results)
    if folder is not None:
        _write_comparison(results, folder, asked, references)
    if html is not None:
        write_text(html, Comparison(results).html(cut=asked.cut))
    if as_json:
        print(text_of(_forms(results, asked, references)))
        return
    for _, chosen in loads:
        _show_one_load([results[i] for i in chosen], [references[i] for i in chosen], asked)
    if folder is not None:
        print(f"Report: {folder / 'index.html'}" if len(loads) == 1 else f"Reports: {folder}")


def _show_one_load(results: Sequence[Result], references: Sequence[Result | None], asked: Asked) -> None:
    console = tables.console()
    width = console.width
    one = results[0]
    load = "" if one.load is None else f" at load {one.load:g}"
    console.print(Text(f"{wording.workload(one)} on {wording.machine(one.cluster)}{load}", style="dim"))
    console.print()
    console.print(tables.comparison_table(results, cut=asked.cut, width=width))
    console.print()
    groups = by_policy(results)
    if len(groups) > 1 and min(map(len, groups.values())) > 1:
        shown = [n for n in tables.compared_metrics(results) if n in ("makespan", "mean_wait")]
        for metric in shown:
            if not comparable(list(groups.values()), metric, asked.cut):
                continue
            console.print(tables.paired_table(results, metric=metric, cut=asked.cut, width=width))
            console.print()
    known = [reference for reference in references if reference is not None]
    if known:
        console.print(tables.later_table(results, known, width=width))
        console.print()
    for by in asked.by:
        for name, group in groups.items():
            seed = "" if group[0].seed is None or len(group) == 1 else f", seed {group[0].seed}"
            print(f"{name}{seed}")
            console.print(tables.breakdown_table(group[0], by, cut=asked.cut, width=width))
            console.print()
    remarks = tables.notes(one, asked.cut)
    for remark in remarks:
        console.print(Text(remark, style="dim"))
    if remarks:
        console.print()


def _by_load(results: Sequence[Result]) -> list[tuple[float | None, list[int]]]:
    """Loads in order of appearance, each with the places of its results."""
    found: dict[float | None, list[int]] = {}
    for i, result in enumerate(results):
        found.setdefault(result.load, []).append(i)
    return list(found.items())


def _forms(
    results: Sequence[Result], asked: Asked, references: Sequence[Result | None]
) -> list[dict[str, object]]:
    return [
        to_json(result, cut=asked.cut, reference=reference, by=asked.by)
        for result, reference in zip(results, references, strict=True)
    ]


def check_targets(*files: Path | None, gantt: Path | None = None, folder: Path | None = None) -> None:
    """That all this can be written, as far as can be told before anything runs; raises `InputError`."""
    if gantt is not None:
        check_figure(gantt)
    for path in (*files, gantt):
        if path is None:
            continue
        if path.is_dir():
            raise InputError("cannot be written: found a folder, expected a file", where=str(path))
        if not path.parent.is_dir():
            raise InputError("cannot be written: its folder is not there, expected one", where=str(path))
    if folder is not None:
        there = next(part for part in (folder, *folder.absolute().parents) if part.exists())
        if not there.is_dir():
            raise InputError(f"cannot be made: found the file {there}, expected a folder", where=str(folder))


def _write_csv(result: Result, path: Path) -> None:
    from dovetail.report.evalys_csv import to_evalys_csv

    write_text(path, to_evalys_csv(result))


def write_folder(
    results: Sequence[Result],
    folder: Path,
    asked: Asked | None = None,
    references: Sequence[Result | None] = (),
) -> None:
    """``index.html``, ``results.json``; for each result a CSV; for each policy (its first seed) charts.

    The charts are the Gantt chart, and the use of the cluster and the queue over time. Raises
    `InputError` where something cannot be written.
    """
    from dovetail.report import plots

    asked = asked or Asked()
    make_folder(folder)
    comparison = Comparison(results)
    one = len(results) == 1
    page = comparison[0].html(cut=asked.cut) if one else comparison.html(cut=asked.cut)
    write_text(folder / "index.html", page)
    forms = _forms(results, asked, references or [None] * len(results))
    write_text(folder / "results.json", text_of(forms[0] if one else forms) + "\n")
    if not one:
        plots.save_comparison(results, folder / "comparison.svg", cut=asked.cut)
    charted: set[str] = set()
    for result, name in zip(results, file_names(results), strict=True):
        _write_csv(result, folder / f"{name}.csv")
        if label(result) not in charted and result.records:
            charted.add(label(result))
            Report(result).gantt(folder / f"{name}.svg")
            plots.save_timeline(result, folder / ("timeline.svg" if one else f"{name}-timeline.svg"))


def _write_comparison(
    results: Sequence[Result], folder: Path, asked: Asked, references: Sequence[Result | None]
) -> None:
    """`write_folder`, or, of several loads, a folder for each and a chart over the load."""
    loads = _by_load(results)
    if len(loads) == 1:
        write_folder(results, folder, asked, references)
        return
    from dovetail.report import plots

    make_folder(folder)
    plots.save_over_load(results, folder / "loads.svg", cut=asked.cut)
    write_text(folder / "results.json", text_of(_forms(results, asked, references)) + "\n")
    for load, chosen in loads:
        inner = folder / f"load-{load:.12g}"
        write_folder([results[i] for i in chosen], inner, asked, [references[i] for i in chosen])


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; raises `InputError` where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder)) from error


def file_names(results: Sequence[Result]) -> list[str]:
    """For each result a name that a file can have: the policy with its options, and the seed.

    Names that would be the same after what files cannot be called has gone are numbered.
    """
    return list(_distinct(_file_name(result) for result in results))


def _file_name(result: Result) -> str:
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in label(result))
    return plain + ("" if result.seed is None else f"-{result.seed}")


def _distinct(names: Iterator[str]) -> Iterator[str]:
    used = {"index", "results", "comparison", "timeline"}
    for name in names:
        number, free = 1, name
        while free in used:
            number += 1
            free = f"{name}_{number}"
        used.add(free)
        yield free


def note(message: str) -> None:
    """A line for people, on standard error."""
    print(message, file=sys.stderr)


def note_rejected(result: Result, source: str) -> bool:
    """Whether jobs were rejected; if so, a line for people about how many, and why the first."""
    if not result.rejected:
        return False
    first, count = result.rejected[0], len(result.rejected)
    jobs = "1 job" if count == 1 else f"{count} jobs"
    note(f"dovetail: {source}: {jobs} rejected, the first is {first.id}: {first.reason}")
    return True
