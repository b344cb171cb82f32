"""The service itself: what it offers to clients, in the one loop in which its driver runs.

Every change is on disk before it is answered: jobs by a transaction and a sync that requests share, what
people want of jobs by the instant that takes it in.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from typing import Any, Literal, TypeVar

from dovetail.client.errors import Forbidden, Full, NotFound
from dovetail.client.folder import ServiceFolder
from dovetail.driver.admission import GPU_HOURS, HELD
from dovetail.driver.driver import Driver
from dovetail.driver.gpu_hours import HourLimit, excess_of
from dovetail.driver.live import TURNS, LiveRun
from dovetail.driver.wishes import WISH_EVENTS, Wish, refusal_of
from dovetail.engine.journal.codec import encode_app, encode_job
from dovetail.engine.state.core import Engine
from dovetail.engine.state.phases import Phase
from dovetail.engine.state.suspensions import EVERYWHERE
from dovetail.errors import DovetailError, HistoryError, InputError
from dovetail.files.sentences import show_value
from dovetail.interfaces import ChecksJobs, ShortensLog, SignalsJobs, SubmitsJobs
from dovetail.local.executor import MachineExecutor
from dovetail.model import (
    Cancelled,
    Cluster,
    Dependency,
    Job,
    JobId,
    NodeDrained,
    NodeJoined,
    Paused,
    Recipients,
    Record,
    Seconds,
    Signalled,
    State,
    Submitted,
    Usage,
)
from dovetail.model.marks import own_number
from dovetail.plugins import named_backend
from dovetail.records import dataclass
from dovetail.running.device_guard import DeviceSight
from dovetail.running.folder import RunSettings
from dovetail.running.ledger import Action, Entry, Ledger, docs_of
from dovetail.service.archive import MOST_FOUND, Archive
from dovetail.service.elsewhere import Elsewhere
from dovetail.service.forecast import Forecast
from dovetail.service.forms import ReserveForm, SubmitForm, TerminalForm, UpdateForm
from dovetail.service.gpu_hours import hours_words
from dovetail.service.http import Listeners, names_of
from dovetail.service.metrics import Figures
from dovetail.service.notices import Notices
from dovetail.service.open_jobs import OpenJobs, name_of
from dovetail.service.partitions import Partition
from dovetail.service.people import Principal
from dovetail.service.repeating import EVERY, MOST, RepeatingJobs
from dovetail.service.reservations import ReservationBook
from dovetail.service.rows import Row, device_use, foretold_row, row_of_entry, row_of_record
from dovetail.service.selectors import Selector, parse_selectors
from dovetail.service.stable import GroupCommit
from dovetail.service.submission import (
    MOST_DEPENDS,
    Submission,
    Submitter,
    numbers_of,
    return_memory,
    submission_of,
    write_scripts,
)
from dovetail.service.terminals import Terminals
from dovetail.service.tidying import Limits, Removed, Tidying
from dovetail.service.updating import is_singleton, job_with
from dovetail.workloads.spec_forms import part_of

__all__ = ["Action", "Options", "Service"]

_log = logging.getLogger(__name__)
T = TypeVar("T")
SLICE = 500
"""Jobs of a long submission, a long cancel, or waiting for one end, that one instant takes in."""
MOST_TESTED, APART = 1_000, 1_000_000_000
"""Jobs that may be tested at once, and how far their numbers are from those of jobs that come meanwhile."""
MANY = 5_000
"""Jobs of a submission whose forms took much memory, which is free so long after it."""
SETTLED: Seconds = 5.0
MOST_KEPT = 10_000
"""Ended jobs in memory, however young."""
LOOKS_AT_LOG = 256
"""Instants between two looks at how long the executor's record has grown; at first there are fewer, since a
service that is often restarted has no more of them."""
MOST_SHOWN = 100
"""Characters of an array's indices in a sentence."""
FAILED = (State.FAILED, State.TIMEOUT, State.NODE_FAIL, State.OUT_OF_MEMORY)
"""States of jobs that have failed."""
LEAST_GAP = 1e-6
"""Between the places of two jobs, for another one to have room there."""
MOST_BEHIND = 16
"""Jobs that one move puts behind another job: each halves the room that is left there."""
PATIENCE: Seconds = 5.0
"""Within which a change must be on record, else the client gets the reason."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a service keeps to beside `RunSettings`: ``keep`` is how long ended jobs stay in memory."""

    keep: Seconds = 3600.0
    user_limit: int | None = None
    max_gpus_per_user: int | None = None
    gpu_hours: HourLimit | None = None
    memory_auto: bool = False
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    sends_mail: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class SelectedJob:
    """A job that a client's text selects."""

    id: JobId
    state: State
    user: str | None

    @property
    def ended(self) -> bool:
        """Whether it has ended, as of when it was looked for."""
        return self.state not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class WishAnswer:
    """The jobs that were changed as wished, and why not the others."""

    done: Sequence[JobId]
    refused: Mapping[JobId, str]


