"""One map that runs: its request, what is known beforehand, its thread, what it hands over."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import DovetailError, DovetailWarning, HistoryError, InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.checking import Checker
from dovetail.mapping.crew import Crew
from dovetail.mapping.delivery import Delivery
from dovetail.mapping.folding import Fold
from dovetail.mapping.function import ship_implementation
from dovetail.mapping.health import Health
from dovetail.mapping.learning import BYTES, COST, Lessons, natural_sizes
from dovetail.mapping.outcomes import Outcomes
from dovetail.mapping.pace import Pace
from dovetail.mapping.places import InUse
from dovetail.mapping.progress import ProgressBar, wants_bar
from dovetail.mapping.running import Work
from dovetail.mapping.scheduler import HistoryLike, MapScheduler, Plan
from dovetail.mapping.summary import MapSummary, Tally
from dovetail.mapping.waiting import ByNode, BySize, InTurn, Items, Waiting
from dovetail.model import State
from dovetail.records import dataclass
from dovetail.splitting.finish_time import Floats

_log = logging.getLogger(__name__)

# The driver and all that it needs: imported while the workers start.
if TYPE_CHECKING:
    from dovetail.mapping.run import MapRun

SEGMENTS = 64
"""Batches of results that wait for their consumer, and as many again for each `MORE` workers."""
MORE = 16
SHOWN = 10
"""Failed items that are named."""
POLL = 0.25
"""Seconds between looks whether others have given back what the workers need."""
MOST_BYTES = 512 << 20
"""Bytes of results that wait, beyond what the next batches bring."""


class Session:
    """A map that runs: its thread, and what it hands over. It knows nothing of the `Map` that shows it."""

    def __init__(self, plan: Plan, fold: Fold | None) -> None:
        self.plan, self.fold = plan, fold
        self._crew = crew = plan.workers.crew_for_kinds(list(plan.function.implementations))
        with ExitStack() as undo:
            # Whatever fails below, workers that others may use go back.
            undo.callback(plan.workers.release)
            self._slots = list(crew.slots)
            kinds = list(dict.fromkeys(slot.kind for slot in crew.slots))
            shipped = {kind: ship_implementation(plan.function, kind) for kind in kinds}
            most = SEGMENTS * (1 + len(crew.slots) // MORE)
            self.delivery = Delivery(plan.ordered and fold is None, most, MOST_BYTES, crew.end_wait)
            self._tally: Tally | None = None
            self._health = Health()
            self._checker = Checker(plan.verify, kinds, plan.agree)
            if plan.verify and len(kinds) < 2:
                raise InputError("found workers of one kind, expected two to compare", where="verify")
            self._began, self._seconds = time.monotonic(), 0.0
            self.thread = threading.Thread(
                target=self._work_in_thread, args=(shipped,), name="dovetail-map", daemon=True
            )
            self.thread.start()
            undo.pop_all()

    @property
    def summary(self) -> MapSummary:
        """What was done so far, or in all."""
        if self._tally is None:
            return MapSummary()
        seconds = self._seconds or time.monotonic() - self._began
        workers = [slot.name for slot in self._slots]
        return self._tally.make_summary(seconds, workers, self._checker.compared, self._health)

    def _work_in_thread(self, shipped: Mapping[str, bytes]) -> None:
        """The map's own thread."""
        error: BaseException | None = None
        try:
            try:
                # Workers start while the history is read.
                if self._begin_when_free(shipped):
                    self._drive_map()
            finally:
                self._seconds = time.monotonic() - self._began
                self.plan.workers.release()
        except BaseException as caught:  # noqa: BLE001 - raised where the map is used
            error = caught
        self.delivery.end(error)

    def _begin_when_free(self, shipped: Mapping[str, bytes]) -> bool:
        """Begin as soon as no other Dovetail uses what the workers need; whether anybody still wants that."""
        noted = False
        while not self.delivery.closed:
            try:
                self._crew.begin_map(shipped, Work(self.plan.common, self.fold))
            except InUse as busy:
                if not noted:
                    noted = True
                    warnings.warn(f"{busy}: the map waits for that", DovetailWarning, stacklevel=1)
                self._crew.wait(POLL)
            else:
                self._began = time.monotonic()
                _log.info("a map of %s begins on %d workers", self.plan.function.name, len(self._slots))
                return True
        return False

    def _drive_map(self) -> None:
        plan, crew, health = self.plan, self._crew, self._health
        with ExitStack() as stack:
            history = _open_history(plan.history, stack)
            start = _prepare_start(plan, crew, history)
            stack.callback(start.items.close)
            stack.callback(health.end)
            tally = self._tally = start.tally
            shown: list[Callable[[MapScheduler], None]] = []
            if wants_bar(plan.progress):
                bar = ProgressBar(at_once=bool(plan.progress))
                stack.callback(bar.close)
                shown.append(bar)
            job = None if history is None else self._as_job(history, start.inputs)
            if job is not None:
                shown.append(lambda _: job.note_progress(self._progress_form))
            outcomes = Outcomes(
                crew, start.waiting, self.delivery, tally, health, self._checker, self.fold,
                plan.retries,
            )  # fmt: skip
            scheduler = MapScheduler(
                crew, start.waiting, start.items, self.delivery, start.pace, tally, plan,
                self._checker, health, outcomes, shown,
            )  # fmt: skip
            why = "its thread was ended"
            try:
                scheduler.run()
                if start.items.error is not None:
                    raise start.items.error
                why = ""
            except Exception as error:
                why = str(error) or type(error).__name__
                raise
            finally:
                # Copies of stragglers still run: their results are of no use, and their places are.
                for copy in scheduler.running():
                    crew.kill(copy.slot, "the map has ended")
                self._seconds = time.monotonic() - self._began
                try:
                    start.lessons.record(tally)
                except HistoryError as error:
                    # That nothing was learned is not worth losing the results.
                    warnings.warn(f"what the map measured was not kept: {error}", stacklevel=1)
                _log.info(
                    "the map of %s ends after %.3g s%s",
                    *(plan.function.name, self._seconds, f": {why}" if why else ""),
                )
                if job is not None:
                    left = bool(scheduler.waiting.left or scheduler.count_unfinished())
                    self._end_job(job, why, left=left)

    def _as_job(self, history: SqliteHistory, inputs: Mapping[str, float]) -> MapRun | None:
        """The map as a job of the driver, of the run that its workers have already or of a new one.

        Where nothing can be kept on this machine the map goes on unseen, with a warning.
        """
        from dovetail.mapping.run import MapRun, cluster_of

        run, name, rule = self.plan.workers.run, self.plan.function.name, self.plan.rule.name
        try:
            # Workers of another shape mean another cluster, so another run.
            if run is None or run.cluster.nodes != cluster_of(self._slots).nodes:
                run = MapRun(self._slots, name, rule, Path(history.path), self._began)
            run.begin_run(name, inputs, self._slots, history, self._began)
        except (DovetailError, OSError) as error:
            warnings.warn(f"the map is not seen by 'dovetail runs': {error}", DovetailWarning, stacklevel=1)
            run = None
        self.plan.workers.run = run
        return run

    def _end_job(self, job: MapRun, why: str, *, left: bool) -> None:
        assert self._tally is not None
        state, detail = State.COMPLETED, ""
        if why or self._tally.failed:
            state, detail = State.FAILED, why or f"{len(self._tally.failed)} of its items failed"
        elif left:
            state, detail = State.CANCELLED, "it was closed before all items were done"
        try:
            job.end(state, detail, self._progress_form)
        except (DovetailError, OSError) as error:
            warnings.warn(f"how the map ended was not kept: {error}", DovetailWarning, stacklevel=1)

    def _progress_form(self) -> dict[str, Any]:
        """What ``explain`` shows of the items."""
        found = self.summary
        reasons = {kind: str(failure) for kind, failure in self._health.last_failures().items()}
        failed = [dict(one) for one in found.failed[:SHOWN]]
        return {**asdict(found), "failed": failed, "failed_items": len(found.failed), "reasons": reasons}


