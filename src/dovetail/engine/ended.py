"""Jobs that have ended, as columns: objects are kept of what waits and runs, not of what is over."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.engine.asked import SimulationOptions
from dovetail.engine.capacity import FreeCapacity, Layout
from dovetail.interfaces import RuntimeModel
from dovetail.model import CPU, EMPTY, Cluster, JobId, Record, State, Workload
from dovetail.model.allocation import NARROW
from dovetail.model.masks import runs
from dovetail.model.tables import JobTable, RecordTable
from dovetail.runtimes.perfect import PerfectModel

__all__ = ["EndedColumns"]

REMEMBERED = 100_000
"""Sets of nodes whose runs are kept for the next job that holds the same."""


class EndedColumns:
    """What became of the jobs of a table, of which each ran once, on whole like nodes, to its end.

    Columns have an entry for each place in the file. A record that tells more than they do is not taken.
    """

    def __init__(self, jobs: JobTable, cluster: Cluster) -> None:
        self._jobs = jobs
        self._cluster = cluster
        places = int(jobs.place.max(initial=-1)) + 1
        self._start = array("d", bytes(8 * places))
        self._end = array("d", bytes(8 * places))
        self._promised = array("d", [np.nan]) * places
        self._killed = bytearray(places)
        self._first = array("q", bytes(8 * places))
        self._runs = array("q", bytes(8 * places))
        self._low = array("i")
        self._high = array("i")
        self._known: dict[int, tuple[int, int]] = {}

    @staticmethod
    def of(
        workload: Workload, cluster: Cluster, runtimes: RuntimeModel, options: SimulationOptions
    ) -> EndedColumns | None:
        """The columns, empty, where what a simulation keeps of its jobs fits into them. O(forms).

        That is a table of jobs that ask for whole nodes, all of one class, whose times are perfectly known.
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
        """Keep what became of a job that has ended; ``False`` if that is more than the columns tell."""
        allocation = record.allocation
        assert record.start is not None
        assert record.end is not None
        if (
            allocation is None
            or len(allocation.parts) != 1
            or allocation.cores is not EMPTY
            or allocation.donors
            or record.attempts != 1
            or record.since is not None
            or record.migrations
            or record.detail
            or record.wait_reason
        ):
            return False
        place = record.job.index
        self._start[place], self._end[place] = record.start, record.end
        if record.promised is not None:
            self._promised[place] = record.promised
        if record.state is not State.COMPLETED:
            self._killed[place] = 1
        self._first[place], self._runs[place] = self._runs_of(allocation.parts[0].nodes)
        return True

    def _runs_of(self, mask: int) -> tuple[int, int]:
        """Where the runs of a set of nodes stand, and how many they are. O(runs)."""
        found = self._known.get(mask)
        if found is None:
            first = len(self._low)
            for low, high in runs(mask):
                self._low.append(low)
                self._high.append(high)
            found = first, len(self._low) - first
            if mask.bit_length() <= NARROW:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[mask] = found
        return found

    def records(self, kept: Mapping[JobId, Record]) -> Sequence[Record]:
        """All records in file order; ``kept`` are those that were not taken. O(jobs)."""
        jobs = self._jobs
        taken = RecordTable(
            jobs,
            np.argsort(jobs.place, kind="stable"),
            jobs.seconds,
            np.asarray(self._start)[jobs.place],
            np.asarray(self._end)[jobs.place],
            np.asarray(self._promised)[jobs.place],
            np.frombuffer(self._killed, np.bool_)[jobs.place],
            np.asarray(self._first)[jobs.place],
            np.asarray(self._runs)[jobs.place],
            np.asarray(self._low),
            np.asarray(self._high),
            self._cluster.groups[0].node.cpus,
            self._cluster.device_classes(CPU)[0],
        )
        return [kept.get(record.job.id, record) for record in taken] if kept else taken
