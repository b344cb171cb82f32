"""Runs condensed to one robust time per key, with its uncertainty: what laws are fitted to.

A *cell* is one (request, inputs) with the logarithm of its typical time. Within a cell newer runs weigh
more, and runs far from the rest (an interrupted machine, a cold first run that compiled its kernels) are
left out. Laws are then fitted to at most `MAX_CELLS` cells, which bounds the time of a fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache

from dovetail.files.arrays import Bools, Floats, np
from dovetail.history.base import Aggregate, InputsKey, RequestKey
from dovetail.records import dataclass
from dovetail.runtimes.base import MAX_RUNS, TINY, KeyTimes, RecentRuns, key_of, numeric_inputs

MAX_CELLS = 32
HALF_LIFE = 16
"""A run of a key weighs half as much as the one that came this many runs of that key later."""
NEWEST = 8 * HALF_LIFE
"""Runs of a key that its own word rests on: one before them would weigh less than 1/256 of the newest."""
NOISE_PRIOR = 0.04
"""Run-to-run standard deviation of log time that is assumed before runs of one key were repeated …"""
NOISE_PRIOR_WEIGHT = 1.0
"""… worth this many repetitions."""
COLD_SPREAD = 0.5
"""Extra standard deviation of log time of the first run on a device, which may have been a cold one."""
CHANGED = 4
"""So many runs of a key in a row far from those before replace them."""
FAR = 0.15
"""Within a cell, runs are never called outliers below this distance in log time."""


@dataclass(slots=True)
class Cell:
    """One key: ``y`` is the log of its typical seconds, ``weight`` the effective number of runs behind it.

    ``runs`` counts all its completed runs, ``cold``: it rests on a possibly cold run alone.
    ``deviations`` are the log times of its newest runs minus the typical one of its other runs.
    """

    request: RequestKey
    inputs: InputsKey
    y: float
    weight: float
    runs: int
    cold: bool = False
    deviations: tuple[float, ...] = ()
    freedom: int = 0
    squares: float = 0.0


@dataclass(slots=True)
class Cells:
    """All cells of an app, implementation and class; ``noise`` is the run-to-run spread of log time.

    ``doubted`` are those of cold runs alone, left out because there are warm ones. ``sizes`` counts the
    different numeric inputs.
    """

    cells: list[Cell]
    noise: float
    freedom: int
    doubted: list[Cell] = field(default_factory=list)
    sizes: int = 0

    @property
    def runs(self) -> int:
        """Completed runs behind all cells."""
        return sum(cell.runs for cell in self.cells)


@dataclass(frozen=True, slots=True)
class _Typical:
    """Log times of one key, oldest first, without what a lasting change has replaced.

    ``kept`` marks those that are no outliers; ``y`` and ``weight`` are as in `Cell`.
    """

    logs: Floats
    weights: Floats
    kept: Bools
    y: float
    total: float
    weight: float


def _typical_time(logs: Floats) -> _Typical:
    """Typical log time of two or more runs of one key, oldest first."""
    weights, keep = _outlier_weights(logs)
    if len(logs) > CHANGED and not keep.item(-1) and not keep[-CHANGED:].any():
        # Several runs in a row far off on one side are no accident: something has changed for good.
        middle = float(np.median(logs[keep]))
        # The row of newest runs that all lie on one side of the middle.
        side = np.where(keep, 0, np.sign(logs - middle))[::-1]
        row = int(np.argmax(side != side[0])) if np.any(side != side[0]) else len(side)
        if side[0] and row >= CHANGED:
            logs = logs[-row:]
            weights, keep = _outlier_weights(logs)
    weights_kept = weights[keep]
    total = float(np.add.reduce(weights_kept))
    y = float(weights_kept.dot(logs[keep])) / total
    return _Typical(logs, weights, keep, y, total, total**2 / float(weights_kept.dot(weights_kept)))


def _single_run_cell(log: float) -> Cell:
    """The cell of a single run."""
    return Cell((0, 0, 0.0), (), log, 1.0, 1)


def _robust_cell(times: Floats) -> Cell:
    """Typical log time of the runs of one key, oldest first, and their noise."""
    if len(times) == 1:
        return _single_run_cell(float(times[0]))
    found = _typical_time(times)
    logs, keep, n = found.logs, found.kept, len(found.logs)
    kept = logs[keep]
    freedom = len(kept) - 1
    squares = float(((kept - kept.mean()) ** 2).sum())
    deviations: tuple[float, ...] = ()
    if n > 1:
        # The deviation from the mean of the others: an outlier is not in the mean, and needs no correction.
        scale = found.total / np.maximum(found.total - found.weights, 1e-12) if freedom else np.ones(n)
        deviations = tuple(((logs - found.y) * np.where(keep, scale, 1.0)).tolist())
    return Cell((0, 0, 0.0), (), found.y, found.weight, n, False, deviations, freedom, squares)


@lru_cache(maxsize=MAX_RUNS)
def _run_weights(n: int) -> Floats:
    """Weights of the n newest runs of a key, oldest first."""
    weights: Floats = 0.5 ** (np.arange(n - 1, -1, -1) / HALF_LIFE)
    weights.setflags(write=False)
    return weights


def _outlier_weights(logs: Floats) -> tuple[Floats, Bools]:
    """Weights of log times, oldest first, and which of them are no outliers."""
    weights = _run_weights(len(logs))
    if len(logs) == 2:
        # Of two that disagree the slower one was disturbed: nothing makes a run faster by chance.
        return weights, logs <= logs.min() + 2 * FAR
    middle = _weighted_median(logs, weights)
    distance = np.abs(logs - middle)
    # 1.4826 turns a median distance into a standard deviation of normal noise.
    return weights, distance <= max(3 * 1.4826 * _weighted_median(distance, weights), FAR)


def _weighted_median(values: Floats, weights: Floats) -> float:
    """Middle of the weight; halfway between two values where the weight is split between them."""
    order = values.argsort()
    below = np.add.accumulate(weights.take(order))
    half = 0.5 * below.item(-1)
    i = int(below.searchsorted(half * (1 - 1e-12)))
    lower = values.item(order.item(i))
    if i + 1 < len(values) and math.isclose(below.item(i), half, rel_tol=1e-9):
        return 0.5 * (lower + values.item(order.item(i + 1)))
    return lower


def make_cells(aggregates: Sequence[Aggregate], recent: RecentRuns, *, averages: bool = True) -> Cells:
    """Cells from the newest raw runs; keys without any from their averages, which are of run times. O(runs).

    Runs flagged `Run.first_on_device` count only where nothing else is known. An unflagged first run of
    the whole history is believed, with more doubt.
    """
    by_key = recent.by_key
    warm = any(times.warm for times in by_key.values())
    first, first_log = None, 0.0
    # A history that is seen from its very first run: that one may have been cold without a mark.
    if 0 < len(recent.runs) < MAX_RUNS:
        oldest = recent.runs[0]
        log = recent.log(oldest)
        if log is not None:
            first, first_log = key_of(oldest), log
    cells: list[Cell] = []
    doubted: list[Cell] = []
    for aggregate in aggregates:
        key = (aggregate.request, aggregate.inputs)
        known = by_key.get(key)
        cold = known is not None and not known.warm
        if known is None:
            if not averages:
                continue
            y = math.log(max(aggregate.mean, TINY))
            cell = Cell((0, 0, 0.0), (), y, min(aggregate.count, HALF_LIFE), aggregate.count)
        elif cold and len(known.cold) == aggregate.count and warm:
            # Only cold runs of this key, warm ones of others: the warm ones predict better.
            doubted.append(one_cell(aggregate, known))
            continue
        else:
            times = (known.cold if cold else known.warm).values()
            cell = _robust_cell(times)
            cell.cold = cold or (key == first and len(times) == 1)
            # A cold start is no sample of the noise.
            if key == first and first_log == times[0]:
                cell.deviations = cell.deviations[1:]
        cell.request, cell.inputs, cell.runs = aggregate.request, aggregate.inputs, aggregate.count
        cells.append(cell)
    freedom = sum(cell.freedom for cell in cells)
    squares = math.fsum(cell.squares for cell in cells)
    noise = math.sqrt((squares + NOISE_PRIOR_WEIGHT * NOISE_PRIOR**2) / (freedom + NOISE_PRIOR_WEIGHT))
    sizes = len({numeric_inputs(cell.inputs) for cell in cells})
    return Cells(cells, noise, freedom, doubted, sizes)


def one_cell(aggregate: Aggregate, known: KeyTimes | None) -> Cell:
    """The cell of one key alone, from its newest runs; ``deviations`` and the like are left out. O(runs)."""
    if known is None:
        y = math.log(max(aggregate.mean, TINY))
        cell = Cell((0, 0, 0.0), (), y, min(aggregate.count, HALF_LIFE), aggregate.count)
    else:
        logs = (known.warm or known.cold).values()[-NEWEST:]
        if len(logs) == 1:
            cell = _single_run_cell(float(logs[0]))
        else:
            found = _typical_time(logs)
            cell = Cell((0, 0, 0.0), (), found.y, found.weight, len(found.logs))
        cell.cold = not known.warm
    cell.request, cell.inputs, cell.runs = aggregate.request, aggregate.inputs, aggregate.count
    return cell
