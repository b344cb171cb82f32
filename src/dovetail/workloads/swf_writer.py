"""Writes workloads as SWF, and cuts and shifts SWF files without touching the other fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from dovetail.errors import InputError
from dovetail.files.tables import LARGEST
from dovetail.model import Cluster, Job, Workload
from dovetail.workloads.resources import requested_counts, uses_devices
from dovetail.workloads.swf_arrays import readable_lines

UNKNOWN = "-1"


def as_number(value: float) -> str:
    """A number as SWF has it: whole where it is whole, else with its decimals."""
    return str(int(value)) if value == math.floor(value) else repr(value)


def swf_line(fields: Mapping[int, float | str | None]) -> str:
    """A job line of its fields, counted from 1; those that are ``None`` or missing are unknown (-1)."""
    words = [UNKNOWN] * 18
    for field, value in fields.items():
        if value is not None:
            words[field - 1] = value if isinstance(value, str) else as_number(value)
    return " ".join(words)


def swf_header(name: str, jobs: int, processors: int | None, notes: Iterable[str] = ()) -> list[str]:
    """Header lines; what goes into them is kept on one line each."""
    lines = ["; Version: 2.2", f"; Note: {_one_line(name)}, written by Dovetail", f"; MaxJobs: {jobs}"]
    if processors:
        lines += [f"; MaxProcs: {processors}"]
    return lines + [f"; Note: {_one_line(note)}" for note in notes]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def numbers_for(names: Iterable[str | None]) -> dict[str | None, int]:
    """Numbers for users, groups or queues: their own where all have one, else 1, 2 … as they come."""
    known = [name for name in dict.fromkeys(names) if name is not None]
    # Numbers only if every one survives the way back: "007" would come back as 7.
    own = all(n.isascii() and n.isdigit() and len(n) <= 15 and str(int(n)) == n for n in known)
    return {name: int(name) if own else i for i, name in enumerate(known, start=1)}


def number_legend(what: str, numbers: dict[str | None, int]) -> list[str]:
    """Notes that give the name behind a number, where it is not the name itself."""
    return [f"{what} {n} is {name}" for name, n in numbers.items() if str(n) != name]


def swf_text(
    name: str,
    jobs: Sequence[Job],
    rows: Iterable[Mapping[int, float | None]],
    capacity: int | None,
    notes: Iterable[str],
) -> str:
    """A log with a line for each job: the fields of its row, and those that every job has."""
    of = ("id", "user", "group", "queue")
    ids, users, groups, queues = (numbers_for(getattr(job, name) for job in jobs) for name in of)
    legends = number_legend("user", users) + number_legend("group", groups) + number_legend("queue", queues)
    # Names go into the header, which readers of SWF pass over.
    lines = swf_header(name, len(jobs), capacity, [*notes, *legends])
    for job, row in zip(jobs, rows, strict=True):
        fields = {1: ids[job.id], 2: job.submit_time, 9: job.walltime, 12: users.get(job.user)}
        lines.append(swf_line({**fields, 13: groups.get(job.group), 15: queues.get(job.queue), **row}))
    return "\n".join(lines) + "\n"


def workload_as_swf(workload: Workload, cluster: Cluster | None = None) -> str:
    """The jobs in order of submission, with their true times.

    Processors are the CPUs that a job requests, or its GPUs in a workload in which every job uses whole
    GPUs (the header notes it). Job ids that are no numbers, or not unique as numbers, are counted
    from 1. Apps, inputs, memory and priorities have no place in SWF and are left out. Raises `InputError`
    for jobs that SWF cannot express: on CPUs and on GPUs side by side, shares of a GPU, several
    implementations or node counts, all CPUs of nodes of unknown size, numbers of 2^53 or more; and where
    there is no job.
    """
    _check_some(workload)
    devices = uses_devices(workload.jobs)
    sizes = requested_counts(workload, cluster, devices=devices)
    # Everything is refused before the first line is written.
    for job, size in zip(workload.jobs, sizes, strict=True):
        if len(job.choices) > 1:
            raise InputError(f"job {job.id}: found several ways of running it, expected one: SWF has no more")
        if size is None:
            raise InputError(f"job {job.id}: requests all CPUs of a node, expected a cluster to count them")
        if size != int(size) or size < 1:
            what = "GPUs, as other jobs of the workload use GPUs" if devices else "CPUs"
            raise InputError(f"job {job.id}: requests {size:g} {what}, expected a whole number for SWF")
    notes = ["one processor is one GPU"] if devices else []
    capacity = None if cluster is None else cluster.total_devices if devices else cluster.total_cpus
    rows: list[Mapping[int, float | None]] = []
    for job, size in zip(workload.jobs, sizes, strict=True):
        choice = job.choices[0]
        run = workload.truth.seconds(job, choice.implementation, choice.request)
        # Readers of SWF hold numbers as doubles.
        if max(job.submit_time, run or 0, size or 0, job.walltime or 0) >= LARGEST:
            raise InputError(f"job {job.id}: found a number of 2^53 or more, expected what SWF can hold")
        rows.append({4: run, 5: size, 8: size})
    return swf_text(workload.name, workload.jobs, rows, capacity, notes)


def _check_some(workload: Workload) -> None:
    if not workload.jobs:
        raise InputError(f"{workload.name}: found no jobs, expected at least one to write")


def edited_swf(data: bytes, workload: Workload) -> bytes:
    """The SWF text from which ``workload`` was read, with the lines of its jobs alone, in file order.

    Comments stay; of a line only the submit time changes, and only if the job's has; lines end in line
    feeds. Raises `InputError` where there is no job. O(bytes).
    """
    _check_some(workload)
    submits = {job.index: job.submit_time for job in workload.jobs}
    kept: list[bytes] = []
    place = 0
    for line, tokens in readable_lines(data):
        if tokens is None:
            kept.append(line.rstrip(b"\r"))
            continue
        submit = submits.get(place)
        place += 1
        if submit is None:
            continue
        # Only a changed time is written anew, so that a log that was cut differs from its source in nothing
        # else.
        if float(tokens[1]) != submit:
            line = b" ".join([tokens[0], as_number(submit).encode(), *tokens[2:]])
        kept.append(line.rstrip(b"\r"))
    return b"\n".join(kept) + b"\n"
