"""``memory``: the peak memory of a job, learned from the peaks of runs before it, and what to reserve for it.

It stands on what the models of run times stand on (`dovetail.runtimes.base`): the same identity of an app,
implementation, class, request and inputs, the same history, the same answers while nothing changes. A peak is
that of all processes of a job on a node.

Laws can be wrong about a program, and nothing in the runs that made them shows it. So the model keeps an
account: for the newest runs it works out what the laws would have reserved by the runs before each, and what
that would have wasted, beside a plain rule that knows nothing: 1.1 times the largest peak so far. Whichever
would have wasted least reserves: the laws (if clearly less), that rule, or the less of both amounts. With
fewer than two such runs nothing shows that laws are better: where a person's request is known, to which a
kill leads, the less of both amounts is reserved. Where none is, a kill takes a whole node, and the laws stand
with all that they add for having seen little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dovetail.files.arrays import np
from dovetail.history.base import canonical_inputs, request_key
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
ACCOUNT = 32
"""Newest runs of the account …"""
BEFORE = MOST_PEAKS - ACCOUNT
"""… and runs before each that it is reserved for by."""
FEWEST_ACCOUNTED = 2
"""Runs below which the account decides nothing."""
LAWS, LESS_OF_BOTH = 0, 1
"""Places among `_Amounts.rules`: of what reserves then; the second where a person's request is known."""
HANDICAP = (1.1, 1.05, 1.0)
"""What each rule has wasted counts so many times: laws are left unless they are clearly cheaper."""
SEVERAL = 3.0
"""Where a person's request is known, a second try gets so many times what was too little, or seen."""
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


def second_try(killed: float, largest_peak: float, machine: float, requested: float | None = None) -> float:
    """Bytes that a job gets which was killed while it held ``killed``: as good as never too little.

    All of the ``machine`` (the largest node that it may run on; in a trace the largest request so far), and
    twice what was seen to be too little or enough where that is more: a second kill costs another whole run,
    and there are few of them. Where a person's request for it is known, hardly any job needs several times
    that and all that was seen: no more is held then.
    """
    whole = max(machine, 2.0 * killed, 2.0 * largest_peak)
    if requested is None:
        return whole
    return min(whole, max(requested, SEVERAL * killed, SEVERAL * largest_peak))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What `MemoryModel.choose_reservation` is given beside the query."""

    request: float
    machine: float
    risk: float
    most: float | None
    requested: float | None

    def second(self, killed: float, largest: float) -> float:
        """Bytes of a second try."""
        return second_try(killed, largest, self.machine, self.requested)

    def limit(self, largest: float) -> float:
        """The most to reserve: a law that leads beyond all runs is no reason to hold more than requested."""
        return max(self.request, LIKE_LARGEST * largest) if self.most is None else self.most


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Bytes for one run: by the laws, by the largest peak so far, and by the laws with that as the most."""

    laws: float
    largest: float

    @property
    def rules(self) -> tuple[float, float, float]:
        """All three; the first that is cheapest counts."""
        return self.laws, min(self.laws, self.largest), self.largest


