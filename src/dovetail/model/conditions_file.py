"""The tables of a cluster file about the conditions of a simulation: failures, windows, classes, priorities.

`dovetail.model.conditions` has what each means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, Tag
from pydantic import Discriminator as _Discriminator

from dovetail.errors import InputError
from dovetail.files.fields import Entry, Name, Seconds, duration_check, real_number, whole_number
from dovetail.files.fields import number_or_text as _number_or_text
from dovetail.files.sentences import file_name, suggest_closest
from dovetail.files.tables import Malformed, parse_table
from dovetail.files.units import DURATION, LONGEST, seconds_of
from dovetail.model.cluster_file import NodesFile
from dovetail.model.conditions import (
    Checkpoints,
    Conditions,
    Failures,
    JobClass,
    ListedFailure,
    Preemption,
    PriorityRule,
    Window,
)
from dovetail.model.hostlist import expand_hostlist
from dovetail.model.node import Node
from dovetail.spec.values import MOST_NODES

T = TypeVar("T")
MOST_FAILURES = 1_000_000
"""Lines of a list of failures."""
MOST_WINDOWS = 32
"""Windows of one file; a service knows at most twice as many at once."""
GPU = "gpu"


def _which_form(value: object) -> str:
    return "~names" if isinstance(value, str) else "~count"


Span = Annotated[
    float, BeforeValidator(duration_check(above_zero=True)), _number_or_text(most=LONGEST, above=True)
]
Number = Annotated[float, Field(ge=0), BeforeValidator(real_number("a number"))]
Share = Annotated[float, Field(gt=0), BeforeValidator(real_number("a share", above_zero=True))]
Shape = Annotated[
    float, Field(gt=0, le=100), BeforeValidator(real_number("a shape", most=100.0, above_zero=True))
]
Seed = Annotated[int, Field(ge=0), BeforeValidator(whole_number(0, 2**63 - 1))]
Count = Annotated[int, Field(ge=1, le=MOST_NODES), BeforeValidator(whole_number(1, MOST_NODES))]
Restarts = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(whole_number())]
NodesOrCount = Annotated[
    Annotated[Name, Tag("~names")] | Annotated[Count, Tag("~count")], _Discriminator(_which_form)
]


class ListedFailureEntry(Entry):
    """A failure that is known beforehand."""

    node: Name = Field(description="a name, or a hostlist for several that fail together")
    at: Seconds = Field(description="seconds after the workload's zero")
    repair: Seconds | None = Field(
        default=None, description="seconds until it is back; default: it never comes back"
    )


class FailuresEntry(Entry):
    """How nodes fail, and what becomes of the jobs on them."""

    mtbf: Span | None = Field(
        default=None, description="mean seconds from a node's repair to its next failure, of each node"
    )
    mttr: Seconds | None = Field(default=None, description="mean seconds of a repair (exponential)")
    shape: Shape = Field(default=1.0, description="of the Weibull distribution of failures; 1: exponential")
    nodes: Name | None = Field(default=None, description="a hostlist of those that fail so; default: all")
    seed: Seed = Field(default=1, description="of the draws")
    jobs: Literal["requeue", "lost"] = Field(
        default="requeue", description="a job on a node that fails waits again, or is lost"
    )
    most_restarts: Restarts = Field(default=64, description="so often a job starts again at most")
    file: Name | None = Field(
        default=None, description="a CSV with the columns node, at, repair, beside the cluster file"
    )
    event: list[ListedFailureEntry] = Field(default_factory=list)


class CheckpointsEntry(Entry):
    """Checkpoints that every job writes."""

    every: Span = Field(description="seconds of work between two")
    cost: Seconds = Field(default=0.0, description="seconds that one takes, in which no work is done")
    restart: Seconds = Field(default=0.0, description="seconds that a job takes to go on from one")


class _WindowEntry(Entry):
    start: Seconds = Field(alias="from", description="seconds after the workload's zero")
    span: Span = Field(alias="for", description="seconds that it lasts")
    every: Span | None = Field(default=None, description="it begins again after so many seconds")
    name: Name | None = Field(default=None, description="for people")


class MaintenanceEntry(_WindowEntry):
    """A window in which nothing runs on some nodes."""

    nodes: NodesOrCount | None = Field(
        default=None, description="a hostlist, or so many nodes, the last ones; default: all"
    )


class ReservationEntry(_WindowEntry):
    """A window in which only jobs of some users run on some nodes or GPUs."""

    users: list[Name] = Field(description="whose jobs may run there", min_length=1)
    nodes: NodesOrCount | None = Field(
        default=None, description="a hostlist, or so many nodes, the last ones"
    )
    gpus: Count | None = Field(default=None, description="instead of nodes: so many GPUs, the last ones")


class PreemptionEntry(Entry):
    """What becomes of a running job whose place a class takes that preempts."""

    mode: Literal["requeue", "suspend"] = Field(
        default="requeue", description="it waits again, or stands still where it is"
    )


class ClassEntry(Entry):
    """Jobs with a priority of their own: those that match every list given here."""

    name: Name
    priority: Number = Field(default=0.0, description="of jobs that give none themselves; higher first")
    users: list[Name] = Field(default_factory=list)
    groups: list[Name] = Field(default_factory=list)
    queues: list[Name] = Field(default_factory=list)
    partitions: list[Name] = Field(default_factory=list)
    qos: list[Name] = Field(default_factory=list)
    apps: list[Name] = Field(default_factory=list)
    preempts: bool = Field(
        default=False, description="its jobs take the places of running jobs of lower priority"
    )
    preemptable: bool = Field(default=True, description="its jobs may be preempted")


class WeightsEntry(Entry):
    """What each part counts, which is between 0 and 1."""

    age: Number = Field(default=0.0, description="the time waited over max_age")
    fair_share: Number = Field(default=0.0, description="2 to the minus (part used / part of the shares)")
    size: Number = Field(default=0.0, description="the part of the machine that a job requests")
    job_class: Number = Field(
        alias="class", default=0.0, description="the class's priority over the highest of all classes"
    )


class PriorityEntry(Entry):
    """Who goes first."""

    weights: WeightsEntry | None = Field(
        default=None,
        description="of a multifactor priority; default: strictly by fair share, as in the service",
    )
    max_age: Span = Field(default=7 * 86400.0, description="seconds after which age counts fully")
    half_life: Span = Field(
        default=7 * 86400.0, description="seconds in which half of all usage is forgotten"
    )
    every: Span = Field(default=300.0, description="seconds between two computations")
    favor: Literal["large", "small"] = Field(default="large", description="which sizes rank higher")
    shares: dict[Name, Share] = Field(default_factory=dict, description="of users; default: 1 each")


class ConditionEntries(Entry):
    """The tables of a cluster file that only simulations take."""

    failures: FailuresEntry | None = None
    checkpoints: CheckpointsEntry | None = None
    maintenance: list[MaintenanceEntry] = Field(default_factory=list)
    reservation: list[ReservationEntry] = Field(default_factory=list)
    preemption: PreemptionEntry | None = None
    job_class: list[ClassEntry] = Field(alias="class", default_factory=list)
    priority: PriorityEntry | None = None


class ClusterFile(ConditionEntries, NodesFile):
    """A cluster file."""


def conditions_of(
    entries: ConditionEntries, groups: Sequence[tuple[Node, Sequence[str]]], path: str
) -> Conditions:
    """The conditions that a file gives for these nodes. Raises `InputError`. O(nodes) where it gives any."""
    given = tuple(
        info.alias or name
        for name, info in ConditionEntries.model_fields.items()
        if getattr(entries, name) not in (None, [])
    )
    if not given:
        return Conditions()
    names = _Names(groups, file_name(path))
    classes = _classes_of(entries.job_class, file_name(path))
    if entries.preemption is not None and not any(one.preempts for one in classes):
        raise InputError(
            "found no class that preempts, expected preempts = true in a [[class]]",
            where=f"{file_name(path)}: preemption",
        )
    preempts = any(one.preempts for one in classes)
    return Conditions(
        None if entries.failures is None else _failures_of(entries.failures, names, path),
        None if entries.checkpoints is None else Checkpoints(**entries.checkpoints.model_dump()),
        _windows_of(entries, names),
        Preemption((entries.preemption or PreemptionEntry()).mode) if preempts else None,
        classes,
        None if entries.priority is None else _priority_of(entries.priority, f"{names.source}: priority"),
        given,
    )


class _Names:
    """The nodes of a file by their names and by their devices."""

    def __init__(self, groups: Sequence[tuple[Node, Sequence[str]]], source: str) -> None:
        self.source = source
        self._index: dict[str, int] = {}
        self._gpus: list[tuple[int, int]] = []
        for node, names in groups:
            gpus = [d for d, device in enumerate(node.devices) if device.kind == GPU]
            for name in names:
                self._gpus += [(len(self._index), d) for d in gpus]
                self._index[name] = len(self._index)

    def of(self, hostlist: str, where: str) -> tuple[int, ...]:
        """The indices of the nodes of a hostlist."""
        try:
            names = expand_hostlist(hostlist)
        except InputError as error:
            raise InputError(str(error), where=where) from None
        for name in names:
            if name not in self._index:
                raise InputError(
                    f"found {name!r}, which is no node here{suggest_closest(name, list(self._index))}",
                    where=where,
                )
        return tuple(sorted({self._index[name] for name in names}))

    def chosen(self, nodes: str | int | None, where: str) -> tuple[int, ...]:
        """A hostlist's, so many of the last ones, or all."""
        count = len(self._index)
        if nodes is None:
            return tuple(range(count))
        if isinstance(nodes, str):
            return self.of(nodes, where)
        if nodes > count:
            raise InputError(f"found {nodes}, expected at most the {count} nodes that there are", where=where)
        return tuple(range(count - nodes, count))

    def last_gpus(self, count: int, where: str) -> tuple[tuple[int, int], ...]:
        """So many GPUs, the last ones."""
        if count > len(self._gpus):
            raise InputError(
                f"found {count}, expected at most the {len(self._gpus)} GPUs that there are", where=where
            )
        return tuple(self._gpus[len(self._gpus) - count :])


