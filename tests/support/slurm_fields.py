"""What Slurm's ``scontrol show job`` has of a script, beside what the reader of scripts made of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from dovetail.files.moments import parse_begin
from dovetail.model.hostlist import expand_hostlist
from dovetail.workloads.batch.patterns import NO_INDEX, fill_pattern
from dovetail.workloads.batch.script import BatchScript
from dovetail.workloads.batch.units import MEBIBYTE, parse_array

_FIELD = re.compile(r"(?:^|\s)([A-Z][\w:/.]*)=")
NONE = "(null)"
STARTED = 30
"""Seconds from sbatch's start to the submission."""
ALL = "BEGIN,END,FAIL,INVALID_DEPEND,REQUEUE,STAGE_OUT"
"""Events of ``--mail-type=ALL``."""


def fields_of(text: str) -> dict[str, str]:
    """The fields of ``scontrol -o show job`` (the first record)."""
    line = text.splitlines()[0]
    found = list(_FIELD.finditer(line))
    ends = [match.start() for match in found[1:]] + [len(line)]
    return {match[1]: line[match.end() : end].strip() for match, end in zip(found, ends, strict=True)}


@dataclass(frozen=True)
class Field:
    """A field of both: what ours is (``None``: not to be compared), and what Slurm's is."""

    name: str
    ours: Callable[[BatchScript, Mapping[str, str]], str | None]
    theirs: Callable[[Mapping[str, str]], str]


def _show(name: str, absent: str = "") -> Callable[[Mapping[str, str]], str]:
    def theirs(job: Mapping[str, str]) -> str:
        value = job.get(name, absent)
        return absent if value == NONE else value

    return theirs


def _value(name: str) -> Callable[[BatchScript, Mapping[str, str]], str | None]:
    """The value of an option as it was given; empty where it was not."""

    def ours(script: BatchScript, job: Mapping[str, str]) -> str:
        given = script.places.get(name)
        return "" if given is None else (given.value or "")

    return ours


def _limit(script: BatchScript, job: Mapping[str, str]) -> str:
    seconds = script.fields.get("walltime")
    if seconds is None:
        return "UNLIMITED"
    minutes = ceil(seconds / 60)  # Slurm counts whole minutes
    days, minutes = divmod(minutes, 1440)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"{days}-{text}" if days else text


def _tasks(script: BatchScript, job: Mapping[str, str]) -> str:
    assert script.shares is not None
    return f"{script.shares.tasks}"


def _cpus_per_task(script: BatchScript, job: Mapping[str, str]) -> str | None:
    assert script.shares is not None
    if script.requested.cpus_per_gpu is not None:
        return None  # Slurm multiplies when the job starts
    return f"{script.requested.cpus_per_task or 1}"


def _nodes(script: BatchScript, job: Mapping[str, str]) -> str | None:
    assert script.shares is not None
    return f"{script.shares.nodes}" if script.requested.nodes is not None else None


def _memory(script: BatchScript, job: Mapping[str, str]) -> str | None:
    asked = script.requested
    for name, amount in (
        ("node", asked.memory),
        ("CPU", asked.memory_per_cpu),
        ("gpu", asked.memory_per_gpu),
    ):
        if amount is not None:
            return f"{name} {amount // MEBIBYTE}"
    return None


def _size(text: str) -> int:
    """MiB of what Slurm shows: ``1.50G``, ``64M``."""
    number, unit = re.fullmatch(r"([\d.]+)([KMGT]?)", text).groups()  # type: ignore[union-attr]
    return round(float(number) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}[unit])


def _memory_there(job: Mapping[str, str]) -> str:
    if "MemPerTres" in job:
        return f"gpu {_size(job['MemPerTres'].rpartition(':')[2])}"
    if "MinMemoryNode" in job:
        return f"node {_size(job['MinMemoryNode'])}"
    return f"CPU {_size(job['MinMemoryCPU'])}"


def _devices(script: BatchScript, job: Mapping[str, str]) -> str:
    asked = script.requested
    ways = (
        ("TresPerJob", asked.gpus),
        ("TresPerNode", asked.gpus_per_node),
        ("TresPerTask", asked.gpus_per_task),
        ("TresPerSocket", asked.gpus_per_socket),
    )
    return " ".join(f"{way}={count}" for way, count in ways if count)


