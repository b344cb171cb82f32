"""``memory``: the peak memory of a job, learned from the peaks of runs before it, and what to reserve for it.

It stands on what the models of run times stand on (`dovetail.runtimes.base`): the same identity of an app,
implementation, class, request and inputs, the same history, the same answers while nothing changes. A peak is
that of all processes of a job on a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dovetail.files.arrays import np
from dovetail.history.base import request_key
from dovetail.interfaces import History
from dovetail.model import Prediction, Run
from dovetail.records import dataclass
from dovetail.runtimes.base import HistoryModel, Query, category_inputs, numeric_inputs, scalar_size
from dovetail.runtimes.peaks import KILL_RISK, LIKE_LARGEST, AppPeaks, Forecast, make_forecasts

MOST_PEAKS = 128
"""Newest runs of an app, implementation and class that are looked at."""
FEW = 5
"""Runs below which little is known of an app."""
SAME = 4
"""Runs of the same words from which on others are left aside."""
PRODUCT = "all sizes"
"""The product of all numeric inputs, a size of its own."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Bytes to reserve for a job on each of its nodes, and why.

    ``chance`` is the probability of a kill by the runs (``None`` where there are none), ``peak`` the
    prediction of the peak.
    """

    amount: int
    chance: float | None
    peak: Prediction | None
    basis: str


def second_try(killed: float, largest_peak: float, machine: float) -> float:
    """Bytes that a job gets which was killed while it held ``killed``: as good as never too little.

    All of the ``machine`` (the largest node that it may run on; in a trace the largest request so far), and
    twice what was seen to be too little or enough where that is more: a second kill costs another whole run,
    and there are few of them.
    """
    return max(machine, 2.0 * killed, 2.0 * largest_peak)


class MemoryModel(HistoryModel):
    """Predicts peaks in bytes; see `dovetail.runtimes.peaks` for the laws and the cheapest amount."""

    def __init__(self, history: History, measure: Callable[[Run], float | None] | None = None) -> None:
        super().__init__(history)
        self._measure = measure or peak_of
        self._known: dict[Query, tuple[object, list[Forecast]]] = {}

    def make_prediction(self, query: Query) -> Prediction | None:
        """The peak in bytes with its 90 % interval, by the law that the cheapest reservation rests on."""
        found = self._law_forecasts(query)
        if not found:
            return None
        largest = float(found[0].known.peaks.max())
        # By the law whose reservation would have been cheapest, so that what is shown is what is used.
        return _law_prediction(min(found, key=lambda law: law.cheapest_amount(2.0 * largest)[1]))

    def choose_reservation(
        self,
        query: Query,
        *,
        request: float,
        machine: float,
        risk: float = KILL_RISK,
        most: float | None = None,
    ) -> Reservation:
        """What to reserve for a first try.

        ``request`` is what a person would reserve, taken where nothing is known; ``machine`` what a second
        try gets at least; ``most`` is never exceeded (default: the request, and a little more than the
        largest peak). Microseconds while the app's history stays as it is, else below a millisecond.
        """
        found = self._law_forecasts(query)
        if not found:
            return Reservation(int(request), None, None, "no run yet: as requested")
        largest = float(found[0].known.peaks.max())
        second = second_try(0.0, largest, machine)
        chosen, amount, least = found[0], 0.0, np.inf
        for law in found:
            candidate, past = law.cheapest_amount(second, risk)
            if past < least:
                chosen, amount, least = law, candidate, past
        # From so few runs no law can be fitted: memory may grow as the inputs do.
        amount *= chosen.growth
        # A law that leads far beyond all runs is no reason to hold more than any job ever requested.
        amount = min(amount, max(request, LIKE_LARGEST * largest) if most is None else most)
        peak = _law_prediction(chosen)
        return Reservation(int(amount), chosen.chance_above(amount), peak, peak.basis)

    def _law_forecasts(self, query: Query) -> list[Forecast]:
        """The forecast of each law; kept until the app's history changes."""
        stamp = self.history.app_stamp(query.app)
        kept = self._known.get(query)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        if len(self._known) >= MOST_PEAKS:
            self._known.clear()
        with self.history.hold_still():
            resolved = self._resolve_query(query)
            place = (resolved.app, resolved.implementation, resolved.device)
            # Failed runs are not in `recent`: a peak of a run that was killed is only a lower bound.
            runs = [run for run in self.history.recent(*place, MOST_PEAKS) if self._measure(run) is not None]
        found = _laws_of(_comparable_runs(runs, resolved), resolved, self._measure)
        self._known[query] = (stamp, found)
        return found


def peak_of(run: Run) -> float | None:
    """The measured peak of a run in bytes, where there is one."""
    usage = run.usage
    if usage is None or usage.peak_memory is None or usage.peak_memory <= 0:
        return None
    return float(usage.peak_memory)


def device_peak_of(run: Run) -> float | None:
    """The measured peak of a run on a device in bytes, where there is one."""
    usage = run.usage
    return float(usage.gpu_memory) if usage is not None and usage.gpu_memory else None


def _comparable_runs(runs: Sequence[Run], query: Query) -> Sequence[Run]:
    """The runs closest to a query: of its request and its words, where there are enough of them."""
    same = [run for run in runs if request_key(run) == query.request] or runs
    words = category_inputs(query.inputs)
    alike = [run for run in same if _word_inputs(run) == words]
    return alike if len(alike) >= SAME else same


def _word_inputs(run: Run) -> tuple[tuple[str, str], ...]:
    """The inputs of a run that are words, by name."""
    words = [(name, value) for name, value in run.inputs.items() if isinstance(value, str)]
    return tuple(sorted(words)) if words else ()


def _laws_of(runs: Sequence[Run], query: Query, measure: Callable[[Run], float | None]) -> list[Forecast]:
    given = dict(numeric_inputs(query.inputs))
    # Runs that lack one of the numbers cannot be put beside it.
    names = [name for name in given if all(isinstance(run.inputs.get(name), int | float) for run in runs)]
    columns = {name: np.array([float(run.inputs[name]) for run in runs]) for name in names}
    sizes = {name: given[name] for name in names}
    product = scalar_size(query.inputs)
    # One size alone is the product already.
    if len(names) > 1 and product is not None:
        columns[PRODUCT] = np.prod(np.array(list(columns.values())), axis=0)
        sizes[PRODUCT] = product
    peaks = np.array([measure(run) or 0.0 for run in runs])
    seconds = np.array([max(run.seconds, 1e-3) for run in runs])
    return make_forecasts(AppPeaks(peaks, seconds, columns), sizes)


def _law_prediction(law: Forecast) -> Prediction:
    low, high = law.peak_interval()
    expected = law.expected
    count = len(law.misses)
    runs = "1 run" if count == 1 else f"{count} runs"
    return Prediction(expected, max(high, expected), count, f"{law.law} of {runs}", min(low, expected))
