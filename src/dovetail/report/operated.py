"""What failures, windows and preemption cost: metrics of a result whose machine had conditions."""

from __future__ import annotations

from math import floor, isnan

from dovetail.model import Checkpoints, Record, Result, Seconds, Span, State
from dovetail.records import dataclass

PREEMPTED, SUSPENDED = "preempted", "suspended"
"""How the detail of a stint begins that ended so."""
TOLERANCE = 1e-9
NO_CHECKPOINTS = Checkpoints(float("inf"))


@dataclass(frozen=True, slots=True)
class JobCosts:
    """What a job held its place for, in seconds: all its stints, its work, checkpoints; what was in vain."""

    held: Seconds
    useful: Seconds
    overhead: Seconds

    @property
    def lost(self) -> Seconds:
        """Neither work that came to something nor checkpoints."""
        return max(0.0, self.held - self.useful - self.overhead)


def stints_of(record: Record) -> list[Span]:
    """What a job held from when to when: the stints before the last one, and that."""
    last: list[Span] = []
    if record.start is not None and record.end is not None:
        start = record.start if record.since is None else record.since
        if record.allocation is not None and record.implementation is not None:
            last = [
                Span(start, record.end, record.allocation, record.implementation, record.state, record.detail)
            ]
    return [*record.earlier, *last]


def costs_of(record: Record, checkpoints: Checkpoints) -> JobCosts:
    """What a job's stints were good for. Work counts where the job completed. O(stints)."""
    held = overhead = done = safe = 0.0
    resumes = False
    for stint in stints_of(record):
        ran = stint.end - stint.start
        first = min(ran, checkpoints.restart) if resumes else 0.0
        written = _seconds_writing(ran - first, checkpoints)
        worked = ran - first - written
        held, overhead = held + ran, overhead + first + written
        kept = checkpoints.progress(ran - first)[1]
        safe = done + kept if kept > 0 else safe
        if stint.state is State.COMPLETED or stint.detail.startswith(SUSPENDED):
            done, resumes = done + worked, resumes and ran < checkpoints.restart
        else:
            done, resumes = safe, safe > 0
    return JobCosts(held, done if record.state is State.COMPLETED else 0.0, overhead)


def _seconds_writing(ran: Seconds, checkpoints: Checkpoints) -> Seconds:
    """How much of a run went into checkpoints, the one that was being written at its end in part."""
    if not checkpoints.cost or ran <= 0:
        return 0.0
    cycle = checkpoints.every + checkpoints.cost
    whole = floor(ran / cycle + TOLERANCE)
    return whole * checkpoints.cost + max(0.0, ran - whole * cycle - checkpoints.every)


def operated_metrics(result: Result) -> dict[str, float | None]:
    """Metrics by name; empty where the machine had no conditions. O(stints + outages)."""
    operated = result.operated
    if operated is None:
        return {}
    checkpoints = operated.conditions.checkpoints or NO_CHECKPOINTS
    restarts = preemptions = suspensions = 0
    held = useful = overhead = lost = 0.0
    for record in result.records:
        for span in record.earlier:
            restarts += span.state is State.NODE_FAIL
            preemptions += span.detail.startswith(PREEMPTED)
            suspensions += span.detail.startswith(SUSPENDED)
        costs, cpus = costs_of(record, checkpoints), _cpus_of(record)
        held += cpus * costs.held
        useful += cpus * costs.useful
        overhead += cpus * costs.overhead
        lost += cpus * costs.lost
    first = min((record.job.submit_time for record in result.records), default=0.0)
    last = first + (0.0 if isnan(result.makespan) else result.makespan)
    down = sum(max(0.0, min(one.end, last) - max(one.start, first)) for one in operated.outages)
    offered = (last - first) * len(result.cluster)
    return {
        "node_failures": sum(first <= one.start < last for one in operated.outages),
        "availability": 1.0 - down / offered if offered > 0 and operated.conditions.failures else None,
        "restarts": restarts,
        "preemptions": preemptions,
        "suspensions": suspensions,
        "lost_cpu_seconds": lost,
        "overhead_cpu_seconds": overhead,
        "goodput": useful / held if held > 0 else None,
    }


def _cpus_of(record: Record) -> int:
    allocation = record.allocation
    if allocation is None:
        allocation = record.earlier[-1].allocation if record.earlier else None
    return 0 if allocation is None else sum(p.nodes.bit_count() * p.cpus for p in allocation.parts)
