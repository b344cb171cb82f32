"""FMS: Flexible Moldable Scheduling, pairs of jobs molded in type and number of nodes (Ravi 2012, III.B).

The paper leaves the score of an option open. Here the best option is the one with the least completion
time of everything that is known, if all other waiting jobs followed unmolded, in order; of equal ones, the
one that uses least; then the one whose two jobs end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Decision, Job, Request, Seconds, Start, Wait
from dovetail.policies.moldable import Shape, Timeline, asked_for, by_kind, expected, fastest_asked

__all__ = ["Fms", "FmsNodes", "FmsOrder", "FmsType"]

Score = Literal["rollout", "area"]
Option = tuple[Choice, Seconds]


@dataclass(frozen=True)
class _Fms:
    """The rule; the policies below differ in which options a job has."""

    score: Score = "rollout"

    settles: ClassVar[bool] = True
    walltime: ClassVar[str] = "learned"

    def __post_init__(self) -> None:
        """Have the kernels compiled, or loaded, before the first decision."""
        from dovetail.kernels.moldable import warm_up  # numba: `dovetail policies` need not wait for it

        warm_up()

    def decide(self, view: View) -> Iterable[Decision]:
        """Commit pairs of jobs while one of the two can start now.

        O(log n) a job for the order; for each pair at most 162 options of O(nodes) each, times the waiting
        jobs when they are rolled out.
        """
        timeline = Timeline(view)
        yield from timeline.keep_promises()
        waiting = [job for job in view.queue if job.id not in view.reservations]
        if waiting and timeline.any_free():
            yield from self._pairs(view, timeline, grouped_and_sorted(view, waiting))

    def _pairs(self, view: View, timeline: Timeline, queue: Sequence[Job]) -> Iterator[Decision]:
        from dovetail.kernels.moldable import best_pair

        shapes = _Shapes(timeline)
        followers = [self.unmolded(view, job) for job in queue] if self.score == "rollout" else []
        rest, rest_seconds = shapes.table(followers)
        at = 0
        while at < len(queue) and timeline.any_free():
            pair = queue[at : at + 2]
            options = [self.options(view, job) for job in pair] + [[]] * (2 - len(pair))
            (first, first_seconds), (second, second_seconds) = map(shapes.table, options)
            a, b, swapped = best_pair(
                timeline.ready,
                timeline.latest,
                *shapes.arrays(),
                first,
                first_seconds,
                second,
                second_seconds,
                rest[at + 2 :],
                rest_seconds[at + 2 :],
                self.score == "rollout",
            )
            chosen = [(job, options[i][(a, b)[i]]) for i, job in enumerate(pair)]
            if swapped:
                chosen.reverse()
            decisions = _commit(timeline, chosen)
            if decisions is None:
                yield Wait(queue[at].id, "no way to run the first two jobs starts one of them now")
                return
            yield from decisions
            at += 2

    def options(self, view: View, job: Job) -> list[Option]:
        """The ways of running the job among which FMS may choose."""
        raise TypeError("one of the policies below says which")

    def unmolded(self, view: View, job: Job) -> Option:
        """How a job is thought to run when it follows: the fastest type on the nodes asked for."""
        choice = fastest_asked(view, job)
        return choice, expected(view, job, choice) or 0.0


def _commit(timeline: Timeline, chosen: Sequence[tuple[Job, Option]]) -> list[Decision] | None:
    """Place the jobs in this order; ``None``, and nothing decided, if none of them starts now."""
    before = timeline.state()
    decisions: list[Decision] = []
    starts = False
    for job, (choice, seconds) in chosen:
        gang = timeline.find(job, choice, seconds, packed=True)
        decision = None if gang is None else timeline.commit(gang)
        if decision is None:
            timeline.restore(before)
            return None
        decisions.append(decision)
        starts = starts or isinstance(decision, Start)
    if not starts:
        timeline.restore(before)
        return None
    return decisions


def grouped_and_sorted(view: View, jobs: Sequence[Job]) -> list[Job]:
    """By nodes asked for, then by the time with CPUs and GPU together: similar jobs become neighbours."""
    return sorted(jobs, key=lambda job: (job.nodes, _time_with_both(view, job)))


def _time_with_both(view: View, job: Job) -> Seconds:
    """T(i, N, CG); of a job that cannot use both, its least time on N nodes."""
    both = [c for c in job.asked if c.implementation.kind.startswith(f"{CPU}+")]
    known = (expected(view, job, choice) for choice in both or job.asked or job.choices)
    return min((seconds for seconds in known if seconds is not None), default=0.0)


def _molded(job: Job) -> list[Choice]:
    """The choices on N, N/2 and N/4 nodes (rounded down), as far as they exist."""
    sizes = (job.nodes, job.nodes // 2, job.nodes // 4)
    return [choice for n in sizes for choice in job.choices if choice.request.nodes == n]


def _timed(view: View, job: Job, choices: Sequence[Choice]) -> list[Option]:
    """The choices, or whatever the job offers if there are none, with their times; a type at a time."""
    return [(choice, expected(view, job, choice) or 0.0) for choice in by_kind(choices or job.choices)]


@dataclass(frozen=True)
class Fms(_Fms):
    """Mold pairs of jobs in resource type (CPU, GPU, both) and node count (N, N/2, N/4, rounded down).

    Jobs are grouped by the nodes that they ask for and sorted by time; of every way to place the first
    two the best is taken. ``score=rollout`` judges by when everything would be done if the rest followed
    unmolded; ``score=area`` only by when all that is committed is done, and is far cheaper. Ignores
    priorities and ``implementation``.
    """

    paper: ClassVar[str] = "Ravi 2012, section III.B"

    def options(self, view: View, job: Job) -> list[Option]:
        """Every type on N, N/2 and N/4 nodes."""
        return _timed(view, job, _molded(job))


@dataclass(frozen=True)
class FmsType(_Fms):
    """FMS that molds the resource type only: every job gets the nodes that it asks for."""

    paper: ClassVar[str] = "Ravi 2012, section IV.D (Molding ResType Only)"

    def options(self, view: View, job: Job) -> list[Option]:
        """Every type on N nodes."""
        return _timed(view, job, job.asked)


@dataclass(frozen=True)
class FmsNodes(_Fms):
    """FMS that molds the node count only: N, N/2 or N/4 of the type asked for, or else the fastest on N."""

    paper: ClassVar[str] = "Ravi 2012, section IV.D (Molding NumNodes Only)"

    def options(self, view: View, job: Job) -> list[Option]:
        """The one type on N, N/2 and N/4 nodes."""
        kept = asked_for(view, job).implementation
        return _timed(view, job, [choice for choice in _molded(job) if choice.implementation is kept])

    def unmolded(self, view: View, job: Job) -> Option:
        """The type asked for, or else the fastest, on the nodes asked for."""
        choice = asked_for(view, job)
        return choice, expected(view, job, choice) or 0.0


@dataclass(frozen=True)
class FmsOrder(_Fms):
    """FMS without molding: only its grouping and sorting, and which of two jobs is placed first."""

    paper: ClassVar[str] = "Ravi 2012, section III.B, grouping and sorting alone"

    def options(self, view: View, job: Job) -> list[Option]:
        """The fastest type on N nodes."""
        return [self.unmolded(view, job)]


class _Shapes:
    """The shapes of the requests seen so far, numbered, in the arrays that the kernel takes."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._number: dict[Request, int] = {}
        self._shapes: list[Shape] = []
        self._arrays: _Arrays | None = None

    def table(self, options: Sequence[Option]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(shape, nodes) and seconds of each option."""
        rows = [(self._of(choice.request), choice.request.nodes) for choice, _ in options]
        seconds = np.array([seconds for _, seconds in options], np.float64)
        return np.array(rows, np.int64).reshape(len(rows), 2), seconds

    def _of(self, request: Request) -> int:
        one = request.on(1)
        found = self._number.get(one)
        if found is None:
            found = self._number[one] = len(self._shapes)
            self._shapes.append(self._timeline.shape(request))
            self._arrays = None
        return found

    def arrays(self) -> _Arrays:
        """Pool, count, eligible and able of every shape."""
        if self._arrays is None:
            self._arrays = _Arrays(
                np.array([shape.pool for shape in self._shapes]),
                np.array([shape.count for shape in self._shapes], np.int64),
                np.stack([shape.eligible for shape in self._shapes]),
                np.stack([shape.able for shape in self._shapes]),
            )
        return self._arrays


class _Arrays(NamedTuple):
    pool: NDArray[np.bool_]
    devices: NDArray[np.int64]
    eligible: NDArray[np.bool_]
    able: NDArray[np.bool_]
