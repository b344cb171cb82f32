"""Means over draws with confidence intervals, and paired comparison of two policies.

Intervals are Student's t at 95 % by default. Two policies on the same draws are compared by
the differences draw by draw: what a draw makes easy or hard for both cancels out.

Draws are of two kinds. Fresh ones come from a model, by a seed each: their mean is known the better the more
there are, and its interval is t · s / √n. Replicates of a trace come from one trace: however many there are,
they know no more than it does. Their spread stands for how much one trace differs from another one, so that
the interval is that of one further draw, t · s · √(1 + 1/n).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.model import Result
from dovetail.records import dataclass
from dovetail.report.metric_names import HIGHER_IS_BETTER, metric_named
from dovetail.report.metrics import TrimmedTrace, final_metrics, metric_of
from dovetail.report.wording import machine_name

FEW = 10.0
"""Of so many weeks the replicates would differ half as much as traces do."""


def range_of(metric: str) -> tuple[float, float]:
    """The least and the greatest value that a metric can have."""
    known = metric_named(metric)
    return (1.0 if known.kind == "slowdown" else 0.0), (1.0 if known.more else math.inf)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of ``n`` values, and half the width of its confidence interval (``None`` below two values)."""

    mean: float
    half_width: float | None
    n: int

    @property
    def lower_end(self) -> float:
        """Lower end; the mean where there is no interval."""
        return self.mean - (self.half_width or 0.0)

    @property
    def upper_end(self) -> float:
        """Upper end; the mean where there is no interval."""
        return self.mean + (self.half_width or 0.0)

    def ends_within(self, metric: str) -> tuple[float, float]:
        """Both ends, as far as a metric reaches: no share is below 0 or above 1.

        >>> (
        ...     Interval(0.55, 4.0, 2).ends_within("utilisation"),
        ...     Interval(0.5, 0.25, 9).ends_within("utilisation"),
        ... )
        ((0.0, 1.0), (0.25, 0.75))
        """
        least, most = range_of(metric)
        return max(self.lower_end, min(least, self.mean)), min(self.upper_end, max(most, self.mean))


def mean_interval(
    values: Iterable[float | None], confidence: float = 0.95, *, replicates: float = 0.0
) -> Interval | None:
    """Mean and Student's t interval of the values that are there; ``None`` without any.

    ``replicates``: they come from replicates of one trace, and are no better known for their number; what
    `of_replicates` gives.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.half_width, 3), found.n
    (2.0, 2.484, 3)
    >>> round(mean_interval([1.0, 2.0, 3.0], replicates=1.0).half_width, 3)
    4.968
    """
    known = np.array([v for v in values if v is not None and math.isfinite(v)], float)
    if not len(known):
        return None
    mean = float(known.mean())
    if len(known) == 1:
        return Interval(mean, None, 1)
    quantile = student_quantile(len(known) - 1, confidence)
    return Interval(
        mean, quantile * float(known.std(ddof=1)) * _standard_error_factor(len(known), replicates), len(known)
    )


def _standard_error_factor(n: int, replicates: float) -> float:
    """By what a standard deviation becomes the standard error that an interval rests on."""
    return replicates * math.sqrt(1.0 + 1.0 / n) if replicates else math.sqrt(1.0 / n)


def of_replicates(results: Iterable[Result]) -> float:
    """By how much the spread of replicates drawn from one trace is widened; 0 where draws are fresh.

    Few weeks hardly hold the rare one, so that their replicates differ less than such traces do: the fewer,
    the less. The factor is from stationary traces of 9 to 25 weeks (docs/explanation/trace-studies.md).
    """
    drawn = [r.replicate for r in results if r.replicate.number and not r.replicate.fresh]
    return max((1.0 + FEW / one.weeks if one.bootstrap else 1.0 for one in drawn), default=0.0)


