"""One map that runs: what was asked of it, what is known beforehand, its thread, what it hands over."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dovetail.errors import DovetailError, DovetailWarning, HistoryError, InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.checking import Checker
from dovetail.mapping.crew import Crew, Slot, WorkerTask
from dovetail.mapping.delivery import Delivery
from dovetail.mapping.folding import Fold
from dovetail.mapping.function import Function, ship
from dovetail.mapping.health import Health
from dovetail.mapping.hiring import Workers
from dovetail.mapping.learning import BYTES, COST, Lessons, natural_sizes
from dovetail.mapping.outcomes import Outcomes
from dovetail.mapping.pace import Pace
from dovetail.mapping.progress import ProgressBar, wanted
from dovetail.mapping.running import Work
from dovetail.mapping.scheduler import MapScheduler, Options
from dovetail.mapping.source import SequenceSource, Source, source_of
from dovetail.mapping.summary import Tally
from dovetail.mapping.units import InUse
from dovetail.mapping.waiting import ByNode, BySize, InTurn, Waiting
from dovetail.model import State
from dovetail.splitting.finish_time import Floats

if TYPE_CHECKING:
    from dovetail.mapping.run import MapJob

__all__ = ["Errors", "HistoryLike", "Plan", "Session"]

SEGMENTS = 64
"""Batches of results that wait for whoever uses them, and as many again for each `MORE` workers."""
MORE = 16
SHOWN = 10
"""Failed items that are named."""
POLL = 0.25
"""Seconds between looks whether others have given back what the workers need."""
MOST_BYTES = 512 << 20
"""Bytes of results that wait, beyond what the next batches bring."""

Errors = Literal["raise", "return", "skip"]
HistoryLike = str | os.PathLike[str] | SqliteHistory | Literal[False] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All that was asked of a map."""

    function: Function
    items: Iterable[Any]
    workers: Workers
    ordered: bool
    common: Mapping[str, Any]
    cost: Callable[[Any], float] | Sequence[float] | None
    options: Options
    errors: Errors
    verify: float
    agree: Callable[[Any, Any], bool] | None
    progress: bool | None
    history: HistoryLike


