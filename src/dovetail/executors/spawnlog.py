"""The spawn log: what was started and what became of it, in a form that survives our death.

``spawn.log`` in the run folder holds one JSON object a line, each appended by one write:

==============  ==============================================================================
``run``         first line, by Dovetail: unique id of the run, boot id, pid and start of Dovetail
``supervisor``  the supervisor is up (pid)
``setup``       what jobs of one implementation on one place share: environment, cores, folder
``intent``      a job is about to be started: argv, inputs, files, number of its setup
``start``       it was: pid, time, seconds since boot (a pid alone may have been given again)
``end``         it ended: wait status, CPU seconds, peak bytes; or the error that prevented its start
``gone``        Dovetail has closed its end, or died
``done``        the last job has ended and the supervisor leaves
``settled``     Dovetail has recorded everything: nothing is left to recover
==============  ==============================================================================

The file is locked (flock) for as long as Dovetail or the supervisor lives. A line torn by a full disk
or a crash is skipped. Nothing is synced: a crash of the machine ends the jobs too, and a changed boot id
says so.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.executors.transfers import reported
from dovetail.model import Ended, State, Usage

__all__ = [
    "LOG_NAME",
    "SpawnLog",
    "append",
    "boot_id",
    "ended",
    "is_alive",
    "last_line",
    "read_log",
    "settle",
    "started_at",
]

LOG_NAME = "spawn.log"
TICKS = os.sysconf("SC_CLK_TCK")
SLACK = 1.0
"""Seconds within which a process must have been started after its recorded moment to be the one meant."""


@dataclass(slots=True)
class SpawnLog:
    """A spawn log as read: records by kind, those of jobs by uid, in order of appearance."""

    header: dict[str, Any] = field(default_factory=dict)
    supervisors: list[dict[str, Any]] = field(default_factory=list)
    setups: dict[int, dict[str, Any]] = field(default_factory=dict)
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: bool = False
    done: bool = False
    settled: bool = False
    torn: int = 0

    def unended(self) -> list[str]:
        """Uids that were to be started and have no end on record."""
        return [uid for uid in self.intents if uid not in self.ends]


def read_log(path: Path) -> SpawnLog:
    """Read a spawn log. Raises `OSError`. Linear in its length; lines that are no records are counted."""
    log = SpawnLog()
    by_uid = {"intent": log.intents, "start": log.starts, "end": log.ends}
    for line in path.read_bytes().split(b"\n"):
        if not line:
            continue
        try:
            record = json.loads(line)
            kind = record["t"]
            if kind in by_uid:
                by_uid[kind].setdefault(record["uid"], record)
            elif kind == "setup":
                log.setups[record["setup"]] = record
            elif kind == "run":
                log.header = record
            elif kind == "supervisor":
                log.supervisors.append(record)
            elif kind in ("gone", "done", "settled"):
                setattr(log, kind, True)
        except (ValueError, KeyError, TypeError):
            log.torn += 1
    return log


def append(fd: int, record: dict[str, Any]) -> None:
    """Append one record. Raises `OSError`."""
    os.write(fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def settle(run_dir: Path) -> None:
    """Note that nothing of a run is left to recover. Raises `OSError`."""
    fd = os.open(run_dir / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        append(fd, {"t": "settled"})
    finally:
        os.close(fd)


def boot_id() -> str:
    """Changes when the machine starts anew."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at(pid: int) -> float | None:
    """Seconds since boot at which a living process was started; ``None`` if there is none (or a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19]) / TICKS


def is_alive(pid: int, boot: float) -> bool:
    """Whether the process that was started at ``boot`` seconds since boot still runs under this pid."""
    start = started_at(pid)
    return start is not None and -0.05 <= start - boot <= SLACK


def last_line(path: str, longest: int = 4096) -> str:
    """The last non-empty line of a file, empty if there is none or it is longer than ``longest`` bytes."""
    try:
        size = os.stat(path).st_size
        if not size:  # mostly: then one call is all
            return ""
        start = max(0, size - longest)
        with open(path, "rb", buffering=0) as file:
            tail = os.pread(file.fileno(), longest, start)
    except OSError:
        return ""
    _, newline, line = tail.rstrip().rpartition(b"\n")
    if not newline and start:
        return ""
    return line.decode("utf-8", "replace")


def ended(intent: Mapping[str, Any], end: Mapping[str, Any]) -> Ended:
    """The event that an end record stands for; reads the last line of what the job wrote."""
    job = intent["job"]
    if "error" in end:
        return Ended(job, State.FAILED, None, end["error"], Usage(), end["from"], end["at"])
    status = end["status"]
    code = os.waitstatus_to_exitcode(status)
    details: list[str] = []
    if code < 0:
        details.append(f"ended by signal {-code} ({_signal_name(-code)})")
    elif code:
        details.append(f"exit code {code}")
    state = State.COMPLETED if code == 0 else State.FAILED
    stop = end.get("stop")
    if stop is not None:
        state = State(stop) if stop in State.__members__ else State.CANCELLED
        if stop not in State.__members__:
            details.insert(0, stop)
        if end.get("forced"):
            details.append("killed because it did not end on SIGTERM")
    elif code:
        said = last_line(intent["files"] + ".err").strip()
        if said:
            details.append(said if len(said) <= 200 else f"{said[:197]}…")
    if end.get("survivors"):
        details.append("processes that outlived it were killed")
    said = last_line(intent["files"] + ".out") if code == 0 else ""
    usage = reported(said, end["cpu"], end["rss"], end["at"] - end["from"])
    return Ended(job, state, code, "; ".join(details), usage, end["from"], end["at"])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
