"""A folder with everything about results: page, JSON, CSV, charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dovetail.files.writing import make_folder, write_text
from dovetail.model import Result
from dovetail.report.evalys_csv import write_csv
from dovetail.report.intervals import policy_label
from dovetail.report.json_form import form_of, pieces_of
from dovetail.report.metrics import median_lifetime_decreases
from dovetail.report.options import ReportOptions


def write_folder(results: Sequence[Result], folder: Path, options: ReportOptions | None = None) -> None:
    """``index.html``, ``results.json``; for each result a CSV; for each variant (its first draw) charts.

    Of replicates of a trace only the trace as it is has a CSV; the JSON has all. The charts are the Gantt
    chart, and the use of the cluster and the queue over time. Results of several loads go to a folder for
    each, ``load-X``, beside a chart over the load. Raises `InputError` where something cannot be written.
    """
    from dovetail.report import drawing, plots

    options = options or ReportOptions()
    loads = list(dict.fromkeys(result.load for result in results))
    if len(loads) <= 1:
        _write_one_load(results, folder, options)
        return
    make_folder(folder)
    drawing.save_drawing(plots.over_load(results, cut=options.cut), folder / "loads.svg")
    write_text(folder / "results.json", chain(pieces_of(result_forms(results, options)), "\n"))
    for load in loads:
        chosen = [result for result in results if result.load == load]
        _write_one_load(chosen, folder / f"load-{load or 0:.12g}", options)


def _write_one_load(results: Sequence[Result], folder: Path, options: ReportOptions) -> None:
    from dovetail.report import drawing, html, plots
    from dovetail.report.gantt import figure

    make_folder(folder)
    one = len(results) == 1
    write_text(folder / "index.html", html.report_page(results, options))
    made = result_forms(results, options)
    write_text(folder / "results.json", chain(pieces_of(made[0] if one else made), "\n"))
    if not one:
        drawn = plots.draw_comparison(results, cut=options.cut, drift=options.drift)
        drawing.save_drawing(drawn, folder / "comparison.svg")
    charted: set[str] = set()
    for result, name in zip(results, file_names(results), strict=True):
        if result.replicate.number and not result.replicate.fresh and result.seed is None:
            continue
        write_csv(result, folder / f"{name}.csv")
        what = f"{policy_label(result)} {result.cluster.label}"
        if what not in charted and result.records:
            charted.add(what)
            drawing.save_drawing(figure.draw_gantt(result), folder / f"{name}.svg")
            over_time = folder / ("timeline.svg" if one else f"{name}-timeline.svg")
            drawing.save_drawing(plots.draw_timeline([result]), over_time)


def result_forms(results: Sequence[Result], options: ReportOptions) -> list[dict[str, Any]]:
    """The JSON forms of the results, with all that the options want.

    Of jobs that communicate also by how much they live shorter than under the first policy.
    """
    found = [form_of(result, options) for result in results]
    if len(found) > 1:
        for form, decrease in zip(found, median_lifetime_decreases(results), strict=True):
            if decrease is not None and form["metrics"] is not None:
                form["metrics"]["median_lifetime_decrease"] = decrease
    return found


def file_names(results: Sequence[Result]) -> list[str]:
    """For each result a name that a file can have: the policy with its options, the seed, the cluster.

    The cluster is named where there are several. Names that would be the same after what files cannot be
    called has gone are numbered.
    """
    several = len({result.cluster.label for result in results}) > 1
    return list(_distinct_names(_file_name(result, several) for result in results))


def _file_name(result: Result, several_clusters: bool) -> str:
    words = [policy_label(result)]
    words += [result.cluster.label.rpartition("/")[2]] if several_clusters else []
    words += [] if result.seed is None else [str(result.seed)]
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in "-".join(words))


def _distinct_names(names: Iterator[str]) -> Iterator[str]:
    used = {"index", "results", "comparison", "timeline"}
    for name in names:
        number, free = 1, name
        while free in used:
            number += 1
            free = f"{name}_{number}"
        used.add(free)
        yield free