class MemoryModel(HistoryModel):
    """Predicts peaks in bytes; see `dovetail.runtimes.peaks` for the laws and the cheapest amount."""

    def __init__(self, history: History, measure: Callable[[Run], float | None] | None = None) -> None:
        super().__init__(history)
        self._measure = measure or peak_of
        self._known: dict[Query, tuple[object, list[Forecast], list[Run]]] = {}
        self._accounts: dict[object, tuple[object, int | None]] = {}
        self._steps: dict[object, dict[int, tuple[Run, _Amounts]]] = {}

    def make_prediction(self, query: Query) -> Prediction | None:
        """The peak in bytes with its 90 % interval, by the law that the cheapest reservation rests on."""
        found, _ = self._law_forecasts(query)
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
        requested: float | None = None,
    ) -> Reservation:
        """What to reserve for a first try.

        ``request`` is what a person would reserve, taken where nothing is known; ``machine`` what a second
        try gets at least, unless ``requested`` is what a person did request (`second_try`); ``most`` is never
        exceeded (default: the request, and a little more than the largest peak). The chance of a kill is at
        most ``risk`` by the laws; where the account shows that these cost too much, `KILL_RISK` and more is
        a matter of the largest peak, too. Microseconds while the app's history stays as it is, else a few
        milliseconds; tens where it is first looked at.
        """
        found, runs = self._law_forecasts(query)
        if not found:
            return Reservation(int(request), None, None, "no run yet: as requested")
        bounds = _Bounds(request, machine, risk, most, requested)
        law, amounts = _amounts_by(found, bounds)
        peak = _law_prediction(law)
        # Who wants fewer kills than usual gets what the laws need for that, whatever it costs.
        unaccounted = LAWS if requested is None or risk < KILL_RISK else LESS_OF_BOTH
        best = self._cheapest_rule(query, runs, bounds) if risk >= KILL_RISK else None
        amount = amounts.rules[unaccounted if best is None else best]
        basis = peak.basis
        if amount != amounts.laws:
            why = "too few runs to fit a curve" if best is None else "fitted curves wasted more"
            basis = f"{LIKE_LARGEST:g} x the largest peak: {why}"
        return Reservation(int(amount), law.chance_above(amount), peak, basis)

    def _cheapest_rule(self, query: Query, runs: Sequence[Run], bounds: _Bounds) -> int | None:
        """Which of `_Amounts.rules` would have wasted least on the newest runs; ``None`` for too few."""
        place = (query.app, query.implementation, query.device, query.request)
        key = (place, category_inputs(query.inputs), bounds)
        stamp = self.history.app_stamp(query.app)
        kept = self._accounts.get(key)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        if len(self._accounts) >= MOST_PEAKS:
            self._accounts.clear()
            self._steps.clear()
        steps, known = self._steps.get(key, {}), {}
        wasted = np.zeros(3)
        first = max(1, len(runs) - ACCOUNT)
        for place_of, run in enumerate(runs[first:], first):
            before = _known_at_start(runs[max(0, place_of - BEFORE) : place_of], run)
            if not before:
                continue
            step = steps.get(id(run))
            # A run is kept beside its amounts, so that its id is not given to another one.
            if step is None:
                step = run, _amounts_by(_laws_of(before, _query_of(query, run), self._measure), bounds)[1]
            known[id(run)] = step
            largest = max(self._measure(one) or 0.0 for one in before)
            peak, seconds = self._measure(run) or 0.0, max(run.seconds, 1e-3)
            wasted += [seconds * _waste_of(held, peak, bounds, largest) for held in step[1].rules]
        self._steps[key] = known
        best = int(np.argmin(np.multiply(HANDICAP, wasted))) if len(known) >= FEWEST_ACCOUNTED else None
        self._accounts[key] = stamp, best
        return best

    def _law_forecasts(self, query: Query) -> tuple[list[Forecast], list[Run]]:
        """The forecast of each law and the runs behind it; kept until the app's history changes."""
        stamp = self.history.app_stamp(query.app)
        kept = self._known.get(query)
        if kept is not None and kept[0] == stamp:
            return kept[1:]
        if len(self._known) >= MOST_PEAKS:
            self._known.clear()
        with self.history.hold_still():
            resolved = self._resolve_query(query)
            place = (resolved.app, resolved.implementation, resolved.device)
            # Failed runs are not in `recent`: a peak of a run that was killed is only a lower bound.
            runs = [run for run in self.history.recent(*place, MOST_PEAKS) if self._measure(run) is not None]
        comparable = list(_comparable_runs(runs, resolved))
        found = _laws_of(comparable, resolved, self._measure)
        self._known[query] = (stamp, found, comparable)
        return found, comparable


def _amounts_by(laws: Sequence[Forecast], bounds: _Bounds) -> tuple[Forecast, _Amounts]:
    """The law whose amounts would have been cheapest, and what to reserve by it and by the largest peak."""
    largest = float(laws[0].known.peaks.max())
    second = bounds.second(0.0, largest)
    chosen, amount, least = laws[0], 0.0, np.inf
    for law in laws:
        candidate, past = law.cheapest_amount(second, bounds.risk)
        if past < least:
            chosen, amount, least = law, candidate, past
    # From so few runs no law can be fitted: memory may grow as the inputs do.
    amount, limit = amount * chosen.growth, bounds.limit(largest)
    return chosen, _Amounts(min(amount, limit), min(LIKE_LARGEST * largest, limit))


def _waste_of(held: float, peak: float, bounds: _Bounds, largest: float) -> float:
    """Bytes that a run wastes, for its whole time, whose first try holds so many."""
    if peak <= held:
        return held - peak
    return held + max(bounds.second(held, largest) - peak, 0.0)


def _known_at_start(before: Sequence[Run], run: Run) -> Sequence[Run]:
    """Those that had ended when the run started, where the moments are known."""
    # Runs that were imported without moments have none.
    if not run.when:
        return before
    start = run.when - run.seconds
    return [one for one in before if one.when < start]


def _query_of(query: Query, run: Run) -> Query:
    """The query as it was for a run."""
    return replace(query, inputs=canonical_inputs(run.inputs))


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
