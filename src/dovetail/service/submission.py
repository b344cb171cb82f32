"""From a request to jobs: what was sent becomes what the driver takes, or one sentence of refusal."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import ceil
from pathlib import Path
from typing import Any

from dovetail.client.errors import Full
from dovetail.client.folder import ServiceFolder
from dovetail.driver.gpu_hours import HourLimit, excess_of
from dovetail.driver.prepare import Validator
from dovetail.engine.journal.checked import check_fields
from dovetail.engine.journal.codec import encode_job, encode_json
from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.files.shortage import lack_of
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Choice,
    Cluster,
    Dependency,
    Job,
    JobId,
    Rejected,
    Seconds,
    Throttle,
)
from dovetail.model.batch_options import overriding_words, script_options
from dovetail.records import dataclass
from dovetail.running.ledger import Number
from dovetail.service.forms import SubmitForm
from dovetail.service.partitions import Partition, in_partition
from dovetail.service.repeating import check_period
from dovetail.service.terminals import APP, command_on_terminal
from dovetail.service.webhook import check_notify
from dovetail.spec.jobs import JobSpec, PartialSpec
from dovetail.workloads.app_builder import build_app, env_of
from dovetail.workloads.array_indices import MOST_ELEMENTS, parse_array
from dovetail.workloads.batch.options import placement_words
from dovetail.workloads.job_builder import CORRESPONDING, JobBuilder, depends_of
from dovetail.workloads.spec_forms import part_of

MOST_DEPENDS = 1_000_000
"""Pairs of a job and one for which it waits in a request."""
MOST_BYTES = 256 << 20


MOST_WORDS = 100_000
"""Words of one command."""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, and what the service does with all jobs of such a person.

    ``limit`` is how many of their jobs may run, or be seen by the policy, at once, ``max_gpus`` on how many
    GPUs in all, ``gpu_hours`` for how long within a window (by ``default_walltime``, of jobs without one);
    ``memory_auto``: memory that a job does not give is learned. ``as_guest``: an outside
    scheduler runs them and keeps an array's limit. ``gets_mail``: the service has a command for mail.
    ``is_owner``: it is the service's own account, for which the service runs commands of `notify`.
    """

    user: str
    limit: int | None = None
    max_gpus: int | None = None
    gpu_hours: HourLimit | None = None
    default_walltime: Seconds | None = None
    memory_auto: bool = False
    as_guest: bool = False
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    gets_mail: bool = True
    is_owner: bool = True


@dataclass(slots=True)
class Submission:
    """Jobs with the numbers they get; ``scripts`` are texts to be written before, by their paths.

    ``held`` are those that wait for a release by hand; ``notes`` are about fields of jobs that have no
    meaning on this cluster.
    """

    jobs: list[Job] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)
    held: set[JobId] = field(default_factory=set)
    notes: list[dict[str, str]] = field(default_factory=list)

    @property
    def ids(self) -> list[JobId]:
        """The ids of all jobs, in order."""
        return [job.id for job in self.jobs]


def submission_of(
    form: SubmitForm,
    who: Submitter,
    cluster: Cluster,
    first: int,
    scripts: str,
    known: Mapping[str, Sequence[JobId]],
) -> Submission:
    """The jobs of a request, numbered from ``first``.

    ``scripts`` is the folder of scripts, ``known`` the ids of the jobs that dependencies name beside those
    of this request. Looks at the sizes of files that commands name. Raises `InputError`.
    """
    return _Maker(form, who, cluster, first, scripts, known).make_submission()


