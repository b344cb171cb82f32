"""Times of moldable tasks: checked, repaired to satisfy Equations 1 and 2, fitted from measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.files.units import LONGEST

Floats = NDArray[np.float64]

SHORTEST = 1e-12  # seconds; with LONGEST it keeps ratios of times within what floats hold
TOLERANCE = 1e-9  # Equation 2 may miss by this share: rounding, not a measurement


@dataclass(frozen=True, slots=True)
class Repair:
    """What ``repair`` changed in one task: entries raised or lowered, by equation."""

    task: int
    slower_than_fewer: int  # entries that broke Equation 1: more processors, more time
    superlinear: int  # entries that broke Equation 2: less work on more processors
    largest_change: float  # relative

    def describe_repair(self, name: str) -> str:
        """One line for a person; ``name`` is the task's."""
        parts = []
        if self.slower_than_fewer:
            parts.append(f"{self.slower_than_fewer} slower than with fewer processors (Equation 1)")
        if self.superlinear:
            parts.append(f"{self.superlinear} with superlinear speed-up (Equation 2)")
        return f"task {name}: {' and '.join(parts)}; largest change {self.largest_change:.1%}"


def check_times(rows: object, *, processors: int | None = None, where: str = "times") -> Floats:
    """The table of times as float64 of shape ``(n, p)``, or ``InputError`` that names the row.

    Refused: no tasks, no processors, ragged rows, entries that are not numbers, not finite or not
    positive.  Complexity O(n p).
    """
    if isinstance(rows, np.ndarray):
        rows = rows.tolist()
    if not isinstance(rows, list) or not rows:
        raise InputError("expected a non-empty list of rows, one for each task", where=where)
    table: list[list[float]] = []
    for i, row in enumerate(rows):
        table.append(check_row(row, processors=processors, where=f"{where}: task {i}"))
        # The first row decides the width, so that the error names the row that differs from it.
        processors = len(table[0])
    return np.array(table)


def check_row(row: object, *, processors: int | None = None, where: str = "times") -> list[float]:
    """The times of one task on 1 to p processors; ``InputError`` as ``check_times``."""
    if not isinstance(row, list) or not row:
        raise InputError(f"found {row!r}, expected a list of times on 1 to p processors", where=where)
    if processors is not None and len(row) != processors:
        raise InputError(
            f"has {len(row)} times, expected {processors}, for 1 to {processors} processors", where=where
        )
    for j, value in enumerate(row, start=1):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"time on {j} processors is {value!r}, expected a number", where=where)
        if not SHORTEST <= value <= LONGEST:  # nor nan
            raise InputError(
                f"time on {j} processors is {show_value(value)}, expected a positive number of seconds, "
                f"{SHORTEST:g} to {LONGEST:g}",
                where=where,
            )
    return [float(value) for value in row]


def repair_times(times: Floats) -> tuple[Floats, list[Repair]]:
    """Make ``times`` satisfy Equations 1 and 2; also return what was changed, task by task.

    First t_j = min(t_j, t_{j-1}): never use more processors than the best count (Aupy 2013, section
    3).  Then t_j = max(t_j, (j-1)/j t_{j-1}): no processor adds more than its share.  Both run from
    left to right, and the second keeps the first.  O(n p).
    """
    # Equation 1 first: the second repair keeps it, and the reverse does not hold.
    lowered = np.minimum.accumulate(times, axis=1)
    repaired = lowered.copy()
    superlinear = np.zeros(times.shape, dtype=np.bool_)
    for j in range(1, times.shape[1]):
        least = j / (j + 1) * repaired[:, j - 1]
        # Within the tolerance it is rounding of the file, and no violation to report.
        superlinear[:, j] = repaired[:, j] < least * (1.0 - TOLERANCE)
        repaired[superlinear[:, j], j] = least[superlinear[:, j]]
    slower = lowered < times
    with np.errstate(divide="ignore"):  # from a time of 0 any change is infinite
        change = np.abs(repaired - times) / times
    repairs = [
        Repair(
            task=int(i),
            slower_than_fewer=int(slower[i].sum()),
            superlinear=int(superlinear[i].sum()),
            largest_change=float(np.max(change[i])),
        )
        for i in np.flatnonzero((slower | superlinear).any(axis=1))
    ]
    return repaired, repairs


def fit_times(observations: Iterable[tuple[int, float]], processors: int) -> Floats:
    """Times on 1..``processors`` from (count, seconds) observations; shape ``(processors,)``.

    Several runs on one count give their median.  Between the counts, t(j) = a + b/j + c log2(j) with
    non-negative coefficients is fitted in relative error and then bent through the medians, its ratio
    to them interpolated in log2(j).  One count j0 alone does not show how a task scales: the profile
    is then the slowest that Equations 1 and 2 allow, t j0/j below j0 and t above it.

    Raises ``InputError`` when there is no observation, or a count or time is not positive.
    """
    by_count: dict[int, list[float]] = {}
    for count, seconds in observations:
        if count < 1:
            raise InputError(f"observed on {count} processors: expected at least 1")
        if not SHORTEST <= seconds <= LONGEST:  # nor nan
            raise InputError(
                f"observed {seconds} seconds on {count} processors: expected a positive number, "
                f"{SHORTEST:g} to {LONGEST:g}"
            )
        by_count.setdefault(int(count), []).append(float(seconds))
    if not by_count:
        raise InputError("no observation to fit a profile from: expected at least one (processors, seconds)")
    if processors < 1:
        raise InputError(f"{processors} processors: expected at least 1")
    counts = np.array(sorted(by_count), dtype=np.float64)
    medians = np.array([float(np.median(by_count[int(count)])) for count in counts])
    wanted = np.arange(1, processors + 1, dtype=np.float64)
    if len(counts) == 1:
        return np.asarray(medians[0] * np.maximum(counts[0] / wanted, 1.0))
    from scipy.optimize import nnls  # takes long to import: `dovetail policies` lists what uses this

    model = _basis_functions(counts)
    coefficients, _ = nnls(model / medians[:, None], np.ones(len(counts)))
    ratio = np.interp(np.log2(wanted), np.log2(counts), medians / (model @ coefficients))
    return np.asarray((_basis_functions(wanted) @ coefficients) * ratio)


def _basis_functions(counts: Floats) -> Floats:
    return np.column_stack([np.ones_like(counts), 1.0 / counts, np.log2(counts)])


def describe_repairs(repairs: Sequence[Repair], names: Sequence[str], *, shown: int = 5) -> str | None:
    """The warning that lists what was repaired, or ``None`` when nothing was."""
    if not repairs:
        return None
    lines = [found.describe_repair(names[found.task]) for found in repairs[:shown]]
    more = len(repairs) - len(lines)
    if more > 0:
        lines.append(f"and {more} more tasks")
    return "times repaired to satisfy Equations 1 and 2: " + "; ".join(lines)
