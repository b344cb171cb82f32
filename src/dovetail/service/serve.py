"""A service from its start to its end: what it finds in its folder, its loop, its sockets, its signals."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shlex
import signal
import ssl
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dovetail.client.folder import Address, ServiceFolder
from dovetail.driver.gpu_hours import HourLimit
from dovetail.driver.live import LiveRun, check_executor
from dovetail.driver.prepare import check_policy
from dovetail.driver.priority import Priorities
from dovetail.engine.journal.journal import JournalWriter
from dovetail.engine.state.core import Engine
from dovetail.errors import DovetailError, ExecutorError, InputError
from dovetail.files.folders import home_folder
from dovetail.files.garbage import rare_collections
from dovetail.files.little_memory import refuse_little_memory
from dovetail.files.shortage import lack_of
from dovetail.files.writing import replace_file
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import AdoptsJobs, Backend, Executor, LastAttempts, LeavesJobs, SubmitsJobs
from dovetail.model import (
    Cluster,
    Ended,
    Job,
    NodeDrained,
    Paused,
    Seconds,
    State,
    TableTruth,
    Usage,
    Workload,
)
from dovetail.model.job import TURN
from dovetail.plugins import LoadedPolicy, load_policy, named_backend, needs_priorities, policy_for
from dovetail.process.background import keep_going
from dovetail.process.processes import is_alive
from dovetail.process.recovery import end_unlogged, kill_group, recover_run
from dovetail.process.spawn_log import LOG_NAME, uid_of
from dovetail.records import dataclass
from dovetail.running.assembly import LiveOptions, driver_of, journal_at, neighbours_of, recording_history
from dovetail.running.folder import RunSettings, as_run_folder, encoded_about, read_about
from dovetail.running.last_resort import LastResort
from dovetail.running.ledger import Ledger, LedgerDamageError
from dovetail.running.taking_up import beyond_ledger, by_submission, enter_adopted, enter_outside, sorted_out
from dovetail.running.watchdog import Watchdog
from dovetail.service.core import SLICE, Options, Service
from dovetail.service.daemon import SystemdNotifier
from dovetail.service.gate import MOST_BODY, Authentication, Sessions
from dovetail.service.gpu_hours import HoursBook
from dovetail.service.ground import Ground, why_ended_at_logout
from dovetail.service.hooks import CommandHook, Hook
from dovetail.service.http import Listeners, is_loopback, names_of, parse_listen, tls_context
from dovetail.service.mail import mail_subscription
from dovetail.service.partitions import Partition, with_partitions
from dovetail.service.people import name_of
from dovetail.service.routes import application
from dovetail.service.starting import Starting
from dovetail.service.tidying import Limits
from dovetail.service.tokens import Tokens
from dovetail.service.usage import FairUse
from dovetail.service.usage import Usage as Used
from dovetail.service.webhook import job_subscription, notify_subscription
from dovetail.version import __version__

_log = logging.getLogger(__name__)

LONG_JOURNAL = 128 << 20
"""Bytes of a journal's segment, after which the next one begins."""
BEGUN = ("spawn.log", "agents", "queue", "ray.jsonl")
"""One of them is in the folder once an executor has started something."""
LEDGER = ("ledger.db", "ledger.db-wal", "ledger.db-shm")
AFRESH = (
    "'dovetail serve --new': an empty queue, whose numbers begin after those of the outputs that are here"
)
MOST_SEGMENTS = 8
MOST_NAMED = 20
"""Jobs that are named where many were taken up."""
PATIENCE = 5.0
"""Seconds for a service that was killed to be gone altogether."""


