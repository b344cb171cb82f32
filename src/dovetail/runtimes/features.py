"""Inputs as columns of a design matrix: logarithms of numbers, marks of categories, the request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from dovetail.files.arrays import Floats, np
from dovetail.history.base import InputsKey, RequestKey
from dovetail.records import dataclass
from dovetail.runtimes.base import category_inputs, numeric_inputs
from dovetail.runtimes.cells import Cell

EXPONENT = 1.0
"""Expected power of a numeric input before anything is known: time in proportion to size …"""
EXPONENT_SPREAD = 0.7
"""… give or take this."""
SIZE_SPREAD = 0.4
"""The same for a size in bytes, which is a size for certain: another number may be a seed or a level."""
REQUEST_EXPONENT = -0.7
"""Expected power of the number of nodes, CPUs or devices: speedup, at less than full efficiency."""
REQUEST_SPREAD = 0.4
CATEGORY_SPREAD = 0.7
"""Standard deviation of log time between values of a category."""
MAX_VALUES = 8
"""Values of one category that get a column of their own."""


@dataclass(frozen=True, slots=True)
class Design:
    """How inputs become a row: ``1, log of each number, a mark for each category value, the request``.

    ``sizes`` names the numeric inputs, ``signed`` those of them with values of 0 or below, which enter as
    sign * log(1 + |x|). ``marks`` are (name, value) of categories, ``scaled`` the fields of the request
    that vary. ``centre`` is taken from the columns of numbers, so that the intercept stands for a typical
    run. ``mean`` and ``spread`` are the priors of all columns, the intercept's included.
    """

    sizes: tuple[str, ...]
    signed: frozenset[str]
    marks: tuple[tuple[str, str], ...]
    scaled: tuple[int, ...]
    centre: Floats
    mean: Floats
    spread: Floats
    new: frozenset[str] = frozenset()

    def design_row(self, request: RequestKey, inputs: InputsKey) -> Floats:
        """One row, of length ``len(mean)``. A number that is missing, or new, counts as a typical one."""
        values = dict(inputs)
        row = np.zeros(len(self.mean))
        row[0] = 1.0
        for i, name in enumerate(self.sizes):
            # A number that is new has no column to learn from: it counts as typical, and widens the interval.
            value = values.get(name)
            if isinstance(value, float) and name not in self.new:
                row[1 + i] = self._log_feature(name, value) - self.centre[i]
        at = 1 + len(self.sizes)
        for i, (name, wanted) in enumerate(self.marks):
            row[at + i] = values.get(name) == wanted
        at += len(self.marks)
        for i, part in enumerate(self.scaled):
            row[at + i] = math.log(max(request[part], 1e-6)) - self.centre[len(self.sizes) + i]
        return row

    def _log_feature(self, name: str, value: float) -> float:
        # Zero and negative values have no logarithm: this form is linear near 0 and logarithmic beyond.
        if name in self.signed:
            return math.copysign(math.log1p(abs(value)), value)
        return math.log(value) if value > 0 else 0.0

    def unseen(self, inputs: InputsKey) -> float:
        """Variance of log time to add for values of categories that have no column, and for new numbers."""
        known = set(self.marks)
        strange = sum(pair not in known for pair in category_inputs(inputs)) + len(self.new)
        return CATEGORY_SPREAD**2 * strange


def _exponent_spread(name: str) -> float:
    return SIZE_SPREAD if name.endswith("_bytes") else EXPONENT_SPREAD


def make_design(
    cells: Sequence[Cell],
    request: RequestKey,
    inputs: InputsKey,
    exponents: dict[str, tuple[float, float]] | None = None,
) -> Design:
    """Columns for a query over these cells; ``exponents`` gives priors (mean, spread) by input name."""
    exponents = exponents or {}
    sizes = tuple(name for name, _ in numeric_inputs(inputs))
    everything = [*(cell.inputs for cell in cells), inputs]
    signed = frozenset(
        name for row in everything for name, value in row if not isinstance(value, str) and value <= 0
    )
    seen: dict[str, Counter[str]] = {}
    for cell in cells:
        for name, value in category_inputs(cell.inputs):
            seen.setdefault(name, Counter())[value] += 1
    given = dict(category_inputs(inputs))
    marks: list[tuple[str, str]] = []
    for name in sorted(seen):
        values = [value for value, _ in seen[name].most_common(MAX_VALUES)]
        # The query's own value gets a column, in the place of the rarest.
        if given.get(name) in seen[name] and given[name] not in values:
            values[-1] = given[name]
        marks.extend((name, value) for value in values)
    requests = [*(cell.request for cell in cells), request]
    scaled = tuple(
        part
        # A part of the request that does not vary carries no information; -1 (all CPUs) has no logarithm.
        for part in range(3)
        if len({r[part] for r in requests}) > 1 and all(r[part] > 0 for r in requests)
    )
    blank = Design(
        sizes,
        signed,
        tuple(marks),
        scaled,
        np.zeros(len(sizes) + len(scaled)),
        np.array(
            [0.0, *(exponents.get(name, (EXPONENT, 0.0))[0] for name in sizes)]
            + [0.0] * len(marks)
            + [REQUEST_EXPONENT] * len(scaled)
        ),
        np.array(
            [3.0, *(exponents.get(name, (0.0, _exponent_spread(name)))[1] for name in sizes)]
            + [CATEGORY_SPREAD] * len(marks)
            + [REQUEST_SPREAD] * len(scaled)
        ),
    )
    rows = np.array([blank.design_row(cell.request, cell.inputs) for cell in cells])
    columns = [*range(1, 1 + len(sizes)), *range(1 + len(sizes) + len(marks), len(blank.mean))]
    centre = rows[:, columns].mean(axis=0)
    new: set[str] = set()
    # Centred by the cells that have the input: others would pull it towards a value that never ran.
    for i, name in enumerate(sizes):
        having = [row for row, cell in enumerate(cells) if isinstance(dict(cell.inputs).get(name), float)]
        if having:
            centre[i] = rows[having, 1 + i].mean()
        else:
            new.add(name)
    mean = blank.mean.copy()
    mean[0] = float(np.mean([cell.y for cell in cells]))
    return Design(sizes, signed, tuple(marks), scaled, centre, mean, blank.spread, frozenset(new))
