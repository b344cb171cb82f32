"""``dovetail logs``: what a job wrote."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.cli import options as opt
from dovetail.cli.service import jobs_meant, open_service
from dovetail.client.connection import Connection, NoAccess, NoService
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.files.streams import print_note
from dovetail.plugins import registered_entries
from dovetail.process.spawn_log import LOG_NAME, read_log
from dovetail.report.wording import count_things
from dovetail.running.folder import find_run, read_about, run_folders, short_id

WAIT = 20.0
MOST_RUNS = 100
"""Newest runs in which a job is looked for."""


@opt.takes_options("logs")
def logs(
    job: str,
    follow: bool,
    err: bool,
    attempt: int | None,
    tail: int | None,
    run: str | None,
    patience: float,
    at: str | None,
) -> int:
    """Show what a job of the service, or of a run, wrote to standard output (or error).

    Of several (a name, an array) one after the other, each below a line with its id.
    Where no service runs: of the newest run that has such a job.
    """
    if run is not None:
        _show_file(find_run(run), run, job, err)
        return 0
    try:
        connected = open_service(at)
    except NoService as error:
        # Where the folder cannot be looked into, the job may well be there.
        if isinstance(error, NoAccess):
            raise
        # These options need a service: a run has no attempts to choose from, and nothing that follows.
        if at is not None or follow or attempt is not None or tail is not None:
            raise
        _show_file(_newest_with(job), "", job, err)
        return 0
    with connected as service:
        if follow:
            service.be_patient(patience, print_note)
        several = jobs_meant(service, job)
        for number, found in enumerate(several):
            if len(several) > 1:
                print(f"{chr(10) if number else ''}==> {make_printable(found['id'])} <==", flush=True)
            if attempt is None and found["attempts"] > 1:
                print_note(f"attempt {found['attempts']} of {found['attempts']}; --attempt N shows another")
            # From the end of the file, for --tail.
            _show_output(service, found["id"], "err" if err else "out", attempt, -tail if tail else 0, follow)
            if not err and not _written_bytes(service, found["id"], "out", attempt):
                _point_to_errors(_written_bytes(service, found["id"], "err", attempt))
    return 0


def _point_to_errors(written: int) -> None:
    """A program that failed has often written to standard error alone."""
    if written:
        print_note(
            f"nothing on standard output, {count_things(written, 'byte')} on standard error: --err shows them"
        )


def _attempt_files(folder: Path, job: str) -> list[Sequence[str]]:
    """Standard output and error of each attempt, as its executor, whichever it was, noted at the start."""
    records: list[Any] = []
    # On Slurm and Ray each node has a log of its own.
    for log in (folder / LOG_NAME, *folder.glob("agents/*.log")):
        if log.exists():
            records += read_log(log).intents.values()
    found = {record.get("attempt", 1): record["files"] for record in records if record.get("job") == job}
    for find_outputs in registered_entries(
        "dovetail.outputs"
    ).values():  # of executors that keep notes of their own
        found |= find_outputs.load()(folder, job)
    return [found[attempt] for attempt in sorted(found)]


def _newest_with(job: str) -> Path:
    folders = run_folders()[:MOST_RUNS]
    for folder in folders:
        if _attempt_files(folder, job):
            print_note(f"of run {short_id(read_about(folder).uid)}")
            return folder
    raise InputError(
        f"found no service here, and no run with a job {job!r} that has started ('dovetail runs' lists runs)"
    )


def _show_file(folder: Path, run: str, job: str, err: bool) -> None:
    """The last attempt's output."""
    files = _attempt_files(folder, job)
    if not files:
        raise InputError(f"found no job {job!r} that has started", where=f"run {run}")
    path = files[-1][1 if err else 0]
    try:
        with open(path, "rb") as file:
            # Bytes, not text: a job's output may be anything.
            shutil.copyfileobj(file, sys.stdout.buffer)
            nothing = file.tell() == 0
        if nothing and not err:
            _point_to_errors(Path(files[-1][1]).stat().st_size)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from error
    sys.stdout.buffer.flush()


def _written_bytes(service: Connection, id: str, stream: str, attempt: int | None) -> int:
    reply = service.ask(
        "GET", f"/api/v1/jobs/{id}/log", query={"stream": stream, "attempt": attempt, "offset": -1}
    )
    return int(reply.headers["dovetail-length"]) if reply.status == 200 else 0


def _show_output(
    service: Connection, id: str, stream: str, attempt: int | None, offset: int, follow: bool
) -> None:
    while True:
        query = {"stream": stream, "attempt": attempt, "offset": offset, "wait": WAIT if follow else 0}
        reply = service.ask("GET", f"/api/v1/jobs/{id}/log", query=query)
        if reply.status != 200:
            reply.read_json()
        sys.stdout.buffer.write(reply.body)
        sys.stdout.buffer.flush()
        offset = int(reply.headers["dovetail-offset"]) + len(reply.body)
        whole = offset >= int(reply.headers["dovetail-length"])
        if reply.headers["dovetail-ended"] == "1" or (whole and not follow):
            return
