"""Job files (TOML): apps with their implementations, and the jobs that run them.

The form is in docs/reference/jobfile.md; its keys are the options of `dovetail.spec.jobs`. An entry becomes
one or more parts of a `JobSpec` (its grid and its count are jobs of their own), and `JobBuilder` makes the
jobs. What a service is sent are the parts, not the jobs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any

from dovetail.errors import InputError
from dovetail.files.fields import validate_data
from dovetail.files.sentences import file_name
from dovetail.files.toml import read_toml
from dovetail.model import Cluster, JobId, Seconds, TableTruth, Workload
from dovetail.model.templates import DEVICE
from dovetail.records import dataclass
from dovetail.spec.jobs import JobSpec, PartialSpec, job_option, laid_over
from dovetail.workloads.app_builder import KnownApp, build_app
from dovetail.workloads.dependencies import EntryJobs, EntryNames, resolve_dependencies, resolve_names
from dovetail.workloads.grids import grid_combinations, parse_values
from dovetail.workloads.job_builder import BuiltJob, JobBuilder, depends_of
from dovetail.workloads.jobfile_schema import MOST_COPIES, AppEntry, JobFile
from dovetail.workloads.spec_forms import part_of

MOST_JOBS = 1_000_000
"""Jobs of one file, their counts taken together."""
OF_PLAIN_COMMANDS = ("on", "app")
"""What a command line gives for plain commands, and a file gives for each of its jobs."""


def load_jobfile(path: str | os.PathLike[str], part: Mapping[str, Any] | None = None) -> Workload:
    """The jobs of a job file, with their true times where it gives them; ``part`` is laid over each.

    Whether they fit a cluster is no question here: an engine rejects those that do not. Raises `InputError`,
    which names the file, the entry and the field. Linear in the number of jobs.
    """
    reading = _read_entries(path, part or {})
    jobs = resolve_dependencies(reading.entries)
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload(reading.source, jobs, TableTruth(reading.table), machine=reading.machine)


def jobfile_parts(
    path: str | os.PathLike[str], part: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[PartialSpec]]:
    """(apps, jobs) of a job file for a service: apps as they are written, jobs as parts of specs.

    ``part`` is laid over each; what it waits for are jobs of the service. Raises `InputError`, as
    `load_jobfile`: what cannot be built here is not sent.
    """
    reading = _read_entries(
        path, {name: value for name, value in part.items() if name != "depends"}, keep=True
    )
    named = [EntryNames(one.where, one.name, ids, one.depends) for one, ids in reading.sent]
    waits = [[str(one) for one in each] for each in resolve_names(named)]
    after = {"depends": part["depends"]} if "depends" in part else {}
    jobs = [
        laid_over(_for_service({**own, "id": id, "depends": list(depends)}), after)
        for (_, ids), own_parts, depends in zip(reading.sent, reading.parts, waits, strict=True)
        for id, own in zip(ids, own_parts, strict=True)
    ]
    return reading.raw_apps, jobs


def _for_service(part: PartialSpec) -> PartialSpec:
    """What a service takes of a part: true times are not known there, and its user is the one who submits."""
    found = {name: value for name, value in part.items() if job_option(name).http}
    if "queue" in part:
        found.setdefault("partition", part["queue"])
    if "priority" in found:
        found["priority"] = round(found["priority"])
    return found


def _read_entries(path: str | os.PathLike[str], part: Mapping[str, Any], *, keep: bool = False) -> _Reading:
    source = file_name(path)
    data = read_toml(path, "a job file with [[app]] and [[job]] entries")
    entries = validate_data(JobFile, data, source)
    total = sum(job.count for job in entries.job)
    if total > MOST_JOBS:
        raise InputError(f"found {total:,} jobs in all, expected at most {MOST_JOBS:,}", where=source)
    more = {name: value for name, value in part.items() if name not in OF_PLAIN_COMMANDS}
    reading = _Reading(source, _read_apps(entries.app, source), more, keep)
    reading.raw_apps = data.get("app", [])
    for number, job in enumerate(entries.job, 1):
        reading.add(part_of(job, "file"), number)
    reading.machine = None if entries.cluster is None else _read_machine(entries.cluster, path, source)
    return reading


def _read_apps(entries: Sequence[AppEntry], source: str) -> dict[str, KnownApp]:
    apps: dict[str, KnownApp] = {}
    for number, app in enumerate(entries, 1):
        where = f"{source}: app {number} {app.name!r}"
        if app.name in apps:
            raise InputError(f"found the name {app.name!r} twice, expected each app once", where=where)
        apps[app.name] = build_app(app, where)
    return apps


def _read_machine(named: str, path: str | os.PathLike[str], source: str) -> Cluster:
    """The cluster that the file names; a cluster file's name counts from the job file's folder."""
    beside = os.path.join(os.path.dirname(os.fspath(path)), named)
    try:
        return Cluster.parse(beside if os.path.isfile(beside) else named)
    except InputError as error:
        raise InputError(str(error), where=f"{source}: cluster") from None


@dataclass
class _Reading:
    """Goes through a file entry by entry; ``part`` is laid over each, what is sent is kept on demand."""

    source: str
    apps: Mapping[str, KnownApp]
    part: Mapping[str, Any]
    keep: bool
    raw_apps: list[dict[str, Any]] = field(default_factory=list)
    machine: Cluster | None = None
    entries: list[EntryJobs] = field(default_factory=list)
    table: dict[tuple[JobId, str, int], Seconds] = field(default_factory=dict)
    sent: list[tuple[EntryJobs, list[JobId]]] = field(default_factory=list)
    parts: list[list[PartialSpec]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._builder = JobBuilder(self.apps, self.source)
        # Id -> number of the entry that gave it.
        self._ids: dict[JobId, int] = {}
        self._unnamed: dict[str, int] = {}
        self._index = 0

    def add(self, entry: PartialSpec, number: int) -> None:
        """The jobs of an entry. Raises `InputError`."""
        name = entry.get("id")
        where = f"{self.source}: job {number}" + (f" {name!r}" if name is not None else "")
        self._check_entry(entry, where)
        grid = _read_grid(entry, where)
        count = entry.get("count", 1)
        total = count * math.prod(map(len, grid.values()))
        made = EntryJobs(where, name)
        self.entries.append(made)
        if self.keep:
            self.sent.append((made, []))
            self.parts.append([])
        names: Iterator[JobId] | None = None
        for values in grid_combinations(grid):
            part = laid_over(entry, self.part)
            if values:
                part["inputs"] = {**part.get("inputs", {}), **values}
            spec = JobSpec(**part)
            built = self._builder.build(spec, where)
            if names is None:
                made.depends = depends_of(spec)
                names = self._job_names(name, built.fields["app"].name, total)
            self._add_copies(built, made, number, part, islice(names, count))

    def _check_entry(self, entry: PartialSpec, where: str) -> None:
        own = {"cpus", "memory"} & entry.keys()
        if own and entry.get("app") in self.apps:
            raise InputError(
                f"found {min(own)} beside app, expected it in the app's implementations", where=where
            )
        if not {"app", "communication", "command", "implementations"} & entry.keys():
            raise InputError("found nothing, expected it to be given", where=f"{where}, app")

    def _add_copies(
        self, built: BuiltJob, made: EntryJobs, number: int, part: PartialSpec, ids: Iterable[JobId]
    ) -> None:
        """Jobs of these names that are alike."""
        for id in ids:
            if self.keep:
                self.sent[-1][1].append(id)
                self.parts[-1].append({**part, "nodes": built.fields["nodes"]})
            for job in built.named_jobs(id, self._index):
                earlier = self._ids.setdefault(job.id, number)
                if earlier != number:
                    raise InputError(
                        f"id: found {job.id!r}, which job {earlier} has already, expected each id once",
                        where=made.where,
                    )
                made.jobs.append(job)
                self._index += 1
                for implementation, nodes, time in built.timed:
                    self.table[job.id, implementation, nodes] = time

    def _job_names(self, id: JobId | None, app: str, total: int) -> Iterator[JobId]:
        if id is not None:
            return iter([id] if total == 1 else [f"{id}-{k}" for k in range(1, total + 1)])
        first = self._unnamed.get(app, 0) + 1
        self._unnamed[app] = first + total - 1
        return iter([f"{app}-{k}" for k in range(first, first + total)])


def _read_grid(part: Mapping[str, Any], where: str) -> dict[str, list[float | str]]:
    """The values of each name of the grid; texts that are numbers become numbers."""
    found: dict[str, list[float | str]] = {}
    for name, values in part.get("grid", {}).items():
        if name in part.get("inputs", ()):
            raise InputError(f"grid: found {name!r}, which inputs has too, expected it once", where=where)
        if name == DEVICE:
            raise InputError("grid: found 'device', expected another name", where=where)
        found[name] = (
            [_plain_input(text) for text in parse_values(values, f"{where}: grid, {name}")]
            if isinstance(values, str)
            else list(values)
        )
    total = part.get("count", 1) * math.prod(map(len, found.values()))
    if total > MOST_COPIES:
        raise InputError(f"grid: found {total} combinations, expected at most {MOST_COPIES}", where=where)
    return found


def _plain_input(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) and number >= 0 and text.isascii() else text
