"""``dovetail runs``: what ran on this machine, and clearing it up."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options as opt
from dovetail.cli.service import format_clock, print_json, show_rows
from dovetail.errors import DovetailError
from dovetail.files.streams import print_note
from dovetail.model import State
from dovetail.report import wording
from dovetail.running.folder import MAP, default_runs_folder, read_about, run_folders, short_id

if TYPE_CHECKING:
    from dovetail.running.ledger import Ledger


@opt.takes_options("runs")
def runs(prune: float | None, limit: int, as_json: bool) -> int:
    """List the runs of this machine, the newest first; the history is kept apart, and stays."""
    if prune is not None:
        removed = _prune_runs(prune)
        jobs = _pruned_jobs(prune)
        if as_json:
            print_json({"removed": removed, **({} if jobs is None else {"service": jobs})})
        else:
            of_service = (
                "" if jobs is None else f", {wording.count_things(jobs['jobs'], 'job')} of the service"
            )
            print(f"{wording.count_things(len(removed), 'run')}{of_service} removed")
        return 0
    folders = run_folders()[:limit]
    found = [row for folder in folders if (row := _run_row(folder)) is not None]
    if as_json:
        print_json(found)
        return int(bool(folders) and not found)
    if not found:
        print("No run can be read." if folders else "Nothing has run yet.")
        return int(bool(folders))
    now = time.time()
    rows = [
        {
            "run": row["id"],
            "started": format_clock(row["started"], now),
            "workload": os.path.basename(row["workload"]),
            "policy": row["policy"],
            "jobs": ", ".join(f"{count} {state}" for state, count in sorted(row["jobs"].items())),
        }
        for row in found
    ]
    show_rows(("run", "started", "workload", "policy", "jobs"), rows)
    return 0


def _run_row(folder: Path) -> dict[str, Any] | None:
    """A run, ``None`` for a folder that is none (any more)."""
    from dovetail.mapping.items import is_alive_map
    from dovetail.process.spawn_log import LOG_NAME
    from dovetail.running.ledger import Ledger

    try:
        about = read_about(folder)
        with Ledger(folder / "ledger.db") as ledger:
            counts = {str(state): count for state, count in ledger.count_states().items()}
            if "RUNNING" in counts and (folder / LOG_NAME).exists():
                counts = _with_later_ends(folder, about.uid, ledger, Counter(counts))
        if about.executor == MAP and "RUNNING" in counts and not is_alive_map(folder):
            counts["NODE_FAIL"] = counts.pop("RUNNING")  # killed: it could not record the end
    except (DovetailError, OSError) as error:
        # One damaged run must not hide the others.
        print_note(f"{error}; passed over")
        return None
    return {
        "id": short_id(about.uid),
        "uid": about.uid,
        "started": about.created,
        "workload": about.workload,
        "policy": about.policy,
        "executor": about.executor,
        "folder": str(folder),
        "jobs": counts,
    }


def _with_later_ends(folder: Path, uid: str, ledger: Ledger, counts: Counter[str]) -> dict[str, int]:
    """How many jobs of a run are in each state: what ran when it was killed may have ended since."""
    from dovetail.process.recovery import recover_run
    from dovetail.process.spawn_log import uid_of

    running = [entry for entry in ledger.open_entries() if entry.state is State.RUNNING]
    beside = {uid_of(uid, entry.job.id, entry.attempt): entry.job.id for entry in running}
    left = recover_run(folder, beside)
    if not left.in_use and not left.elsewhere:
        ended = {one.run.uid: one.event.state for one in left.ended}
        for lost in beside.keys() - {one.uid for one in left.running}:
            counts["RUNNING"] -= 1
            counts[ended.get(lost, State.NODE_FAIL)] += 1
    return dict(+counts)


def _prune_runs(age: float) -> list[str]:
    """Remove old runs of the state folder in which nothing runs; their ids."""
    from dovetail.mapping.items import is_alive_map
    from dovetail.process.recovery import recover_run

    root, removed = default_runs_folder().resolve(), []
    for folder in run_folders():
        try:
            about = read_about(folder)
            # A map has no supervisor: its own process is what lives.
            if about.executor == MAP:
                busy = is_alive_map(folder)
            else:
                left = recover_run(folder)
                busy = left.in_use or bool(left.running) or bool(left.elsewhere)
        # In doubt a run stays: removing files under a live process could not be undone.
        except (DovetailError, OSError) as error:
            print_note(f"{error}; it stays")
            continue
        if time.time() - about.created < age or busy:
            continue
        if folder.parent == root:  # one that lies elsewhere is its user's
            shutil.rmtree(folder)
            removed.append(short_id(about.uid))
    return removed


def _pruned_jobs(age: float) -> dict[str, int] | None:
    """Have the service of this account forget old jobs, or do it where none runs; ``None`` without one.

    Raises `DovetailError` where what is on record cannot be read, or written.
    """
    from dovetail.client.connection import VARIABLE, NoService, open_connection
    from dovetail.client.folder import ServiceFolder
    from dovetail.service.tidying import tidy_folder

    named = os.environ.get(VARIABLE, "")
    folder = ServiceFolder(named if os.path.isabs(named) else None)
    if not folder.ledger_path.exists():
        return None
    # Another host may be writing there.
    if folder.elsewhere() is not None:
        print_note(f"{folder.elsewhere()}: prune it there")
        return None
    lock = folder.take_lock()
    if lock is None:
        try:
            with open_connection(folder.path) as service:
                found = service.post("/api/v1/forget", {"age": age})
        except NoService as error:
            print_note(f"{error}; its jobs stay")
            return None
        return {"jobs": found["jobs"], "files": found["files"]}
    try:
        removed = tidy_folder(folder, age)
    finally:
        os.close(lock)
    return {"jobs": removed.jobs, "files": removed.files}
