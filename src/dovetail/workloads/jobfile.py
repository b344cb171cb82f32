"""Job files (TOML): apps with their implementations, and the jobs that run them.

The form is in docs/reference/jobfile.md. True times, for simulation, are taken in this order: the job's
``times``; its ``sequential`` over its ``speedup``; the implementation's ``times``; its ``time``. A job that
names the times of some implementations leaves the others without a true time: they can run live, not in
a simulation with perfect knowledge.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice

from dovetail.errors import InputError
from dovetail.files.fields import validated
from dovetail.files.sentences import closest, file_name, shown
from dovetail.files.toml import read_toml
from dovetail.files.units import LONGEST
from dovetail.model import (
    EMPTY,
    App,
    Choice,
    Cluster,
    Command,
    Communication,
    Implementation,
    Job,
    JobId,
    Seconds,
    Sizing,
    TableTruth,
    Workload,
    request_for,
)
from dovetail.model.batch_options import folded
from dovetail.model.command_line import after_prologue
from dovetail.model.templates import DEVICE, bind, placeholders, render
from dovetail.records import dataclass
from dovetail.workloads.dependencies import EntryJobs, resolved
from dovetail.workloads.grids import combinations, parse_values
from dovetail.workloads.identity import identify, with_file_sizes
from dovetail.workloads.jobfile_schema import (
    MOST_COPIES,
    AppEntry,
    CommunicationEntry,
    ImplementationEntry,
    JobEntry,
    JobFile,
)

COMMUNICATING = "communication"
"""The app of jobs that name none: their communication alone says how long they take."""
_NO_DEVICE = {DEVICE: "{" + DEVICE + "}"}

MOST_JOBS = 1_000_000
"""Jobs of one file, their counts taken together."""


def load_jobfile(path: str | os.PathLike[str]) -> Workload:
    """The jobs of a job file, with their true times where it gives them.

    Whether they fit a cluster is not asked here: an engine rejects those that do not. Raises `InputError`,
    which names the file, the entry and the field. Linear in the number of jobs.
    """
    source = file_name(path)
    data = read_toml(path, "a job file with [[app]] and [[job]] entries")
    entries = validated(JobFile, data, source)
    total = sum(job.count for job in entries.job)
    if total > MOST_JOBS:
        raise InputError(f"found {total:,} jobs in all, expected at most {MOST_JOBS:,}", where=source)
    apps: dict[str, _App] = {}
    for number, app in enumerate(entries.app, 1):
        where = f"{source}: app {number} {app.name!r}"
        if app.name in apps:
            raise InputError(f"found the name {app.name!r} twice, expected each app once", where=where)
        apps[app.name] = _app(app, where)
    builder = _Jobs(source, apps)
    for number, job in enumerate(entries.job, 1):
        builder.add(job, number)
    jobs = resolved(builder.entries)
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    machine = None if entries.cluster is None else _machine(entries.cluster, path, source)
    return Workload(source, jobs, TableTruth(builder.table), machine=machine)


def _machine(named: str, path: str | os.PathLike[str], source: str) -> Cluster:
    """The cluster that the file names; a cluster file's name counts from the job file's folder."""
    beside = os.path.join(os.path.dirname(os.fspath(path)), named)
    try:
        return Cluster.parse(beside if os.path.isfile(beside) else named)
    except InputError as error:
        raise InputError(str(error), where=f"{source}: cluster") from None


# -- apps ----------------------------------------------------------------------------------------------


@dataclass
class _App:
    """An app, and what its entry says about times."""

    app: App
    times: dict[str, Mapping[int, Seconds]]  # by implementation: true seconds by node count
    time: dict[str, Seconds]
    needs: list[tuple[str, str]] = field(default_factory=list)  # (implementation, placeholder)
    auto: tuple[str, ...] = ()  # implementations whose memory is learned
    slurm: list[str] = field(default_factory=list)  # for each implementation alone

    def implementation(self, name: str) -> Implementation | None:
        return next((i for i in self.app.implementations if i.name == name), None)


def auto_of_entry(entry: AppEntry) -> tuple[str, ...]:
    """The implementations of an entry whose memory is learned."""
    return tuple(form.name for form in entry.implementation if form.memory == "auto")


def app_of_entry(entry: AppEntry, where: str) -> App:
    """The app that an entry of a job file describes; raises `InputError`, which begins with ``where``."""
    return _app(entry, where).app


def _app(entry: AppEntry, where: str) -> _App:
    if entry.on:
        if entry.implementation:
            raise InputError("found both on and [[app.implementation]], expected one of them", where=where)
        same = ImplementationEntry(name=entry.on[0], command=entry.command, env=entry.env, tasks=entry.tasks)
        forms = [same.model_copy(update={"name": kind}) for kind in entry.on]
    elif entry.command is not None or entry.env or entry.tasks != 1:
        raise InputError("found a command without on, expected on = ['cpu', 'gpu'] beside it", where=where)
    else:
        forms = entry.implementation
    if not forms:
        raise InputError(
            "found an app with no implementation, expected [[app.implementation]], or on", where=where
        )
    implementations: list[Implementation] = []
    built = _App(App(entry.name, ()), {}, {})
    for number, form in enumerate(forms, 1):
        place = f"{where}, implementation {number} {form.name!r}"
        if any(i.name == form.name for i in implementations):
            raise InputError(f"found the name {form.name!r} twice, expected each once", where=place)
        kind = _kind(form.kind or form.name, place)
        memory = form.memory if isinstance(form.memory, int) else 0  # to be learned
        request = request_for(kind, cpus=form.cpus, gpus=form.gpus, memory=memory, models=form.models)
        if not request.devices and request.cpus == 0:
            raise InputError("cpus: found 0, expected at least 1 for kind cpu", where=place)
        command, env = None, env_of(form.env, place)
        if form.command is not None:
            words = split_command(form.command, place)
            command = Command(after_prologue(entry.prologue, words), env, form.tasks)
            built.needs += [(form.name, name) for name in _needs(command, place)]
        implementations.append(Implementation(form.name, kind, request, command))
        built.slurm += [f"{form.name}:{option}" for option in folded(form.slurm)]
        if form.times is not None:
            built.times[form.name] = dict(sorted(form.times.items()))
        if form.time is not None:
            built.time[form.name] = form.time
    built.app = App(entry.name, tuple(implementations), entry.restartable)
    built.auto = auto_of_entry(entry)
    return built


def _kind(kind: str, where: str) -> str:
    device = kind.removeprefix("cpu+")
    if "+" in device or not device or (device == "cpu" and kind != "cpu"):
        raise InputError(
            f"kind: found {kind!r}, expected cpu, cpu+gpu, or a kind of device such as gpu", where=where
        )
    return kind


def split_command(command: str | Sequence[str], where: str) -> tuple[str, ...]:
    """The argv of a command that is written as a list, or as one string, split as a shell splits words.

    >>> split_command("./mm_gpu {n} 'two words'", "here")
    ('./mm_gpu', '{n}', 'two words')
    """
    if isinstance(command, str):
        try:
            argv = tuple(shlex.split(command))
        except ValueError as error:
            raise InputError(
                f"command: found {str(error).lower()}, expected words as a shell splits them", where=where
            ) from None
    else:
        argv = tuple(command)
    if not argv or not argv[0]:
        raise InputError("command: found no program, expected a program and its arguments", where=where)
    if any("\0" in word for word in argv):
        raise InputError("command: found a null character, expected text without", where=where)
    return argv


def env_of(env: Mapping[str, str], where: str, called: str = "env") -> tuple[tuple[str, str], ...]:
    """What a process can be given. Raises `InputError`."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"{called}: found {shown(name)} = {shown(value)}, "
                "expected a name without '=', no null character",
                where=where,
            )
    return tuple(env.items())


