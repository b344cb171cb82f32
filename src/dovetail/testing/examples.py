"""Small schedules in one line, for examples in docstrings: simulated, checked, shown as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import Planner, Policy, RuntimeModel
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Record,
    Request,
    Result,
    Seconds,
    TableTruth,
    Workload,
)
from dovetail.model.hostlist import compress_names
from dovetail.policies.follow_plan import FollowPlan
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid
from dovetail.testing.invariants import check_schedule

MoldableRow = tuple[str, int, Mapping[str, Mapping[int, Seconds]]]
OneNodeRow = tuple[str, Mapping[str, Seconds]] | tuple[str, Mapping[str, Seconds], Seconds]


class RenderedResult:
    """A checked result whose ``repr`` is each job's name, way and time, in file order."""

    def __init__(self, result: Result) -> None:
        self.result = result

    def __repr__(self) -> str:
        return ", ".join(self._record_line(record) for record in self.result.records)

    def _record_line(self, record: Record) -> str:
        words = [record.job.id]
        if len(record.job.app.implementations) > 1 and record.implementation is not None:
            words.append(record.implementation.name)
        if len(self.result.cluster) > 1 and record.allocation is not None:
            devices = record.allocation.device_names(self.result.cluster)
            words.append(
                ",".join(devices) or compress_names(record.allocation.node_names(self.result.cluster))
            )
        return " ".join([*words, f"{record.start:g} to {record.end:g}"])


def _simulate_rendered(
    policy: Policy | Planner, cluster: str, workload: Workload, model: str | None = None
) -> RenderedResult:
    machine = Cluster.parse(cluster)
    history = MemoryHistory()
    runtimes: RuntimeModel = TrueTimesModel(workload.truth) if model is None else make_model(model, history)
    options = SimulationOptions(placement=getattr(policy, "placement", "pack"))
    result = simulate(
        workload,
        machine,
        policy,
        runtimes,
        observe=history if model else None,
        follow=FollowPlan(),
        options=options,
    )
    # Examples in docstrings are checked like any other schedule, so a wrong one fails where it stands.
    check_schedule(result, workload)
    return RenderedResult(result)


def one_node(
    policy: Policy | Planner, cluster: str, rows: Sequence[OneNodeRow], *, model: str | None = None
) -> RenderedResult:
    """Jobs (app, seconds by kind[, submit time]) under a policy; without a ``model`` all times are known.

    With one, runs are recorded in a history that is empty at first. An app that comes several times has
    jobs APP-1, APP-2 and so on.
    """
    apps: dict[str, App] = {}
    many = Counter(row[0] for row in rows)
    seen: Counter[str] = Counter()
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for index, row in enumerate(rows):
        name, times = row[0], row[1]
        app = apps.get(name) or apps.setdefault(name, App(name, tuple(map(_default_implementation, times))))
        # Ids have to differ; a single job of an app keeps the bare name, which reads better.
        seen[name] += 1
        job = f"{name}-{seen[name]}" if many[name] > 1 else name
        choices = tuple(Choice(i, i.request) for i in app.implementations)
        jobs.append(Job(job, app, choices, index, row[2] if len(row) == 3 else 0.0))
        table |= {(job, kind, 1): seconds for kind, seconds in times.items()}
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return _simulate_rendered(policy, cluster, Workload("example", jobs, TableTruth(table)), model)


def _default_implementation(kind: str) -> Implementation:
    """An implementation of that kind with its default request."""
    device = kind.removeprefix("cpu+")
    if device == "cpu":
        # A job on a device leaves the rest of the pool to others; one on both holds all of it.
        return Implementation(kind, kind, Request())
    cpus = HOST_CPUS if device == kind else WHOLE_POOL
    return Implementation(kind, kind, Request(cpus=cpus, devices=((device, 1),)))


def on_nodes(
    policy: Policy, cluster: str, rows: Sequence[tuple[Seconds, int, Seconds, Seconds]]
) -> RenderedResult:
    """Jobs (submit time, nodes, seconds, walltime) of one CPU a node; job 0 is the first row."""
    return _simulate_rendered(policy, cluster, rigid(rows))


def moldable(
    policy: Policy | Planner,
    cluster: str,
    rows: Sequence[tuple[str, int, Mapping[str, Mapping[int, Seconds]]]],
) -> RenderedResult:
    """Jobs (id, requested nodes, seconds by kind and number of nodes), all submitted at 0."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for index, (job, nodes, times) in enumerate(rows):
        app = App(job, tuple(map(_default_implementation, times)))
        choices = tuple(
            Choice(i, i.request.on(n)) for i in app.implementations for n in sorted(times[i.kind])
        )
        jobs.append(Job(job, app, choices, index, nodes=nodes))
        table |= {(job, kind, n): seconds for kind, by in times.items() for n, seconds in by.items()}
    return _simulate_rendered(policy, cluster, Workload("example", jobs, TableTruth(table)))
