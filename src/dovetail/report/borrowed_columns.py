"""The columns of simulations of borrowed GPUs, from the arrays that the kernel leaves: no record is made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby, islice
from typing import NamedTuple, overload

import numpy as np

from dovetail.engine.borrowing_records import BorrowedRecords, moves_by_job
from dovetail.model import Allocation, Cluster, Job, State
from dovetail.report.columns import Bools, Columns, Floats, Ints, Lines, Stretches

__all__ = ["BorrowedColumns"]


class _Pieces(NamedTuple):
    """Where jobs were until they moved: one entry a piece; ``since`` is when their last place began.

    ``gpus`` are the masks of a piece on the nodes of its job, ``lent`` the places in the lists of borrowed
    GPUs that it still had. The last place of each job has ``mask`` and, where ``kept``, what it borrowed.
    """

    job: list[int]
    start: list[float]
    end: list[float]
    gpus: list[Ints]
    lent: list[Ints]
    since: Floats
    mask: Ints
    kept: Bools


class _Allocations(Sequence[Allocation]):
    """What each stretch holds, made when it is asked for."""

    def __init__(self, records: BorrowedRecords, stretches: int) -> None:
        self._records = records
        self._stretches = stretches

    def __len__(self) -> int:
        return self._stretches

    @cached_property
    def _made(self) -> list[Allocation]:
        last = [record.allocation for record in self._records if record.allocation is not None]
        return [*last, *(span.allocation for record in self._records for span in record.earlier)]

    @overload
    def __getitem__(self, index: int) -> Allocation: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Allocation]: ...
    def __getitem__(self, index: int | slice) -> Allocation | Sequence[Allocation]:
        return self._made[index]


class BorrowedColumns(Columns):
    """`Columns` of `BorrowedRecords`."""

    @staticmethod
    def of_records(cluster: Cluster, records: BorrowedRecords) -> BorrowedColumns:
        """The columns of such records. O(jobs)."""
        jobs, outcome, order = records.columns, records.outcome, records.order
        return BorrowedColumns(
            cluster,
            records,
            jobs.submit[order],
            outcome.start[order],
            outcome.end[order],
            np.ones(len(order), np.bool_),
            (jobs.nodes * jobs.cpus)[order].astype(float),
            (jobs.nodes * jobs.gpus)[order].astype(float),
        )

    @property
    def table(self) -> BorrowedRecords:
        """The records themselves."""
        assert isinstance(self.records, BorrowedRecords)
        return self.records

    @cached_property
    def jobs(self) -> Sequence[Job]:
        """The jobs of the records."""
        return self.table.jobs

    @cached_property
    def state_counts(self) -> dict[State, int]:
        """All have completed."""
        return dict.fromkeys(State, 0) | {State.COMPLETED: len(self.table)}

    @cached_property
    def predictions(self) -> Floats:
        """Expected time, lower and upper end of the jobs, shape (jobs, 3)."""
        return np.stack([self.table.columns.base[self.table.order]] * 3, axis=1)

    @cached_property
    def completed(self) -> Bools:
        """All have."""
        return np.ones(len(self.table), np.bool_)

    @cached_property
    def took(self) -> Floats:
        """End minus start: nothing else is measured in a simulation."""
        return self.run

    @cached_property
    def _pieces(self) -> _Pieces:
        """O(moves and the nodes of the jobs that moved)."""
        jobs, outcome = self.table.columns, self.table.outcome
        since, mask, kept = outcome.start.copy(), outcome.mask.copy(), np.ones(len(outcome.gpu), np.bool_)
        found = _Pieces([], [], [], [], [], since, mask, kept)
        for j, moves in moves_by_job(outcome):
            at, lent = int(outcome.first_node[j]), int(outcome.first_lent[j])
            stop, lent_stop = at + int(jobs.nodes[j]), lent + int(outcome.borrowed[j])
            place = {node: at + i for i, node in enumerate(outcome.node[at:stop].tolist())}
            donors, gpus = outcome.donor[lent:lent_stop].tolist(), outcome.gpu[lent:lent_stop].tolist()
            lent_at = {gpu: lent + i for i, gpu in enumerate(zip(donors, gpus, strict=True))}
            for time, together in groupby(moves, key=lambda move: move[1]):
                if since[j] < time:
                    found.job.append(j)
                    found.start.append(float(since[j]))
                    found.end.append(time)
                    found.gpus.append(mask[at:stop].copy())
                    found.lent.append(lent + np.flatnonzero(kept[lent:lent_stop]))
                for _, _, client, donor, gpu, home in together:
                    mask[place[client]] |= home
                    kept[lent_at[donor, gpu]] = False
                since[j] = time
        return found

    @cached_property
    def stretches(self) -> Stretches:
        """What all jobs held, and when: the last place of each, then where they were before."""
        table, pieces, count = self.table, self._pieces, len(self.table)
        rank = np.empty(count, np.int64)
        rank[table.order] = np.arange(count)
        moved = np.array(pieces.job, np.int64)
        order = np.argsort(rank[moved], kind="stable")
        job = np.concatenate([np.arange(count), rank[moved[order]]])
        return Stretches(
            job,
            np.concatenate([pieces.since[table.order], np.array(pieces.start)[order]]),
            np.concatenate([self.end, np.array(pieces.end)[order]]),
            self.cpus[job],
            self.devices[job],
            _Allocations(table, len(job)),
            [*[State.COMPLETED] * count, *[None] * len(moved)],
            lines=self._lines(rank, order),
        )

    def _lines(self, rank: Ints, order: Ints) -> Lines:
        """CPUs and GPUs of runs of like nodes, then borrowed GPUs. O(n log n) in the nodes of all pieces."""
        stretch, low, high, gpus, cpus = self._own(rank, order)
        takes = cpus > 0
        lists = [(stretch[takes], low[takes], high[takes], np.full(int(takes.sum()), -1), cpus[takes])]
        for number in range(int(gpus.max(initial=0)).bit_length()):
            has = (gpus >> number & 1) > 0
            one = np.ones(int(has.sum()), np.int64)
            lists.append((stretch[has], low[has], high[has], number * one, one))
        of, donor, index = self._lent(rank, order)
        lists.append((of, donor, donor + 1, index, np.ones(len(of), np.int64)))
        stretch, low, high, device, amount = map(np.concatenate, zip(*lists, strict=True))
        by = np.argsort(stretch, kind="stable")
        count = np.bincount(stretch, minlength=len(rank) + len(order))
        begin = np.cumsum(count) - count
        return Lines(begin, count, low[by], high[by], device[by], amount[by].astype(float))

    def _own(self, rank: Ints, order: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Runs of a stretch's nodes that give the same: stretch, first, one after the last, GPUs, CPUs."""
        jobs, outcome, pieces = self.table.columns, self.table.outcome, self._pieces
        moved = np.array(pieces.job, np.int64)[order]
        stretches = np.concatenate([rank, len(rank) + np.arange(len(order))])
        job = np.concatenate([np.arange(len(rank)), moved])
        places = [np.arange(outcome.first_node[j], outcome.first_node[j] + jobs.nodes[j]) for j in moved]
        job, stretch = np.repeat(job, jobs.nodes[job]), np.repeat(stretches, jobs.nodes[job])
        node = np.concatenate([outcome.node, *(outcome.node[some] for some in places)])
        gpus = np.concatenate([pieces.mask, *(pieces.gpus[i] for i in order)])
        by_run = np.lexsort((node, gpus, stretch))
        job, stretch, node, gpus = job[by_run], stretch[by_run], node[by_run], gpus[by_run]
        heads = _heads(stretch, gpus, node - np.arange(len(node)))
        high = node[np.append(heads[1:], len(node)) - 1] + 1
        return stretch[heads], node[heads], high, gpus[heads], jobs.cpus[job[heads]]

    def _lent(self, rank: Ints, order: Ints) -> tuple[Ints, Ints, Ints]:
        """What is borrowed: stretch, donor, index of the GPU there."""
        jobs, outcome, pieces = self.table.columns, self.table.outcome, self._pieces
        job = np.repeat(np.arange(len(rank)), jobs.nodes * jobs.gpus)  # of whose lists only a part is in use
        used = np.arange(len(outcome.gpu)) - outcome.first_lent[job] < outcome.borrowed[job]
        last = np.flatnonzero(used & pieces.kept)
        lent = np.concatenate([last, *(pieces.lent[i] for i in order)])
        counts = [len(pieces.lent[i]) for i in order]
        stretch = np.concatenate([rank[job[last]], np.repeat(len(rank) + np.arange(len(order)), counts)])
        return stretch, outcome.donor[lent], np.log2(outcome.gpu[lent]).astype(np.int64)

    # ---------------------------------------------------------- rows of the JSON form

    @cached_property
    def node_runs(self) -> list[list[tuple[int, int]]]:
        """Of each record the runs of its own nodes: the first and the one after the last."""
        jobs, outcome = self.table.columns, self.table.outcome
        rank = np.empty(len(self.table), np.int64)
        rank[self.table.order] = np.arange(len(rank))
        record = np.repeat(rank, jobs.nodes)
        by_run = np.lexsort((outcome.node, record))
        record, node = record[by_run], outcome.node[by_run]
        heads = _heads(record, node - np.arange(len(node)))
        high = node[np.append(heads[1:], len(node)) - 1] + 1
        counts = np.bincount(record[heads], minlength=len(rank)).tolist()
        runs = zip(node[heads].tolist(), high.tolist(), strict=True)
        return [list(islice(runs, count)) for count in counts]

    @cached_property
    def device_places(self) -> list[list[int]]:
        """The devices of each record's last place, ascending, numbered node by node."""
        lines, count = self.stretches.lines, len(self.table)
        assert lines is not None
        stretch = np.repeat(np.arange(len(lines.count)), lines.count)
        ours = (lines.device >= 0) & (stretch < count)
        sizes = (lines.high - lines.low)[ours]
        record = np.repeat(stretch[ours], sizes)
        ends = np.cumsum(sizes)
        node = np.repeat(lines.low[ours] - (ends - sizes), sizes) + np.arange(len(record))
        first = np.cumsum([0, *(len(node.devices) for node in self.cluster.nodes)])
        place = first[node] + np.repeat(lines.device[ours], sizes)
        places = iter(place[np.lexsort((place, record))].tolist())
        return [list(islice(places, held)) for held in np.bincount(record, minlength=count).tolist()]

    @cached_property
    def migrations(self) -> Ints:
        """How many GPUs of each record have moved home."""
        moves = self.table.outcome.moves
        made = np.bincount(moves.job[: int(moves.made[0])], minlength=len(self.table))
        return made[self.table.order]


def _heads(*columns: Ints) -> Ints:
    """Where a run of entries begins that are the same in every column."""
    begins = np.ones(len(columns[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return np.flatnonzero(begins)
