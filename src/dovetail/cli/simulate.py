"""``dovetail simulate``: what would happen, in virtual time."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from dovetail import api
from dovetail.cli import options as opt
from dovetail.cli.output import Asked, check_targets, note, note_rejected, show, watts_of, write_text
from dovetail.model import Result
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import DEFAULT_MODEL

__all__ = ["JobProgress", "simulate"]

PATIENCE = 1.0
"""Seconds of work before a progress bar is shown."""


def simulate(
    file: opt.Source,
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    seed: opt.Seed = None,
    knowledge: opt.Known = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    learn: Annotated[bool, typer.Option("--learn", help="Write what ends into the history.")] = False,
    overrun: opt.AtWalltime = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    rates: opt.Rates = None,
    cpus_per_node: opt.CpusPerNode = None,
    on: opt.On = None,
    lenient: opt.Lenient = False,
    by: opt.Breakdowns = None,
    warmup: opt.Warmup = None,
    cooldown: opt.Cooldown = None,
    reference: opt.Reference = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 if a job was rejected.")] = False,
    as_json: opt.Json = False,
    csv: opt.Csv = None,
    gantt: opt.Gantt = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto (Chrome) trace.")
    ] = None,
    report: opt.ReportFolder = None,
    journal: opt.JournalFile = None,
    idle_watts: opt.IdleWatts = None,
    busy_watts: opt.BusyWatts = None,
    quiet: opt.Quiet = False,
) -> int:
    """Simulate a workload under a policy, on any cluster, in virtual time."""
    if history is not None and not learn and not history.exists():
        note(f"dovetail: history {history}: no such file; nothing is known from it")
    watts = watts_of(idle_watts, busy_watts)
    check_targets(csv, perfetto, gantt=gantt, folder=report)
    asked = Asked(opt.cut(warmup, cooldown), [name.value for name in by or ()], watts)
    if reference is not None:
        load_policy(reference)  # a wrong name is said before anything runs
    common: dict[str, Any] = {
        "cluster": cluster,
        "seed": seed,
        "knowledge": None if knowledge is None else knowledge.value,
        "model": model,
        "history": history,
        "overrun": overrun.value,
        "default_walltime": opt.walltime(default_walltime, simulated=True),
        "rates": rates,
        "lenient": lenient,
        "on": opt.kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node),
    }
    other: Result | None = None
    if reference is not None:  # before the simulation itself, which may add to the history
        with JobProgress(hidden=quiet or as_json, label=f"simulating {reference}") as progress:
            other = api.simulate_result(file, policy=reference, progress=progress.tell, **common)
    with JobProgress(hidden=quiet or as_json) as progress:
        found = api.simulate(
            file, policy=policy, learn=learn, journal=journal, progress=progress.tell, **common
        )
    if perfetto is not None:
        from dovetail.report.perfetto import to_perfetto

        write_text(perfetto, to_perfetto(found.result))
    show(found, as_json=as_json, csv=csv, gantt=gantt, folder=report, asked=asked, reference=other)
    return 2 if strict and note_rejected(found.result, file) else 0


class JobProgress:
    """A progress bar over ended jobs with the estimated end, on a terminal only, after a second's work."""

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
        self._since = time.monotonic()

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
        if self._task is None and time.monotonic() - self._since < PATIENCE:
            return
        if self._task is None:
            self._task = self._bar.add_task(self._label, total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)
        sys.stderr.flush()
