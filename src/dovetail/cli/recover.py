"""``dovetail recover``: what runs left behind whose Dovetail was killed."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dovetail import api
from dovetail.cli.options import Json

__all__ = ["recover"]


def recover(
    stop: Annotated[bool, typer.Option("--stop", help="End what still runs.")] = False,
    as_json: Json = False,
) -> None:
    """Record what ended, and show or stop what still runs, of runs whose Dovetail was killed."""
    found = api.recover_left_behind(stop=stop)
    if as_json:
        rows = [
            {
                "run": left.recovery.run_dir.name,
                "recorded": left.recorded,
                "ended": [job.job for job in left.recovery.ended],
                "running": [{"id": job.job, "pid": job.pid} for job in left.recovery.running],
                "lost": [{"id": job.job, "reason": job.reason} for job in left.recovery.lost],
            }
            for left in found
        ]
        print(json.dumps(rows, indent=2))
        return
    if not found:
        print("Nothing was left behind.")
    for left in found:
        print(f"run {left.recovery.run_dir.name}: {left.recorded} ended runs recorded")
        for job in left.recovery.running:
            cores = ",".join(map(str, job.cores)) or "any"
            print(f"  {job.job} still runs: process {job.pid} on cores {cores}")
        for lost in left.recovery.lost:
            print(f"  {lost.job}: {lost.reason}")
    if any(left.still_running for left in found):
        print("'dovetail recover --stop' ends what still runs.")