@dataclass
class _Maker:
    form: SubmitForm
    who: Submitter
    cluster: Cluster
    number: int
    scripts: str
    known: Mapping[str, Sequence[JobId]]

    def __post_init__(self) -> None:
        form = self.form
        self.gate = Validator(self.cluster)
        self.found = Submission()
        self.depends = self.bytes = 0  # pairs of jobs, and what arrays take on record
        self.batch: dict[str, list[JobId]] = {}
        self.builder = JobBuilder(
            {entry.name: build_app(entry, f"app {n} {entry.name!r}") for n, entry in enumerate(form.apps, 1)},
            folder=_check_folder(form.folder),
            environ=None if form.environment is None else env_of(form.environment, "", "environment"),
            umask=form.umask,
            limits=None if form.limits is None else tuple(sorted(form.limits.items())),
            user=self.who.user,
            partitions={name for node in self.cluster.nodes for name in node.partitions},
            models=_models_of(self.cluster),
            learn_memory=self.who.memory_auto,
            keep_script=self._keep_script,
        )

    def make_submission(self) -> Submission:
        for count, form in enumerate(self.form.jobs, 1):
            part = part_of(form, "http")
            if self.form.interactive:
                part = self._on_terminal(part)
            spec = JobSpec(**part)
            # With one job and no id "job 1" in an error would name nothing that the user has written.
            alone = len(self.form.jobs) == 1 and spec.id is None  # then "job 1" would name nothing
            id = f" {spec.id!r}" if spec.id is not None else ""
            where = "" if alone else f"job {count}{id}"
            before = len(self.found.jobs)
            self._add_jobs(spec, part, where)
            # Checked as the ledger will read them: a job that cannot be read back would stop the next start.
            try:  # what could not be read back would end the next start
                for job in self.found.jobs[before:]:
                    check_fields(job)
            except ValueError as error:
                raise InputError(f"cannot be kept on record: {show_value(str(error))}", where=where) from None
        return self.found

    def _on_terminal(self, part: PartialSpec) -> PartialSpec:
        """A job whose command runs on a terminal. Raises `InputError`."""
        command = part.get("command")
        if len(self.form.jobs) > 1 or not command or part.get("array") is not None:
            raise InputError("interactive: found something else than one job with a command")
        folder = ServiceFolder(Path(self.scripts).parent)
        return {"app": APP, **part, "command": command_on_terminal(command, folder, f"{self.number}")}

    def _add_jobs(self, spec: JobSpec, part: PartialSpec, where: str) -> None:
        """A job, or all elements of an array; ``part`` is what was given of it."""
        check_period(spec.every, spec.array, where)
        spec = in_partition(spec, self.who.partitions, where)
        self.builder.passed_over.clear()
        is_script = spec.script is not None and self.who.as_guest
        if is_script and "partition" in spec.from_script:  # which its own options have
            spec = replace(spec, partition=None)
        if is_script:
            spec = _spread(spec, self.cluster)
        spec = self._settle_mail(spec, handed_over=is_script)
        if spec.notify is not None:
            check_notify(spec.notify, f"{where}: notify" if where else "notify", owner=self.who.is_owner)
        built = self.builder.build(spec, where)
        self.found.notes += [
            {"job": str(self.number), "field": field, "text": text}
            for field, text in self.builder.passed_over.items()
        ]
        elements = 1 if built.indices is None else len(built.indices)
        if len(self.found.jobs) + elements > MOST_ELEMENTS:
            raise InputError(
                f"found more than {MOST_ELEMENTS} jobs, expected at most so many at once", where=where
            )
        fields = built.fields
        fields["name"], fields["depends"] = built.name, self._read_dependencies(spec, where)
        # The script's own options hold the limit, and Slurm applies it.
        if is_script:
            built.limit = None
        if spec.script is not None:
            fields["batch_options"] = _for_batch(spec, part)
        if self.who.limit is not None:
            limit = Throttle(f"user:{self.who.user}", self.who.limit)
            fields["throttles"] = (*fields["throttles"], limit)
        fields["throttles"] += self._gpu_throttles(fields["choices"], where)
        template = Job("", **fields)
        admitted = self.gate.admit_job(template)
        # Admitted once for all elements of an array: they request the same.
        if isinstance(admitted, Rejected):
            raise InputError(_why_too_large(template, self.cluster, admitted.reason), where=where)
        if self.who.gpu_hours is not None:
            length = self.who.default_walltime if template.walltime is None else template.walltime
            if excess := excess_of(template, length, self.who.gpu_hours):
                raise InputError(excess, where=where)
        self._count_bytes(template, elements, where)
        fields["choices"] = admitted.choices
        jobs = list(built.named_jobs(f"{self.number}", len(self.found.jobs), numbered=True))
        jobs = self._pair_elements(spec, jobs, built.indices, where)
        self.found.jobs += jobs
        self.found.numbers += [(self.number, index) for index in built.indices or (None,)]
        if spec.hold:
            self.found.held.update(job.id for job in jobs)
        if spec.id is not None:
            if spec.id in self.batch:
                raise InputError(f"id: found {spec.id!r} twice, expected each id once", where=where)
            self.batch[spec.id] = [job.id for job in jobs]
        self.number += numbers_of(spec.array, own=bool(spec.variables))

    def _settle_mail(self, spec: JobSpec, *, handed_over: bool) -> JobSpec:
        """The job without mail that Slurm sends, or that nothing sends here."""
        if spec.mail_type is None:
            return spec
        if handed_over and "mail_type" in spec.from_script:
            return replace(spec, mail_type=None, mail_user=None)
        if self.who.gets_mail:
            return spec
        why = "no mail is sent: the service has no --mail-command"
        self.builder.passed_over.setdefault("mail_type", why)
        return spec

    def _gpu_throttles(self, choices: Sequence[Choice], where: str) -> tuple[Throttle, ...]:
        """The limit on devices of one user, as far as a job may need any. Raises `InputError`."""
        most, name = self.who.max_gpus, self.who.user
        wanted = [choice.request.gpus * choice.request.nodes for choice in choices]
        if most is None or not any(wanted):
            return ()
        if min(wanted) > most:
            raise InputError(
                f"found a job for {min(wanted):g} GPUs, and here at most {most} are for one user", where=where
            )
        return (Throttle(f"gpus:{name}", most, min(max(wanted), float(most))),)

    def _pair_elements(
        self, spec: JobSpec, jobs: list[Job], indices: Sequence[int] | None, where: str
    ) -> list[Job]:
        """Each element of an array waits for the one of the same index of another."""
        for text in spec.depends:
            if not text.startswith(CORRESPONDING):
                continue
            name = text.removeprefix(CORRESPONDING)
            ids = self.batch.get(name) or self.known.get(name) or ()
            there = {id.rpartition("_")[2]: id for id in ids if "_" in id}
            missing = [str(i) for i in indices or () if str(i) not in there]
            if indices is None or missing:
                what = f"without an element {missing[0]}" if missing else "of a job that is no array"
                expected = "expected arrays of like indices"
                raise InputError(f"depends: found {text!r} {what}, {expected}", where=where)
            jobs = [
                replace(job, depends=(*job.depends, Dependency("afterok", there[str(index)])))
                for job, index in zip(jobs, indices, strict=True)
            ]
        return jobs

    def _keep_script(self, text: str) -> str:
        path = os.path.join(self.scripts, f"{self.number}")
        self.found.scripts[path] = text
        return path

    def _count_bytes(self, job: Job, times: int, where: str) -> None:
        """Refuse what would fill the disk and the memory: each element of an array keeps all of this."""
        self.depends += len(job.depends) * times
        self.bytes += len(encode_json(encode_job(job))) * times if times > 1 else 0
        if self.depends > MOST_DEPENDS:
            raise InputError(
                f"depends: found {self.depends:,} pairs of a job and one that it waits for, expected at most "
                f"{MOST_DEPENDS:,}: have one job wait for all of these, and the others for that one",
                where=where,
            )
        if self.bytes > MOST_BYTES:
            raise InputError(
                f"array: found jobs of {self.bytes:,} bytes on record, expected at most {MOST_BYTES:,}: "
                "fewer elements, or shorter inputs and options",
                where=where,
            )

    def _read_dependencies(self, spec: JobSpec, where: str) -> tuple[Dependency, ...]:
        found: dict[Dependency, None] = {}
        plain = [text for text in spec.depends if not text.startswith(CORRESPONDING)]
        for wanted in depends_of(replace(spec, depends=plain), where):
            ids = self.batch.get(wanted.job) or self.known.get(wanted.job)
            if not ids:
                raise InputError(f"depends: found {str(wanted)!r}, a job that is not there", where=where)
            found.update(dict.fromkeys(replace(wanted, job=id) for id in ids))
        return tuple(found)


