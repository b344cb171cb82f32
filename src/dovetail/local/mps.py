"""NVIDIA's MPS for devices that jobs share: a control daemon each, started and ended by the run that has it.

Only for devices of a cluster file with ``mps = true``. A daemon is started before the first of our jobs that
shares its device, and ended a moment after the last. Where none can be started, or one of the box runs
already, jobs share by time slices, or by that one. What a daemon needs lies in a folder of the run, below a
private one of the user; a lock that we and our supervisor hold shows the next start whose run is over, and so
which daemons a crash has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.writing import private_folder
from dovetail.local.claims import BASES, VARIABLE
from dovetail.model import FRACTION_UNITS, Cluster, JobId, Placed, Seconds, bit_indices
from dovetail.process.environment import device_vendor, driver_names
from dovetail.records import dataclass

_log = logging.getLogger(__name__)
CONTROL = "nvidia-cuda-mps-control"
"""The program that is the daemon, and that gives it orders."""
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SITE_PIPES = "/tmp/nvidia-mps"
"""Where a daemon of the box has its pipes that was started without a folder."""
PID_FILE = f"{CONTROL}.pid"
PATIENCE: Seconds = 10.0
"""A daemon may take so long to start, or to end."""
LINGER: Seconds = 2.0
"""A daemon that no job uses ends after it: the next job of a queue comes at once."""
AGAIN: Seconds = 60.0
"""After which a daemon that would not start is tried again."""
MOST_PATH = 90
"""Bytes of a folder's path: sockets lie in it, whose paths have 107 at most."""
_Place = tuple[int, int]
"""A node's number, and the index of one of its devices."""


@dataclass(slots=True)
class _Daemon:
    """The daemon of one device: what the driver calls that, its folder, and the jobs that use it."""

    device: str
    name: str
    folder: Path
    jobs: set[JobId] = field(default_factory=set)
    started: bool = False
    failed: float = -AGAIN
    ending: asyncio.TimerHandle | None = None

    @property
    def pipes(self) -> Path:
        return self.folder / "pipe"

    @property
    def logs(self) -> Path:
        return self.folder / "log"