def _devices_there(job: Mapping[str, str]) -> str:
    found = []
    for way in ("TresPerJob", "TresPerNode", "TresPerTask", "TresPerSocket"):
        count = 0
        for entry in job.get(way, "").split(","):
            if entry.startswith("gres:gpu") and not re.match(r"gres:gpu\w", entry):
                last = re.fullmatch(r"(\d+)(K?)", entry.rpartition(":")[2])
                count += int(last[1]) << (10 if last[2] else 0) if last else 1
        if count:
            found.append(f"{way}={count}")
    return " ".join(found)


def _models(script: BatchScript, job: Mapping[str, str]) -> str:
    return ",".join(sorted(script.requested.models))


def _models_there(job: Mapping[str, str]) -> str:
    found = set()
    for way in ("TresPerJob", "TresPerNode", "TresPerTask", "TresPerSocket"):
        for entry in job.get(way, "").split(","):
            parts = entry.split(":")
            is_type = len(parts) == 4 or (len(parts) == 3 and not re.fullmatch(r"\d+K?", parts[2]))
            if parts[:2] == ["gres", "gpu"] and is_type and parts[-1] != "0":
                found.add(parts[2])
    return ",".join(sorted(found))


def _array(script: BatchScript, job: Mapping[str, str]) -> str:
    return "" if script.array is None else _indices(script.array.text)


def _array_there(job: Mapping[str, str]) -> str:
    return _indices(job["ArrayTaskId"]) if "ArrayTaskId" in job else ""


def _indices(text: str) -> str:
    array = parse_array(text)
    bare, _, at_once = array.text.partition("%")
    found: set[int] = set()
    for part in bare.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return f"{sorted(found)} % {at_once or 'all'}"


def _path(name: str) -> Callable[[BatchScript, Mapping[str, str]], str | None]:
    """A file as Slurm fills it in; what no node gives yet, and what ours has no default for, is left out."""

    def ours(script: BatchScript, job: Mapping[str, str]) -> str | None:
        pattern = script.fields.get(name)
        if name == "stderr" and pattern is None:
            pattern = script.fields.get("stdout")
        if pattern is None or re.search(r"%[\dnstb]|%%|\\", str(pattern)):  # as scontrol leaves them
            return None
        pattern = str(pattern).replace("%J", "\1")
        is_array = "ArrayJobId" in job
        path, _ = fill_pattern(
            str(pattern), job["JobName"], job["UserId"].partition("(")[0], is_array=is_array
        )
        if "\0H" in path:
            return None
        number = job["JobId"]
        marks = {"j": number, "J": number, "A": number, "a": NO_INDEX, "b": NO_INDEX[-1]}
        path = re.sub(r"\0(\d*)([A-Za-z])", lambda m: marks[m[2]].zfill(int(m[1] or 0)), path)
        return os.path.normpath(os.path.join(job["WorkDir"], path.replace("\1", "%J")))

    return ours


def _path_there(name: str) -> Callable[[Mapping[str, str]], str]:
    return lambda job: os.path.normpath(job[name])


def _dependencies(script: BatchScript, job: Mapping[str, str]) -> str:
    """Kinds, jobs and minutes; of another order than the text's."""
    found = [text.removeprefix("?") for text in script.fields.get("depends", ())]
    return " ".join(sorted([*found, *(["singleton"] if script.fields.get("singleton") else [])]))


def _dependencies_there(job: Mapping[str, str]) -> str:
    """Slurm writes ``afterok:7_*(unfulfilled)``; jobs that it does not know it has left out before."""
    text = job["Dependency"]
    parts = [] if text == NONE else re.split(r"[,?]", re.sub(r"\([a-z]+\)", "", text))
    # Minutes are shown, and do nothing but after "after".
    parts = [part if part.startswith("after:") else part.partition("+")[0] for part in parts]
    return " ".join(sorted(part.replace("_*", "") for part in parts))


def _begin(script: BatchScript, job: Mapping[str, str]) -> str | None:
    """The moment that it means at Slurm's own moment of submission; none, where that has passed.

    sbatch counts from its own start, which is some seconds before.
    """
    given = script.places.get("begin")
    if given is None:
        return None
    submitted = datetime.fromisoformat(job["SubmitTime"])
    moment = parse_begin(given.value or "", submitted)
    if moment <= submitted:
        return None
    there = job["EligibleTime"]
    if there != "Unknown" and 0 <= (moment - datetime.fromisoformat(there)).total_seconds() <= STARTED:
        return there
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _folder(script: BatchScript, job: Mapping[str, str]) -> str | None:
    folder = script.fields.get("folder")
    return None if folder is None else os.path.normpath(os.path.join(os.path.dirname(job["Command"]), folder))