def student_quantile(freedom: int, confidence: float) -> float:
    """The t beyond which, on both sides, 1 - ``confidence`` of Student's distribution lies.

    For whole degrees of freedom the share within t is a finite sum (Abramowitz and Stegun, 26.7.3 and
    26.7.4), so that reports need no library of statistics; t is found by halving. O(degrees of freedom).

    >>> (
    ...     round(student_quantile(2, 0.95), 6),
    ...     round(student_quantile(9, 0.95), 6),
    ...     round(student_quantile(1, 0.5), 6),
    ... )
    (4.302653, 2.262157, 1.0)
    """
    low, high = 0.0, math.pi / 2
    # The angle whose tangent is t / √freedom has a finite range, so halving needs no upper limit for t. It
    # ends where the two bounds are neighbouring floating point numbers.
    while (angle := (low + high) / 2) not in (low, high):
        low, high = (angle, high) if _share_within(angle, freedom) < confidence else (low, angle)
    return math.tan(angle) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """The share between -t and t where t is tan(angle) times the root of the degrees of freedom."""
    odd = freedom % 2
    square = math.cos(angle) ** 2
    total, term = 0.0, math.cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (k - 1) / k
    found = math.sin(angle) * total
    return 2 / math.pi * (angle + found) if odd else found


def chance_beyond(t: float, freedom: int) -> float:
    """How likely Student's t is as far from 0 as ``t``, on either side.

    The incomplete beta function I_x(freedom/2, 1/2) at x = freedom / (freedom + t^2), by its continued
    fraction (DLMF 8.17.22), which is exact to rounding in the tails, too, where 1 less a share is not.

    >>> round(chance_beyond(4.302653, 2), 6), round(chance_beyond(-1.0, 1), 6), chance_beyond(0.0, 7)
    (0.05, 0.5, 1.0)
    """
    square = t * t
    outside, inside = freedom / (freedom + square), square / (freedom + square)
    # The continued fraction converges fast where x is below (a + 1) / (a + b + 2) only; the symmetry of the
    # distribution gives the other.
    if outside < (freedom + 2.0) / (freedom + 5.0):
        return _incomplete_beta(outside, inside, freedom / 2, 0.5)
    return 1.0 - _incomplete_beta(inside, outside, 0.5, freedom / 2)


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """I_x(a, b) where x is below (a + 1) / (a + b + 2), and ``rest`` is 1 - x; by Lentz's method."""
    if x <= 0.0:
        return 0.0
    front = a * math.log(x) + b * math.log(rest) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    found, m = d, 0
    while True:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = found
        for term in (even, odd):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            found *= c * d
        if abs(found - before) <= abs(found) * 1e-16:
            return math.exp(front) / a * found


