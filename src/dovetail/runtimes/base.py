"""What every learned model shares: which runs it sees, how inputs become numbers, what is cached."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from dovetail.history.base import (
    Aggregate,
    Group,
    InputsKey,
    MeasuredHistory,
    RequestKey,
    canonical_inputs,
    request_key,
)
from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import History
from dovetail.model import DeviceClass, Implementation, Job, Prediction, Request, Run, Seconds
from dovetail.model.frozen import frozen

__all__ = [
    "MAX_KEYS",
    "MAX_RUNS",
    "TINY",
    "HistoryModel",
    "KeyTimes",
    "LogTimes",
    "Query",
    "RecentRuns",
    "Sample",
    "categories",
    "key_of",
    "measured",
    "numbers",
    "scalar_size",
    "shape",
]

MAX_KEYS = 512
"""Newest keys of an app, implementation and class that a fit looks at: bounds its time."""
MAX_RUNS = 256
"""Newest runs of an app, implementation and class that a fit looks at."""
TINY: Seconds = 1e-9
"""No prediction is below this: run times are positive."""


def numbers(inputs: InputsKey) -> tuple[tuple[str, float], ...]:
    """The numeric inputs, by name."""
    return tuple((name, value) for name, value in inputs if not isinstance(value, str))


def categories(inputs: InputsKey) -> tuple[tuple[str, str], ...]:
    """The inputs that are words, by name."""
    return tuple((name, value) for name, value in inputs if isinstance(value, str))


def shape(inputs: InputsKey) -> Hashable:
    """What must agree for two inputs to be compared by size: categories, and the numbers' names."""
    return categories(inputs), tuple(name for name, _ in numbers(inputs))


def scalar_size(inputs: InputsKey) -> float | None:
    """One size for all numeric inputs: their product, which for two sides of an array is its elements.

    Numbers of 0 or below cannot scale anything and are left out; ``None`` without any size.
    """
    sizes = [value for _, value in numbers(inputs) if value > 0]
    if not sizes:
        return None
    product = math.prod(sizes)
    return product if 0 < product < math.inf else None


@frozen(frozen=True, slots=True)
class Query:
    """What is asked: which app, implementation, class and request, with which inputs."""

    app: str
    implementation: str
    device: DeviceClass
    request: RequestKey
    inputs: InputsKey
    walltime: Seconds | None = None