def _partitions(script: BatchScript, job: Mapping[str, str]) -> str | None:
    names = script.fields.get("partition")
    return None if names is None else ",".join(sorted(names.split(",")))


def _least_cpus(script: BatchScript, job: Mapping[str, str]) -> str | None:
    """Slurm raises it to what the tasks of a node need."""
    least = script.requested.least_cpus
    return f"{max(least, int(job['MinCPUsNode']))}" if least else None


def _mail(script: BatchScript, job: Mapping[str, str]) -> str:
    events = str(script.fields.get("mail_type", "")).split(",")
    return ",".join(sorted({*events, *ALL.split(",")} - {"ALL"} if "ALL" in events else events))


def _hosts(option: str) -> Callable[[BatchScript, Mapping[str, str]], str | None]:
    def ours(script: BatchScript, job: Mapping[str, str]) -> str | None:
        given = script.places.get(option)
        if given is None or "/" in (given.value or ""):
            return None
        return ",".join(sorted(set(expand_hostlist(given.value or ""))))

    return ours


def _hosts_there(name: str) -> Callable[[Mapping[str, str]], str]:
    return lambda job: ",".join(sorted(expand_hostlist(job[name]))) if job[name] != NONE else ""


def _name(script: BatchScript, job: Mapping[str, str]) -> str | None:
    if job["JobName"] == "":  # ours has the script's name then, with a warning
        return None
    return str(script.fields.get("name", script.job_name))


FIELDS = (
    Field("name", _name, _show("JobName")),
    Field("limit", _limit, _show("TimeLimit")),
    Field("tasks", _tasks, _show("NumTasks")),
    Field("CPUs a task", _cpus_per_task, _show("CPUs/Task")),
    Field("nodes", _nodes, lambda job: job["NumNodes"].partition("-")[0]),
    Field("memory", _memory, _memory_there),
    Field("GPUs", _devices, _devices_there),
    Field("types of GPUs", _models, _models_there),
    Field("array", _array, _array_there),
    Field("requeue", lambda script, job: f"{int(bool(script.fields.get('restartable')))}", _show("Requeue")),
    Field("comment", _value("comment"), _show("Comment")),
    Field("account", lambda script, job: (_value("account")(script, job) or "").lower(), _show("Account")),
    Field("features", _value("constraint"), _show("Features")),
    Field("licenses", _value("licenses"), _show("Licenses")),
    Field("nice", lambda script, job: f"{script.fields.get('nice', 0)}", _show("Nice")),
    Field("output", _path("stdout"), _path_there("StdOut")),
    Field("error", _path("stderr"), _path_there("StdErr")),
    Field("whole nodes", lambda script, job: f"{script.requested.exclusive}",
          lambda job: f"{job['OverSubscribe'] == 'NO'}"),
    Field("begin", _begin, lambda job: job["EligibleTime"]),
    Field("folder", _folder, lambda job: os.path.normpath(job["WorkDir"])),
    Field("input", _path("stdin"), _path_there("StdIn")),
    Field("partition", _partitions, lambda job: ",".join(sorted(job["Partition"].split(",")))),
    Field("least CPUs", _least_cpus, _show("MinCPUsNode")),
    Field("dependencies", _dependencies, _dependencies_there),
    Field("mail", _mail, lambda job: ",".join(sorted(job.get("MailType", "").split(",")))),
    Field("nodes by name", _hosts("nodelist"), _hosts_there("ReqNodeList")),
    Field("other nodes", _hosts("exclude"), _hosts_there("ExcNodeList")),
    Field("contiguous", lambda script, job: f"{int('contiguous' in script.places)}", _show("Contiguous")),
)  # fmt: skip


def differences(script: BatchScript, job: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """By field: what ours is, and what Slurm's is, where these are not the same."""
    found = {}
    for field in FIELDS:
        ours, theirs = field.ours(script, job), field.theirs(job)
        if ours is not None and ours != theirs:
            found[field.name] = ours, theirs
    return found
