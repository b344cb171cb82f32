"""Which of several policies differ from the first one, and which differences are left open.

With more policies against the first, chance alone makes one of them look different more often. So a
difference is *clear* only after Holm's correction (1979, "A simple sequentially rejective multiple test
procedure"): the least likely of m is held against 5 % / m, the next against 5 % / (m - 1), up to the first
that fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from dovetail.errors import InputError
from dovetail.model import Result
from dovetail.records import dataclass
from dovetail.report.drift import drift_of_draws, figure_intervals
from dovetail.report.intervals import Paired, compare_paired, group_variants
from dovetail.report.metric_names import HIGHER_IS_BETTER
from dovetail.report.metrics import TrimmedTrace, every_metric

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the draws show of one policy against the first one, by one metric.

    ``none``: there is nothing to judge by, such as a second draw. ``reason`` is a sentence.
    """

    found: Paired | None
    verdict: Literal["clear", "open", "none"]
    reason: str

    def json_form(self) -> dict[str, Any]:
        """As `compare --summary` writes it; ``None`` for what is not known."""
        if self.found is None:
            known = dict.fromkeys(("difference", "low", "high", "ratio"))
        else:
            d = self.found.difference
            ends = (None, None) if d.half_width is None else (d.lower_end, d.upper_end)
            known = {"difference": d.mean, "low": ends[0], "high": ends[1], "ratio": self.found.ratio}
        return {**known, "verdict": self.verdict, "reason": self.reason}


def compare_variants(
    groups: Mapping[str, Sequence[Result]], metric: str, cut: TrimmedTrace | None = None
) -> dict[str, Verdict]:
    """Each variant but the first against the first, by one metric."""
    base, *others = groups
    found: dict[str, Paired | None] = {}
    for name in others:
        try:
            found[name] = compare_paired(groups[name], groups[base], metric, cut=cut)
        except InputError:  # no draw on which both have it
            found[name] = None
    # Holm's correction counts only comparisons that have a test at all: a policy without a second draw costs
    # the others nothing.
    chances = {name: one.chance for name, one in found.items() if one is not None and one.chance is not None}
    clear = _clear_names(chances)
    return {
        name: Verdict(None, "none", f"no draw has it under both {name} and {base}")
        if one is None
        else _judge_difference(one, name in clear, len(chances))
        for name, one in found.items()
    }


def _clear_names(chances: Mapping[str, float]) -> set[str]:
    clear: set[str] = set()
    for rank, name in enumerate(sorted(chances, key=lambda name: chances[name])):
        # Up to the first that fails: later ones stay open even where they would pass their own, milder level.
        if chances[name] > LEVEL / (len(chances) - rank):
            break
        clear.add(name)
    return clear


def _judge_difference(one: Paired, clear: bool, compared: int) -> Verdict:
    d = one.difference
    if d.half_width is None:
        return Verdict(one, "none", "a single draw: what another one would give is not known")
    if one.ties == d.n:
        return Verdict(one, "open", f"equal on all {d.n} draws")
    on = f"better on {one.wins} and worse on {one.losses} of {d.n} draws"
    if clear:
        better = (d.mean > 0) is (one.metric in HIGHER_IS_BETTER)
        return Verdict(one, "clear", f"{'better' if better else 'worse'}: {on}")
    # Its own interval leaves out zero, the corrected one does not: a reader who sees the first is owed the
    # reason.
    if one.is_significant:
        return Verdict(one, "open", f"{on}; among {compared} policies chance alone gives as much")
    return Verdict(one, "open", f"{on}; the interval holds zero")


def summary_of(
    results: Sequence[Result], cut: TrimmedTrace | None = None, *, drift: bool = False
) -> dict[str, dict[str, dict[str, Any]]]:
    """By metric and variant: difference from the first variant at the same load, interval, ratio, verdict.

    Metrics of how long it took to decide or simulate are left out. With ``drift`` every variant has its
    figure, too, the first one among them: mean, interval, and by what months differ.
    """
    summary: dict[str, dict[str, dict[str, Any]]] = {}
    everything = group_variants(results)
    for load in dict.fromkeys(result.load for result in results):
        groups = {name: group for name, group in everything.items() if group[0].load == load}
        known = [every_metric(result, cut) for group in groups.values() for result in group]
        for metric in dict.fromkeys(name for metrics in known for name in metrics):
            values = [metrics.get(metric) for metrics in known]
            timed = metric.startswith(("decision", "simulation"))
            if timed or not any(v is not None and math.isfinite(v) for v in values):
                continue
            judged = compare_variants(groups, metric, cut)
            rows = {name: one.json_form() for name, one in judged.items()}
            if drift:
                base = next(iter(groups))
                first = Verdict(None, "none", "the others are compared with it").json_form()
                rows = {
                    name: row | {"figure": figure}
                    for (name, row), figure in zip(
                        ({base: first} | rows).items(), _figure_forms(groups, metric, cut), strict=True
                    )
                }
            summary.setdefault(metric, {}).update(rows)
    return summary


def _figure_forms(
    groups: Mapping[str, Sequence[Result]], metric: str, cut: TrimmedTrace | None
) -> Iterator[dict[str, float | None]]:
    """Of each variant the mean of a metric, the ends of its interval with the drift, and the drift."""
    found = figure_intervals(groups, metric, cut, drift=True)
    for group, one in zip(groups.values(), found, strict=True):
        own = drift_of_draws(group, cut)
        ends = (None, None) if one is None or one.half_width is None else one.ends_within(metric)
        yield {
            "mean": None if one is None else one.mean,
            "low": ends[0],
            "high": ends[1],
            "drift": None if own is None else own.between(metric),
        }