def _for_batch(spec: JobSpec, part: PartialSpec) -> tuple[str, ...]:
    """Options of a batch script, which a guest hands over as it is: what wins over its own lines."""
    assert spec.script is not None
    given = {name: value for name, value in part.items() if name not in spec.from_script}
    own = placement_words(spec.script)
    array = [] if spec.array is None else [f"--array={spec.array}"]
    kinds = spec.on or (["gpu"] if spec.gpus else ["cpu"])
    return script_options(own, [*array, *overriding_words(given, own, kinds), *spec.batch_options])


def _spread(spec: JobSpec, cluster: Cluster) -> JobSpec:
    """A script of more tasks than a node holds, over as many nodes as its CPUs and devices need.

    Slurm decides how many nodes tasks without ``--nodes`` are spread over, and is given the script's own
    words. This is what the job is counted as here until then; what fits on no nodes stays as it is.
    """
    nodes = cluster.nodes
    if (spec.nodes or 1) > 1 or not nodes:
        return spec
    wanted: list[tuple[str, float, float]] = []
    if isinstance(spec.cpus, int):
        wanted.append(("cpus", spec.cpus, max(node.cpus for node in nodes)))
    if isinstance(spec.gpus, int | float):
        wanted.append(("gpus", spec.gpus, max(len(node.devices) for node in nodes)))
    if isinstance(spec.memory, int):
        largest = max(node.memory or spec.memory for node in nodes)  # where none is known all fits
        wanted.append(("memory", spec.memory, largest))
    counts = [ceil(amount / most) for _, amount, most in wanted if most]
    count = max(counts, default=1)
    if count == 1 or count > len(nodes) or len(counts) < len(wanted):
        return spec
    shares: dict[str, Any] = {
        name: ceil(amount / count) for name, amount, most in wanted if amount > most or name != "memory"
    }
    return replace(spec, nodes=count, **shares)


