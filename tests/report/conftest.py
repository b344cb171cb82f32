"""Results built by hand: what the report is tested on, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dovetail.model import (
    FRACTION_UNITS,
    Allocation,
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Part,
    Prediction,
    Record,
    Request,
    Result,
    State,
)

CPU = Implementation("cpu", "cpu", Request())
GPU = Implementation("gpu", "gpu", Request(cpus=0, devices=(("gpu", 1.0),)))


def record(
    id: str,
    *,
    start: float | None = 0.0,
    end: float | None = 1.0,
    submit: float = 0.0,
    nodes: Sequence[int] = (0,),
    cpus: int = 1,
    devices: tuple[int, ...] = (),
    share: float = 1.0,
    app: str | None = None,
    state: State = State.COMPLETED,
    predicted: Prediction | None = None,
    index: int = 0,
    **about: Any,
) -> Record:
    """A job and what became of it; on ``devices`` it is a GPU job, else a CPU job."""
    implementation = GPU if devices else CPU
    job = Job(
        id,
        App(app or id, (CPU, GPU)),
        (Choice(implementation, implementation.request),),
        index=index,
        submit_time=submit,
        **about,
    )
    if start is None:
        return Record(job, state, end=end, exit_code=None)
    mask = sum(1 << n for n in nodes)
    part = Part(mask, cpus, devices, round(share * FRACTION_UNITS))
    allocation = Allocation(implementation.request.on(len(nodes)), (part,))
    return Record(
        job, state, implementation, allocation, start, end, predicted, 0 if end is not None else None
    )


def result(records: Sequence[Record], cluster: Cluster | None = None, **about: Any) -> Result:
    """A result of these records, on one node of one CPU and one GPU by default."""
    about = {"policy": "history", "workload": "jobs.toml"} | about
    return Result(cluster=cluster or Cluster.uniform(1, 1, 1), records=list(records), **about)


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return record


@pytest.fixture
def make_result() -> Callable[..., Result]:
    return result
