"""What runs left behind whose Dovetail was killed: what ended is recorded, what still runs is reported.

One bad run never stops the others, nor the run that is to begin: it is set aside with a sentence, and looked
at again by every later start, until it can be recorded or a user gives it up (`give_up`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dovetail.errors import DovetailError, HistoryError, InputError
from dovetail.files.sentences import error_reason
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import JobId, Run, State
from dovetail.process.recovery import (
    UNRECORDED,
    Recovery,
    kept_aside,
    open_runs,
    recover_run,
    unlink_run,
    unsettled_runs,
)
from dovetail.process.spawn_log import LOG_NAME, uid_of
from dovetail.records import dataclass
from dovetail.running.folder import (
    RunSettings,
    default_runs_folder,
    find_run,
    is_marked_unrecorded,
    read_about,
    short_id,
)
from dovetail.running.ledger import Ledger

_log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds for which another writer on a history is waited for; else the next start records the runs."""
NAMED = 10
"""Jobs of a run that are named."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What an earlier run left behind when its Dovetail was killed.

    ``recorded`` runs have gone into the history; ``trouble`` is why others could not, or are not known:
    then the run is looked at again.
    """

    recovery: Recovery
    recorded: int
    trouble: str = ""

    @property
    def still_running(self) -> int:
        """Jobs that run on, without a Dovetail to schedule around them."""
        return len(self.recovery.running)

    @property
    def unreported_jobs(self) -> list[tuple[JobId, str]]:
        """Jobs that no history will ever hold, and why: those that never started, and lost ones."""
        never = [(job.job, job.event.detail) for job in self.recovery.ended if not job.event.ran]
        return never + [(job.job, job.reason) for job in self.recovery.lost]

    @property
    def run(self) -> str:
        """What the run is called."""
        return self.recovery.run_dir.name


def recover_left_behind(
    folder: str | os.PathLike[str] | None = None,
    *,
    stop: bool = False,
    elsewhere: bool = False,
    thorough: bool = False,
) -> list[Leftover]:
    """Find runs whose Dovetail was killed: record what ended, report (or ``stop``) what still runs.

    Looks under ``folder`` (default: the state folder, where run folders elsewhere are linked); there only at
    those that are noted as open (`open_runs`), unless ``thorough``. Runs are
    recorded in the history that they belonged to; their unique ids make that idempotent. Raises nothing
    because of one of them. Runs of other hosts are left alone, and in the answer only with ``elsewhere``.
    """
    root = default_runs_folder() if folder is None else folder
    found: list[Leftover] = []
    try:
        known = folder is None and not thorough
        left = open_runs(root) if known else [*unsettled_runs(root), *kept_aside(root)]
    except OSError as error:
        trouble = f"{root}: cannot be read: {error_reason(error)}; whether runs were left behind is not known"
        return [Leftover(Recovery(Path(root)), 0, trouble)]
    # The same run may be found by its folder and by a link.
    for run_dir in dict.fromkeys(left):
        try:
            one = _looked_at(run_dir, stop=stop)
        except DovetailError as error:
            one = Leftover(Recovery(run_dir), 0, str(error))
        except OSError as error:
            where = error.filename if isinstance(error.filename, str) else run_dir / LOG_NAME
            one = Leftover(Recovery(run_dir), 0, f"{where}: cannot be read: {error_reason(error)}")
        if one is None or (one.recovery.elsewhere and not elsewhere):
            continue
        if (
            one.recorded
            or one.recovery.running
            or one.unreported_jobs
            or one.trouble
            or one.recovery.elsewhere
        ):
            found.append(one)
    return found