class LogTimes:
    """Log times of runs, oldest first: an array to which new ones are added and that loses old ones."""

    __slots__ = ("_end", "_kept", "_start")

    def __init__(self) -> None:
        self._kept = np.empty(8)
        self._start = self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    def add(self, seconds: Seconds) -> None:
        """One more. O(1) on average."""
        if self._end == len(self._kept):
            kept = self.values()
            self._kept = np.empty(2 * len(kept) + 8)
            self._kept[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        self._kept[self._end] = math.log(max(seconds, TINY))
        self._end += 1

    def drop(self) -> None:
        """Lose the oldest one."""
        self._start += 1

    def values(self) -> npt.NDArray[np.float64]:
        """(n,), a view that is good until the next change."""
        return self._kept[self._start : self._end]


class KeyTimes:
    """Log times of one key; those of runs that may have been cold are apart."""

    __slots__ = ("cold", "warm")

    def __init__(self) -> None:
        self.cold, self.warm = LogTimes(), LogTimes()

    def of(self, run: Run) -> LogTimes:
        """Those that this run belongs to."""
        return self.cold if run.first_on_device else self.warm


class RecentRuns:
    """The newest runs of one (app, implementation, class) by key, carried forward from look to look."""

    def __init__(self) -> None:
        self._runs: Sequence[Run] = ()
        self._by_key: dict[tuple[RequestKey, InputsKey], KeyTimes] = {}

    def update(self, runs: Sequence[Run]) -> None:
        """Look at the newest runs again. O(1) for each that came or went, where the others are the same."""
        old, new = self._runs, runs
        self._runs = runs
        came = 0
        while old and came < len(new) and new[-1 - came] is not old[-1]:
            came += 1
        gone = len(old) + came - len(new)
        if not old or came == len(new) or gone < 0 or new[0] is not old[gone]:
            self._by_key.clear()
            came, gone = len(new), 0
        for run in old[:gone]:
            key = key_of(run)
            times = self._by_key[key]
            times.of(run).drop()
            if not (times.warm or times.cold):
                del self._by_key[key]
        for run in new[len(new) - came :]:
            key = key_of(run)
            if key not in self._by_key:
                self._by_key[key] = KeyTimes()
            self._by_key[key].of(run).add(run.seconds)

    @property
    def runs(self) -> Sequence[Run]:
        """All of them, oldest first."""
        return self._runs

    @property
    def by_key(self) -> Mapping[tuple[RequestKey, InputsKey], KeyTimes]:
        """The times of each key that has any."""
        return self._by_key


def key_of(run: Run) -> tuple[RequestKey, InputsKey]:
    """(request, inputs) under which history keeps a run."""
    return request_key(run), canonical_inputs(run.inputs)


@dataclass(slots=True)
class Sample:
    """What is known of one (app, implementation, class): averages by key and the newest runs."""

    aggregates: Sequence[Aggregate]
    recent: RecentRuns
    fits: dict[Hashable, object] = field(default_factory=dict)


def measured(history: History) -> MeasuredHistory:
    """The history itself if it keeps averages, else a view that computes them from its runs."""
    return history if isinstance(history, MeasuredHistory) else _Averaged(history)


class _Averaged:
    """Averages over a history that keeps raw runs only (a user's own): recomputed when it changes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen = -1
        self._apps: dict[str, MemoryHistory] = {}

    def _memory(self, app: str) -> MemoryHistory:
        if self._seen != self._history.version:
            self._apps.clear()
            self._seen = self._history.version
        if app not in self._apps:
            self._apps[app] = MemoryHistory(self._history.runs(app))
        return self._apps[app]

    @property
    def version(self) -> int:
        return self._history.version

    def record(self, run: Run) -> bool:
        return self._history.record(run)

    def runs(
        self, app: str, implementation: str | None = None, device: DeviceClass | None = None
    ) -> Sequence[Run]:
        return self._history.runs(app, implementation, device)

    def count(self, app: str, implementation: str, device: DeviceClass) -> int:
        return self._history.count(app, implementation, device)

    def stamp(self, app: str) -> Hashable:
        return self._history.version

    def still(self) -> AbstractContextManager[object]:
        return nullcontext()

    def groups(self, app: str | None = None) -> Sequence[Group]:
        return () if app is None else self._memory(app).groups(app)

    def aggregates(
        self, app: str, implementation: str, device: DeviceClass, limit: int | None = None
    ) -> Sequence[Aggregate]:
        return self._memory(app).aggregates(app, implementation, device, limit)

    def aggregate(
        self, app: str, implementation: str, device: DeviceClass, request: RequestKey, inputs: InputsKey
    ) -> Aggregate | None:
        return self._memory(app).aggregate(app, implementation, device, request, inputs)

    def recent(self, app: str, implementation: str, device: DeviceClass, limit: int) -> Sequence[Run]:
        return self._memory(app).recent(app, implementation, device, limit)


_UNKNOWN = object()
# Implementation, kind and model of the class, request, inputs, walltime: hashed without a call into Python.
_Asked = tuple[str, str, str, RequestKey, InputsKey, Seconds | None]
_AS_EVER = nullcontext()
_Ways = tuple[str, DeviceClass, int, float]


class HistoryModel(ABC):
    """A runtime model over a history; subclasses say how, in `answer`.

    Answers are cached by what was asked until the history of that app changes. A cached answer costs a
    few microseconds.
    """

    def __init__(self, history: History) -> None:
        self.history = measured(history)
        self._rounds = False
        self._stamps: dict[str, Hashable] = {}
        self._samples: dict[str, dict[tuple[str, DeviceClass], Sample]] = {}
        self._answers: dict[str, dict[_Asked, Prediction | None]] = {}
        self._recent: dict[tuple[str, str, DeviceClass], RecentRuns] = {}
        self._requests: dict[str, dict[_Ways, list[tuple[int, RequestKey]]]] = {}

    @property
    def version(self) -> int:
        """Changes whenever a prediction may have changed: with every run of this process or another.

        Who asks for it does so before a round of predictions, as an engine does at every instant: these
        then look for other processes' runs no more.
        """
        self._rounds = True
        return self.history.version

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Completed runs of this app and implementation on this class. O(1)."""
        with self._round():
            return self.history.count(app, implementation, device)

    def _round(self) -> AbstractContextManager[object]:
        return self.history.still() if self._rounds else _AS_EVER

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The prediction, or ``None`` where nothing is known."""
        app = job.app.name
        request_asked = Run.resolved_request(request)
        inputs = canonical_inputs(job.inputs)
        with self._round():
            answers = self._answers_of(app)
            key = (implementation.name, device.kind, device.model, request_asked, inputs, job.walltime)
            found = answers.get(key, _UNKNOWN)
            if found is not _UNKNOWN:
                return cast("Prediction | None", found)
            return self.ask(Query(app, implementation.name, device, request_asked, inputs, job.walltime))

    def ask(self, query: Query) -> Prediction | None:
        """The prediction for plain names and numbers (the command line has no `Job`)."""
        answers = self._answers_of(query.app)
        device = query.device
        key = (
            *(query.implementation, device.kind, device.model),
            *(query.request, query.inputs, query.walltime),
        )
        if key not in answers:
            with self.history.still():
                answers[key] = self.answer(self._resolved(query))
        return answers[key]

    def _answers_of(self, app: str) -> dict[_Asked, Prediction | None]:
        """What has been answered since anything of this app changed."""
        stamp = self.history.stamp(app)
        if self._stamps.get(app) != stamp:
            self._stamps[app] = stamp
            self._samples[app] = {}
            self._answers[app] = {}
            self._requests.pop(app, None)
        return self._answers[app]

    def _resolved(self, query: Query) -> Query:
        """The query with the CPUs that "all of the pool" and "the host's share" stood for when it ran.

        Of several such numbers the one with most runs counts. History knows what a run really held, a
        waiting job only what it asks for.
        """
        nodes, cpus, gpus = query.request
        if cpus >= 0:
            return query
        if query.app not in self._requests:
            ways = self._requests[query.app] = {}
            for group in self.history.groups(query.app):
                way = (group.implementation, group.device_class, group.request[0], group.request[2])
                ways.setdefault(way, []).append((group.completed, group.request))
        found = self._requests[query.app].get((query.implementation, query.device, nodes, gpus), [])
        return replace(query, request=max(found)[1]) if found else query

    def sample(self, query: Query) -> Sample:
        """The averages and newest runs that an answer may rest on, read once after each change."""
        kept = self._samples.setdefault(query.app, {})
        place = (query.implementation, query.device)
        if place not in kept:
            where = (query.app, *place)
            recent = self._recent.setdefault(where, RecentRuns())
            recent.update(self.history.recent(*where, MAX_RUNS))
            kept[place] = Sample([a for a in self.history.aggregates(*where, MAX_KEYS) if a.count], recent)
        return kept[place]

    @abstractmethod
    def answer(self, query: Query) -> Prediction | None:
        """The prediction, made anew."""
