"""From a `JobSpec` to a `Job`: what each field becomes, for files, commands and requests to a service alike.

A `JobBuilder` knows what is around the specs: the apps that are described beside them, the folder, the
user, the partitions of the cluster. It makes of each a `BuiltJob`, of which `BuiltJob.named_jobs` makes one
job, or the elements of an array.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Any

from dovetail.errors import InputError
from dovetail.files.sentences import show_value, spell_bytes, suggest_closest
from dovetail.files.signals import signal_of
from dovetail.files.units import seconds_of
from dovetail.model import (
    EMPTY,
    WHOLE_POOL,
    App,
    Choice,
    Command,
    Communication,
    Dependency,
    Implementation,
    Job,
    JobId,
    Launch,
    Request,
    Seconds,
    Sizing,
    Throttle,
    request_for,
)
from dovetail.model.job import ARRAY_INDEX, USUAL_SIZING
from dovetail.model.marks import fill_marks
from dovetail.model.templates import (
    DEVICE,
    bind_template,
    escape_template,
    placeholder_names,
    render_template,
)
from dovetail.programs.identity import identify_command, template_of, with_file_sizes
from dovetail.records import dataclass
from dovetail.spec.jobs import JOB_OPTIONS, SPEC, JobSpec
from dovetail.workloads.app_builder import KnownApp, env_of, needs_of, split_command
from dovetail.workloads.array_indices import parse_array
from dovetail.workloads.batch.patterns import fill_pattern
from dovetail.workloads.job_times import node_counts, nodes_asked, true_seconds

COMMUNICATING = "communication"
"""The app of jobs that name none: their communication alone gives their time."""
INDEX = "index"
"""The placeholder that stands for the index of an element of an array."""
NOTICE: Seconds = 60.0
"""Seconds before the walltime at which a signal comes, where none are given."""
_INDEX = "{" + INDEX + "}"
_braces = re.compile("[{}]").search
_MARK = f"\0{INDEX}\0"
_NO_LAUNCH = Launch()
_NO_DEVICE = {DEVICE: "{" + DEVICE + "}"}
_PLAIN = tuple(
    (one.name, one.becomes.removeprefix("Job."))
    for one in SPEC
    if one.becomes
    in (
        *("Job.batch_options", "Job.group", "Job.implementation", "Job.priority", "Job.queue", "Job.retries"),
        *("Job.sequential", "Job.speedup", "Job.submit_time", "Job.user", "Job.walltime"),
    )
)
"""Fields that a job has as they are, with their names there."""
_plain_of = attrgetter(*(name for name, _ in _PLAIN))
_KEPT = tuple((one.name, one.default) for one in SPEC if one.becomes == JOB_OPTIONS)
"""Fields that a job keeps by name, with their defaults."""


@dataclass(slots=True)
class BuiltJob:
    """A job that still needs an id: the ``fields`` of its `Job`.

    ``name`` is for people, ``indices`` those of an array, of which at most ``limit`` run at once; ``timed``
    are true seconds by implementation and node count.
    """

    fields: dict[str, Any]
    name: str = ""
    indices: Sequence[int] | None = None
    limit: int | None = None
    uses_index: bool = False
    timed: Sequence[tuple[str, int, Seconds]] = ()

    def named_jobs(self, id: JobId, index: int, *, numbered: bool = False) -> Iterator[Job]:
        """The job of that id, or all elements of its array, at their places in the file from ``index`` on.

        ``numbered`` are ids of a service: what follows the underscore of one is the index in its array.
        """
        if self.indices is None:
            yield Job(id, index=index, **self.fields)
            return
        job = Job(id, **self.fields)
        if self.limit is not None:
            job = replace(job, throttles=(Throttle(f"array:{id}", self.limit), *job.throttles))
        for at, number in enumerate(self.indices):
            changed: dict[str, Any] = {}
            # Each element has an own mapping only where a command uses the index: else all share one.
            if self.uses_index:
                changed["inputs"] = {**job.inputs, INDEX: float(number)}
            if not numbered:
                changed["options"] = {**job.options, ARRAY_INDEX: number}
                if job.launch is not None:
                    changed["launch"] = _of_element(job.launch, id, str(index + 1), number)
            yield replace(job, id=f"{id}_{number}", index=index + at, **changed)


def _of_element(launch: Launch, array: str, number: str, index: int) -> Launch:
    """The launch of one element, where its id is not made of numbers alone; variables have a ``number``."""
    values = {"A": array, "a": str(index), "b": str(index)[-1:]}

    def fill_own_marks(text: str | None, own: Mapping[str, str] = values) -> str | None:
        return None if text is None else fill_marks(text, lambda letter: own.get(letter, f"\0{letter}"))

    variables = tuple(
        (name, fill_own_marks(text, {**values, "A": number}) or "") for name, text in launch.variables
    )
    found = (
        fill_own_marks(launch.stdout),
        fill_own_marks(launch.stderr),
        fill_own_marks(launch.stdin),
        variables,
    )
    # The same launch for all elements that write to the same names.
    if found == (launch.stdout, launch.stderr, launch.stdin, launch.variables):
        return launch
    return replace(launch, stdout=found[0], stderr=found[1], stdin=found[2], variables=variables)


@dataclass
class JobBuilder:
    """Makes jobs; those that are alike share their app, their choices and their launch.

    ``apps`` are described beside the specs. ``source`` is the file that they are in, ``""`` where they come
    from a command line or a request. From ``folder`` files are looked up and jobs start, with ``environ``,
    ``umask`` and soft ``limits`` (as `Launch` has them); ``None`` are this process' own. ``user`` has all
    jobs; ``None``: as they are written. ``partitions`` are those of the cluster, ``None`` where it is not
    known yet; ``models`` those of its devices, by kind. With ``learn_memory`` it is learned where no memory
    is given. ``keep_script`` keeps a script's text and gives its path.
    """

    apps: Mapping[str, KnownApp] = field(default_factory=dict)
    source: str = ""
    folder: str | None = None
    environ: tuple[tuple[str, str], ...] | None = None
    umask: int | None = None
    limits: tuple[tuple[str, int], ...] | None = None
    user: str | None = None
    partitions: Collection[str] | None = None
    models: Mapping[str, Collection[str]] | None = None
    learn_memory: bool = False
    keep_script: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        self.passed_over: dict[str, str] = {}
        """Fields of the last job that have no meaning on this cluster, and why."""
        self._apps: dict[Any, tuple[App, tuple[Choice, ...]]] = {}
        self._bound: dict[Any, App] = {}
        self._without_app: dict[Any, KnownApp] = {}
        self._launches: dict[Any, Launch] = {}
        self._requests: dict[Any, Request] = {}
        self._holes: dict[App, frozenset[str]] = {}

    def build(self, spec: JobSpec, where: str) -> BuiltJob:
        """The job of a spec. Raises `InputError`, which begins with ``where``."""
        known = self._known_app(spec, where)
        built = self._of_command(spec, where) if known is None else self._of_app(spec, known, where)
        fields = built.fields
        app: App = fields["app"]
        built.name = name = spec.name or app.name
        for (_, there), value in zip(_PLAIN, _plain_of(spec), strict=True):
            if value is not None:
                fields[there] = value
        fields["speedup"] = spec.speedup or EMPTY
        fields["batch_options"] = (*(() if known is None else known.batch_options), *spec.batch_options)
        # A service knows its user; what a request claims does not count.
        if self.user is not None:
            fields["user"] = self.user
        if spec.partition is not None:
            # With partitions the queue is the one that the job came to, of several that were named.
            fields["queue"] = spec.partition
            if self.partitions:
                fields["queue"] = fields["choices"][0].request.partition or spec.partition
        if spec.begin is not None:
            fields["begin"] = spec.begin
        # Without inputs the shared empty mapping of the class is used.
        if not fields["inputs"]:
            del fields["inputs"]
        if spec.communication is not None:
            fields["communication"] = Communication(**dict(spec.communication))
        fields["name"] = spec.name
        fields["throttles"] = self._make_throttles(spec, name)
        fields["sizing"] = self._make_sizing(spec, known, app)
        fields["launch"] = self._make_launch(spec, name, where)
        kept = {name: value for name, default in _KEPT if (value := getattr(spec, name)) != default}
        if kept:
            fields["options"] = kept
        if spec.array is not None:
            built.indices, built.limit = parse_array(spec.array)
        return built

    # ------------------------------------------------------------------ jobs of an app

    def _known_app(self, spec: JobSpec, where: str) -> KnownApp | None:
        """The app of a job that is described beside it; ``None`` where the job brings all that it runs."""
        if spec.app is not None and spec.app in self.apps:
            return self.apps[spec.app]
        if spec.command is not None or spec.implementations or spec.script is not None:
            return None
        if spec.app is None:
            if spec.communication is None:
                raise InputError(
                    "found nothing to run, expected command, implementations, script or app", where=where
                )
            # Communication alone is a whole job in a simulation (Markthub 2015).
            return self._gpu_app(spec, where)
        if not self.apps and self.source:
            raise InputError("app: found nothing, expected [[app]] entries", where=self.source)
        hint = suggest_closest(spec.app, list(self.apps))
        of_request = "" if self.source else " of this request"
        raise InputError(f"app: found {spec.app!r}, which is no app{of_request}{hint}", where=where)

    def _gpu_app(self, spec: JobSpec, where: str) -> KnownApp:
        """An app with the single implementation ``gpu``, for a job whose communication is all there is."""
        key = (spec.cpus, spec.gpus, spec.memory, spec.gpu_memory)
        if key not in self._without_app:
            cpus = WHOLE_POOL if spec.cpus == "all" else None if spec.cpus is None else int(spec.cpus)
            memory = spec.memory if isinstance(spec.memory, int) else 0
            on_each = spec.gpu_memory if isinstance(spec.gpu_memory, int) else 0
            gpus = 1.0 if isinstance(spec.gpus, str) else spec.gpus
            if gpus == 0:
                raise InputError("gpus: found 0, expected at least 1 for a job of communication", where=where)
            request = request_for("gpu", cpus=cpus, gpus=gpus, memory=memory, gpu_memory=on_each)
            app = App(COMMUNICATING, (Implementation("gpu", "gpu", request),))
            self._without_app[key] = KnownApp(app, {}, {})
        return self._without_app[key]

    def _of_app(self, spec: JobSpec, known: KnownApp, where: str) -> BuiltJob:
        _check_names(spec, known.app, where)
        if spec.gpus == 0:
            # No devices: the job is left with the implementations that need none.
            left = tuple(i for i in known.app.implementations if not i.request.devices)
            if not left:
                there = f"app {known.app.name!r} has no implementation without devices"
                raise InputError(f"gpus: found 0, expected at least a share of one: {there}", where=where)
            known = replace(known, app=replace(known.app, implementations=left))
        app, inputs, uses_index = self._with_command(spec, known, where)
        app = self._reshape_app(spec, app, where)
        nodes = nodes_asked(spec, known)
        counts = tuple(node_counts(spec, nodes, known, where))
        key = (app, counts)
        if key not in self._apps:
            pairs = zip(app.implementations, counts, strict=True)
            # Choices by app and node counts: thousands of jobs share a handful of them.
            self._apps[key] = app, tuple(Choice(i, i.request.on(n)) for i, there in pairs for n in there)
        choices = self._apps[key][1]
        seconds = true_seconds(spec, nodes, known, where)
        timed = [
            (c.implementation.name, c.request.nodes, seconds[c.implementation.name][c.request.nodes])
            for c in choices
            if c.request.nodes in seconds.get(c.implementation.name, ())
        ]
        fields = {"app": app, "choices": choices, "inputs": inputs, "nodes": nodes}
        return BuiltJob(fields, timed=timed, uses_index=uses_index)

    def _with_command(
        self, spec: JobSpec, known: KnownApp, where: str
    ) -> tuple[App, Mapping[str, float | str], bool]:
        """The app, with the job's own command if it has one, and the features of the prediction.

        An input that names a file is a feature by the file's size; its name stands in the command. A job
        with a command of its own and no inputs is known by its arguments, as a plain command is.
        """
        given = spec.inputs or {}
        if spec.command is None and spec.env:
            raise InputError("found env without command, expected both or neither", where=where)
        commands = tuple(i.command for i in known.app.implementations)
        needs = known.needs
        own: Command | None = None
        if spec.command is not None:
            own = Command(split_command(spec.command, where), env_of(spec.env, where))
            # Tasks belong to the implementation, whatever command it runs.
            commands = tuple(own if one is None else replace(own, tasks=one.tasks) for one in commands)
            needs = [("", name) for name in needs_of(own, where)]
        uses_index = False
        for implementation, name in needs:
            if name in given:
                continue
            if name == INDEX and spec.array is not None:
                uses_index = True
                continue
            place = f"app {known.app.name!r}, implementation {implementation!r}: found"
            there = f" ({', '.join(given)})" if given else ", which has none"
            raise InputError(
                f"{place if implementation else 'command: found'} the unknown placeholder "
                f"{show_value(name)}, "
                f"expected an input of the job{there}",
                where=where,
            )
        folder = self._folder_of(spec)
        if own is not None and not given:
            inputs = dict(
                identify_command([render_template(word, _NO_DEVICE) for word in own.argv], cwd=folder).inputs
            )
        else:
            inputs = with_file_sizes(given, folder)
        # Files are features by their sizes; their names must stand in the command again.
        files = {k: v for k, v in given.items() if isinstance(v, str) and k not in inputs}
        bound = tuple(None if one is None else _bind_files(one, files) for one in commands)
        if own is None and bound == commands:
            return known.app, inputs, uses_index
        key = (known.app, bound)
        if key not in self._bound:
            pairs = zip(known.app.implementations, bound, strict=True)
            ways = tuple(replace(i, command=command) for i, command in pairs)
            self._bound[key] = replace(known.app, implementations=ways)
        return self._bound[key], inputs, uses_index

    def _reshape_app(self, spec: JobSpec, app: App, where: str) -> App:
        """The app, with what the job itself needs."""
        own = spec.cpus, spec.gpus, spec.memory, spec.partition, spec.gpu_memory
        restartable = app.restartable or spec.restartable
        # The common case: nothing of the job's own, so the app is shared as it is.
        plain = own == (None,) * 5 and not spec.exclusive and not spec.models
        if plain and restartable == app.restartable:
            return app
        key = (app, own, spec.exclusive, tuple(spec.models), restartable)
        if key not in self._bound:
            beside = _only_devices(i.kind for i in app.implementations)
            ways = tuple(
                replace(i, request=self._make_request(spec, i.request, i.kind, beside, where))
                for i in app.implementations
            )
            self._bound[key] = App(app.name, ways, restartable)
        return self._bound[key]

    # ------------------------------------------------------------------ jobs that bring their commands

    def _of_command(self, spec: JobSpec, where: str) -> BuiltJob:
        given = (bool(spec.implementations), spec.command is not None, spec.script is not None)
        if sum(given) > 1:
            raise InputError("found several of implementations, command, script, expected one", where=where)
        is_array = spec.array is not None
        kinds = spec.on or (["gpu"] if spec.gpus else ["cpu"])
        inputs: Mapping[str, float | str] = spec.inputs or {}
        if spec.script is not None:
            # A script's words are text: a brace in them is no placeholder.
            argv = tuple(
                escape_template(word) for word in (self._check_script(spec.script, where), *spec.arguments)
            )
            name, templates = spell_bytes(spec.app or spec.name or "script"), dict.fromkeys(kinds, argv)
        else:
            commands = spec.implementations or dict.fromkeys(kinds, spec.command)
            argvs = {kind: split_command(command, where) for kind, command in commands.items()}
            first, cwd = next(iter(argvs.values())), self._folder_of(spec)
            # The user names the features, and the commands are templates.
            if spec.inputs is not None:
                name, templates = spec.app or identify_command(first, cwd=cwd).app, argvs
            else:
                identity = identify_command(first, cwd=cwd, app=spec.app)
                templates = {kind: _command_template(argv, is_array) for kind, argv in argvs.items()}
                name, inputs = identity.app, identity.inputs
                # The index is a feature of its own.
                if is_array:
                    # With the index in it, every element would have inputs of its own and none a history.
                    inputs = {k: v for k, v in inputs.items() if _INDEX not in str(v)}
        app, choices = self._shape_job(spec, name, templates, where)
        uses_index = self._check_placeholders(app, inputs, is_array, where)
        fields = {"app": app, "choices": choices, "inputs": inputs, "nodes": spec.nodes or 1}
        return BuiltJob(fields, uses_index=uses_index)

    def _check_placeholders(self, app: App, inputs: Mapping[str, object], is_array: bool, where: str) -> bool:
        """Whether a command uses the index; refuses placeholders that nothing fills."""
        found = self._holes.get(app)
        if found is None:
            commands = [one.command.argv for one in app.implementations if one.command is not None]
            # Placeholders are searched only where there is a brace: commands of a list have none.
            argvs = [argv for argv in commands if any(map(_braces, argv))]
            try:
                found = self._holes[app] = frozenset(
                    name for argv in argvs for name in placeholder_names(argv)
                )
            except ValueError as error:
                raise InputError(
                    f"command: found {error}, expected {{n}} or {{device}}", where=where
                ) from None
        if not found:
            return False
        unknown = found - inputs.keys() - {DEVICE} - ({INDEX} if is_array else set())
        if unknown:
            raise InputError(
                f"command: found the unknown placeholder {{{min(unknown)}}}, expected an input of the job",
                where=where,
            )
        return INDEX in found and INDEX not in inputs

    def _check_script(self, text: str, where: str) -> str:
        if not text.startswith("#!"):
            raise InputError("script: found no '#!' at its beginning, expected e.g. #!/bin/sh", where=where)
        if self.keep_script is None:
            raise InputError("script: found a text, expected a command that names a file", where=where)
        return self.keep_script(text)

    def _shape_job(
        self, spec: JobSpec, name: str, templates: Mapping[str, tuple[str, ...]], where: str
    ) -> tuple[App, tuple[Choice, ...]]:
        """App and choices; jobs that run the same share them."""
        env, nodes = env_of(spec.env, where), spec.nodes or 1
        needs = (
            *(nodes, spec.memory, spec.partition, spec.cpus, spec.gpus, spec.gpu_memory, spec.restartable),
            *(spec.exclusive, tuple(spec.models)),
        )
        key = (name, tuple(templates.items()), env, needs)
        if key not in self._apps:
            ways, beside = [], _only_devices(templates)
            for kind, argv in templates.items():
                way = (kind, beside, needs)
                request = self._requests.get(way)
                if request is None:
                    _check_kind(kind, where)
                    # A plain command takes one CPU, not the pool: lists of thousands would run one by one.
                    plain = request_for(kind, cpus=1 if kind.startswith("cpu") else None)
                    request = self._requests[way] = self._make_request(spec, plain, kind, beside, where)
                ways.append(Implementation(kind, kind, request, Command(argv, env)))
            app = App(name, tuple(ways), spec.restartable)
            self._apps[key] = app, tuple(Choice(one, one.request.on(nodes)) for one in ways)
        return self._apps[key]

    # ------------------------------------------------------------------ what a job needs

    def _make_request(self, spec: JobSpec, plain: Request, kind: str, beside: bool, where: str) -> Request:
        """A request with what the job itself needs of CPUs, devices and memory.

        Its CPUs are those of its ways to run on CPUs; of a job that runs on devices only those ``beside``.
        """
        cpus, devices, models = plain.cpus, plain.devices, plain.models
        if spec.exclusive:
            cpus = WHOLE_POOL
        # "all" CPUs beside a device would keep the node's other devices idle.
        elif spec.cpus is not None and (kind.startswith("cpu") or (beside and spec.cpus != "all")):
            cpus = WHOLE_POOL if spec.cpus == "all" else int(spec.cpus)
        if cpus == 0 and not devices:
            raise InputError("cpus: found 0, expected at least 1 for kind cpu", where=where)
        sharing = plain.sharing if spec.gpus is None else spec.gpus == "auto" and bool(devices)
        if spec.gpus is not None and devices:
            if spec.gpus == 0:
                raise InputError(
                    f"gpus: found 0, expected at least a share of one for kind {kind}", where=where
                )
            count = 1.0 if spec.gpus == "auto" else float(spec.gpus)
            devices = ((devices[0][0], count), *devices[1:])
        memory = spec.memory if isinstance(spec.memory, int) else plain.memory  # auto: to be learned
        if spec.models and devices:
            models = self._match_models(spec.models, devices[0][0], where)
        on_each = plain.gpu_memory
        if spec.gpu_memory is not None and devices:
            on_each = spec.gpu_memory if isinstance(spec.gpu_memory, int) else 0  # auto: to be learned
        partition = self._choose_partition(spec, where)
        return Request(
            plain.nodes, cpus, devices, memory, models, partition, on_each, plain.gpu_least, sharing
        )

    def _choose_partition(self, spec: JobSpec, where: str) -> str:
        """The partition of a job: of several the first that is there; none on a cluster without any."""
        wanted = [name for name in (spec.partition or "").split(",") if name]
        # Without a cluster the name is kept: it may be checked later.
        if not wanted or self.partitions is None:
            return wanted[0] if wanted else ""
        if not self.partitions:
            self.passed_over.setdefault("partition", "the cluster has no partitions")
            return ""
        there = [name for name in wanted if name in self.partitions]
        if not there:
            expected = ", ".join(sorted(self.partitions))
            raise InputError(f"partition: found {spec.partition!r}, expected one of {expected}", where=where)
        if len(wanted) > 1:
            self.passed_over.setdefault("partition", f"the job is one of {there[0]} alone")
        return there[0]

    def _match_models(self, wanted: Sequence[str], kind: str, where: str) -> tuple[str, ...]:
        """The models of devices that are meant by names or words of names, whatever their case.

        On a cluster whose devices of that kind name no model, any will do.
        """
        known = None if self.models is None else self.models.get(kind)
        if known is None:
            return tuple(wanted)
        named = sorted(filter(None, known))
        if not named:
            if known:
                self.passed_over.setdefault("models", "devices of this cluster have no model")
            return ()
        found = [model for model in named if any(_is_model(word, model) for word in wanted)]
        if not found:
            words_found = " or ".join(wanted)
            raise InputError(
                f"models: found {words_found!r}, expected one of {', '.join(named)}", where=where
            )
        return tuple(found)

    def _make_sizing(self, spec: JobSpec, known: KnownApp | None, app: App) -> Sizing:
        """How the memory of a job is found."""
        if spec.memory == "auto":
            auto = tuple(one.name for one in app.implementations)
        elif spec.memory is None and known is not None:
            auto = known.auto
        else:
            auto = ()
        # Only where none is given: a number is a promise, and is never replaced.
        if spec.memory is None and not auto and self.learn_memory:
            auto = tuple(one.name for one in app.implementations if not one.request.memory)
        gpu_auto = known.gpu_auto if spec.gpu_memory is None and known is not None else ()
        if spec.gpu_memory == "auto":
            gpu_auto = tuple(one.name for one in app.implementations if one.request.devices)
        # An implementation that shares by what is learned needs no size.
        for one in app.implementations:
            if one.request.sharing and not one.request.gpu_memory and one.name not in gpu_auto:
                gpu_auto += (one.name,)
        if not (auto or gpu_auto) and spec.retry_memory == USUAL_SIZING.retry and spec.kill_risk is None:
            return USUAL_SIZING
        return Sizing(auto, spec.retry_memory, spec.kill_risk, gpu_auto=gpu_auto)

    def _make_throttles(self, spec: JobSpec, name: str) -> tuple[Throttle, ...]:
        if not spec.singleton:
            return ()
        return (Throttle(f"singleton:{self.user or spec.user or ''}:{name}", 1),)

    # ------------------------------------------------------------------ where it starts

    def _folder_of(self, spec: JobSpec) -> str:
        """The folder from which the job's files are looked up."""
        if spec.folder is None:
            return "." if self.folder is None else self.folder
        return os.path.join(self.folder or "", spec.folder)

    def _make_launch(self, spec: JobSpec, name: str, where: str) -> Launch | None:
        """Folder, environment, files and signal; shared by jobs where they are the same."""
        folder = self.folder if spec.folder is None else os.path.abspath(self._folder_of(spec))
        # A job that only communicates has no process whose memory could be limited.
        memory = spec.memory if isinstance(spec.memory, int) and spec.communication is None else None
        user = self.user or spec.user or ""
        out, err, read = (
            None if path is None else fill_pattern(path, name, user, is_array=spec.array is not None)[0]
            for path in (spec.stdout, spec.stderr, spec.stdin)
        )
        number, notice = _parse_notice(spec, where)
        variables = tuple(spec.variables.items())
        # Variables show a job's number: the elements of an array then have numbers of their own.
        own_numbers = spec.array is not None and bool(variables)
        made = Launch(
            folder=folder,
            environ=self.environ,
            stdout=out,
            stderr=err,
            signal=number,
            notice=notice,
            memory=memory,
            batch_variables=spec.batch_variables,
            umask=self.umask,
            limits=self.limits,
            variables=variables,
            indices=(spec.array or "").partition("%")[0] if own_numbers else "",
            stdin=read,
            append=spec.append,
            leader_alone=spec.signal is not None and spec.signal.startswith("B:"),
            spares_leader=spec.signal is not None and spec.signal.startswith("S:"),
        )
        # Nothing differs from Dovetail's own: no launch at all, which most jobs share.
        if made == _NO_LAUNCH:
            return None
        key = (folder, out, err, number, notice, memory, made.batch_variables, variables, made.indices, read)
        return self._launches.setdefault((*key, made.append, made.signal_recipients), made)


