"""Fits of laws to the cells of one app, implementation and class: what ``power`` and ``learned`` share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dovetail.files.arrays import Floats, np
from dovetail.history.base import InputsKey, RequestKey
from dovetail.records import dataclass
from dovetail.runtimes.base import category_inputs, numeric_inputs, scalar_size
from dovetail.runtimes.cells import COLD_SPREAD, MAX_CELLS, NOISE_PRIOR, NOISE_PRIOR_WEIGHT, Cell, Cells
from dovetail.runtimes.features import EXPONENT_SPREAD, Design, make_design
from dovetail.runtimes.gaussian import ALONE, Surface, fit_surfaces
from dovetail.runtimes.intervals import LEVEL, student_quantile
from dovetail.runtimes.laws import NO_OVERHEAD, Law, fit_laws

EXPONENTS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Powers of a single size that algorithms have; tried besides a free one."""
QUANTILE_PRIOR = 8.0
"""Student's quantile counts as this many residuals."""
NOISE_DOUBT = 5.0
"""The residuals' word on the noise counts as this many repetitions."""
TEMPERATURE = 2.5
"""Shares follow the leave-one-out scores less steeply than they suggest: the best of many looks too good."""
MIXED = 20
"""At most this many surfaces share in a prediction."""
FEWEST = 4
"""Cells from which on laws are judged by leaving one out."""
FEW = (0.0, 1.0, 0.15)
"""Form (amplitude, length, nugget) of laws over fewer cells: nothing shows how well they fit."""
USUAL_NOISE = 0.2
"""Standard deviation of log time from run to run of an ordinary program on an ordinary machine …"""
USUAL_WEIGHT = 2.0
"""… worth so many repetitions where few inputs have run."""
DOUBTED = 3
"""Cells from which on a law shows its power; of fewer …"""
DOUBTED_NOISE = 0.25
"""… each is doubted by this standard deviation of log time: two close sizes that differ by chance."""
OVERHEAD = 3.0
"""Odds that an app has an overhead, before anything is known: a process costs something to start …"""
OVERHEAD_ELSEWHERE = 1.0
"""… and where another device has shown how the app grows."""
FIXED = 0.01
"""Prior spread of a parameter that is not to move."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Surfaces over the cells that were used, best first, with their shares in the prediction.

    ``other_requests`` lists, where no run had the query's request, those that were used instead;
    ``other_categories`` that runs of other categories were used too.
    """

    design: Design
    cells: tuple[Cell, ...]
    position: Mapping[tuple[RequestKey, InputsKey], int]
    surfaces: tuple[Surface, ...]
    shares: tuple[float, ...]
    noise: float
    freedom: int
    calibration: float
    other_requests: bool = False
    other_categories: bool = False
    shared_exponent: bool = False

    @property
    def runs(self) -> int:
        """Completed runs behind the fit."""
        return sum(cell.runs for cell in self.cells)

    @property
    def run_noise(self) -> float:
        """Spread of log time from run to run: as repeated runs show it, else as residuals suggest it.

        For few inputs there are only a few runs, which often agree by chance: there the usual noise
        of programs counts too.
        """
        if len(self.cells) < FEWEST:
            # The prior of the cells is taken out again: here the usual noise stands in its place.
            seen = self.noise**2 * (self.freedom + NOISE_PRIOR_WEIGHT) - NOISE_PRIOR_WEIGHT * NOISE_PRIOR**2
            usual = USUAL_WEIGHT * USUAL_NOISE**2
            return math.sqrt((max(seen, 0.0) + usual) / (self.freedom + USUAL_WEIGHT))
        scale = sum(share * s.scale**2 for share, s in zip(self.shares, self.surfaces, strict=True))
        return self.noise * math.sqrt((self.freedom + NOISE_DOUBT * scale) / (self.freedom + NOISE_DOUBT))

    def interval_quantile(self, law_spread: float) -> float:
        """How many standard deviations make a 90 % interval, given how well they are known.

        Degrees of freedom by Welch and Satterthwaite: the law's spread was seen on few keys, the noise on
        all repeated runs.
        """
        law, noise = law_spread**2, self.noise**2
        keys = max(2, len(self.cells) - 2)
        freedom = (law + noise) ** 2 / (law**2 / keys + noise**2 / (self.freedom + 3))
        return student_quantile(int(max(2, min(60, freedom)))) * self.calibration

    @property
    def best_surface(self) -> Surface:
        """The surface with the best leave-one-out score."""
        return self.surfaces[0]

    def at(self, request: RequestKey, inputs: InputsKey) -> tuple[float, float]:
        """Mean and standard deviation of the log of the typical time; noise of one run not included.

        Where laws that fit equally well disagree, their disagreement is part of the spread.
        """
        row = self.design.design_row(request, inputs)
        # A mixture's variance: that of each law, and how far the laws lie apart.
        each = [surface.at(law_row(self.design, surface.law, row)) for surface in self.surfaces]
        mean = sum(share * m for share, (m, _) in zip(self.shares, each, strict=True))
        variance = sum(
            share * (s**2 + (m - mean) ** 2) for share, (m, s) in zip(self.shares, each, strict=True)
        )
        return mean, math.sqrt(variance + self.design.unseen(inputs))

    def predict_without(self, i: int) -> tuple[float, float]:
        """The same for cell ``i`` from all others; includes the noise of the cell's own estimate."""
        mean = sum(s * float(f.loo[i]) for s, f in zip(self.shares, self.surfaces, strict=True))
        variance = sum(
            s * (float(f.loo_spread[i]) ** 2 + (float(f.loo[i]) - mean) ** 2)
            for s, f in zip(self.shares, self.surfaces, strict=True)
        )
        return mean, math.sqrt(variance)