def give_up(name: str) -> Path:
    """Look at a run no more, whatever of it is not recorded; returns its folder.

    Nothing is deleted: its spawn log gets another name. Raises `InputError` while jobs of it run.
    """
    folder = _folder_of(name)
    try:
        recovery = recover_run(folder)
    except OSError:
        recovery = Recovery(folder)
    try:
        if not recovery.give_up():
            raise InputError(
                "still runs, expected a run that has ended ('dovetail recover --stop' ends what runs)",
                where=str(folder),
            )
        (folder / UNRECORDED).unlink(missing_ok=True)
        runs = default_runs_folder()
        for entry in os.scandir(runs) if runs.is_dir() else ():
            if entry.is_symlink() and Path(os.path.realpath(entry.path)) == folder:
                unlink_run(runs, entry.name)
    except OSError as error:
        raise InputError(f"cannot be put aside: {error_reason(error)}", where=str(folder)) from error
    _log.info("run %s is given up: its spawn log is put aside", short_id(folder.name))
    return folder


def _folder_of(name: str) -> Path:
    """A run by its folder, whatever is missing there, or by the beginning of its id."""
    return Path(name).resolve() if os.path.lexists(Path(name) / LOG_NAME) else find_run(name)


def left_of_service(folder: Path, *, stop: bool = False) -> Leftover | None:
    """What a service left behind that was killed; changes nothing (but ``stop`` ends what still runs).

    The next start of the service records what has ended. ``None`` while it lives, and where nothing is left.
    """
    troubles: list[str] = []
    if not os.path.lexists(folder / LOG_NAME):
        return None
    try:
        recovery = recover_run(folder)
        if recovery.elsewhere:
            return Leftover(recovery, 0)
        if recovery.in_use:
            return None
        ledger = _opened_ledger(folder, troubles)
        if ledger is not None:
            with ledger:
                beside, _ = _recorded_by(ledger, read_about(folder).uid, troubles)
            recovery = recover_run(folder, beside)
    except (OSError, InputError) as error:
        return Leftover(Recovery(folder), 0, str(error))
    if stop:
        recovery = recovery.stop()
    if recovery.damage:
        troubles.append(f"{folder / LOG_NAME} is damaged: {recovery.damage}")
    return Leftover(recovery, 0, "; ".join(troubles)) if recovery.running or troubles else None


def leftover_sentences(found: Sequence[Leftover]) -> Iterator[str]:
    """What a person who starts a run should know of those that were left behind."""
    recorded = sum(left.recorded for left in found)
    if recorded:
        yield f"{recorded} runs recorded that had ended after an earlier Dovetail was killed"
    for left in found:
        for job in left.recovery.running:
            if job.is_unwritten:
                yield f"job {job.job} of an earlier run has ended: its supervisor cannot write down how yet"
                continue
            cores = ",".join(map(str, job.cores)) or "any core"
            yield (
                f"job {job.job} of an earlier run still runs (process {job.pid}, cores {cores}); "
                "'dovetail recover --stop' ends it"
            )
        unreported = left.unreported_jobs
        for name, why in unreported[:NAMED]:
            yield f"job {name} of the earlier run {short_id(left.run)}: {why}"
        if len(unreported) > NAMED:
            yield f"and {len(unreported) - NAMED:,} more jobs of the earlier run {short_id(left.run)}"
        if left.trouble:
            yield (
                f"an earlier run is set aside, {left.trouble}; 'dovetail recover' tries again, "
                f"'dovetail recover --give-up {short_id(left.run)}' looks at it no more"
            )


