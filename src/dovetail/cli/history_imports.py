"""``dovetail history import-…``: what other schedulers and workflow systems have measured counts, too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dovetail.cli import options as opt
from dovetail.cli.history import history_app, opened, reading
from dovetail.model import Run
from dovetail.report import wording


def _add(runs: Sequence[Run], history: Path | None, *, as_json: bool) -> None:
    """Record what is new, and say how many."""
    with opened(history, create=True) as store:
        new = store.record_in_pieces(iter(runs))
    apps = len({run.app for run in runs})
    peaks = sum(run.usage is not None and run.usage.peak_memory is not None for run in runs)
    if as_json:
        known = len(runs) - new
        print(json.dumps({"read": len(runs), "new": new, "known": known, "apps": apps, "peaks": peaks}))
    else:
        added = f"{wording.many(new, 'run')} of {wording.many(apps, 'app')} added"
        print(f"{added}, {len(runs) - new:,} known already; {peaks:,} with their peak of memory.")


@opt.takes("history import-slurm", history_app)
def import_slurm(file: str | None, since: str, history: Path | None, as_json: bool) -> None:
    """Add the jobs that Slurm's accounting knows, so that the first of your own are predicted already.

    An app is a job name, its implementation gpu where GPUs were allotted, else cpu; a peak of memory is the
    largest MaxRSS of its steps. Completed jobs of yours alone; those that are known already are skipped.
    """
    from dovetail.executors.slurm_commands import call
    from dovetail.workloads.slurm_history import COLUMNS, runs_of

    if file is None:
        where = "sacct"
        columns = f"--format={COLUMNS}"
        said, _ = call(["sacct", "--parsable2", "--state=COMPLETED", f"--starttime={since}", columns])
        lines = said.splitlines()
    else:
        where = "standard input" if file == "-" else file
        with reading(file) as text:
            lines = text.read().splitlines()
    _add(list(runs_of(lines, where)), history, as_json=as_json)


@opt.takes("history import-nextflow", history_app)
def import_nextflow(files: list[Path], history: Path | None, as_json: bool) -> None:
    """Add the tasks of Nextflow's traces (-with-trace), by tabs or by commas.

    An app is a process; times, peaks of memory and the bytes read are taken of tasks that completed.
    """
    from dovetail.workloads.nextflow import read_nextflow, run_of

    _add([run_of(task) for file in files for task in read_nextflow(file)], history, as_json=as_json)


@opt.takes("history import-snakemake", history_app)
def import_snakemake(files: list[Path], app: str | None, history: Path | None, as_json: bool) -> None:
    """Add the runs of Snakemake's benchmark files: times and peaks of memory."""
    from dovetail.workloads.snakemake import benchmark_files, read_snakemake

    found = [run for path in files for file in benchmark_files(path) for run in read_snakemake(file, app)]
    _add(found, history, as_json=as_json)
