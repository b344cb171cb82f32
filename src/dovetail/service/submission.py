"""From a request to jobs: what was sent becomes what the driver takes, or one sentence of refusal."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from dovetail.engine.driver.prepare import Validator
from dovetail.engine.journal.checked import checked
from dovetail.engine.journal.codec import encode_job, encoded
from dovetail.errors import InputError
from dovetail.files.sentences import closest, shown
from dovetail.files.units import seconds_of
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    App,
    Choice,
    Cluster,
    Command,
    Dependency,
    Implementation,
    Job,
    JobId,
    Launch,
    Rejected,
    Request,
    Sizing,
    Throttle,
    request_for,
)
from dovetail.model.templates import DEVICE, escape, placeholders
from dovetail.records import dataclass
from dovetail.running.ledger import Number
from dovetail.service.errors import Full
from dovetail.service.forms import JobForm, SubmitForm
from dovetail.service.selectors import MOST_ELEMENTS, parse_array
from dovetail.workloads.identity import Identity, identify
from dovetail.workloads.jobfile import app_of_entry, auto_of_entry, env_of, split_command

INDEX = "index"
"""The placeholder that stands for the index of an element of an array."""
_INDEX = "{" + INDEX + "}"
_MARK = f"\0{INDEX}\0"
MOST_DEPENDS = 1_000_000
"""Pairs of a job and one for which it waits in a request."""
MOST_BYTES = 256 << 20
NOTICE = 60.0
"""Seconds before the walltime at which a signal comes, where none are given."""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits, and what the service does with all jobs of such a person.

    ``limit`` is how many of their jobs may run, or be seen by the policy, at once; ``memory_auto``: memory
    that nobody gave is learned.
    """

    user: str
    limit: int | None = None
    memory_auto: bool = False


