"""``learned``, the default: the law that predicts best what it has not seen, near inputs, and honesty.

For each app, implementation and class: runs are condensed to robust times per key (`cells`), several laws
are fitted and judged by leaving out one key at a time (`fits`), and what the law says is combined with what
runs of exactly these inputs say, each by its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from dovetail.history.base import RequestKey
from dovetail.interfaces import History
from dovetail.model import Prediction
from dovetail.runtimes.base import TINY, HistoryModel, Query, Sample, categories, numbers
from dovetail.runtimes.cells import COLD_SPREAD, Cell, Cells, make_cells, one_cell
from dovetail.runtimes.describe import law_name
from dovetail.runtimes.fits import Fit, exponents_of, fit_cells

__all__ = ["LearnedModel"]

WELL_MEASURED = 3
"""Sizes from which on a device's own exponents are good enough to help another device."""
MAX_SPREAD = 3.0
"""Cap of the standard deviation of log time: beyond a factor of e³ nothing is known anyway."""


MOST_DOUBTED = 8
"""Cold runs of inputs that never ran warm, to which the law is compared."""
REFIT_GROWTH = 1.1
ALWAYS_REFIT = 30


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A fit and how many runs and keys there were when it was made."""

    fit: Fit | None
    runs: int
    keys: int

    def still_good(self, runs: int, keys: int) -> bool:
        """Whether so little was added that the law need not be fitted anew."""
        if (runs, keys) == (self.runs, self.keys):
            return True
        few = runs < ALWAYS_REFIT or runs < self.runs or keys < self.keys
        return not few and runs < REFIT_GROWTH * self.runs and keys < max(REFIT_GROWTH * self.keys, 2)


class LearnedModel(HistoryModel):
    """Chooses among laws by leave-one-out error; see the module.

    A device class without a completed run of the app stays unpredicted: another device says nothing about
    it. Runs under another request are used only if there is none under the request asked for.
    """

    only_power = False

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._fitted: dict[Hashable, _Fitted] = {}

    def answer(self, query: Query) -> Prediction | None:
        """The prediction; milliseconds after a change, microseconds while nothing changes."""
        fit = self.fit(query)
        if fit is None:
            return None
        own = self._own_cell(query)
        position = fit.position.get((query.request, query.inputs))
        if own is None:
            mean, unsure = fit.at(query.request, query.inputs)
            unsure, samples, basis = min(unsure, MAX_SPREAD), fit.runs, self._basis(fit)
        else:
            mean, unsure, trusted = self._combined(fit, position, own, query)
            samples = own.runs if trusted else fit.runs
            basis = self._basis_of_own(fit, own) if trusted else self._basis(fit)
        half = fit.quantile(unsure) * math.sqrt(unsure**2 + fit.run_noise**2)
        expected = max(math.exp(min(mean, 690.0)), TINY)
        return Prediction(
            expected,
            max(math.exp(min(mean + half, 700.0)), expected),
            samples,
            basis,
            min(math.exp(min(mean - half, 690.0)), expected),
        )

    def _combined(self, fit: Fit, position: int | None, own: Cell, query: Query) -> tuple[float, float, bool]:
        """Log time and spread from runs of exactly these inputs and from the law, by their certainty.

        The law's word is what it says without this cell. Also whether the own runs weigh more.
        """
        fitted = None if position is None else fit.cells[position]
        cold = fitted.cold if fitted is not None and fitted.runs == own.runs else own.cold
        doubt = fit.noise**2 / own.weight + (COLD_SPREAD**2 if cold else 0.0)
        if position is None:
            law, spread = fit.at(query.request, query.inputs)
        elif len(fit.cells) < 4:  # too few to leave one out: the law is no second opinion
            return own.y, math.sqrt(doubt), True
        else:
            law, spread = fit.without(position)
        share = spread**2 / (spread**2 + doubt)
        return law + share * (own.y - law), math.sqrt(share * doubt), share > 0.5

    def fit(self, query: Query) -> Fit | None:
        """The fit that answers this query.

        Made anew with every run while there are few; later when runs or inputs have grown by a tenth. In
        between only what runs of the same inputs say is brought up to date.
        """
        names = tuple(name for name, _ in numbers(query.inputs))
        signed = tuple(name for name, value in numbers(query.inputs) if value <= 0)
        key = (
            query.app,
            query.implementation,
            query.device,
            query.request,
            names,
            signed,
            categories(query.inputs),
        )
        sample = self.sample(query)
        runs, keys = self.runs(query.app, query.implementation, query.device), len(sample.aggregates)
        known = self._fitted.get(key)
        if known is not None and known.still_good(runs, keys):
            return known.fit
        cells = self.cells(sample)
        fit = None if known is None else _same_lone_cell(known.fit, cells, query)
        if fit is None:
            elsewhere = self._exponents_elsewhere(query, cells)
            fit = self._fit(cells, query, elsewhere)
            faster = _faster_than(fit, cells, query)
            if faster:
                fit = self._fit(replace(cells, cells=[*cells.cells, *faster]), query, elsewhere)
        self._fitted[key] = _Fitted(fit, runs, keys)
        return fit

    def _fit(
        self, cells: Cells, query: Query, elsewhere: dict[str, tuple[float, float]] | None
    ) -> Fit | None:
        return fit_cells(cells, query.request, query.inputs, exponents=elsewhere, only_power=self.only_power)

    def cells(self, sample: Sample) -> Cells:
        """The sample's runs as cells; made once."""
        cells = sample.fits.get("cells")
        if not isinstance(cells, Cells):
            cells = sample.fits["cells"] = make_cells(sample.aggregates, sample.recent)
        return cells

    def _exponents_elsewhere(self, query: Query, own: Cells) -> dict[str, tuple[float, float]] | None:
        """Exponents that other implementations and devices of the app have shown, where this one has few."""
        if _sizes(own.cells) >= WELL_MEASURED or not numbers(query.inputs):
            return None
        places = {
            (group.implementation, group.device_class)
            for group in self.history.groups(query.app)
            if group.completed
            and (group.implementation, group.device_class) != (query.implementation, query.device)
        }
        best: Fit | None = None
        for implementation, device in sorted(places):
            other = Query(query.app, implementation, device, query.request, query.inputs)
            cells = self.cells(self.sample(other))
            if _sizes(cells.cells) < WELL_MEASURED:
                continue
            requests = sorted({cell.request for cell in cells.cells})
            fit = fit_cells(cells, requests[0], query.inputs, only_power=True)
            if fit is not None and (best is None or len(fit.cells) > len(best.cells)):
                best = fit
        return None if best is None else exponents_of(best)

    def _own_cell(self, query: Query) -> Cell | None:
        """What runs of exactly this key say, the newest included."""
        found = self.history.aggregate(
            query.app, query.implementation, query.device, query.request, query.inputs
        )
        if found is None or not found.count:
            return None
        return one_cell(found, self.sample(query).recent.by_key.get((query.request, query.inputs)))

    def _basis_of_own(self, fit: Fit, own: Cell) -> str:
        runs = "1 run" if own.runs == 1 else f"{own.runs} runs"
        text = f"{runs} with the same inputs"
        return f"{text}, {basis_of(fit)}" if len(fit.cells) > 1 else text

    def _basis(self, fit: Fit) -> str:
        runs = "1 run" if fit.runs == 1 else f"{fit.runs} runs"
        if len(fit.cells) == 1 and not fit.design.sizes:
            return f"mean of {runs}"
        return f"{basis_of(fit)} over {len(fit.cells)} inputs ({runs})"


