"""``learned``, the default: the law that predicts best what it has not seen, near inputs, and honesty.

For each app, implementation and class: runs are condensed to robust times per key (`cells`), several laws
are fitted and judged by leaving out one key at a time (`fits`), and what the law says is combined with what
runs of exactly these inputs say, each by its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.history.base import RequestKey
from dovetail.model import Prediction
from dovetail.runtimes.base import TINY, HistoryModel, Query, Sample, categories, numbers
from dovetail.runtimes.cells import Cell, Cells, make_cells
from dovetail.runtimes.fits import Fit, exponents_of, fit_cells

__all__ = ["LearnedModel"]

WELL_MEASURED = 3
"""Sizes from which on a device's own exponents are good enough to help another device."""
MAX_SPREAD = 3.0
"""Cap of the standard deviation of log time: beyond a factor of e³ nothing is known anyway."""


class LearnedModel(HistoryModel):
    """Chooses among laws by leave-one-out error; see the module.

    A device class without a completed run of the app stays unpredicted: another device says nothing about
    it. Runs under another request are used only if there is none under the request asked for.
    """

    only_power = False

    def answer(self, query: Query) -> Prediction | None:
        """The prediction; milliseconds after a change, microseconds while nothing changes."""
        fit = self.fit(query)
        if fit is None:
            return None
        own = next(
            (c for c in fit.cells if c.request == query.request and c.inputs == query.inputs), None
        ) or self._own_cell(query)
        law, spread = self._law(fit, query, own)
        spread = min(spread, MAX_SPREAD)
        mean, unsure, samples = law, spread, fit.runs
        basis = self._basis(fit)
        if own is not None:
            doubt = fit.noise**2 / own.weight + (0.25 if own.cold else 0.0)
            share = spread**2 / (spread**2 + doubt)
            mean = law + share * (own.y - law)
            unsure = math.sqrt(share * doubt)
            samples = own.runs if share > 0.5 else fit.runs
            if share > 0.5:
                runs = "1 run" if own.runs == 1 else f"{own.runs} runs"
                basis = f"{runs} with the same inputs"
                if len(fit.cells) > 1:
                    basis += f", {basis_of(fit)}"
        total = math.sqrt(unsure**2 + fit.noise**2)
        half = fit.quantile(unsure) * total
        expected = max(math.exp(min(mean, 690.0)), TINY)
        return Prediction(
            expected,
            max(math.exp(min(mean + half, 700.0)), expected),
            samples,
            basis,
            min(math.exp(min(mean - half, 690.0)), expected),
        )

    def fit(self, query: Query) -> Fit | None:
        """The fit that answers this query; made once after each change."""
        sample = self.sample(query)
        names = tuple(name for name, _ in numbers(query.inputs))
        signed = tuple(name for name, value in numbers(query.inputs) if value <= 0)
        key = ("law", query.request, names, signed, categories(query.inputs))
        if key not in sample.fits:
            cells = self.cells(sample)
            exponents = self._exponents_elsewhere(query, cells)
            sample.fits[key] = fit_cells(
                cells, query.request, query.inputs, exponents=exponents, only_power=self.only_power
            )
        fit = sample.fits[key]
        assert fit is None or isinstance(fit, Fit)
        return fit

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
        """The cell of exactly this key where the fit, which takes a limited number, left it out."""
        for cell in self.cells(self.sample(query)).cells:
            if cell.request == query.request and cell.inputs == query.inputs:
                return cell
        return None

    def _law(self, fit: Fit, query: Query, own: Cell | None) -> tuple[float, float]:
        """What the other keys say: of a key that was fitted, the leave-one-out prediction."""
        if own is None or own not in fit.cells or len(fit.cells) < 4:
            mean, spread = fit.at(query.request, query.inputs)
            if own is not None and own in fit.cells:  # too few to leave it out: the law is no second opinion
                return own.y, MAX_SPREAD
            return mean, spread
        i = fit.cells.index(own)
        mean = sum(s * float(f.loo[i]) for s, f in zip(fit.shares, fit.surfaces, strict=True))
        variance = sum(
            s * (float(f.loo_spread[i]) ** 2 + (float(f.loo[i]) - mean) ** 2)
            for s, f in zip(fit.shares, fit.surfaces, strict=True)
        )
        return mean, math.sqrt(variance)

    def _basis(self, fit: Fit) -> str:
        runs = "1 run" if fit.runs == 1 else f"{fit.runs} runs"
        if len(fit.cells) == 1 and not fit.design.sizes:
            return f"mean of {runs}"
        return f"{basis_of(fit)} over {len(fit.cells)} inputs ({runs})"


def basis_of(fit: Fit) -> str:
    """What was fitted, in a few words."""
    text = fit.best.law.name
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