def law_row(design: Design, law: Law, row: Floats) -> Floats:
    """A row of the design as the columns of this law: n log n has a column of its own."""
    if not law.log_size:
        return row
    changed = row.copy()
    # The column is centred: the logarithm of log n is centred in the same way.
    size = row[1] + design.centre[0]
    changed[1] = row[1] + math.log(max(size, 0.5)) - math.log(max(design.centre[0], 0.5))
    return changed


def chosen_cells(cells: Cells, request: RequestKey, inputs: InputsKey) -> tuple[list[Cell], bool, bool]:
    """Cells that bear on this query, and whether other requests or categories were needed.

    Same request first; only if there is none, all requests. Same categories if they were measured often
    enough, else all.
    """
    found = [cell for cell in cells.cells if cell.request == request]
    other_requests = not found
    if other_requests:
        found = list(cells.cells)
    names = {name for name, _ in numeric_inputs(inputs)}
    # Runs with other inputs' names are another use of the app; without any of this one they must do.
    comparable = [cell for cell in found if {name for name, _ in numeric_inputs(cell.inputs)} == names]
    found = comparable or found
    wanted = category_inputs(inputs)
    same = [cell for cell in found if category_inputs(cell.inputs) == wanted]
    other_categories = False
    # From four on a category carries a law of its own.
    if len(same) >= 4 or len(same) == len(found):
        found = same
    elif wanted or any(category_inputs(cell.inputs) for cell in found):
        other_categories = True
    return _thin_cells(found), other_requests, other_categories


