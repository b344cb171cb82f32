"""From a finished job to the run that history keeps."""

from __future__ import annotations

from dovetail.model import Record, Run, Seconds, State, Usage

__all__ = ["run_of"]


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
) -> Run:
    """The run of a started job that ends at ``end``; CPUs and devices as it really held them per node.

    ``measured`` is its run time as the backend saw it, which wins over what the engine saw;
    ``first_on_device`` says that it may have paid for a cold start.
    """
    assert record.start is not None
    assert record.implementation is not None
    assert record.allocation is not None
    assert record.device_class is not None
    parts, request = record.allocation.parts, record.allocation.request
    seconds = end - record.start if measured is None else measured
    return Run(
        app=record.job.app.name,
        implementation=record.implementation.name,
        device_class=record.device_class,
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
    )