@dataclass(slots=True)
class Submission:
    """Jobs with the numbers they get; ``scripts`` are texts to be written before, by their paths."""

    jobs: list[Job] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    scripts: dict[str, str] = field(default_factory=dict)

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
    return _Maker(form, who, cluster, first, scripts, known).made()


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
        self.folder = _folder(form.folder)
        self.environ = None if form.environment is None else env_of(form.environment, "", "environment")
        self.gate = Validator(self.cluster)
        self.partitions = {name for node in self.cluster.nodes for name in node.partitions}
        self.found = Submission()
        self.depends = self.bytes = 0  # pairs of jobs, and what arrays take on record
        self.batch: dict[str, list[JobId]] = {}
        self.apps = {
            entry.name: app_of_entry(entry, f"app {n} {entry.name!r}") for n, entry in enumerate(form.apps, 1)
        }
        self.auto = {entry.name: auto_of_entry(entry) for entry in form.apps}
        self.shaped: dict[tuple[Any, ...], tuple[App, tuple[Choice, ...]]] = {}
        self.launches: dict[tuple[Any, ...], Launch] = {}

    def made(self) -> Submission:
        for count, form in enumerate(self.form.jobs, 1):
            alone = len(self.form.jobs) == 1 and form.id is None  # then "job 1" would name nothing
            id = f" {form.id!r}" if form.id is not None else ""
            where = "" if alone else f"job {count}{id}"
            before = len(self.found.jobs)
            self._add(form, where)
            try:  # what could not be read back would end the next start
                for job in self.found.jobs[before:]:
                    checked(job)
            except ValueError as error:
                raise InputError(f"cannot be kept on record: {shown(str(error))}", where=where) from None
        return self.found

    def _add(self, form: JobForm, where: str) -> None:
        """A job, or all elements of an array."""
        identity, app, choices = self._what(form, where)
        name = form.name or app.name
        indices: list[int | None] = [None]
        limit = None
        if form.array is not None:
            found, limit = parse_array(form.array)
            indices = list(found)
        if len(self.found.jobs) + len(indices) > MOST_ELEMENTS:
            raise InputError(
                f"found more than {MOST_ELEMENTS} jobs, expected at most so many at once", where=where
            )
        inputs = {**identity.inputs, **form.inputs}
        uses_index = self._check_placeholders(app, inputs, form.array is not None, where)
        template = Job(
            id="",
            app=app,
            choices=choices,
            inputs=inputs,
            nodes=form.nodes,
            walltime=form.walltime,
            user=self.who.user,
            queue=form.partition,
            priority=form.priority,
            depends=self._depends(form, where),
            retries=form.retries,
            throttles=self._throttles(form, name, limit),
            slurm=tuple(form.sbatch),
            name=name,
            sizing=self._sizing(form, app),
        )
        admitted = self.gate.admit(template)
        if isinstance(admitted, Rejected):
            raise InputError(_why_too_large(template, self.cluster, admitted.reason), where=where)
        self._count(template, len(indices), where)
        ids: list[JobId] = []
        launch = self._launch(form, name, where)
        for index in indices:
            id = f"{self.number}" if index is None else f"{self.number}_{index}"
            own = {**inputs, INDEX: float(index)} if uses_index and index is not None else inputs
            place = len(self.found.jobs)
            self.found.jobs.append(replace(admitted, id=id, index=place, inputs=own, launch=launch))
            self.found.numbers.append((self.number, index))
            ids.append(id)
        if form.id is not None:
            if form.id in self.batch:
                raise InputError(f"id: found {form.id!r} twice, expected each id once", where=where)
            self.batch[form.id] = ids
        self.number += 1

    def _count(self, job: Job, times: int, where: str) -> None:
        """Refuse what would fill the disk and the memory: each element of an array keeps all of this."""
        self.depends += len(job.depends) * times
        self.bytes += len(encoded(encode_job(job))) * times if times > 1 else 0
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

    # ------------------------------------------------------------------ what it runs

    def _what(self, form: JobForm, where: str) -> tuple[Identity, App, tuple[Choice, ...]]:
        given = [bool(form.implementations), form.command is not None, form.script is not None]
        if sum(given) > 1:
            raise InputError("found several of implementations, command, script, expected one", where=where)
        if not any(given):
            return self._of_app(form, where)
        if form.script is not None:
            return self._of_script(form, form.script, where)
        commands = dict(form.implementations)
        if form.command is not None:
            commands = dict.fromkeys(form.on or ["cpu"], form.command)
        argvs = {kind: split_command(command, where) for kind, command in commands.items()}
        if form.inputs:  # the user names the features, and the commands are templates
            named = form.app or identify(next(iter(argvs.values())), cwd=self.folder).app
            identity, templates = Identity(named, {}, ()), argvs
        else:
            identity = identify(next(iter(argvs.values())), cwd=self.folder, app=form.app)
            templates = {kind: _template(argv, form.array is not None) for kind, argv in argvs.items()}
            if form.array is not None:  # the index is a feature of its own
                features = {k: v for k, v in identity.inputs.items() if _INDEX not in str(v)}
                identity = replace(identity, inputs=features)
        return identity, *self._shape(form, identity.app, templates, where)

    def _of_app(self, form: JobForm, where: str) -> tuple[Identity, App, tuple[Choice, ...]]:
        if form.app is None:
            raise InputError(
                "found nothing to run, expected command, implementations, script or app", where=where
            )
        app = self.apps.get(form.app)
        if app is None:
            hint = closest(form.app, list(self.apps))
            raise InputError(f"app: found {form.app!r}, which is no app of this request{hint}", where=where)
        key = (id(app), form.nodes, form.memory, form.partition, form.cpus, form.gpus, form.restartable)
        if key not in self.shaped:
            changed = tuple(
                replace(one, request=self._request(form, one.request, one.kind, where))
                for one in app.implementations
            )
            for one in changed:
                if one.command is None:
                    raise InputError(
                        f"app {app.name!r}, implementation {one.name!r} has no command", where=where
                    )
            shaped = App(app.name, changed, app.restartable or form.restartable)
            choices = tuple(Choice(one, one.request) for one in changed)
            self.shaped[key] = shaped, choices
        return Identity(app.name, {}, ()), *self.shaped[key]

    def _of_script(self, form: JobForm, text: str, where: str) -> tuple[Identity, App, tuple[Choice, ...]]:
        if not text.startswith("#!"):
            raise InputError("script: found no '#!' at its beginning, expected e.g. #!/bin/sh", where=where)
        path = os.path.join(self.scripts, f"{self.number}")
        self.found.scripts[path] = text
        argv = tuple(escape(word) for word in (path, *form.arguments))
        name = form.app or form.name or "script"
        templates = dict.fromkeys(form.on or ["cpu"], argv)
        return Identity(name, {}, ()), *self._shape(form, name, templates, where)

    def _shape(
        self, form: JobForm, name: str, templates: Mapping[str, tuple[str, ...]], where: str
    ) -> tuple[App, tuple[Choice, ...]]:
        """App and choices; jobs that run the same share them."""
        env = env_of(form.env, where)
        request = (form.nodes, form.memory, form.partition, form.cpus, form.gpus, form.restartable)
        key = (name, tuple(templates.items()), env, request)
        if key not in self.shaped:
            implementations = []
            for kind, argv in templates.items():
                _check_kind(kind, where)
                asked = request_for(kind, cpus=1 if kind == "cpu" else None)
                command = Command(argv, env)
                asked = self._request(form, asked, kind, where)
                implementations.append(Implementation(kind, kind, asked, command))
            app = App(name, tuple(implementations), form.restartable)
            self.shaped[key] = app, tuple(Choice(one, one.request) for one in implementations)
        return self.shaped[key]

    def _request(self, form: JobForm, asked: Request, kind: str, where: str) -> Request:
        """A request with what the job says of CPUs, devices, memory and nodes."""
        cpus, devices = asked.cpus, asked.devices
        if form.cpus is not None and (kind.startswith("cpu") or form.cpus != "all"):
            cpus = WHOLE_POOL if form.cpus == "all" else int(form.cpus)
        if cpus == 0 and not devices:
            raise InputError("cpus: found 0, expected at least 1 for kind cpu", where=where)
        if form.gpus is not None and devices:
            devices = ((devices[0][0], float(form.gpus)), *devices[1:])
        memory = form.memory if isinstance(form.memory, int) else asked.memory  # auto: to be learned
        partition = form.partition or ""
        if partition and partition not in self.partitions:
            expected = ", ".join(sorted(self.partitions)) or "none: the cluster has no partitions"
            raise InputError(f"partition: found {partition!r}, expected one of {expected}", where=where)
        return Request(form.nodes, cpus, devices, memory, asked.models, partition)

    def _check_placeholders(self, app: App, inputs: Mapping[str, object], is_array: bool, where: str) -> bool:
        """Whether a command uses the index; refuses placeholders that nothing fills."""
        found: set[str] = set()
        for one in app.implementations:
            assert one.command is not None
            try:
                found.update(placeholders(one.command.argv))
            except ValueError as error:
                raise InputError(
                    f"command: found {error}, expected {{n}} or {{device}}", where=where
                ) from None
        uses_index = INDEX in found and INDEX not in inputs
        unknown = found - inputs.keys() - {DEVICE} - ({INDEX} if is_array else set())
        if unknown:
            raise InputError(
                f"command: found the unknown placeholder {{{min(unknown)}}}, expected an input of the job",
                where=where,
            )
        return uses_index

    # ------------------------------------------------------------------ around it

    def _depends(self, form: JobForm, where: str) -> tuple[Dependency, ...]:
        found: dict[Dependency, None] = {}
        for asked in form.depends:
            ids = self.batch.get(asked.job) or self.known.get(asked.job)
            if not ids:
                raise InputError(f"depends: found {str(asked)!r}, a job that is not there", where=where)
            found.update(dict.fromkeys(Dependency(asked.kind, id) for id in ids))
        return tuple(found)

    def _sizing(self, form: JobForm, app: App) -> Sizing:
        """How the memory of a job is found."""
        if form.memory == "auto":
            auto = tuple(one.name for one in app.implementations)
        elif form.memory is None and form.app is not None:
            auto = self.auto.get(form.app, ())
        else:
            auto = ()
        if form.memory is None and not auto and self.who.memory_auto:
            auto = tuple(one.name for one in app.implementations if not one.request.memory)
        return Sizing(auto, form.retry_memory, form.kill_risk)

    def _throttles(self, form: JobForm, name: str, limit: int | None) -> tuple[Throttle, ...]:
        found = []
        if limit is not None:
            found.append(Throttle(f"array:{self.number}", limit))
        if form.singleton:
            found.append(Throttle(f"singleton:{self.who.user}:{name}", 1))
        if self.who.limit is not None:
            found.append(Throttle(f"user:{self.who.user}", self.who.limit))
        return tuple(found)

    def _launch(self, form: JobForm, name: str, where: str) -> Launch:
        """Folder, environment, files and signal; shared by jobs where they are the same."""
        out, err = (None if path is None else output_path(path, name) for path in (form.stdout, form.stderr))
        number, notice = _signal(form, where)
        memory = form.memory if isinstance(form.memory, int) else None
        key = (out, err, number, notice, memory, form.slurm)
        if key not in self.launches:
            self.launches[key] = Launch(
                self.folder, self.environ, out, err, number, notice, memory, form.slurm
            )
        return self.launches[key]