@dataclass(frozen=True, slots=True)
class _Start:
    """How a map begins: where items come from, in what order, what is known of their times."""

    items: Items
    waiting: Waiting
    pace: Pace
    tally: Tally
    lessons: Lessons
    inputs: Mapping[str, float]
    """What the time of the whole map is predicted from: how many items, and their size in all."""


def _prepare_start(plan: Plan, crew: Crew, history: SqliteHistory | None) -> _Start:
    """Look at the items and at what the history knows of them."""
    given = Items(plan.items, crew.end_wait)
    places = {slot.kind: slot.place for slot in crew.slots}
    counts = {kind: sum(slot.kind == kind for slot in crew.slots) for kind in places}

    def make_start(
        waiting: Waiting, lessons: Lessons, known: Mapping[str, float], sizes: Floats | None = None
    ) -> _Start:
        tally = Tally(known, None if sizes is None else sizes.__getitem__)
        inputs = {} if items is None else {"items": float(len(items))}
        if sizes is not None:
            inputs[lessons.feature] = float(sizes.sum())
        return _Start(given, waiting, Pace(counts, known), tally, lessons, inputs)

    name = plan.function.name
    items = given.sequence
    if plan.cost is not None:
        items = list(plan.items) if items is None else items
        costs = _item_costs(plan.cost, items)
        lessons = Lessons(history, name, COST)
        by_cost = BySize(items, dict.fromkeys(places, costs), ordered=plan.ordered)
        return make_start(by_cost, lessons, lessons.per_unit(places, costs), costs)
    nodes = None if items is None or plan.ordered else crew.nodes_of_items(items)
    sizes = None if items is None or nodes is not None else natural_sizes(items)
    if items is None or sizes is None:
        lessons = Lessons(history, name)
        waiting = InTurn(given) if items is None or nodes is None else ByNode(items, nodes)
        return make_start(waiting, lessons, lessons.seconds(places))
    lessons = Lessons(history, name, BYTES)
    laws = lessons.predicted_laws(places, sizes)
    # Without a law the sizes are kept all the same: the next map may have one.
    if laws is None:
        return make_start(InTurn(given), lessons, {}, sizes)
    # Of one size, the order is of no use, and batches are cut faster in turn.
    if float(sizes.min()) == float(sizes.max()):
        return make_start(InTurn(given), lessons, {kind: float(law[0]) for kind, law in laws.items()}, sizes)
    return make_start(BySize(items, laws, ordered=plan.ordered), lessons, dict.fromkeys(places, 1.0), sizes)


def _item_costs(cost: Callable[[Any], float] | Sequence[float], items: Sequence[Any]) -> Floats:
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
