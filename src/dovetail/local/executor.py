"""Runs jobs on this machine: real processes, without a shell, pinned to their cores.

Dovetail itself starts no job. A supervisor (`dovetail.process.supervisor`), one small process for each
run, does; the two talk over a socket pair, one line for each launch and one for each end. The supervisor
outlives us: what it started goes on, and its spawn log shows the next start what still runs and what
ended meanwhile (`dovetail.process.recovery`). docs/explanation/local-executor.md has the measurements.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.files.locks import try_lock
from dovetail.files.shortage import lack_of
from dovetail.files.writing import private_folder
from dovetail.interfaces import LastAttempts, RunFolder, RunningAttempt
from dovetail.local.claims import Claims
from dovetail.local.discovery import discover_cluster
from dovetail.local.mps import MpsDaemons
from dovetail.model import Cluster, JobId, Lingering, Placed, Withdrawn
from dovetail.process import cgroups
from dovetail.process.environment import cores_of, driver_names
from dovetail.process.link import Link
from dovetail.process.notes import private_file
from dovetail.process.processes import parent_of, process_origin, sees_itself, started_at
from dovetail.process.recovery import Recovery, end_lost, recover_run, why_lost
from dovetail.process.spawn_log import (
    LOG_NAME,
    SpawnLog,
    append_record,
    end_event,
    last_line,
    read_log,
    settle_log,
)
from dovetail.process.supervised import SupervisedExecutor
from dovetail.records import dataclass

_log = logging.getLogger(__name__)
_WELCOME = 1 << 16
_SUPERVISOR = Path(cgroups.__file__).with_name("supervisor.py")  # a program, never imported here
MOST_FRUITLESS = 3
"""Supervisors that may end one after the other before they have received a job."""
LEAVING = 2.0
"""Seconds that a supervisor may take to notice that its client is gone, or to leave where it has no jobs."""
LONG_LOG = 4 << 20
"""Bytes of a spawn log that is worth shortening: a start reads it into nine times as much memory."""


@dataclass(frozen=True, slots=True)
class Local:
    """This machine: its cores and its devices; nothing to set up."""

    def discover(self) -> Cluster:
        """The cores that this process may use, and the GPUs that their drivers find."""
        return discover_cluster()

    def open(self, folder: RunFolder, cluster: Cluster) -> LocalExecutor:
        """A new run. Raises `InputError` for cores that are not ours and for what cannot be written."""
        return LocalExecutor(folder, cluster)

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[LocalExecutor, LastAttempts]:
        """Take up a run: through its supervisor where that lives; what only it knew is gone with it.

        Raises `ExecutorError` while the Dovetail of this run lives.
        """
        executor = LocalExecutor(folder, cluster, resume=True)
        return executor, executor.left_behind


class MachineExecutor(SupervisedExecutor):
    """Processes of this machine, under a supervisor of their run.

    The run folder is created (mode 0700) and must not hold a run yet, unless the executor is to ``resume``
    that. Raises `InputError` where the cluster names cores that this process may not use, or one core twice,
    and where the run folder cannot be made; `ExecutorError` where it holds another run.

    The supervisor is started at the first launch, or when the first listener comes.
    """

    def __init__(self, folder: RunFolder, cluster: Cluster, *, resume: bool = False) -> None:
        if not sees_itself():
            raise InputError(
                "is the one of another PID namespace, so its pids are others; expected our own: "
                "'unshare --mount-proc', or 'mount -t proc proc /proc' in the new namespace",
                where="/proc",
            )
        check_cores(cluster)
        super().__init__(folder, cluster)
        # Now, since a device that the drivers' variables hide is an error of the cluster and not of a job.
        for node in cluster.nodes:
            driver_names(node, self._environ)
        self.left_behind = LastAttempts()
        self.lack = ""
        self._link = Link(self._handle_end, self._supervisor_left, self._on_message)
        self._process: subprocess.Popen[bytes] | None = None
        self._fruitless = self._heard_of = 0  # supervisors in a row that took up nothing; jobs on the log
        self._long_log = LONG_LOG
        self._supervisor = 0  # its pid
        self._read_to = (0, 0)  # the log's inode, and how far its starts were read
        self._pids: dict[int, JobId] = {}
        self._last_end = ""  # uid of the job whose end came last
        self.claims = Claims(self.run_uid)
        self._mps = MpsDaemons(self.run_uid, cluster, self._environ)
        self._log = self._take_over() if resume else self._create_log()

    # --- what differs from one executor with supervisors to the next --------------------------------

    def _link_of(self, placed: Placed) -> Link:
        return self._link

    def _launch_request(self, link: Link, placed: Placed, words: list[str]) -> dict[str, Any]:
        return {"setup": self._setup_number(link, placed, cores_of(placed, self.cluster)), "argv": words}

    async def _dismiss_supervisors(self) -> None:
        """Until `settle` records that everything was recorded, the next start looks at this run."""
        link = self._link
        if link.is_attached:
            link.send_line({"t": "close", "grace": self._grace})
            try:
                await asyncio.wait_for(link.gone.wait(), self._grace + 10.0)
            except TimeoutError:
                # Processes that not even KILL ends (a hung driver): the supervisor stays with them.
                link.detach()
            else:
                if self._process is not None:
                    self._process.wait()
        await self._mps.close() if not link.requests else self._mps.leave()
        # Where a job would not end, its units stay claimed: the supervisor has inherited the lock.
        self.claims.close() if not link.requests else self.claims.leave()
        os.close(self._log)

    async def leave(self) -> None:
        """Go without the jobs: the supervisor stays with them, and the next Dovetail takes them up."""
        if not self._closing:
            self._closing = self._closed = True
            self._link.detach()
            self._news.set()
            self._mps.leave()
            self.claims.leave()
            os.close(self._log)

    async def launch(self, placed: Placed) -> None:
        """As `SupervisedExecutor.launch`, after the daemon that shares out the job's device runs."""
        if not self._closing:
            await self._mps.prepare(placed)
        try:
            self._launch_job(placed, ())
        finally:
            if placed.job.id not in self._running:  # it could not be requested
                self._mps.note_end(placed.job.id)

    def _of_this_job(self, placed: Placed) -> dict[str, Any]:
        found = super()._of_this_job(placed)
        shared = self._mps.variables(placed)
        return {**found, "vars": {**found.get("vars", {}), **shared}} if shared else found

    def _runs_no_more(self, request: dict[str, Any]) -> JobId:
        job = super()._runs_no_more(request)
        self._mps.note_end(job)
        return job

    # --- beside the protocol ----------------------------------------------------------------------

    def has_long_log(self) -> bool:
        """Whether `shorten_log` is worth its while."""
        if not self._last_end or not self._link.is_attached:
            return False
        # By its descriptor: the folder may be closed for a while.
        return os.fstat(self._log).st_size > self._long_log

    def shorten_log(self) -> None:
        """Have the supervisor drop what is over from the spawn log.

        Call it only when all ends that came are on the disk elsewhere.
        """
        if self._last_end and self._link.is_attached:
            self._link.send_line({"t": "shorten", "after": self._last_end})
            self._last_end = ""

    def _on_message(self, message: dict[str, Any]) -> None:
        """The log is a new file (or could not be made one): what we write ourselves goes there."""
        if message.get("t") == "shortened":
            self._reopen_log()
            # What runs may need much of it.
            size = os.fstat(self._log).st_size
            self._long_log = LONG_LOG + 2 * size
            _log.info("run %s: the spawn log is shortened to %d bytes", self.run_uid, size)
        elif message.get("t") == "lack":
            self.lack = message["why"]
            _log.info("run %s: %d jobs wait again: %s", self.run_uid, len(message["uids"]), self.lack)
            self._take_back(message["uids"])

    def _take_back(self, uids: Sequence[str]) -> None:
        """These have not begun, and will not before they are requested again."""
        for uid in uids:
            job = self._runs_no_more(self._link.done(uid))
            self._outputs.give_back(job)
            self._report_event(Withdrawn(job))

    def _reopen_log(self) -> None:
        os.close(self._log)
        self._log = os.open(self.run_dir / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    @property
    def supervisor_pid(self) -> int:
        """The pid of the supervisor, 0 before the first."""
        return self._supervisor

    def asked_by_job(self, pid: int) -> tuple[bool, JobId]:
        """Whether a process is one of a job's, and of which one (empty where that is not known).

        By its parents, which no process chooses: all that a job starts stays below the supervisor. Raises
        `ProcessLookupError` where the process has ended.
        """
        child, above = 0, pid
        while above > 1 and above != self._supervisor:
            child, above = above, parent_of(above)
        if above <= 1 or not self._supervisor:
            return False, ""
        self._read_starts()
        return True, self._pids.get(child, "")

    def _read_starts(self) -> None:
        """Learn the pids of the jobs that were started since the last look."""
        with open(self.run_dir / LOG_NAME, "rb") as log:
            inode = os.fstat(log.fileno()).st_ino
            # A shortened log is another file: it is read from its beginning.
            seen = self._read_to[1] if self._read_to[0] == inode else 0
            log.seek(seen)
            *lines, _ = log.read().split(b"\n")
        for line in lines:
            if line.startswith(b'{"t":"start"'):
                with contextlib.suppress(ValueError, KeyError):  # torn
                    start = json.loads(line)
                    self._pids[start["pid"]] = start["uid"].partition("/")[2]
        self._read_to = inode, seen + sum(len(line) + 1 for line in lines)

    def _handle_end(self, request: dict[str, Any], end: Mapping[str, Any]) -> None:
        self._last_end = end["uid"]
        super()._handle_end(request, end)

    def settle(self) -> bool:
        """After `close`: all that came has been recorded, so that later starts pass over this run.

        ``False`` where a job is left that could not be ended, or the disk is full: then the next start
        looks at this run, and finds it recorded.
        """
        if not self._closed or self._link.requests:
            return False
        try:
            settle_log(self.run_dir)
        except OSError:
            return False
        return True

    # --- the supervisor ---------------------------------------------------------------------------

    def _create_log(self) -> int:
        """The log gets its name when its first line is whole, so that no reader finds half of one."""
        path = self.run_dir / LOG_NAME
        part = f"{path}.{self.run_uid[:32]}.part"
        try:
            private_folder(self.run_dir)
            if os.path.lexists(path):
                raise ExecutorError(f"{path}: found the log of another run, expected a new run folder")
            fd = private_file(part, os.O_EXCL | os.O_APPEND)
            # Locked before it has its name: a recovery takes an unlocked log for that of a dead run.
            try_lock(fd)
            append_record(fd, {"t": "run", "version": 1, "run": self.run_uid, **self._identify_ourselves()})
            os.rename(part, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error
        return fd

    @staticmethod
    def _identify_ourselves() -> dict[str, Any]:
        pid = os.getpid()
        return {**process_origin(), "pid": pid, "boot": started_at(pid), "time": time.time()}

    def _take_over(self) -> int:
        """Go on with a run: its log, its supervisor where that lives, and what became of its jobs."""
        path = self.run_dir / LOG_NAME
        try:
            # Waits until the supervisor knows that its client is gone.
            before = recover_run(self.run_dir)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            if lack := lack_of(error):  # nothing is wrong with the record
                raise InputError(f"cannot be written now: {lack}", where=str(path)) from error
            raise InputError(
                f"cannot be read: {error.strerror}, {_unknown_outcome_clause(self.run_dir)}", where=str(path)
            ) from error
        if before.elsewhere:
            os.close(fd)
            raise _is_elsewhere(before)
        if before.in_use:
            os.close(fd)
            raise ExecutorError(f"the Dovetail of run {self.run_uid} still lives")
        client = {"t": "client", **self._identify_ourselves(), "epoch": self.epoch}
        deadline = time.monotonic() + LEAVING
        # A lock that is held is that of a living supervisor, or of another Dovetail that takes up the run.
        while not try_lock(fd):
            if self._take_over_supervisor():
                self._link.send_line(client)
                break
            if time.monotonic() > deadline:
                os.close(fd)
                raise ExecutorError(f"run {self.run_uid} is being taken up by another Dovetail")
            time.sleep(0.01)
        else:
            append_record(fd, client)
        log = read_log(path)
        if log.describe_damage():
            os.close(fd)
            raise InputError(
                f"is damaged: {log.describe_damage()}, {_unknown_outcome_clause(self.run_dir)}",
                where=str(path),
            )
        self._link.first_setup = log.next_number
        self._outputs.take_up_names(log)
        found = self.left_behind = self._sort_out(log, fd)
        self._mps.take_up(self._running)
        _log.info(
            "run %s is taken over: %d jobs run on, %d have ended, %d are lost",
            *(self.run_uid, len(found.running), len(found.ended), len(found.unknown)),
        )
        return fd

    def _take_over_supervisor(self) -> bool:
        """Take the place of the supervisor's last client; ``False`` if it is leaving, or has left."""
        # By the descriptor, since a socket's name has 108 bytes at most.
        place = os.open(self.run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(5.0)
        try:
            ours.connect(f"/proc/self/fd/{place}/supervisor.sock")
            welcomed = ours.recv(_WELCOME)
        except OSError:
            welcomed = b""
        finally:
            os.close(place)
        if not welcomed:
            ours.close()
            return False
        self._supervisor = struct.unpack("3i", ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self._link.connect_socket(ours, welcomed.partition(b"\n")[2])  # ends that follow at once
        return True

    def _sort_out(self, log: SpawnLog, fd: int) -> LastAttempts:
        """Each job's last attempt by the log; what is left without a supervisor is ended."""
        # A later attempt replaces an earlier one in this order: the log is in order of time.
        last: dict[JobId, str] = {intent["job"]: uid for uid, intent in log.intents.items()}
        open_ones = [uid for uid in last.values() if uid not in log.ends]
        watched = [uid for uid in open_ones if self._link.is_connected and log.is_watched(uid)]
        lost = [uid for uid in open_ones if uid not in watched]
        running: list[RunningAttempt] = []
        for uid in watched:
            intent, start = log.intents[uid], log.starts.get(uid)
            self._link.requests[uid] = intent
            self._running[intent["job"]] = self._link, uid
            # By the kernel's clock, which is never set: the one of the wall may have been set back since.
            since = time.time()
            if start is not None:
                since -= max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start["boot"])
            running.append(RunningAttempt(intent["job"], intent.get("attempt", 1), since))
        why = "Dovetail and its supervisor were killed while it ran"
        over_before = why_lost(was_started=True, standing="here")
        found = end_lost(self.run_dir / LOG_NAME, fd, lost, why, self.epoch, over_before) if lost else ()
        unknown = [end_event(log.intents[uid], end) for uid, end in found]
        over = [
            end_event(log.intents[uid], end)
            for uid, end in log.ends.items()
            if last.get(log.intents[uid]["job"]) == uid
        ]
        return LastAttempts(running, over, unknown)

    def _start_supervisor(self) -> None:
        """Start it without waiting: what is sent meanwhile stays in the socket."""
        ours, theirs = socket.socketpair()
        claim = self._claim_descriptors()
        complaints = private_file(self.run_dir / "supervisor.err", os.O_APPEND)
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8", str(_SUPERVISOR)),
                    *(str(theirs.fileno()), str(self._log), repr(self.epoch), str(self.run_dir)),
                    *map(str, claim),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd="/",
                env=self._environ,
                pass_fds=(theirs.fileno(), self._log, *claim),
                # A session of its own: Ctrl-C at a terminal must not reach the jobs' supervisor.
                start_new_session=True,
            )
            self._supervisor = self._process.pid
            _log.info("run %s: its supervisor is process %d", self.run_uid, self._supervisor)
        except OSError as error:
            ours.close()
            raise ExecutorError(f"the supervisor cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(complaints)
        self._link.connect_socket(ours)

    def _claim_descriptors(self) -> Sequence[int]:
        """What keeps our claims, and our MPS daemons, while the supervisor lives.

        Of claims nothing where they cannot be written.
        """
        try:
            return (self.claims.inheritable_descriptor, *self._mps.inheritable_descriptors)
        except OSError:
            return self._mps.inheritable_descriptors

    def _attach_to_loop(self) -> None:
        """Start a supervisor if there is none (yet, or any more) and listen to it in the loop that runs."""
        link = self._link
        if not link.is_attached and not self._closing:
            if not link.is_connected:
                self._start_supervisor()
                # A new one knows none of the setups.
                link.send_setups()
            link.attach_to_loop()

    def _report_dead_supervisor(self, status: int | str, jobs: int) -> str:
        """Report to the operator that a supervisor has died; returns its last error output, as a clause."""
        errors = self.run_dir / "supervisor.err"
        complaint = last_line(str(errors)).strip()
        complaint = f"; its error output ends with: {complaint[:200]}" if complaint else ""
        _log.error(
            "the supervisor of run %s died (status %s) with %d jobs of which it knew%s: see %s",
            *(self.run_uid, status, jobs, complaint, errors),
        )
        return complaint

    def _supervisor_left(self) -> None:
        """It has closed on request; or it was killed, and its jobs must not run on unseen."""
        link = self._link
        self._reopen_log()
        # It held the lock, if we took over from another Dovetail, or it has shortened the log.
        try_lock(self._log)
        path = self.run_dir / LOG_NAME
        # One that was another Dovetail's is no child of ours: its status is not known.
        status = None if self._process is None else self._process.wait()
        if not link.requests:
            if status:
                self._report_dead_supervisor(status, 0)
            if self._process is None or status:  # killed, when nothing ran
                cgroups.clear_groups(read_log(path))
            return
        code = "unknown" if status is None else status
        complaint = self._report_dead_supervisor(code, len(link.requests))
        why = f"the supervisor of this run ended (status {code}), so the job was ended too{complaint}"
        known = read_log(path).intents
        # What never reached it may be started again without a risk: nothing of these jobs ran.
        unheard = [request for uid, request in link.requests.items() if uid not in known]
        over = f"it ended by itself, but the supervisor of this run ended (status {code}) before it noted how"
        unended = [uid for uid in link.requests if uid in known]
        for uid, end in end_lost(path, self._log, unended, why, self.epoch, f"{over}{complaint}"):
            self._handle_end(link.done(uid), end)
        cgroups.clear_groups(read_log(path))
        if not unheard or self._closing:
            return
        # A supervisor that dies each time before it takes up a job would be started for ever.
        self._fruitless = self._fruitless + 1 if len(known) == self._heard_of else 1
        self._heard_of = len(known)
        if self._fruitless < MOST_FRUITLESS:
            # The next one starts what this one never received.
            self._attach_to_loop()
            for request in unheard:
                link.repeat_request(request)
            return
        why = f"{self._fruitless} supervisors ended before they received it (the last one: status {code})"
        for request in unheard:
            now = time.monotonic() + self.epoch
            never = {"uid": request["uid"], "from": now, "at": now, "error": why}
            self._handle_end(link.done(request["uid"]), never)


class LocalExecutor(MachineExecutor):
    """The `Executor` of this machine; a request holds all that a job needs, so `StartsAfter` too.

    See `MachineExecutor` for the parameters.
    """

    async def launch_after(self, placed: Placed, after: Sequence[JobId]) -> None:
        """`launch` as soon as these jobs have ended: the supervisor starts it without another request."""
        await self._mps.prepare(placed)
        try:
            self._launch_job(placed, after)
        finally:
            if placed.job.id not in self._running:  # it could not be requested
                self._mps.note_end(placed.job.id)
                self._never.drop_job(
                    placed.job.id, self._never.replacements_of(after, self._running.__contains__)
                )

    async def withdraw(self, job: JobId) -> None:
        """Take back what was to follow this job; `Withdrawn` and `Lingering` report what has not begun."""
        found = self._running.get(job)
        if found is not None:
            link, uid = found
            link.send_line({"t": "withdraw", "uid": uid})

    def _on_message(self, message: dict[str, Any]) -> None:
        """Jobs have not begun that were to follow others; because one of these goes on, if it is named."""
        super()._on_message(message)
        if message.get("t") == "withdrawn":
            self._take_back(message["uids"])
            request = self._link.requests.get(message["of"])
            if request is not None:
                self._report_event(Lingering(request["job"]))


def _is_elsewhere(found: Recovery) -> ExecutorError | InputError:
    """Why a run of another host, or container, is not taken up here, and the way out."""
    if found.in_use:
        text = f"run {found.run_dir.name} goes on on {found.elsewhere}: it is taken up there, not here"
        # A container that is just ending leaves in a moment; another host does not.
        return InputError(text) if found.elsewhere.startswith("host ") else ExecutorError(text)
    aside = f"dovetail recover --give-up {shlex.quote(str(found.run_dir))}"
    return InputError(
        f"was written on {found.elsewhere}, whose jobs cannot be seen from here: take it up there; where it "
        f"is gone for good, '{aside}' puts the log aside, and the next start takes its jobs for lost",
        where=str(found.run_dir / LOG_NAME),
    )


def _unknown_outcome_clause(run_dir: Path) -> str:
    """What follows where a spawn log is unreadable, and the way out."""
    aside = f"dovetail recover --give-up {shlex.quote(str(run_dir))}"
    return (
        f"so which jobs have run is not known; '{aside}' puts it aside: then the next start ends the jobs "
        "that ran, and goes on with those that waited"
    )


def check_cores(cluster: Cluster) -> None:
    """Refuse a cluster whose cores are not ours to use, or that gives one core to two owners."""
    usable = os.sched_getaffinity(0)
    owners: dict[int, str] = {}
    for node in cluster.nodes:
        held = [(f"node {node.name}", core) for core in node.cores]
        held += [(f"device {node.name}/{d.name}", core) for d in node.devices for core in d.cores]
        for owner, core in held:
            if core not in usable:
                raise InputError(
                    f"{owner}: found core {core}, expected cores that this process may use: "
                    f"{','.join(map(str, sorted(usable)))}",
                    where="cluster",
                )
            if core in owners and owners[core] != owner:
                raise InputError(
                    f"{owner}: found core {core}, which {owners[core]} has already; to run jobs, every core "
                    "belongs to one owner on this machine",
                    where="cluster",
                )
            owners[core] = owner