class MpsDaemons:
    """The daemons of a run's devices. ``environ`` is what they inherit, and where their program is sought.

    Raises `InputError` where the cluster file wants MPS of a device that is none of NVIDIA's.
    """

    def __init__(self, run: str, cluster: Cluster, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._daemons: dict[_Place, _Daemon] = {}
        self._used: dict[JobId, _Daemon] = {}
        self._lock = -1
        self._turn = asyncio.Lock()
        base = daemons_folder(environ)
        self._folder = base / run[:12]
        wanted = _wanted_devices(cluster)
        end_leftovers(base, self._folder, self._environ)
        why = self._why_none() if wanted else ""
        if why:
            _log.warning("%s: jobs share their devices by time slices", why)
        if why or not wanted:
            return
        for n, d in wanted:
            node = cluster.nodes[n]
            device = node.devices[d].name
            name = driver_names(node, environ)[d]
            self._daemons[n, d] = _Daemon(device, name, self._folder / f"{n}-{device}")
        try:
            self._open_folder()
        except OSError as error:
            words = "the folder of MPS daemons cannot be made: %s: jobs share their devices by time slices"
            _log.warning(words, error)
            self._daemons.clear()

    def _why_none(self) -> str:
        """Why no daemon is to be started here; empty where one may be."""
        if shutil.which(CONTROL, path=self._environ.get("PATH")) is None:
            return f"there is no program {CONTROL}"
        site = Path(self._environ.get(PIPES) or SITE_PIPES)
        if daemon_pid(site):
            return f"an MPS daemon of this box runs already ({site}), and is left alone"
        if len(os.fsencode(self._folder)) > MOST_PATH:
            return f"the path {self._folder} is too long for the sockets of an MPS daemon"
        return ""

    def _open_folder(self) -> None:
        """Make our folder, and lock it for as long as we or our supervisor live. Raises `OSError`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while self._lock < 0:
            private_folder(self._folder)
            lock = os.open(self._folder / "lock", flags, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            # Another start may have taken the folder for a left one, before it was locked.
            if (self._folder / "lock").exists():
                self._lock = lock
            else:
                os.close(lock)

    @property
    def inheritable_descriptors(self) -> list[int]:
        """For the supervisor to inherit: its jobs may use the daemons."""
        return [self._lock] if self._lock >= 0 else []

    # ------------------------------------------------------------------- what jobs do

    async def prepare(self, placed: Placed) -> None:
        """Before this job starts: have the daemon run that it is to use, if any."""
        daemon = self._daemon_of(placed)
        if daemon is None:
            return
        async with self._turn:
            self._keep(daemon)
            daemon.jobs.add(placed.job.id)
            self._used[placed.job.id] = daemon
            if daemon.started and daemon_pid(daemon.pipes):
                self._note_jobs(daemon)
                return
            if daemon.started:
                _log.warning(
                    "the MPS daemon of %s has ended by itself: another one is started", daemon.device
                )
            elif time.monotonic() - daemon.failed < AGAIN:
                return
            await self._start(daemon)

    def variables(self, placed: Placed) -> dict[str, str]:
        """What the job finds in its environment to use its device's daemon; nothing where there is none."""
        daemon = self._used.get(placed.job.id)
        if daemon is None or not daemon.started:
            return {}
        # A daemon that knows its device by a number shows it as its first one.
        name = "0" if daemon.name.isdecimal() else daemon.name
        return {**self._pipes_of(daemon), "CUDA_VISIBLE_DEVICES": name}

    def note_end(self, job: JobId) -> None:
        """The job runs no more; its daemon is ended soon, unless another job comes."""
        daemon = self._used.pop(job, None)
        if daemon is None:
            return
        daemon.jobs.discard(job)
        self._note_jobs(daemon)
        if not daemon.jobs and daemon.started and daemon.ending is None:
            loop = asyncio.get_running_loop()
            daemon.ending = loop.call_later(LINGER, lambda: loop.create_task(self._end_unused(daemon)))

    def take_up(self, running: Collection[JobId]) -> None:
        """Of a run that is taken up: these jobs still run, and go on with the daemons that they use."""
        for daemon in self._daemons.values():
            daemon.started = bool(daemon_pid(daemon.pipes))
            with contextlib.suppress(OSError, ValueError):
                noted = json.loads((daemon.folder / "jobs").read_text(encoding="utf-8"))
                daemon.jobs = {job for job in noted if job in running} if daemon.started else set()
            self._used.update(dict.fromkeys(daemon.jobs, daemon))
            if daemon.started and not daemon.jobs:
                quit_daemon(daemon.pipes, self._environ)
                daemon.started = False
                _log.info("the MPS daemon of %s, left by an earlier Dovetail, is ended", daemon.device)

    async def close(self) -> None:
        """End all daemons, and forget our folder."""
        async with self._turn:
            for daemon in self._daemons.values():
                self._keep(daemon)
                await self._end(daemon)
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder)
        self.leave()

    def leave(self) -> None:
        """Go without the jobs, which go on with their daemons."""
        for daemon in self._daemons.values():
            self._keep(daemon)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ------------------------------------------------------------------- one daemon

    def _daemon_of(self, placed: Placed) -> _Daemon | None:
        """The daemon for a job that shares one device: a program can use no more than one."""
        held = [
            (n, d, part.units)
            for part in placed.allocation.parts
            for n in bit_indices(part.nodes)
            for d in part.devices
        ]
        if len(held) != 1 or held[0][2] >= FRACTION_UNITS:
            return None
        return self._daemons.get(held[0][:2])

    def _pipes_of(self, daemon: _Daemon) -> dict[str, str]:
        return {PIPES: str(daemon.pipes), LOGS: str(daemon.logs)}

    async def _start(self, daemon: _Daemon) -> None:
        """Start a daemon; where that fails jobs share by time slices, and a later one tries again."""
        daemon.started = False
        try:
            # What a daemon that was killed has left there keeps the next one from starting.
            shutil.rmtree(daemon.pipes, ignore_errors=True)
            for folder in (daemon.pipes, daemon.logs):
                private_folder(folder)
            self._note_jobs(daemon)
            # The daemon's own number of the device, in the driver's order, whatever CUDA's own is.
            device = {"CUDA_VISIBLE_DEVICES": daemon.name, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            environ = {**self._environ, **self._pipes_of(daemon), **device}
            why = await _run_control(["-d"], environ)
            if not why and not daemon_pid(daemon.pipes):
                why = "it has ended at once"
        except OSError as error:
            why = str(error.strerror or error)
        if why:
            daemon.failed = time.monotonic()
            words = "the MPS daemon of %s does not start (%s): jobs share it by time slices"
            _log.warning(words, daemon.device, why)
            return
        daemon.started = True
        _log.info("the MPS daemon of %s runs", daemon.device)

    async def _end_unused(self, daemon: _Daemon) -> None:
        async with self._turn:
            if daemon.ending is not None and not daemon.jobs:
                await self._end(daemon)
            daemon.ending = None

    async def _end(self, daemon: _Daemon) -> None:
        if not daemon.started:
            return
        daemon.started = False
        await asyncio.to_thread(quit_daemon, daemon.pipes, self._environ)
        _log.info("the MPS daemon of %s is ended", daemon.device)

    @staticmethod
    def _keep(daemon: _Daemon) -> None:
        """Have it not ended soon."""
        if daemon.ending is not None:
            daemon.ending.cancel()
            daemon.ending = None

    @staticmethod
    def _note_jobs(daemon: _Daemon) -> None:
        """Which jobs use it, for a Dovetail that takes up the run."""
        # Without the note such a daemon is taken for unused, and its jobs go on by time slices.
        with contextlib.suppress(OSError):
            fresh = daemon.folder / "jobs.new"
            fresh.write_text(json.dumps(sorted(daemon.jobs)), encoding="utf-8")
            fresh.replace(daemon.folder / "jobs")


async def _run_control(arguments: list[str], environ: Mapping[str, str]) -> str:
    """Run the control program; why it failed, empty where it did not. Raises `OSError`."""
    process = await asyncio.create_subprocess_exec(
        CONTROL, *arguments, cwd="/", env=environ, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        status = await asyncio.wait_for(process.wait(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"no answer within {PATIENCE:g} s"
    return f"status {status}" if status else ""


def _wanted_devices(cluster: Cluster) -> list[_Place]:
    """The devices of which the cluster file wants MPS. Raises `InputError`."""
    found: list[_Place] = []
    for n, node in enumerate(cluster.nodes):
        for d, device in enumerate(node.devices):
            if device.mps:
                if device_vendor(device) != "nvidia":
                    what = f"{device.name} ({device.model})" if device.model else device.name
                    raise InputError(
                        f"node {node.name}: found mps = true of {what}, expected it of NVIDIA's devices only",
                        where="cluster",
                    )
                found.append((n, d))
    return found


def daemons_folder(environ: Mapping[str, str]) -> Path:
    """Where this user's runs have the folders of their daemons: beside the claims, and private."""
    name, claims = f"dovetail-mps-{os.geteuid()}", environ.get(VARIABLE, "")
    if os.path.isabs(claims):
        return Path(f"{claims}-mps")
    bases = [base for base in BASES if _is_ours(Path(base, name)) or os.access(base, os.W_OK)]
    return Path(bases[0] if bases else BASES[-1], name)


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder of ours, that no one else can write."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def daemon_pid(pipes: Path) -> int:
    """The process of the daemon that has its pipes there; 0 where none runs."""
    try:
        pid = int((pipes / PID_FILE).read_text(encoding="ascii"))
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return 0
    name, state = about.partition("(")[2].rpartition(")")[0], about.rpartition(")")[2].split()[0]
    if state in "ZX":  # it has ended, and waits for its parent
        return 0
    # The kernel keeps 15 characters of a name; a pid may be that of another program by now.
    return pid if pid > 1 and CONTROL.startswith(name) and name.startswith("nvidia-cuda") else 0


def quit_daemon(pipes: Path, environ: Mapping[str, str]) -> None:
    """End the daemon that has its pipes there: by order, else by force. Waits `PATIENCE` seconds at most."""
    pid = daemon_pid(pipes)
    if not pid:
        return
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [CONTROL], input=b"quit\n", env={**environ, PIPES: str(pipes)}, cwd="/", timeout=PATIENCE / 2,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    deadline = time.monotonic() + PATIENCE / 2
    while daemon_pid(pipes) == pid and time.monotonic() < deadline:
        time.sleep(0.01)
    if daemon_pid(pipes) == pid:
        _log.warning("the MPS daemon %d does not end by order: it is killed", pid)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def end_leftovers(base: Path, ours: Path, environ: Mapping[str, str]) -> None:
    """End the daemons of this user's runs of which neither Dovetail nor supervisor lives."""
    if not _is_ours(base):
        return
    for folder in sorted(base.iterdir()):
        if folder == ours or not _is_ours(folder):
            continue
        try:
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            # It is being made, or has just been left.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for pipes in sorted(folder.glob("*/pipe")):
                if daemon_pid(pipes):
                    quit_daemon(pipes, environ)
                    _log.info("an MPS daemon that an ended run has left is ended (%s)", pipes.parent.name)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            # Its run goes on.
            continue
        finally:
            os.close(lock)