@dataclass(frozen=True, slots=True)
class Paired:
    """Policy ``a`` minus policy ``b`` on the same draws.

    ``ratio`` is the mean of ``a`` over the mean of ``b``. A win is a draw on which ``a`` is better.
    ``significant``: whether the interval of the difference leaves out zero; ``chance`` is how likely so
    large a mean difference would be if there were none (a two-sided t test; ``None`` below two draws).
    """

    metric: str
    a: str
    b: str
    difference: Interval
    ratio: float | None
    wins: int
    ties: int
    losses: int
    chance: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether zero lies outside of the interval (never without an interval)."""
        d = self.difference
        return d.half_width is not None and (d.lower_end > 0 or d.upper_end < 0)


def compare_paired(
    a: Sequence[Result],
    b: Sequence[Result],
    metric: str = "makespan",
    confidence: float = 0.95,
    *,
    cut: TrimmedTrace | None = None,
) -> Paired:
    """Compare two policies draw by draw over the seeds and replicates that both have.

    ``cut`` leaves out a warm-up and a cool-down. Raises `InputError` if they have no draw in
    common, or a draw twice.
    """
    # Not every policy gives every metric on every draw (no jobs counted, no predictions), so only draws with
    # both are pairs.
    known = _common_values(a, b, metric, cut)
    if not known:
        raise InputError(
            f"cannot compare {policy_label(a[0]) if a else 'nothing'} with "
            f"{policy_label(b[0]) if b else 'nothing'} by "
            f"{metric}: no seed has it under both"
        )
    replicates = of_replicates([*a, *b])
    return compare_pairs(
        known, metric, policy_label(a[0]), policy_label(b[0]), confidence, replicates=replicates
    )


def are_comparable(groups: Sequence[Sequence[Result]], metric: str, cut: TrimmedTrace | None = None) -> bool:
    """Whether each of the policies has the metric on a seed on which the first has it too."""
    return all(_common_values(group, groups[0], metric, cut) for group in groups[1:])


def _common_values(
    a: Sequence[Result], b: Sequence[Result], metric: str, cut: TrimmedTrace | None
) -> list[tuple[float, float]]:
    first, second = _values_by_draw(a, metric, cut), _values_by_draw(b, metric, cut)
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def compare_pairs(
    pairs: Sequence[tuple[float, float]],
    metric: str,
    a: str,
    b: str,
    confidence: float = 0.95,
    *,
    replicates: float = 0.0,
) -> Paired:
    """`compare_paired` on bare values, which must not be empty."""
    table = np.array(pairs, float)
    differences = table[:, 0] - table[:, 1]
    # Sums in another order may differ in the last digits: that is a tie, neither a win nor a loss.
    equal = np.isclose(table[:, 0], table[:, 1], rtol=1e-12, atol=0.0)
    better = (differences > 0) if metric in HIGHER_IS_BETTER else (differences < 0)
    difference = mean_interval(differences, confidence, replicates=replicates)
    assert difference is not None
    means = table.mean(axis=0)
    return Paired(
        metric,
        a,
        b,
        difference,
        float(means[0] / means[1]) if means[1] else None,
        int((better & ~equal).sum()),
        int(equal.sum()),
        int((~better & ~equal).sum()),
        _chance_of_equality(differences, replicates),
    )


def _chance_of_equality(differences: npt.NDArray[np.float64], replicates: float) -> float | None:
    n = len(differences)
    if n < 2:
        return None
    error = float(differences.std(ddof=1)) * _standard_error_factor(n, replicates)
    if error == 0.0:
        # All draws differ by the same amount: chance explains nothing of it, or there is no difference to
        # explain.
        return 0.0 if differences[0] else 1.0
    return chance_beyond(float(differences.mean()) / error, n - 1)


def _values_by_draw(
    results: Sequence[Result], metric: str, cut: TrimmedTrace | None
) -> dict[tuple[int | None, int], float | None]:
    values: dict[tuple[int | None, int], float | None] = {}
    for result in results:
        draw = result.seed, result.replicate.number
        if draw in values:
            which = f"seed {draw[0]}" if not draw[1] else f"replicate {draw[1]}"
            raise InputError(f"{policy_label(result)}: {which} is there twice, expected once")
        values[draw] = metric_of(result, metric, cut)
    return values


def policy_label(result: Result) -> str:
    """The policy as it is written on the command line, e.g. ``fms?score=area``."""
    if not result.options or "?" in result.policy:
        return result.policy
    return result.policy + "?" + "&".join(f"{k}={v}" for k, v in result.options.items())


def group_variants(results: Iterable[Result], *, loads: bool = True) -> dict[str, list[Result]]:
    """Results by what is compared, in order of first appearance, each with the results of its draws.

    That is the policy, and cluster and load where there are several; with ``loads`` false whatever the load.
    """
    known = list(results)
    several_clusters = len({machine_name(result.cluster) for result in known}) > 1
    several_loads = loads and len({result.load for result in known}) > 1
    found: dict[str, list[Result]] = {}
    for result in known:
        name = policy_label(result)
        name += f" on {machine_name(result.cluster)}" if several_clusters else ""
        name += f" at load {result.load:g}" if several_loads and result.load is not None else ""
        found.setdefault(name, []).append(result)
    return found


def has_equal_draws(group: Sequence[Result]) -> bool:
    """Whether the draws of a variant, of which there are several, all give the same outcome."""
    return len(group) > 1 and all(
        _outcome_metrics(result) == _outcome_metrics(group[0]) for result in group[1:]
    )


def _outcome_metrics(result: Result) -> dict[str, float | None]:
    """The metrics, but for those of how long it took to find it."""
    found = final_metrics(result)
    return {name: value for name, value in found.items() if not name.startswith(("decision", "simulation"))}
