"""Events, decisions and predictions as plain JSON values, and back. The vocabulary of the journal.

How a class is written follows from its fields: as the list of their values, or as an object by their names.
Written by hand is only what has a form of its own.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import orjson

from dovetail.files.sentences import show_value
from dovetail.model import (
    EMPTY,
    Adopted,
    Allocation,
    App,
    Choice,
    Cluster,
    Command,
    Decision,
    Dependency,
    DeviceClass,
    Donor,
    Ended,
    Event,
    Foreseen,
    Implementation,
    Job,
    Launch,
    Migrated,
    Node,
    Part,
    Prediction,
    RecentEnd,
    RecentSubmission,
    Request,
    Reserve,
    Shape,
    Sized,
    Started,
    State,
    Submit,
    Submitted,
    Throttle,
    TimeUsed,
    Updated,
)
from dovetail.model.hostlist import MOST_NAMES
from dovetail.model.node import Device, Nodes, Numbered

Json = Any
T = TypeVar("T")


def _kinds_by_name(kinds: Any) -> dict[str, type]:
    """Events or decisions by their names in a journal."""
    named = {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in typing.get_args(kinds)
    }
    return dict(sorted(named.items()))


_EVENTS, _DECISIONS = _kinds_by_name(Event), _kinds_by_name(Decision)
_NAMES = {kind: name for known in (_EVENTS, _DECISIONS) for name, kind in known.items()}
_LISTS = (DeviceClass, Donor, RecentEnd, RecentSubmission, Shape, TimeUsed)
"""Written as the list of their fields; other dataclasses as objects."""
_SCALARS = frozenset((str, int, float, bool, type(None)))


# ------------------------------------------------------------------------- by the fields of a class


def decode_fields(kind: type[T], data: Json) -> T:
    """The value of that class that `encode_value` wrote."""
    hint: Any = kind
    return _make_reader(hint)(data)  # type: ignore[no-any-return]


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return kind._fields  # type: ignore[no-any-return]


def _encode_as_mapping(item: Any) -> dict[str, Json]:
    return {name: encode_value(getattr(item, name)) for name in _field_names(item.__class__)}


def _encode_as_list(item: Any) -> list[Json]:
    return [encode_value(getattr(item, name)) for name in _field_names(item.__class__)]


def encode_value(value: Any) -> Json:
    """A value of the model as JSON; jobs, apps and clusters have functions of their own."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind in _OWN_FORMS:
        return _OWN_FORMS[kind][0](value)
    if kind in _LISTS:
        return _encode_as_list(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(map(encode_value, value))
    return _encode_as_mapping(value) if dataclasses.is_dataclass(kind) else value


@cache
def _field_readers(kind: Any) -> Mapping[str, Callable[[Json], Any]]:
    """How each field of a class is read, in order."""
    hints = typing.get_type_hints(kind)
    return {name: _make_reader(hints[name]) for name in _field_names(kind)}


@cache
def _make_reader(hint: Any) -> Callable[[Json], Any]:
    """How a value of a type is read; what is nothing but text, a number or a switch is taken as it stands."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and type(None) in arguments:
        read = _make_reader(next(one for one in arguments if one is not type(None)))
        return lambda data: None if data is None else read(data)
    if origin is tuple and arguments[-1] is ...:
        each = _make_reader(arguments[0])
        return lambda data: tuple(map(each, data))
    if origin is tuple or origin is Mapping:
        return tuple if origin is tuple else dict
    if hint in _OWN_FORMS:
        return _OWN_FORMS[hint][1]
    if hint in _LISTS:
        return lambda data: _of_list(hint, data)
    if dataclasses.is_dataclass(hint):
        return lambda data: _of_object(hint, data)
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else lambda data: data


def _of_list(kind: Any, fields: Sequence[Json]) -> Any:
    """What `_encode_as_list` wrote; fields at the end that have a default may be missing."""
    readers = _field_readers(kind)
    if len(fields) > len(readers):
        raise TypeError("more fields than there are")
    return kind(*(read(value) for read, value in zip(readers.values(), fields, strict=False)))


def _of_object(kind: Any, data: Mapping[str, Json]) -> Any:
    """What `_encode_as_mapping` wrote."""
    readers = _field_readers(kind)
    return kind(**{name: readers[name](value) if name in readers else value for name, value in data.items()})


# ------------------------------------------------------------------------------- clusters and nodes


def encode_cluster(cluster: Cluster) -> Json:
    """A cluster as JSON: node by node, a large one group by group, numbered names as their stem and count."""
    if not isinstance(cluster.nodes, Nodes):
        closed = {"closed": sorted(cluster.closed)} if cluster.closed else {}
        return {
            "label": cluster.label,
            "nodes": [_encode_as_mapping(node) for node in cluster.nodes],
            **closed,
        }
    groups = [
        {
            "node": _encode_as_mapping(node),
            "names": [names.stem, len(names)] if isinstance(names, Numbered) else list(names),
        }
        for node, names in cluster.nodes.parts
    ]
    return {"label": cluster.label, "groups": groups}


def decode_cluster(data: Json) -> Cluster:
    """The cluster that `encode_cluster` wrote. Raises `ValueError` where it has too many nodes."""
    if "groups" not in data:
        closed = frozenset(data.get("closed", ()))
        return Cluster(tuple(_node_from(n) for n in data["nodes"]), data["label"], closed=closed)
    groups = [(_node_from(group["node"]), _node_names(group["names"])) for group in data["groups"]]
    found = sum(len(names) for _, names in groups)
    if found > MOST_NAMES:
        raise ValueError(f"{show_value(found)} nodes")
    return Cluster.of(groups, data["label"])


def _node_names(data: Json) -> Sequence[str]:
    """The names of a group: all of them, or a stem and a count."""
    if len(data) == 2 and type(data[1]) is int:
        stem, count = data
        if type(stem) is not str or not 0 < count <= MOST_NAMES:
            raise ValueError(f"{show_value(count)} nodes named {show_value(stem)}")
        return Numbered(stem, count)
    if not all(type(name) is str for name in data):
        raise ValueError("a node whose name is no text")
    return list(data)


def _encode_device(device: Device) -> Json:
    """A device; of what only some have, what it has."""
    whole = _encode_as_mapping(device)
    return {
        name: value
        for name, value in whole.items()
        if value or name not in ("near", "links", "mps", "exclusive")
    }


def _node_from(data: Json) -> Node:
    early = ("name", "cores", "devices", "memory", "host_cpus", "cpu_model")  # in files of all versions
    fields = {name: data[name] for name in _field_names(Node) if name in early or name in data}
    return _of_object(Node, fields)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------- places, apps and jobs


def _encode_request(request: Request) -> Json:
    plain = [request.nodes, request.cpus, [list(d) for d in request.devices], request.memory, request.models]
    further = [request.partition, request.gpu_memory, request.gpu_least, request.sharing, request.avoids]
    while further and not further[-1]:
        further.pop()
    return [*plain, *further]


def _request_once(request: Request) -> Json:
    """The form of a request, made once for all who hold this very object: there are few."""
    return _forms_of(request)[1]


def _forms_of(request: Request) -> tuple[Request, Json, Json]:
    """The request itself, its form, and that of an allocation for it which names no place."""
    known = _request_forms.get(id(request))
    if known is None or known[0] is not request:
        if len(_request_forms) >= _MOST_REQUESTS:
            _request_forms.clear()
        form = _encode_request(request)
        nowhere = {"request": form, "parts": [], "cores": {}, "donors": []}
        known = _request_forms[id(request)] = request, form, nowhere
    return known


_MOST_REQUESTS = 1024
_request_forms: dict[int, tuple[Request, Json, Json]] = {}
_requests: dict[bytes, Request] = {}


def _request_from(data: Json) -> Request:
    """A request; the same object for all equal ones."""
    key = encode_json(data)
    found = _requests.get(key)
    if found is None:
        nodes, cpus, devices, memory, models, *further = data
        shares = tuple((kind, count) for kind, count in devices)
        found = Request(nodes, cpus, shares, memory, tuple(models), *further)
        if len(_requests) >= _MOST_REQUESTS:
            _requests.clear()
        _requests[key] = found
    return found


def _encode_allocation(allocation: Allocation) -> Json:
    # Where nodes are counted promises name none, and thousands of them move at a time.
    if not (allocation.parts or allocation.cores or allocation.donors):
        return _forms_of(allocation.request)[2]
    return {
        "request": _request_once(allocation.request),
        "parts": [
            [format(part.nodes, "x"), *(part[1:] if part.gpu_memory else part[1:5])]
            for part in allocation.parts
        ],
        # A promise has neither cores nor donors, and thousands of promises are written at a time.
        "cores": {str(node): cores for node, cores in allocation.cores.items()} if allocation.cores else {},
        "donors": [list(donor) for donor in allocation.donors] if allocation.donors else [],
    }


def _allocation_from(data: Json) -> Allocation:
    return Allocation(
        _request_from(data["request"]),
        tuple(
            Part(int(mask, 16), cpus, tuple(devices), *further)
            for mask, cpus, devices, *further in data["parts"]
        ),
        {int(node): tuple(cores) for node, cores in data["cores"].items()} or EMPTY,
        tuple(Donor(*donor) for donor in data["donors"]),
    )


_OPTIONAL = tuple(
    (field.name, field.default)
    for field in dataclasses.fields(Job)
    if field.name not in ("id", "app", "choices", "launch")
)
_optional_of = attrgetter(*(name for name, _ in _OPTIONAL))
_NESTED = frozenset(
    (
        *("batch_options", "communication", "depends", "inputs", "launch", "options", "sizing", "speedup"),
        "throttles",
    )
)
"""Fields of a job that are not read as they stand."""


_BATCH_OPTIONS = "slurm"
_WRITTEN = {"batch_options": _BATCH_OPTIONS}
"""Fields that journals and ledgers have had under another name from the first version on."""


def _launch_from(data: Json) -> Launch:
    """A launch, also of a ledger in which one of its fields has the name of a batch system."""
    fields = {("batch_variables" if name == _BATCH_OPTIONS else name): value for name, value in data.items()}
    return _of_object(Launch, fields)  # type: ignore[no-any-return]


def _encode_command(command: Command | None) -> Json:
    if command is None:
        return None
    tasks = [] if command.tasks == 1 else [command.tasks]
    return [list(command.argv), [list(entry) for entry in command.env], *tasks]


def _command_from(data: Json) -> Command | None:
    if data is None:
        return None
    argv, env, *tasks = data
    return Command(tuple(argv), tuple(map(tuple, env)), *tasks)


def encode_app(app: App) -> dict[str, Json]:
    """An app without its name."""
    data: dict[str, Json] = {
        "implementations": [
            [i.name, i.kind, _encode_request(i.request), _encode_command(i.command)]
            for i in app.implementations
        ]
    }
    return {**data, "restartable": True} if app.restartable else data


def decode_app(name: str, data: Mapping[str, Json]) -> App:
    """The app that `encode_app` wrote."""
    implementations = tuple(
        Implementation(name, kind, _request_from(request), _command_from(command))
        for name, kind, request, command in data["implementations"]
    )
    return App(name, implementations, data.get("restartable", False))


def _encode_choices(job: Job) -> Json:
    return [[c.implementation.name, _encode_request(c.request)] for c in job.choices]


def encode_job(job: Job, choices: Json = None) -> dict[str, Json]:
    """A job without its app and what it starts in; ``choices`` where they are encoded already."""
    data: dict[str, Json] = {"id": job.id, "choices": _encode_choices(job) if choices is None else choices}
    for (name, default), value in zip(_OPTIONAL, _optional_of(job), strict=True):
        if value is not default and value != default:
            data[_WRITTEN.get(name, name)] = encode_value(value)
    return data


_MOST_CHOICES = 1024
_choices_of_apps: dict[tuple[int, bytes], tuple[App, tuple[Choice, ...]]] = {}


def decode_job(data: Mapping[str, Json], app: App, launch: Launch | None = None) -> Job:
    """The job of this app that `encode_job` wrote."""
    fields = {"launch": launch, **data, "app": app, "choices": _choices_from(data, app)}
    if _BATCH_OPTIONS in fields:
        fields["batch_options"] = tuple(fields.pop(_BATCH_OPTIONS))
    readers = _field_readers(Job)
    for name in _NESTED & data.keys():
        fields[name] = readers[name](data[name])
    return Job(**fields)


def _choices_from(data: Mapping[str, Json], app: App) -> tuple[Choice, ...]:
    """The choices of a job; the same object for jobs of one app that have the same."""
    key = id(app), encode_json(data["choices"])
    known = _choices_of_apps.get(key)
    if known is not None and known[0] is app:
        return known[1]
    choices = tuple(Choice(app.implementation(name), _request_from(r)) for name, r in data["choices"])
    if len(_choices_of_apps) >= _MOST_CHOICES:
        _choices_of_apps.clear()
    _choices_of_apps[key] = app, choices
    return choices


def _encode_dependency(item: Dependency) -> Json:
    rest = [item.delay, item.alternative] if item.delay or item.alternative else []
    return [item.kind, item.job, *rest]


def _encode_throttle(throttle: Throttle) -> Json:
    return [throttle.key, throttle.limit, *([throttle.weight] if throttle.weight != 1 else [])]


_OWN_FORMS: dict[Any, tuple[Callable[[Any], Json], Callable[[Json], Any]]] = {
    Allocation: (_encode_allocation, _allocation_from),
    Dependency: (_encode_dependency, lambda data: Dependency(*data)),
    Launch: (_encode_as_mapping, _launch_from),
    Node: (_encode_as_mapping, _node_from),
    Request: (_encode_request, _request_from),
    State: (attrgetter("value"), State),
    Device: (_encode_device, lambda data: _of_object(Device, data)),
    Throttle: (_encode_throttle, lambda data: Throttle(*data)),
}


# ----------------------------------------------------------------------------- a journal's lines


class Codec:
    """Encodes with apps written once, where a job first needs them; decodes with the same memory."""

    def __init__(self) -> None:
        self._apps: dict[str, App] = {}
        self._choices: tuple[tuple[Choice, ...], Json] = ((), [])

    def _encode_new_job(self, job: Job) -> Json:
        data = {**encode_job(job, self._choices_of(job)), "app": job.app.name}
        if self._apps.get(job.app.name) is not job.app:
            self._apps[job.app.name] = job.app
            data |= encode_app(job.app)
        return data

    def _choices_of(self, job: Job) -> Json:
        """Its choices; jobs that follow each other mostly share them."""
        if self._choices[0] is not job.choices:
            self._choices = (job.choices, _encode_choices(job))
        return self._choices[1]

    def _job_from(self, data: dict[str, Any]) -> Job:
        data = dict(data)
        name = data.pop("app")
        if "implementations" in data:
            self._apps[name] = decode_app(name, data)
            data.pop("restartable", None)
            del data["implementations"]
        return decode_job(data, self._apps[name])

    def encode_event(self, event: Event) -> Json:
        """An event as a list: its name, then its fields."""
        name = _NAMES[type(event)]
        if isinstance(event, Submitted):
            job = self._encode_new_job(event.job)
            if event.attempts:
                return [name, job, event.held, event.attempts, event.failures]
            return [name, job, event.held] if event.held else [name, job]
        if isinstance(event, Updated):
            return [name, event.job, self._encode_new_job(event.into), list(event.fields)]
        form = [name, *_encode_as_list(event)]
        if isinstance(event, Started):
            del form[5:]  # its own moment is in the field before
        elif isinstance(event, Adopted):
            form[7:] = [None if event.limit == float("inf") else event.limit, event.limit is not None]
        elif isinstance(event, Ended):
            further = [None, event.ran] if event.on_device or not event.ran else []
            form[8:] = [*further, True] if event.on_device else further
            form += [event.available] if event.on_device and event.available is not None else []
        elif isinstance(event, Foreseen) and event.used is None:
            del form[5:]
        elif isinstance(event, Migrated) and not event.stays:
            del form[3:]
        elif isinstance(event, Sized) and not event.gpu:
            del form[4:]
        return form

    def event_from(self, data: Json) -> Event:
        """The event that `encode_event` encoded."""
        name, *fields = data
        if name == "submitted":
            job, *rest = fields
            return Submitted(self._job_from(job), *rest)
        if name == "updated":
            subject, into, changed = fields
            return Updated(subject, self._job_from(into), tuple(changed))
        if name == "adopted" and len(fields) == 8:
            known = fields.pop()
            fields[6] = float("inf") if known and fields[6] is None else fields[6]
        return _of_list(_find_kind(_EVENTS, name), fields)  # type: ignore[no-any-return]

    @staticmethod
    def encode_decision(decision: Decision) -> Json:
        """A decision as a list: its name, then its fields."""
        if type(decision) is Reserve:  # renewals are spelt out
            place = _encode_allocation(decision.allocation)
            return ["reserve", decision.job, decision.implementation, place, decision.start]
        form = [_NAMES[type(decision)], *_encode_as_list(decision)]
        if isinstance(decision, Submit) and decision.foreseen is None:
            del form[7:]
        return form

    @staticmethod
    def decision_from(data: Json) -> Decision:
        """The decision that `encode_decision` encoded."""
        name, *fields = data
        return _of_list(_find_kind(_DECISIONS, name), fields)  # type: ignore[no-any-return]

    @staticmethod
    def encode_question(asked: tuple[Any, ...]) -> Json:
        """A question to the runtime model, with its answer."""
        plain: list[Any] = list(asked)
        for i, item in enumerate(asked):
            if type(item) is DeviceClass:
                plain[i] = (item.kind, item.model)
            elif type(item) is Prediction:
                plain[i] = found = _encode_as_mapping(item)
                if found["upper"] == float("inf"):
                    found["upper"] = None
        return plain


def _find_kind(known: Mapping[str, type], name: Json) -> type:
    if name not in known:
        raise ValueError(f"{show_value(name)}, expected one of {', '.join(known)}")
    return known[name]


_SLOWLY = json.JSONEncoder(separators=(",", ":")).encode


def encode_json(form: Any) -> bytes:
    """A form as JSON: finite numbers only; names may be bytes that are no UTF-8."""
    try:
        return orjson.dumps(form)
    except TypeError:  # lone surrogates, integers beyond 64 bits
        return _SLOWLY(form).encode()


def decode_json(data: bytes) -> Any:
    """The form again. Raises `ValueError` where it is none."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)
