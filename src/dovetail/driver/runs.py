"""From a finished job to the run that history keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

from dovetail.interfaces import History
from dovetail.model import Companions, DeviceClass, Ended, JobId, Record, Run, Seconds, State, Usage

SHARED = 0.05
"""A run that had its device with others for less than this part of its time counts as one alone."""


@runtime_checkable
class _RecordsMany(Protocol):
    """A history that takes several runs at once."""

    def record_many(self, runs: Sequence[Run]) -> int: ...


class RunRecorder:
    """Puts the runs of jobs that end into a history; ``uid`` makes those of this session unique there."""

    def __init__(self, history: History, uid: str) -> None:
        self._history = history
        self._records_many = history.record_many if isinstance(history, _RecordsMany) else None
        self._uid = uid
        self.company: Callable[[JobId], Companions | None] | None = None
        self._warm: set[tuple[str, str, DeviceClass]] = set()

    def record(self, ended: Iterable[tuple[Record, Ended]], now: Seconds, epoch: Seconds) -> None:
        """Record what ends at one instant, together; ``epoch`` is the wall-clock second of time 0."""
        runs = [
            run for record, event in ended if (run := self._run_of(record, event, now, epoch)) is not None
        ]
        if len(runs) > 1 and self._records_many is not None:
            self._records_many(runs)
            return
        for run in runs:
            self._history.record(run)

    def _run_of(self, record: Record, event: Ended, now: Seconds, epoch: Seconds) -> Run | None:
        """What history keeps of an end; ``None`` of a job that never ran."""
        if record.job.foreign or not event.ran:
            return None
        if record.implementation is None or record.device_class is None:
            return None
        began, ended = event.started_at, event.ended_at
        measured = None if began is None or ended is None else ended - began
        place = (record.job.app.name, record.implementation.name, record.device_class)
        # Only what really ran can have paid for a cold start.
        first = measured is not None and place not in self._warm and not self._history.count(*place)
        self._warm.add(place)
        company = None if self.company is None else self.company(event.job)
        attempt = "" if record.attempts == 1 else f".{record.attempts}"
        return run_of(
            record,
            end=now,
            state=event.state,
            uid=f"{self._uid}{attempt}/{event.job}" if self._uid else "",
            when=epoch + now if ended is None else ended,
            usage=event.usage,
            measured=measured,
            first_on_device=first,
            beside=company,
        )


def run_of(
    record: Record,
    *,
    end: Seconds,
    state: State,
    uid: str,
    when: Seconds,
    usage: Usage | None = None,
    measured: Seconds | None = None,
    first_on_device: bool = False,
    beside: Companions | None = None,
) -> Run:
    """The run of a started job that ends at ``end``; CPUs and devices as it really held them per node.

    ``measured`` is its run time as the backend saw it, which wins over what the engine saw;
    ``first_on_device``: it may have paid for a cold start. One that had a device with others for
    long counts among the runs ``beside`` the app that was there longest: it is no measure of one alone.
    """
    assert record.start is not None
    assert record.implementation is not None
    assert record.allocation is not None
    assert record.device_class is not None
    parts, request = record.allocation.parts, record.allocation.request
    seconds = end - record.start if measured is None else measured
    device = record.device_class
    shared = 0.0 if beside is None else sum(span for _, span in beside.device)
    if beside is not None and beside.device and state is State.COMPLETED and shared >= SHARED * seconds:
        device = device.beside(beside.device[0][0])
    return Run(
        app=record.job.app.name,
        implementation=record.implementation.name,
        device_class=device,
        nodes=request.nodes,
        cpus=parts[0].cpus if parts else max(0, request.cpus),
        gpus=request.gpus,
        inputs=record.job.inputs,
        seconds=seconds,
        state=state,
        walltime=record.job.walltime,
        usage=usage,
        when=when,
        uid=uid,
        job=record.job.id,
        user=record.job.user,
        first_on_device=first_on_device,
        beside=beside,
    )
