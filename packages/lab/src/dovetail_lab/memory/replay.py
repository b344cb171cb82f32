"""The protocol: tasks in order of their start, each reserved for from what had completed by then.

A task is known from the moment after its ``complete``; killed tries move no times. An attempt wastes
(reserved - peak) x its time if it completes, reserved x its time if it is killed. A killed try is charged the
whole run time, as in the evaluation of Sizey; with ``at_limit`` the time until a memory that grows evenly
reaches what was reserved.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.model import Seconds
from dovetail.workloads.nextflow import Task
from dovetail_lab.memory.rules import CompletedTasks, Rule

COLD = 5
"""A task is cold while fewer runs of its process have completed."""
GB_HOUR = 1e9 * 3600.0
MOST_ATTEMPTS = 64
"""Doubling reaches any peak before."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task: bytes reserved, the peak it has (or would have had), seconds charged."""

    task: str
    number: int
    reserved: float
    peak: int
    seconds: Seconds
    killed: bool

    @property
    def wasted_amount(self) -> float:
        """Bytes x seconds."""
        return (self.reserved if self.killed else self.reserved - self.peak) * self.seconds


@dataclass(slots=True)
class Row:
    """What a rule did to a trace. ``coverage`` is the share of peaks inside the 90 % interval, cold ones out.

    ``wasted_gb_hours`` is over all tasks, ``wasted_cold_gb_hours`` over the cold ones of them.
    """

    tasks: int = 0
    wasted_gb_hours: float = 0.0
    wasted_cold_gb_hours: float = 0.0
    kills: int = 0
    killed_twice: int = 0
    coverage: float | None = None


def replay_tasks(
    tasks: Sequence[Task],
    rule: Rule,
    on_attempt: Callable[[Attempt], None] | None = None,
    *,
    at_limit: bool = False,
) -> Row:
    """Reserve for every task by a rule. ``on_attempt`` gets each attempt. O(n log n) beside the rule."""
    row, known = Row(), CompletedTasks()
    inside = counted = 0
    running: list[tuple[Seconds, int]] = []
    # By start: a rule may only know what had completed by then.
    ordered = sorted(tasks, key=lambda task: task.start)
    for place, task in enumerate(ordered):
        while running and running[0][0] < task.start:
            done = ordered[heapq.heappop(running)[1]]
            known.note_completed(done)
            rule.note_completed(done)
        # The machine is taken to be as large as the largest request so far, since traces name none.
        known.largest_request = max(known.largest_request, task.requested or 0)
        # Cold: too few runs of the process to predict from. Counted apart, since all rules guess there.
        cold = len(known.of(task).peaks) < COLD
        reserved, predicted = rule.first(task, known)
        waste = _try_until_enough(task, rule, known, reserved, row, on_attempt, at_limit)
        row.tasks += 1
        row.wasted_gb_hours += waste / GB_HOUR
        row.wasted_cold_gb_hours += waste / GB_HOUR if cold else 0.0
        if predicted is not None and not cold:
            counted += 1
            inside += predicted.lower <= (task.peak or 0) <= predicted.upper
        heapq.heappush(running, (task.complete, place))
    row.coverage = inside / counted if counted else None
    return row


def _try_until_enough(
    task: Task,
    rule: Rule,
    known: CompletedTasks,
    reserved: float,
    row: Row,
    on_attempt: Callable[[Attempt], None] | None,
    at_limit: bool,
) -> float:
    """Try until a try is large enough; returns the bytes x seconds wasted by all of them."""
    peak = task.peak or 0
    waste = 0.0
    for number in range(1, MOST_ATTEMPTS + 1):
        killed = peak > reserved
        # At the limit it is killed when it reaches it, in proportion; otherwise it runs to its end in vain.
        seconds = task.seconds * reserved / peak if killed and at_limit else task.seconds
        attempt = Attempt(task.id, number, reserved, peak, seconds, killed)
        waste += attempt.wasted_amount
        if on_attempt is not None:
            on_attempt(attempt)
        if not killed:
            break
        row.kills += 1
        row.killed_twice += number == 2
        # Whatever the rule, a try after a kill gets more than the last one, and at least the request.
        reserved = max(
            rule.next_reservation(task, known, reserved), float(task.requested or 0), reserved + 1.0
        )
    return waste