def _failures_of(entry: FailuresEntry, names: _Names, path: str) -> Failures:
    where = f"{names.source}: failures"
    if (entry.mtbf is None) != (entry.mttr is None):
        found, missing = ("mttr", "mtbf") if entry.mtbf is None else ("mtbf", "mttr")
        raise InputError(f"found {found} without {missing}, expected both", where=where)
    if entry.mtbf is None and entry.file is None and not entry.event:
        raise InputError("found no failure, expected mtbf and mttr, file, or event", where=where)
    listed: list[ListedFailure] = []
    for number, one in enumerate(entry.event, 1):
        repair = inf if one.repair is None else one.repair
        nodes = names.of(one.node, f"{where}, event {number}, node")
        listed += [ListedFailure(node, one.at, repair) for node in nodes]
    if entry.file is not None:
        listed += _failures_of_file(os.path.join(os.path.dirname(path), entry.file), names)
    listed.sort(key=lambda one: (one.at, one.node))
    return Failures(
        () if entry.mtbf is None else names.chosen(entry.nodes, f"{where}, nodes"),
        entry.mtbf,
        entry.mttr or 0.0,
        entry.shape,
        entry.seed,
        entry.jobs,
        entry.most_restarts,
        tuple(listed),
    )


def _failures_of_file(path: str, names: _Names) -> list[ListedFailure]:
    """The failures of a CSV: the columns node, at and repair (empty: it never comes back)."""

    def parse(row: Mapping[str, str]) -> list[ListedFailure]:
        at, repair = _duration_of(row, "at"), row["repair"]
        try:
            nodes = names.of(row["node"], "node")
        except InputError:
            raise Malformed("node", row["node"], "nodes of the cluster file") from None
        back = _duration_of(row, "repair") if repair else inf
        return [ListedFailure(node, at, back) for node in nodes]

    found, _ = parse_table(path, ("node", "at", "repair"), parse)
    rows = [one for several in found for one in several]
    if len(rows) > MOST_FAILURES:
        raise InputError(
            f"found {len(rows):,} failures, expected at most {MOST_FAILURES:,}", where=file_name(path)
        )
    return rows