class Service:
    """One queue. All methods are to be called in its loop."""

    def __init__(
        self,
        folder: ServiceFolder,
        about: RunSettings,
        driver: Driver,
        live: LiveRun,
        ledger: Ledger,
        options: Options,
    ) -> None:
        self.folder, self.about, self.options = folder, about, options
        self.driver, self.live, self.ledger = driver, live, ledger
        self.archive = Archive(folder.ledger_path, lambda: self.engine.cluster)
        self.stable = GroupCommit(ledger.sync)
        self.makers = ThreadPoolExecutor(2, "submissions")
        self.began = time.time()
        self.changes: int = 0  # grows with everything that happens
        self.forecast = Forecast(folder.path, lambda: self.changes)
        self.elsewhere = Elsewhere(about.uid, about.cluster, local=about.executor == "local")
        self.figures = Figures()
        self._down: tuple[set[int], set[int]] = set(), set()  # nodes that are lost, and drained
        self.check: Callable[[Sequence[Job], Cluster], None] = lambda jobs, cluster: None  # raises InputError
        self.shared = True  # whether others than this account may submit, or once might
        self.longest_instant: Callable[[], Seconds] = lambda: 0.0
        self.trouble: Callable[[], str] = lambda: ""  # why nothing can be claimed on this machine now
        self.sights: Callable[[], Mapping[tuple[int, str], DeviceSight]] = dict  # of devices with drivers
        self.measured: Callable[[JobId, int], Usage | None] = lambda job, attempt: None  # of jobs that run
        self.listeners: Listeners | None = None
        self.hosts: list[str] = []
        self._next = max(ledger.last_number() or folder.last_number(), folder.last_output()) + 1
        self._incoming: deque[Submitted] = deque()
        self._kept: deque[tuple[Seconds, JobId]] = deque()
        self._settling: list[asyncio.Future[None]] = []
        self._watchers: dict[JobId, list[asyncio.Future[None]]] = {}
        self._listeners: set[asyncio.Event] = set()
        self._torn = ""  # why the ledger cannot be written anew, though it has to be
        self._open_jobs = OpenJobs(driver.engine)
        self._waited: Counter[JobId] = Counter()  # for which clients wait, ended ones among them
        self.tidying = Tidying(folder, ledger, self.archive, options.limits, self._wanted_jobs)
        self.notices = Notices(driver, self.make_row)
        self.repeating = RepeatingJobs(ledger.has_next)
        self.reservations = ReservationBook(folder)
        self.terminals = Terminals(folder)

    def close(self) -> None:
        """Let the threads go."""
        self.notices.close()
        self.makers.shutdown()
        self.archive.close()
        self.stable.close()

    # ------------------------------------------------------------------ what happens

    @property
    def engine(self) -> Engine:
        """The driver's engine."""
        return self.driver.engine

    def as_job(self, pid: int) -> str | None:
        """The user of the job that has started this process; ``None`` where no job has.

        Raises `Forbidden` where that is not known.
        """
        executor = self.live.executor
        if not isinstance(executor, MachineExecutor):
            return None
        try:
            below, job = executor.asked_by_job(pid)
            entry = self.ledger.find_entry(job) if below else None
        except (OSError, HistoryError):
            # In doubt it is a job: the rights of the service's own account must not leak into one.
            below, entry = True, None
        if not below:
            return None
        if entry is None or entry.job.user is None:
            raise Forbidden("the request comes from a job, but from which one is not known")
        return entry.job.user

    @property
    def why_blocked(self) -> str | None:
        """Why nothing starts now though there may be room; ``None`` where nothing is in the way."""
        return self.ledger.why_blocked if self.driver.is_blocked else self.live.lack or self.trouble() or None

    @property
    def driver_epoch(self) -> Seconds:
        """Wall-clock time of the driver's time 0."""
        return self.driver.epoch

    def changed(self, engine: Engine) -> None:
        """After every instant: answer those who wait, forget what is old, take in more of what has come."""
        self.changes += 1
        # Ends first: a request that waits for a job must find it ended, on record and in the figures.
        now = engine.view.now
        ended = self.driver.ended()
        self.notices.changed(ended, now)
        for record in ended:
            try:
                self._keep_ended_job(record, now)
            except Exception:  # noqa: BLE001 - what it is stands in the log, and ends nothing else
                _log.exception("an error in Dovetail after the end of job %s", record.job.id)
        keep = self.options.keep
        # Memory is bounded twice, by age and by number: ended jobs are in the ledger and found there.
        while self._kept and (self._kept[0][0] + keep < now or len(self._kept) > MOST_KEPT):
            self._retire_job(self._kept.popleft()[1])
        if self.repeating:
            self._submit_repeats(now)
        self._take_in_some()
        # Taken over, since a future that is set may lead to the next call before this loop is over.
        settling, self._settling = self._settling, []
        for future in settling:
            if not future.done():
                future.set_result(None)
        for listener in self._listeners:
            listener.set()
        if (engine.lost, engine.occupancy.drained) != self._down:
            self._tell_of_nodes(engine)
        with suppress(Full):  # it ends then, and logs the reason
            self.see_the_folder()
        if self.changes % min(LOOKS_AT_LOG, 1 << self.changes.bit_length() - 1) == 0:
            self._shorten_log()

    def _tell_of_nodes(self, engine: Engine) -> None:
        """Log which nodes have gone or come back."""
        before, self._down = self._down, (set(engine.lost), set(engine.occupancy.drained))
        for was, now, gone in zip(before, self._down, ("lost", "drained"), strict=True):
            for n in sorted(was ^ now):
                what = gone if n in now else "back"
                level = logging.WARNING if what == "lost" else logging.INFO
                _log.log(level, "node %s is %s", engine.cluster.nodes[n].name, what)

    def _shorten_log(self) -> None:
        """Have the executor forget what is on record here, where that has grown long."""
        executor, driver = self.live.executor, self.driver
        if driver.pending or driver.is_blocked:  # an end may be known that is not on record yet
            return
        if not isinstance(executor, ShortensLog) or not executor.has_long_log():
            return
        # On the disk before the executor forgets: each end must be in one of the two at any time.
        try:
            self.ledger.sync()
        except OSError:  # the log stays as it is until the disk takes it
            return
        executor.shorten_log()

    def _keep_ended_job(self, record: Record, now: Seconds) -> None:
        job = record.job.id
        if record.job.foreign:
            self.driver.retire_job(job)
            return
        self._kept.append((now, job))
        self.figures.add(record)
        detail = f": {record.detail}" if record.detail else ""
        ran = "" if record.run_time is None else f" after {record.run_time:.3g} s"
        _log.info("job %s ended: %s%s%s", job, record.state, ran, detail, extra={"job": job})
        for future in self._watchers.pop(job, ()):
            if not future.done():
                future.set_result(None)

    def _submit_repeats(self, now: Seconds) -> None:
        """Submit the next runs of jobs that have started and are to run again and again."""
        for job in list(self.repeating.started(self.engine)):
            number, self._next = self._next, self._next + 1
            following = self.repeating.next_run(job, str(number), now, self.driver_epoch)
            try:
                self.ledger.submit([following], self.driver_epoch, batch=number, numbers=[(number, None)])
            except HistoryError as error:  # a full disk: it is tried again after the next instant
                self._give_back(number, 1)
                _log.warning("the next run of job %s could not be put on record: %s", job.id, error)
                return
            self.repeating.done(job.id, following.id)
            self._incoming.append(Submitted(following))
            _log.info("job %s runs again as job %s", job.id, following.id, extra={"job": job.id})

    def _retire_job(self, job: JobId) -> None:
        if self.engine.phase_of(job) is Phase.ENDED:  # not, if it was requeued meanwhile
            # The ledger keeps the row; only the engine and its caches forget.
            self.driver.retire_job(job)
            self.ledger.forget_job(job)
            self.repeating.forget_job(job)

    async def await_instant(self) -> None:
        """Have the next instant, and wait until it is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(future)
        self.live.wake_loop()
        await future

    async def on_record(self) -> None:
        # Before and after: a folder that was removed while we waited would make the answer a lie.
        """Wait until all that was decided is on the disk; raises `Full`."""
        self.see_the_folder()
        deadline = time.monotonic() + PATIENCE
        while self.driver.is_blocked:
            if time.monotonic() > deadline:
                raise Full(self.ledger.why_blocked)
            await asyncio.sleep(0.2)
        try:
            await self.stable.wait()
        except OSError as error:
            raise Full(f"{self.ledger.path}: cannot be synced: {error.strerror}") from error
        self.see_the_folder()

    def see_the_folder(self) -> None:
        """Raises `Full` where the folder was deleted, and then ends the service: nothing is kept any more.

        Where only what lies beside the ledger was, the ledger is written anew: what was acknowledged last is
        on no disk else. Raises `Full` where that cannot be done now.
        """
        if not self.ledger.is_there:
            gone = (
                f"{self.ledger.path}: is gone since this service has begun, so nothing is on disk any more: "
                "the service ends; what runs goes on"
            )
            self.live.fail_run(DovetailError(gone))
            raise Full(gone)
        if not self.ledger.is_whole:
            self._write_ledger_anew()

    def _write_ledger_anew(self) -> None:
        self.archive.reopen_database()
        self.forecast.forget_process()
        try:
            # In this order, since the readers hold the old file open and would go on reading from it.
            self.ledger.write_anew()
        except HistoryError as error:
            why = (
                f"{error}; it, or what belongs beside it, was removed or cut, so what was written last is on "
                "no disk"
            )
            if why != self._torn:
                self._torn = why
                _log.error("%s", why)
            raise Full(why) from error
        self._torn = ""
        _log.warning(
            "%s: the files beside it (-wal, -shm), or parts of it, were removed under this service: all that "
            "is known is written into a new one, nothing is lost",
            self.ledger.path,
        )

    # ------------------------------------------------------------------ submitting

    async def submit(self, form: SubmitForm, person: Principal) -> Submission:
        """Take in jobs; when this returns they are on the disk. Raises `InputError`, `Forbidden`, `Full`.

        A dry run returns what would be taken in, and takes in nothing.
        """
        self._check_priorities(form, person)
        if form.interactive and self.about.executor != "local":
            raise InputError(
                f"interactive: found the executor {self.about.executor!r}, and only 'local' has terminals"
            )
        # Refused before numbers are given: they would be lost with a full disk.
        if self.driver.is_blocked or self.live.lack:
            raise Full(self.ledger.why_blocked or self.live.lack)
        count = sum(numbers_of(job.array, own=bool(job.variables)) for job in form.jobs)
        first, self._next = self._next, self._next + count
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            # Numbers go back where nothing was submitted, so that a refused request leaves no gap.
            undo.callback(self._give_back, first, count)
            found = await self._make_submission(form, person, first)
            if form.dry_run:
                return found
            # Scripts before the rows that name them: a row without its script could never start.
            await loop.run_in_executor(self.makers, write_scripts, found.scripts)
            now = self.live.now
            jobs = self._behind_namesakes([replace(job, submit_time=now) for job in found.jobs])
            docs = None
            # Encoding thousands of jobs takes seconds, so it is done outside of the loop.
            if len(jobs) > SLICE:  # that takes long
                docs = await loop.run_in_executor(self.makers, docs_of, jobs)
            self._insert_jobs(jobs, found, first, docs)
            undo.pop_all()
        # The answer must not come before the disk has it: the client takes it as a promise.
        await self.on_record()
        self.repeating.add(jobs)
        self._incoming.extend(Submitted(job, HELD if job.id in found.held else "") for job in jobs)
        # From here the engine learns of them, some at a time, so a large array does not stop the loop.
        self._take_in_some()
        more = {"job": found.ids[0]} if len(found.ids) == 1 else None
        words = "%s submitted by %s: %s"
        _log.info(words, _named(found.ids), person.name, _names_in_log(jobs), extra=more)
        if len(jobs) > MANY:
            loop.call_later(SETTLED, self.makers.submit, return_memory)
        return found

    async def foretell_jobs(self, form: SubmitForm, person: Principal) -> dict[str, Any]:
        """When jobs would start and end if they were submitted now; nothing of them is kept.

        Raises what `submit` does.
        """
        self._check_priorities(form, person)
        # Numbers far above all real ones, so that a test's jobs cannot be taken for those of the queue.
        found = await self._make_submission(form, person, self._next + APART)
        if len(found.jobs) > MOST_TESTED:
            raise InputError(f"found {len(found.jobs):,} jobs, expected at most {MOST_TESTED} to be tested")
        # By its method: `WatchesQueue` itself would bring all of the roll-outs into this process.
        watches = hasattr(named_backend(self.about.executor), "watch_queue")
        if isinstance(self.live.executor, SubmitsJobs) and not watches:
            raise InputError("found a scheduler outside that decides, and whose queue cannot be read")
        now = time.time()
        jobs = [
            {
                "name": job.app.name,
                "app": encode_app(job.app),
                "job": encode_job(replace(job, submit_time=now)),
            }
            for job in found.jobs
            if job.id not in found.held
        ]
        foreseen = await self.forecast.ask({"jobs": jobs})
        rows = [foretold_row(job, foreseen) for job in found.ids]
        for row in rows:  # the number that it would get
            number, *element = row["id"].split("_")
            row["id"] = "_".join([str(int(number) - APART), *element])
        return {"at": foreseen["at"], "jobs": rows}

    async def foretell_others(self, id: JobId) -> dict[str, Any]:
        """When a waiting job would start if its owner had requested something else. Raises `InputError`."""
        found = await self.forecast.ask({"sooner": id})
        plain, *others = [
            {
                "with": one["change"],
                "job": foretold_row(
                    id, {"jobs": {id: (one["start"], one["end"])}, "spans": {id: one["span"]}}
                ),
                "differs": one["sooner"],
                "later": one["later"],
            }
            for one in found["rows"]
        ]
        for row in (plain, *others):
            del row["job"]["draws"]
        return {"at": found["rows"][0]["at"], "job": plain["job"], "sooner": others}

    def _check_priorities(self, form: SubmitForm, person: Principal) -> None:
        if any(job.priority > 0 for job in form.jobs) and not person.admin:
            raise Forbidden("priority: only the service's own account may set more than 0")

    async def _make_submission(self, form: SubmitForm, person: Principal, first: int) -> Submission:
        """The jobs of a request, checked; nothing of them is kept yet."""
        loop = asyncio.get_running_loop()
        known = await self._depended_on(form, person)
        guest, partitions = isinstance(self.live.executor, SubmitsJobs), self.options.partitions
        limit, learns = self.options.user_limit, self.options.memory_auto
        mail, most = self.options.sends_mail, self.options.max_gpus_per_user
        usual, hours = self.driver.options.default_walltime, self.options.gpu_hours
        owner = person.admin
        who = Submitter(person.name, limit, most, hours, usual, learns, guest, partitions, mail, owner)
        scripts, cluster = str(self.folder.scripts_path), self.engine.cluster
        found = await loop.run_in_executor(
            self.makers, submission_of, form, who, cluster, first, scripts, known
        )
        self.check(found.jobs, cluster)
        # A chain submits itself for ever, so their number is bounded apart from that of the jobs.
        chains = len(self.repeating) + sum(EVERY in job.options for job in found.jobs)
        if chains > MOST:
            raise InputError(f"every: found {chains} jobs that run again, expected at most {MOST:,}")
        if isinstance(self.live.executor, ChecksJobs) and not guest:
            await loop.run_in_executor(None, self.live.executor.check, found.jobs)
        return found

    def _give_back(self, first: int, count: int) -> None:
        """Numbers that no job got, unless later ones are given already."""
        if self._next == first + count:
            self._next = first

    def _behind_namesakes(self, jobs: list[Job]) -> list[Job]:
        """A singleton waits for all jobs of its name and user that came before it, as in sbatch.

        Among singletons a throttle sees to that; those that are none have to be named. Linear in the open
        jobs of these names. Raises `InputError`.
        """
        if not any(map(is_singleton, jobs)):
            return jobs
        before: dict[tuple[str | None, str], list[JobId]] = {}
        for key in {(job.user, name_of(job)) for job in jobs if is_singleton(job)}:
            # what came in a moment ago is in no queue yet
            events = [*self._incoming, *self.driver.pending]
            coming = [one.job for one in events if isinstance(one, Submitted)]
            page, _ = self._open_jobs.page(*key, len(self._open_jobs), 0, running=True, waiting=True)
            alike = [*(one.job for one in page), *(one for one in coming if (one.user, name_of(one)) == key)]
            before[key] = [one.id for one in alike if not is_singleton(one)]
        found: list[Job] = []
        pairs = 0
        for job in jobs:
            others = before.get((job.user, name_of(job)))
            if others is None:
                found.append(job)
            elif is_singleton(job):
                waits = dict.fromkeys((*job.depends, *(Dependency("afterany", id) for id in others)))
                pairs += len(waits)
                found.append(replace(job, depends=tuple(waits)))
            else:
                others.append(job.id)
                found.append(job)
        if pairs > MOST_DEPENDS:
            raise InputError(
                f"singleton: found {pairs:,} pairs of a job and one of its name that came before, expected "
                f"at most {MOST_DEPENDS:,}"
            )
        return found

    def _insert_jobs(
        self, jobs: Sequence[Job], found: Submission, first: int, docs: Sequence[bytes] | None
    ) -> None:
        try:
            self.ledger.submit(
                jobs, self.driver_epoch, batch=first, numbers=found.numbers, held=found.held, docs=docs
            )
        except HistoryError as error:
            raise Full(str(error)) from error

    def _take_in_some(self) -> None:
        """Give the driver more of what was submitted; a long submission is no long instant."""
        for _ in range(min(SLICE, len(self._incoming))):
            self.driver.queue_events(self._incoming.popleft())
        if not self.driver.idle:
            self.live.wake_loop()

    async def _depended_on(self, form: SubmitForm, person: Principal) -> dict[str, list[JobId]]:
        """Ids of the jobs that dependencies name: by number (and element); of a name the last job."""
        texts = [text for job in form.jobs for text in job.depends]
        names = {text.removeprefix("aftercorr:") for text in texts if text.startswith("aftercorr:")}
        names |= {Dependency.parse(text).job for text in texts if not text.startswith("aftercorr:")}
        names -= {job.id for job in form.jobs if job.id is not None}
        return await self._ids_by_names(names, person)

    async def _ids_by_names(self, names: Iterable[str], person: Principal) -> dict[str, list[JobId]]:
        """Ids of the jobs that these words mean where something depends on them."""
        found: dict[str, list[JobId]] = {}
        for name in names:
            selectors = parse_selectors(name)
            # A range or `all` would make a dependency on jobs that do not exist yet mean different ones
            # later.
            if len(selectors) != 1 or selectors[0].kind == "all":
                raise InputError(f"depends: found {name!r}, expected the number of a job, a name, or 'last'")
            ids = [one.id for one in await self._find_selected(selectors[0], person)]
            self.tidying.named.update(ids)  # nothing of them is forgotten before this is on record
            found[name] = ids[-1:] if selectors[0].kind == "name" else ids
        return found

    # ------------------------------------------------------------------ who is meant

    async def select_jobs(self, text: str, person: Principal, limit: int = MOST_FOUND) -> list[SelectedJob]:
        # Kept in a dict: texts may overlap, and a job must not be acted on twice.
        """The jobs that a text selects, each once. Raises `InputError`, `NotFound`.

        Of a range of numbers at least the first ``limit``, and perhaps no more.
        """
        found: dict[JobId, SelectedJob] = {}
        for selector in parse_selectors(text):
            some = await self._find_selected(selector, person, limit)
            if not some and selector.kind != "all":
                raise NotFound(f"found no job {_describe_selector(selector)}")
            found.update((one.id, one) for one in some)
        return list(found.values())

    async def select_known_jobs(self, text: str, person: Principal) -> list[JobId]:
        """As `select_jobs`, but numbers and names that no job has are passed over. Raises `InputError`."""
        found: dict[JobId, None] = {}
        for selector in parse_selectors(text):
            found.update((one.id, None) for one in await self._find_selected(selector, person))
        return list(found)

    async def _find_selected(
        self, selector: Selector, person: Principal, limit: int = MOST_FOUND
    ) -> list[SelectedJob]:
        run, archive = asyncio.get_running_loop().run_in_executor, self.archive
        if selector.kind == "numbers":
            rows = await run(
                archive.query_thread, archive.find_by_numbers, *selector.numbers, selector.elements, limit
            )
            first, last = selector.numbers
            # A single number may be that of an element: arrays with numbers of their own take one per
            # element.
            if not rows and first == last and not selector.elements:
                rows = await run(archive.query_thread, archive.of_array, first)
                rows = [row for row in rows if self._is_number_of(row[0], first)]
        elif selector.kind == "name":
            rows = await run(archive.query_thread, archive.find_by_name, selector.name)
        elif selector.kind == "last":
            rows = await run(archive.query_thread, archive.last_batch, person.name)
        else:
            rows = await run(archive.query_thread, archive.open_jobs)
        if selector.kind in ("name", "all"):
            rows = [row for row in rows if person.may_change(row[2])]
        return [SelectedJob(id, State(state), user) for id, state, user in rows]

    def _is_number_of(self, id: JobId, number: int) -> bool:
        """Whether a job of an array has this number as its own."""
        launch = self.fetch_entry(id).job.launch
        return launch is not None and bool(launch.indices) and own_number(id, launch.indices) == str(number)

    # ------------------------------------------------------------------ wishes

    async def act_on_jobs(
        self, action: Action, text: str | None, person: Principal, *, failed: bool = False
    ) -> WishAnswer:
        """Cancel, hold, release or requeue; of which jobs that is done, and why not of the others.

        With ``failed`` only those of them that have failed; without a text all of these of this person.

        Raises `InputError`, `NotFound`, `Forbidden` (then nothing happens to any of them), `Full`.
        """
        meant = await self._to_change(text, person, failed=failed)
        if action == "cancel":
            meant = self._with_next_runs(meant)
        refused = {one.id: why for one in meant if (why := self._refusal_reason(action, one))}
        wanted = [one.id for one in meant if one.id not in refused]
        # On record before the driver acts: a wish that was answered must survive a crash in between.
        if wanted:
            try:
                self.ledger.record_wish(action, wanted)
            except HistoryError as error:
                raise Full(str(error)) from error
            refused |= await self._fulfil_wishes(action, wanted, person)
            # What the driver refused later is taken back on record, or the next start would repeat it.
            late = [job for job in wanted if job in refused]
            for job in late:
                self.ledger.correct_wish(job, self.driver.pending_wish(job))
            if late:
                self.ledger.settle()
            await self.on_record()
        _log_wish(action, person, wanted, refused)
        return WishAnswer([one.id for one in meant if one.id not in refused], refused)

    def _with_next_runs(self, meant: Sequence[SelectedJob]) -> list[SelectedJob]:
        """Jobs that are to be cancelled, and the next runs of those that run: a chain ends as a whole."""
        found = {one.id: one for one in meant}
        # Else the next run would start after the user has cancelled the chain.
        for one in meant:
            id = None if one.ended else self.repeating.next_of(one.id)
            record = None if id is None else self.engine.records.get(id)
            if id is not None and record is not None and record.state is State.PENDING:
                found.setdefault(id, SelectedJob(id, record.state, one.user))
        return list(found.values())

    async def _to_change(
        self, text: str | None, person: Principal, *, failed: bool = False
    ) -> list[SelectedJob]:
        """The selected jobs that a person may change; the engine knows all of them that have not ended."""
        if text is None:
            rows = await self.ask(lambda archive: archive.failed(person.name, [*map(str, FAILED)]))
            meant = [SelectedJob(id, State(state), user) for id, state, user in rows]
        else:
            meant = await self.select_jobs(text, person)
        if failed:
            meant = [one for one in meant if one.state in FAILED]
            if not meant:
                raise NotFound("found no job that has failed")
        # All are checked before any is touched: a request is refused as a whole.
        for one in meant:
            if not person.may_change(one.user):
                raise Forbidden(f"job {one.id} belongs to {one.user}")
        # What has come but is not taken in yet would be unknown to the driver.
        if self._incoming or not self.driver.idle:
            while self._incoming:
                self.driver.queue_events(self._incoming.popleft())
            await self.await_instant()  # a wish needs the engine to know its job
        return meant

    async def update(self, form: UpdateForm, person: Principal) -> WishAnswer:
        """Change waiting jobs, and the walltime of running ones; of which it is done, and why not of others.

        Raises `InputError`, `NotFound`, `Forbidden`, `Full`.
        """
        part = part_of(form.changes, "http")
        if not part:
            raise InputError("changes: found nothing to change")
        if part.get("priority", 0) > 0 and not person.admin:
            raise Forbidden("priority: only the service's own account may set more than 0")
        meant = await self._to_change(form.jobs, person)
        names = {text.partition(":")[2] for text in part.get("depends", ())}
        known = await self._ids_by_names(names, person)
        for name in names:
            if not known.get(name):
                raise InputError(f"depends: found {show_value(name)}, a job that is not there")
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        refused: dict[JobId, str] = {}
        wishes: dict[JobId, Wish] = {}
        for one in meant:
            # It has left memory, so it has ended: the same words as for one that has just ended.
            if self.engine.phase_of(one.id) is Phase.UNKNOWN:
                refused[one.id] = refusal_of(Cancelled(one.id), Phase.ENDED, new=False)
                continue
            try:
                job = self.engine.choices.whole(one.id)
                into, fields = job_with(job, part, self.engine.cluster, known)
                self.check([into], self.engine.cluster)
                if self.options.gpu_hours is not None and "walltime" in fields:
                    excess = excess_of(into, into.walltime, self.options.gpu_hours)
                    if excess:
                        raise InputError(f"walltime: {excess}")
            except DovetailError as error:
                refused[one.id] = str(error)
                continue
            wishes[one.id] = self.driver.update(one.id, into, fields)
        # Settled at the next instants; a loop, since an instant may have been under way already.
        while not all(wish.is_settled for wish in wishes.values()):
            await self.await_instant()
        refused |= {job: wish.refused for job, wish in wishes.items() if wish.refused}
        await self.on_record()
        _log_wish("update", person, list(wishes), refused)
        return WishAnswer([one.id for one in meant if one.id not in refused], refused)

    async def signal(self, text: str, number: int, to: Recipients, person: Principal) -> WishAnswer:
        """Send running jobs a signal; they go on. To which it was sent, and why not to others.

        Raises `InputError`, `NotFound`, `Forbidden`, `Full`.
        """
        if not isinstance(self.live.executor, SignalsJobs):
            raise InputError(f"signal: jobs of {self.about.executor} cannot be sent one")
        meant = await self._to_change(text, person)
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        event = Signalled("", number, to)
        refused: dict[JobId, str] = {}
        wishes: dict[JobId, Wish] = {}
        for one in meant:
            phase = self.engine.phase_of(one.id)
            ended = phase is Phase.UNKNOWN and one.ended
            why = refusal_of(event, Phase.ENDED if ended else phase, new=False)
            if why:
                refused[one.id] = why
            else:
                wishes[one.id] = self.driver.signal(one.id, number, to)
        while not all(wish.is_settled for wish in wishes.values()):
            await self.await_instant()
        refused |= {job: wish.refused for job, wish in wishes.items() if wish.refused}
        done = [one.id for one in meant if one.id not in refused]
        for job in done:
            _log.info("job %s is sent signal %d by %s", job, number, person.name, extra={"job": job})
        await self.on_record()
        return WishAnswer(done, refused)

    async def move_jobs(self, text: str, after: str | None, person: Principal) -> WishAnswer:
        """Give waiting jobs the places after another one, or the first; priorities go before places.

        Several keep their order; behind several others they come after the last of these. Raises
        `InputError`, `NotFound`, `Forbidden`, `Full`.
        """
        meant = [one.id for one in await self._to_change(text, person)]
        others = [] if after is None else [one.id for one in await self.select_jobs(after, person)]
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        records = self.engine.records
        waiting = [record.job for record in records.values() if record.state is State.PENDING]
        # Places as numbers with gaps, so a move changes these jobs and not the whole queue.
        turns = {job.id: self.ledger.turn_of(job) for job in waiting}
        # Of several the last one that waits; where none does, the first one has the reason.
        other = max((id for id in others if id in turns), key=turns.__getitem__, default=None)
        other = other if other is not None or after is None else others[0]
        refused = {id: why for id in meant if (why := self._why_not_moved(id, other))}
        moving = sorted((id for id in meant if id not in refused), key=turns.__getitem__)
        if not moving:
            return WishAnswer([], refused)
        count = len(moving)
        if other is None:
            low, step = min(turns.values()) - count - 1.0, 1.0
        else:
            if count > MOST_BEHIND:
                raise InputError(
                    f"job: found {count} jobs, expected at most {MOST_BEHIND} behind another one"
                )
            low, there = turns[other], set(moving)
            behind = min((t for job, t in turns.items() if t > low and job not in there), default=low + 1.0)
            step = (behind - low) / (count + 1)
            # Too many moves to one spot use the gap up; refused rather than renumbering jobs on record.
            if step < LEAST_GAP:
                why = "too many jobs were moved there: move it after another one"
                return WishAnswer([], refused | dict.fromkeys(moving, why))
        places = {id: low + step * (number + 1) for number, id in enumerate(moving)}
        # Up to the place only: a user may let others go first, but not pass them.
        if not person.admin:
            for job in waiting:
                if job.user != person.name and any(t < turns[job.id] < turns[id] for id, t in places.items()):
                    raise Forbidden(f"job {job.id} belongs to {job.user}, and would wait longer")
        # The last one first: each goes right behind the other one, before those that went there already.
        wishes = {id: self.driver.move_job(id, other, places[id]) for id in reversed(moving)}
        while not all(wish.is_settled for wish in wishes.values()):
            await self.await_instant()
        refused |= {id: wish.refused for id, wish in wishes.items() if wish.refused}
        await self.on_record()
        _log_wish("move", person, moving, refused)
        return WishAnswer([id for id in moving if id not in refused], refused)

    def _why_not_moved(self, id: JobId, other: JobId | None) -> str:
        """Why a job cannot have the place after another one (``None``: the first); empty where it can."""
        records = self.engine.records
        if id not in records or records[id].state is not State.PENDING:
            return "it does not wait"
        if other == id:
            return "it would stand after itself"
        own = records[id].job.priority
        if other is not None:
            if other not in records or records[other].state is not State.PENDING:
                return f"job {other} does not wait"
            theirs = records[other].job.priority
            return (
                "" if theirs == own else f"job {other} has priority {theirs:g}, this one {own:g}: update it"
            )
        higher = [
            record.job
            for record in records.values()
            if record.state is State.PENDING and record.job.priority > own
        ]
        if higher:
            return f"job {higher[0].id} has priority {higher[0].priority:g}, this one {own:g}: update it"
        return ""

    def _refusal_reason(self, action: Action, one: SelectedJob) -> str:
        """Why that cannot be wanted of the job as it stands; empty where it can."""
        phase = self.engine.phase_of(one.id)
        if phase is Phase.UNKNOWN and one.ended:  # it has left memory
            phase = Phase.ENDED
        return refusal_of(WISH_EVENTS[action](one.id), phase, new=False)

    async def _fulfil_wishes(
        self, action: Action, jobs: Sequence[JobId], person: Principal
    ) -> dict[JobId, str]:
        """Have the driver fulfil these wishes; which were refused when it came to that, and why.

        Many are many instants, between which others are answered.
        """
        refused: dict[JobId, str] = {}
        for first in range(0, len(jobs), SLICE):
            refused |= await self._fulfilled_at_once(action, jobs[first : first + SLICE], person)
            # Other requests get their turn between the slices.
            for _ in range(TURNS if len(jobs) > SLICE else 0):
                await asyncio.sleep(0)
        return refused

    async def _fulfilled_at_once(
        self, action: Action, jobs: Sequence[JobId], person: Principal
    ) -> dict[JobId, str]:
        refused: dict[JobId, str] = {}
        left = list(jobs)
        for _ in range(2):  # a job may leave memory before its wish is applied: then it comes in again
            wishes: dict[JobId, Wish] = {}
            for job in left:
                try:
                    wishes[job] = self._hand_over_wish(action, job, person)
                except DovetailError as error:  # what is on record of it is damaged
                    refused[job] = str(error)
            while not all(wish.is_settled for wish in wishes.values()):
                await self.await_instant()
            refused |= {job: wish.refused for job, wish in wishes.items() if wish.refused}
            # Unknown to the driver: it has left memory in between, and comes in again for a requeue.
            unknown = self.engine.phase_of
            left = [job for job, wish in wishes.items() if wish.refused and unknown(job) is Phase.UNKNOWN]
            if action != "requeue" or not left:
                break
            for job in left:
                del refused[job]
        return refused

    def _hand_over_wish(self, action: Action, job: JobId, person: Principal) -> Wish:
        """Hand a wish to the driver; a job that has left memory comes in again."""
        driver = self.driver
        if action == "cancel":
            return driver.cancel(job, f"cancelled by {person.name}")
        if action == "hold":
            return driver.hold(job)
        if action == "release":
            return driver.release(job)
        if self.engine.phase_of(job) is not Phase.UNKNOWN:
            return driver.requeue(job)
        entry = self.ledger.find_entry(job)
        if entry is None:
            raise NotFound(f"found no job {show_value(job)}")
        again = replace(entry.job, submit_time=entry.submitted - self.driver_epoch)
        return driver.submit(again, attempts=entry.attempt, failures=entry.failures)

    async def set_node(self, name: str, action: Literal["drain", "resume"]) -> None:
        """Have a node start nothing more, or take jobs again. Raises `NotFound`."""
        index = self.engine.cluster.index_of.get(name)
        if index is None:
            raise NotFound(
                f"found no node {name!r}, expected one of {', '.join(self.engine.cluster.index_of)}"
            )
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        try:
            # Noted first: a restart between the two must not give jobs to a node that a person has drained.
            self.folder.note_drained(name, action == "drain")  # for the next start
        except OSError as error:
            raise Full(f"{self.folder.drained}: cannot be written: {error.strerror}") from error
        change = NodeDrained(index) if action == "drain" else NodeJoined(index)
        self.driver.queue_events(change)
        while any(event is change for event in self.driver.pending):
            await self.await_instant()
        await self.on_record()

    @property
    def paused_kinds(self) -> list[str]:
        """Kinds of devices on which nothing new starts; ``all``: on none."""
        return sorted(self.engine.suspensions.paused)

    async def set_paused(self, action: Literal["pause", "resume"], kinds: Sequence[str]) -> list[str]:
        """Have nothing new start on these kinds of devices (none: on any), or have it start again.

        What runs goes on. Returns what is paused now. Raises `InputError`, `Full`.
        """
        there = sorted({"cpu", *(unit.kind for unit in self.engine.cluster.units)})
        for kind in kinds:
            if kind not in there:
                raise InputError(f"kind: found {show_value(kind)}, expected one of {', '.join(there)}")
        before = self.engine.suspensions.paused
        if action == "pause":
            after = before | frozenset(kinds or (EVERYWHERE,))
        # The whole queue is one switch: resuming a part of it would need a list of all other kinds.
        elif kinds and EVERYWHERE in before:
            raise InputError(
                f"kind: found {', '.join(kinds)}, but the whole queue is paused: it resumes as a whole"
            )
        else:
            after = before - frozenset(kinds) if kinds else frozenset()
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        try:
            self.folder.note_paused(after)  # for the next start
        except OSError as error:
            raise Full(f"{self.folder.paused_path}: cannot be written: {error.strerror}") from error
        change = Paused(tuple(sorted(after)))
        self.driver.queue_events(change)
        while any(event is change for event in self.driver.pending):
            await self.await_instant()
        await self.on_record()
        _log.info("queue: %s", f"paused for {', '.join(sorted(after))}" if after else "not paused")
        return self.paused_kinds

    async def terminal_of(self, id: JobId, person: Principal, size: tuple[int, int]) -> AsyncIterator[bytes]:
        """The output of a running job's terminal, which this client has now. Raises what `job` does."""
        self._check_terminal(id, person)
        reader = await self.terminals.connect(id, size)
        return self.terminals.output(id, reader)

    async def type_into(self, id: JobId, form: TerminalForm, person: Principal) -> None:
        """What was typed at a job's terminal. Raises `InputError`, `Forbidden`, `NotFound`."""
        self._check_terminal(id, person)
        try:
            data = base64.b64decode(form.data, validate=True)
        except ValueError:
            raise InputError("data: expected base64") from None
        size = None if form.rows is None or form.columns is None else (form.rows, form.columns)
        await self.terminals.send(id, data, size)

    def _check_terminal(self, id: JobId, person: Principal) -> None:
        record = self.engine.records.get(id)
        if record is None:
            raise NotFound(f"found no job {show_value(id)}")
        if not person.may_change(record.job.user):
            raise Forbidden(f"job {id} belongs to {record.job.user}")
        if record.state is not State.RUNNING:
            raise InputError(f"job {id} is {record.state}, expected one that runs")

    # ------------------------------------------------------------------ reservations

    def reserved(self) -> list[dict[str, Any]]:
        """The reservations that are not over."""
        return self.reservations.rows(self.engine)

    async def reserve(self, form: ReserveForm, person: Principal) -> dict[str, Any]:
        """Keep GPUs for a user. Raises `InputError`, `Forbidden`, `Full`."""
        most = self.options.max_gpus_per_user
        if most is not None and form.gpus > most and not person.admin:
            raise Forbidden(
                f"gpus: found {form.gpus}, expected at most {most}, what one user may have at a time here"
            )
        start = time.time() if form.start is None else form.start
        user, span = form.user, form.span
        try:
            made = self.reservations.reserve(
                form.gpus, start, span, user, form.name or "", person, self.engine, self.driver_epoch
            )
        except OSError as error:
            raise Full(f"the reservation cannot be kept: {error.strerror}") from error
        await self._renew_reservations()
        _log.info("reservation %s: %s for %s", made.id, made.devices, ", ".join(made.users))
        return next(one for one in self.reserved() if one["id"] == made.id)

    async def cancel_reservation(self, id: str, person: Principal) -> str:
        """Give a reservation up. Raises `NotFound`, `Forbidden`, `Full`."""
        try:
            found = self.reservations.cancel(id, person)
        except OSError as error:
            raise Full(f"the reservation cannot be given up: {error.strerror}") from error
        await self._renew_reservations()
        _log.info("reservation %s was given up by %s", found.id, person.name)
        return found.id

    async def _renew_reservations(self) -> None:
        """Have the driver know the reservations as they are now."""
        change = self.reservations.event(self.engine.cluster, self.driver_epoch)
        self.driver.queue_events(change)
        while any(event is change for event in self.driver.pending):
            await self.await_instant()
        await self.on_record()

    # ------------------------------------------------------------------ waiting

    async def wait(
        self, text: str, person: Principal, timeout: Seconds, *, first: bool = False
    ) -> tuple[list[SelectedJob], int]:
        """Wait until these jobs have ended, or the time is over; how they stand, and how many are left.

        ``first``: until one has ended; the answer has those that have.
        """
        meant = await self.select_jobs(text, person)
        loop = asyncio.get_running_loop()
        # Counted as long as someone waits, so the tidying does not remove what is about to be read.
        named = [one.id for one in meant]
        self._waited.update(named)
        left = [one.id for one in meant if not self._has_ended(one)]
        futures: list[asyncio.Future[None]] = []
        for job in left:
            future = loop.create_future()
            self._watchers.setdefault(job, []).append(future)
            futures.append(future)
        try:
            # With `first`, one that had ended before already answers the request.
            if futures and not (first and len(left) < len(meant)):
                how = asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED
                await asyncio.wait(futures, timeout=timeout, return_when=how)
        finally:
            self._watch_no_more(left, futures)
            self._waited.subtract(named)
        found = [await self._current_selection(one) for one in meant]
        waiting = sum(not one.ended for one in found)
        return [one for one in found if one.ended] if first else found, waiting

    def _watch_no_more(self, jobs: Sequence[JobId], futures: Sequence[asyncio.Future[None]]) -> None:
        pending = {future for future in futures if not future.done()}
        for job, future in zip(jobs, futures, strict=True):
            if future in pending:
                future.cancel()
                watchers = self._watchers.get(job, [])
                if future in watchers:
                    watchers.remove(future)
                if not watchers:
                    self._watchers.pop(job, None)

    def _has_ended(self, one: SelectedJob) -> bool:
        phase = self.engine.phase_of(one.id)
        return one.ended if phase is Phase.UNKNOWN else phase is Phase.ENDED

    async def _current_selection(self, one: SelectedJob) -> SelectedJob:
        record = self.engine.records.get(one.id)
        if record is not None:
            return SelectedJob(one.id, record.state, one.user)
        if one.ended:
            return one
        state = self.ledger.state(one.id)
        return SelectedJob(one.id, State.PENDING if state is None else state, one.user)

    # ------------------------------------------------------------------ forgetting

    def _wanted_jobs(self) -> set[JobId]:
        """Jobs of which nothing is to be removed, however long ago they ended. O(jobs in memory)."""
        # Unary plus drops the names whose count has come down to zero.
        self._waited = +self._waited
        found = {*self.engine.records, *self._waited}
        for job in (*(r.job for r in self.engine.records.values()), *(one.job for one in self._incoming)):
            found.update(depends.job for depends in job.depends)
        return found

    async def forget_jobs(self, age: Seconds) -> Removed:
        """Forget jobs that ended longer ago than ``age`` seconds, with their output; what is removed.

        What is wanted stays (`dovetail.service.tidying`). Raises `Full`.
        """
        if self.driver.is_blocked:
            raise Full(self.ledger.why_blocked)
        try:
            return await self.tidying.remove_old_jobs(age, age)
        except HistoryError as error:
            raise Full(str(error)) from error

    # ------------------------------------------------------------------ listening

    def listen(self) -> asyncio.Event:
        """An event that is set after every instant; `remove_listener` when done."""
        listener = asyncio.Event()
        self._listeners.add(listener)
        return listener

    def remove_listener(self, listener: asyncio.Event) -> None:
        """Its waiter is gone."""
        self._listeners.discard(listener)

    # ------------------------------------------------------------------ looking

    @property
    def open_count(self) -> int:
        """How many jobs have not ended, those still to be taken in included."""
        return len(self._open_jobs) + len(self._incoming)

    def page(
        self,
        *,
        states: Sequence[str] = (),
        user: str | None = None,
        name: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[list[Row], int]:
        """Some of the jobs that have not ended (`OpenJobs`), and how many there are."""
        waiting, running = (not states or state in states for state in (State.PENDING, State.RUNNING))
        found, total = self._open_jobs.page(user, name, limit, offset, running=running, waiting=waiting)
        coming = len(self._incoming) if waiting and user is None and name is None else 0
        return [self.make_row(record) for record in found], total + coming

    def make_row(self, record: Record) -> Row:
        """A job in memory, as clients see it."""
        row = row_of_record(record, self.engine, self.driver_epoch, self.forecast, self.elsewhere)
        hours = self.driver.admission.hours
        if hours is not None and row["reason"] == GPU_HOURS:
            now = max(self.engine.view.now, time.time() - self.driver_epoch)
            row["reason"] = f"waits: {hours_words(record.job.user or '', hours, now, self.driver_epoch)}"
        measured = self.measured(record.job.id, record.attempts) if record.end is None else record.usage
        return {**row, **device_use(measured)}

    async def ask(self, question: Callable[[Archive], T]) -> T:
        """Call the archive, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(
            self.archive.query_thread, question, self.archive
        )

    async def job(self, id: JobId) -> Row:
        """One job. Raises `NotFound`."""
        record = self.engine.records.get(id)
        if record is not None and not record.job.foreign:
            return self.make_row(record)
        entry = await self.ask(lambda archive: archive.job(id))
        if entry is None:
            raise NotFound(f"found no job {show_value(id)}")
        return row_of_entry(entry, self.engine.cluster)

    def fetch_entry(self, id: JobId) -> Entry:
        """One job as the ledger has it. Raises `NotFound`."""
        found = self.ledger.find_entry(id)
        if found is None:
            raise NotFound(f"found no job {show_value(id)}")
        return found

    async def rows(self, text: str, person: Principal, limit: int) -> list[Row]:
        """The jobs that a text selects, ``limit`` at most. Raises `InputError`, `NotFound`."""
        ids = [one.id for one in (await self.select_jobs(text, person, limit))[:limit]]
        records = self.engine.records
        # Rows that are not in memory come from the archive in one read.
        away = [id for id in ids if id not in records]
        entries = {entry.job.id: entry for entry in await self.ask(lambda archive: archive.jobs(away))}
        rows = []
        for id in ids:
            record = records.get(id)
            if record is not None:
                rows.append(self.make_row(record))
            elif id in entries:
                rows.append(row_of_entry(entries[id], self.engine.cluster))
        return rows

    async def browser_url(self) -> str:
        """An address on this machine for a browser; a loopback port is opened if there is none yet."""
        assert self.listeners is not None
        for url in self.listeners.urls:
            if "//127." in url or "//[::1]" in url:
                return url
        url = await self.listeners.at_address("127.0.0.1", 0)
        self.hosts += names_of(url)
        return url


def _named(jobs: Sequence[JobId]) -> str:
    """Jobs in a line of the log: one by its id, several by the first, the last and their number."""
    return f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs, {jobs[0]} to {jobs[-1]},"


def _names_in_log(jobs: Sequence[Job]) -> str:
    """What the jobs of a submission are called, by the first of them; quoted, since people choose names."""
    names = dict.fromkeys(job.name or job.app.name for job in jobs)
    return show_value(next(iter(names))) + (" and others" if len(names) > 1 else "")


def _log_wish(action: str, person: Principal, jobs: Sequence[JobId], refused: Mapping[JobId, str]) -> None:
    """One line for a request that has changed jobs; the driver has logged each refusal."""
    done = [job for job in jobs if job not in refused]
    if done:
        more = {"job": done[0]} if len(done) == 1 else None
        _log.info("%s of %s by %s", action, _named(done), person.name, extra=more)


def _describe_selector(selector: Selector) -> str:
    if selector.kind == "name":
        return f"of yours named {selector.name!r}"
    if selector.kind == "last":
        return "of yours"
    first, last = selector.numbers
    elements = f"_{','.join(map(str, selector.elements))}" if selector.elements else ""
    if len(elements) > MOST_SHOWN:
        elements = f"{elements[:MOST_SHOWN]} … ({len(selector.elements)} elements)"
    return f"{first}{elements}" if first == last else f"{first}-{last}"
