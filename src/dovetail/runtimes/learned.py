"""``learned``, the default: the law that predicts best what it has not seen, near inputs, and honesty.

For each app, implementation and class: runs are condensed to robust times per key (`cells`), several laws
are fitted and judged by leaving out one key at a time (`fits`), and its prediction is combined with that of
runs of exactly these inputs, each by its uncertainty. All that is done for the run times, and for the CPU
times too where they were measured: a law of these times the present slowdown of the machine (`lately`) is
the answer where it would have been the better one (`routes`).

What is predicted depends on the history alone, not on earlier queries: laws rest on the runs up to a
`milestone_of`, so that a model that has followed the history and one that has just been made fit the same
runs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

from dovetail.history.base import Aggregate, RequestKey, canonical_inputs, request_key
from dovetail.interfaces import History
from dovetail.model import DeviceClass, Prediction, Run
from dovetail.records import dataclass
from dovetail.runtimes.base import (
    MAX_KEYS,
    MAX_RUNS,
    TINY,
    HistoryModel,
    Pending,
    Query,
    RecentRuns,
    Sample,
    category_inputs,
    numeric_inputs,
)
from dovetail.runtimes.cells import COLD_SPREAD, Cell, Cells, make_cells, one_cell
from dovetail.runtimes.describe import law_name
from dovetail.runtimes.drift import Drift, cpu_time
from dovetail.runtimes.extrapolation import calm_prediction
from dovetail.runtimes.fits import FEWEST, Fit, exponents_of, fit_cells
from dovetail.runtimes.routes import Route, choose_route

WELL_MEASURED = 3
"""Sizes from which on a device's own exponents are good enough to help another device."""
MAX_SPREAD = 3.0
"""Cap of the standard deviation of log time: beyond a factor of e³ nothing is known anyway."""
MOST_DOUBTED = 8
"""Cold runs of inputs that never ran warm, to which the law is compared."""
ALWAYS = 32
"""Below so many runs laws are fitted anew with each."""

_Place = tuple[str, str, DeviceClass]


