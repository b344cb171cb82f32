"""Jobs that have ended, as columns: objects are kept of what waits and runs, not of what is over."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.interfaces import RuntimeModel
from dovetail.model import (
    CPU,
    EMPTY,
    Cluster,
    Implementation,
    Job,
    JobId,
    Record,
    Request,
    Seconds,
    State,
    Workload,
)
from dovetail.model.masks import runs_of_many
from dovetail.model.tables import JobTable, RecordTable
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.request import SimulationOptions

MASKS = 1 << 18
"""Bytes of sets of nodes that are kept until their runs are found, together."""
COMPLETED = State.COMPLETED  # an enum's members are looked up slowly


class TimesByPlace:
    """A `Truth` of a table's jobs: the text of an id is not looked up among a million."""

    def __init__(self, jobs: JobTable) -> None:
        self._seconds = array("d", bytes(8 * _count_places(jobs)))
        np.asarray(self._seconds)[jobs.place] = jobs.seconds

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """The job's true time, by its place in the file. O(1)."""
        return self._seconds[job.index]


class EndedColumns:
    """What became of the jobs of a table, of which each ran once, on whole like nodes, to its end.

    Columns have an entry for each place in the file. A record that holds more than they do is not taken.
    """

    def __init__(self, jobs: JobTable, cluster: Cluster) -> None:
        self._jobs = jobs
        self._cluster = cluster
        places = _count_places(jobs)
        self._start = array("d", bytes(8 * places))
        self._end = array("d", bytes(8 * places))
        self._promised = array("d", [np.nan]) * places
        self._killed = bytearray(places)
        self._first = np.zeros(places, np.int64)
        self._runs = np.zeros(places, np.int64)
        self._low = array("i")
        self._high = array("i")
        self._places: list[int] = []
        self._masks: list[int] = []
        """What the jobs at these places held, as long as its runs are not found."""
        self._most = 1 + 8 * MASKS // len(cluster)

    @staticmethod
    def of(
        workload: Workload, cluster: Cluster, runtimes: RuntimeModel, options: SimulationOptions
    ) -> EndedColumns | None:
        """The columns, empty, where what a simulation keeps of its jobs fits into them. O(forms).

        That is a table of jobs that request whole nodes, all of one class, whose times are perfectly known.
        """
        table = workload.table
        perfect = type(runtimes) is PerfectModel and runtimes.truth is workload.truth
        if table is None or not len(table) or not perfect or options.keep_considered:
            return None
        whole = FreeCapacity(Layout(cluster))
        requests = [choices[0].request for _, choices in table.forms]
        kinds = {choices[0].implementation.kind for _, choices in table.forms}
        like = kinds == {CPU} and len(cluster.device_classes(CPU)) == 1 and not cluster.gone
        if not like or not all(whole.takes_whole_nodes(request) for request in requests):
            return None
        return EndedColumns(table, cluster)

    def take(self, record: Record) -> bool:
        """Keep what became of a job that has ended; ``False`` if that is more than the columns hold."""
        allocation = record.allocation
        assert record.start is not None
        assert record.end is not None
        if (
            allocation is None
            or len(parts := allocation.parts) != 1
            or (allocation.cores, allocation.donors) != (EMPTY, ())
            or (record.attempts, record.since, record.migrations) != (1, None, 0)
            or (record.detail, record.wait_reason) != ("", "")
        ):
            return False
        place = record.job.index
        self._start[place], self._end[place] = record.start, record.end
        if record.promised is not None:
            self._promised[place] = record.promised
        if record.state is not COMPLETED:
            self._killed[place] = 1
        self._places.append(place)
        self._masks.append(parts[0].nodes)
        if len(self._masks) == self._most:
            self._find_runs()
        return True

    def _find_runs(self) -> None:
        """Keep what jobs held as runs of nodes. O(bytes of the masks)."""
        low, high, count = runs_of_many(self._masks, len(self._cluster))
        self._first[self._places] = len(self._low) + np.cumsum(count) - count
        self._runs[self._places] = count
        self._low.frombytes(low.astype(np.int32).tobytes())
        self._high.frombytes(high.astype(np.int32).tobytes())
        self._places.clear()
        self._masks.clear()

    def records(self, kept: Mapping[JobId, Record]) -> Sequence[Record]:
        """All records in file order; ``kept`` are those that were not taken. O(jobs)."""
        self._find_runs()
        jobs = self._jobs
        taken = RecordTable(
            jobs,
            np.argsort(jobs.place, kind="stable"),
            jobs.seconds,
            np.asarray(self._start)[jobs.place],
            np.asarray(self._end)[jobs.place],
            np.asarray(self._promised)[jobs.place],
            np.frombuffer(self._killed, np.bool_)[jobs.place],
            self._first[jobs.place],
            self._runs[jobs.place],
            np.asarray(self._low),
            np.asarray(self._high),
            self._cluster.groups[0].node.cpus,
            self._cluster.device_classes(CPU)[0],
        )
        return [kept.get(record.job.id, record) for record in taken] if kept else taken


def _count_places(jobs: JobTable) -> int:
    """How many places in the file they are spread over."""
    return int(jobs.place.max(initial=-1)) + 1
