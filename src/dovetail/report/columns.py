"""A result as arrays, one entry a job: what metrics, tables and charts are worked out on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from dovetail.files.arrays import distinct
from dovetail.model import Allocation, Cluster, Job, Record, Request, Result, Seconds, State
from dovetail.model.fitting import share_taken
from dovetail.model.job import FRACTION_UNITS
from dovetail.model.tables import JobTable, RecordTable
from dovetail.records import dataclass

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NAN = float("nan")
NOTHING = Allocation(Request(), ())


@dataclass(frozen=True, eq=False)
class NodeRuns:
    """The nodes of stretches that hold CPUs alone, as runs of neighbours.

    A stretch has ``runs`` runs from ``first`` on: the nodes from ``low`` to before ``high``, and ``cpus`` of
    each node.
    """

    first: Ints
    runs: Ints
    low: npt.NDArray[np.int32]
    high: npt.NDArray[np.int32]
    cpus: int

    def lines(self, order: Ints) -> Ints:
        """Where in ``low`` and ``high`` the runs of these stretches are, one after the other."""
        return expand_ranges(self.first[order], self.runs[order])[1]


def expand_ranges(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """``count`` whole numbers from each ``first`` on, one after the other, and which range each is of."""
    line = np.repeat(np.arange(len(count)), count)
    # The running number within each range is the overall number less that of the range's beginning.
    return line, first[line] + np.arange(len(line)) - np.repeat(np.cumsum(count) - count, count)


@dataclass(frozen=True, eq=False)
class HeldIntervals:
    """What jobs held and for how long: one entry for each attempt, and for each place of it.

    ``job`` is the index of the record, ``states`` is how it ended there, ``None`` where it moved on. Of a job
    that ran once, in one place, there is one entry. ``allocation`` gives what one of them holds. ``nodes``
    gives the nodes of all, if that is known so.
    """

    job: Ints
    start: Floats
    end: Floats
    cpus: Floats
    devices: Floats
    allocation: Callable[[int], Allocation]
    states: list[State | None]
    nodes: NodeRuns | None = None

    @property
    def seconds(self) -> Floats:
        """How long each lasted."""
        return self.end - self.start


@dataclass(frozen=True)
class StepFunction:
    """A step function: ``values[i]`` holds from ``times[i]`` until ``times[i + 1]``; both of shape (n,)."""

    times: Floats
    values: Floats

    @staticmethod
    def of(ups: Floats, downs: Floats, weights: Floats | float = 1.0) -> StepFunction:
        """What is up: ``weights`` added at ``ups`` and taken at ``downs`` (infinite: never). O(n log n)."""
        weight = np.broadcast_to(np.asarray(weights, float), ups.shape)
        times = np.concatenate([ups, downs])
        # Stable, so of changes at one moment those that go up come first and nothing dips below zero.
        order = np.argsort(times, kind="stable")[: np.isfinite(times).sum()]  # those that never come are last
        at, values = times[order], np.cumsum(np.concatenate([weight, -weight])[order])
        last = np.append(at[1:] != at[:-1], True)[: len(at)]  # of all changes at one moment
        at, values = at[last], values[last]
        # Sums of shares leave crumbs of rounding, which would be drawn as a line that never ends.
        values[np.abs(values) < 1e-9] = 0.0
        return StepFunction(at, values)

    def mean(self, edges: Floats) -> Floats:
        """Mean in each of the intervals between ``edges`` (n + 1,), shape (n,). Exact, not sampled."""
        width = np.diff(edges)
        area = np.diff(self._area_until(edges))
        return np.divide(area, width, out=np.zeros_like(area), where=width > 0)

    def _area_until(self, at: Floats) -> Floats:
        if len(self.times) == 0:
            return np.zeros(len(at))
        areas = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times))])
        area = np.interp(at, self.times, areas, left=0.0)
        # After the last step the value holds on.
        beyond = np.maximum(at - self.times[-1], 0.0) * self.values[-1]
        return np.asarray(area + beyond)


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry a record, in file order; seconds; NaN where a job never started or ended.

    ``counted`` marks the jobs that means are taken over: those that started and ended and were not
    cancelled. ``ran`` marks all that started and ended, cancelled ones too: they used what they held.
    ``cpus`` and ``devices`` are what a job held at its end over all of its nodes, shares of devices as
    fractions; `stretches` has what it held before it moved or began again.
    """

    cluster: Cluster
    records: Sequence[Record]
    submit: Floats
    start: Floats
    end: Floats
    counted: Bools
    cpus: Floats
    devices: Floats

    @staticmethod
    def of(result: Result) -> Columns:
        """The columns of a result as it is now. O(jobs)."""
        records = tuple(result.records)
        submit = np.array([r.job.submit_time for r in records], float)
        start = np.array([NAN if r.start is None else r.start for r in records], float)
        end = np.array([NAN if r.end is None else r.end for r in records], float)
        # Cancelled jobs used what they held, but their waits are no measure of the policy.
        left = np.array([r.state is State.CANCELLED for r in records], bool)
        amounts = np.array([_total_held(r.allocation, result.cluster) for r in records], float).reshape(
            len(records), 2
        )
        counted = np.isfinite(start) & np.isfinite(end) & ~left
        return Columns(result.cluster, records, submit, start, end, counted, amounts[:, 0], amounts[:, 1])

    @cached_property
    def jobs(self) -> Sequence[Job]:
        """The jobs of the records."""
        return [record.job for record in self.records]

    @cached_property
    def state_counts(self) -> dict[State, int]:
        """How many records are in each state."""
        return dict.fromkeys(State, 0) | Counter(self.states)

    @cached_property
    def users(self) -> Ints:
        """A number for each user, -1 where there is none."""
        names, numbers = self.keys("user")
        # Jobs without a user are not one user: fairness leaves them out.
        anonymous = np.array([not name for name in names], bool)
        return np.where(anonymous[numbers], -1, numbers)

    def keys(self, by: str) -> tuple[list[str], Ints]:
        """What jobs are broken down by: the names, as they come, and the place of each job's among them.

        ``by`` is ``user``, ``group``, ``queue``, ``app`` or ``implementation``; empty where a job has none.
        """
        if by not in self._cached_keys:
            self._cached_keys[by] = self._keys_of(by)
        return self._cached_keys[by]

    @cached_property
    def _cached_keys(self) -> dict[str, tuple[list[str], Ints]]:
        return {}

    def _keys_of(self, by: str) -> tuple[list[str], Ints]:
        known: dict[str, int] = {}
        names = map(_KEYS[by], self.jobs) if by in _KEYS else self.implementations
        places = [known.setdefault(name or "", len(known)) for name in names]
        return list(known), np.array(places, np.int64)

    @property
    def implementations(self) -> Iterable[str | None]:
        """The name of the implementation that each job ran as."""
        return (record.implementation.name if record.implementation else None for record in self.records)

    @cached_property
    def predictions(self) -> Floats:
        """Expected time, lower and upper end of the jobs, NaN where there is none, shape (jobs, 3)."""
        rows = [
            (NAN, NAN, NAN) if (p := r.predicted) is None else (p.expected, p.lower, p.upper)
            for r in self.records
        ]
        return np.array(rows, float).reshape(len(rows), 3)

    @cached_property
    def states(self) -> list[State]:
        """What the jobs have become."""
        return [record.state for record in self.records]

    @cached_property
    def walltimes(self) -> Floats:
        """Walltimes, NaN where there is none."""
        return np.array([NAN if (w := job.walltime) is None else w for job in self.jobs], float)

    @cached_property
    def completed(self) -> Bools:
        """Jobs that ran to their own end."""
        return np.array([state is State.COMPLETED for state in self.states], bool)

    @cached_property
    def one_way(self) -> Bools:
        """Jobs of apps with one implementation."""
        return np.array([len(job.app.implementations) == 1 for job in self.jobs], bool)

    @property
    def choices(self) -> bool:
        """Whether any job could run in several ways."""
        return any(len(job.choices) > 1 for job in self.jobs)

    def best_true_times(self, result: Result) -> Floats:
        """The least true time of each job over its implementations, NaN where unknown."""
        return np.array([result.best.get(job.id, NAN) for job in self.jobs], float)

    @cached_property
    def ids(self) -> Sequence[str]:
        """Ids in file order."""
        return [job.id for job in self.jobs]

    @cached_property
    def ran(self) -> Bools:
        """Jobs that started and ended."""
        return np.isfinite(self.start) & np.isfinite(self.end)

    @cached_property
    def wait(self) -> Floats:
        """Start minus submission."""
        return self.start - self.submit

    @cached_property
    def run(self) -> Floats:
        """End minus start."""
        return self.end - self.start

    @cached_property
    def took(self) -> Floats:
        """The same as the backend measured it, which is what predictions are of (`Record.took`)."""
        return np.array([NAN if (took := r.took) is None else took for r in self.records], float)

    @cached_property
    def response(self) -> Floats:
        """End minus submission."""
        return self.end - self.submit

    @cached_property
    def bounded_slowdown(self) -> Floats:
        """Response over run time, run times below 10 s taken as 10 s, at least 1."""
        return np.maximum(1.0, self.response / np.maximum(self.run, 10.0))

    @cached_property
    def first(self) -> Seconds:
        """First submission; 0 without jobs."""
        return float(self.submit.min()) if len(self.submit) else 0.0

    @cached_property
    def last(self) -> Seconds:
        """Last end; the first submission if nothing ended."""
        return float(self.end[self.ran].max()) if self.ran.any() else self.first

    @property
    def makespan(self) -> Seconds:
        """First submission to last end; 0 if nothing ended."""
        return self.last - self.first

    @cached_property
    def stretches(self) -> HeldIntervals:
        """What all jobs held, and when. O(jobs)."""
        ran = np.flatnonzero(self.ran).tolist()
        # Since its last move, or its last attempt: what came before is in `earlier`, and must not count
        # twice.
        since = self.start.copy()
        for j in ran:
            if self.records[j].since is not None:
                since[j] = self.records[j].since
        before = [(j, span) for j, record in enumerate(self.records) for span in record.earlier]
        amounts = np.array([_total_held(span.allocation, self.cluster) for _, span in before], float).reshape(
            len(before), 2
        )
        held = [self.records[j].allocation or NOTHING for j in ran]
        return HeldIntervals(
            np.array([*ran, *(j for j, _ in before)], np.int64),
            np.concatenate([since[ran], [span.start for _, span in before]]),
            np.concatenate([self.end[ran], [span.end for _, span in before]]),
            np.concatenate([self.cpus[ran], amounts[:, 0]]),
            np.concatenate([self.devices[ran], amounts[:, 1]]),
            [*held, *(span.allocation for _, span in before)].__getitem__,
            [*(self.records[j].state for j in ran), *(span.state for _, span in before)],
        )

    @cached_property
    def cpus_in_use(self) -> StepFunction:
        """CPUs held, over time."""
        return StepFunction.of(self.stretches.start, self.stretches.end, self.stretches.cpus)

    @cached_property
    def devices_in_use(self) -> StepFunction:
        """Devices held, over time, shares as fractions."""
        return StepFunction.of(self.stretches.start, self.stretches.end, self.stretches.devices)

    @cached_property
    def jobs_waiting(self) -> StepFunction:
        """Jobs that were submitted and have not started; cancelled ones leave at their end."""
        out = np.where(np.isfinite(self.start), self.start, self.end)
        return StepFunction.of(self.submit, np.where(np.isfinite(out), out, np.inf))


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
            # A table holds simulated jobs that all started and ended: every one of them counts.
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
        numbers = self.table.in_order(jobs.form if by in ("app", "implementation") else getattr(jobs, by))
        kinds, places = distinct(numbers)
        # Of several the last that is written stays: from the end, that is the first.
        first = np.empty(len(kinds), np.int64)
        first[places[::-1]] = np.arange(len(places) - 1, -1, -1)
        texts = [_breakdown_name(jobs, by, kind) for kind in kinds.tolist()]
        known: dict[str, int] = {}
        for kind in np.argsort(first).tolist():  # as they come; two forms may be of one app
            known.setdefault(texts[kind], len(known))
        return list(known), np.array([known[text] for text in texts], np.int64)[places]

    @cached_property
    def predictions(self) -> Floats:
        """Expected time, lower and upper end of the jobs, NaN where there is none, shape (jobs, 3)."""
        seconds = self.table.in_order(self.table.seconds)
        # Tables come from simulations with perfect knowledge, whose predictions are the true times.
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

    def best_true_times(self, result: Result) -> Floats:
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

    def _make_allocation(self, place: int) -> Allocation:
        """What a record holds, made at its first use."""
        return self.table[place].allocation or NOTHING

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
            self._make_allocation,
            list(self.states),
            NodeRuns(
                table.in_order(table.first), table.in_order(table.runs), table.low, table.high, table.pool
            ),
        )


