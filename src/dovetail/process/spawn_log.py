"""The spawn log: what was started and what became of it, in a form that survives our death.

``spawn.log`` in the run folder holds one JSON object a line, each appended by one write:

==============  ==============================================================================
``run``         first line, by Dovetail: unique id of the run, its place, pid and start of Dovetail
``supervisor``  the supervisor is up: its place, pid
``groups``      where the supervisor makes a cgroup for each job, if it can
``setup``       what jobs of one implementation on one place share: environment, cores, folder
``environ``     an environment that a client brought along: setups are built on it, by its number
``fault``       an error of the supervisor that was not foreseen
``intent``      a job is about to be started: argv, inputs, files, number of its setup
``start``       it was: pid, time, seconds since boot (a pid alone may have been given again), cgroup
``unstarted``   it was not, for want of something that may be there again soon: as if never requested
``end``         it ended: wait status, CPU seconds, peak bytes; or the error that prevented its start
``gone``        Dovetail has closed its end, or died
``client``      another Dovetail has taken its place: its place, pid and start
``done``        the last job has ended and the supervisor leaves
``settled``     Dovetail has recorded everything: nothing is left to recover
==============  ==============================================================================

The file is locked (flock) for as long as Dovetail or the supervisor lives. A line torn by a full disk
or a crash is skipped. Nothing is synced: a crash of the machine ends the jobs too, and a changed boot id
shows it. A place is host, boot id and PID namespace (`dovetail.process.processes.process_origin`): a pid is
looked at only where it means something. What is read is checked record by record: a log that was cut or
changed is distinguished from one that is whole (`SpawnLog.describe_damage`).
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import stat
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dovetail.files.writing import write_all
from dovetail.model import Ended, State, Usage
from dovetail.process.device_memory import last_words, who_lacks_memory
from dovetail.process.transfers import reported_usage
from dovetail.records import dataclass

LOG_NAME = "spawn.log"


@dataclass(slots=True)
class SpawnLog:
    """A spawn log as read: records by kind, those of jobs by uid, in order of appearance."""

    header: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    supervisors: list[dict[str, Any]] = field(default_factory=list)
    setups: dict[int, dict[str, Any]] = field(default_factory=dict)
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)  # number of the supervisor that took the intent
    next_number: int = 0  # the first that neither a setup nor an environment has
    place: str = ""  # where the last supervisor has made cgroups
    gone: bool = False
    done: bool = False
    settled: bool = False
    torn: int = 0
    wrong: int = 0

    def describe_damage(self) -> str:
        """What is missing or wrong, beyond a torn line, as a clause; empty where nothing is."""
        missing: list[str] = []
        if not self.header:
            missing.append("the line with which it begins")
        unknown = (self.starts.keys() | self.ends.keys()) - self.intents.keys()
        if unknown:
            missing.append(f"the requests of {len(unknown)} jobs")
        bare = [uid for uid, intent in self.intents.items() if intent["setup"] not in self.setups]
        if bare:
            missing.append(f"what {len(bare)} jobs share with others")
        found = ["it lacks " + " and ".join(missing)] if missing else []
        if self.wrong:
            found.append(f"{self.wrong} of its lines are no records")
        return "; ".join(found)

    def place_of(self, uid: str) -> dict[str, Any]:
        """The record of who started this job: where its pid means something."""
        number = self.owner.get(uid, 0)
        keeper = self.supervisors[number - 1] if 0 < number <= len(self.supervisors) else {}
        return keeper if "boot_id" in keeper else self.client

    def unended_uids(self) -> list[str]:
        """Uids that were to be started and have no end on record."""
        return [uid for uid in self.intents if uid not in self.ends]

    def is_watched(self, uid: str) -> bool:
        """Whether the last supervisor took this job, so that it records its end while it lives."""
        return self.owner[uid] == len(self.supervisors)


def read_log(path: Path) -> SpawnLog:
    """Read a spawn log. Raises `OSError`. Linear in its length; lines that are no records are counted.

    What is no file (a pipe that someone put there, a device) is not waited for.
    """
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return parse_log(file.read())


def parse_log(text: bytes) -> SpawnLog:
    """The records of a spawn log."""
    log = SpawnLog()
    by_uid = {"intent": log.intents, "start": log.starts, "end": log.ends}
    for line in text.split(b"\n"):
        if not line:
            continue
        record = _record_of(line)
        if record is None:
            log.torn += 1
            continue
        kind = record.get("t")
        if not is_record(record):
            log.wrong += 1
        elif kind in by_uid:
            # The first record of a uid counts: what a later look at the same job appends changes nothing.
            by_uid[kind].setdefault(record["uid"], record)
            if kind == "intent":
                log.owner.setdefault(record["uid"], len(log.supervisors))
        elif kind == "unstarted":
            log.intents.pop(record["uid"], None)
            log.owner.pop(record["uid"], None)
        elif kind == "setup":
            log.setups[record["setup"]] = record
            log.next_number = max(log.next_number, record["setup"] + 1)
        elif kind == "environ":
            log.next_number = max(log.next_number, record["environ"] + 1)
        elif kind == "run":
            log.header = log.client = record
        elif kind == "client":
            log.client, log.gone, log.settled = record, False, False
        elif kind == "supervisor":
            log.supervisors.append(record)
        elif kind == "groups":
            log.place = record["place"]
        elif kind in ("gone", "done", "settled"):
            setattr(log, kind, True)
    return log


def _record_of(line: bytes) -> dict[str, Any] | None:
    """What a line holds; ``None`` where it was torn."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def append_record(fd: int, record: dict[str, Any]) -> None:
    """Append one record. Raises `OSError`."""
    write_all(fd, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def settle_log(run_dir: Path) -> None:
    """Note that nothing of a run is left to recover. Raises `OSError`."""
    fd = os.open(run_dir / LOG_NAME, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        append_record(fd, {"t": "settled"})
    finally:
        os.close(fd)


def uid_of(run: str, job: str, attempt: int) -> str:
    """The unique id of one attempt of a job, for ever: as `Run.uid` has it in the history."""
    return f"{run}/{job}" if attempt == 1 else f"{run}.{attempt}/{job}"


def last_line(path: str, longest: int = 4096) -> str:
    """The last non-empty line of a file, empty if there is none or it is longer than ``longest`` bytes."""
    try:
        size = os.stat(path).st_size
        # Mostly: then one call is all.
        if not size:
            return ""
        start = max(0, size - longest)
        with open(path, "rb", buffering=0) as file:
            # Number 0: no supervisor had written its place yet, so the client's is all that is known.
            tail = os.pread(file.fileno(), longest, start)
    except OSError:
        return ""
    _, newline, line = tail.rstrip().rpartition(b"\n")
    if not newline and start:
        return ""
    return line.decode("utf-8", "replace")


def end_event(intent: Mapping[str, Any], end: Mapping[str, Any]) -> Ended:
    """The event that an end record stands for; reads the last line of what the job wrote."""
    job, attempt = intent["job"], intent.get("attempt", 1)
    if "error" in end:
        state, ran = State(end.get("state", "FAILED")), end.get("ran", "state" in end)
        return Ended(job, state, None, end["error"], Usage(), end["from"], end["at"], attempt, ran)
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
        # The reason counts here, not the signal that ended it.
        if state is State.TIMEOUT:
            details = [f"walltime reached after {end['at'] - end['from']:.6g} s"]
        if stop not in State.__members__:
            details.insert(0, stop)
        if end.get("forced"):
            details.append("killed because it did not end on SIGTERM")
    elif code:
        output = last_line(intent["files"][1]).strip()
        if output:
            details.append(output if len(output) <= 200 else f"{output[:197]}…")
    # Only for jobs that had a device: the words also appear in the output of healthy programs.
    lacks = who_lacks_memory(last_words(intent["files"][1]), intent.get("oom", "")) if (
        state is State.FAILED and code and "on" in intent
    ) else ""  # fmt: skip
    if lacks:
        state = State.OUT_OF_MEMORY
        details.insert(0, f"out of memory on {intent['on']}, by {lacks}")
    if "why" in end:
        details.insert(0, end["why"])
    if end.get("survivors"):
        details.append("processes that outlived it were killed")
    output = last_line(intent["files"][0]) if code == 0 else ""
    usage, note = reported_usage(output, end["cpu"], end["rss"], end["at"] - end["from"])
    if note:
        details.append(note)
    # What was measured is the command that started it on its nodes.
    if "step" in intent:
        usage = replace(usage, cpu_time=None, peak_memory=None)
    moments = end["from"], end["at"]
    return Ended(job, state, code, "; ".join(details), usage, *moments, attempt, on_device=bool(lacks))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


# --- what records must be for everything that reads them to understand them ------------------------------

Right = Callable[[Any], bool]


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a line of a spawn log is a record that can be worked with; of a kind unknown here, too."""
    kind = record.get("t")
    if not isinstance(kind, str):
        return False
    if kind == "end" and "error" not in record:
        kind = "measured"
    return all(right(record.get(name)) for name, right in _FIELDS.get(kind, {}).items())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _is_time(value: Any) -> bool:
    return _is_number(value) and abs(value) <= 1e12


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53


def _is_pid(value: Any) -> bool:
    return _is_count(value) and 0 < value < 1 << 31  # process 1: of a container


def _list_of(right: Right, *, count: int | None = None) -> Right:
    def check_list(value: Any) -> bool:
        return isinstance(value, list) and count in (None, len(value)) and all(map(right, value))

    return check_list


def _is_none_or(right: Right) -> Right:
    return lambda value: value is None or right(value)


def _is_command(value: Any) -> bool:
    return bool(value) and _list_of(_is_text)(value)


def _are_inputs(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_text(one) or _is_number(one) for one in value.values())


def _is_wait_status(value: Any) -> bool:
    """A wait status of a process that has ended."""
    return _is_count(value) and value <= 0xFFFF and (os.WIFEXITED(value) or os.WIFSIGNALED(value))


def _is_shared_setup(value: Any) -> bool:
    """What the history keeps of all runs of an implementation on one place."""
    return isinstance(value, dict) and all(right(value.get(name)) for name, right in _RUN.items())


_RUN: Mapping[str, Right] = {
    "app": _is_text,
    "implementation": _is_text,
    "class": _list_of(_is_text, count=2),
    "nodes": _is_count,
    "cpus": _is_count,
    "gpus": _is_time,
}
_CLIENT: Mapping[str, Right] = {
    "boot_id": _is_text,
    "pid": _is_pid,
    "boot": _is_none_or(_is_time),
    "host": _is_none_or(_is_text),
    "ns": _is_none_or(_is_text),
}
_END: Mapping[str, Right] = {"uid": _is_text, "from": _is_time, "at": _is_time, "why": _is_none_or(_is_text)}
_FIELDS: Mapping[str, Mapping[str, Right]] = {
    "run": {**_CLIENT, "time": _is_time},
    "client": _CLIENT,
    "supervisor": {
        "pid": _is_pid,
        "boot": _is_time,
        "boot_id": _is_none_or(_is_text),
        "host": _is_none_or(_is_text),
        "ns": _is_none_or(_is_text),
    },
    "groups": {"place": _is_text},
    "setup": {"setup": _is_count, "run": _is_shared_setup, "cores": _list_of(_is_count)},
    "environ": {"environ": _is_count},
    "unstarted": {"uid": _is_text},
    "intent": {
        "uid": _is_text,
        "job": _is_text,
        "attempt": _is_none_or(_is_count),
        "setup": _is_count,
        "argv": _is_command,
        "files": _list_of(_is_text, count=2),
        "inputs": _are_inputs,
        "on": _is_none_or(_is_text),
        "oom": _is_none_or(_is_text),
        "walltime": _is_none_or(_is_time),
        "user": _is_none_or(_is_text),
    },
    "start": {
        "uid": _is_text,
        "pid": _is_pid,
        "at": _is_time,
        "boot": _is_time,
        "group": _is_none_or(_is_text),
    },
    "end": {**_END, "error": _is_text, "state": _is_none_or(lambda value: value in set(State))},
    "measured": {
        **_END,
        "status": _is_wait_status,
        "cpu": _is_time,
        "rss": _is_count,
        "stop": _is_none_or(_is_text),
    },
}