def numbers_of(array: str | None, *, own: bool) -> int:
    """How many numbers a job takes: one, or one for each element of an array that has its ``own``."""
    if array is None or not own:
        return 1
    return max(1, len(parse_array(array)[0]))


def _models_of(cluster: Cluster) -> dict[str, set[str]]:
    """The models of the cluster's devices, by kind."""
    found: dict[str, set[str]] = {}
    for group in cluster.groups:
        for device in group.node.devices:
            found.setdefault(device.kind, set()).add(device.model)
    return found


def _check_folder(given: str | None) -> str:
    folder = os.getcwd() if given is None else given
    if not os.path.isabs(folder) or "\0" in folder:
        raise InputError(f"folder: found {show_value(folder)}, expected an absolute path")
    return folder


def _why_too_large(job: Job, cluster: Cluster, reason: str) -> str:
    """What is missing here, in words."""
    kinds = [choice.implementation.kind for choice in job.choices]
    missing = [kind for kind in kinds if not cluster.device_classes(kind)]
    if len(missing) == len(kinds):
        there = ", ".join(dict.fromkeys(unit.kind for unit in cluster.units)) or "nothing"
        return f"found a job for {' or '.join(missing)}, and there is only {there}"
    most = max((node.cpus for node in cluster.nodes), default=0)
    wanted = max((choice.request.cpus for choice in job.choices), default=0)
    if wanted not in (WHOLE_POOL, HOST_CPUS) and wanted > most:
        return f"cpus: found {wanted}, the largest node has {most}"
    if job.nodes > len(cluster):
        return f"nodes: found {job.nodes}, and there are {len(cluster)}"
    return f"found a job that {'is ' if reason.startswith('larger') else ''}{reason}"


def write_scripts(scripts: dict[str, str]) -> None:
    """Keep scripts as they are now, on the disk. Raises `Full`."""
    for path, text in scripts.items():
        target = Path(path)
        try:
            target.unlink(missing_ok=True)  # of a submission that was refused afterwards
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
            with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Full(f"{path}: cannot be written: {lack_of(error, path) or error.strerror}") from error


def check_words(data: Mapping[str, Any]) -> None:
    """Refuse a request with a command of too many words, before it is looked at word by word.

    Raises `InputError`.
    """
    for what in ("jobs", "apps"):
        entries = data.get(what)
        for number, entry in enumerate(entries if isinstance(entries, list) else (), 1):
            if not isinstance(entry, dict):
                continue
            implementations = entry.get("implementations")
            inner = list(implementations.values()) if isinstance(implementations, dict) else []
            inner += implementations if isinstance(implementations, list) else []
            for place, value in _commands_in(entry, inner):
                count = len(value) if isinstance(value, list) else value.count(" ") + 1
                if count > MOST_WORDS and (isinstance(value, list) or len(value.split()) > MOST_WORDS):
                    raise InputError(
                        f"{what[:-1]} {number}: {place}: found {count:,} words, expected at most "
                        f"{MOST_WORDS:,}; a file has room for more"
                    )


def _commands_in(entry: Mapping[str, Any], inner: Sequence[Any]) -> Iterator[tuple[str, list[Any] | str]]:
    for place in ("command", "arguments"):
        for holder in (entry, *(one for one in inner if isinstance(one, dict))):
            value = holder.get(place)
            if isinstance(value, list | str):
                yield place, value
    for one in inner:
        if isinstance(one, list | str):
            yield "implementations", one


def return_memory() -> None:
    """Give the system what was freed: glibc keeps it, 460 MB after a submission of 100,000 commands."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
