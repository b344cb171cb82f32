"""What every learned model shares: which runs it sees, how inputs become numbers, what is cached."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from operator import is_
from typing import cast

from dovetail.files.arrays import Floats, np
from dovetail.history.base import (
    Aggregate,
    InputsKey,
    MeasuredHistory,
    RequestKey,
    canonical_inputs,
    request_key,
)
from dovetail.history.memory import AveragedHistory
from dovetail.interfaces import History
from dovetail.model import DeviceClass, Implementation, Job, Prediction, Request, Run, Seconds
from dovetail.model.frozen import frozen

MAX_KEYS = 512
"""Newest keys of an app, implementation and class that a fit looks at: bounds its time."""
MAX_RUNS = 256
"""Newest runs of an app, implementation and class that a fit looks at."""
MARGIN = 64
"""So many more are read: a fit may look at what there was as many runs ago (`dovetail.runtimes.learned`)."""
MAX_ALIKE = 4096
"""Answers that are remembered by their query, until anything changes."""
Measure = Callable[[Run], Seconds | None]
TINY: Seconds = 1e-9
"""No prediction is below this: run times are positive."""


def numeric_inputs(inputs: InputsKey) -> tuple[tuple[str, float], ...]:
    """The numeric inputs, by name."""
    return tuple((name, value) for name, value in inputs if not isinstance(value, str))


def category_inputs(inputs: InputsKey) -> tuple[tuple[str, str], ...]:
    """The inputs that are words, by name."""
    return tuple((name, value) for name, value in inputs if isinstance(value, str))


def input_shape(inputs: InputsKey) -> Hashable:
    """What must agree for two inputs to be compared by size: categories, and the numbers' names."""
    return shape_and_size(inputs)[0]


def shape_and_size(inputs: InputsKey) -> tuple[Hashable, float | None]:
    """`input_shape` and `scalar_size` in one pass."""
    words: list[tuple[str, str]] = []
    names: list[str] = []
    product: float | None = None
    for name, value in inputs:
        if isinstance(value, str):
            words.append((name, value))
            continue
        names.append(name)
        # A product over numbers of 0 or below would have no logarithm.
        if value > 0:
            product = value if product is None else product * value
    size = product if product is not None and 0 < product < math.inf else None
    return (tuple(words), tuple(names)), size


def scalar_size(inputs: InputsKey) -> float | None:
    """One size for all numeric inputs: their product, which for two sides of an array is its elements.

    Numbers of 0 or below cannot scale anything and are left out; ``None`` without any size.

    >>> scalar_size((("columns", 30.0), ("kind", "dense"), ("rows", 20.0)))
    600.0
    """
    return shape_and_size(inputs)[1]