class Session:
    """A map that runs: its thread, and what it hands over. It knows nothing of the `Map` that shows it."""

    def __init__(self, plan: Plan, fold: Fold | None) -> None:
        self.plan, self.fold = plan, fold
        kinds = list(plan.function.implementations)
        self._crew = plan.workers.crew(kinds)
        with ExitStack() as undo:
            undo.callback(plan.workers.release)
            self._prepare(plan, fold)
            undo.pop_all()

    def _prepare(self, plan: Plan, fold: Fold | None) -> None:
        crew = self._crew
        used = dict.fromkeys(slot.kind for slot in crew.slots)
        job = WorkerTask({kind: ship(plan.function, kind) for kind in used}, Work(plan.common, fold))
        most = SEGMENTS * (1 + len(crew.slots) // MORE)
        ordered = plan.ordered and fold is None
        self.delivery = Delivery(ordered, most, MOST_BYTES, crew.wake)
        self.tally: Tally | None = None
        self.health = Health()
        self.checker = Checker(plan.verify, list(used), plan.agree)
        if plan.verify and len(used) < 2:
            raise InputError("found workers of one kind, expected two to compare", where="verify")
        self.began = time.monotonic()
        self.seconds = 0.0
        self.workers = [slot.name for slot in crew.slots]
        self._slots: Sequence[Slot] = list(crew.slots)
        self._job: MapJob | None = None
        self._unseen = False
        # The driver and all that it needs, while the workers start and begin.
        self._importing = threading.Thread(target=import_module, args=("dovetail.mapping.run",), daemon=True)
        self.thread = threading.Thread(target=self._work, args=(job,), name="dovetail-map", daemon=True)
        self.thread.start()

    def _work(self, job: WorkerTask) -> None:
        """The map's own thread."""
        error: BaseException | None = None
        try:
            try:
                self._drive(job)
            finally:
                self.seconds = time.monotonic() - self.began
                self.plan.workers.release()
        except BaseException as caught:  # noqa: BLE001 - raised where the map is used
            error = caught
        self.delivery.end(error)

    def _drive(self, job: WorkerTask) -> None:
        plan, crew = self.plan, self._crew
        if not self._begun(job):  # workers start while the history is read
            return
        with ExitStack() as stack:
            history = _open_history(plan.history, stack)
            start = _start(plan, crew, history)
            stack.callback(start.source.close)
            self.tally = start.tally
            bar = ProgressBar(at_once=bool(plan.progress)) if wanted(plan.progress) else None
            if bar is not None:
                stack.callback(bar.close)
            stack.callback(self.health.end)
            if history is not None:
                self._importing.start()
            outcomes = Outcomes(
                crew,
                start.waiting,
                self.delivery,
                start.tally,
                self.health,
                self.checker,
                self.fold,
                plan.options.retries,
            )
            scheduler = MapScheduler(
                crew,
                start.waiting,
                start.source,
                self.delivery,
                start.pace,
                start.tally,
                plan.options,
                self.checker,
                self.health,
                outcomes,
                _both(bar, None if history is None else lambda _: self._note(history, start.inputs)),
            )
            why = "its thread was ended"
            try:
                scheduler.run()
                if start.source.error is not None:
                    raise start.source.error
                why = ""
            except Exception as error:
                why = str(error) or type(error).__name__
                raise
            finally:
                for copy in scheduler.running():
                    crew.kill(copy.slot, "the map has ended")
                self.seconds = time.monotonic() - self.began
                _record(start.lessons, start.tally)
                if history is not None:
                    self._note(history, start.inputs, wait=True)
                    self._end_job(scheduler, why)

    def _note(self, history: SqliteHistory, inputs: Mapping[str, float], *, wait: bool = False) -> None:
        """The map as a job of the driver, begun as soon as what that needs is imported (or now: ``wait``)."""
        if wait:
            self._importing.join()
        if self._importing.is_alive():
            return
        if self._job is None and not self._unseen:
            from dovetail.mapping.run import begin

            plan, workers = self.plan, self.plan.workers
            name, rule = plan.function.name, plan.options.rule.name
            workers.run, self._job = begin(workers.run, name, rule, inputs, self._slots, history, self.began)
            self._unseen = self._job is None
        if self._job is not None:
            self._job.note(self.items_of_job)

    def _end_job(self, scheduler: MapScheduler, why: str) -> None:
        if self._job is None:
            return
        tally = scheduler.tally
        state, detail = State.COMPLETED, ""
        if why or tally.failed:
            state, detail = State.FAILED, why or f"{len(tally.failed)} of its items failed"
        elif scheduler.waiting.left or scheduler.unfinished():
            state, detail = State.CANCELLED, "it was closed before all items were done"
        try:
            self._job.end(state, detail, self.items_of_job)
        except (DovetailError, OSError) as error:
            warnings.warn(f"how the map ended was not kept: {error}", DovetailWarning, stacklevel=1)

    def items_of_job(self) -> dict[str, Any]:
        """What ``explain`` shows of the items."""
        assert self.tally is not None
        seconds = self.seconds or time.monotonic() - self.began
        found = self.tally.summary(seconds, self.workers, self.checker.compared, self.health)
        failed = [dict(one) for one in found.failed[:SHOWN]]
        reasons = {kind: str(failure) for kind, failure in self.health.reasons().items()}
        return {**asdict(found), "failed": failed, "failed_items": len(found.failed), "reasons": reasons}

    def _begun(self, job: WorkerTask) -> bool:
        """Begin as soon as no other Dovetail uses what the workers need; whether anybody still wants that."""
        said = False
        while not self.delivery.closed:
            try:
                self._crew.begin(job)
            except InUse as busy:
                if not said:
                    said = True
                    warnings.warn(f"{busy}: the map waits for that", DovetailWarning, stacklevel=1)
                self._crew.wait(POLL)
            else:
                self.began = time.monotonic()
                return True
        return False


def _both(*shown: Callable[[MapScheduler], None] | None) -> Callable[[MapScheduler], None] | None:
    """All that are to see how far the map is, as one."""
    some = [one for one in shown if one is not None]

    def show(scheduler: MapScheduler) -> None:
        for one in some:
            one(scheduler)

    return show if some else None


@dataclass(frozen=True, slots=True)
class _Start:
    """How a map begins: where items come from, in what order, what is known of their times."""

    source: Source
    waiting: Waiting
    pace: Pace
    tally: Tally
    lessons: Lessons
    inputs: Mapping[str, float]
    """What the time of the whole map is predicted from: how many items, and their size in all."""


def _start(plan: Plan, crew: Crew, history: SqliteHistory | None) -> _Start:
    """Look at the items and at what the history knows of them."""
    source = source_of(plan.items, crew.wake)
    places = {slot.kind: slot.place for slot in crew.slots}
    counts = {kind: sum(slot.kind == kind for slot in crew.slots) for kind in places}

    def start(
        waiting: Waiting, lessons: Lessons, known: Mapping[str, float], sizes: Floats | None = None
    ) -> _Start:
        tally = Tally(known, None if sizes is None else sizes.__getitem__)
        inputs = {} if items is None else {"items": float(len(items))}
        if sizes is not None:
            inputs[lessons.feature] = float(sizes.sum())
        return _Start(source, waiting, Pace(counts, known), tally, lessons, inputs)

    name = plan.function.name
    items: Sequence[Any] | None = plan.items if isinstance(source, SequenceSource) else None  # type: ignore[assignment]
    if plan.cost is not None:
        items = list(plan.items) if items is None else items
        costs = _costs(plan.cost, items)
        lessons = Lessons(history, name, COST)
        by_cost = BySize(items, dict.fromkeys(places, costs), ordered=plan.ordered)
        return start(by_cost, lessons, lessons.per_unit(places, costs), costs)
    nodes = None if items is None or plan.ordered else crew.whereabouts(items)
    sizes = None if items is None or nodes is not None else natural_sizes(items)
    if items is None or sizes is None:
        lessons = Lessons(history, name)
        waiting = InTurn(source) if items is None or nodes is None else ByNode(items, nodes)
        return start(waiting, lessons, lessons.seconds(places))
    lessons = Lessons(history, name, BYTES)
    laws = lessons.laws(places, sizes)
    if laws is None:
        return start(InTurn(source), lessons, {}, sizes)
    if float(sizes.min()) == float(sizes.max()):
        return start(InTurn(source), lessons, {kind: float(law[0]) for kind, law in laws.items()}, sizes)
    return start(BySize(items, laws, ordered=plan.ordered), lessons, dict.fromkeys(places, 1.0), sizes)


def _costs(cost: Callable[[Any], float] | Sequence[float], items: Sequence[Any]) -> Floats:
    """The cost of each item. Raises `InputError`."""
    found = np.array([cost(item) for item in items] if callable(cost) else list(cost), dtype=float)
    if found.shape != (len(items),):
        raise InputError(f"found {found.size} costs for {len(items)} items, expected one each", where="cost")
    if not (np.isfinite(found).all() and (found > 0).all()):
        wrong = int(np.flatnonzero(~(np.isfinite(found) & (found > 0)))[0])
        raise InputError(f"found {found[wrong]} for item {wrong}, expected a number above 0", where="cost")
    return found


def _open_history(given: HistoryLike, stack: ExitStack) -> SqliteHistory | None:
    if given is False:
        return None
    if isinstance(given, SqliteHistory):
        return given
    return stack.enter_context(SqliteHistory(None if given is None else Path(given)))


def _record(lessons: Lessons, tally: Tally) -> None:
    try:
        lessons.record(tally)
    except HistoryError as error:  # the results are there: that nothing was learned is not worth losing them
        warnings.warn(f"what the map measured was not kept: {error}", stacklevel=1)