def _looked_at(run_dir: Path, *, stop: bool) -> Leftover | None:
    """Record what can be recorded of a run; ``None`` while its Dovetail lives. Nothing of another host's."""
    recovery = recover_run(run_dir) if os.path.lexists(run_dir / LOG_NAME) else Recovery(run_dir)
    if recovery.elsewhere:
        return Leftover(recovery, 0)
    if recovery.in_use:
        return None
    about, troubles = _read_run(run_dir, recovery)
    if recovery.damage:
        troubles.append(f"{run_dir / LOG_NAME} is damaged: {recovery.damage}")
    runs = [job.run for job in recovery.ended if job.event.ran]
    ledger = _opened_ledger(run_dir, troubles)
    if ledger is None:
        beside: Mapping[str, JobId] = {}
        kept: list[Run] = []
    else:
        with ledger:
            beside, kept = _recorded_by(ledger, about.uid if about else run_dir.name, troubles)
    # The ledger knows starts that the log may have lost: those are searched for in /proc too.
    if beside.keys() - recovery.known_uids:
        recovery = recover_run(run_dir, beside) if os.path.lexists(run_dir / LOG_NAME) else recovery
    if stop and recovery.running:
        recovery = recovery.stop()
        runs = [job.run for job in recovery.ended if job.event.ran]
    recorded = 0
    if about is not None and (runs or kept):
        recorded = _record_runs(about.history, [*runs, *kept], troubles)
    elif runs or kept:
        troubles.append(f"{len(runs) + len(kept)} runs of it are not recorded")
    if not troubles:
        _done_with(run_dir, recovery, [run.uid for run in kept])
    if recorded or recovery.running:
        _log.info(
            "run %s, left behind: %d of its runs recorded, %d of its jobs still run",
            *(short_id(run_dir.name), recorded, len(recovery.running)),
        )
    return Leftover(recovery, recorded, "; ".join(troubles))


def _read_run(run_dir: Path, recovery: Recovery) -> tuple[RunSettings | None, list[str]]:
    """The run's own description; a run that was killed before it was written has started nothing."""
    try:
        return read_about(run_dir), []
    except InputError as error:
        empty = not recovery.known_uids and not recovery.damage
        if empty and not any(os.path.lexists(run_dir / name) for name in ("run.json", "ledger.db")):
            return None, []
        return None, [str(error)]


def _opened_ledger(run_dir: Path, troubles: list[str]) -> Ledger | None:
    path = run_dir / "ledger.db"
    if not os.path.lexists(path):
        return None
    try:
        return Ledger(path)
    except (HistoryError, OSError) as error:
        troubles.append(f"{path}: {error_reason(error)}" if isinstance(error, OSError) else str(error))
        return None


def _recorded_by(ledger: Ledger, uid: str, troubles: list[str]) -> tuple[Mapping[str, JobId], list[Run]]:
    """Attempts that were about to start, and runs that are not in the history, by the ledger."""
    try:
        running = [entry for entry in ledger.open_entries() if entry.state is State.RUNNING]
        beside = {uid_of(uid, entry.job.id, entry.attempt): entry.job.id for entry in running}
        return beside, ledger.unrecorded_runs()
    except HistoryError as error:
        troubles.append(str(error))
        return {}, []


def _record_runs(history: str, runs: Sequence[Run], troubles: list[str]) -> int:
    """Record runs in the history that they belonged to, each that can be; returns how many were new."""
    recorded = 0
    try:
        with SqliteHistory(history, wait=PATIENCE, must_exist=True) as store:
            # In one transaction; only where one of them is refused, one by one.
            try:
                return store.record_many(runs)
            except InputError:
                # One of them makes no sense.
                for run in runs:
                    try:
                        recorded += store.record(run)
                    except InputError as error:
                        troubles.append(f"job {run.job} cannot be recorded: {error}")
    except HistoryError as error:
        troubles.append(f"{error}: {len(runs)} runs are not recorded there")
    return recorded


def _done_with(run_dir: Path, recovery: Recovery, kept: Sequence[str]) -> None:
    """All is recorded: later starts pass over this run. Raises `HistoryError`, `OSError`."""
    if is_marked_unrecorded(run_dir):
        with Ledger(run_dir / "ledger.db") as ledger:
            ledger.recorded(kept)
            if not ledger.settle():
                raise HistoryError(ledger.why_blocked)
        (run_dir / UNRECORDED).unlink(missing_ok=True)
    if os.path.lexists(run_dir / LOG_NAME):
        # A full disk: the next start finds it recorded.
        with suppress(OSError):
            recovery.settle()
