"""One Dovetail that drives one run: begun anew, or taken up where an earlier one was cut short."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dovetail.driver.driver import Driver
from dovetail.driver.live import LiveRun, best_predicted, check_executor
from dovetail.driver.prepare import check_depends, check_policy, prepare_workload
from dovetail.engine.state.core import Engine
from dovetail.errors import DovetailError, InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import AdoptsJobs, Backend, ChecksJobs, Executor, KeepsOutput
from dovetail.model import (
    Cluster,
    Job,
    JobId,
    Record,
    Result,
    State,
    Submitted,
    TableTruth,
    Workload,
)
from dovetail.plugins import LoadedPolicy, load_policy, named_backend
from dovetail.process.recovery import link_run, note_open, note_settled, unlink_run
from dovetail.records import dataclass
from dovetail.running.assembly import (
    LiveOptions,
    driver_of,
    journal_at,
    neighbours_of,
    rank_jobs,
    recording_history,
)
from dovetail.running.folder import (
    MAP,
    RunSettings,
    as_run_folder,
    default_runs_folder,
    is_marked_unrecorded,
    new_journal,
    new_run_folder,
    note_driven,
    read_about,
    write_about,
)
from dovetail.running.halting import Halt, HaltWatch
from dovetail.running.last_resort import LastResort
from dovetail.running.ledger import Ledger
from dovetail.running.taking_up import by_submission, enter_adopted, enter_outside, record_of, sorted_out

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions(LiveOptions):
    """How a run is to go; see `dovetail.run`."""

    run_dir: Path | None = None
    cwd: str = "."
    halt: Halt | None = None
    changed: Callable[[Engine], None] | None = None
    started: Callable[[Session], None] | None = None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that is over: its result, its folder and id, and what could not be done on the way."""

    result: Result
    folder: Path
    uid: str
    troubles: Sequence[str] = ()


@dataclass(slots=True)
class Session:
    """What a run consists of while it goes. ``arrivals`` are jobs that will be submitted, by time."""

    folder: Path
    about: RunSettings
    backend: Backend
    executor: Executor
    driver: Driver
    ledger: Ledger
    workload: Workload
    before: list[Record] = field(default_factory=list)  # ended under an earlier Dovetail
    arrivals: Sequence[Job | Submitted] = ()
    live: LiveRun | None = None
    resort: LastResort = field(default_factory=LastResort)

    async def drive_to_end(self, options: RunOptions) -> None:
        """Run to the end; SIGINT, SIGTERM and SIGHUP stop what runs and cancel what waits."""
        # Times of the driver count from here; records on disk are by the wall clock.
        self.driver.epoch = self.ledger.epoch = epoch = time.time()
        changed = options.changed
        halts = None if options.halt is None else HaltWatch(options.halt, self.workload.jobs)
        neighbours = neighbours_of(self.executor, self.driver, options.tell, options.neighbours)
        self.live = LiveRun(
            self.driver,
            self.executor,
            self.arrivals,
            changed=changed,
            tell=options.tell,
            neighbours=neighbours,
            halts=halts,
            elapsed=lambda: time.time() - epoch,
        )
        live, self.resort.within = self.live, self.live.over_within
        seen = [0]

        def spares_process() -> bool:
            before, seen[0] = seen[0], live.extensions
            return live.place_is_taken or live.extensions > before

        self.resort.spares = spares_process
        _handle_signals(self.live, self.resort)
        try:
            await self.live.run()
        finally:
            if neighbours is not None:
                neighbours.close()

    def result(self) -> Result:
        """What became of every job of the run."""
        driver, about = self.driver, self.about
        result = driver.result(
            self.workload,
            knowledge="learned",
            best=best_predicted(driver.engine, [r.job for r in self.before] + list(self.workload.jobs)),
            default_walltime=about.default_walltime,
            live=True,
            started_at=driver.epoch,
        )
        records = sorted([*self.before, *result.records], key=lambda record: record.job.index)
        if isinstance(self.executor, KeepsOutput):
            for record in records:
                files = self.executor.output_paths(record.job.id)
                if files is not None:
                    record.stdout, record.stderr = str(files[0]), str(files[1])
        return replace(result, records=records)


def begin_run(jobs: Workload, cluster: Cluster, loaded: LoadedPolicy, options: RunOptions) -> FinishedRun:
    """Run a workload from its beginning to its end. Raises `InputError` before anything runs."""
    backend = named_backend(options.executor)
    ready = prepare_workload(jobs, cluster, need_truth=False)
    check_depends(ready)
    check_policy(loaded.policy, loaded.name, ready, cluster)
    uid = uuid.uuid4().hex
    with ExitStack() as stack:
        resort = LastResort()
        # Once all files are closed, too: their disk may be what is stuck.
        stack.callback(resort.disarm_timer)
        folder = stack.enter_context(new_run_folder(options.run_dir, uid))
        about = options.run_settings(uid, time.time(), jobs.name, loaded.policy_label, options.cwd, cluster)
        store = stack.enter_context(SqliteHistory(options.history))
        # Before the spawn log, by which others find the run.
        write_about(folder, about)
        with suppress(OSError):
            note_open(default_runs_folder(), folder, uid)
        try:
            executor = backend.open(as_run_folder(folder, about), cluster)
            if isinstance(executor, ChecksJobs):
                executor.check(ready.jobs)
        except DovetailError:
            # Nothing has started: without its description the folder is no run to recover.
            (folder / "run.json").unlink()
            raise
        check_executor(loaded.policy, loaded.name, executor, options.executor)
        # A state folder that cannot be written: then only its own name leads there.
        with suppress(OSError):
            link_run(default_runs_folder(), folder, uid)
            note_open(default_runs_folder(), folder, uid)
        ledger = stack.enter_context(Ledger(folder / "ledger.db", epoch=about.created))
        # The whole queue is on disk before anything runs.
        ledger.submit(ready.jobs, about.created)
        history = stack.enter_context(recording_history(store, folder, ledger, options.tell))
        journal = journal_at(new_journal(folder), about, loaded)
        driver = stack.enter_context(driver_of(about, loaded, ready, history, ledger, journal))
        rank_jobs(driver, ready.jobs)
        session = Session(folder, about, backend, executor, driver, ledger, ready, resort=resort)
        session.arrivals = ready.jobs
        count, size = len(ready.jobs), len(cluster.nodes)
        _log.info("run %s begins: %d jobs on %d nodes, in %s", uid, count, size, folder)
        ran = _drive_session(session, options)
    _settle_run(executor, uid, folder)
    if not ready.jobs and options.run_dir is None:
        # Nothing could run: there is nothing to look at later.
        shutil.rmtree(folder)
    return ran


