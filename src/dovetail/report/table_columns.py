"""The columns of results that are kept as columns: no record is made for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

import numpy as np

from dovetail.model import Allocation, Cluster, Job, Result, State
from dovetail.model.tables import JobTable, RecordTable
from dovetail.report.columns import Bools, Columns, Floats, HeldIntervals, Ints, NodeRuns


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
    def states(self) -> list[State]:
        """What the jobs have become."""
        ends = State.COMPLETED, State.TIMEOUT
        return [ends[killed] for killed in self.killed.tolist()]

    @cached_property
    def state_counts(self) -> dict[State, int]:
        """How many records are in each state."""
        killed = int(self.killed.sum())
        return dict.fromkeys(State, 0) | {State.COMPLETED: len(self.table) - killed, State.TIMEOUT: killed}

    def _keys_of(self, by: str) -> tuple[list[str], Ints]:
        jobs = self.table.jobs
        if not isinstance(jobs, JobTable):
            return super()._keys_of(by)
        numbers = jobs.form if by in ("app", "implementation") else getattr(jobs, by)
        kinds, first, places = np.unique(self.table.in_order(numbers), return_index=True, return_inverse=True)
        texts = [_name(jobs, by, kind) for kind in kinds.tolist()]
        known: dict[str, int] = {}
        for kind in np.argsort(first).tolist():  # as they come; two forms may be of one app
            known.setdefault(texts[kind], len(known))
        return list(known), np.array([known[text] for text in texts], np.int64)[places]

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

    @cached_property
    def jobs(self) -> Sequence[Job]:
        """The jobs of the records."""
        return list(self.table.jobs_of(slice(None)))

    @property
    def implementations(self) -> Iterable[str | None]:
        """The name of the implementation that each job ran as: they have but one."""
        return (job.choices[0].implementation.name for job in self.jobs)

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

    def node_runs(self, part: slice) -> tuple[Iterator[tuple[int, int]], list[int]]:
        """The runs of nodes of some records, from one to before another, and how many each record has."""
        nodes = self.stretches.nodes
        assert nodes is not None
        order = np.arange(len(self.submit))[part]
        lines = nodes.lines(order)
        every = zip(nodes.low[lines].tolist(), nodes.high[lines].tolist(), strict=True)
        return every, nodes.runs[order].tolist()

    @cached_property
    def ids(self) -> Sequence[str]:
        """Ids in file order."""
        jobs = self.table.jobs
        if isinstance(jobs, JobTable):
            return jobs.ids_at(self.table.order)
        return [jobs[place].id for place in self.table.order.tolist()]

    @cached_property
    def stretches(self) -> HeldIntervals:
        """What all jobs held, and when."""
        table = self.table
        return HeldIntervals(
            np.arange(len(table)),
            self.start,
            self.end,
            self.cpus,
            self.devices,
            _Allocations(table),
            list(self.states),
            NodeRuns(
                table.in_order(table.first), table.in_order(table.runs), table.low, table.high, table.pool
            ),
        )


def _name(jobs: JobTable, by: str, number: int) -> str:
    """The name of what a table has a number for; empty where it is of nobody."""
    if by == "app":
        return jobs.forms[number][0].name
    if by == "implementation":
        return jobs.forms[number][1][0].implementation.name
    return "" if number < 0 else str(number)
