"""The schedule as CSV, one line a job, in the columns that the evalys tools read (Batsim's job table)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice, repeat
from pathlib import Path

import numpy as np

from dovetail.files.tables import LARGEST
from dovetail.files.writing import write_text
from dovetail.model import Allocation, Cluster, NodeGroup, Part, Record, Result, State
from dovetail.model.allocation import NARROW
from dovetail.model.masks import bit_runs
from dovetail.model.tables import NumberedIds
from dovetail.native.texts import (
    Cells,
    Choices,
    Fractions,
    Numbers,
    Spans,
    Words,
    can_write_lines,
    write_lines,
)
from dovetail.report.columns import Columns, Floats, TableColumns, columns_of
from dovetail.report.spelling import SpanTexts
from dovetail.workloads.swf_writer import as_number

COLUMNS = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
)
FINAL_STATES = {
    State.COMPLETED: "COMPLETED_SUCCESSFULLY",
    State.FAILED: "COMPLETED_FAILED",
    State.NODE_FAIL: "COMPLETED_FAILED",
    State.OUT_OF_MEMORY: "COMPLETED_FAILED",
    State.TIMEOUT: "COMPLETED_WALLTIME_REACHED",
    State.CANCELLED: "COMPLETED_KILLED",
    State.RUNNING: "RUNNING",
    State.PENDING: "SUBMITTED",
}
"""Our states in Batsim's words."""
CHUNK = 4_000
"""Lines that are made at once."""
TABLE_CHUNK = 100_000
"""Lines of which cells are made at once: columns for all lines would be the most memory of the command."""
LARGEST_PLAIN = 1e15
"""Below it Python writes a whole number with decimals without an exponent."""
NEVER = "-1"
NAN = float("nan")
FORMULA = tuple("=+-@\t\r")
"""What a cell begins with that a spreadsheet works out."""
SPECIAL = re.compile('[",\r\n]')