def _needs(command: Command, where: str) -> list[str]:
    """Inputs that the command uses."""
    try:
        return [name for name in placeholders(command.argv) if name != DEVICE]
    except ValueError as error:
        raise InputError(f"command: found {error}, expected {{n}} or {{device}}", where=where) from None


# -- jobs ----------------------------------------------------------------------------------------------


class _Jobs:
    """Builds the jobs, entry by entry."""

    def __init__(self, source: str, apps: Mapping[str, _App]) -> None:
        self.source = source
        self.apps = apps
        self.entries: list[EntryJobs] = []
        self.table: dict[tuple[JobId, str, int], Seconds] = {}
        self._ids: dict[JobId, int] = {}  # id -> number of the entry that gave it
        self._unnamed: dict[str, int] = {}
        self._index = 0
        self._without_app: dict[tuple[int | None, float | None, int], _App] = {}
        self._own_apps: dict[tuple[App, tuple[Command | None, ...]], App] = {}
        self._choices: dict[tuple[App, tuple[tuple[int, ...], ...]], tuple[Choice, ...]] = {}

    def add(self, entry: JobEntry, number: int) -> None:
        where = f"{self.source}: job {number}" + (f" {entry.id!r}" if entry.id is not None else "")
        known = self._app_of(entry, where)
        self._check_names(entry, known, where)
        entry = _asking_for_nodes(entry, known)
        made = EntryJobs(where, entry.id, depends=entry.depends)
        self.entries.append(made)
        grid = _grid(entry, where)
        names = self._names(entry, known.app.name, entry.count * math.prod(map(len, grid.values())))
        for values in combinations(grid):
            one = entry.model_copy(update={"inputs": {**entry.inputs, **values}}) if values else entry
            self._add_copies(one, known, made, number, islice(names, entry.count))

    def _app_of(self, entry: JobEntry, where: str) -> _App:
        """The app of that name; one with a single implementation ``gpu`` for a job that needs none."""
        own = {"cpus", "gpus", "memory"} & entry.model_fields_set
        if entry.app is None:
            if entry.communication is None:
                raise InputError("found nothing, expected it to be given", where=f"{where}, app")
            key = (entry.cpus, entry.gpus, entry.memory)
            if key not in self._without_app:
                form = ImplementationEntry(name="gpu", cpus=entry.cpus, gpus=entry.gpus, memory=entry.memory)
                self._without_app[key] = _app(AppEntry(name=COMMUNICATING, implementation=[form]), where)
            return self._without_app[key]
        if own:
            raise InputError(
                f"found {min(own)} beside app, expected it in the app's implementations", where=where
            )
        known = self.apps.get(entry.app)
        if not self.apps:
            raise InputError("app: found nothing, expected [[app]] entries", where=self.source)
        if known is None:
            raise InputError(
                f"app: found {entry.app!r}, which is no app{closest(entry.app, list(self.apps))}", where=where
            )
        return known

    def _add_copies(
        self, entry: JobEntry, known: _App, made: EntryJobs, number: int, ids: Iterable[JobId]
    ) -> None:
        """Jobs of these names that are alike."""
        where = made.where
        app, inputs = self._command(entry, known, where)
        seconds = _seconds(entry, known, where)
        choices = self._choices_of(app, entry, known, where)
        timed = [
            (c.implementation.name, c.request.nodes, seconds[c.implementation.name][c.request.nodes])
            for c in choices
            if c.request.nodes in seconds.get(c.implementation.name, ())
        ]
        job = Job(
            id="",
            app=app,
            choices=choices,
            submit_time=entry.submit,
            inputs=inputs or EMPTY,
            nodes=entry.nodes,
            walltime=entry.walltime,
            user=entry.user,
            group=entry.group,
            queue=entry.queue,
            priority=entry.priority,
            implementation=entry.implementation,
            sequential=entry.sequential,
            speedup=entry.speedup or EMPTY,
            retries=entry.retries,
            sizing=Sizing(known.auto, entry.retry_memory),
            communication=_communication(entry.communication),
            slurm=(*known.slurm, *entry.slurm),
        )
        for id in ids:
            earlier = self._ids.setdefault(id, number)
            if earlier != number:
                raise InputError(
                    f"id: found {id!r}, which job {earlier} has already, expected each id once", where=where
                )
            made.jobs.append(replace(job, id=id, index=self._index))
            self._index += 1
            for name, nodes, time in timed:
                self.table[id, name, nodes] = time

    def _names(self, entry: JobEntry, app: str, total: int) -> Iterator[JobId]:
        if entry.id is not None:
            return iter([entry.id] if total == 1 else [f"{entry.id}-{k}" for k in range(1, total + 1)])
        first = self._unnamed.get(app, 0) + 1
        self._unnamed[app] = first + total - 1
        return iter([f"{app}-{k}" for k in range(first, first + total)])

    def _check_names(self, entry: JobEntry, known: _App, where: str) -> None:
        """Implementations that the job names must be there."""
        names = [i.name for i in known.app.implementations]
        asked = [("implementation", entry.implementation)] if entry.implementation is not None else []
        asked += [("times", name) for name in entry.times] + [("speedup", name) for name in entry.speedup]
        for key, name in asked:
            if name not in names:
                raise InputError(
                    f"{key}: found {name!r}, expected an implementation of app {known.app.name!r}: "
                    f"{', '.join(names)}",
                    where=where,
                )
        if DEVICE in entry.inputs:
            raise InputError(
                "inputs: found 'device', expected another name: {device} stands for the device", where=where
            )

    def _command(self, entry: JobEntry, known: _App, where: str) -> tuple[App, Mapping[str, float | str]]:
        """The app, with the job's own command if it has one, and the features of the prediction.

        An input that names a file is a feature by the file's size; its name stands in the command. A job
        with a command of its own and no inputs is known by its arguments, as a plain command is.
        """
        if entry.command is None and entry.env:
            raise InputError("found env without command, expected both or neither", where=where)
        commands = tuple(i.command for i in known.app.implementations)
        needs = known.needs
        own: Command | None = None
        if entry.command is not None:
            own = Command(split_command(entry.command, where), env_of(entry.env, where))
            commands = tuple(own if one is None else replace(own, tasks=one.tasks) for one in commands)
            needs = [("", name) for name in _needs(own, where)]
        for implementation, name in needs:
            if name not in entry.inputs:
                place = f"app {known.app.name!r}, implementation {implementation!r}: found"
                raise InputError(
                    f"{place if implementation else 'command: found'} the unknown placeholder {shown(name)}, "
                    f"expected an input of the job{_inputs(entry)}",
                    where=where,
                )
        if own is not None and not entry.inputs:
            inputs = dict(identify([render(word, _NO_DEVICE) for word in own.argv]).inputs)
        else:
            inputs = with_file_sizes(entry.inputs)
        files = {k: v for k, v in entry.inputs.items() if isinstance(v, str) and k not in inputs}
        bound = tuple(None if one is None else _bound(one, files) for one in commands)
        if own is None and bound == commands:
            return known.app, inputs
        key = (known.app, bound)
        if key not in self._own_apps:
            pairs = zip(known.app.implementations, bound, strict=True)
            forms = tuple(replace(i, command=command) for i, command in pairs)
            self._own_apps[key] = replace(known.app, implementations=forms)
        return self._own_apps[key], inputs

    def _choices_of(self, app: App, entry: JobEntry, known: _App, where: str) -> tuple[Choice, ...]:
        """Every implementation at every node count that exists for it."""
        counts = _node_counts(entry, known)
        if not any(entry.nodes in c for c in _asked(counts, entry, known)):
            there = sorted({n for c in _asked(counts, entry, known) for n in c})
            raise InputError(
                f"nodes: found {entry.nodes}, expected a node count that times gives: "
                f"{', '.join(map(str, there))}",
                where=where,
            )
        key = (app, tuple(counts))
        if key not in self._choices:
            self._choices[key] = tuple(
                Choice(implementation, implementation.request.on(nodes))
                for implementation, c in zip(app.implementations, counts, strict=True)
                for nodes in c
            )
        return self._choices[key]