def _faster_than(fit: Fit | None, cells: Cells, query: Query) -> list[Cell]:
    """Cold runs that took less than the law of the warm ones says: a cold start only makes a run slower."""
    if fit is None:
        return []
    names = {name for name, _ in numbers(query.inputs)}
    return [
        replace(cell, cold=False)
        for cell in cells.doubted[-MOST_DOUBTED:]
        if cell.request == query.request
        and {name for name, _ in numbers(cell.inputs)} == names
        and cell.y < fit.at(cell.request, cell.inputs)[0]
    ]


def _same_lone_cell(fit: Fit | None, cells: Cells, query: Query) -> Fit | None:
    """The fit with its only cell renewed: without sizes there is no law to fit, only noise to know."""
    if fit is None or numbers(query.inputs) or len(cells.cells) != 1 or len(fit.cells) != 1:
        return None
    cell = cells.cells[0]
    if (cell.request, cell.inputs) != (query.request, query.inputs) or fit.other_requests:
        return None
    return replace(fit, cells=(cell,), noise=cells.noise, freedom=cells.freedom)


def basis_of(fit: Fit) -> str:
    """What was fitted, in a few words."""
    text = law_name(fit, fit.best)
    if fit.best.amplitude:
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
        text += f" x {cpus} cpus"
    if gpus > 0:
        text += f" x {gpus:g} gpus"
    return text


def _sizes(cells: Sequence[Cell]) -> int:
    """How many different numeric inputs there are."""
    return len({numbers(cell.inputs) for cell in cells})