def _template(argv: Sequence[str], is_array: bool) -> tuple[str, ...]:
    """The words of a plain command: only ``{device}``, and ``{index}`` in an array, stand for something."""
    if not is_array:
        return tuple(identify(argv).argv)
    marked = [word.replace(_INDEX, _MARK) for word in argv]
    return tuple(word.replace(_MARK, _INDEX) for word in identify(marked).argv)


def output_path(path: str, name: str) -> str:
    """A path with its ``%`` signs as in sbatch: %x and %% filled in, %j, %A and %a as `Launch` has them.

    >>> output_path("%x-%j.%q%%a", "a b")
    'a_b-\\x00j.%q%a'
    """
    plain = "".join(c if c.isalnum() or c in "._+-" else "_" for c in name)
    values = {"x": plain, "%": "%", "j": "\0j", "A": "\0A", "a": "\0a"}
    return re.sub("%([xjAa%])", lambda found: values[found[1]], path)


def _folder(given: str | None) -> str:
    folder = os.getcwd() if given is None else given
    if not os.path.isabs(folder) or "\0" in folder:
        raise InputError(f"folder: found {shown(folder)}, expected an absolute path")
    return folder


def _check_kind(kind: str, where: str) -> None:
    device = kind.removeprefix("cpu+")
    if "+" in device or not device or not kind.isprintable() or (device == "cpu" and kind != "cpu"):
        raise InputError(
            f"found the kind {shown(kind)}, expected cpu, cpu+gpu, or a kind of device", where=where
        )