class ResourceNumbers:
    """One number for each CPU and device: node by node, a node's CPUs first, then its devices.

    On a cluster of single-CPU nodes a resource is a node, under the node's index.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = cluster.groups
        self._sizes = [len(group.node.cores) + len(group.node.devices) for group in self._groups]
        counts = [group.count * size for group, size in zip(self._groups, self._sizes, strict=True)]
        self._starts = [0, *accumulate(counts)]
        self._firsts = [group.first for group in self._groups]
        self._known: dict[tuple[int, int], tuple[str, int]] = {}
        self.texts = SpanTexts()

    def held(self, allocation: Allocation | None) -> tuple[str, int]:
        """Numbers of what is held as ``0-3 7 9-10``, and how many. O(runs) where all of a node is held."""
        if allocation is None:
            return "", 0
        if len(allocation.parts) != 1 or allocation.cores or allocation.donors or allocation.parts[0].devices:
            return _spell_spans(self._number_spans(allocation))
        # Neighbouring jobs of a trace share most of their masks: what a mask means is found once.
        part = allocation.parts[0]
        key = part.nodes, part.cpus
        found = self._known.get(key)
        if found is None:
            found = _spell_spans(self._number_spans(allocation))
            if part.nodes.bit_length() <= NARROW:
                self._known[key] = found
        return found

    def _number_spans(self, allocation: Allocation) -> Iterator[tuple[int, int]]:
        for part in allocation.parts:
            for low, high in bit_runs(part.nodes):
                yield from self._of_run(allocation, part, low, high)
        for donor in allocation.donors:
            # A donor lends devices only, so the numbers of its CPUs are passed over.
            group, first = self._of_node(donor.donor)
            number = first + len(group.node.cores) + donor.device
            yield number, number

    def _of_run(self, allocation: Allocation, part: Part, low: int, high: int) -> Iterator[tuple[int, int]]:
        while low < high:
            group, first = self._of_node(low)
            end = min(high, group.first + group.count)
            pool, devices = len(group.node.cores), len(group.node.devices)
            # Whole nodes without devices have consecutive numbers: one span, however many nodes the run has.
            if part.cpus == pool and not devices and not allocation.cores:
                yield first, first + (end - low) * pool - 1
            else:
                for n in range(low, end):
                    yield from self._on_node(allocation, part, n, first + (n - low) * (pool + devices))
            low = end

    def _on_node(self, allocation: Allocation, part: Part, n: int, first: int) -> Iterator[tuple[int, int]]:
        node = self._cluster.nodes[n]
        if part.cpus:
            cores = allocation.cores_on(n, node)
            if cores == node.cores:
                yield first, first + len(cores) - 1
            else:
                yield from ((first + node.cores.index(core),) * 2 for core in cores)
        yield from ((first + len(node.cores) + device,) * 2 for device in part.devices)

    def _of_node(self, n: int) -> tuple[NodeGroup, int]:
        """The group that a node belongs to, and the number of its first resource."""
        g = bisect_right(self._firsts, n) - 1
        return self._groups[g], self._starts[g] + (n - self._firsts[g]) * self._sizes[g]


def _spell_spans(spans: Iterable[tuple[int, int]]) -> tuple[str, int]:
    """Inclusive spans in any order as ``0-3 7``, neighbours together; and how many numbers that is."""
    joined: list[list[int]] = []
    for low, high in sorted(spans):
        # One spelling for one set, however its spans were cut: `0-3` and `4-7` are `0-7`.
        if joined and low <= joined[-1][1] + 1:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    text = " ".join(str(low) if low == high else f"{low}-{high}" for low, high in joined)
    return text, sum(high - low + 1 for low, high in joined)


def to_evalys_csv(result: Result) -> str:
    """The records as CSV text with a header, in file order.

    ``requested_number_of_resources`` and ``allocated_resources`` count CPUs and devices (`ResourceNumbers`);
    ``stretch`` is the turnaround time over the execution time, 1 where both are 0. Times that do not exist
    are -1, as is the requested time of a job without a walltime. Rejected jobs have no line. A name that a
    spreadsheet would take for a formula has an apostrophe before it. O(jobs).
    """
    return "".join(csv_pieces(result))


def csv_pieces(result: Result) -> Iterator[str]:
    """`to_evalys_csv` piece by piece, so that the whole text never stands in memory."""
    yield ",".join(COLUMNS) + "\n"
    columns = columns_of(result)
    if isinstance(columns, TableColumns) and can_write_lines() and isinstance(columns.ids, NumberedIds):
        count = len(columns.submit)
        for first in range(0, count, TABLE_CHUNK):
            part = slice(first, min(first + TABLE_CHUNK, count))
            cells = _cells_of_table(result, columns, part)
            yield from (piece.decode() for piece in write_lines(cells, part.stop - first, CHUNK))
        return
    numbers = ResourceNumbers(columns.cluster)
    names, app = columns.keys("app")
    apps = list(map(_quote_cell, names))
    stretch = _stretches(columns, slice(None))
    times = [SwfNumbers(values) for values in _times_of(columns, slice(None))]
    workload, completed = (
        _quote_cell(result.workload),
        State.COMPLETED,
    )  # an enum's members are looked up slowly
    for first in range(0, len(columns.submit), CHUNK):
        part = slice(first, first + CHUNK)
        submits, walltimes, starts, runs, ends, waits, responses = (values.of(part) for values in times)
        states = columns.states[part]
        counts, held = _held_cells(columns, numbers, part)
        rows = zip(
            _id_cells(columns, part),
            repeat(workload),
            [apps[i] for i in app[part].tolist()],
            submits,
            map(str, counts),
            walltimes,
            ["1" if state is completed else "0" for state in states],
            [FINAL_STATES[state] for state in states],
            starts,
            runs,
            ends,
            waits,
            responses,
            [
                repr(s) if ran else NEVER
                for s, ran in zip(stretch[part].tolist(), columns.ran[part].tolist(), strict=True)
            ],
            held,
            strict=False,  # the name of the workload has no end
        )
        yield "\n".join(map(",".join, rows)) + "\n"


def _times_of(columns: Columns, part: slice) -> tuple[Floats, ...]:
    """Submission, walltime, start, execution, finish, waiting and turnaround of some jobs."""
    ran = columns.ran[part]
    return (
        columns.submit[part],
        columns.walltimes[part],
        columns.start[part],
        columns.run[part],
        np.where(ran, columns.end[part], NAN),
        columns.wait[part],
        np.where(ran, columns.response[part], NAN),
    )


def _stretches(columns: Columns, part: slice) -> Floats:
    run, response = columns.run[part], columns.response[part]
    # The division by 0 is meant: a job that waited and took no time has an infinite stretch.
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(run > 0, response / run, np.inf)
    stretch[(run <= 0) & (response <= 0)] = 1.0
    return stretch


def _cells_of_table(result: Result, columns: TableColumns, part: slice) -> list[Cells]:
    """The cells of some records of a table, all of which ran, as C takes them."""
    assert isinstance(columns.ids, NumberedIds)
    names, app = columns.keys("app")
    submit, walltime, start, run, end, wait, response = map(_time_cells, _times_of(columns, part))
    killed, nothing = columns.killed[part].astype(np.int64), np.zeros(part.stop - part.start, np.int64)
    nodes, stretch = columns.stretches.nodes, _stretches(columns, part)
    assert nodes is not None
    # Most jobs have waited for nothing: what `repr` makes of whole numbers needs no `repr`.
    whole = np.where((stretch == np.floor(stretch)) & (stretch < LARGEST_PLAIN), stretch, -1).astype(np.int64)
    others = np.flatnonzero(whole < 0)

    def words(lines: slice) -> Iterable[str]:
        of_lines = others[slice(*np.searchsorted(others, (lines.start, lines.stop)))]
        return map(repr, stretch[of_lines].tolist())

    return [
        Numbers(columns.ids.numbers[part]),
        Choices(nothing, [_quote_cell(result.workload)]),
        Choices(app[part], list(map(_quote_cell, names))),
        submit,
        Numbers(columns.cpus[part].astype(np.int64)),
        walltime,
        Choices(killed, ["1", "0"]),
        Choices(killed, [FINAL_STATES[State.COMPLETED], FINAL_STATES[State.TIMEOUT]]),
        start,
        run,
        end,
        wait,
        response,
        Fractions(whole, words),
        Spans(nodes.runs[part], nodes.first[part], nodes.low, nodes.high, nodes.cpus),
    ]


def _time_cells(values: Floats) -> Cells:
    """Seconds as SWF writes numbers: in C where all are whole."""
    known = np.where(np.isnan(values), -1.0, values)
    if (np.abs(known) < LARGEST).all() and (known == np.floor(known)).all():
        return Numbers(known.astype(np.int64))
    return Words(SwfNumbers(values).of)


def _id_cells(columns: Columns, part: slice) -> Iterable[str]:
    """Ids of some jobs, as cells: numbers stand as they are."""
    ids = columns.ids
    return ids[part] if isinstance(ids, NumberedIds) else map(_quote_cell, ids[part])


def _held_cells(
    columns: Columns, numbers: ResourceNumbers, part: slice
) -> tuple[Iterable[int], Iterable[str]]:
    """How many resources some jobs hold each (or, where one holds none, requests), and which."""
    if not isinstance(columns, TableColumns):
        records = columns.records[part]
        held = [numbers.held(record.allocation) for record in records]
        counts = [n or _requested_resources(record) for (_, n), record in zip(held, records, strict=True)]
        return counts, [text for text, _ in held]
    # Jobs of a table hold whole nodes without devices, and nodes are alike: numbers follow from runs of
    # nodes, and no allocation is made for any of 100,000 jobs.
    each = columns.table.pool
    every, runs_of = columns.node_runs(part)
    ends = every if each == 1 else ((first * each, end * each) for first, end in every)
    texts = map(numbers.texts.__getitem__, ends)
    return columns.cpus[part].astype(np.int64).tolist(), [" ".join(islice(texts, n)) for n in runs_of]


def _requested_resources(record: Record) -> int:
    """Resources that a job which holds none requests."""
    request = record.job.choices[0].request
    return request.nodes * max(1, max(0, request.cpus) + int(request.gpus))


class SwfNumbers:
    """Seconds as SWF writes numbers, NaN as -1."""

    def __init__(self, values: Floats) -> None:
        whole = np.abs(values) < LARGEST
        whole &= values == np.floor(values)
        self._whole = bool(whole.all())
        self._values = values

    def of(self, part: slice) -> Iterable[str]:
        """Some of them."""
        if self._whole:
            return map(str, self._values[part].astype(np.int64).tolist())
        return [NEVER if value != value else as_number(value) for value in self._values[part].tolist()]


def _quote_cell(text: str) -> str:
    """A name as a cell: quoted where it must be, and never a formula."""
    # A leading minus is a number where digits follow, and a formula where anything else does.
    if text[:1] in FORMULA and not (text[:1] == "-" and text[1:].isdecimal()):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if SPECIAL.search(text) else text


def write_csv(result: Result, path: str | Path) -> None:
    """Write the CSV (as gzip where the name ends in ``.gz``). Raises `InputError` where it cannot be."""
    write_text(path, csv_pieces(result))
