"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from dovetail.errors import InputError
from dovetail.report.metrics import Cut

__all__ = [
    "App",
    "AtWalltime",
    "Breakdown",
    "Breakdowns",
    "BusyWatts",
    "Cluster",
    "Cooldown",
    "CpusPerNode",
    "Csv",
    "DefaultWalltime",
    "Drop",
    "Feature",
    "Gantt",
    "HistoryFile",
    "IdleWatts",
    "JournalFile",
    "Json",
    "Knowledge",
    "Known",
    "Lenient",
    "Model",
    "On",
    "Overrun",
    "Policy",
    "Quiet",
    "Rates",
    "Reference",
    "ReportFolder",
    "Seed",
    "Source",
    "Warmup",
    "cut",
    "kinds",
    "reader_options",
    "walltime",
]


class Overrun(StrEnum):
    """What happens to a job at its walltime."""

    kill = "kill"
    run = "run"


class Knowledge(StrEnum):
    """What policies know of run times in a simulation."""

    perfect = "perfect"
    learned = "learned"


class Breakdown(StrEnum):
    """What jobs can be told apart by."""

    user = "user"
    group = "group"
    queue = "queue"
    app = "app"
    implementation = "implementation"
    size = "size"


Source: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE|published:NAME", help="Job file, trace or published workload.")
]
Cluster: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE|SHORT", help="Cluster file, or e.g. 16x8cpu+1gpu. Default: this machine."),
]
Policy: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME[?OPTION=VALUE]", help="See 'dovetail policies'.")
]
HistoryFile: TypeAlias = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="History database.", dir_okay=False)
]
Model: TypeAlias = Annotated[str, typer.Option(metavar="NAME", help="How run times are predicted.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON alone on standard output.")]
Csv: TypeAlias = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write one line a job (evalys columns).")
]
Gantt: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the schedule to an SVG, PNG or PDF file.")
]
ReportFolder: TypeAlias = Annotated[
    Path | None,
    typer.Option("--report", metavar="FOLDER", help="Write an HTML page, charts, CSV and JSON there."),
]
Seed: TypeAlias = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Draws, or shuffles, jobs submitted together.")
]
On: TypeAlias = Annotated[
    str | None, typer.Option(metavar="KINDS", help="Devices on which plain commands may run, e.g. cpu,gpu.")
]
Lenient: TypeAlias = Annotated[
    bool, typer.Option("--lenient", help="Skip and count malformed lines of a trace.")
]
Known: TypeAlias = Annotated[
    Knowledge | None, typer.Option("--knowledge", help="What policies know of run times.")
]
AtWalltime: TypeAlias = Annotated[
    Overrun, typer.Option("--overrun", help="At its walltime a job is killed, or runs on.")
]
Rates: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Rate model of sharing.")]
CpusPerNode: TypeAlias = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Of a trace that counts processors.")
]
DefaultWalltime: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SECONDS", help="Of jobs without a walltime ('actual' in simulation).")
]
JournalFile: TypeAlias = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="Write the journal, which can be replayed.")
]
App: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Name the app of plain commands.")]
Drop: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="FEATURE", help="Leave a feature of plain commands out.")
]
Feature: TypeAlias = Annotated[
    list[str] | None, typer.Option("--add", metavar="NAME=VALUE", help="Add a feature to plain commands.")
]
Breakdowns: TypeAlias = Annotated[
    list[Breakdown] | None,
    typer.Option(
        "--by",
        metavar="FIELD",
        help="Break the outcome down by user, group, queue, app, implementation or size; can be repeated.",
    ),
]
Warmup: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SECONDS|SHARE%", help="Leave the first jobs out of means, e.g. 10%.")
]
Cooldown: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SECONDS|SHARE%", help="The same at the end; default: as --warmup.")
]
Reference: TypeAlias = Annotated[
    str | None, typer.Option(metavar="POLICY", help="Tell which jobs end later than under this policy.")
]
IdleWatts: TypeAlias = Annotated[
    float | None, typer.Option(metavar="W", help="Of an idle processor, for the energy.")
]
BusyWatts: TypeAlias = Annotated[
    float | None, typer.Option(metavar="W", help="Of a busy processor, for the energy.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def kinds(on: str | None) -> list[str]:
    """``cpu,gpu`` as a list; raises `InputError` for an empty name."""
    if on is None:
        return []
    found = [kind.strip() for kind in on.split(",")]
    if not all(found):
        raise InputError(
            f"found {on!r}, expected kinds of device joined by commas, e.g. cpu,gpu", where="--on"
        )
    return found


def walltime(text: str | None, *, simulated: bool) -> float | Literal["actual"] | None:
    """``--default-walltime``: seconds, or ``actual`` in simulation (its default)."""
    if text is None:
        return "actual" if simulated else None
    if text == "actual" and simulated:
        return "actual"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        expected = "a number of seconds above 0" + (" or 'actual'" if simulated else "")
        raise InputError(f"found {text!r}, expected {expected}", where="--default-walltime")
    return seconds


def cut(warmup: str | None, cooldown: str | None) -> Cut | None:
    """``--warmup`` and ``--cooldown``; ``None`` where neither was given."""
    if warmup is None and cooldown is None:
        return None
    return Cut.parse("0" if warmup is None else warmup, cooldown)


def reader_options(**options: Any) -> dict[str, Any]:
    """Options for workload readers, those that were given."""
    return {key: value for key, value in options.items() if value is not None and value != [] and value != ()}
