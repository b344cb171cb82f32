"""Jobs of the service in Slurm's terms: ids, states, reasons, what they hold."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from dovetail_slurm.shims.options import Wrong
from dovetail_slurm.shims.service import Service
from dovetail_slurm.shims.times import format_short

PARTITION = "dovetail"
"""The partition of a service that has none: all its nodes."""
STATES: Mapping[str, str] = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "BOOT_FAIL": "BF",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "RESIZING": "RS",
    "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ",
    "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH",
    "REVOKED": "RV",
    "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO",
    "STOPPED": "ST",
}
"""Slurm's states, with their short forms; jobs of the service have those of `OURS`."""
OURS = (
    "PENDING",
    "RUNNING",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
)
OPEN = ("PENDING", "RUNNING")
MEBIBYTE = 1 << 20
_ID = re.compile(r"(\d+)(?:_(?:(\d+)|\[([\d,:%-]+)\]))?(?:[.+](\w+))?", re.ASCII)
_WHO = re.compile(r"cancelled by (\S+)")

Row = Mapping[str, Any]


class Job:
    """One job, or the waiting jobs of an array together: ``indices`` are then theirs, as ``3-5%2``."""

    def __init__(self, row: Row, now: float, indices: str = "") -> None:
        self.row, self.now, self.indices = row, now, indices

    def __getitem__(self, name: str) -> Any:
        return self.row[name]

    @property
    def id(self) -> str:
        """``12``, ``12_3``, ``12_[3-5%2]``."""
        if self.row["array"] is None:
            return str(self.row["id"])
        return f"{self.row['array']}_{f'[{self.indices}]' if self.indices else self.row['index']}"

    @property
    def number(self) -> int:
        """Its own number; of the waiting jobs of an array together that of the array."""
        return int(self.row["array"] if self.indices else self.row["number"])

    @property
    def array(self) -> int:
        """The number of its array, of another job its own."""
        return int(self.row["number"] if self.row["array"] is None else self.row["array"])

    @property
    def state(self) -> str:
        """One of `OURS`."""
        return str(self.row["state"])

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state == "PENDING"

    @property
    def precedence(self) -> tuple[float, ...]:
        """The order of waiting jobs, highest first: what Slurm has in one number."""
        return (
            not self.reason.startswith("JobHeld"),
            self.row["priority"],
            -float(self.option.get("nice", 0)),
            -self.row["turn"],
        )

    @property
    def user(self) -> str:
        """Its user's name."""
        return str(self.row["user"] or "nobody")

    @property
    def partition(self) -> str:
        """Its partition."""
        return str(self.row["partition"] or PARTITION)

    @property
    def nodes(self) -> int:
        """How many nodes it requests or has."""
        return int(self.row["request"]["nodes"])

    @property
    def cpus(self) -> int:
        """CPUs on all its nodes."""
        held = sum(len(cores) for cores in self.row["cores"].values())
        # What it holds, once it runs; before, what it requests.
        return held or max(1, int(self.row["request"]["cpus"])) * self.nodes

    @property
    def memory(self) -> int:
        """Bytes a node; 0: not counted."""
        return int(self.row["request"]["memory"] or 0)

    @property
    def devices(self) -> dict[str, int]:
        """Devices a node, by kind; a share counts as one."""
        found = self.row["request"]["devices"].items()
        # GRES counts whole devices, so half a GPU is shown as one.
        return {kind: max(1, int(-(-count // 1))) for kind, count in found if count}

    @property
    def elapsed(self) -> float:
        """Seconds since its start, to its end."""
        start, end = self.row["start"], self.row["end"]
        if start is None or self.waits:
            return 0.0
        return max(0.0, (self.now if end is None else float(end)) - float(start))

    @property
    def limit(self) -> float | None:
        """Seconds; ``None``: none."""
        found = self.row["walltime"]
        return None if found is None else float(found)

    @property
    def start(self) -> float | None:
        """When it began, or is predicted to."""
        found = self.row["predicted_start"] if self.waits else self.row["start"]
        return None if found is None else float(found)

    @property
    def end(self) -> float | None:
        """When it ended, or comes to its limit."""
        if self.row["end"] is not None:
            return float(self.row["end"])
        if self.limit is None or self.waits or self.row["start"] is None:
            return None
        return float(self.row["start"]) + self.limit

    @property
    def option(self) -> Mapping[str, Any]:
        """Account, comment, qos, wckey, nice, where they were given."""
        found: Mapping[str, Any] = self.row["options"]
        return found

    @property
    def tasks(self) -> int:
        """How many tasks it has."""
        found = str(self.row["variables"].get("SLURM_NTASKS", ""))
        return int(found) if found.isdecimal() and int(found) else self.nodes

    @property
    def exit(self) -> tuple[int, int]:
        """Exit code, and the signal that ended its script."""
        code = self.row["exit_code"]
        if code is None:
            return 0, 0
        return (int(code), 0) if code >= 0 else (0, -int(code))

    @property
    def canceller_number(self) -> str:
        """The number of the user who cancelled it; empty where none did."""
        match = _WHO.search(str(self.row["detail"] or "")) if self.state == "CANCELLED" else None
        return "" if match is None else str(uid_of(match[1]))

    @property
    def reason(self) -> str:
        """Why it waits, or ended so, as Slurm has it."""
        if not self.waits:
            return _ENDS.get(self.state, "None")
        text = str(self.row["held"] or self.row["reason"] or "")
        # The first that fits: `waits for memory` has to come before `waits`.
        return next((word for start, word in _WAITS if text.startswith(start)), "Priority")

    @property
    def dependency(self) -> str:
        """``afterok:1(unfulfilled)``, or empty."""
        if not self.waits:
            return ""
        joint = "?" if any(str(one).startswith("?") for one in self.row["depends"]) else ","
        return joint.join(f"{str(one).removeprefix('?')}(unfulfilled)" for one in self.row["depends"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.row["name"])

    @property
    def time_limit(self) -> str:
        """As squeue has it."""
        return "UNLIMITED" if self.limit is None else format_short(self.limit)

    @property
    def compact(self) -> str:
        """The short form of its state."""
        return STATES.get(self.state, self.state)

    def tres(self) -> str:
        """What it has, as ``cpu=2,mem=1G,node=1,billing=2``."""
        parts = [f"cpu={self.cpus}"]
        parts += [f"mem={format_size(self.memory * self.nodes)}"] if self.memory else []
        parts += [f"node={self.nodes}", f"billing={self.cpus}"]
        parts += [f"gres/{kind}={count * self.nodes}" for kind, count in self.devices.items()]
        return ",".join(parts)


_ENDS = {
    "FAILED": "NonZeroExitCode",
    "TIMEOUT": "TimeLimit",
    "NODE_FAIL": "NodeDown",
    "OUT_OF_MEMORY": "OutOfMemory",
}
_WAITS = (
    ("held", "JobHeldUser"),
    ("depends on", "Dependency"),
    ("begins", "BeginTime"),
    ("its moment", "BeginTime"),
    ("throttled", "JobArrayTaskLimit"),
    ("the queue is paused", "PartitionDown"),
    ("paused", "PartitionDown"),
    ("waits for memory", "Resources"),
    ("waits for its turn", "Priority"),
    ("waits", "Resources"),
)


def format_size(amount: int) -> str:
    """Bytes in the largest unit of 1024 in which they are whole, from MiB on: ``500M``, ``2G``, ``1.50G``.

    >>> format_size(500 << 20), format_size(2 << 30), format_size(1536 << 20)
    ('500M', '2G', '1.50G')
    """
    number = amount / MEBIBYTE
    if not amount:
        return "0"
    for unit in "MGT":
        if number < 1024 or unit == "T":
            break
        number /= 1024
    return f"{number:.0f}{unit}" if number == int(number) else f"{number:.2f}{unit}"


@cache
def uid_of(name: str) -> int:
    """The number of a user; 4294967294, Slurm's unknown one, for a name that is none here."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return 4294967294


@cache
def group_of(name: str) -> tuple[str, int]:
    """The name and number of a user's group."""
    # Imported here, as most calls of the shims never need it, and each has to start fast.
    import grp

    try:
        gid = pwd.getpwnam(name).pw_gid
        return grp.getgrgid(gid).gr_name, gid
    except KeyError:
        return "nogroup", 4294967294


def account_name() -> str:
    """The name of this account."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def is_user(name: str) -> bool:
    """Whether this machine knows a user of that name or number."""
    try:
        return bool(pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name))
    except (KeyError, OverflowError):
        return False


def user_names(parts: Iterable[str]) -> list[str]:
    """Names of users that were given by name or number."""
    found = []
    for one in parts:
        try:
            found.append(pwd.getpwuid(int(one)).pw_name if one.isdecimal() else one)
        except KeyError:
            found.append(one)
    return found


def parse_selector(text: str) -> tuple[str, str]:
    """``12``, ``12_3``, ``12_[0-3%2]``, ``12.batch`` as the service has it, and the step.

    Raises `ValueError`.
    """
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError(text)
    number, index, several, step = match.groups()
    if several is not None:
        several = several.partition("%")[0]
        return f"{number}_[{several}]", step or ""
    return (f"{number}_{index}" if index is not None else number), step or ""


def split_list(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def state_names(texts: Iterable[str]) -> list[str]:
    """Slurm's states of ``R,PD``, ``running``, ``all``; raises `ValueError` for what is none."""
    short_forms = {compact: name for name, compact in STATES.items()}
    found: list[str] = []
    for text in texts:
        word = text.upper()
        if word == "ALL":
            return list(STATES)
        name = short_forms.get(word) or next((one for one in STATES if one == word), None)
        if name is None:
            name = next((one for one in STATES if len(word) > 2 and one.startswith(word)), None)
        # Abbreviations from three letters on, as two are short forms of their own.
        if name is None:
            raise ValueError(text)
        found.append(name)
    return found


def load_jobs(service: Service, **question: Any) -> list[Job]:
    """The jobs that a question is about, in order of submission."""
    found = service.get("/api/v1/records", question)
    return [Job(row, float(found["now"])) for row in found["jobs"]]


def gather_arrays(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, where the waiting ones of an array stand together."""
    found: list[Job] = []
    arrays: dict[int, list[Job]] = {}
    # In Slurm waiting elements are one record until they start; a line for each would flood scripts that
    # count lines.
    for job in jobs:
        if job.waits and job["array"] is not None:
            together = arrays.setdefault(job.array, [])
            if not together:
                found.append(job)
            together.append(job)
        else:
            found.append(job)
    return [
        Job(one.row, one.now, index_spans(arrays[one.array]))
        if one.waits and one["array"] is not None
        else one
        for one in found
    ]


def index_spans(jobs: Sequence[Job]) -> str:
    """The indices of an array's jobs: ``3-5,9%2``."""
    numbers = sorted(int(job["index"]) for job in jobs)
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    text = ",".join("-".join(map(str, part)) for part in parts)
    at_once = jobs[0]["at_once"]
    return text if at_once is None else f"{text}%{at_once}"


def wrong_id(command: str, text: str) -> Wrong:
    """What an id is answered with that is none."""
    return Wrong(f"{command}: error: Invalid job id {text}")
