"""What the jobs of a run reserved, used and wasted of memory, and what they would have under ``auto``.

A try wastes (reserved - peak) x its time if it completes, reserved x its time if it was killed for memory.
Its peak counts for the whole of its time. Tries without a measured peak, or that reserved nothing, are
counted apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from dovetail.engine.journal.journal import Journal
from dovetail.history.base import canonical_inputs
from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    Adopted,
    DeviceClass,
    Ended,
    Job,
    JobId,
    Request,
    Run,
    Seconds,
    Start,
    State,
    Submitted,
    Usage,
)
from dovetail.records import dataclass
from dovetail.runtimes.base import Query
from dovetail.runtimes.memory import MemoryModel, second_try

GB_HOUR = 1e9 * 3600.0
BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class MemoryAttempt:
    """One try of a job that has ended: bytes reserved and held at most, on all of its nodes together."""

    job: Job
    implementation: str
    device: DeviceClass
    request: Request
    start: Seconds
    end: Seconds
    reserved: int
    peak: int | None
    state: State

    @property
    def seconds(self) -> Seconds:
        """How long it ran."""
        return self.end - self.start

    @property
    def was_killed(self) -> bool:
        """Whether it was killed for memory."""
        return self.state is State.OUT_OF_MEMORY


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Totals in GB x hours; ``auto`` are those of ``--mem auto``, from an empty history on.

    ``series`` is (seconds, bytes reserved, bytes used) from each moment on at which one of them changed.
    """

    tries: int
    unmeasured: int
    reserved: float
    used: float
    wasted: float
    kills: int
    auto_wasted: float
    auto_kills: int
    series: Sequence[tuple[Seconds, int, int]]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "tries": self.tries,
            "unmeasured": self.unmeasured,
            "reserved_gb_hours": self.reserved,
            "used_gb_hours": self.used,
            "wasted_gb_hours": self.wasted,
            "kills": self.kills,
            "auto": {"wasted_gb_hours": self.auto_wasted, "kills": self.auto_kills},
            "series": [list(point) for point in self.series],
        }


def tries_of(journal: Journal) -> list[MemoryAttempt]:
    """The tries of a journal that have ended, in the order of their ends. Linear."""
    jobs: dict[JobId, Job] = {}
    begun: dict[JobId, tuple[Seconds, str, Request]] = {}
    found: list[MemoryAttempt] = []
    for batch in journal.batches:
        for event in batch.events:
            if isinstance(event, Submitted):
                jobs[event.job.id] = event.job
            elif isinstance(event, Adopted) and not jobs[event.job].foreign:
                begun[event.job] = event.start_time, event.implementation, event.allocation.request
            elif isinstance(event, Ended) and event.job in begun:
                start, name, request = begun.pop(event.job)
                job, peak = jobs[event.job], None if event.usage is None else event.usage.peak_memory
                kind = job.app.implementation(name).kind
                device = next(iter(journal.cluster.device_classes(kind)), DeviceClass(kind))
                reserved = request.memory * request.nodes
                held = None if peak is None else peak * request.nodes
                found.append(
                    MemoryAttempt(job, name, device, request, start, batch.now, reserved, held, event.state)
                )
        for decision in batch.decisions:
            if isinstance(decision, Start):
                begun[decision.job] = batch.now, decision.implementation, decision.allocation.request
    return found


def memory_use(tries: Sequence[MemoryAttempt], machine: int) -> MemoryUse:
    """Totals and series; ``machine`` is the memory of the largest node in bytes. O(n log n)."""
    counted = [one for one in tries if one.peak and one.reserved]
    wasted = sum(
        (one.reserved - (0 if one.was_killed else min(one.peak or 0, one.reserved))) * one.seconds
        for one in counted
    )
    auto_wasted, auto_kills = _under_auto([one for one in counted if not one.was_killed], machine)
    return MemoryUse(
        len(tries),
        len(tries) - len(counted),
        sum(one.reserved * one.seconds for one in counted) / GB_HOUR,
        sum((one.peak or 0) * one.seconds for one in counted if not one.was_killed) / GB_HOUR,
        wasted / GB_HOUR,
        sum(one.was_killed for one in tries),
        auto_wasted / GB_HOUR,
        auto_kills,
        _memory_series(counted),
    )


def _memory_series(tries: Sequence[MemoryAttempt]) -> list[tuple[Seconds, int, int]]:
    changes: dict[Seconds, list[int]] = {}
    for one in tries:
        for moment, sign in ((one.start, 1), (one.end, -1)):
            change = changes.setdefault(moment, [0, 0])
            change[0] += sign * one.reserved
            change[1] += sign * (one.peak or 0)
    series, reserved, used = [], 0, 0
    for moment in sorted(changes):
        reserved, used = reserved + changes[moment][0], used + changes[moment][1]
        series.append((moment, reserved, used))
    return series


def _under_auto(tries: Sequence[MemoryAttempt], machine: int) -> tuple[float, int]:
    """Bytes x seconds wasted, and kills, had each try reserved what ``auto`` gives by those before."""
    history = MemoryHistory()
    model = MemoryModel(history)
    ended: list[tuple[Seconds, int]] = []
    ordered = sorted(tries, key=lambda one: one.start)
    wasted, kills = 0.0, 0
    for place, one in enumerate(ordered):
        while ended and ended[0][0] <= one.start:
            history.record(_run_of_attempt(ordered[heapq.heappop(ended)[1]]))
        run, nodes = _run_of_attempt(one), one.request.nodes
        request = (run.nodes, run.cpus, run.gpus)
        query = Query(run.app, one.implementation, one.device, request, canonical_inputs(run.inputs))
        share = float(one.reserved) / nodes
        held = float(
            model.choose_reservation(query, request=share, machine=machine, most=max(machine, share)).amount
        )
        peak = (one.peak or 0) / nodes
        if peak > held:
            kills += 1
            wasted += held * nodes * one.seconds
            held = max(second_try(held, 0.0, machine), peak)
        wasted += (held - peak) * nodes * one.seconds
        heapq.heappush(ended, (one.end, place))
    return wasted, kills


def _run_of_attempt(one: MemoryAttempt) -> Run:
    nodes, cpus, gpus = Run.resolved_request(one.request)
    usage = Usage(peak_memory=(one.peak or 0) // nodes)
    name, inputs = one.job.app.name, one.job.inputs
    return Run(name, one.implementation, one.device, nodes, cpus, gpus, inputs, one.seconds, usage=usage)


def text_chart(use: MemoryUse, width: int) -> str:
    """Two lines, what was reserved and what was used over time, as high as the most that was reserved."""
    if len(use.series) < 2:
        return ""
    begin, finish = use.series[0][0], use.series[-1][0]
    columns = max(10, width - 12)
    top = max(reserved for _, reserved, _ in use.series) or 1
    rows: list[list[float]] = [[0.0] * columns, [0.0] * columns]
    at = 0
    for column in range(columns):
        moment = begin + (finish - begin) * (column + 0.5) / columns
        while at + 1 < len(use.series) and use.series[at + 1][0] <= moment:
            at += 1
        rows[0][column], rows[1][column] = use.series[at][1] / top, use.series[at][2] / top
    lines = ("".join(BLOCKS[min(8, round(8 * share))] for share in row) for row in rows)
    return "\n".join(f"{name:<10}{line}" for name, line in zip(("reserved", "used"), lines, strict=True))
