"""Runs jobs on this machine: real processes, without a shell, pinned to their cores.

Dovetail itself starts no job. A supervisor (`dovetail.executors.supervisor`), one small process for each
run, does; the two talk over a socket pair, one line for each launch and one for each end. The supervisor
outlives us: what it started goes on, and its spawn log tells the next start what still runs and what
ended meanwhile (`dovetail.executors.recovery`). docs/explanation/local-executor.md has the measurements.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.executors.environment import UNSET, child_environment, cores_of
from dovetail.executors.recovery import describe, end_lost
from dovetail.executors.spawnlog import LOG_NAME, append, boot_id, ended, settle, started_at
from dovetail.model import Cluster, Ended, Event, JobId, Placed, State, Usage
from dovetail.model.command_line import argv

__all__ = ["LocalExecutor"]

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@,-]{0,99}")
_RECEIVE = 1 << 16
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class LocalExecutor:
    """The `Executor` of this machine.

    ``run_dir`` is created (mode 0700) and must not hold a run yet. ``cwd`` is the jobs' working folder
    (default: ours), ``grace`` the seconds between TERM and KILL, ``environ`` what their environment is
    built on (default: ours), ``run_uid`` the unique name of this run (default: made here). Raises
    `InputError` where the cluster names cores that this process may not use, or one core twice;
    `ExecutorError` where the run folder cannot be made.

    Use it in one event loop; the supervisor is started when that first listens or launches. A job is run
    once: its ``uid`` (`uid_of`) names the run for ever, so that recording it twice changes nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_dir: str | os.PathLike[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        grace: float = 5.0,
        environ: Mapping[str, str] | None = None,
        run_uid: str | None = None,
    ) -> None:
        check_cores(cluster)
        self.cluster = cluster
        self.run_dir = Path(run_dir).absolute()
        self.run_uid = run_uid or uuid.uuid4().hex
        self._folder = str(self.run_dir)
        self.epoch = time.time() - time.monotonic()
        self._cwd = os.path.abspath(cwd) if cwd is not None else os.getcwd()
        self._grace = grace
        self._environ = dict(os.environ if environ is None else environ)
        self._requests: dict[str, dict[str, Any]] = {}
        self._setups: dict[Any, int] = {}
        self._setups_made = 0
        self._events: deque[Event] = deque()
        self._news: asyncio.Event = asyncio.Event()
        self._heard: Callable[[Event], None] | None = None
        self._inbox = b""
        self._outbox = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone: asyncio.Event = asyncio.Event()
        self._closing = False
        self._closed = False
        self._log = self._create_log()
        self._gone.set()

    # --- the Executor protocol --------------------------------------------------------------------

    async def launch(self, placed: Placed) -> None:
        """Start the job; a job that cannot be started ends as FAILED, with a sentence in ``detail``.

        One send on a socket; returns before the process exists. Raises `ExecutorError` after `close`.
        """
        if self._closing:
            raise ExecutorError(f"job {placed.job.id} was launched after the executor was closed")
        self._attach()
        uid = self.uid_of(placed.job.id)
        if uid in self._requests:
            raise ExecutorError(f"job {placed.job.id} is running already")
        try:
            arguments = argv(placed)
        except InputError as error:
            now = time.monotonic() + self.epoch
            self._happened(Ended(placed.job.id, State.FAILED, None, str(error), Usage(), now, now))
            return
        job = placed.job
        request: dict[str, Any] = {
            "t": "intent",
            "uid": uid,
            "job": job.id,
            "setup": self._setup(placed),
            "argv": arguments,
            "files": self._files(job.id),
            "inputs": dict(job.inputs),
            "walltime": job.walltime,
            "user": job.user,
        }
        self._requests[uid] = request
        self._send(request)

    async def stop(self, job: JobId, reason: str) -> None:
        """TERM to the job's group, KILL after the grace; `Ended` follows with the state ``reason``.

        A job that had ended by itself keeps the state in which it did; an unknown job is ignored.
        """
        uid = self.uid_of(job)
        if uid in self._requests:
            self._send({"t": "stop", "uid": uid, "reason": reason, "grace": self._grace})

    async def events(self) -> AsyncIterator[Event]:
        """`Ended` of every job, in order of their ends; finishes when `close` is done and all were read."""
        self._attach()
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    def listen(self, heard: Callable[[Event], None]) -> None:
        """Instead of `events`: call ``heard`` with every event, from the loop that runs, as it comes in."""
        self._heard = heard
        self._attach()
        while self._events:
            heard(self._events.popleft())

    async def close(self) -> None:
        """Stop what still runs (state CANCELLED) and wait for it. May be called again.

        Until `settle` says that everything was recorded, the next start looks at this run.
        """
        if not self._closing:
            self._closing = True
            if self._loop is not None:
                await self._dismiss_supervisor()
            self._closed = True
            self._news.set()
            os.close(self._log)

    async def _dismiss_supervisor(self) -> None:
        self._send({"t": "close", "grace": self._grace})
        try:
            await asyncio.wait_for(self._gone.wait(), self._grace + 10.0)
        except TimeoutError:
            # Processes that not even KILL ends (a hung driver): the supervisor stays with them.
            self._detach()
        else:
            self._process.wait()

    # --- beside the protocol ----------------------------------------------------------------------

    def uid_of(self, job: JobId) -> str:
        """The unique id of this job's run, as `Run.uid` has it after a recovery."""
        return f"{self.run_uid}/{job}"

    def output_paths(self, job: JobId) -> tuple[Path, Path]:
        """Files of the job's standard output and standard error."""
        files = self._files(job)
        return Path(files + ".out"), Path(files + ".err")

    def _files(self, job: JobId) -> str:
        plain = _PLAIN.fullmatch(job) is not None
        name = job if plain else "job-" + job.encode("utf-8", "surrogateescape").hex()[:200]
        return f"{self._folder}/{name}"

    def settle(self) -> bool:
        """After `close`: all that was heard has been recorded, so that later starts pass over this run.

        ``False`` where a job is left that could not be ended, or the disk is full: then the next start
        looks at this run, and finds it recorded.
        """
        if not self._closed or self._requests:
            return False
        try:
            settle(self.run_dir)
        except OSError:
            return False
        return True

    def _setup(self, placed: Placed) -> int:
        """Number of what this job shares with others; tells the supervisor the first time."""
        allocation = placed.allocation
        key = (placed.implementation, allocation.parts, tuple(sorted(allocation.cores.items())))
        number = self._setups.get(key)
        if number is None:
            number = self._setups[key] = self._setups_made
            self._setups_made += 1
            cores = cores_of(placed, self.cluster)
            self._send(
                {
                    "t": "setup",
                    "setup": number,
                    "env": child_environment(placed, self.cluster, cores, self._environ),
                    "unset": UNSET,
                    "cores": cores,
                    "cwd": self._cwd,
                    "grace": self._grace,
                    "run": describe(placed, self.cluster),
                }
            )
        return number

    # --- the supervisor ---------------------------------------------------------------------------

    def _create_log(self) -> int:
        path = self.run_dir / LOG_NAME
        try:
            self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            append(
                fd,
                {
                    "t": "run",
                    "version": 1,
                    "run": self.run_uid,
                    "boot_id": boot_id(),
                    "pid": os.getpid(),
                    "boot": started_at(os.getpid()),
                    "time": time.time(),
                },
            )
        except FileExistsError:
            raise ExecutorError(f"{path}: found the log of another run, expected a new run folder") from None
        except OSError as error:
            raise ExecutorError(f"{path}: the spawn log cannot be written: {error.strerror}") from error
        return fd

    def _start_supervisor(self) -> None:
        """Start it without waiting: what is sent meanwhile stays in the socket."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        script = Path(__file__).with_name("supervisor.py")
        complaints = os.open(
            self.run_dir / "supervisor.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8", str(script)),
                    *(str(theirs.fileno()), str(self._log), repr(self.epoch)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd="/",
                env=self._environ,
                pass_fds=(theirs.fileno(), self._log),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise ExecutorError(f"the supervisor cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            os.close(complaints)
        self._socket = ours
        self._gone.clear()

    def _attach(self) -> None:
        """Start a supervisor if there is none (yet, or any more) and listen to it in the loop that runs."""
        if self._loop is None and not self._closing:
            self._setups.clear()
            self._start_supervisor()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._socket, self._receive)

    def _detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._loop = None
        self._socket.close()
        self._gone.set()

    def _send(self, request: dict[str, Any]) -> None:
        """Send a line, without blocking."""
        line = _ENCODE(request).encode() + b"\n"
        waiting = bool(self._outbox)
        self._outbox += line
        if not waiting:
            self._flush()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._outbox = b""  # the supervisor is gone: its end of file follows
            return
        self._outbox = self._outbox[sent:]
        if self._loop is not None:
            if self._outbox:
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)

    def _receive(self) -> None:
        """Turn what the supervisor says into events."""
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._supervisor_left()
            return
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        for line in lines:
            end = json.loads(line)
            request = self._requests.pop(end["uid"])
            self._happened(ended(request, end))

    def _happened(self, event: Event) -> None:
        if self._heard is not None:
            self._heard(event)
            return
        self._events.append(event)
        self._news.set()

    def _supervisor_left(self) -> None:
        """It has closed as asked; or it was killed, and its jobs must not run on unseen."""
        self._detach()
        self._inbox = self._outbox = b""
        if not self._requests:
            return
        code = self._process.wait()
        why = f"the supervisor of this run ended (status {code}), so the job was ended too"
        for uid, end in end_lost(self.run_dir / LOG_NAME, self._log, list(self._requests), why, self.epoch):
            request = self._requests.pop(uid)
            self._happened(ended(request, end))


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
