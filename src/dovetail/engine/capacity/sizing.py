"""The memory of jobs whose request leaves it open: learned before a try, more after a kill.

A job that requests ``auto`` is sized when it comes in and, while it waits, whenever runs of its app have
ended; nothing that was tried is ever lessened. A job that was killed for memory waits again with more, at
most `MOST_KILLS` times, apart from its retries.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from dovetail.engine.capacity.device_sizing import DeviceSizes, sizes_of, with_sizes
from dovetail.history.base import canonical_inputs
from dovetail.interfaces import History
from dovetail.model import Choice, Cluster, Job, JobId, Node, Record, Request, Run, Sized
from dovetail.model.fitting import cpus_on, fits_node
from dovetail.runtimes.base import Query
from dovetail.runtimes.memory import MemoryModel, Reservation, second_try
from dovetail.runtimes.peaks import KILL_RISK

MOST_KILLS = 5
"""A job is tried again so many times after kills for memory."""
MEBIBYTE = 2**20
STEADY = 0.02
"""A waiting job keeps its size while a better one is within this share of it: its promise stands."""


def resize_memory(job: Job, memory: Sequence[int], kills: int) -> Job:
    """The job with so many bytes a node in each of its choices."""
    choices = tuple(
        Choice(choice.implementation, replace(choice.request, memory=size))
        for choice, size in zip(job.choices, memory, strict=True)
    )
    return replace(job, choices=choices, sizing=replace(job.sizing, kills=kills))


def apply_sizes(job: Job, event: Sized) -> Job:
    """The job with its requests from now on."""
    job = resize_memory(job, event.memory, event.kills)
    if not event.gpu:
        return job
    sizing = replace(job.sizing, gpu_kills=event.gpu_kills)
    return replace(job, choices=with_sizes(job.choices, event.gpu), sizing=sizing)


def with_device_sizes_of(job: Job, held: Request) -> Job:
    """The job as it was when it started with what it holds: as large on its devices."""
    sizes = [sizes_of(held if c.request.devices and held.devices else c.request) for c in job.choices]
    if all(size == sizes_of(c.request) for size, c in zip(sizes, job.choices, strict=True)):
        return job
    return replace(job, choices=with_sizes(job.choices, sizes))


def as_it_started(job: Job, held: Request) -> Job:
    """A job that runs, as large as it was when it started with what it holds."""
    if job.sizing.auto and not job.sizing.kills:
        job = resize_memory(job, [held.memory] * len(job.choices), 0)
    return job if job.sizing.gpu_kills else with_device_sizes_of(job, held)


def sized_whole(whole: Job, before: Job, event: Sized) -> Job:
    """The same of a job that has choices set aside: these request no less than the others."""
    most = max(event.memory)
    # At least what the tried choice needed: an app that outgrew one size outgrows it everywhere.
    whole = resize_memory(whole, [max(choice.request.memory, most) for choice in whole.choices], event.kills)
    if not event.gpu:
        return whole
    known = {
        (choice.implementation.name, choice.request.nodes): size
        for choice, size in zip(before.choices, event.gpu, strict=True)
    }
    sizes = [
        known.get((choice.implementation.name, choice.request.nodes), sizes_of(choice.request))
        for choice in whole.choices
    ]
    sizing = replace(whole.sizing, gpu_kills=event.gpu_kills)
    return replace(whole, choices=with_sizes(whole.choices, sizes), sizing=sizing)


class Sizes:
    """Finds the jobs whose amount of memory changes; with ``history`` ``None`` it learns nothing."""

    def __init__(self, history: History | None) -> None:
        self._model = None if history is None else MemoryModel(history)
        self.devices = DeviceSizes(history)
        self.waiting: dict[JobId, None] = {}  # jobs that request auto and have not begun
        self._seen: dict[str, Hashable] = {}  # stamps of apps by which the jobs that wait were sized
        self._known: dict[tuple[object, ...], tuple[object, tuple[int, ...]]] = {}
        self._known_devices: dict[tuple[object, ...], tuple[object, tuple[tuple[int, int], ...]]] = {}

    def of_new(self, job: Job, cluster: Cluster) -> Job:
        """The job as it is to come in: one that requests ``auto`` has a size from the beginning."""
        learns = self.devices.learns_sizes(job, cluster)
        # A kill has set the sizes already: learned ones would be smaller.
        if learns and not job.sizing.gpu_kills:
            self.waiting[job.id] = None
            job = replace(job, choices=with_sizes(job.choices, self._device_sizes(job, cluster)))
        if not job.sizing.auto or job.sizing.kills:
            return job
        self.waiting[job.id] = None
        return resize_memory(job, self._choice_sizes(job, cluster), 0)

    def waits(self, job: Job, cluster: Cluster) -> None:
        """A job that has been tried waits again."""
        sizing = job.sizing
        if (sizing.auto and not sizing.kills) or (
            not sizing.gpu_kills and self.devices.learns_sizes(job, cluster)
        ):
            self.waiting[job.id] = None

    def begun(self, job: JobId) -> None:
        """It waits no longer."""
        self.waiting.pop(job, None)

    def due(
        self,
        records: Mapping[JobId, Record],
        waits: Callable[[JobId], bool],
        bound: Callable[[JobId], bool],
        cluster: Cluster,
    ) -> list[Sized]:
        """What waiting jobs are to request now. O(such jobs).

        ``waits`` picks those that still wait, ``bound`` those that do so for one device: these get a new
        request only where that device may have too little memory.
        """
        found: list[Sized] = []
        # A job may come in and be cancelled, or forgotten, before this is called.
        apps = {records[id].job.app.name for id in self.waiting if id in records}
        # By stamps of the history: only apps with new runs are looked at again.
        changed = {name for name in apps if self._seen.get(name) != self._history_stamp(name)}
        for id in list(self.waiting) if changed else ():
            if id not in records or not (waits(id) or bound(id)):
                continue
            job = records[id].job
            if job.app.name in changed:
                # A job in a device's FIFO keeps its memory size: the device was chosen for it.
                found += [one for one in self._find_due_resize(job, cluster) if one.gpu or not bound(id)]
        for name in changed:
            self._seen[name] = self._history_stamp(name)
        return found

    def _find_due_resize(self, job: Job, cluster: Cluster) -> list[Sized]:
        """What one of them is to request now, if that differs by much."""
        memory = now = tuple(choice.request.memory for choice in job.choices)
        gpu = before = tuple(sizes_of(choice.request) for choice in job.choices)
        if job.sizing.auto and not job.sizing.kills:
            memory = self._choice_sizes(job, cluster)
        if not job.sizing.gpu_kills and self.devices.learns_sizes(job, cluster):
            gpu = self._device_sizes(job, cluster)
        # A small difference is not worth an event, a new place in every order and a new prediction.
        if not _differ_enough(memory, now) and not any(map(_differ_enough, gpu, before)):
            return []
        sizing = job.sizing
        return [Sized(job.id, memory, sizing.kills, () if gpu == before else gpu, sizing.gpu_kills)]

    def _device_sizes(self, job: Job, cluster: Cluster) -> tuple[tuple[int, int], ...]:
        """Sizes of each choice on its devices; jobs that are alike share them until the history changes."""
        stamp = self._history_stamp(job.app.name)
        key = ("devices", job.app.name, canonical_inputs(job.inputs), job.choices, job.sizing, len(cluster))
        known = self._known_devices.get(key)
        if known is None or known[0] != stamp:
            # Bounded: inputs may all differ in a stream of millions of jobs.
            if len(self._known_devices) > 4096:
                self._known_devices.clear()
            known = self._known_devices[key] = stamp, self.devices.of(job, cluster)
        return known[1]

    def _history_stamp(self, app: str) -> Hashable:
        return 0 if self._model is None else self._model.history.app_stamp(app)

    def _choice_sizes(self, job: Job, cluster: Cluster) -> tuple[int, ...]:
        """Bytes for each choice; jobs that are alike share them until the history changes."""
        stamp, auto = self._history_stamp(job.app.name), job.sizing.auto
        shapes = tuple(
            (name, replace(choice.request, memory=0) if name in auto else choice.request)
            for choice in job.choices
            for name in [choice.implementation.name]
        )
        key = (job.app.name, canonical_inputs(job.inputs), shapes, job.sizing, len(cluster))
        known = self._known.get(key)
        if known is None or known[0] != stamp:
            if len(self._known) > 4096:
                self._known.clear()
            sizes = tuple(self._choice_size(job, choice, cluster) for choice in job.choices)
            known = self._known[key] = stamp, sizes
        return known[1]

    def _choice_size(self, job: Job, choice: Choice, cluster: Cluster) -> int:
        if choice.implementation.name not in job.sizing.auto:
            return choice.request.memory
        found = self.predict_reservation(job, choice, cluster)
        return 0 if found is None else found.amount

    def predict_reservation(self, job: Job, choice: Choice, cluster: Cluster) -> Reservation | None:
        """What a first try is to hold of a node; ``None`` where nodes do not give their memory.

        Where nothing is known that is the job's share of the largest node by its CPUs or devices.
        """
        node = _largest_fitting_node(choice, cluster)
        if node is None or not node.memory:
            return None
        share = _node_fraction(choice, node) * node.memory
        # Rounded down: as many jobs as have CPUs are to have room.
        fair = max(int(share) // MEBIBYTE, 1) * MEBIBYTE
        best = Reservation(fair, None, None, "no run yet: its share of a node")
        if self._model is None:
            return best
        model, request = self._model, choice.request
        known = False
        for device in cluster.device_classes(choice.implementation.kind):
            query = Query(
                job.app.name,
                choice.implementation.name,
                device,
                Run.resolved_request(request),
                canonical_inputs(job.inputs),
            )
            # The job's own risk, if it names one, wins over the default.
            risk = KILL_RISK if job.sizing.risk is None else job.sizing.risk
            found = model.choose_reservation(
                query, request=share, machine=node.memory, risk=risk, most=node.memory
            )
            # The largest need over the classes that it may run on: the choice is not bound to one.
            if found.peak is not None and (not known or found.amount > best.amount):
                best = replace(found, amount=_round_to_mebibytes(found.amount, node.memory))
                known = True
        return best

    def after_device_kill(
        self, record: Record, cluster: Cluster, available: int | None = None
    ) -> Sized | str:
        """What a job requests whose device had too little memory; or why it is not tried again.

        ``available`` is what processes that are not ours left of the device, if there were any.
        """
        job, kills = record.job, record.job.sizing.gpu_kills + 1
        if kills > MOST_KILLS:
            return f"its devices had too little memory {kills} times, and it is not tried again"
        found = self.devices.after_kill(record, cluster, available)
        if isinstance(found, str):
            return found
        memory = tuple(choice.request.memory for choice in job.choices)
        return Sized(job.id, memory, job.sizing.kills, found, kills)

    def after_kill(self, record: Record, peak: float, cluster: Cluster) -> Sized | str:
        """The request after a kill for memory with a peak of so many bytes; or why there is no other try."""
        job = record.job
        retry, kills = job.sizing.retry, job.sizing.kills + 1
        allocation = record.allocation
        if retry == "no" or allocation is None:
            return "retry_memory is no" if retry == "no" else "what it held is not known"
        held = allocation.request.memory
        if kills > MOST_KILLS:
            return f"it was killed {kills} times and is not tried again"
        sizes: list[int] = []
        for choice in job.choices:
            node = _largest_fitting_node(choice, cluster)
            if node is None:
                sizes.append(choice.request.memory)
                continue
            most = node.memory
            if isinstance(retry, str):
                wanted = second_try(held, peak, float(most or 0))
            else:
                wanted = float(held) * retry
            sizes.append(max(choice.request.memory, _round_to_mebibytes(wanted, most)))
        # Where no node has more, another try would end as this one did.
        if max(sizes, default=0) <= held:
            return f"it needs more than {held / 1e6:,.0f} MB on a node, and no node has more for it"
        return Sized(job.id, tuple(sizes), kills)


def _differ_enough(wanted: Sequence[int], now: Sequence[int]) -> bool:
    """Whether a better size is so far from the present one that it is worth a change."""
    return any(abs(a - b) > STEADY * b for a, b in zip(wanted, now, strict=True))


def _largest_fitting_node(choice: Choice, cluster: Cluster) -> Node | None:
    """The node with most memory of those that have the rest of what a choice needs."""
    request = replace(choice.request, memory=0)
    nodes = [group.node for group in cluster.groups if fits_node(request, group.node)]
    if any(node.memory is None for node in nodes):
        return next(node for node in nodes if node.memory is None)
    return max(nodes, key=lambda node: node.memory or 0, default=None)


def _node_fraction(choice: Choice, node: Node) -> float:
    """Which part of the node's CPUs or devices, whichever is more, a choice takes."""
    request = choice.request
    shares = [cpus_on(request, node.cpus, node.host_cpus) / node.cpus] if node.cpus else []
    for kind, count in request.devices:
        shares.append(count / max(1, sum(device.kind == kind for device in node.devices)))
    return min(max(shares, default=1.0), 1.0)


def _round_to_mebibytes(size: float, most: int | None) -> int:
    """In whole MiB, and no more than there is."""
    found = ceil(size / MEBIBYTE) * MEBIBYTE
    return found if most is None else min(found, most)
