"""By how much the months of a trace differ, and intervals that hold it.

Replicates are drawn from one trace, so their spread is that of this trace, resampled: what its users did not
do in these weeks is in none of them. What it can show of another month is how its own months differ. The
trace is cut into consecutive spans of equal length, a month each where there are enough; a metric's drift is
the root of the mean square of its differences from one span to the next, each over the jobs submitted in
the span, as the policy ran the trace whole.

An interval is widened by Student's t times the drift, with as many degrees of freedom as there are
differences, and both parts add up as independent errors do. How often such an interval holds the figure of
another part of the log: docs/explanation/trace-studies.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.model import Result, Seconds
from dovetail.records import dataclass
from dovetail.report.columns import columns_of
from dovetail.report.intervals import Interval, mean_interval, of_replicates, student_quantile
from dovetail.report.metrics import Metrics, TrimmedTrace, metric_of, span_metrics

MONTH: Seconds = 30 * 86_400.0
FEWEST_SPANS = 3
"""As many spans are made of a trace of fewer months: intervals from more are narrower and hold less often."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """The metrics of consecutive spans of ``length`` seconds of one schedule, by name, in order of time."""

    length: Seconds
    spans: Sequence[Metrics]

    def values_of(self, metric: str) -> list[float | None]:
        """The metric in each span, ``None`` where it does not exist (no jobs)."""
        return [span.get(metric) for span in self.spans]

    def between(self, metric: str) -> float | None:
        """What neighbouring spans differ by, as the root of the mean square; ``None`` without two of them."""
        apart = self._differences(metric)
        return math.sqrt(sum(d * d for d in apart) / len(apart)) if apart else None

    def widen(self, found: Interval, metric: str) -> Interval:
        """The interval with what months differ by; as it is for a metric that spans do not have."""
        apart, between = self._differences(metric), self.between(metric)
        if between is None:
            return found
        reach = student_quantile(len(apart), CONFIDENCE) * between
        return replace(found, half_width=math.hypot(found.half_width or 0.0, reach))

    def json_form(self) -> dict[str, object]:
        """As an entry of `compare --json` has it."""
        names = [name for name in self.spans[0] if self.between(name) is not None]
        return {
            "span_seconds": self.length,
            "metrics": {name: {"spans": self.values_of(name), "drift": self.between(name)} for name in names},
        }

    def _differences(self, metric: str) -> list[float]:
        pairs = pairwise(self.values_of(metric))
        return [after - before for before, after in pairs if before is not None and after is not None]


_KNOWN: WeakKeyDictionary[Result, dict[TrimmedTrace | None, Drift | None]] = WeakKeyDictionary()


def drift_of(result: Result, cut: TrimmedTrace | None = None) -> Drift | None:
    """By what the spans of a schedule differ; ``None`` where all is submitted at one instant. O(jobs).

    ``cut`` leaves a warm-up and a cool-down out of the spans.
    """
    known = _KNOWN.setdefault(result, {})
    if cut not in known:
        known[cut] = _spans_of(result, cut)
    return known[cut]


def _spans_of(result: Result, cut: TrimmedTrace | None) -> Drift | None:
    columns = columns_of(result)
    counted = columns.counted if cut is None else cut.select_counted(columns)[0]
    moments = columns.submit[counted]
    if not result.known or not len(moments) or moments.min() == moments.max():
        return None
    first, last = float(moments.min()), float(moments.max())
    count = max(FEWEST_SPANS, int((last - first) // MONTH))
    edges = np.linspace(first, last, count + 1)
    return Drift((last - first) / count, span_metrics(result, edges, counted))


def drift_of_draws(group: Iterable[Result], cut: TrimmedTrace | None = None) -> Drift | None:
    """That of a variant's draws: of the trace as it is, whose months are in their order."""
    whole = next((result for result in group if not result.replicate.number), None)
    return None if whole is None else drift_of(whole, cut)


def figure_intervals(
    groups: Mapping[str, Sequence[Result]],
    metric: str,
    cut: TrimmedTrace | None = None,
    *,
    drift: bool = False,
) -> list[Interval | None]:
    """The mean of a metric over each variant's draws with its interval; with ``drift`` of another month."""
    replicates = of_replicates(result for group in groups.values() for result in group)
    found: list[Interval | None] = []
    for group in groups.values():
        one = mean_interval((metric_of(r, metric, cut) for r in group), replicates=replicates)
        own = drift_of_draws(group, cut) if drift else None
        found.append(one if one is None or own is None else own.widen(one, metric))
    return found
