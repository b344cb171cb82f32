"""How much memory of their devices jobs need: learned before a try, more after a device had too little.

What was measured of runs that completed gives the peak to expect, what a device had too little of is a bound
below it. A job with ``auto`` gets what is expected; one that has its devices to itself gets a device
that is large enough. Nothing is tried twice alike: after a kill it is more memory, a larger device, or
another kind of device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from dovetail.history.base import canonical_inputs
from dovetail.interfaces import History
from dovetail.model import Choice, Cluster, Device, Job, Record, Request, Run, bit_indices
from dovetail.model.fitting import memory_taken, suits_request, whole_devices
from dovetail.model.job import with_device_sizes, without_sharing
from dovetail.runtimes.base import Query
from dovetail.runtimes.memory import MemoryModel, Reservation, device_peak_of
from dovetail.runtimes.peaks import KILL_RISK

MEBIBYTE = 2**20
NEWEST = 16
"""Newest kills of an app that are looked at."""
DROPPED = (-1, -1)
"""Sizes of a choice that no device here has memory enough for."""

Sizes = tuple[int, int]
"""`Request.gpu_memory` and `Request.gpu_least`."""


def sizes_of(request: Request) -> Sizes:
    """The sizes of a request now."""
    return request.gpu_memory, request.gpu_least


def with_sizes(choices: Sequence[Choice], sizes: Sequence[Sizes]) -> tuple[Choice, ...]:
    """The choices with these sizes, without those that are dropped."""
    return tuple(
        Choice(choice.implementation, with_device_sizes(choice.request, *size))
        for choice, size in zip(choices, sizes, strict=True)
        if size != DROPPED
    )


def with_devices_alone(job: Job) -> Job:
    """A job with ``gpus = "auto"`` as one that has its devices to itself."""
    choices = tuple(Choice(choice.implementation, without_sharing(choice.request)) for choice in job.choices)
    shared = {choice.implementation.name for choice in job.choices if choice.request.sharing}
    auto = tuple(name for name in job.sizing.gpu_auto if name not in shared)
    return replace(job, choices=choices, sizing=replace(job.sizing, gpu_auto=auto))


class DeviceSizes:
    """Knows how much memory of their devices jobs need; without a ``history`` nothing is learned."""

    def __init__(self, history: History | None) -> None:
        self._model = None if history is None else MemoryModel(history, device_peak_of)

    def learns_sizes(self, job: Job, cluster: Cluster) -> bool:
        """Whether what runs show may change the sizes of this job. O(1) mostly."""
        if self._model is None or job.foreign:
            return False
        return bool(job.sizing.gpu_auto) or (
            _are_unlike(cluster) and any(_is_alone(choice.request) for choice in job.choices)
        )

    def of(self, job: Job, cluster: Cluster) -> tuple[Sizes, ...]:
        """The sizes of each choice by what is known now; nothing is lessened after a kill."""
        return tuple(self._of_choice(job, choice, cluster) for choice in job.choices)

    def _of_choice(self, job: Job, choice: Choice, cluster: Cluster) -> Sizes:
        request, auto = choice.request, choice.implementation.name in job.sizing.gpu_auto
        if job.sizing.gpu_kills or not request.devices or not (auto or _is_alone(request)):
            return sizes_of(request)
        largest = largest_for(request, cluster)
        if largest is None:
            return sizes_of(request)
        least = self._least(job, choice, cluster)
        found = self.predict_reservation(job, choice, cluster)
        if found is None or found.peak is None:
            return 0, min(least, largest)
        if auto:
            return min(_round_to_mebibytes(max(found.amount, least)), largest), 0
        return 0, min(max(int(found.peak.expected), least), largest)

    def predict_reservation(self, job: Job, choice: Choice, cluster: Cluster) -> Reservation | None:
        """What runs before make one expect on each device; ``None`` where nothing is known."""
        largest = largest_for(choice.request, cluster)
        if self._model is None or not largest or not choice.request.devices:
            return None
        best: Reservation | None = None
        risk = KILL_RISK if job.sizing.risk is None else job.sizing.risk
        for device in cluster.device_classes(choice.implementation.kind):
            query = Query(
                job.app.name,
                choice.implementation.name,
                device,
                Run.resolved_request(choice.request),
                canonical_inputs(job.inputs),
            )
            found = self._model.choose_reservation(
                query, request=largest, machine=largest, risk=risk, most=largest
            )
            if found.peak is not None and (best is None or found.amount > best.amount):
                best = found
        return best

    def _least(self, job: Job, choice: Choice, cluster: Cluster) -> int:
        """More than what was too little for runs of the app that were no larger; 0 where none was.

        A kill counts no more when a later run that was no smaller has completed with less.
        """
        assert self._model is not None
        history, name = self._model.history, choice.implementation.name
        kills = [
            (run, int(run.usage.gpu_memory or 0))
            for run in history.device_kills(job.app.name, name, NEWEST)
            if run.usage is not None and _is_no_larger(run, job.inputs)
        ]
        if not kills:
            return 0
        classes = cluster.device_classes(choice.implementation.kind)
        later = [
            (run, peak)
            for device in classes
            for run in history.recent(job.app.name, name, device, NEWEST)
            if (peak := device_peak_of(run)) is not None
        ]
        return max(
            (
                size + 1
                for kill, size in kills
                if not any(
                    run.when > kill.when and peak <= size and _is_no_larger(kill, run.inputs)
                    for run, peak in later
                )
            ),
            default=0,
        )

    def after_kill(
        self, record: Record, cluster: Cluster, available: int | None = None
    ) -> tuple[Sizes, ...] | str:
        """The next sizes of a job whose device had too little memory; or why nothing is left to try.

        ``available`` is what processes that are not ours left of the device, if there were any.
        """
        job, allocation = record.job, record.allocation
        retry, kind = job.sizing.retry, record.implementation
        if retry == "no" or allocation is None or kind is None:
            return "retry_memory is no" if retry == "no" else "what it held is not known"
        held = held_of(record, cluster)
        if held is None:
            return "how much memory its device has is not known"
        if available is not None and available < held:
            # It did not have what it was given: without them the same may be enough.
            return tuple(sizes_of(choice.request) for choice in job.choices)
        sizes: list[Sizes] = []
        most = 0
        for choice in job.choices:
            request = choice.request
            largest = largest_for(request, cluster)
            if not request.devices or choice.implementation.kind != kind.kind or largest is None:
                sizes.append(sizes_of(request))
                continue
            most = max(most, largest)
            wanted = largest if isinstance(retry, str) else min(ceil(held * retry), largest)
            if wanted <= held:
                sizes.append(DROPPED)
            elif _is_alone(request):
                sizes.append((0, held + 1))  # any device that is larger
            else:
                sizes.append((max(wanted, request.gpu_memory), 0))
        if all(size == DROPPED for size in sizes):
            return f"it needs more than {held / 1e9:,.1f} GB on a device, and none here has more for it"
        return tuple(sizes)


def held_of(record: Record, cluster: Cluster) -> int | None:
    """Bytes of each device that a job was given: those of the least of them; ``None``: not known."""
    allocation = record.allocation
    if allocation is None:
        return None
    found = [
        memory_taken(size, part.units, part.gpu_memory)
        for part in allocation.parts
        for n in bit_indices(part.nodes)
        for d in part.devices
        if (size := cluster.nodes[n].devices[d].memory) is not None
    ]
    return min(found, default=None)


def largest_for(request: Request, cluster: Cluster) -> int | None:
    """Memory of the largest devices of which a node has as many as the request needs.

    ``None`` where that is not limited, or there is no such node.
    """
    most: int | None = 0
    for group in cluster.groups:
        for kind, count in request.devices:
            sizes = _sizes_on(group.node.devices, kind, request)
            if None in sizes:
                return None
            if len(sizes) >= whole_devices(count):
                enough = sorted((size for size in sizes if size is not None), reverse=True)
                most = max(most or 0, enough[whole_devices(count) - 1])
    return most or None


def _sizes_on(devices: Sequence[Device], kind: str, request: Request) -> list[int | None]:
    any_size = with_device_sizes(request, 0, 0)
    return [device.memory for device in devices if suits_request(device, kind, any_size)]


def _is_alone(request: Request) -> bool:
    """Whether it has whole devices to itself."""
    return (
        bool(request.devices) and not request.gpu_memory and all(count >= 1 for _, count in request.devices)
    )


@lru_cache(maxsize=16)
def _are_unlike(cluster: Cluster) -> bool:
    """Whether there are devices of one kind with more and with less memory."""
    sizes: dict[str, set[int | None]] = {}
    for group in cluster.groups:
        for device in group.node.devices:
            sizes.setdefault(device.kind, set()).add(device.memory)
    return any(len(found) > 1 for found in sizes.values())


def _is_no_larger(run: Run, inputs: Mapping[str, float | str]) -> bool:
    """Whether what a run lacked a job with these inputs lacks too: the same words, and no smaller numbers."""
    for name, value in run.inputs.items():
        mine = inputs.get(name)
        if isinstance(value, str) or isinstance(mine, str) or mine is None:
            if value != mine:
                return False
        elif mine < value:
            return False
    return True


def _round_to_mebibytes(size: float) -> int:
    """In whole MiB."""
    return ceil(size / MEBIBYTE) * MEBIBYTE