def _bound(command: Command, files: Mapping[str, str]) -> Command:
    """The command with the names of files in the place of their placeholders."""
    if not files:
        return command
    return replace(command, argv=tuple(bind(word, files) for word in command.argv))


def _grid(entry: JobEntry, where: str) -> dict[str, list[float | str]]:
    """The values of each name of the grid; texts that are numbers become numbers."""
    found: dict[str, list[float | str]] = {}
    for name, values in entry.grid.items():
        if name in entry.inputs:
            raise InputError(f"grid: found {name!r}, which inputs has too, expected it once", where=where)
        if name == DEVICE:
            raise InputError("grid: found 'device', expected another name", where=where)
        found[name] = (
            [_plain_input(text) for text in parse_values(values, f"{where}: grid, {name}")]
            if isinstance(values, str)
            else list(values)
        )
    total = entry.count * math.prod(map(len, found.values()))
    if total > MOST_COPIES:
        raise InputError(f"grid: found {total} combinations, expected at most {MOST_COPIES}", where=where)
    return found


def _plain_input(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) and number >= 0 and text.isascii() else text


def _communication(entry: CommunicationEntry | None) -> Communication | None:
    return None if entry is None else Communication(**dict(entry))


def _node_counts(entry: JobEntry, known: _App) -> list[tuple[int, ...]]:
    """The node counts that exist for each implementation, ascending."""
    counts: list[tuple[int, ...]] = []
    for implementation in known.app.implementations:
        own = entry.times.get(implementation.name)
        if isinstance(own, dict):
            counts.append(tuple(sorted(own)))
        elif own is None and implementation.name in known.times:
            counts.append(tuple(known.times[implementation.name]))
        else:
            counts.append((entry.nodes,))
    return counts