def _thin_cells(cells: list[Cell]) -> list[Cell]:
    """At most `MAX_CELLS`: the newest half, and of the others an even choice over their sizes."""
    if len(cells) <= MAX_CELLS:
        return cells
    newest = cells[-(MAX_CELLS // 2) :]
    others = sorted(cells[: -len(newest)], key=lambda cell: scalar_size(cell.inputs) or 0.0)
    picked = np.linspace(0, len(others) - 1, MAX_CELLS - len(newest)).round().astype(int)
    return [*(others[i] for i in picked.tolist()), *newest]


def _candidate_laws(design: Design, y: Floats, rows: Floats, fixed: bool) -> list[Law]:
    """The forms to try: constant, power law, power law with overhead, known exponents, n log n."""
    columns, numeric = rows.shape[1], len(design.sizes)
    low = float(y.min())
    none = (np.append(design.mean, NO_OVERHEAD), np.append(design.spread, FIXED))
    some = (np.append(design.mean, low - 1.5), np.append(design.spread, 2.0))
    # Only columns that vary have a power to fit; the others would follow their priors.
    sized = [i for i in range(1, 1 + numeric) if np.ptp(rows[:, i]) > 1e-9]
    laws: list[Law] = []

    def add_law(
        name: str, prior: tuple[Floats, Floats], start: Floats, at: Floats = rows, log: bool = False
    ) -> None:
        laws.append(Law(name, at, prior[0], prior[1], start, log))

    add_law("power law", none, none[0])
    if len(y) < FEWEST:
        # Two starts: a small overhead and one of nearly the least time lie in different valleys.
        for gamma in (low - 2.0, low - 0.3) if numeric else ():
            add_law("power law with overhead", some, np.append(some[0][:-1], gamma))
        return laws
    if not sized:
        return laws
    constant = (none[0].copy(), none[1].copy())
    constant[0][1 : 1 + numeric], constant[1][1 : 1 + numeric] = 0.0, FIXED
    add_law("constant", constant, constant[0])
    for gamma, slope in ((low - 2.0, 1.1), (low - 0.1, 2.0)):
        start = some[0].copy()
        start[-1] = gamma
        start[sized] *= slope
        add_law("power law with overhead", some, start)
    if not fixed:
        return laws
    for exponent in EXPONENTS if numeric == 1 else (1.0,):
        prior = (some[0].copy(), some[1].copy())
        # A power that is known is held by a narrow prior, so that all laws have the same columns.
        prior[0][1 : 1 + numeric], prior[1][1 : 1 + numeric] = exponent, FIXED
        start = prior[0].copy()
        start[-1] = low - 0.7
        name = "straight line" if exponent == 1 else f"power {exponent:g} with overhead"
        add_law(name, prior, start)
    # n log n needs n above 1, and differs from n only over wide ranges.
    if numeric == 1 and not design.signed and float(rows[:, 1].min()) + design.centre[0] > 1.0:
        law = Law("", rows, none[0], none[1], none[0], True)
        changed = np.array([law_row(design, law, row) for row in rows])
        prior = (some[0].copy(), some[1].copy())
        prior[0][1], prior[1][1] = 1.0, FIXED
        start = np.append(prior[0][:-1], low - 0.7)
        laws.append(Law("n log n with overhead", changed, *prior, start, True))
    assert columns == len(design.mean)
    return laws


def fit_cells(
    cells: Cells,
    request: RequestKey,
    inputs: InputsKey,
    *,
    exponents: dict[str, tuple[float, float]] | None = None,
    only_power: bool = False,
) -> Fit | None:
    """Fit every form of law and weigh them by their leave-one-out scores; ``None`` without cells.

    ``exponents`` are priors (mean, spread) of the powers, learned elsewhere. ``only_power`` keeps to the
    power law with and without overhead, without local correction.
    """
    found, other_requests, other_categories = chosen_cells(cells, request, inputs)
    if not found:
        return None
    design = make_design(found, request, inputs, exponents)
    y = np.array([cell.y for cell in found])
    noise = np.array(
        [cells.noise**2 / cell.weight + (COLD_SPREAD**2 if cell.cold else 0.0) for cell in found]
    )
    if len(found) < DOUBTED:
        # Two close sizes that differ by chance would give any power.
        noise = noise + DOUBTED_NOISE**2
    rows = np.array([design.design_row(cell.request, cell.inputs) for cell in found])
    fitted, loss = fit_laws(_candidate_laws(design, y, rows, fixed=not only_power), y, noise)
    best: dict[str, tuple[float, Law]] = {}
    # Of several starts of one form the best: the others found a worse valley.
    for law, value in zip(fitted, loss.tolist(), strict=True):
        if law.name not in best or value < best[law.name][0]:
            best[law.name] = (value, law)
    judged = len(found) >= FEWEST
    laws = [law for _, law in best.values()]
    surfaces = (
        fit_surfaces(laws, y, noise, corrected=not only_power)
        if judged
        else fit_surfaces(laws, y, noise, corrected=False, alone=(FEW,) if design.sizes else ALONE[:1])
    )
    if judged:
        kept, shares = _weigh_surfaces(surfaces, len(found))
    else:
        odds = OVERHEAD if exponents is None else OVERHEAD_ELSEWHERE
        kept, shares = _weigh_few(surfaces, [loss for loss, _ in best.values()], odds)
    return Fit(
        design,
        tuple(found),
        {(cell.request, cell.inputs): i for i, cell in enumerate(found)},
        kept,
        shares,
        cells.noise,
        cells.freedom,
        _calibration_factor(found, kept, shares, y, cells),
        other_requests,
        other_categories,
        exponents is not None,
    )


def _weigh_surfaces(surfaces: Sequence[Surface], count: int) -> tuple[tuple[Surface, ...], tuple[float, ...]]:
    """The surfaces that share in the prediction, best first, by their leave-one-out log densities."""
    order = sorted(surfaces, key=lambda surface: -surface.score)[:MIXED]
    # Densities, not errors: a law that is sure and wrong scores below one that is unsure.
    weights = [math.exp(count * (surface.score - order[0].score) / TEMPERATURE) for surface in order]
    kept = [w for w in weights if w > 0.05]
    total = sum(kept)
    return tuple(order[: len(kept)]), tuple(w / total for w in kept)


def _weigh_few(
    surfaces: Sequence[Surface], losses: Sequence[float], overhead: float
) -> tuple[tuple[Surface, ...], tuple[float, ...]]:
    """The same where there are too few cells to leave one out: by how far each law strays from its priors.

    A power law through two sizes is too high between them and too low beyond if there is an overhead; with
    both laws the interval is as wide as the doubt.
    """
    odds = [
        math.exp(min(losses) - loss) * (overhead if surface.law.has_overhead else 1.0)
        for surface, loss in zip(surfaces, losses, strict=True)
    ]
    order = sorted(range(len(odds)), key=lambda i: -odds[i])
    return tuple(surfaces[i] for i in order), tuple(odds[i] / sum(odds) for i in order)


def _calibration_factor(
    found: Sequence[Cell], surfaces: Sequence[Surface], shares: Sequence[float], y: Floats, cells: Cells
) -> float:
    """By what factor intervals must be wider or narrower to hold nine out of ten of the runs seen.

    The quantile of the leave-one-out residuals of all runs (as in the jackknife+), in units of the spread
    that was predicted for them, beside Student's; drawn towards 1 while there are few. Cold first runs are
    no measure of what is to come and are left out.
    """
    if len(found) < FEWEST:
        return 1.0
    # Mean and variance of the mixture, each cell predicted from all others.
    mean = np.array(shares) @ np.array([s.loo for s in surfaces])
    variance = np.array(shares) @ np.array([s.loo_spread**2 + (s.loo - mean) ** 2 for s in surfaces])
    residuals: list[float] = []
    for cell, miss, square in zip(found, (y - mean).tolist(), variance.tolist(), strict=True):
        if cell.deviations:
            spread = math.sqrt(square + cells.noise**2 * max(0.0, 1 - 1 / cell.weight))
            residuals.extend(abs(miss + deviation) / spread for deviation in cell.deviations)
        elif not cell.cold:
            residuals.append(abs(miss) / math.sqrt(square))
    residuals.sort()
    n = len(residuals)
    if not n:
        return 1.0
    usual = student_quantile(max(3, min(60, cells.freedom + len(found) - 2)))
    seen = residuals[math.ceil(LEVEL * n) - 1] / usual
    return (n * seen + QUANTILE_PRIOR) / (n + QUANTILE_PRIOR)


def exponents_of(fit: Fit) -> dict[str, tuple[float, float]]:
    """Powers of the numeric inputs as one device shows them: priors for another (mean, spread)."""
    law = fit.best_surface.law
    return {
        # Never so narrow that another device could not show another power.
        name: (float(law.theta[1 + i]), max(0.15, min(EXPONENT_SPREAD, 0.3)))
        for i, name in enumerate(fit.design.sizes)
    }
