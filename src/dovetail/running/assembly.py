"""What runs and services are put together from: the history and its writer, the driver and its journal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.priority import Priorities, is_ranked
from dovetail.engine.journal.journal import JournalWriter
from dovetail.engine.state.core import no_bound
from dovetail.errors import warn_caller
from dovetail.history.buffered import BufferedHistory
from dovetail.history.sqlite import SqliteHistory, default_history_path
from dovetail.local.claims import Claims
from dovetail.model import Cluster, Implementation, Job, Request, Seconds, Workload
from dovetail.plugins import LoadedPolicy, hold_moves
from dovetail.policies.follow_plan import FollowPlan
from dovetail.records import dataclass
from dovetail.running.device_guard import guard_of
from dovetail.running.folder import RunSettings, mark_unrecorded
from dovetail.running.ledger import Ledger
from dovetail.running.neighbours import Neighbours
from dovetail.runtimes.registry import make_model
from dovetail.spec.values import DEFAULT_MODEL, Neighbourhood, Overrun

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What runs and services have in common; ``tell`` gets sentences that their user should read now."""

    history: Path | None = None
    executor: str = "local"
    model: str = DEFAULT_MODEL
    seed: int | None = None
    overrun: Overrun = "kill"
    default_walltime: Seconds | None = None
    grace: Seconds = 5.0
    tell: Notify = warn_caller
    neighbours: Neighbourhood = "avoid"

    def run_settings(
        self, uid: str, created: Seconds, workload: str, policy: str, cwd: str, cluster: Cluster
    ) -> RunSettings:
        """What is written of them beside the jobs."""
        return RunSettings(
            uid=uid,
            created=created,
            workload=workload,
            policy=policy,
            executor=self.executor,
            model=self.model,
            history=str((self.history or default_history_path()).absolute()),
            cwd=cwd,
            grace=self.grace,
            overrun=self.overrun,
            default_walltime=self.default_walltime,
            seed=self.seed,
            cluster=cluster,
        )


@contextmanager
def recording_history(
    store: SqliteHistory, folder: Path, ledger: Ledger, notify: Notify
) -> Iterator[BufferedHistory]:
    """The history with its writer beside the loop; what it cannot write in the end stays in the ledger."""
    # The ledger is the spool: a run that the history cannot take now is in it already, and is recorded later.
    history = BufferedHistory(store, spool=ledger, tell=notify)
    history.record_many(ledger.unrecorded_runs())
    try:
        yield history
    finally:
        left = history.close()
        # Settled after the history is closed: only what it has taken for certain is struck off.
        ledger.settle()
        if left:
            # A mark that cannot be made is no reason to fail a run that is over: the next start looks anyway.
            with suppress(OSError):
                mark_unrecorded(folder)
            notify(f"{left} runs are not in the history yet: they are kept, and the next start records them")


def journal_at(path: Path, about: RunSettings, loaded: LoadedPolicy) -> JournalWriter:
    """A new journal of a run or a service."""
    return JournalWriter(
        path,
        about.cluster,
        policy=loaded.policy_label,
        placement=getattr(loaded.policy, "placement", "pack"),
        # `hold_moves` changes what decisions mean: a replay has to know it.
        about={"run": about.uid, "workload": about.workload, "hold_moves": True},
    )


@contextmanager
def driver_of(
    about: RunSettings,
    loaded: LoadedPolicy,
    workload: Workload,
    history: BufferedHistory,
    ledger: Ledger,
    journal: JournalWriter,
    *,
    most_at_once: int | None = None,
) -> Iterator[Driver]:
    """The driver of a run or a service (with ``most_at_once``); its journal is closed at the end."""

    def walltime_bound(job: Job, implementation: Implementation, request: Request) -> Seconds:
        # The walltime that a job was given goes before the default one, and both before what is learned.
        if job.walltime is None and about.default_walltime is not None:
            return about.default_walltime
        return no_bound(job, implementation, request)

    driver = Driver(
        about.cluster,
        # Live a move takes time, in which both places are taken.
        hold_moves(loaded.policy),
        make_model(about.model, history),
        bound=walltime_bound,
        history=history,
        journal=journal,
        ledger=ledger,
        follow=FollowPlan(),
        rejected=workload.rejected,
        ended_before=ledger.state,
        options=DriverOptions(
            overrun=about.overrun,
            default_walltime=about.default_walltime,
            placement=getattr(loaded.policy, "placement", "pack"),
            seed=about.seed,
            policy_name=loaded.name,
            policy_options=dict(loaded.options),
            # A live policy's mistake must not place two jobs on one device.
            enforce=True,
            hold_moves=True,
            keep_considered=True,
            run_uid=about.uid,
            survives=True,
            most_at_once=most_at_once,
            timer=time.perf_counter,
        ),
    )
    try:
        yield driver
    finally:
        current = driver.journal  # a service begins new ones
        if isinstance(current, JournalWriter):
            current.close()


def neighbours_of(
    executor: object, driver: Driver, notify: Notify, mode: Neighbourhood = "avoid"
) -> Neighbours | None:
    """What keeps this run apart from others on the machine, where its executor claims cores."""
    claims = getattr(executor, "claims", None)
    # Only executors that pin jobs on this machine have claims: elsewhere there are no neighbours to avoid.
    if not isinstance(claims, Claims):
        return None
    is_ours = getattr(executor, "asked_by_job", lambda pid: (False, ""))
    guard = guard_of(driver.engine.cluster, os.environ, mode, is_ours)
    found = Neighbours(claims, driver.engine.cluster, notify, guard)
    # Jobs that were taken up hold their cores already, before the first decision.
    if driver.engine.running:
        found.note_adopted_jobs(driver)
    return found


def rank_jobs(driver: Driver, jobs: Sequence[Job]) -> None:
    """Have options of jobs decide who goes first in a run, where some job has one; else its policy does."""
    if any(map(is_ranked, jobs)):
        driver.order_by_priority(Priorities(priorities=False), 0.0)