def _duration_of(row: Mapping[str, str], column: str) -> float:
    try:
        seconds = seconds_of(row[column])
    except ValueError:
        raise Malformed(column, row[column], DURATION) from None
    if not 0 <= seconds <= LONGEST:
        raise Malformed(column, row[column], f"seconds between 0 and {LONGEST:g}")
    return seconds


def _windows_of(entries: ConditionEntries, names: _Names) -> tuple[Window, ...]:
    found: list[Window] = []
    both: list[tuple[str, Sequence[MaintenanceEntry | ReservationEntry]]] = [
        ("maintenance", entries.maintenance),
        ("reservation", entries.reservation),
    ]
    for what, several in both:
        for number, one in enumerate(several, 1):
            where = f"{names.source}: {what} {number}" + (f" {one.name!r}" if one.name else "")
            if one.every is not None and one.every <= one.span:
                raise InputError(
                    f"every: found {one.every:g} s, expected more than the {one.span:g} s that it lasts",
                    where=where,
                )
            title = one.name or (what if len(several) == 1 else f"{what} {number}")
            users: tuple[str, ...] = ()
            nodes: tuple[int, ...] = ()
            devices: tuple[tuple[int, int], ...] = ()
            if isinstance(one, ReservationEntry):
                users = tuple(one.users)
                if (one.nodes is None) == (one.gpus is None):
                    both_or_none = "neither nodes nor gpus" if one.nodes is None else "both nodes and gpus"
                    raise InputError(f"found {both_or_none}, expected one of them", where=where)
                if one.gpus is not None:
                    devices = names.last_gpus(one.gpus, f"{where}, gpus")
            if not devices:
                nodes = names.chosen(one.nodes, f"{where}, nodes")
            found.append(Window(title, one.start, one.span, nodes, devices, users, one.every))
    if len(found) > MOST_WINDOWS:
        raise InputError(
            f"found {len(found)} windows, expected at most {MOST_WINDOWS} (every = repeats one)",
            where=names.source,
        )
    return tuple(found)


def _classes_of(entries: Sequence[ClassEntry], source: str) -> tuple[JobClass, ...]:
    _check_unique([one.name for one in entries], lambda name: f"{source}: class {name!r}")
    found = []
    for entry in entries:
        lists = ("users", "groups", "queues", "partitions", "qos", "apps")
        fields = {name: tuple(getattr(entry, name)) for name in lists}
        found.append(
            JobClass(
                entry.name, entry.priority, **fields, preempts=entry.preempts, preemptable=entry.preemptable
            )
        )
    return tuple(found)


def _check_unique(names: Sequence[str], where: Callable[[str], str]) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError("found the name twice, expected each name once", where=where(name))


def _priority_of(entry: PriorityEntry, where: str) -> PriorityRule:
    if entry.weights is not None and not any(entry.weights.model_dump().values()):
        raise InputError("found no weight above 0, expected one at least", where=f"{where}, weights")
    return PriorityRule(
        **(entry.weights or WeightsEntry()).model_dump(),
        max_age=entry.max_age,
        half_life=entry.half_life,
        every=entry.every,
        favor=entry.favor,
        shares=dict(entry.shares),
    )
