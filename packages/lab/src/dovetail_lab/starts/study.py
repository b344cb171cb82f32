"""When jobs start: ``dovetail reproduce starts TRACE…``, intervals and errors beside plans and baselines."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail.cli import options as opt
from dovetail.files.writing import write_text
from dovetail.report.progress import Bar
from dovetail_lab.starts.replay import BASELINES, Replayed, replay_world
from dovetail_lab.starts.world import make_world
from dovetail_lab.study import Out, Study, Table, prepare_folder, publish_study, write_study

COLUMNS = ("trace", "job", "asked_at", "lower", "median", "upper", "actual", "plan")
"""Of the CSV: seconds; ``asked_at`` by the trace's clock, the others from then on."""
SHARES = 100


def as_dict(found: Replayed) -> dict[str, Any]:
    """A trace in the JSON form; errors are seconds, ``null`` where no job waited."""
    return {
        "trace": found.trace,
        "forecasts": len(found.forecasts),
        "coverage": found.interval_coverage(),
        "coverage_by_quarter": found.coverage_by_quarter(),
        "coverage_of_roll_outs": found.raw_coverage(),
        "median_abs_error": found.median_abs_error(),
        "cpu_seconds": found.cpu_seconds,
    }


def _make_study(found: Sequence[Replayed]) -> Study:
    lines = []
    ratios = []
    for each in found:
        errors = each.median_abs_error()
        ours, plan = errors["ours"], errors["plan"]
        if ours and plan:
            ratios.append(ours / plan)
        quarters = " ".join(_percent_text(part) for part in each.coverage_by_quarter())
        lines.append(
            (
                Path(each.trace).name,
                f"{len(each.forecasts):,}",
                _percent_text(each.interval_coverage()),
                quarters,
                _percent_text(each.raw_coverage()),
                _seconds_text(ours),
                *(_seconds_text(errors[name]) for name in BASELINES),
                f"{1000 * each.cpu_seconds / max(len(each.forecasts), 1):.0f}",
            )
        )
    note = (
        "Coverage: intervals of 90 % that held, %; raw: before the correction. Errors: the median, seconds."
    )
    if ratios:
        # A geometric mean, as ratios of 2 and 1/2 should cancel out.
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        note += f" Ours over the plan's, geometric mean: {mean:.2f}."
    columns = (
        *("trace", "forecasts", "held", "by quarter", "raw", "ours", "plan"),
        *("last wait", "last hour", "regression", "CPU ms"),
    )
    return Study(
        "starts",
        "When jobs start",
        "Each forecast rests on what was known when its job was submitted; who starts at once has none.",
        (Table("Forecasts", columns, tuple(lines), note=note),),
        numbers={"traces": [as_dict(each) for each in found]},
    )


def _percent_text(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _seconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def command(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE…", help="Traces with run times, also .gz.")],
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="Policy of the world: easy or fcfs.")
    ] = "easy",
    every: Annotated[
        int, typer.Option("--every", metavar="N", min=1, help="Show each N-th job that waits.")
    ] = 10,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="FILE|SHORT", help="Machine. Default: the one that a trace names."),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a line for each forecast there.")
    ] = None,
    as_json: opt.Json = False,
    out: Out = None,
    quiet: opt.Quiet = False,
) -> None:
    """When jobs start: intervals that hold, on traces.

    A trace runs under the policy with its true run times, cut at walltimes. A job without a walltime is
    planned with a day and runs to its end.
    """
    out = prepare_folder(out)
    lines = StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS)
    found: list[Replayed] = []
    with Bar("starts", hidden=quiet or as_json) as bar:
        for place, path in enumerate(traces):
            world = make_world(path, policy, cluster)

            def show(share: float, before: int = place) -> None:
                bar.tell(int(SHARES * (before + share)), SHARES * len(traces))

            found.append(replay_world(world, every, show))
            for one in found[-1].forecasts:
                seconds = (one.lower, one.median, one.upper, one.actual, one.others["plan"])
                writer.writerow((one.trace, one.job, *(f"{value:.3f}" for value in (one.asked_at, *seconds))))
    if table is not None:
        write_text(table, lines.getvalue())
    if as_json:
        if out is not None:
            write_study(_make_study(found), out)
        print(json.dumps([as_dict(each) for each in found], indent=1))
    else:
        publish_study(_make_study(found), as_json=False, out=out)