def milestone_of(runs: int) -> int:
    """Of so many runs, those on which laws rest: all of the first `ALWAYS`, then up to a sixteenth fewer.

    >>> [milestone_of(n) for n in (5, 33, 200, 5000)]
    [5, 32, 200, 4992]
    """
    if runs < ALWAYS:
        return runs
    # In steps that grow with the number of runs: laws of many runs move little with one more, and cost most.
    return runs - runs % min(64, 1 << ((runs // 16).bit_length() - 1))


@dataclass(slots=True)
class _Milestone:
    """What laws of one place rest on: the cells of run times and of CPU times, as of a milestone.

    ``sample`` is the last one of which that is known.
    """

    sample: Sample
    newest: Run | None
    runs: int
    times: Cells
    work: Cells


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fit, and what it was made of."""

    fit: Fit | None
    cells: Cells
    elsewhere: dict[str, tuple[float, float]] | None


@dataclass(frozen=True, slots=True)
class _FitAnswer:
    """A fit's answer to a query: log time, how unsure that is, and on what it rests."""

    mean: float
    unsure: float
    samples: int
    basis: str


@dataclass(frozen=True, slots=True)
class _Loaded(Pending):
    """A prediction for a machine on which nothing else runs, to be made longer by what does."""

    idle: Prediction
    drift: Drift
    device: DeviceClass

    def now(self) -> Prediction:
        """At the present slowdown."""
        self.drift.take_in_runs()
        # The interval moves with the slowdown: its width is that of a run on an idle machine.
        factor = math.exp(self.drift.slowdown(self.device))
        idle = self.idle
        return Prediction(
            max(idle.expected * factor, TINY),
            max(idle.upper * factor, TINY),
            idle.samples,
            idle.basis,
            idle.lower * factor,
        )


class LearnedModel(HistoryModel):
    """Chooses among laws by leave-one-out error; see the module.

    A device class without a completed run of the app stays unpredicted: another device is no evidence for
    it. Runs under another request are used only if there is none under the query's own.
    """

    only_power = False
    by_cpu_time = True

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self.drift = Drift(self.history)
        self._settled: dict[_Place, _Milestone] = {}
        self._work: dict[_Place, RecentRuns] = {}
        self._rests_on: dict[_Place, tuple[RecentRuns, RecentRuns]] = {}  # as of the milestone
        self._fitted: dict[Hashable, _Fitted] = {}
        self._shown: dict[Hashable, tuple[Cells, dict[str, tuple[float, float]] | None]] = {}
        self._routes: dict[Hashable, tuple[Fit, Fit, object, Route | None]] = {}

    def make_prediction(self, query: Query) -> Prediction | Pending | None:
        """The prediction; milliseconds after a change, microseconds while nothing changes."""
        fit = self.fit(query)
        if fit is None:
            return None
        # Both fits are kept, so that the choice between them costs nothing while nothing changes.
        work = self.fit(query, work=True) if self.by_cpu_time else None
        route = None if work is None else self._find_route(query, fit, work)
        if work is None or route is None:
            return _prediction_interval(self._answer_of_fit(fit, self._own_cell(query), query), fit, 0.0)
        estimate = self._answer_of_fit(work, self._own_work(query), query)
        shifted = replace(estimate, mean=estimate.mean + route.ratio, basis=f"{estimate.basis}, by CPU time")
        return _Loaded(_prediction_interval(shifted, work, route.spread), self.drift, query.device)

    def _answer_of_fit(self, fit: Fit, own: Cell | None, query: Query) -> _FitAnswer:
        position = fit.position.get((query.request, query.inputs))
        if own is None:
            mean, unsure = fit.at(query.request, query.inputs)
            # Without runs of these inputs an extrapolation is drawn back to what ran where the law is unsure.
            mean = calm_prediction(fit, query.inputs, mean, unsure)
            return _FitAnswer(mean, min(unsure, MAX_SPREAD), fit.runs, self._describe_basis(fit))
        mean, unsure, trusted = self._combine_estimates(fit, position, own, query)
        if trusted:
            return _FitAnswer(mean, unsure, own.runs, self._basis_of_own(fit, own))
        return _FitAnswer(mean, unsure, fit.runs, self._describe_basis(fit))

    def _combine_estimates(
        self, fit: Fit, position: int | None, own: Cell, query: Query
    ) -> tuple[float, float, bool]:
        """Log time and spread from runs of exactly these inputs and from the law, by their certainty.

        The law counts as fitted without this cell. Also whether the own runs weigh more.
        """
        fitted = None if position is None else fit.cells[position]
        # A cell of the fit is cold only if no run has come since: the own average may know better.
        cold = fitted.cold if fitted is not None and fitted.runs == own.runs else own.cold
        doubt = fit.noise**2 / own.weight + (COLD_SPREAD**2 if cold else 0.0)
        if position is None:
            law, spread = fit.at(query.request, query.inputs)
        elif len(fit.cells) < FEWEST:  # too few to leave one out: the law is no second opinion
            return own.y, math.sqrt(doubt), True
        else:
            law, spread = fit.predict_without(position)
        # Weights by inverse variance: the law counts for more the less of these very inputs has run.
        share = spread**2 / (spread**2 + doubt)
        return law + share * (own.y - law), math.sqrt(share * doubt), share > 0.5

    # -- fits ------------------------------------------------------------------------------------------

    def fit(self, query: Query, *, work: bool = False) -> Fit | None:
        """The fit that answers this query, of run times or (``work``) of CPU times.

        Made anew with every run while there are few; later when a milestone is passed. In between only
        the runs of the same inputs are brought up to date.
        """
        names = tuple(name for name, _ in numeric_inputs(query.inputs))
        signed = tuple(name for name, value in numeric_inputs(query.inputs) if value <= 0)
        place = (query.app, query.implementation, query.device)
        key = (*place, query.request, names, signed, category_inputs(query.inputs), work)
        settled = self._settle_milestone(query)
        cells = settled.work if work else settled.times
        elsewhere = self._exponents_elsewhere(query, cells, work=work)
        known = self._fitted.get(key)
        # By identity: cells are made anew exactly when a milestone is passed.
        if known is not None and known.cells is cells and known.elsewhere == elsewhere:
            return known.fit
        fit = None if known is None else _same_lone_cell(known.fit, cells, query)
        if fit is None:
            fit = self._fit_query(cells, query, elsewhere)
            # Cold runs below the law cannot be cold ones: the law is too high there, and is fitted with them.
            faster = _faster_than(fit, cells, query)
            if faster:
                fit = self._fit_query(replace(cells, cells=[*cells.cells, *faster]), query, elsewhere)
        self._fitted[key] = _Fitted(fit, cells, elsewhere)
        return fit

    def _fit_query(
        self, cells: Cells, query: Query, elsewhere: dict[str, tuple[float, float]] | None
    ) -> Fit | None:
        return fit_cells(cells, query.request, query.inputs, exponents=elsewhere, only_power=self.only_power)

    def _settle_milestone(self, query: Query) -> _Milestone:
        """The cells of a place as of its milestone; made once for each."""
        place = (query.app, query.implementation, query.device)
        sample, known = self.read_sample(query), self._settled.get(place)
        if known is not None and known.sample is sample:
            return known
        runs = sample.recent.runs
        count = self.history.count(*place)
        # Runs since the milestone are left out, so that a fresh model and an old one see the same.
        later = min(count - milestone_of(count), len(runs))
        until = len(runs) - later
        newest = runs[until - 1] if until else None
        if known is not None and known.runs == count - later and known.newest == newest:
            known.sample = sample
            return known
        kept = runs[max(0, until - MAX_RUNS) : until]
        aggregates = _averages_before(sample.sample_averages.aggregates, runs[until:])[-MAX_KEYS:]
        # Usually nothing is left out: then the runs that are carried forward serve both.
        whole = len(kept) == len(runs)
        settled = self._rests_on.setdefault(place, (RecentRuns(), RecentRuns(measure=cpu_time)))
        times = make_cells(aggregates, sample.recent if whole else settled[0].update(kept))
        work = Cells([], times.noise, 0)
        if self.by_cpu_time:
            spent = self._recent_work(query) if whole else settled[1].update(kept)
            work = make_cells(aggregates, spent, averages=False)
        found = self._settled[place] = _Milestone(sample, newest, count - later, times, work)
        return found

    def _recent_work(self, query: Query) -> RecentRuns:
        """The CPU times of the place's newest runs, carried forward."""
        place = (query.app, query.implementation, query.device)
        recent = self._work.get(place)
        if recent is None:
            recent = self._work[place] = RecentRuns(measure=cpu_time)
        return recent.update(self.read_sample(query).recent.runs)

    def _exponents_elsewhere(
        self, query: Query, own: Cells, *, work: bool
    ) -> dict[str, tuple[float, float]] | None:
        """Exponents that other implementations and devices of the app have shown, where this one has few."""
        # Own exponents once there are enough sizes: those of another device are a guess.
        if own.sizes >= WELL_MEASURED or not numeric_inputs(query.inputs):
            return None
        places = {
            (group.implementation, group.device_class)
            for group in self.history.list_groups(query.app)
            if group.completed
            and (group.implementation, group.device_class) != (query.implementation, query.device)
        }
        best: tuple[int, dict[str, tuple[float, float]] | None] = (0, None)
        # Sorted: which device lends its exponents must not depend on the order of a set.
        for implementation, device in sorted(places):
            other = Query(query.app, implementation, device, query.request, query.inputs)
            settled = self._settle_milestone(other)
            cells = settled.work if work else settled.times
            if cells.sizes < WELL_MEASURED:
                continue
            # The device with most cells knows them best.
            shown = self._shown_by(other, cells, work=work)
            if shown is not None and len(cells.cells) > best[0]:
                best = (len(cells.cells), shown)
        return best[1]

    def _shown_by(self, query: Query, cells: Cells, *, work: bool) -> dict[str, tuple[float, float]] | None:
        """Exponents that the cells of a place show for a query's inputs; made once."""
        key = (query.app, query.implementation, query.device, query.inputs, work)
        known = self._shown.get(key)
        if known is None or known[0] is not cells:
            requests = sorted({cell.request for cell in cells.cells})
            fit = fit_cells(cells, requests[0], query.inputs, only_power=True)
            known = self._shown[key] = (cells, None if fit is None else exponents_of(fit))
        return known[1]

    # -- CPU times -------------------------------------------------------------------------------------

    def choose_route(self, query: Query) -> Route | None:
        """How CPU times lead to run times, where that is the better way; ``None`` where run times are."""
        fit = self.fit(query)
        work = self.fit(query, work=True) if self.by_cpu_time else None
        return None if fit is None or work is None else self._find_route(query, fit, work)

    def _find_route(self, query: Query, fit: Fit, work: Fit) -> Route | None:
        self.drift.take_in_runs()
        timed = self.drift.runs(query.app, query.implementation, query.device, query.request)
        # CPU times are known of runs on one node only: with too few of them the two laws cannot be compared.
        if not timed or 2 * len(work.cells) < len(fit.cells):
            return None
        names = tuple(name for name, _ in numeric_inputs(query.inputs))
        key = (
            query.app,
            query.implementation,
            query.device,
            query.request,
            names,
            category_inputs(query.inputs),
        )
        known = self._routes.get(key)
        if known is not None and known[0] is fit and known[1] is work and known[2] is timed[-1]:
            return known[3]
        route = choose_route(timed, fit, work)
        self._routes[key] = (fit, work, timed[-1], route)
        return route

    def _own_work(self, query: Query) -> Cell | None:
        """The cell of the CPU times of runs of exactly this key."""
        known = self._recent_work(query).by_key.get((query.request, query.inputs))
        found = self._own_average(query)
        return None if known is None or found is None else one_cell(found, known)

    def _own_cell(self, query: Query) -> Cell | None:
        """The cell of runs of exactly this key, the newest included."""
        found = self._own_average(query)
        if found is None:
            return None
        return one_cell(found, self.read_sample(query).recent.by_key.get((query.request, query.inputs)))

    def _own_average(self, query: Query) -> Aggregate | None:
        found = self.history.find_aggregate(
            query.app, query.implementation, query.device, query.request, query.inputs
        )
        return found if found is not None and found.count else None

    # -- words -----------------------------------------------------------------------------------------

    def _basis_of_own(self, fit: Fit, own: Cell) -> str:
        runs = "1 run" if own.runs == 1 else f"{own.runs} runs"
        text = f"{runs} with the same inputs"
        return f"{text}, {basis_of(fit)}" if len(fit.cells) > 1 else text

    def _describe_basis(self, fit: Fit) -> str:
        runs = "1 run" if fit.runs == 1 else f"{fit.runs} runs"
        if len(fit.cells) == 1 and not fit.design.sizes:
            return f"mean of {runs}"
        sizes = "1 size" if len(fit.cells) == 1 else f"{len(fit.cells)} sizes"
        return f"{basis_of(fit)} over {sizes} ({runs})"


class PowerModel(LearnedModel):
    """``power``: time = a·n^b + c, fitted in log space; several inputs have one power each.

    The powers are those of the app's other devices where this one has run too few sizes to show its own: an
    algorithm's growth is the same on each, only its constants differ. CPU times and other laws do not count.
    """

    only_power = True
    by_cpu_time = False


def _prediction_interval(estimate: _FitAnswer, fit: Fit, spread: float) -> Prediction:
    """Nine runs out of ten about the estimate; ``spread`` is added to the noise of a run."""
    half = fit.interval_quantile(estimate.unsure) * math.sqrt(
        estimate.unsure**2 + fit.run_noise**2 + spread**2
    )
    # The bounds keep exp() below the largest float: beyond e^690 nothing is known anyway.
    expected = max(math.exp(min(estimate.mean, 690.0)), TINY)
    return Prediction(
        expected,
        max(math.exp(min(estimate.mean + half, 700.0)), expected),
        estimate.samples,
        estimate.basis,
        min(math.exp(min(estimate.mean - half, 690.0)), expected),
    )


def _averages_before(aggregates: Sequence[Aggregate], later: Sequence[Run]) -> Sequence[Aggregate]:
    """The averages as they were before some runs came; keys that had none are gone."""
    if not later:
        return aggregates
    times: dict[Hashable, list[float]] = {}
    for run in later:
        times.setdefault((request_key(run), canonical_inputs(run.inputs)), []).append(run.seconds)
    found: list[Aggregate] = []
    for aggregate in aggregates:
        gone = times.get((aggregate.request, aggregate.inputs))
        if gone is None:
            found.append(aggregate)
        elif aggregate.count > len(gone):
            count = aggregate.count - len(gone)
            # Newest runs are taken out of a mean that the database holds; the sum is exact enough for that.
            mean = (aggregate.mean * aggregate.count - math.fsum(gone)) / count
            found.append(replace(aggregate, count=count, mean=mean))
    return found


def _faster_than(fit: Fit | None, cells: Cells, query: Query) -> list[Cell]:
    """Cold runs below the law of the warm ones: a cold start only makes a run slower."""
    if fit is None:
        return []
    names = {name for name, _ in numeric_inputs(query.inputs)}
    return [
        # As warm ones: their times are believed now.
        replace(cell, cold=False)
        for cell in cells.doubted[-MOST_DOUBTED:]
        if cell.request == query.request
        and {name for name, _ in numeric_inputs(cell.inputs)} == names
        and cell.y < fit.at(cell.request, cell.inputs)[0]
    ]


def _same_lone_cell(fit: Fit | None, cells: Cells, query: Query) -> Fit | None:
    """The fit with its only cell renewed: without sizes there is no law to fit, only noise to know."""
    if fit is None or numeric_inputs(query.inputs) or len(cells.cells) != 1 or len(fit.cells) != 1:
        return None
    cell = cells.cells[0]
    if (cell.request, cell.inputs) != (query.request, query.inputs) or fit.other_requests:
        return None
    return replace(fit, cells=(cell,), noise=cells.noise, freedom=cells.freedom)


def basis_of(fit: Fit) -> str:
    """What was fitted, in a few words."""
    text = law_name(fit, fit.best_surface)
    if fit.best_surface.amplitude:
        text += " with local correction"
    if fit.other_requests:
        nodes = sorted({cell.request for cell in fit.cells})
        text += " from runs under other requests: " + ", ".join(describe_request(r) for r in nodes[:3])
    if fit.other_categories:
        text += " from other categories too"
    if fit.shared_exponent:
        text += ", exponent from another device"
    return text


def describe_request(request: RequestKey) -> str:
    """(nodes, cpus, gpus) in words."""
    nodes, cpus, gpus = request
    text = "1 node" if nodes == 1 else f"{nodes} nodes"
    if cpus > 0:
        text += " x 1 CPU" if cpus == 1 else f" x {cpus} CPUs"
    if gpus > 0:
        text += " x 1 device" if gpus == 1 else f" x {gpus:g} devices"
    return text
