"""The state of an engine as events and decisions: where a journal may begin anew.

A fresh engine that takes in the events and the decisions stands where this one does, and decides as
this one will. So each segment of a service's journal can be replayed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from dovetail.engine.state.core import Engine
from dovetail.engine.state.suspensions import PAUSED
from dovetail.model import (
    Adopted,
    Decision,
    Enqueue,
    Event,
    Job,
    KeptOff,
    NodeDrained,
    NodeLost,
    Paused,
    Placed,
    Planned,
    Recalled,
    Reserve,
    Reserved,
    Seconds,
    State,
    Submitted,
)
from dovetail.model.reservation import avoids_of, with_avoids
from dovetail.records import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """First the jobs, then what became of nodes, then what had been decided."""

    jobs: Sequence[Event]
    nodes: Sequence[Event]
    decisions: Sequence[Decision]


def make_checkpoint(engine: Engine, now: Seconds) -> Checkpoint | None:
    """How the engine stands; ``None`` at a moment that cannot be written so: then try again later.

    That is while a job moves, has borrowed what cannot move, has given its place away, is being put back,
    or is in the hands of an outside scheduler, while a promise is overdue, an implementation suspended or a
    queue with FIFOs paused, and where the cluster has an end.
    What was predicted is forgotten, and will be predicted anew.
    O(jobs that have not ended).
    """
    outside = engine.handed_over or engine.occupancy.uncounted or engine.horizon.end != inf
    if (
        engine.moving
        or engine.staying
        or engine.ending
        or engine.preempted
        or outside
        or engine.suspensions.active
    ):
        return None
    if engine.suspensions.paused and engine.device_queues:
        return None
    if any(promise.start < now for promise in engine.promises.held.values()):
        return None
    engine.predictions.forget_all()
    engine.suspensions.forget_counts()
    engine.recent.forget_past()
    jobs: list[Event] = []
    for job in _by_place(engine):
        record, running = engine.records[job.id], engine.running.get(job.id)
        attempts = record.attempts - (running is not None)
        failures = record.failures + sum(
            span.state in (State.FAILED, State.NODE_FAIL) for span in record.earlier
        )
        whole, held = engine.suspensions.narrowed.get(job.id, job), engine.held.get(job.id, "")
        jobs.append(
            Submitted(with_avoids(whole, 0), "" if held.startswith(PAUSED) else held, attempts, failures)
        )
        if running is None or engine.looks_back:
            engine.limit(job)  # a replay needs it: have the answer written down
    jobs += [
        KeptOff(job.id, avoids)
        for job in _by_place(engine)
        if (avoids := avoids_of(engine.records[job.id].job))
    ]
    jobs += [_as_it_runs(placed) for placed in engine.running.values()]
    drained = engine.occupancy.drained
    nodes: list[Event] = [
        NodeLost(n) if n in engine.lost else NodeDrained(n) for n in sorted({*engine.lost, *drained})
    ]
    if engine.suspensions.paused:
        nodes.append(Paused(tuple(sorted(engine.suspensions.paused))))
    if engine.reservations:
        nodes.append(Reserved(engine.reservations))
    if engine.view.plan is not None:
        nodes.append(Planned(engine.view.plan))
    if engine.looks_back:
        nodes.append(Recalled(tuple(engine.recent.ran), tuple(engine.recent.came)))
    decisions: list[Decision] = [
        Enqueue(job.id, implementation.name, unit)
        for unit, fifo in engine.device_queues.items()
        for job, implementation in fifo
    ]
    decisions += engine.intended.values()
    for promise in engine.promises.held.values():
        decisions.append(
            Reserve(promise.job.id, promise.implementation.name, promise.allocation, promise.start)
        )
        engine.bound(promise.job, promise.implementation, promise.allocation.request)
    return Checkpoint(jobs, nodes, decisions)


def _as_it_runs(placed: Placed) -> Adopted:
    name, start = placed.implementation.name, placed.start_time
    limit = placed.bound - start
    return Adopted(placed.job.id, name, placed.allocation, start, placed.attempt, placed.predicted, limit)


def _by_place(engine: Engine) -> list[Job]:
    """Jobs that have not ended, in the order of their submission."""
    alive = [record.job for record in engine.records.values() if record.end is None]
    return sorted(alive, key=engine.queue.keep_place)
