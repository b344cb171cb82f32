"""Events, decisions and predictions as plain JSON values, and back. The vocabulary of the journal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import orjson

from dovetail.files.sentences import shown
from dovetail.model import (
    EMPTY,
    Adopted,
    Allocation,
    App,
    Came,
    Cancelled,
    Choice,
    Cluster,
    ClusterEnds,
    Command,
    Communication,
    Decision,
    Delayed,
    Dependency,
    Dequeue,
    Device,
    DeviceClass,
    Donor,
    Ended,
    Ending,
    Enqueue,
    Estimated,
    Event,
    Foreseen,
    Held,
    Implementation,
    Inquire,
    Intend,
    Job,
    JobId,
    Launch,
    Lingering,
    Migrate,
    Migrated,
    Node,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Part,
    Plan,
    PlanItem,
    Planned,
    Prediction,
    Preempt,
    Ran,
    Recalled,
    Released,
    Request,
    Requeued,
    Reserve,
    Run,
    Shape,
    Sized,
    Sizing,
    Start,
    Started,
    State,
    Submit,
    Submitted,
    Throttle,
    TimeUsed,
    Usage,
    Wait,
    Withdrawn,
    Woken,
)
from dovetail.model.hostlist import MOST_NAMES
from dovetail.model.node import Nodes, Numbered

__all__ = [
    "Codec",
    "decode_allocation",
    "decode_app",
    "decode_cluster",
    "decode_job",
    "decode_launch",
    "decode_node",
    "decode_run",
    "decoded",
    "encode_allocation",
    "encode_app",
    "encode_cluster",
    "encode_job",
    "encode_launch",
    "encode_node",
    "encode_run",
    "encoded",
]

Json = Any
T = TypeVar("T")


def encode_cluster(cluster: Cluster) -> Json:
    """A cluster as JSON: node by node, a large one group by group, numbered names as their stem and count."""
    if not isinstance(cluster.nodes, Nodes):
        return {"label": cluster.label, "nodes": [encode_node(node) for node in cluster.nodes]}
    groups = [
        {
            "node": encode_node(node),
            "names": [names.stem, len(names)] if isinstance(names, Numbered) else list(names),
        }
        for node, names in cluster.nodes.parts
    ]
    return {"label": cluster.label, "groups": groups}


def encode_node(node: Node) -> Json:
    """A node as JSON."""
    return {**_plain(node), "devices": [_plain(device) for device in node.devices]}


def decode_node(data: Json) -> Node:
    """The node that `encode_node` wrote."""
    devices = tuple(Device(**{**device, "cores": tuple(device["cores"])}) for device in data["devices"])
    return Node(
        data["name"],
        tuple(data["cores"]),
        devices,
        data["memory"],
        data["host_cpus"],
        data["cpu_model"],
        tuple(data.get("partitions", ())),
        data.get("network_bandwidth"),
        data.get("gpu_bandwidth"),
    )


def decode_cluster(data: Json) -> Cluster:
    """The cluster that `encode_cluster` wrote. Raises `ValueError` where it has too many nodes."""
    if "groups" not in data:
        return Cluster(tuple(decode_node(n) for n in data["nodes"]), data["label"])
    groups = [(decode_node(group["node"]), _names(group["names"])) for group in data["groups"]]
    found = sum(len(names) for _, names in groups)
    if found > MOST_NAMES:
        raise ValueError(f"{shown(found)} nodes")
    return Cluster.of(groups, data["label"])


def _names(data: Json) -> Sequence[str]:
    """The names of a group: all of them, or a stem and a count."""
    if len(data) == 2 and type(data[1]) is int:
        stem, count = data
        if type(stem) is not str or not 0 < count <= MOST_NAMES:
            raise ValueError(f"{shown(count)} nodes named {shown(stem)}")
        return Numbered(stem, count)
    if not all(type(name) is str for name in data):
        raise ValueError("a node whose name is no text")
    return list(data)


_SIMPLE: dict[type, str] = {
    Cancelled: "cancelled",
    ClusterEnds: "cluster_ends",
    Delayed: "delayed",
    Ending: "ending",
    Estimated: "estimated",
    Held: "held",
    Lingering: "lingering",
    Migrated: "migrated",
    NodeDrained: "node_drained",
    NodeLost: "node_lost",
    Released: "released",
    Requeued: "requeued",
    Sized: "sized",
    Withdrawn: "withdrawn",
    Woken: "woken",
}
"""Events that are their fields."""

_NAMES: dict[type, tuple[str, ...]] = {}


def _plain(item: Any) -> dict[str, Any]:
    kind = type(item)
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return {name: getattr(item, name) for name in _NAMES[kind]}


def _request(request: Request) -> Json:
    asked = [request.nodes, request.cpus, [list(d) for d in request.devices], request.memory, request.models]
    return [*asked, request.partition] if request.partition else asked


def _request_from(data: Json) -> Request:
    nodes, cpus, devices, memory, models, *partition = data
    shares = tuple((kind, count) for kind, count in devices)
    return Request(nodes, cpus, shares, memory, tuple(models), *partition)


def encode_allocation(allocation: Allocation | None) -> Json:
    """An allocation; ``None`` as it is."""
    if allocation is None:
        return None
    return {
        "request": _request(allocation.request),
        "parts": [[format(part.nodes, "x"), *part[1:]] for part in allocation.parts],
        "cores": {str(node): cores for node, cores in allocation.cores.items()},
        "donors": [list(donor) for donor in allocation.donors],
    }


def _allocation_from(data: Json) -> Allocation | None:
    if data is None:
        return None
    return Allocation(
        _request_from(data["request"]),
        tuple(
            Part(int(mask, 16), cpus, tuple(devices), units, memory)
            for mask, cpus, devices, units, memory in data["parts"]
        ),
        {int(node): tuple(cores) for node, cores in data["cores"].items()} or EMPTY,
        tuple(Donor(*donor) for donor in data["donors"]),
    )


def decode_allocation(data: Json) -> Allocation:
    """The allocation that `encode_allocation` wrote."""
    allocation = _allocation_from(data)
    assert allocation is not None
    return allocation


def _plan(plan: Plan) -> Json:
    items = [{**_plain(item), "request": _request(item.request)} for item in plan.items]
    return {**_plain(plan), "items": items}


def _plan_from(data: Json) -> Plan:
    items = tuple(PlanItem(**{**item, "request": _request_from(item["request"])}) for item in data["items"])
    return Plan(**{**data, "items": items})


_PARTS: dict[str, tuple[Callable[[Any], Json], Callable[[Json], Any]]] = {
    "inputs": (dict, dict),
    "speedup": (dict, dict),
    "depends": (
        lambda depends: [[one.kind, one.job] for one in depends],
        lambda data: tuple(Dependency(kind, job) for kind, job in data),
    ),
    "communication": (lambda found: _plain(found), lambda data: Communication(**data)),
    "throttles": (
        lambda throttles: [[one.key, one.limit] for one in throttles],
        lambda data: tuple(Throttle(key, limit) for key, limit in data),
    ),
    "launch": (lambda found: encode_launch(found), lambda data: decode_launch(data)),
    "slurm": (list, tuple),
    "sizing": (lambda found: _plain(found), lambda data: Sizing(**{**data, "auto": tuple(data["auto"])})),
}
"""Fields of a job that are not plain values: how they are written and read."""

_OPTIONAL = tuple(
    (field.name, field.default)
    for field in dataclasses.fields(Job)
    if field.name not in ("id", "app", "choices", "launch")
)
_optional_of = attrgetter(*(name for name, _ in _OPTIONAL))


def _command(command: Command | None) -> Json:
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
            [
                i.name,
                i.kind,
                _request(i.request),
                _command(i.command),
            ]
            for i in app.implementations
        ]
    }
    return {**data, "restartable": True} if app.restartable else data


def decode_app(name: str, data: Mapping[str, Json]) -> App:
    """The app that `encode_app` wrote."""
    implementations = tuple(
        Implementation(
            name,
            kind,
            _request_from(request),
            _command_from(command),
        )
        for name, kind, request, command in data["implementations"]
    )
    return App(name, implementations, data.get("restartable", False))


def _choices(job: Job) -> Json:
    return [[c.implementation.name, _request(c.request)] for c in job.choices]


def encode_job(job: Job, choices: Json = None) -> dict[str, Json]:
    """A job without its app and what it starts in; ``choices`` where they are encoded already."""
    data: dict[str, Json] = {"id": job.id, "choices": _choices(job) if choices is None else choices}
    for (name, default), value in zip(_OPTIONAL, _optional_of(job), strict=True):
        if value is not default and value != default:
            data[name] = _PARTS[name][0](value) if name in _PARTS else value
    return data


_MOST_CHOICES = 1024
_choices_of_apps: dict[tuple[int, bytes], tuple[App, tuple[Choice, ...]]] = {}


def decode_job(data: Mapping[str, Json], app: App, launch: Launch | None = None) -> Job:
    """The job of this app that `encode_job` wrote."""
    fields = {"launch": launch, **data, "app": app, "choices": _choices_from(data, app)}
    for name in _PARTS.keys() & data.keys():
        fields[name] = _PARTS[name][1](data[name])
    return Job(**fields)


def _choices_from(data: Mapping[str, Json], app: App) -> tuple[Choice, ...]:
    """The choices of a job; the same object for jobs of one app that have the same."""
    key = id(app), encoded(data["choices"])
    known = _choices_of_apps.get(key)
    if known is not None and known[0] is app:
        return known[1]
    choices = tuple(Choice(app.implementation(name), _request_from(r)) for name, r in data["choices"])
    if len(_choices_of_apps) >= _MOST_CHOICES:
        _choices_of_apps.clear()
    _choices_of_apps[key] = app, choices
    return choices


def encode_launch(launch: Launch) -> Json:
    """What a job starts in."""
    return _plain(launch)


def decode_launch(data: Json) -> Launch:
    """The launch that `encode_launch` wrote."""
    environ = data.get("environ")
    return Launch(**{**data, "environ": None if environ is None else tuple(map(tuple, environ))})


def encode_run(run: Run) -> Json:
    """A measured run."""
    usage = None if run.usage is None else _plain(run.usage)
    device = [run.device_class.kind, run.device_class.model]
    return {**_plain(run), "device_class": device, "inputs": dict(run.inputs), "usage": usage}


def decode_run(data: Json) -> Run:
    """The run that `encode_run` wrote."""
    usage = None if data["usage"] is None else Usage(**data["usage"])
    device = DeviceClass(*data["device_class"])
    return Run(**{**data, "device_class": device, "usage": usage, "state": State(data["state"])})


class Codec:
    """Encodes with apps written once, where a job first needs them; decodes with the same memory."""

    def __init__(self) -> None:
        self._apps: dict[str, App] = {}
        self._choices: tuple[tuple[Choice, ...], Json] = ((), [])

    # ------------------------------------------------------------------- jobs

    def _job(self, job: Job) -> Json:
        data = {**encode_job(job, self._choices_of(job)), "app": job.app.name}
        if self._apps.get(job.app.name) is not job.app:
            self._apps[job.app.name] = job.app
            data |= encode_app(job.app)
        return data

    def _choices_of(self, job: Job) -> Json:
        """Its choices; jobs that follow each other mostly share them."""
        if self._choices[0] is not job.choices:
            self._choices = (job.choices, _choices(job))
        return self._choices[1]

    def _job_from(self, data: dict[str, Any]) -> Job:
        data = dict(data)
        name = data.pop("app")
        if "implementations" in data:
            self._apps[name] = decode_app(name, data)
            data.pop("restartable", None)
            del data["implementations"]
        return decode_job(data, self._apps[name])

    # ----------------------------------------------------------------- events

    def event(self, event: Event) -> Json:
        """An event as a list: its name, then its fields."""
        if isinstance(event, Submitted):
            job = self._job(event.job)
            if event.attempts:
                return ["submitted", job, event.held, event.attempts, event.failures]
            return ["submitted", job, event.held] if event.held else ["submitted", job]
        if isinstance(event, Started):
            device = event.device_class
            place = None if device is None else [device.kind, device.model]
            return ["started", event.job, encode_allocation(event.allocation), place, event.at]
        if isinstance(event, Adopted):
            allocation = encode_allocation(event.allocation)
            limit = None if event.limit == float("inf") else event.limit
            known = event.limit is not None  # an infinite one is written as nothing
            start, predicted = event.start_time, event.predicted
            told: list[Json] = [event.job, event.implementation, allocation, start, event.attempt]
            return ["adopted", *told, predicted, limit, known]
        if isinstance(event, Ended):
            usage = None if event.usage is None else _plain(event.usage)
            told = [] if event.ran else [None, False]
            return [
                "ended",
                event.job,
                event.state.value,
                event.exit_code,
                event.detail,
                usage,
                event.started_at,
                event.ended_at,
                *told,
            ]
        if isinstance(event, NodeJoined):
            return ["node_joined", event.node, None if event.new is None else encode_node(event.new)]
        if isinstance(event, Planned):
            return ["planned", _plan(event.plan)]
        if isinstance(event, Recalled):
            came = [[one.user, one.submit_time, _request(one.request), one.bound] for one in event.came]
            return ["recalled", [list(one) for one in event.ran], came]
        if isinstance(event, Foreseen):
            used = [] if event.used is None else [list(event.used)]
            return ["foreseen", _shape(event.shape), event.wait, event.room, event.why, *used]
        name = _SIMPLE[type(event)]
        return [name, *_plain(event).values()]

    def event_from(self, data: Json) -> Event:
        """The event that `event` encoded."""
        makers: dict[str, Callable[..., Event]] = {
            **{name: kind for kind, name in _SIMPLE.items()},
            "submitted": lambda job, *told: Submitted(self._job_from(job), *told),
            "started": lambda job, allocation, device=None, at=None: Started(
                job, _allocation_from(allocation), None if device is None else DeviceClass(*device), at
            ),
            "adopted": _adopted,
            "sized": lambda job, memory, kills=0: Sized(job, tuple(memory), kills),
            "ended": lambda job, state, code, detail, usage, *told: Ended(
                job, State(state), code, detail, None if usage is None else Usage(**usage), *told
            ),
            "node_joined": lambda node, new=None: NodeJoined(node, None if new is None else decode_node(new)),
            "planned": lambda plan: Planned(_plan_from(plan)),
            "recalled": lambda ran, came=(): Recalled(
                tuple(Ran(*one) for one in ran),
                tuple(Came(user, at, _request_from(request), bound) for user, at, request, bound in came),
            ),
            "foreseen": lambda shape, wait, room=0, why="", used=None: Foreseen(
                _shape_from(shape), wait, room, why, None if used is None else TimeUsed(*used)
            ),
        }
        return _make(makers, data)

    # -------------------------------------------------------------- decisions

    def decision(self, decision: Decision) -> Json:
        """A decision as a list: its name, then its fields."""
        if isinstance(decision, Start):
            return ["start", decision.job, decision.implementation, encode_allocation(decision.allocation)]
        if isinstance(decision, Enqueue):
            return ["enqueue", decision.job, decision.implementation, decision.unit]
        if isinstance(decision, Dequeue):
            return ["dequeue", decision.job]
        if isinstance(decision, Intend):
            return ["intend", *_plain(decision).values()]
        if isinstance(decision, Reserve):
            allocation = encode_allocation(decision.allocation)
            return ["reserve", decision.job, decision.implementation, allocation, decision.start]
        if isinstance(decision, Migrate):
            return ["migrate", decision.job, encode_allocation(decision.allocation), decision.held]
        if isinstance(decision, Preempt):
            return ["preempt", decision.job, decision.reason]
        if isinstance(decision, Submit):
            request = _request(decision.request)
            return [
                "submit",
                decision.job,
                decision.implementation,
                request,
                decision.target,
                decision.walltime,
                decision.reason,
                *(() if decision.foreseen is None else (decision.foreseen,)),
            ]
        if isinstance(decision, Inquire):
            return ["inquire", _shape(decision.shape)]
        assert isinstance(decision, Wait), "renewals are spelt out"
        return ["wait", decision.job, decision.reason, decision.until]

    def decision_from(self, data: Json) -> Decision:
        """The decision that `decision` encoded."""
        makers: dict[str, Callable[..., Decision]] = {
            "start": lambda job, name, allocation: Start(job, name, decode_allocation(allocation)),
            "enqueue": Enqueue,
            "dequeue": Dequeue,
            "intend": Intend,
            "reserve": lambda job, name, allocation, at: Reserve(
                job, name, decode_allocation(allocation), at
            ),
            "migrate": lambda job, allocation, held=False: Migrate(job, decode_allocation(allocation), held),
            "preempt": Preempt,
            "submit": lambda job, name, request, *told: Submit(job, name, _request_from(request), *told),
            "inquire": lambda shape: Inquire(_shape_from(shape)),
            "wait": Wait,
        }
        return _make(makers, data)

    # -------------------------------------------------------------- questions

    @staticmethod
    def asked(asked: tuple[Any, ...]) -> Json:
        """A question to the runtime model, with its answer."""
        plain: list[Any] = list(asked)
        for i, item in enumerate(asked):
            if type(item) is DeviceClass:
                plain[i] = (item.kind, item.model)
            elif type(item) is Prediction:
                plain[i] = found = _plain(item)
                if found["upper"] == float("inf"):
                    found["upper"] = None
        return plain


def _adopted(
    job: JobId,
    name: str,
    allocation: Json,
    start: float,
    attempt: int,
    predicted: float | None = None,
    limit: float | None = None,
    known: bool = False,
) -> Adopted:
    if known and limit is None:
        limit = float("inf")
    return Adopted(job, name, decode_allocation(allocation), start, attempt, predicted, limit)


def _shape(shape: Shape) -> Json:
    return [shape.target, _request(shape.request), shape.walltime, list(shape.options)]


def _shape_from(data: Json) -> Shape:
    target, request, walltime, options = data
    return Shape(target, _request_from(request), walltime, tuple(options))


def _make(makers: Mapping[str, Callable[..., T]], data: Json) -> T:
    name, *fields = data
    if name not in makers:
        raise ValueError(f"{shown(name)}, expected one of {', '.join(makers)}")
    return makers[name](*fields)


_SLOWLY = json.JSONEncoder(separators=(",", ":")).encode


def encoded(form: Any) -> bytes:
    """A form as JSON: finite numbers only; names may be bytes that are no UTF-8."""
    try:
        return orjson.dumps(form)
    except TypeError:  # lone surrogates, integers beyond 64 bits
        return _SLOWLY(form).encode()


def decoded(data: bytes) -> Any:
    """The form again. Raises `ValueError` where it is none."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data)