CORRESPONDING = "aftercorr:"
"""How a dependency begins of which each element of an array has its own: the element of the same index."""


def depends_of(spec: JobSpec, where: str = "") -> tuple[Dependency, ...]:
    """What a job waits for, under the names that it was given. Raises `InputError`."""
    found = []
    for text in spec.depends:
        try:
            found.append(Dependency.parse(text))
        except ValueError as error:
            raise InputError(f"depends: {error}", where=where) from None
    return tuple(found)


def _check_names(spec: JobSpec, app: App, where: str) -> None:
    """Implementations that the job names must be there."""
    names = [i.name for i in app.implementations]
    named = [("implementation", spec.implementation)] if spec.implementation is not None else []
    named += [("times", name) for name in spec.times] + [("speedup", name) for name in spec.speedup]
    for key, name in named:
        if name not in names:
            raise InputError(
                f"{key}: found {name!r}, expected an implementation of app {app.name!r}: {', '.join(names)}",
                where=where,
            )
    if DEVICE in (spec.inputs or {}):
        raise InputError(
            "inputs: found 'device', expected another name: {device} stands for the device", where=where
        )


def _is_model(word: str, model: str) -> bool:
    """Whether a word names a model, or is a part of its name: ``a100`` of ``NVIDIA A100-SXM4-40GB``."""
    parts = re.split(r"[^a-z0-9]+", model.lower())
    return word.lower() == model.lower() or word.lower() in parts


