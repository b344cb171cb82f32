"""FMS: Flexible Moldable Scheduling, pairs of jobs molded in type and number of nodes (Ravi 2012, III.B).

The paper leaves the score of an option open. Here the best way to place a pair is the one with the least
completion time of everything that is known, if all other waiting jobs followed unmolded, in order; of
equal ones, the one that uses least; then the one whose two jobs end first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf
from typing import ClassVar, Literal, NamedTuple

from dovetail.files.arrays import Bools, Floats, Ints, np
from dovetail.interfaces import Traits, View
from dovetail.kernels.gangs import occupy, place
from dovetail.model import CPU, Choice, Decision, Job, Request, Seconds, Start, Wait, Way, predicted_way
from dovetail.native.library import kernel
from dovetail.policies.parts.asked_for import asked_for, by_kind, fastest_asked
from dovetail.policies.parts.ready_times import ReadyTimes, Shape
from dovetail.policies.parts.trials import Trials, nothing_known, without_untried

Score = Literal["rollout", "area"]
Planned = Literal["node", "each"]


class Table(NamedTuple):
    """Ways to run jobs, as arrays: (shape, nodes) of each, and its seconds."""

    forms: Ints
    seconds: Floats

    def after(self, at: int) -> Table:
        """All but the first ``at``."""
        return Table(self.forms[at:], self.seconds[at:])


class Shapes(NamedTuple):
    """What each shape takes of a node: its ``pool``, so many ``devices`` of the ``eligible`` ones.

    Shapes are (shapes,), (shapes, nodes, 1 + devices), and (shapes, nodes) for the nodes that are ``able``.
    """

    pool: Bools
    devices: Ints
    eligible: Bools
    able: Bools

    def put(self, ready: Floats, table: Table, option: int, *, packed: bool) -> Seconds:
        """Let a job hold the nodes on which it starts first; its end, infinite if it starts nowhere."""
        (shape, nodes), seconds = table.forms[option], float(table.seconds[option])
        pool, count, eligible = self.pool[shape], self.devices[shape], self.eligible[shape]
        total = len(ready)
        chosen, keys, at = np.empty(total, np.int64), np.empty(total), np.empty(total)
        able = self.able[shape]
        start = place(ready, 1, pool, count, eligible, able, nodes, packed, chosen, keys, at)
        if start < inf:
            occupy(ready, 1, pool, count, eligible, chosen, nodes, start, start + seconds)
        return start + seconds

    def units_of(self, table: Table, option: int) -> int:
        """Pools and devices that a job holds."""
        shape, nodes = table.forms[option]
        return int((int(self.pool[shape]) + self.devices[shape]) * nodes)


class Tables:
    """Numbers the shapes of the requests seen so far, and writes ways as arrays."""

    def __init__(self, times: ReadyTimes) -> None:
        self._times = times
        self._number: dict[Request, int] = {}
        self._seen: list[Shape] = []
        self._all: Shapes | None = None

    def of(self, ways: Sequence[Way]) -> Table:
        """The ways as arrays."""
        forms = [(self._number_of_shape(way.choice.request), way.choice.request.nodes) for way in ways]
        seconds = np.array([way.least_seconds for way in ways], np.float64)
        return Table(np.array(forms, np.int64).reshape(len(forms), 2), seconds)

    def _number_of_shape(self, request: Request) -> int:
        # By the request on one node: how many nodes a gang takes does not change its shape.
        one = request.on(1)
        found = self._number.get(one)
        if found is None:
            found = self._number[one] = len(self._seen)
            self._seen.append(self._times.shape(request))
            self._all = None
        return found

    def all_shapes(self) -> Shapes:
        """All shapes so far."""
        if self._all is None:
            self._all = Shapes(
                np.array([shape.pool for shape in self._seen]),
                np.array([shape.count for shape in self._seen], np.int64),
                np.stack([shape.eligible for shape in self._seen]),
                np.stack([shape.able for shape in self._seen]),
            )
        return self._all


@dataclass(frozen=True)
class _Fms(ABC):
    """The rule; the policies below differ in which ways of running a job they choose among."""

    score: Score = "rollout"
    devices: Planned = "node"

    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)
    walltime: ClassVar[str] = "learned"

    def decide(self, view: View) -> Iterable[Decision]:
        """Commit pairs of jobs while one of the two can start now.

        O(log n) a job for the order; for each pair at most 162 options of O(nodes) each, times the waiting
        jobs when they are rolled out.
        """
        times = ReadyTimes(view, each_device=self.devices == "each")
        # Promises first: a pair must see the machine as they leave it.
        yield from times.keep_promises()
        waiting = [job for job in view.queue if job.id not in view.reservations]
        trials = Trials(view)
        left: list[Job] = []
        for job in waiting if times.any_free() else ():
            choice = trials.choice(job, partial(times.starts_now, job))
            if choice is None and len(job.choices) > 1 and nothing_known(view, job):
                # An app of which nothing is known has no times to compare: one of its jobs runs to learn
                # them.
                continue  # it takes what is idle first
            gang = None if choice is None else times.find_gang(job, Way(choice, None), packed=True)
            decision = None if gang is None else times.commit_gang(gang)
            if decision is None:
                left.append(job)
            else:
                yield decision
        if left and times.any_free():
            yield from self._place_pairs(view, times, grouped_and_sorted(view, left))

    def _place_pairs(self, view: View, times: ReadyTimes, queue: Sequence[Job]) -> Iterator[Decision]:
        tables = Tables(times)
        follows = self.score == "rollout"
        followers = [self.unmolded_way(view, job) for job in queue] if follows else []
        rest = tables.of(followers)
        # In pairs, as in Ravi 2012, section IV.
        for at in range(0, len(queue), 2):
            if not times.any_free():
                return
            pair = queue[at : at + 2]
            options = [self.options(view, job) for job in pair]
            decisions = self._place_pair(times, tables, pair, options, rest.after(at + 2), follows)
            # Once more with fresh shapes: what was committed may have taken the CPUs beside a device.
            if decisions is None and self.devices == "each":
                times.look_again()
                tables = Tables(times)
                rest = tables.of(followers)
                decisions = self._place_pair(times, tables, pair, options, rest.after(at + 2), follows)
            if decisions is None:
                yield Wait(queue[at].id, "no way to run the first two jobs starts one of them now")
                return
            yield from decisions

    def _place_pair(
        self,
        times: ReadyTimes,
        tables: Tables,
        pair: Sequence[Job],
        options: Sequence[Sequence[Way]],
        rest: Table,
        follows: bool,
    ) -> list[Decision] | None:
        """Commit the best way to place these two; ``None`` if none of them starts now."""
        first, second = tables.of(options[0]), tables.of(options[1] if len(pair) == 2 else [])
        best = self._best_pair(times, tables, first, second, rest, follows)
        chosen = [(job, options[i][best[i]]) for i, job in enumerate(pair)]
        return _commit_placements(times, chosen[::-1] if best[2] else chosen)

    def _best_pair(
        self, times: ReadyTimes, tables: Tables, first: Table, second: Table, rest: Table, follows: bool
    ) -> tuple[int, int, bool]:
        """The rule, compiled where that is to be had."""
        found = np.empty(3, np.int64)
        _best_pair(times.ready, times.latest, tables.all_shapes(), first, second, rest, follows, found)
        option, other, swapped = found.tolist()
        return option, other, swapped == 1

    @abstractmethod
    def options(self, view: View, job: Job) -> list[Way]:
        """The ways of running the job among which FMS may choose."""

    def unmolded_way(self, view: View, job: Job) -> Way:
        """How a job is thought to run when it follows: the fastest type on the requested nodes."""
        return predicted_way(view, job, fastest_asked(view, job))


def grouped_and_sorted(view: View, jobs: Sequence[Job]) -> list[Job]:
    """By requested nodes, then by the time with CPUs and GPU together: similar jobs become neighbours."""
    return sorted(jobs, key=lambda job: (job.nodes, _time_with_both(view, job)))


def _time_with_both(view: View, job: Job) -> Seconds:
    """T(i, N, CG); of a job that cannot use both, its least time on N nodes."""
    both = [c for c in job.asked if c.implementation.kind.startswith(f"{CPU}+")]
    known = (predicted_way(view, job, choice).seconds for choice in both or job.asked or job.choices)
    return min((seconds for seconds in known if seconds is not None), default=0.0)


def best_pair(
    ready: Floats, latest: Seconds, shapes: Shapes, first: Table, second: Table, rest: Table | None
) -> tuple[int, int, bool]:
    """How to place two jobs: (option of the first, option of the second, is the second placed first).

    The rule itself; where a compiler was, `native/gangs.c` does the same. ``ready`` is when each pool and
    device is free, ``latest`` when all that runs has ended. An empty ``second`` means the first job alone
    (its option is then -1); without a ``rest`` no job is thought to follow.
    """
    best, least = (-1, -1, False), (inf, inf, inf)
    orders = (False, True) if len(second.seconds) else (False,)
    for a, b, swapped in product(range(len(first.seconds)), range(len(second.seconds)) or (-1,), orders):
        pair = [(first, a), (second, b)][: len(orders)]
        state, area = ready.copy(), 0.0
        ends: list[Seconds] = []
        for table, option in reversed(pair) if swapped else pair:
            ends.append(shapes.put(state, table, option, packed=True))
            area += shapes.units_of(table, option) * table.seconds[option]
        last = max(latest, *ends)
        if rest is not None and last < inf:
            # A job that starts nowhere would make every option infinite, and so all alike.
            followed = (shapes.put(state, rest, job, packed=False) for job in range(len(rest.seconds)))
            last = max([last, *(end for end in followed if end < inf)])
        score = _to_microseconds(last), _to_microseconds(area), _to_microseconds(sum(ends))
        # The first option counts even if it never ends, so that there always is a best one.
        if best[0] < 0 or score < least:
            best, least = (a, b, swapped), score
    return best


@kernel
def _best_pair(
    ready: Floats,
    latest: float,
    shapes: Shapes,
    first: Table,
    second: Table,
    rest: Table,
    follows: bool,
    found: Ints,
) -> None:
    """`best_pair` as a kernel; ``follows``: whether there is a ``rest``."""
    found[:] = best_pair(ready, latest, shapes, first, second, rest if follows else None)


def _to_microseconds(seconds: Seconds) -> float:
    """Scores are compared in whole microseconds: sums of the same times in another order are ties."""
    return float(np.rint(seconds * 1e6))


def _commit_placements(times: ReadyTimes, chosen: Sequence[tuple[Job, Way]]) -> list[Decision] | None:
    """Place the jobs in this order; ``None``, and nothing decided, if none of them starts now."""
    before = times.state()
    decisions: list[Decision] = []
    for job, chosen_way in chosen:
        gang = times.find_gang(job, chosen_way, packed=True)
        decision = None if gang is None else times.commit_gang(gang)
        if decision is None:
            times.restore_state(before)
            return None
        decisions.append(decision)
    # A pair of which neither starts now waits for the next decision, when other pairs may be better.
    if not any(isinstance(decision, Start) for decision in decisions):
        times.restore_state(before)
        return None
    return decisions


def _molded_choices(job: Job) -> list[Choice]:
    """The choices on N, N/2 and N/4 nodes (rounded down), as far as they exist."""
    sizes = (job.nodes, job.nodes // 2, job.nodes // 4)
    return [choice for n in sizes for choice in job.choices if choice.request.nodes == n]


def _timed_ways(view: View, job: Job, choices: Sequence[Choice]) -> list[Way]:
    """The choices, or whatever the job offers if there are none, with their times; a type at a time."""
    return without_untried(view, job, [predicted_way(view, job, c) for c in by_kind(choices or job.choices)])


@dataclass(frozen=True)
class Fms(_Fms):
    """Mold pairs of jobs in resource type (CPU, GPU, both) and node count (N, N/2, N/4, rounded down).

    Jobs are grouped by the nodes that they request and sorted by time; of every way to place the first
    two the best is taken. ``score=rollout`` judges by when everything would be done if the rest followed
    unmolded; ``score=area`` only by when all that is committed is done, and is far cheaper. Ignores
    priorities and ``implementation``. The paper's nodes have one GPU, and a job holds its node's whole CPU
    pool with it; with ``devices=each`` a job on devices leaves the pool, and other devices, to others.

    Either job alone would use both; together each takes what it can spare least:

    >>> from dovetail.testing.examples import moldable
    >>> a = ("a", 2, {"cpu+gpu": {2: 6.0}, "gpu": {2: 7.0}, "cpu": {2: 40.0}})
    >>> b = ("b", 2, {"cpu+gpu": {2: 6.0}, "gpu": {2: 20.0}, "cpu": {2: 8.0}})
    >>> moldable(Fms(), "2x4cpu+1gpu", [a, b])
    a gpu n0/gpu0,n1/gpu0 0 to 7, b cpu n[0-1] 0 to 8
    """

    paper: ClassVar[str] = "Ravi 2012, section III.B"

    def options(self, view: View, job: Job) -> list[Way]:
        """Every type on N, N/2 and N/4 nodes."""
        return _timed_ways(view, job, _molded_choices(job))


@dataclass(frozen=True)
class FmsType(_Fms):
    """FMS that molds the resource type only: every job gets the nodes that it requests."""

    paper: ClassVar[str] = "Ravi 2012, section IV.D (Molding ResType Only)"

    def options(self, view: View, job: Job) -> list[Way]:
        """Every type on N nodes."""
        return _timed_ways(view, job, job.asked)


@dataclass(frozen=True)
class FmsNodes(_Fms):
    """FMS that molds the node count only: N, N/2 or N/4 of the requested type, or else the fastest on N."""

    paper: ClassVar[str] = "Ravi 2012, section IV.D (Molding NumNodes Only)"

    def options(self, view: View, job: Job) -> list[Way]:
        """The one type on N, N/2 and N/4 nodes."""
        kept = asked_for(view, job).implementation
        return _timed_ways(
            view, job, [choice for choice in _molded_choices(job) if choice.implementation is kept]
        )

    def unmolded_way(self, view: View, job: Job) -> Way:
        """The requested type, or else the fastest, on the requested nodes."""
        return predicted_way(view, job, asked_for(view, job))


@dataclass(frozen=True)
class FmsOrder(_Fms):
    """FMS without molding: only its grouping and sorting, and which of two jobs is placed first."""

    paper: ClassVar[str] = "Ravi 2012, section III.B, grouping and sorting alone"

    def options(self, view: View, job: Job) -> list[Way]:
        """The fastest type on N nodes."""
        return [self.unmolded_way(view, job)]
