"""Events, decisions and predictions as plain JSON values, and back. The vocabulary of the journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dovetail.errors import JournalError
from dovetail.model import (
    EMPTY,
    Allocation,
    App,
    Cancelled,
    Choice,
    Cluster,
    Command,
    Decision,
    Dequeue,
    Device,
    DeviceClass,
    Donor,
    Ended,
    Enqueue,
    Estimated,
    Event,
    Implementation,
    Job,
    Migrate,
    Node,
    NodeJoined,
    NodeLost,
    Part,
    Plan,
    PlanItem,
    Planned,
    Prediction,
    Request,
    Reserve,
    Start,
    Started,
    State,
    Submit,
    Submitted,
    Usage,
    Wait,
    Woken,
)

__all__ = ["Codec", "decode_cluster", "encode_cluster"]

Json = Any
T = TypeVar("T")


def encode_cluster(cluster: Cluster) -> Json:
    """A cluster as JSON; node by node."""
    return {
        "label": cluster.label,
        "nodes": [
            {**_plain(node), "devices": [_plain(device) for device in node.devices]} for node in cluster.nodes
        ],
    }


def decode_cluster(data: Json) -> Cluster:
    """The cluster that `encode_cluster` wrote."""
    nodes = tuple(
        Node(
            n["name"],
            tuple(n["cores"]),
            tuple(Device(d["kind"], d["model"], d["local"], tuple(d["cores"])) for d in n["devices"]),
            n["memory"],
            n["host_cpus"],
            n["cpu_model"],
        )
        for n in data["nodes"]
    )
    return Cluster(nodes, data["label"])


_NAMES: dict[type, tuple[str, ...]] = {}


def _plain(item: Any) -> dict[str, Any]:
    kind = type(item)
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return {name: getattr(item, name) for name in _NAMES[kind]}


def _request(request: Request) -> Json:
    return [request.nodes, request.cpus, [list(d) for d in request.devices], request.memory, request.models]


def _request_from(data: Json) -> Request:
    nodes, cpus, devices, memory, models = data
    return Request(nodes, cpus, tuple((kind, count) for kind, count in devices), memory, tuple(models))


def _allocation(allocation: Allocation | None) -> Json:
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


def _given(data: Json) -> Allocation:
    allocation = _allocation_from(data)
    assert allocation is not None
    return allocation


def _plan(plan: Plan) -> Json:
    items = [{**_plain(item), "request": _request(item.request)} for item in plan.items]
    return {**_plain(plan), "items": items}


def _plan_from(data: Json) -> Plan:
    items = tuple(PlanItem(**{**item, "request": _request_from(item["request"])}) for item in data["items"])
    return Plan(**{**data, "items": items})


_OPTIONAL = tuple(
    (field.name, field.default)
    for field in dataclasses.fields(Job)
    if field.name not in ("id", "app", "choices")
)


class Codec:
    """Encodes with apps written once, where a job first needs them; decodes with the same memory."""

    def __init__(self) -> None:
        self._apps: dict[str, App] = {}
        self._choices: tuple[tuple[Choice, ...], Json] = ((), [])

    # ------------------------------------------------------------------- jobs

    def _job(self, job: Job) -> Json:
        data: dict[str, Any] = {
            "id": job.id,
            "app": job.app.name,
            "choices": self._choices_of(job),
        }
        for name, default in _OPTIONAL:
            value = getattr(job, name)
            if value is not default and value != default:
                data[name] = dict(value) if isinstance(value, Mapping) else value
        if self._apps.get(job.app.name) is not job.app:
            self._apps[job.app.name] = job.app
            data["implementations"] = [
                [
                    i.name,
                    i.kind,
                    _request(i.request),
                    None if i.command is None else [list(i.command.argv), [list(e) for e in i.command.env]],
                ]
                for i in job.app.implementations
            ]
        return data

    def _choices_of(self, job: Job) -> Json:
        """Its choices; jobs that follow each other mostly share them."""
        if self._choices[0] is not job.choices:
            encoded = [[c.implementation.name, _request(c.request)] for c in job.choices]
            self._choices = (job.choices, encoded)
        return self._choices[1]

    def _job_from(self, data: dict[str, Any]) -> Job:
        data = dict(data)
        if "implementations" in data:
            implementations = tuple(
                Implementation(
                    name,
                    kind,
                    _request_from(request),
                    None if command is None else Command(tuple(command[0]), tuple(map(tuple, command[1]))),
                )
                for name, kind, request, command in data.pop("implementations")
            )
            self._apps[data["app"]] = App(data["app"], implementations)
        app = self._apps[data["app"]]
        choices = tuple(Choice(app.implementation(name), _request_from(r)) for name, r in data["choices"])
        return Job(**{**data, "app": app, "choices": choices})

    # ----------------------------------------------------------------- events

    def event(self, event: Event) -> Json:
        """An event as a list: its name, then its fields."""
        if isinstance(event, Submitted):
            return ["submitted", self._job(event.job)]
        if isinstance(event, Started):
            return ["started", event.job, _allocation(event.allocation)]
        if isinstance(event, Ended):
            usage = None if event.usage is None else _plain(event.usage)
            return [
                "ended",
                event.job,
                event.state.value,
                event.exit_code,
                event.detail,
                usage,
                event.started_at,
                event.ended_at,
            ]
        if isinstance(event, Cancelled):
            return ["cancelled", event.job]
        if isinstance(event, NodeLost):
            return ["node_lost", event.node]
        if isinstance(event, NodeJoined):
            return ["node_joined", event.node]
        if isinstance(event, Estimated):
            return ["estimated", event.app]
        if isinstance(event, Planned):
            return ["planned", _plan(event.plan)]
        return ["woken"]

    def event_from(self, data: Json) -> Event:
        """The event that `event` encoded."""
        makers: dict[str, Callable[..., Event]] = {
            "submitted": lambda job: Submitted(self._job_from(job)),
            "started": lambda job, allocation: Started(job, _allocation_from(allocation)),
            "ended": lambda job, state, code, detail, usage, began, ended: Ended(
                job, State(state), code, detail, None if usage is None else Usage(**usage), began, ended
            ),
            "cancelled": Cancelled,
            "node_lost": NodeLost,
            "node_joined": NodeJoined,
            "estimated": Estimated,
            "planned": lambda plan: Planned(_plan_from(plan)),
            "woken": Woken,
        }
        return _make(makers, data)

    # -------------------------------------------------------------- decisions

    def decision(self, decision: Decision) -> Json:
        """A decision as a list: its name, then its fields."""
        if isinstance(decision, Start):
            return ["start", decision.job, decision.implementation, _allocation(decision.allocation)]
        if isinstance(decision, Enqueue):
            return ["enqueue", decision.job, decision.implementation, decision.unit]
        if isinstance(decision, Dequeue):
            return ["dequeue", decision.job]
        if isinstance(decision, Reserve):
            allocation = _allocation(decision.allocation)
            return ["reserve", decision.job, decision.implementation, allocation, decision.start]
        if isinstance(decision, Migrate):
            return ["migrate", decision.job, _allocation(decision.allocation)]
        if isinstance(decision, Submit):
            request = _request(decision.request)
            return [
                "submit",
                decision.job,
                decision.implementation,
                request,
                decision.target,
                decision.walltime,
            ]
        return ["wait", decision.job, decision.reason, decision.until]

    def decision_from(self, data: Json) -> Decision:
        """The decision that `decision` encoded."""
        makers: dict[str, Callable[..., Decision]] = {
            "start": lambda job, name, allocation: Start(job, name, _given(allocation)),
            "enqueue": Enqueue,
            "dequeue": Dequeue,
            "reserve": lambda job, name, allocation, at: Reserve(job, name, _given(allocation), at),
            "migrate": lambda job, allocation: Migrate(job, _given(allocation)),
            "submit": lambda job, name, request, target, walltime: Submit(
                job, name, _request_from(request), target, walltime
            ),
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
                plain[i] = _plain(item)
        return plain


def _make(makers: Mapping[str, Callable[..., T]], data: Json) -> T:
    name, *fields = data
    if name not in makers:
        raise JournalError(f"journal: found {name!r}, expected one of {', '.join(makers)}")
    return makers[name](*fields)
