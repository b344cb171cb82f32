"""The schedule as it was: the starts of a log as a result beside simulated ones.

Nothing is decided here and nothing is checked. A log may hold more than the machine has, where the machine
was another one or jobs shared nodes; the result gives by how much. Most logs give the number of nodes of a
job, not which: jobs are laid out on the lowest free ones, and on taken ones where none are left. A service's
record names them, and the result has every job where it was.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush

from dovetail.driver.prepare import prepare_workload
from dovetail.engine.capacity.cores import CoreBook
from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.errors import InputError
from dovetail.model import (
    Allocation,
    Cluster,
    Implementation,
    Job,
    Note,
    Record,
    Result,
    Seconds,
    State,
    Workload,
)
from dovetail.records import dataclass
from dovetail.simulation.request import best_times
from dovetail.spec.values import RECORDED


def replay_log(workload: Workload, cluster: Cluster) -> Result:
    """The result that the log itself holds. O(jobs log jobs).

    Jobs without a start in it are pending. Raises `InputError` where it has none at all.
    """
    ready = prepare_workload(workload, cluster, need_truth=True)
    starts = ready.recorded
    jobs = sorted(ready.jobs, key=lambda job: job.index)
    known = [job for job in jobs if job.id in starts]
    if jobs and not known:
        raise InputError(
            "has no start of any job, expected a log with starts (SWF field 3, AAIC, sacct)",
            where=workload.name,
        )
    ledger = _Ledger(ready, cluster)
    for job in sorted(known, key=lambda job: (starts[job.id], job.index)):
        ledger.start(job, starts[job.id])
    ledger.end_jobs_until(float("inf"))
    unknown = "its start is not recorded"
    records = [ledger.records.get(job.id) or Record(job, wait_reason=unknown) for job in jobs]
    return Result(
        policy=RECORDED,
        workload=workload.name,
        cluster=cluster,
        knowledge=RECORDED,
        records=records,
        rejected=ready.rejected,
        skipped=ready.skipped,
        best=best_times(ready),
        notes=ledger.notes(len(jobs) - len(known)),
    )


@dataclass(slots=True)
class _Excess:
    """By how much a resource is held beyond what there is, and for how long."""

    capacity: int
    held: float = 0.0
    seconds: Seconds = 0.0
    most: float = 0.0


class _Ledger:
    """Jobs start in order of time; those that have ended before give back what they held."""

    def __init__(self, workload: Workload, cluster: Cluster) -> None:
        layout = Layout(cluster)
        self.records: dict[str, Record] = {}
        self._truth = workload.truth
        self._placed = workload.placed if workload.machine == cluster else {}
        self._free, self._whole = FreeCapacity(layout), FreeCapacity(layout)
        self._cores = CoreBook(cluster)
        self._running: list[tuple[Seconds, int, Allocation, bool, tuple[float, float]]] = []
        self._cpus, self._devices = _Excess(cluster.total_cpus), _Excess(cluster.total_devices)
        self._now: Seconds = 0.0
        self._over = 0.0

    def start(self, job: Job, at: Seconds) -> None:
        """The job starts, on what is free, else on what is not."""
        self.end_jobs_until(at)
        there = self._placed.get(job.id)
        if there is not None:  # the log has the implementation and the place
            self._begin_job(job, at, job.app.implementation(there[0]), there[1], taken=False)
            return
        choice = job.choices[0]
        found = self._free.fit(choice.request)
        taken = found is not None
        if found is None:
            found = self._whole.fit(choice.request)
            assert found is not None, "jobs larger than the machine were rejected"
        else:
            self._free.take(found)
            found = replace(found, cores=self._cores.assign_cores(found))
        self._begin_job(job, at, choice.implementation, found, taken=taken)

    def _begin_job(
        self, job: Job, at: Seconds, implementation: Implementation, place: Allocation, *, taken: bool
    ) -> None:
        """The job runs on this place, which is ``taken`` from what was free."""
        seconds = self._truth.seconds(job, implementation, place.request)
        assert seconds is not None, "jobs without a true time were rejected"
        cpus = sum(part.nodes.bit_count() * part.cpus for part in place.parts)
        amounts = (float(cpus), place.request.nodes * place.request.gpus)
        self._hold_amounts(amounts, 1)
        heappush(self._running, (at + seconds, job.index, place, taken, amounts))
        self.records[job.id] = Record(
            job, State.COMPLETED, implementation, place, at, at + seconds, exit_code=0
        )

    def end_jobs_until(self, moment: Seconds) -> None:
        """Let end what ends by then."""
        while self._running and self._running[0][0] <= moment:
            end, _, allocation, taken, amounts = heappop(self._running)
            self._pass_time(end)
            self._hold_amounts(amounts, -1)
            if taken:
                self._cores.release(allocation)
                self._free.give(allocation)
        if self._running:
            self._pass_time(moment)
        self._now = moment

    def _pass_time(self, moment: Seconds) -> None:
        for what in (self._cpus, self._devices):
            if moment > self._now and what.held > what.capacity + 1e-9:
                what.seconds += moment - self._now
                what.most = max(what.most, what.held - what.capacity)
        self._now = moment

    def _hold_amounts(self, amounts: tuple[float, float], sign: int) -> None:
        for what, amount in zip((self._cpus, self._devices), amounts, strict=True):
            what.held += sign * amount

    def notes(self, unknown: int) -> list[Note]:
        """What a reader should know of the log."""
        found = []
        if unknown:
            who = "1 job started: it is" if unknown == 1 else f"{unknown:,} jobs started: they are"
            found.append(f"The log does not give the time at which {who} left out.")
        for what, name in ((self._cpus, "CPUs"), (self._devices, "devices")):
            if what.seconds > 0:
                found.append(
                    f"The log holds more {name} than the {what.capacity:,} of the machine, for "
                    f"{_format_duration(what.seconds)} in all, by up to {what.most:,.6g}."
                )
        return [Note(text, "recorded") for text in found]


def _format_duration(seconds: Seconds) -> str:
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:,.4g} s"
