"""Short ways to build jobs, workloads and clusters in tests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeVar

from dovetail.model import (
    App,
    Choice,
    Cluster,
    DeviceClass,
    Implementation,
    Job,
    Prediction,
    Request,
    Seconds,
    TableTruth,
    Truth,
    Workload,
)

T = TypeVar("T")
HOST = -2


def full(everything: T, reduced: T) -> T:
    """The long count (or list) under ``make test-all``, the reduced one under ``make test``."""
    return everything if os.environ.get("DOVETAIL_TEST_FULL") == "1" else reduced


class TrueTimesModel:
    """A `RuntimeModel` that knows the true times, for tests."""

    version = 0

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The true time."""
        seconds = self.truth.seconds(job, implementation, request)
        return None if seconds is None else Prediction(seconds, seconds, 1, "true time", seconds)

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """One, always."""
        return 1


def timed(
    name: str,
    times: Mapping[str, Seconds],
    *,
    submit: Seconds = 0.0,
    index: int = 0,
    app: App | None = None,
    **fields: object,
) -> tuple[Job, dict[tuple[str, str, int], Seconds]]:
    """A one-node job with default requests and these true times by implementation (= kind)."""
    if app is None:
        implementations = []
        for kind in times:
            if kind == "cpu":
                request = Request()
            elif kind.startswith("cpu+"):
                request = Request(devices=((kind.removeprefix("cpu+"), 1),))
            else:
                request = Request(cpus=HOST, devices=((kind, 1),))
            implementations.append(Implementation(kind, kind, request))
        app = App(name, tuple(implementations))
    choices = tuple(Choice(i, i.request) for i in app.implementations)
    job = Job(name, app, choices, index=index, submit_time=submit, **fields)  # type: ignore[arg-type]
    return job, {(name, kind, 1): seconds for kind, seconds in times.items()}


def workload(
    rows: Sequence[tuple[str, Mapping[str, Seconds]] | tuple[str, Mapping[str, Seconds], Seconds]],
) -> Workload:
    """One-node jobs from (name, times by kind[, submit time]) rows, in file order."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for index, row in enumerate(rows):
        submit = row[2] if len(row) == 3 else 0.0
        job, times = timed(row[0], row[1], submit=submit, index=index)
        jobs.append(job)
        table |= times
    # The engine takes workloads in order of submission, jobs of one instant in file order.
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload("test", jobs, TableTruth(table))


def rigid(
    rows: Sequence[tuple[Seconds, int, Seconds, Seconds | None]], request: Request | None = None
) -> Workload:
    """Rigid jobs from (submit, nodes, run time, walltime) rows, one CPU a node; ids are row numbers."""
    base = request or Request(1, 1)
    implementation = Implementation("cpu", "cpu", base)
    app = App("rigid", (implementation,))
    jobs = [
        Job(
            str(i),
            app,
            (Choice(implementation, base.on(nodes)),),
            index=i,
            submit_time=submit,
            nodes=nodes,
            walltime=walltime,
        )
        for i, (submit, nodes, _, walltime) in enumerate(rows)
    ]
    truth = TableTruth(fixed={str(i): row[2] for i, row in enumerate(rows)})
    return Workload("rigid", sorted(jobs, key=lambda job: (job.submit_time, job.index)), truth)


def rigid_workload(
    rows: Sequence[tuple[Seconds, int, Seconds, Seconds | None]], nodes: int
) -> tuple[Workload, Cluster]:
    """`rigid` with a cluster of so many single-CPU nodes."""
    return rigid(rows), Cluster.uniform(nodes, 1)
