"""Where results go: standard output, JSON, CSV, charts, a folder with everything."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail.errors import InputError
from dovetail.model import Result
from dovetail.report import Comparison, Report, tables
from dovetail.report.json_form import dumps

__all__ = ["show", "show_comparison", "write_folder", "write_text"]

JOBS_SHOWN = 40


def show(
    report: Report,
    *,
    as_json: bool,
    csv: Path | None,
    gantt: Path | None,
    folder: Path | None,
    jobs: bool = True,
) -> None:
    """Write what was asked for, then the tables (or the JSON) to standard output."""
    if csv is not None:
        _write_csv(report.result, csv)
    if gantt is not None:
        report.gantt(_writable(gantt))
    if folder is not None:
        write_folder([report.result], folder)
    if as_json:
        print(report.json())
        return
    console = tables.console()
    width = console.width
    if jobs and len(report.result.records):
        console.print(tables.job_table(report.result, width=width, limit=JOBS_SHOWN))
        console.print()
    if 0 < len(report.result.records) <= 400 and len(report.result.cluster.units) <= 40:
        print(report.gantt(width=width))
    console.print(tables.summary_table(report.result, width=width))
    if folder is not None:
        print(f"\nReport: {folder / 'index.html'}")


def show_comparison(
    comparison: Comparison, *, as_json: bool, folder: Path | None, html: Path | None = None
) -> None:
    """The comparison as a table, or as a list of JSON forms."""
    if folder is not None:
        write_folder(comparison.results, folder)
    if html is not None:
        comparison.html(_writable(html))
    if as_json:
        print(comparison.json())
        return
    console = tables.console()
    console.print(tables.comparison_table(comparison.results, width=console.width))
    if folder is not None:
        print(f"\nReport: {folder / 'index.html'}")


def _writable(path: Path) -> Path:
    if not path.parent.is_dir():
        raise InputError("the folder does not exist", where=str(path.parent))
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file whole; raises `InputError` where that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _write_csv(result: Result, path: Path) -> None:
    from dovetail.report.evalys_csv import to_evalys_csv

    write_text(path, to_evalys_csv(result))


def write_folder(results: Sequence[Result], folder: Path) -> None:
    """``index.html``, ``results.json``, and for each result a CSV and a Gantt chart."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    comparison = Comparison(results)
    if len(results) == 1:
        comparison[0].html(folder / "index.html")
        (folder / "results.json").write_text(comparison[0].json() + "\n", encoding="utf-8")
    else:
        comparison.html(folder / "index.html")
        (folder / "results.json").write_text(dumps(list(results)) + "\n", encoding="utf-8")
        comparison.plot(folder / "comparison.svg")
    for result in results:
        seed = "" if result.seed is None else f"-{result.seed}"
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in result.policy) + seed
        _write_csv(result, folder / f"{name}.csv")
        if len(result.records) <= 2000:
            Report(result).gantt(folder / f"{name}.svg")


def note(message: str) -> None:
    """A line for people, on standard error."""
    print(message, file=sys.stderr)