def _asked(counts: Sequence[tuple[int, ...]], entry: JobEntry, known: _App) -> list[tuple[int, ...]]:
    """The counts of the implementation that the job asks for, or of all."""
    return [
        c
        for c, i in zip(counts, known.app.implementations, strict=True)
        if entry.implementation is None or i.name == entry.implementation
    ]


def _asking_for_nodes(entry: JobEntry, known: _App) -> JobEntry:
    """The entry with the nodes that it asks for: by default 1, or the fewest for which it has a time."""
    if "nodes" in entry.model_fields_set:
        return entry
    timed = [
        entry.times.get(i.name) is not None or i.name in known.times.keys() | known.time.keys()
        for i in known.app.implementations
    ]
    counts = [c if t else () for c, t in zip(_node_counts(entry, known), timed, strict=True)]
    there = {n for c in _asked(counts, entry, known) for n in c} or {entry.nodes}
    return entry if entry.nodes in there else entry.model_copy(update={"nodes": min(there)})


def _inputs(entry: JobEntry) -> str:
    return f" ({', '.join(entry.inputs)})" if entry.inputs else ", which has none"


def _seconds(entry: JobEntry, known: _App, where: str) -> dict[str, dict[int, Seconds]]:
    """True seconds by implementation and node count."""
    found: dict[str, dict[int, Seconds]] = {}
    for implementation in known.app.implementations:
        name = implementation.name
        own = entry.times.get(name)
        if own is not None:
            found[name] = dict(own) if isinstance(own, dict) else {entry.nodes: own}
        elif name in known.times:
            found[name] = dict(known.times[name])
        elif name in known.time:
            found[name] = {entry.nodes: known.time[name]}
    sequential = _sequential(entry, known, found)
    if sequential is None:
        return found
    for name, speedup in entry.speedup.items():
        if name in entry.times or (entry.sequential is None and name in found):
            continue
        time = sequential / speedup
        if not math.isfinite(time) or time > LONGEST:
            raise InputError(
                f"speedup, {name}: found {speedup!r}, which makes {time:g} seconds, "
                f"expected at most {LONGEST:g}",
                where=where,
            )
        found.setdefault(name, {})[entry.nodes] = time
    return found


def _sequential(entry: JobEntry, known: _App, found: Mapping[str, Mapping[int, Seconds]]) -> Seconds | None:
    """Seconds on one core; by default its time on the CPU."""
    if entry.sequential is not None:
        return entry.sequential
    for implementation in known.app.implementations:
        if implementation.kind == "cpu" and entry.nodes in found.get(implementation.name, {}):
            return found[implementation.name][entry.nodes]
    return None
