"""``dovetail run``: jobs on this machine, for real."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dovetail import api
from dovetail.cli import options as opt
from dovetail.cli.live_progress import LiveProgress
from dovetail.cli.output import Asked, check_targets, note, note_rejected, show, watts_of
from dovetail.engine.live import LiveRun
from dovetail.errors import InputError
from dovetail.executors.local import LocalExecutor
from dovetail.model import State, Workload
from dovetail.runtimes.registry import DEFAULT_MODEL
from dovetail.workloads.commands import command_workload

__all__ = ["run"]


def run(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Job file, or a list of commands, one a line.")
    ] = None,
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    on: opt.On = None,
    app: opt.App = None,
    drop: opt.Drop = None,
    add: opt.Feature = None,
    seed: opt.Seed = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    overrun: opt.AtWalltime = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds between TERM and KILL.")] = 5.0,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Outputs and journal; must not hold a run yet.")
    ] = None,
    as_json: opt.Json = False,
    csv: opt.Csv = None,
    gantt: opt.Gantt = None,
    report: opt.ReportFolder = None,
    idle_watts: opt.IdleWatts = None,
    busy_watts: opt.BusyWatts = None,
    quiet: opt.Quiet = False,
) -> int:
    """Run jobs on this machine's CPUs and GPUs, and learn from what happens.

    A single command goes after two dashes: dovetail run --on cpu,gpu -- python train.py --device {device}
    """
    asked = Asked(watts=watts_of(idle_watts, busy_watts))
    check_targets(csv, gantt=gantt, folder=report)
    workload = _workload(file, list(context.obj or []), opt.kinds(on), app, drop or (), add or ())
    with LiveProgress(hidden=quiet) as progress:
        folder: list[Path] = []

        def started(live: LiveRun, executor: LocalExecutor) -> None:
            folder.append(executor.run_dir)

        _recover(quiet)
        options: dict[str, Any] = {}
        if not isinstance(workload, Workload):
            options = opt.reader_options(on=opt.kinds(on), app=app, drop=drop, add=add)
        found = api.run(
            workload,
            cluster=cluster,
            policy=policy,
            history=history,
            model=model,
            seed=seed,
            overrun=overrun.value,
            default_walltime=_seconds(default_walltime),
            run_dir=run_dir,
            grace=grace,
            changed=progress.changed,
            started=started,
            **options,
        )
    show(found, as_json=as_json, csv=csv, gantt=gantt, folder=report, asked=asked)
    records = found.result.records
    failed = [r for r in records if r.state in (State.FAILED, State.TIMEOUT, State.NODE_FAIL)]
    for record in failed[:10]:
        why = record.detail or (f"exit code {record.exit_code}" if record.exit_code else "")
        note(f"{record.job.id}: {record.state}{': ' + why if why else ''}")
    if not quiet and not as_json and folder:
        note(f"Outputs and journal: {folder[0]}")
    if any(record.state is State.CANCELLED for record in records):
        return 130
    if failed:
        return 1
    return 2 if note_rejected(found.result, file or "the command") else 0


def _seconds(text: str | None) -> float | None:
    found = opt.walltime(text, simulated=False)
    assert not isinstance(found, str)
    return found


def _workload(
    file: str | None, command: list[str], on: list[str], app: str | None, drop: Any, add: Any
) -> str | Workload:
    if command:
        if file is not None:
            raise InputError(f"found the file {file} and a command after '--', expected one of them")
        return command_workload(command, on=on, app=app, drop=drop, add=add)
    if file is None:
        raise InputError("found no FILE, expected a job file, a list of commands, or a command after '--'")
    return file


def _recover(quiet: bool) -> None:
    """Say what earlier runs left behind; what ended is recorded on the way."""
    for left in api.recover_left_behind():
        if left.recorded and not quiet:
            note(f"{left.recorded} runs recorded that had ended after an earlier Dovetail was killed")
        for job in left.recovery.running:
            cores = ",".join(map(str, job.cores)) or "any core"
            note(
                f"job {job.job} of an earlier run still runs (process {job.pid}, cores {cores}); "
                "'dovetail recover --stop' ends it"
            )