@dataclass(frozen=True, slots=True)
class ServeOptions(LiveOptions):
    """How a service is to go.

    ``listen`` is HOST:PORT; anything but loopback needs a ``certificate``, or ``insecure``. All members of
    ``group`` may use the socket. ``keep`` is how long ended jobs stay in memory, ``user_limit`` how many
    jobs of one user may run at once, ``max_gpus_per_user`` on how many GPUs, ``gpu_hours`` for how
    long within a window; with ``fair`` who used less goes first. ``partitions`` are names for nodes, with
    limits. ``mail`` gets jobs that want mail, ``notify`` all. ``new`` begins with an empty queue where the
    ledger of the one before has gone. ``max_request`` is how many bytes a request may have, ``limits`` how
    long what is kept of ended jobs stays. ``ready`` is called when the service answers, ``reopen`` at SIGHUP.
    """

    folder: ServiceFolder = field(default_factory=ServiceFolder)
    cluster: Cluster | None = None
    policy: str = "history"
    socket: Path | None = None
    group: str | None = None
    listen: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    keep: Seconds = 3600.0
    user_limit: int | None = None
    max_gpus_per_user: int | None = None
    gpu_hours: HourLimit | None = None
    memory_auto: bool = False
    partitions: tuple[Partition, ...] = ()
    mail: CommandHook | None = None
    mail_idle: bool = False
    notify: tuple[Hook, ...] = ()
    new: bool = False
    fair: FairUse | None = None
    limits: Limits = field(default_factory=Limits)
    max_request: int = MOST_BODY
    reopen: Callable[[], None] = lambda: None
    ready: Callable[[Address], None] = field(default=lambda address: None)


