"""What failed in an earlier run, as the jobs of a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dovetail.errors import InputError
from dovetail.model import Launch, State, TableTruth, Workload
from dovetail.running.entry import Entry
from dovetail.running.folder import read_about
from dovetail.running.ledger import Ledger

FAILED = (State.FAILED, State.TIMEOUT, State.NODE_FAIL, State.OUT_OF_MEMORY)
"""States of jobs that have failed."""
NEVER = "cannot come true"
"""In the detail of a job that was cancelled because another one had failed."""
RETRIED = "what failed in "
"""Before the name of a workload, once, however often it was tried again."""


def failed_jobs(folder: Path) -> Workload:
    """The jobs of a run that failed, and those that never ran because of it, as they were submitted.

    They start where the run was started, and depend on each other alone. Raises `InputError` where none has
    failed.
    """
    about = read_about(folder)
    with Ledger(folder / "ledger.db") as ledger:
        failed = [entry for entry in ledger.entries() if _has_failed(entry)]
    if not failed:
        raise InputError(f"found no failed job in run {folder.name}, expected at least one to try again")
    names = {entry.job.id for entry in failed}
    jobs = []
    for at, entry in enumerate(failed):
        launch = entry.job.launch or Launch()
        if launch.folder is None:
            launch = replace(launch, folder=about.cwd)
        depends = tuple(one for one in entry.job.depends if one.job in names)
        jobs.append(replace(entry.job, launch=launch, depends=depends, index=at, submit_time=0.0))
    return Workload(RETRIED + about.workload.removeprefix(RETRIED), jobs, TableTruth())


def _has_failed(entry: Entry) -> bool:
    return entry.state in FAILED or (entry.state is State.CANCELLED and NEVER in entry.detail)