def _signal(form: JobForm, where: str) -> tuple[int | None, float]:
    """``USR1@60``, ``SIGTERM``, ``10@2m``."""
    if form.signal is None:
        return None, 0.0
    name, _, before = form.signal.removeprefix("B:").partition("@")
    try:
        number = (
            int(name) if name.isdecimal() else signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"].value
        )
        signal.Signals(number)
        notice = seconds_of(before) if before else NOTICE
    except (KeyError, ValueError):
        raise InputError(
            f"signal: found {form.signal!r}, expected SIGNAL@SECONDS, e.g. USR1@60", where=where
        ) from None
    if form.walltime is None:
        raise InputError("signal: found no walltime, expected one before which it is sent", where=where)
    return number, notice


def _why_too_large(job: Job, cluster: Cluster, reason: str) -> str:
    """What is missing here, in words."""
    kinds = [choice.implementation.kind for choice in job.choices]
    missing = [kind for kind in kinds if not cluster.device_classes(kind)]
    if len(missing) == len(kinds):
        there = ", ".join(dict.fromkeys(unit.kind for unit in cluster.units)) or "nothing"
        return f"found a job for {' or '.join(missing)}, and there is only {there}"
    most = max((node.cpus for node in cluster.nodes), default=0)
    asked = max((choice.request.cpus for choice in job.choices), default=0)
    if asked not in (WHOLE_POOL, HOST_CPUS) and asked > most:
        return f"cpus: found {asked}, the largest node has {most}"
    if job.nodes > len(cluster):
        return f"nodes: found {job.nodes}, and there are {len(cluster)}"
    return f"found a job that {reason if reason.startswith(('asks', 'needs')) else f'is {reason}'}"


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
            raise Full(f"{path}: cannot be written: {error.strerror}") from error


def return_memory() -> None:
    """Give the system what was freed: glibc keeps it, 460 MB after a submission of 100,000 commands."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