def serve_until_signalled(options: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT (what runs goes on, and the next start takes it up) or a drain.

    Raises `InputError` where the options are wrong, `DovetailError` while another service has the folder.
    """
    refuse_little_memory()
    where = _open_network(options)
    if options.group is not None and os.geteuid() == 0:
        raise InputError(
            "found it for a service of root, which would run every job of the group as root; expected one of "
            "another account",
            where="--group",
        )
    try:
        options.folder.make_private()
        _not_elsewhere(options.folder)
        lock = _try_lock(options.folder)
        if lock is not None:
            options.folder.note_holder(lock)
    except OSError as error:
        where_not = os.fsdecode(error.filename or options.folder.path)
        raise InputError(f"cannot be used: {lack_of(error) or error.strerror}", where=where_not) from error
    if lock is None:
        raise Busy(options.folder)
    try:
        with rare_collections():  # a long queue is many objects, all of which stay
            try:
                _serve_locked(options, where, lock)
            except LedgerDamageError as error:
                if not options.new:
                    raise InputError(f"{error}; expected it whole, or {AFRESH}") from error
                for name in LEDGER:  # nothing is deleted
                    with suppress(FileNotFoundError):
                        os.rename(
                            options.folder.path / name, options.folder.path / f"{name}.{_make_word()}.damaged"
                        )
                _serve_locked(options, where, lock)
        with suppress(OSError):  # a full disk: then this host is named until the next start here
            os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def _serve_locked(options: ServeOptions, where: Network | None, lock: int) -> None:
    with ExitStack() as stack:
        asyncio.run(_open_and_serve(options, where, stack, lock))


def _not_elsewhere(folder: ServiceFolder) -> None:
    """Raises `InputError` where another host has the folder: its jobs cannot be seen from here."""
    other = folder.elsewhere()
    if other is None:
        return
    if other.lives:
        raise InputError(f"{other}: one folder has one service", where=str(folder.path))
    aside = f"dovetail recover --give-up {shlex.quote(str(folder.path))}"
    raise InputError(
        f"{other}; start it there, or where that host is gone for good, '{aside}' gives up what ran there",
        where=str(folder.path),
    )


def _make_word() -> str:
    return uuid.uuid4().hex[:8]


def _try_lock(folder: ServiceFolder) -> int | None:
    """The folder's lock; ``None`` while another service lives.

    One that was killed may leave it for an instant to a process that it was just starting.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        lock = folder.take_lock()
        # By the lock's own record: in a container the process of a number is soon another one, or we are.
        if lock is not None or folder.holder_process() or time.monotonic() > deadline:
            return lock
        time.sleep(0.02)


class Busy(DovetailError):  # noqa: N818 - reads as what it is
    """Another service has the folder."""

    exit_status = 2

    def __init__(self, folder: ServiceFolder) -> None:
        address = folder.address()
        process = f" (process {address.pid})" if address is not None else ""
        super().__init__(f"{folder.path}: a service runs already{process}")


@dataclass(frozen=True, slots=True)
class Network:
    """Where to listen beside the socket."""

    host: str
    port: int
    tls: ssl.SSLContext | None


def _open_network(options: ServeOptions) -> Network | None:
    if options.listen is None:
        return None
    host, port = parse_listen(options.listen)
    tls = None if options.certificate is None else tls_context(options.certificate, options.key)
    if tls is None and not options.insecure and not is_loopback(host):
        raise InputError(
            f"found {options.listen}, which others can reach, and no certificate; expected --tls-cert, "
            "or --insecure where the network is safe",
            where="--listen",
        )
    return Network(host, port, tls)


# ------------------------------------------------------------------------------------- what there is to do


def _make_settings(options: ServeOptions, cluster: Cluster, before: RunSettings | None) -> RunSettings:
    """What this service keeps to; its id stays from start to start."""
    uid, created = (uuid.uuid4().hex, time.time()) if before is None else (before.uid, before.created)
    policy = load_policy(options.policy).policy_label
    return options.run_settings(uid, created, "service", policy, home_folder(), cluster)


def _choose_cluster(
    options: ServeOptions, backend: Backend, before: RunSettings | None, ledger: Ledger
) -> Cluster:
    """The cluster of the options; the one before while jobs run there."""
    wanted = options.cluster or backend.discover()
    if options.partitions:
        wanted = with_partitions(wanted, options.partitions)
    if before is None:
        return wanted
    known = ledger.cluster(before.cluster)
    # Jobs that run are placed by number on the old nodes: another cluster would move them.
    if wanted.nodes == before.cluster.nodes or not ledger.count_states().get(State.RUNNING):
        return wanted if wanted.nodes != before.cluster.nodes else known
    options.tell("jobs run on the cluster of the last start: it stays until a start at which none runs")
    return known


def _previous_settings(folder: ServiceFolder) -> RunSettings | None:
    """What the service before kept to."""
    if not os.path.lexists(folder.path / "run.json"):
        return None
    try:
        return read_about(folder.path)
    except InputError as error:
        raise InputError(f"{error}; without this file the next start writes it anew") from error


def _write_file(path: Path, data: bytes) -> None:
    """`replace_file`. Raises `InputError`."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _not_gone(options: ServeOptions) -> None:
    """Refuse a folder whose ledger was lost: an empty queue would give its numbers, and names, once more."""
    folder, log = options.folder, options.folder.path / LOG_NAME
    with suppress(FileNotFoundError):
        # A ledger that is there, even an empty one that was just made, is a queue.
        if folder.ledger_path.stat().st_size:
            return
    if not (folder.path / "run.json").exists():
        return
    if not options.new:
        raise InputError(
            f"is gone, and this folder is one of a service; expected it back, or {AFRESH}",
            where=str(folder.ledger_path),
        )
    # Only with `--new`: the numbers start over, and names of output files with them.
    for name in LEDGER:
        (folder.path / name).unlink(missing_ok=True)
    if log.exists() and not recover_run(folder.path).give_up():
        raise InputError(
            "found jobs of the queue before that still run: 'dovetail recover --stop' ends them",
            where="--new",
        )


def _open_executor(
    backend: Backend, folder: ServiceFolder, about: RunSettings, ledger: Ledger
) -> tuple[Executor, LastAttempts]:
    """The executor, and what it finds of before."""
    run = replace(as_run_folder(folder.path, about), endless=True)
    if any((folder.path / name).exists() for name in BEGUN) and isinstance(backend, AdoptsJobs):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return backend.resume(run, about.cluster)
            except ExecutorError:  # the service before is just leaving: we have the folder's lock
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    why, now = "what was started before is no longer on record, so whether it ran is not known", time.time()
    ran = [entry for entry in ledger.open_entries() if entry.state is State.RUNNING]
    # Their processes may still run, though no log knows of them: they would hold the machine unseen.
    end_unlogged({uid_of(about.uid, entry.job.id, entry.attempt) for entry in ran})
    lost = [
        Ended(entry.job.id, State.NODE_FAIL, None, why, Usage(), None, now, entry.attempt, ran=False)
        for entry in ran
    ]
    return backend.open(run, about.cluster), LastAttempts(unknown=lost)


def _end_lost(folder: ServiceFolder, uids: set[str]) -> None:
    """End jobs of which the ledger knows nothing, or not that they run: they would never be taken up."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        left = [job for job in recover_run(folder.path).running if job.uid in uids]
        if not left:
            return
        for job in left:
            if is_alive(job.pid, job.boot):
                # Killed without grace: the ledger does not know them, so nothing waits for their result.
                kill_group(job.pid, signal.SIGKILL)
        time.sleep(0.02)


def _open_journal(folder: ServiceFolder, about: RunSettings, loaded: LoadedPolicy) -> JournalWriter:
    """The next segment; the oldest go."""
    numbers = sorted(int(path.stem) for path in folder.journals_path.glob("*.jsonl") if path.stem.isdecimal())
    # Before the new one is made, so that the number of segments stays bounded.
    for number in numbers[: max(0, len(numbers) - MOST_SEGMENTS + 1)]:
        with suppress(OSError):  # something else has its name, or it has gone
            (folder.journals_path / f"{number:06d}.jsonl").unlink()
    number = (numbers[-1] if numbers else 0) + 1
    return journal_at(folder.journals_path / f"{number:06d}.jsonl", about, loaded)


def _make_checker(loaded: LoadedPolicy) -> Callable[[Sequence[Job], Cluster], None]:
    def check_placeable(jobs: Sequence[Job], cluster: Cluster) -> None:
        """Raises `UnsupportedWorkload` for jobs that the policy cannot place."""
        check_policy(loaded.policy, loaded.name, Workload("submission", jobs, TableTruth()), cluster)

    return check_placeable


# ------------------------------------------------------------------------------------------------ the loop


async def _open_and_serve(options: ServeOptions, where: Network | None, stack: ExitStack, lock: int) -> None:
    """Open everything, take up what was left, serve."""
    signs = SystemdNotifier()  # before anything is started that would inherit the request
    resort = LastResort()
    stack.callback(resort.disarm_timer)  # once all files are closed, too: their disk may be what is stuck
    folder, backend = options.folder, named_backend(options.executor)
    options = replace(options, policy=policy_for(backend, options.policy))
    loaded = load_policy(options.policy)
    _not_gone(options)
    # Listening before the ledger is read, which may take a minute: clients get "is starting" meanwhile.
    starting = Starting(options.socket or folder.default_socket, options.group)
    stack.callback(starting.close)
    ledger = stack.enter_context(Ledger(folder.ledger_path, durable=True))
    before = _previous_settings(folder)
    about = _make_settings(options, _choose_cluster(options, backend, before, ledger), before)
    # On disk before the executor opens: a successor needs it to know what runs here.
    _write_file(folder.path / "run.json", encoded_about(about))
    store = stack.enter_context(SqliteHistory(about.history))
    executor, left = _open_executor(backend, folder, about, ledger)
    beyond = beyond_ledger(ledger, left, folder.forgotten_number())
    if beyond:
        _log.warning("%s %s", folder.path / LOG_NAME, beyond)
        # The log knows jobs that the ledger lost with its disk: they are ended, since no record shows
        # what they were to hold.
        if beyond.running and isinstance(executor, LeavesJobs):
            await executor.leave()
            _end_lost(folder, {uid_of(about.uid, one.job, one.attempt) for one in beyond.running})
            executor, left = _open_executor(backend, folder, about, ledger)
        ledger.note_attempts(beyond.behind)
    check_executor(loaded.policy, loaded.name, executor, about.executor)
    if options.gpu_hours is not None and isinstance(executor, SubmitsJobs):
        raise InputError(
            f"found it with the executor {about.executor}, whose scheduler has limits of its own",
            where="--max-gpu-hours-per-user",
        )
    # One epoch for ledger, driver and loop: times of jobs would otherwise differ by the time of a start.
    ledger.epoch = epoch = time.time()
    try:
        waiting, adopted, ends, outside = sorted_out(ledger, left, epoch)
    except LedgerDamageError:
        if isinstance(executor, LeavesJobs):
            await executor.leave()  # to the one who puts the ledger aside
        raise
    # What was read at the start lives as long as the service: the collector need not look at it again.
    gc.freeze()
    waiting.sort(key=lambda one: by_submission(one.job))
    if any(TURN in one.job.options for one in waiting):
        waiting.sort(key=lambda one: ledger.turn_of(one.job))
    history = stack.enter_context(recording_history(store, folder.path, ledger, options.tell))
    workload = Workload(about.workload, (), TableTruth())
    journal = _open_journal(folder, about, loaded)
    driver = stack.enter_context(
        driver_of(about, loaded, workload, history, ledger, journal, most_at_once=SLICE)
    )
    driver.epoch = epoch
    service: list[Service] = []
    long = [LONG_JOURNAL]

    def notice_change(engine: Engine) -> None:
        service[0].changed(engine)
        usage.changed(engine.view.now)
        hours.changed(engine.view.now)
        current = driver.journal
        if isinstance(current, JournalWriter) and current.size > long[0]:
            # A journal that has grown long begins anew from a checkpoint; until the driver can make one, it
            # goes on.
            old = driver.begin_journal(engine.view.now, lambda: _open_journal(folder, about, loaded))
            if isinstance(old, JournalWriter):
                old.close()
                begun = driver.journal
                assert isinstance(begun, JournalWriter)
                long[0] = LONG_JOURNAL + 2 * begun.size  # it begins with all jobs that have not ended

    # Before any job comes in: what runs already is charged, too.
    hours = HoursBook(folder.gpu_hours_path, options.gpu_hours, epoch)
    if hours.hours is not None:
        driver.limit_hours(hours.hours)
        stack.callback(lambda: hours.write(driver.engine.view.now))
    # Running jobs first: what waits may depend on them, and their places must be taken before any start.
    enter_adopted(driver, adopted, ends)
    enter_outside(driver, outside)
    usage = Used(folder.usage_path, options.fair, epoch)
    driver.order_by_priority(Priorities(priorities=needs_priorities(loaded.policy), shares=usage.shares), 0.0)
    stack.callback(lambda: usage.write(driver.engine.view.now))
    neighbours = neighbours_of(executor, driver, options.tell, options.neighbours)
    if neighbours is not None:
        stack.callback(neighbours.close)
    watchdog = Watchdog()
    stack.callback(watchdog.close)
    live = LiveRun(
        driver,
        executor,
        (),
        stays=True,
        changed=notice_change,
        tell=options.tell,
        neighbours=neighbours,
        elapsed=lambda: time.time() - epoch,
        watch=watchdog,
    )
    found = Service(
        folder,
        about,
        driver,
        live,
        ledger,
        Options(
            options.keep,
            options.user_limit,
            options.max_gpus_per_user,
            options.gpu_hours,
            options.memory_auto,
            {one.name: one for one in options.partitions},
            sends_mail=options.mail is not None,
            limits=options.limits,
        ),
    )
    if options.mail is not None:
        found.notices.add_subscription(mail_subscription(options.mail, ledger, idle=options.mail_idle))
    for hook in options.notify:
        found.notices.add_subscription(notify_subscription(hook))
    found.notices.add_subscription(job_subscription())
    known = [*(one.job for one in waiting), *(one.job for one in adopted)]
    found.repeating.add([*known, *(one.submitted.job for one in outside)], known=True)
    service.append(found)
    stack.callback(found.close)
    found.check = _make_checker(loaded)
    found.longest_instant = lambda: watchdog.longest
    found.shared = folder.is_shared(now=options.group is not None or where is not None)
    if neighbours is not None:
        found.trouble = lambda: neighbours.trouble
        if (guard := neighbours.guard) is not None:
            found.sights = lambda: guard.device_sights(driver)
            found.measured = guard.measured_usage
            guard.notify_idle = found.notices.idle
    nodes = driver.engine.cluster.index_of
    # Drained nodes before the jobs, so the first instant places nothing on them.
    driver.queue_events(
        *(NodeDrained(nodes[name]) for name in folder.drained_nodes() if name in nodes), *waiting
    )
    if paused := folder.paused_kinds():
        driver.queue_events(Paused(tuple(paused)))
        options.tell(f"the queue is paused ({', '.join(paused)}): 'dovetail resume' lets jobs start")
    if (kept := found.reservations.event(driver.engine.cluster, epoch)).reservations:
        driver.queue_events(kept)
    if adopted or waiting or outside:
        runs = len(adopted) - len(ends)
        elsewhere = f", {len(outside)} in the hands of {about.executor}" if outside else ""
        names = ", ".join(islice((one.job.id for one in adopted), MOST_NAMED))
        which = f" ({names}{' …' if len(adopted) > MOST_NAMED else ''})" if adopted else ""
        options.tell(f"taken up: {runs} jobs that run{which}, {len(waiting)} that wait{elsewhere}")
    resort.within = live.over_within
    await _run_until_end(options, where, found, signs, starting, resort, lock)


async def _run_until_end(
    options: ServeOptions,
    where: Network | None,
    service: Service,
    signs: SystemdNotifier,
    starting: Starting,
    resort: LastResort,
    lock: int,
) -> None:
    """The driver and the sockets, until one of them is to end."""
    folder, live = options.folder, service.live
    tokens = Tokens(folder.tokens_path)
    sessions = Sessions(tokens)
    hosts: list[str] = []
    gate = Authentication(
        application(service, sessions, tokens),
        tokens,
        sessions,
        lambda: hosts,
        service.as_job,
        options.max_request,
    )
    listeners = Listeners(gate)
    watching = asyncio.create_task(keep_going(signs.watch, "the signs of life for systemd", live.fail_run))
    looking: asyncio.Task[None] | None = None
    tidying: asyncio.Task[None] | None = None
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_callback_error)
    driving = asyncio.create_task(live.run())
    try:
        path = options.socket or folder.default_socket
        await listeners.at_socket(starting.hand_over())
        if where is not None:
            _first_token(folder, tokens, options.tell)
            url = await listeners.at_address(where.host, where.port, where.tls)
            hosts += names_of(url)

        def note_address(place: Path) -> Address:
            """Note where clients find us from now on."""
            found = Address(str(place), os.getpid(), tuple(listeners.urls), __version__)
            _write_file(folder.path / "address.json", json.dumps(asdict(found)).encode() + b"\n")
            return found

        address = note_address(path)
        ground = Ground(service, listeners, path, options.group, lock, note_address)
        looking = asyncio.create_task(
            keep_going(
                ground.watch, "the look at socket, lock and ledger", lambda error: _log.error("%s", error)
            )
        )
        tidying = asyncio.create_task(
            keep_going(
                service.tidying.watch, "the removal of what is old", lambda error: _log.error("%s", error)
            )
        )
        if why := why_ended_at_logout(path, os.geteuid()):
            options.tell(why)
        # Only now: before the loop runs there is nothing that could leave in good order.
        for number in (signal.SIGINT, signal.SIGTERM):
            resort.handle_signal(number, live.leave)
        loop.add_signal_handler(signal.SIGHUP, options.reopen)
        service.listeners = listeners
        service.hosts = hosts
        options.ready(address)
        signs.send_lines("READY=1", f"STATUS=listening at {path}")
        _log.info("service started: process %d, version %s, in %s", os.getpid(), __version__, folder.path)
        await driving
        first = os.getpid() == 1
        _log.info("service ends; %s", "what runs ends with this container" if first else "what runs goes on")
    finally:
        # In this order: no new requests are wanted, what is under way ends, and the sockets go last.
        signs.send_lines("STOPPING=1")
        watching.cancel()
        for task in (looking, tidying):
            if task is not None:
                task.cancel()
        live.leave()
        await asyncio.gather(driving, return_exceptions=True)
        await listeners.close()
        await service.forecast.close()


def _log_callback_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a callback; what the machine lacks for a moment in one line."""
    error = context.get("exception")
    if isinstance(error, OSError):
        _log.error("%s: %s", context["message"], error.strerror or error)
    else:
        loop.default_exception_handler(context)


def _first_token(folder: ServiceFolder, tokens: Tokens, tell: Callable[[str], None]) -> None:
    """Who listens on a network has a token from its first start on, for its own account."""
    if tokens.all():
        return
    secret = tokens.add(name_of(os.geteuid()), admin=True)
    _write_file(folder.secret_path, secret.encode() + b"\n")
    tell(f"a token for this account is in {folder.secret_path}; 'dovetail token add NAME' makes others")
