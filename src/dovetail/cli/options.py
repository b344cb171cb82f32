"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dovetail.cli import completing
from dovetail.errors import InputError
from dovetail.files.units import DURATION, SIZE, bytes_given, seconds_given, seconds_of

if TYPE_CHECKING:  # arrays, models: who only reads the help waits for neither
    from dovetail.model import Cluster as Machine
    from dovetail.report.metrics import Cut

__all__ = [
    "App",
    "AppName",
    "AtWalltime",
    "Breakdown",
    "Breakdowns",
    "BusyWatts",
    "Cluster",
    "Clusters",
    "Compiled",
    "Cooldown",
    "Cpus",
    "CpusPerNode",
    "Csv",
    "DefaultWalltime",
    "Drop",
    "Each",
    "Feature",
    "Fields",
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
    "Partition",
    "Policy",
    "Quiet",
    "Rates",
    "Reference",
    "ReportFolder",
    "Seed",
    "Source",
    "Verbose",
    "Warmup",
    "cpus",
    "cut",
    "duration",
    "kinds",
    "machine",
    "machines",
    "or_journal",
    "reader_options",
    "size",
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


class Compilation(StrEnum):
    """Whether compiled code may stand in for the engine."""

    auto = "auto"
    off = "off"


class Breakdown(StrEnum):
    """What jobs can be told apart by."""

    user = "user"
    group = "group"
    queue = "queue"
    app = "app"
    implementation = "implementation"
    size = "size"


Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="FILE|RUN|published:NAME",
        help="Job file, list, trace, an earlier run or a published workload.",
        autocompletion=completing.sources,
    ),
]
Cluster: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE|SHORT", help="Cluster file, or e.g. 16x8cpu+1gpu. Default: this machine."),
]
Clusters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="FILE|SHORT",
        help="Cluster file, or e.g. 16x8cpu+1gpu; can be repeated. Default: the trace's, else this machine.",
    ),
]
Fields: TypeAlias = Annotated[
    int | None,
    typer.Option(min=18, metavar="N", help="Numbers on a line of SWF, where more than 18; these are read."),
]
Policy: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME[?OPTION=VALUE]", help="See 'dovetail policies'.", autocompletion=completing.policies
    ),
]
HistoryFile: TypeAlias = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="History database.", dir_okay=False)
]
Model: TypeAlias = Annotated[
    str,
    typer.Option(metavar="NAME", help="How run times are predicted.", autocompletion=completing.models),
]
AppName: TypeAlias = Annotated[
    str, typer.Argument(metavar="APP", help="Name of the app.", autocompletion=completing.apps)
]
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
Compiled: TypeAlias = Annotated[
    Compilation,
    typer.Option("--compiled", help="Compiled stand-in for large rigid workloads, the same schedule."),
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
    str | None, typer.Option(metavar="DURATION", help="Of jobs without a walltime ('actual' in simulation).")
]
JournalFile: TypeAlias = Annotated[
    Path | None, typer.Option("--journal", metavar="FILE", help="Write the journal, which can be replayed.")
]
App: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Name the app of plain commands.")]
Partition: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--partition", metavar="NAME=NODES", help="Nodes of a trace's partition, e.g. cpu=n[0-3]; repeatable."
    ),
]
Each: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--each",
        metavar="NAME=VALUES",
        help="Repeat commands for each value of {NAME}: lr=0.1,0.01 or seed=1..5; repeatable.",
    ),
]
Cpus: TypeAlias = Annotated[
    str | None,
    typer.Option("--cpus", "-c", metavar="N|all", help="CPUs that a plain command asks for. Default: 1."),
]
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
    str | None, typer.Option(metavar="DURATION|SHARE%", help="Leave the first jobs out of means, e.g. 10%.")
]
Cooldown: TypeAlias = Annotated[
    str | None, typer.Option(metavar="DURATION|SHARE%", help="The same at the end; default: as --warmup.")
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
Verbose: TypeAlias = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell more: decision times, idle resources, predictions.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def machine(cluster: str | None, partitions: Sequence[str] | None) -> Machine | None:
    """``--cluster`` with ``--partition``; ``None`` where no cluster is given. Raises `InputError`."""
    if cluster is None:
        if partitions:
            raise InputError(
                "found a partition, expected --cluster too, whose nodes it names", where="--partition"
            )
        return None
    from dovetail.model import Cluster as Machine
    from dovetail.workloads.partitions import with_partitions

    return with_partitions(Machine.parse(cluster), partitions or ())


def machines(clusters: Sequence[str] | None, partitions: Sequence[str] | None) -> list[Machine]:
    """Every ``--cluster``, each once, with ``--partition``. Raises `InputError`."""
    if not clusters:
        machine(None, partitions)
        return []
    twice = [text for i, text in enumerate(clusters) if text in clusters[:i]]
    if twice:
        raise InputError(f"found {twice[0]} twice, expected each cluster once", where="--cluster")
    from dovetail.model import Cluster as Machine
    from dovetail.workloads.partitions import with_partitions

    return [with_partitions(Machine.parse(text), partitions or ()) for text in clusters]


def cpus(text: str | None) -> int | Literal["all"] | None:
    """``--cpus``: a number, or ``all`` of the node. Raises `InputError`."""
    if text is None:
        return None
    if text == "all":
        return "all"
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not count:
        raise InputError(f"found {text!r}, expected a whole number of at least 1, or 'all'", where="--cpus")
    return count


def or_journal(source: str) -> str:
    """A workload as it was named; of an earlier run (its id or folder, ``last``) the journal."""
    from dovetail.running.folder import journal_of

    found = None if source.startswith(("published:", "synthetic:")) else journal_of(source)
    return source if found is None else str(found)


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


def duration(*names: str, help: str, above_zero: bool = False, **more: Any) -> Any:  # noqa: A002
    """An option that takes seconds, or a duration such as ``1h30m``; the command is given seconds."""

    def read(value: float | str) -> float:
        return seconds_given(value, names[0], above_zero=above_zero)

    return typer.Option(*names, metavar="DURATION", help=help, parser=read, **more)


def size(*names: str, help: str, least: int = 0) -> Any:  # noqa: A002
    """An option that takes bytes, or a size such as ``8GB``; the command is given bytes."""

    def read(value: float | str) -> int:
        found = bytes_given(value, names[0])
        if isinstance(value, str) and found < least:
            raise InputError(f"found {value!r}, expected at least {least} {SIZE}", where=names[0])
        return found

    return typer.Option(*names, metavar="SIZE", help=help, parser=read)


def walltime(text: str | None, *, simulated: bool) -> float | Literal["actual"] | None:
    """``--default-walltime``: seconds, or ``actual`` in simulation (its default)."""
    if text is None:
        return "actual" if simulated else None
    if text == "actual" and simulated:
        return "actual"
    try:
        found = seconds_of(text)
    except ValueError:
        found = 0.0
    if not found:
        expected = f"more than 0 {DURATION}" + (" or 'actual'" if simulated else "")
        raise InputError(f"found {text!r}, expected {expected}", where="--default-walltime")
    return found


def cut(warmup: str | None, cooldown: str | None) -> Cut | None:
    """``--warmup`` and ``--cooldown``; ``None`` where neither was given."""
    if warmup is None and cooldown is None:
        return None
    from dovetail.report.metrics import Cut

    return Cut.parse("0" if warmup is None else warmup, cooldown)


def reader_options(**options: Any) -> dict[str, Any]:
    """Options for workload readers, those that were given."""
    return {key: value for key, value in options.items() if value is not None and value != [] and value != ()}