def take_up(folder: Path, options: RunOptions) -> FinishedRun:
    """Go on with a run whose Dovetail has ended before its jobs; only the options of reporting count.

    What still runs is adopted: it holds its place, its end is recorded, its walltime counts from its start.
    What ended meanwhile is recorded, what waited waits again. Raises `InputError` where nothing is left of
    the run, or its executor's jobs do not outlive Dovetail; `ExecutorError` while its Dovetail lives.
    """
    about = read_about(folder)
    if about.executor == MAP:
        raise InputError(
            "is a map, expected a run; 'dovetail map --resume' does what is left", where=str(folder)
        )
    loaded = load_policy(about.policy)
    backend = named_backend(about.executor)
    if not isinstance(backend, AdoptsJobs):
        raise InputError(f"executor {about.executor} cannot take up a run: its jobs end with Dovetail")
    with ExitStack() as stack:
        resort = LastResort()
        stack.callback(resort.disarm_timer)
        ledger = stack.enter_context(Ledger(folder / "ledger.db"))
        if not ledger.open_entries() and not ledger.interrupted_entries():
            raise InputError("all jobs of this run have ended: nothing is left to take up", where=str(folder))
        store = stack.enter_context(SqliteHistory(about.history))
        about = replace(about, cluster=ledger.cluster(about.cluster))
        executor, left = backend.resume(as_run_folder(folder, about), about.cluster)
        check_executor(loaded.policy, loaded.name, executor, about.executor)
        note_driven(folder)
        with suppress(OSError):
            note_open(default_runs_folder(), folder, about.uid)
        ledger.epoch = epoch = time.time()
        waiting, adopted, ends, outside = sorted_out(ledger, left, epoch)
        over = [e for e in ledger.entries() if e.state not in (State.PENDING, State.RUNNING)]
        waiting.sort(key=lambda one: by_submission(one.job))
        known = [*waiting, *(one.submitted for one in outside)]
        jobs = sorted([*(w.job for w in known), *(found.job for found in adopted)], key=by_submission)
        workload = Workload(about.workload, jobs, TableTruth())
        history = stack.enter_context(recording_history(store, folder, ledger, options.tell))
        journal = journal_at(new_journal(folder), about, loaded)
        driver = stack.enter_context(driver_of(about, loaded, workload, history, ledger, journal))
        enter_adopted(driver, adopted, ends)
        enter_outside(driver, outside)
        rank_jobs(driver, jobs)
        session = Session(folder, about, backend, executor, driver, ledger, workload, resort=resort)
        session.before = [record_of(entry, epoch) for entry in over]
        session.arrivals = waiting
        _log.info(
            "run %s is taken up: %d jobs wait, %d run, %d have ended",
            *(about.uid, len(waiting), len(adopted), len(over) + len(ends)),
        )
        ran = _drive_session(session, options)
    _settle_run(executor, about.uid, folder)
    return ran


def _drive_session(session: Session, options: RunOptions) -> FinishedRun:
    if options.started is not None:
        options.started(session)
    _run_async(lambda: session.drive_to_end(options))
    troubles = () if session.live is None else tuple(session.live.troubles)
    _log.info("run %s ends%s", session.about.uid, f"; {'; '.join(troubles)}" if troubles else "")
    return FinishedRun(session.result(), session.folder, session.about.uid, troubles)


# ------------------------------------------------------------------------------------------------ process


def _settle_run(executor: Any, uid: str, folder: Path) -> None:
    """The history is closed: if all that ended is in it, later starts may pass over this run."""
    settle = getattr(executor, "settle", None)
    if settle is not None and not is_marked_unrecorded(folder) and settle():
        with suppress(OSError):
            unlink_run(default_runs_folder(), uid)
            note_settled(default_runs_folder(), uid)


def _run_async(main: Callable[[], Any]) -> None:
    """Run to the end, also where a loop runs already (notebooks): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(main())
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(main())).result()


def _handle_signals(live: LiveRun, resort: LastResort) -> None:
    """SIGINT, SIGTERM and SIGHUP stop the run; one that we were started to ignore (nohup) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        return
    # A handler in another thread is not possible; there the caller's signals are the caller's.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            resort.handle_signal(
                number, live.handle_interrupt_key if number == signal.SIGINT else live.terminate
            )


def unfinished_jobs(folder: Path) -> list[JobId]:
    """Jobs of a run that have not ended, or never started because it was interrupted."""
    with Ledger(folder / "ledger.db") as ledger:
        return [entry.job.id for entry in [*ledger.open_entries(), *ledger.interrupted_entries()]]
