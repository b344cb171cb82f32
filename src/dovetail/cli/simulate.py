"""``dovetail simulate``: what would happen, in virtual time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from dovetail import api
from dovetail.cli import options as opt
from dovetail.cli.output import note, show, write_text
from dovetail.runtimes.registry import DEFAULT_MODEL

__all__ = ["simulate"]


def simulate(
    file: Annotated[
        str, typer.Argument(metavar="FILE|published:NAME", help="Job file, trace or published workload.")
    ],
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    seed: opt.Seed = None,
    knowledge: Annotated[opt.Knowledge | None, typer.Option(help="What policies know of run times.")] = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    learn: Annotated[bool, typer.Option("--learn", help="Write what ends into the history.")] = False,
    overrun: Annotated[
        opt.Overrun, typer.Option(help="At its walltime a job is killed, or runs on.")
    ] = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    rates: Annotated[str | None, typer.Option(metavar="NAME", help="Rate model of sharing.")] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="Of a trace that counts processors.")
    ] = None,
    on: opt.On = None,
    lenient: opt.Lenient = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 if a job was rejected.")] = False,
    as_json: opt.Json = False,
    csv: opt.Csv = None,
    gantt: opt.Gantt = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto (Chrome) trace.")
    ] = None,
    report: opt.ReportFolder = None,
    journal: opt.JournalFile = None,
    quiet: opt.Quiet = False,
) -> int:
    """Simulate a workload under a policy, on any cluster, in virtual time."""
    with JobProgress(hidden=quiet or as_json) as progress:
        found = api.simulate(
            file,
            cluster=cluster,
            policy=policy,
            seed=seed,
            knowledge=None if knowledge is None else knowledge.value,
            model=model,
            history=history,
            learn=learn,
            overrun=overrun.value,
            default_walltime=_walltime(default_walltime),
            rates=rates,
            journal=journal,
            lenient=lenient,
            on=opt.kinds(on),
            progress=progress.tell,
            **opt.reader_options(cpus_per_node=cpus_per_node),
        )
    if perfetto is not None:
        from dovetail.report.perfetto import to_perfetto

        write_text(perfetto, to_perfetto(found.result))
    show(found, as_json=as_json, csv=csv, gantt=gantt, folder=report)
    if strict and found.result.rejected:
        first = found.result.rejected[0]
        note(f"dovetail: {len(found.result.rejected)} jobs rejected, the first is {first.id}: {first.reason}")
        return 2
    return 0


def _walltime(text: str | None) -> Any:
    return opt.walltime(text, simulated=True)


class JobProgress:
    """A progress bar over ended jobs, on a terminal only, after a second's work."""

    def __init__(self, *, hidden: bool = False, label: str = "simulating") -> None:
        console = Console(stderr=True)
        self._hidden = hidden or not console.is_terminal
        self._label = label
        self._bar = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: Any = None
        self._shown = 0

    def __enter__(self) -> JobProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def tell(self, done: int, total: int) -> None:
        """So many of all jobs have ended."""
        if self._hidden or done - self._shown < max(1, total // 200):
            return
        self._shown = done
        if self._task is None:
            self._task = self._bar.add_task(self._label, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)
        sys.stderr.flush()