@frozen(frozen=True, slots=True)
class Query:
    """A question to a model: which app, implementation, class and request, with which inputs."""

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
            # Doubling makes adding O(1) on average; the view of before stays valid for who holds it.
            kept = self.values()
            self._kept = np.empty(2 * len(kept) + 8)
            self._kept[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        self._kept[self._end] = math.log(max(seconds, TINY))
        self._end += 1

    def drop_oldest(self) -> None:
        """Lose the oldest one."""
        self._start += 1

    def values(self) -> Floats:
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


def run_time(run: Run) -> Seconds | None:
    """The usual measure of a run."""
    return run.seconds


class RecentRuns:
    """The newest runs of one (app, implementation, class) by key, carried forward from look to look.

    ``measure`` is what counts of a run; runs that lack it are left out.
    """

    def __init__(self, runs: Sequence[Run] = (), measure: Measure = run_time) -> None:
        self._measure = measure
        self._runs: Sequence[Run] = ()
        self._by_key: dict[tuple[RequestKey, InputsKey], KeyTimes] = {}
        self._last: Run | None = None
        self._last_key: tuple[RequestKey, InputsKey] = ((0, 0, 0.0), ())
        self.update(runs)

    def update(self, runs: Sequence[Run]) -> RecentRuns:
        """Look at the newest runs again. O(1) for each that came or went, where the others are the same."""
        old, new = self._runs, runs
        self._runs = runs
        came = 0
        # By identity, from the newest end: runs stay the same objects while the history is carried forward.
        while old and came < len(new) and new[-1 - came] is not old[-1]:
            came += 1
        gone = len(old) + came - len(new)
        # Anything else than a shift (runs forgotten, another history): all is counted anew.
        if not old or came == len(new) or gone < 0 or new[0] is not old[gone]:
            self._by_key.clear()
            came, gone = len(new), 0
        for run in old[:gone]:
            if self._measure(run) is None:
                continue
            key = self._key_of(run)
            times = self._by_key[key]
            times.of(run).drop_oldest()
            if not (times.warm or times.cold):
                del self._by_key[key]
        for run in new[len(new) - came :]:
            measured = self._measure(run)
            if measured is None:
                continue
            key = self._key_of(run)
            known = self._by_key.get(key)
            if known is None:
                known = self._by_key[key] = KeyTimes()
            known.of(run).add(measured)
        return self

    def _key_of(self, run: Run) -> tuple[RequestKey, InputsKey]:
        """`key_of`; runs that follow each other mostly share their inputs and request."""
        last = self._last
        # Sorting inputs for each run would be most of the time of an update.
        if last is None or run.inputs is not last.inputs or request_key(run) != self._last_key[0]:
            self._last, self._last_key = run, key_of(run)
        return self._last_key

    @property
    def runs(self) -> Sequence[Run]:
        """All of them, oldest first."""
        return self._runs

    def log(self, run: Run) -> float | None:
        """Logarithm of what counts of a run."""
        measured = self._measure(run)
        return None if measured is None else math.log(max(measured, TINY))

    @property
    def by_key(self) -> Mapping[tuple[RequestKey, InputsKey], KeyTimes]:
        """The times of each key that has any."""
        return self._by_key


def key_of(run: Run) -> tuple[RequestKey, InputsKey]:
    """(request, inputs) under which history keeps a run."""
    return request_key(run), canonical_inputs(run.inputs)


class Averages:
    """Averages by key, and the ``fits`` to them: kept from those ``before`` where no run has been added."""

    __slots__ = ("_runs", "aggregates", "fits")

    def __init__(self, aggregates: Sequence[Aggregate], before: Averages | None) -> None:
        self.aggregates = aggregates
        self._runs = sum([a.count for a in aggregates])
        self.fits: dict[Hashable, object] = before.fits if before and self._are_same_averages(before) else {}

    def _are_same_averages(self, before: Averages) -> bool:
        """Whether these are the very averages that were before, of as many runs."""
        mine, others = self.aggregates, before.aggregates
        return self._runs == before._runs and len(mine) == len(others) and all(map(is_, mine, others))


class Sample:
    """What is known of one (app, implementation, class): averages by key, the newest runs; read on demand.

    ``average`` reads the one, ``read`` the other.
    """

    __slots__ = ("_average", "_averages", "_read", "_recent")

    def __init__(self, average: Callable[[], Averages], read: Callable[[], RecentRuns]) -> None:
        self._average = average
        self._read = read
        self._averages: Averages | None = None
        self._recent: RecentRuns | None = None

    @property
    def sample_averages(self) -> Averages:
        """The averages and what was fitted to them; read at the first question."""
        if self._averages is None:
            self._averages = self._average()
        return self._averages

    @property
    def recent(self) -> RecentRuns:
        """The newest runs; read at the first question."""
        if self._recent is None:
            self._recent = self._read()
        return self._recent


def measured_history(history: History) -> MeasuredHistory:
    """The history itself if it keeps averages, else a view that computes them from its runs."""
    return history if isinstance(history, MeasuredHistory) else AveragedHistory(history)


class Pending(ABC):
    """An answer that changes with what runs beside it: known but for the present moment."""

    __slots__ = ()

    @abstractmethod
    def now(self) -> Prediction:
        """The prediction at this moment. Microseconds."""


_UNKNOWN = object()
# Implementation, kind and model of the class, request, inputs, walltime: hashed without a call into Python.
_Asked = tuple[str, str, str, RequestKey, InputsKey, Seconds | None]
# Without rounds each question looks for other processes' runs.
_AS_EVER = nullcontext()
_Ways = tuple[str, DeviceClass, int, float]


class HistoryModel(ABC):
    """A runtime model over a history; subclasses predict in `make_prediction`.

    Answers are cached by query until the history of that app changes. A cached answer costs a
    few microseconds.
    """

    def __init__(self, history: History) -> None:
        self.history = measured_history(history)
        self._rounds = False
        self._stamps: dict[str, Hashable] = {}
        self._samples: dict[str, dict[tuple[str, DeviceClass], Sample]] = {}
        self._answers: dict[str, dict[_Asked, Prediction | Pending | None]] = {}
        self._recent: dict[tuple[str, str, DeviceClass], RecentRuns] = {}
        self._averages: dict[tuple[str, str, DeviceClass], Averages] = {}
        self._requests: dict[str, dict[_Ways, tuple[int, RequestKey]]] = {}
        self._version = -1
        self._alike: dict[tuple[int, ...], tuple[tuple[object, ...], Prediction | None]] = {}

    @property
    def version(self) -> int:
        """Changes whenever a prediction may have changed: with every run of this process or another.

        Callers read it before a round of predictions, as an engine does at every instant: these
        then look for other processes' runs no more.
        """
        self._rounds = True
        version = self.history.version
        if version != self._version:
            self._version = version
            self._alike.clear()
        return version

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Completed runs of this app and implementation on this class. O(1)."""
        with self._prediction_round():
            return self.history.count(app, implementation, device)

    def _prediction_round(self) -> AbstractContextManager[object]:
        return self.history.hold_still() if self._rounds else _AS_EVER

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The prediction, or ``None`` where nothing is known."""
        if not self._rounds:
            return self._predict_job(job, implementation, request, device)
        # Jobs of an array share all of this; by identity, which what is kept here secures.
        parts = (job.app, job.inputs, job.walltime, implementation, request, device)
        key = tuple(map(id, parts))
        known = self._alike.get(key)
        if known is None:
            if len(self._alike) >= MAX_ALIKE:
                self._alike.clear()
            known = self._alike[key] = parts, self._predict_job(job, implementation, request, device)
        return known[1]

    def _predict_job(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        app = job.app.name
        request_asked = Run.resolved_request(request)
        inputs = canonical_inputs(job.inputs)
        with self._prediction_round():
            answers = self._answers_of(app)
            key = (implementation.name, device.kind, device.model, request_asked, inputs, job.walltime)
            found = answers.get(key, _UNKNOWN)
            if found is _UNKNOWN:
                query = Query(app, implementation.name, device, request_asked, inputs, job.walltime)
                found = answers[key] = self._answer_query(query)
            return found.now() if isinstance(found, Pending) else cast("Prediction | None", found)

    def ask(self, query: Query) -> Prediction | None:
        """The prediction for plain names and numbers (the command line has no `Job`)."""
        answers = self._answers_of(query.app)
        device = query.device
        key = (
            *(query.implementation, device.kind, device.model),
            *(query.request, query.inputs, query.walltime),
        )
        if key not in answers:
            answers[key] = self._answer_query(query)
        found = answers[key]
        return found.now() if isinstance(found, Pending) else found

    def _answer_query(self, query: Query) -> Prediction | Pending | None:
        # One moment for all questions of an answer: averages and runs must be of the same state.
        with self.history.hold_still():
            return self.make_prediction(self._resolve_query(query))

    def _answers_of(self, app: str) -> dict[_Asked, Prediction | Pending | None]:
        """What has been answered since anything of this app changed."""
        stamp = self.history.app_stamp(app)
        if self._stamps.get(app) != stamp:
            self._stamps[app] = stamp
            self._samples[app] = {}
            self._answers[app] = {}
            self._requests.pop(app, None)
        return self._answers[app]

    def _resolve_query(self, query: Query) -> Query:
        """The query with the CPUs that "all of the pool" and "the host's share" stood for when it ran.

        Of several such numbers the one with most runs counts. History knows what a run really held, a
        waiting job only what it requests.
        """
        nodes, cpus, gpus = query.request
        if cpus >= 0:
            return query
        if query.app not in self._requests:
            ways = self._requests[query.app] = {}
            for group in self.history.list_groups(query.app):
                way = (group.implementation, group.device_class, group.request[0], group.request[2])
                held = (group.completed, group.request)
                # The way with most runs; of equals the larger request: the same choice each time.
                ways[way] = max(ways.get(way, held), held)
        found = self._requests[query.app].get((query.implementation, query.device, nodes, gpus))
        if found is None:
            return query
        inputs = query.inputs
        return Query(query.app, query.implementation, query.device, found[1], inputs, query.walltime)

    def read_sample(self, query: Query) -> Sample:
        """The averages and newest runs that an answer may rest on, read once after each change."""
        kept = self._samples.setdefault(query.app, {})
        place = (query.implementation, query.device)
        found = kept.get(place)
        if found is None:
            where = (query.app, *place)
            found = kept[place] = Sample(
                partial(self._read_averages, where), partial(self._newest_runs, where)
            )
        return found

    def _read_averages(self, where: tuple[str, str, DeviceClass]) -> Averages:
        # Keys of failures alone have no average.
        found = [a for a in self.history.list_aggregates(*where, MAX_KEYS + MARGIN) if a.count]
        averages = self._averages[where] = Averages(found, self._averages.get(where))
        return averages

    def _newest_runs(self, where: tuple[str, str, DeviceClass]) -> RecentRuns:
        recent = self._recent.get(where)
        if recent is None:
            recent = self._recent[where] = RecentRuns()
        return recent.update(self.history.recent(*where, MAX_RUNS + MARGIN))

    @abstractmethod
    def make_prediction(self, query: Query) -> Prediction | Pending | None:
        """The prediction, made anew; it stands until the history of the app changes."""