def _breakdown_name(jobs: JobTable, by: str, number: int) -> str:
    """The name of what a table has a number for; empty where there is no name."""
    if by == "app":
        return jobs.forms[number][0].name
    if by == "implementation":
        return jobs.forms[number][1][0].implementation.name
    return "" if number < 0 else str(number)


_KEYS: Mapping[str, Callable[[Job], str | None]] = {
    "user": lambda job: job.user,
    "group": lambda job: job.group,
    "queue": lambda job: job.queue,
    "app": lambda job: job.app.name,
}


def _total_held(allocation: Allocation | None, cluster: Cluster) -> tuple[float, float]:
    """CPUs and devices over all nodes."""
    if allocation is None:
        return 0.0, 0.0
    cpus = 0
    devices = float(len(allocation.donors))
    for part in allocation.parts:
        count = part.nodes.bit_count()
        cpus += count * part.cpus
        if part.devices and part.units == FRACTION_UNITS:
            devices += count * len(part.devices)
        elif part.devices:
            # The nodes of one part are alike in what they give, so the first one's devices stand for all.
            node = cluster.nodes[(part.nodes & -part.nodes).bit_length() - 1]
            shares = (share_taken(node.devices[d], part.units, part.gpu_memory) for d in part.devices)
            devices += count * sum(shares)
    return float(cpus), devices


_KNOWN: WeakKeyDictionary[Result, Columns] = WeakKeyDictionary()


def columns_of(result: Result) -> Columns:
    """The columns of a result that changes no more, worked out once."""
    known = _KNOWN.get(result)
    if known is None:
        records = result.records
        if isinstance(records, RecordTable):
            known = TableColumns.of_table(result.cluster, records)
        else:
            known = Columns.of(result)
        _KNOWN[result] = known
    return known
