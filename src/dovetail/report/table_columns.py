"""The columns of results that are kept as columns: no record is made for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np

from dovetail.model import Allocation, Cluster, Result, State
from dovetail.model.tables import JobTable, RecordTable
from dovetail.report.columns import Bools, Columns, Floats, Ints, NodeRuns, Stretches

__all__ = ["TableColumns"]


class _Allocations(Sequence[Allocation]):
    """What each record holds, made when it is asked for."""

    def __init__(self, records: RecordTable) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Allocation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Allocation]: ...
    def __getitem__(self, index: int | slice) -> Allocation | Sequence[Allocation]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        found = self._records[index].allocation
        assert found is not None
        return found


class TableColumns(Columns):
    """`Columns` of a `RecordTable`."""

    @staticmethod
    def of_table(cluster: Cluster, records: RecordTable) -> TableColumns:
        """The columns of such records. O(jobs)."""
        count = len(records)
        everybody = np.ones(count, np.bool_)
        return TableColumns(
            cluster,
            records,
            records.in_order(records.submit),
            records.in_order(records.start),
            records.in_order(records.end),
            everybody,
            records.in_order(records.nodes * float(records.pool)),
            np.zeros(count),
        )

    @property
    def table(self) -> RecordTable:
        """The records themselves."""
        assert isinstance(self.records, RecordTable)
        return self.records

    @cached_property
    def killed(self) -> Bools:
        """Jobs that were ended at their walltime."""
        return self.table.in_order(self.table.killed)

    @cached_property
    def state_counts(self) -> dict[State, int]:
        """How many records are in each state."""
        killed = int(self.killed.sum())
        return dict.fromkeys(State, 0) | {State.COMPLETED: len(self.table) - killed, State.TIMEOUT: killed}

    @cached_property
    def users(self) -> Ints:
        """A number for each user, -1 where there is none."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            return self.table.in_order(np.maximum(jobs.user, -1))
        return super().users

    @cached_property
    def predictions(self) -> Floats:
        """Expected time, lower and upper end of the jobs, NaN where there is none, shape (jobs, 3)."""
        seconds = self.table.in_order(self.table.seconds)
        return np.stack([seconds] * 3, axis=1)

    @cached_property
    def took(self) -> Floats:
        """End minus start: nothing else is measured in a simulation."""
        return self.run

    @cached_property
    def completed(self) -> Bools:
        """Jobs that ran to their own end."""
        return ~self.killed

    @cached_property
    def one_way(self) -> Bools:
        """Jobs of apps with one implementation."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            return self.table.in_order(
                jobs.by_form([len(app.implementations) == 1 for app, _ in jobs.forms]) > 0
            )
        return super().one_way

    @property
    def choices(self) -> bool:
        """Whether any job could run in several ways."""
        return False

    def best(self, result: Result) -> Floats:
        """The least true time of each job over its implementations, NaN where unknown."""
        return self.table.in_order(self.table.seconds)

    @cached_property
    def walltimes(self) -> Floats:
        """Walltimes, NaN where there is none."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            return self.table.in_order(jobs.walltime)
        return self.table.in_order(np.array([job.walltime for job in jobs], float))

    @cached_property
    def apps(self) -> tuple[list[str], Ints]:
        """Names of apps, and the place of each job's among them."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            names = dict.fromkeys(app.name for app, _ in jobs.forms)
            places = {name: i for i, name in enumerate(names)}
            return list(names), self.table.in_order(jobs.by_form([places[app.name] for app, _ in jobs.forms]))
        places = {}
        found = [places.setdefault(job.app.name, len(places)) for job in jobs]
        return list(places), self.table.in_order(np.array(found, np.int64))

    def node_runs(self, part: slice) -> Iterator[list[tuple[int, int]]]:
        """Of each of some records the runs of nodes: the first and the one after the last."""
        nodes = self.stretches.nodes
        assert nodes is not None
        order = np.arange(len(self.submit))[part]
        lines = nodes.lines(order)
        runs = list(zip(nodes.low[lines].tolist(), nodes.high[lines].tolist(), strict=True))
        at = 0
        for count in nodes.runs[order].tolist():
            yield runs[at : at + count]
            at += count

    @cached_property
    def ids(self) -> Sequence[str]:
        """Ids in file order."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            return jobs.ids_at(self.table.order)
        return [jobs[place].id for place in self.table.order.tolist()]

    @cached_property
    def stretches(self) -> Stretches:
        """What all jobs held, and when."""
        table = self.table
        ends: tuple[State, State] = (State.COMPLETED, State.TIMEOUT)
        states: list[State | None] = [ends[killed] for killed in self.killed.tolist()]
        return Stretches(
            np.arange(len(table)),
            self.start,
            self.end,
            self.cpus,
            self.devices,
            _Allocations(table),
            states,
            NodeRuns(
                table.in_order(table.first), table.in_order(table.runs), table.low, table.high, table.pool
            ),
        )