def _only_devices(kinds: Iterable[str]) -> bool:
    """Whether a job has no way to run on CPUs."""
    return not any(kind.startswith("cpu") for kind in kinds)


def _check_kind(kind: str, where: str) -> None:
    device = kind.removeprefix("cpu+")
    if "+" in device or not device or not kind.isprintable() or (device == "cpu" and kind != "cpu"):
        raise InputError(
            f"found the kind {show_value(kind)}, expected cpu, cpu+gpu, or a kind of device", where=where
        )


def _command_template(argv: Sequence[str], is_array: bool) -> tuple[str, ...]:
    """The words of a plain command: only ``{device}``, and ``{index}`` in an array, stand for something."""
    if not is_array:
        return tuple(map(template_of, argv))
    return tuple(template_of(word.replace(_INDEX, _MARK)).replace(_MARK, _INDEX) for word in argv)


def _bind_files(command: Command, files: Mapping[str, str]) -> Command:
    """The command with the names of files in the place of their placeholders."""
    if not files:
        return command
    return replace(command, argv=tuple(bind_template(word, files) for word in command.argv))


def _parse_notice(spec: JobSpec, where: str) -> tuple[int | None, Seconds]:
    """``USR1@60``, ``SIGTERM``, ``10@2m``."""
    if spec.signal is None:
        return None, 0.0
    name, _, before = spec.signal.removeprefix("B:").removeprefix("S:").partition("@")
    try:
        number = signal_of(name)
        notice = seconds_of(before) if before else NOTICE
    except (KeyError, ValueError):
        raise InputError(
            f"signal: found {spec.signal!r}, expected SIGNAL@SECONDS, e.g. USR1@60", where=where
        ) from None
    if spec.walltime is None:
        raise InputError("signal: found no walltime, expected one before which it is sent", where=where)
    return number, notice
