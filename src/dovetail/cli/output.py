"""Where results go: standard output, JSON, CSV, charts, a folder with everything."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.files.streams import print_note
from dovetail.files.writing import write_text
from dovetail.model import Note, Result
from dovetail.report import tables, wording
from dovetail.report.energy import Watts, use_of
from dovetail.report.options import ReportOptions
from dovetail.report.outcome import breakdown_table, fairness_table, job_table, outcome_notes, outcome_summary
from dovetail.report.report import Report, check_figure

JOBS_SHOWN = 40
ALL_JOBS, ALL_UNITS = 400, 40
"""Up to so many jobs, and units, the terminal shows a chart."""


def show_report(
    report: Report,
    *,
    as_json: bool,
    csv: Path | None,
    gantt: Path | None,
    folder: Path | None,
    options: ReportOptions | None = None,
    verbose: bool = False,
) -> None:
    """Write the files of the options, then the tables (or the JSON) to standard output."""
    result, options = report.result, options or ReportOptions()
    write_files(report, csv=csv, gantt=gantt, folder=folder, options=options)
    if as_json:
        from dovetail.report.folder import result_forms

        _print_json(result_forms([result], options)[0])
        return
    console = tables.make_console()
    width = console.width
    reference = options.reference(result)
    if len(result.records):
        console.print(job_table(result, limit=JOBS_SHOWN).text(width))
        console.print()
    if 0 < len(result.records) <= ALL_JOBS and len(result.cluster.units) <= ALL_UNITS:
        from dovetail.report.gantt.terminal import terminal_chart

        console.print(terminal_chart(result, width=width))
        console.print()
    console.print(outcome_summary(result, cut=options.cut, reference=reference, width=width, verbose=verbose))
    if options.watts is not None:
        console.print(_energy_line(result, options.watts), soft_wrap=True)
    for by in options.by:
        console.print()
        console.print(breakdown_table(result, by, cut=options.cut).text(width))
    if reference is not None:
        console.print()
        console.print(fairness_table(result, reference).text(width))
    if folder is not None:
        print(f"\nReport: {folder / 'index.html'}")


def _print_json(form: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    from dovetail.report.json_form import pieces_of

    for piece in pieces_of(form):
        sys.stdout.write(piece)
    print()


def write_files(
    report: Report,
    *,
    csv: Path | None,
    gantt: Path | None,
    folder: Path | None,
    options: ReportOptions | None,
) -> None:
    """Write the files of the options."""
    if csv is not None:
        # Imported late: most calls write no files, and NumPy alone takes a tenth of a second.
        from dovetail.report.evalys_csv import write_csv

        write_csv(report.result, csv)
    if gantt is not None:
        report.gantt(gantt)
    if folder is not None:
        from dovetail.report.folder import write_folder

        write_folder([report.result], folder, options or ReportOptions())


def _energy_line(result: Result, watts: Watts) -> str:
    use = use_of(result)
    share = use.busy / (use.busy + use.idle) if use.busy + use.idle else 0.0
    return (
        # Rounded for people; the JSON has all digits.
        f"Energy {use.energy_joules(watts):,.0f} J; processors busy for {use.busy:,.6g} s and idle for "
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
    summary: Path | None = None,
    options: ReportOptions | None = None,
    verbose: bool = False,
) -> None:
    """The comparison as tables, one for each load, or as a list of JSON forms."""
    from dovetail.report.folder import result_forms, write_folder

    options = options or ReportOptions()
    # In the order in which they were given: the first is what the reader wants on top.
    loads = list(dict.fromkeys(result.load for result in results))
    if folder is not None:
        write_folder(results, folder, options)
    if summary is not None:
        from dovetail.report.json_form import to_plain_json
        from dovetail.report.verdicts import summary_of

        found = to_plain_json(summary_of(results, options.cut, drift=options.drift))
        write_text(summary, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if html is not None:
        from dovetail.report.html import report_page

        write_text(html, report_page(results, options))
    if as_json:
        _print_json(result_forms(results, options))
        return
    for load in loads:
        _show_one_load([result for result in results if result.load == load], options, verbose)
    if folder is not None:
        print(f"Report: {folder / 'index.html'}" if len(loads) == 1 else f"Reports: {folder}")


def _show_one_load(results: Sequence[Result], options: ReportOptions, verbose: bool) -> None:
    from dovetail.report.compared import (
        compared_metrics,
        comparison_remarks,
        comparison_table,
        later_table,
        paired_tables,
        pairs_heading,
    )
    from dovetail.report.intervals import group_variants, policy_label

    console = tables.make_console()
    width = console.width
    one = results[0]
    machines = ", ".join(dict.fromkeys(wording.machine_name(result.cluster) for result in results))
    load = "" if one.load is None else f" at load {one.load:g}"
    console.print(Text(make_printable(f"{wording.workload_name(one)} on {machines}{load}"), style="dim"))
    console.print()
    names = compared_metrics(results, verbose=verbose)
    # One table of all, then the paired ones, which need several draws.
    whole = comparison_table(results, names=names, cut=options.cut, drift=options.drift)
    console.print(whole.text(width))
    console.print()
    pairs = paired_tables(results, cut=options.cut)
    if pairs:
        console.print(Text(make_printable(pairs_heading(results)), style="bold"))
    for table in pairs:
        console.print(table.text(width))
        console.print()
    if options.references:
        console.print(later_table(results, options).text(width))
        console.print()
    for by in options.by:
        for name, group in group_variants(results).items():
            console.print(Text(make_printable(f"{name}{wording.shown_draw(group)}"), style="bold"))
            console.print(breakdown_table(group[0], by, cut=options.cut).text(width))
            console.print()
    # Why a simulation took the slow way belongs to the verbose output.
    reasons = {
        policy_label(result): result.interpreted for result in results if verbose and result.interpreted
    }
    interpreted = [f"{name} was not compiled: {reason}" for name, reason in reasons.items()]
    remarks = comparison_remarks(results, cut=options.cut, drift=options.drift)
    _print_lines([*remarks, *_common_notes(results, options), *interpreted], console)


def _common_notes(results: Sequence[Result], options: ReportOptions) -> list[str]:
    """The notes of all results but those that `comparison_remarks` has, those of one variant alone with its
    name."""
    from dovetail.report.compared import TOP_NOTES
    from dovetail.report.intervals import group_variants

    # A note that all variants share is printed once, without their names.
    firsts = {
        name: outcome_notes(
            replace(group[0], notes=[n for n in group[0].notes if Note.code_of(n) not in TOP_NOTES]),
            options.cut,
        )
        for name, group in group_variants(results).items()
    }
    found: dict[str, list[str]] = {}
    for name, lines in firsts.items():
        for line in lines:
            found.setdefault(line, []).append(name)
    return [
        line if len(names) == len(firsts) else f"{wording.list_names(names, 3)}: {line}"
        for line, names in found.items()
    ]


def _print_lines(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(Text(make_printable(line), style="dim"))
    if lines:
        console.print()


def check_targets(*files: Path | None, gantt: Path | None = None, folder: Path | None = None) -> None:
    """That all this can be written, as far as can be seen before anything runs; raises `InputError`."""
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
        # The nearest folder that is there: the rest is made.
        there = next(part for part in (folder, *folder.absolute().parents) if part.exists())
        if not there.is_dir():
            raise InputError(f"cannot be made: found the file {there}, expected a folder", where=str(folder))


def this_command() -> str:
    """The command line that is being run, for the pages that it makes."""
    return shlex.join(["dovetail", *sys.argv[1:]])


def note_rejected(result: Result, source: str) -> bool:
    """Whether jobs were rejected; if so, a line for people about how many, and why the first."""
    if not result.rejected:
        return False
    first = result.rejected[0]
    jobs = wording.count_things(len(result.rejected), "job")
    print_note(f"dovetail: {source}: {jobs} rejected, the first is {first.id}: {first.reason}")
    return True
