"""What a batch job does on its node: run one command, once, and write down how that went.

Run as ``python -I -S task.py BATCH.json`` in the batch script; an array's task takes the command of its
number. ``runs/BATCH.NUMBER`` beside the file gets a line of JSON at the start and one at the end; after the
batch system has put the job back into its queue R times (it was preempted, or its node went down) that is
``runs/BATCH.NUMBER.R``. Each is created exclusively: should the job be started again without having been put
back, nothing is run a second time. ``runs/BATCH.NUMBER.stop`` ends the command, also where the node was given
up and can be reached by nothing else, and ``runs/BATCH.NUMBER.R.stop`` that one start of it.

``variables`` in BATCH.json names the variables in which the batch system describes the job. Standard library
only: the node may have another Python than the one that submits.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

LOOK = 5.0
"""Seconds between looks for the file that ends the command."""
GRACE = 5.0
ENDINGS = (signal.SIGTERM, signal.SIGINT)
PASSED_ON = (
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM, signal.SIGVTALRM),
    *(signal.SIGPROF, signal.SIGXCPU, signal.SIGIO, signal.SIGPWR, signal.SIGWINCH, signal.SIGURG),
)
"""What a batch system may send to this process (Slurm: ``--signal=B:``), and means for the command."""
WATCHED = {signal.SIGCHLD, *ENDINGS, *PASSED_ON}
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


class RunRecordFile:
    """The record of one run.

    The file's creation is what counts, and closing it makes a line visible to other machines; a line is not
    synchronized to disk, which costs a network file system a transaction for each job.
    """

    def __init__(self, stem: str, restarts: int) -> None:
        self.path = record_path(stem, restarts)
        self.endings = f"{stem}.stop", f"{stem}.{restarts}.stop", record_path(stem, restarts + 1)
        path = self.path
        if self.is_to_stop():
            raise SystemExit(f"{stem}.stop is there: this job is no longer wanted")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            raise SystemExit(f"{path} is there: this job was started before, and is run once") from None

    def note(self, **record: Any) -> None:
        """Append a line."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            while line:
                line = line[os.write(fd, line) :]
        finally:
            os.close(fd)

    def is_to_stop(self) -> bool:
        """Whether the command is to end, or was started elsewhere."""
        return any(map(os.path.exists, self.endings))


def record_path(stem: str, restarts: int) -> str:
    """The record of a start after so many times back in the queue."""
    return f"{stem}.{restarts}" if restarts else stem


def variable(batch: dict[str, Any], what: str, default: str = "") -> str:
    """A variable in which the batch system describes this job."""
    return os.environ.get(batch["variables"][what] or "", default)


def environment(batch: dict[str, Any], run: dict[str, Any]) -> dict[str, str]:
    """The batch system's variables, the user's and Dovetail's, with none that the submission changed."""
    environ = dict(os.environ)
    for name, value in batch["restore"].items():
        environ.pop(name, None)
        if value is not None:
            environ[name] = value
    if batch["hide_devices"]:
        for name in VISIBLE[:2]:
            environ.setdefault(name, "")
    nodes = variable(batch, "nodes")
    return {**environ, **batch["env"], **run["env"], "DOVETAIL_NODES": nodes}


def opened(run: dict[str, Any]) -> tuple[int, int]:
    """The files of standard output and error; new ones, but for those that the user has chosen."""
    # Appended where the name is ours: a restart of the same attempt must not lose the first part.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if run["chosen"] else os.O_APPEND)
    out = os.open(run["files"][0], flags, 0o666)
    return out, out if run["files"][1] == run["files"][0] else os.open(run["files"][1], flags, 0o666)


def begin(batch: dict[str, Any], run: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own. Raises `OSError`."""
    out, err = opened(run)
    try:
        return subprocess.Popen(
            run["argv"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=batch["cwd"],
            env=environment(batch, run),
            # A group of its own, so that what the command leaves behind can be ended with it.
            process_group=0,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED) and None,
        )
    finally:
        os.close(out)
        if err != out:
            os.close(err)


def watch(pid: int, once: RunRecordFile) -> tuple[int, Any, bool]:
    """Pass signals on until the command ends; its wait status, what it used, whether it was killed."""
    deadline = None
    forced = False
    while True:
        # By wait4, for the usage of this very child.
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what it has left behind
            return status, used, forced
        left = LOOK if deadline is None else max(0.0, deadline - time.monotonic())
        caught = signal.sigtimedwait(WATCHED, left)
        number = None if caught is None else caught.si_signo
        if number is None and deadline is not None:
            # Its grace is over.
            forced = True
            deadline = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        elif number in PASSED_ON:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        # A stop may also come as a file: on a node that Slurm no longer reaches.
        elif number in ENDINGS or (number is None and once.is_to_stop()):
            deadline = deadline or time.monotonic() + GRACE
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number or signal.SIGTERM)


def run_batch(path: str) -> int:
    """Run the command of this batch job, or of this task of its array."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    with open(path, encoding="utf-8") as file:
        batch = json.load(file)
    number = variable(batch, "index", "0")
    run = batch["runs"][int(number)]
    stem = os.path.basename(path).removesuffix(".json")
    restarts = int(variable(batch, "restarts", "0"))
    once = RunRecordFile(os.path.join(os.path.dirname(path), "runs", f"{stem}.{number}"), restarts)
    began = time.time()
    visible = {name: os.environ[name] for name in VISIBLE if name in os.environ}
    node = variable(batch, "node") or socket.gethostname()
    once.note(t="start", at=began, node=node, nodes=variable(batch, "nodes") or node, visible=visible)
    try:
        process = begin(batch, run)
    except OSError as error:
        what = f"program {run['argv'][0]!r}" if error.filename in (None, run["argv"][0]) else error.filename
        text = f"{what} cannot be started: {error.strerror}"
        once.note(t="end", **{"from": began}, at=time.time(), error=text)
        return 127
    status, used, forced = watch(process.pid, once)
    process.returncode = os.waitstatus_to_exitcode(status)
    times = {"from": began, "at": time.time()}
    cpu = used.ru_utime + used.ru_stime
    once.note(t="end", **times, status=status, cpu=cpu, rss=used.ru_maxrss * 1024, forced=forced)
    # As a shell has it, so that Slurm's own records show the signal.
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(run_batch(sys.argv[1]))
