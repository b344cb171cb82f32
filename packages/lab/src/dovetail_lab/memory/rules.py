"""Rules for how much memory a task gets, each by what it knows at the task's start.

- ``requested``: the trace's own request;
- ``largest``: 1.1 times the largest peak of the process so far;
- ``learned``: what ``--mem auto`` reserves (`dovetail.runtimes.memory`);
- ``tovar``: the first allocation of least expected waste over the peaks seen (Tovar et al. 2018, "A Job
  Sizing Strategy for High-Throughput Scientific Workflows", section IV);
- ``witt``: a line in the bytes read plus the standard deviation of its errors (Witt, Wagner & Leser 2019,
  "Feedback-Based Resource Allocation for Batch Scheduling of Scientific Workflows", LR mean ± sd).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from dovetail.history import MemoryHistory
from dovetail.history.base import canonical_inputs
from dovetail.model import CPU, DeviceClass, Prediction, Run
from dovetail.runtimes.base import Query
from dovetail.runtimes.memory import MemoryModel, second_try
from dovetail.runtimes.peaks import KILL_RISK, LIKE_LARGEST
from dovetail.workloads.nextflow import Task, run_of

ROWS = ("requested", "largest", "learned", "tovar", "witt")


class ProcessTasks:
    """Tasks of a process in the order in which they completed: peaks and bytes read, seconds."""

    def __init__(self) -> None:
        self.peaks, self.seconds, self.read = array("d"), array("d"), array("d")
        self.largest = 0.0

    def add(self, task: Task) -> None:
        """One more."""
        peak = float(task.peak or 0)
        self.peaks.append(peak)
        self.seconds.append(task.seconds)
        self.read.append(float(task.read or 0))
        self.largest = max(self.largest, peak)


class CompletedTasks:
    """What is known at a moment: the tasks that have completed, by process; the largest request so far."""

    def __init__(self) -> None:
        self.done: dict[str, ProcessTasks] = {}
        self.largest_request = 0

    def note_completed(self, task: Task) -> None:
        """One more has completed."""
        self.of(task).add(task)

    def of(self, task: Task) -> ProcessTasks:
        """Those of the same process."""
        return self.done.setdefault(task.process, ProcessTasks())


class Rule(Protocol):
    """How much a task gets."""

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """Bytes of the first try, and what the peak is predicted to be, where the rule predicts it."""
        ...

    def next_reservation(self, task: Task, known: CompletedTasks, killed: float) -> float:
        """Bytes after a kill at ``killed``."""
        ...

    def note_completed(self, task: Task) -> None:
        """A task has completed."""
        ...


class _Plain:
    """After a kill the trace's own request, then twice as much."""

    def next_reservation(self, task: Task, known: CompletedTasks, killed: float) -> float:
        """The request where it is more."""
        request = float(task.requested or 0)
        # As a user would: back to the own request, and doubling from there.
        return request if request > killed else 2.0 * killed

    def note_completed(self, task: Task) -> None:
        """Nothing but what everybody knows."""


class Requested(_Plain):
    """The trace's own request."""

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """The request."""
        return float(task.requested or 0), None


class Largest(_Plain):
    """1.1 times the largest peak of the process so far, the request while there is none."""

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """By the largest peak."""
        return LIKE_LARGEST * known.of(task).largest or float(task.requested or 0), None


class Learned:
    """What ``--mem auto`` reserves; a machine is as large as the largest request so far."""

    def __init__(self, *, by_size: bool, risk: float = KILL_RISK) -> None:
        self._history = MemoryHistory()
        self._model = MemoryModel(self._history)
        self._by_size, self._risk = by_size, risk

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """The cheapest amount."""
        # One CPU class: the traces do not name the nodes' models.
        run = self._run_of_task(task)
        query = Query(run.app, CPU, DeviceClass(CPU), (1, run.cpus, 0.0), canonical_inputs(run.inputs))
        request = float(task.requested or 0)
        found = self._model.choose_reservation(
            query,
            request=request,
            machine=float(known.largest_request),
            risk=self._risk,
            requested=request,
        )
        return float(found.amount), found.peak

    def next_reservation(self, task: Task, known: CompletedTasks, killed: float) -> float:
        """As good as never too little."""
        largest, request = known.of(task).largest, float(task.requested or 0)
        return second_try(killed, largest, float(known.largest_request), request)

    def note_completed(self, task: Task) -> None:
        """Into the history."""
        self._history.record(self._run_of_task(task))

    def _run_of_task(self, task: Task) -> Run:
        run = run_of(task)
        return run if self._by_size else replace(run, inputs={})


class Tovar(_Plain):
    """Of the peaks seen the one that, as a first allocation, wastes least; a retry gets the request."""

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """By exhaustive search over the peaks (equation 5 of the paper)."""
        peaks, seconds = np.array(known.of(task).peaks), np.array(known.of(task).seconds)
        if not len(peaks):
            return float(task.requested or 0), None
        order = np.argsort(peaks)
        peaks, seconds = peaks[order], seconds[order]
        last = max(float(task.requested or 0), float(peaks[-1]))
        later = float(seconds.sum()) - np.cumsum(seconds)
        cost = peaks * seconds.sum() + last * later
        return float(peaks[int(np.argmin(cost))]), None


class Witt(_Plain):
    """A line in the bytes plus the standard deviation of its errors, within the seen and the requested."""

    def __init__(self, *, by_size: bool) -> None:
        self._by_size = by_size

    def first(self, task: Task, known: CompletedTasks) -> tuple[float, Prediction | None]:
        """The line's word, at least the smallest peak and at most the request."""
        request = float(task.requested or 0)
        peaks, sizes = np.array(known.of(task).peaks), np.array(known.of(task).read)
        if len(peaks) < 2:
            return request, None
        expected, error = float(peaks.mean()), float(peaks.std())
        if self._by_size and task.read and sizes.min() > 0 and np.ptp(sizes) > 0:
            slope, level = np.polyfit(sizes, peaks, 1)
            expected = float(slope * task.read + level)
            error = float((peaks - slope * sizes - level).std())
        amount = max(expected + error, float(peaks.min()))
        return (min(amount, request) if request else amount), None


def make_rules(*, by_size: bool, risk: float = KILL_RISK) -> Mapping[str, Rule]:
    """The rules by the names of `ROWS`, without memory of any task; ``by_size``: what is read is known."""
    return {
        "requested": Requested(),
        "largest": Largest(),
        "learned": Learned(by_size=by_size, risk=risk),
        "tovar": Tovar(),
        "witt": Witt(by_size=by_size),
    }
