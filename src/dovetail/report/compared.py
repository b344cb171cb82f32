"""The tables of several results side by side: policies, draws, clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dovetail.files.sentences import make_printable
from dovetail.model import Note, Result
from dovetail.report import wording
from dovetail.report.columns import columns_of
from dovetail.report.drift import Drift, drift_of_draws, figure_intervals
from dovetail.report.intervals import (
    Interval,
    Paired,
    are_comparable,
    group_variants,
    has_equal_draws,
    of_replicates,
    policy_label,
)
from dovetail.report.metric_names import HIGHER_IS_BETTER, MAIN, metric_named
from dovetail.report.metrics import TrimmedTrace, final_metrics, later_than
from dovetail.report.options import ReportOptions
from dovetail.report.outcome import UNKNOWN
from dovetail.report.tables import Cell, Cells, Style, Table
from dovetail.report.verdicts import Verdict, compare_variants

COMPARED = (*MAIN, "anl", "mit", "decision_seconds_mean")
"""Metrics of the comparison, the most important first."""

COMPARED_TRACES = (*MAIN, "p95_wait", "decision_seconds_mean")
"""The same for jobs that leave no choice where to run: Ravi's ANL and MIT are empty for them."""

COUNTED = (
    ("jobs_timeout", "ended at\nwalltime"),
    ("jobs_failed", "failed"),
    ("jobs_rejected", "rejected"),
    ("promises_broken", "promises\nbroken"),
)
"""What is counted where it happens at all, and how it is headed."""

PAIRED = ("makespan", "mean_wait", "mean_bounded_slowdown")
"""Metrics by which policies are compared draw by draw."""


TOP_NOTES = ("unknown", "not_as_named")
"""Codes of the notes that a comparison needs, on a page too."""

DETAILS = ("mit", "decision_seconds_mean")
"""Metrics that only the verbose output shows."""


def compared_metrics(results: Sequence[Result], *, verbose: bool = True) -> tuple[str, ...]:
    """The metrics worth comparing these results by; ``verbose``: the details, too."""
    first = [result for result in results if result.known][:1]
    choice = any(columns_of(result).choices for result in first)
    names = COMPARED if choice else COMPARED_TRACES
    return names if verbose else tuple(name for name in names if name not in DETAILS)


def _by_variant(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The variants, each with the results of its draws; with one where the draws change nothing."""
    return {
        name: group[:1] if has_equal_draws(group) else group
        for name, group in group_variants(results).items()
    }


def comparison_table(
    results: Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    cut: TrimmedTrace | None = None,
    drift: bool = False,
) -> Table:
    """A row for each variant, the best of each metric marked; over several draws mean ± half the interval.

    ``drift`` adds what the months of the trace differ by.
    """
    groups = _by_variant(results)
    found = {name: [final_metrics(r, cut) for r in group] for name, group in groups.items()}
    rows = list(found)
    columns = [Cells("policy", rows, right=False, keep_end=True)]
    for rank, name in enumerate(names or compared_metrics(results)):
        intervals = figure_intervals(groups, name, cut, drift=drift)
        # The first column stays even where it is empty, as it carries the marks of unknown schedules.
        if rank and not any(intervals):
            continue
        # Only the first column marks a schedule as unknown: the others stay empty.
        unknown = [rank == 0 and not groups[row][0].known for row in rows]
        columns.append(_compared_cells(name, intervals, rank, unknown))
        if rank == 0:
            columns += _ratio_cells(intervals)
    for name, head in COUNTED:
        counts = [sum(m[name] or 0 for m in found[row]) / len(found[row]) for row in rows]
        if any(counts):
            about = (
                ""
                if max(map(len, groups.values())) == 1
                else f"In the mean of the {_describe_draws(results)}."
            )
            cells = [Cell(wording.format_fixed(c, 0 if c.is_integer() else 1), c) for c in counts]
            columns.append(Cells(head, cells, rank=1, about=about))
    # The largest group counts: a variant that failed for some seeds has fewer.
    draws = max(map(len, groups.values()), default=0)
    caption = "* best" if sum(group[0].known for group in groups.values()) > 1 else ""
    if draws > 1 or drift:
        caption += "; " if caption else ""
        caption += f"± 95 % confidence interval {_interval_source(results, draws, drift)}"
    return Table(columns, caption=caption, fold=True)


def _interval_source(results: Sequence[Result], draws: int, drift: bool) -> str:
    """What the intervals of figures are intervals of."""
    if not of_replicates(results) and draws > 1:
        return f"of the mean of {draws} {_describe_draws(results)}"
    resampled = f"of this log, resampled ({draws} replicates)" if draws > 1 else "of this log"
    return f"{resampled}, with its drift" if drift else resampled


def _describe_draws(results: Sequence[Result]) -> str:
    """What several results of one variant differ by."""
    return "replicates" if of_replicates(results) else "seeds"


def comparison_remarks(
    results: Sequence[Result], *, cut: TrimmedTrace | None = None, drift: bool = False
) -> list[str]:
    """What a reader should know of walltimes and draws, and of what is unknown or not as it is called."""
    groups = group_variants(results)
    drawn = [*_of_draws(groups), *_of_replicates(groups, drift), *(_of_drift(groups, cut) if drift else [])]
    return [*_walltime_remarks(groups), *drawn, *_of_notes(groups)]


def _of_drift(groups: Mapping[str, Sequence[Result]], cut: TrimmedTrace | None) -> list[str]:
    """What the spans of the trace were, and the mean waits in them under the first variant that has some."""
    for name, group in groups.items():
        found = drift_of_draws(group, cut)
        if found is not None:
            return [_describe_drift(name, found)]
    return []


def _describe_drift(name: str, found: Drift) -> str:
    waits = found.values_of("mean_wait")
    factor, unit, decimals = wording.scale_of(waits)
    listed = [UNKNOWN if wait is None else wording.format_fixed(wait * factor, decimals) for wait in waits]
    spans = f"{len(waits)} consecutive spans of {wording.spell_seconds_shortly(found.length)}"
    return (
        f"Drift: in {spans} the mean wait under {make_printable(name)} is "
        f"{wording.list_names(listed, 12)} {unit}. "
        "Intervals of figures hold such differences, too; those of makespans, and of differences between "
        "policies, do not."
    )


def _of_notes(groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """What variants could not know, or not do, each sentence once, with the names of those it is about."""
    found: dict[str, list[str]] = {}
    for name, group in groups.items():
        for note in group[0].notes:
            if Note.code_of(note) in TOP_NOTES:
                found.setdefault(str(note), []).append(name)
    return [
        text if len(names) == len(groups) else f"{wording.list_names(names, 3)}: {text}"
        for text, names in found.items()
    ]


def _walltime_remarks(groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """How many jobs a walltime ended, which is no merit of the policy under which they were short."""
    found: dict[str, list[str]] = {}
    for name, group in groups.items():
        ended, jobs = (final_metrics(group[0])[key] or 0 for key in ("jobs_timeout", "jobs"))
        if ended and group[0].overrun == "kill":
            found.setdefault(f"{ended:,.0f} of {wording.count_things(jobs, 'job')}", []).append(name)
    sentences = [
        counts if len(names) == len(groups) else f"{counts} under {wording.list_names(names, 3)}"
        for counts, names in found.items()
    ]
    if not sentences:
        return []
    return [f"A walltime ended {wording.list_names(sentences, 4)}; --overrun run lets jobs go on."]


def _of_replicates(groups: Mapping[str, Sequence[Result]], drift: bool) -> list[str]:
    """How replicates of a trace were drawn, and what their interval does not hold."""
    results = [result for group in groups.values() for result in group]
    # A log of under a week has no weeks to draw from, only jitter.
    one = next((r.replicate for r in results if r.replicate.number and not r.replicate.fresh), None)
    if one is None:
        return []
    many = wording.count_things(max(map(len, groups.values())), "replicate")
    moved = f"submissions moved by up to {wording.spell_seconds_shortly(one.jitter)}"
    if not one.jitter:
        moved = "jobs of one instant in another order"
    # With the drift another sentence gives what months differ by.
    beyond = "." if drift else "; --drift adds what the months of this log differ by."
    if one.bootstrap:
        how = f"weeks drawn anew of the {one.weeks} in the trace, at its load, {moved}"
        held = "The interval holds what other weeks like these would give"
        return [f"{many}: {how}. {held}{beyond}"]
    had = "no whole week" if not one.weeks else wording.count_things(one.weeks, "week")
    return [
        f"{many}: {moved}. The trace has {had}; none were drawn anew. So the interval holds what other "
        f"{'moments' if one.jitter else 'orders'} of the same submissions would give, and not what other "
        f"weeks would{beyond}"
    ]


def _of_draws(groups: Mapping[str, Sequence[Result]]) -> list[str]:
    """Where draws change nothing, or are too few."""
    first = next(iter(groups.values()), [])
    if len(first) < 2:
        return []
    if of_replicates(first):
        if not all(map(has_equal_draws, groups.values())):
            return []
        return ["The replicates change nothing here: jobs fare as in the workload as it is, which is shown."]
    seeds = [1 if result.seed is None else result.seed for result in first]
    # A policy under which no draw changes anything needs no interval.
    same = [name for name, group in groups.items() if has_equal_draws(group)]
    found = []
    if len(same) == len(groups):
        found.append(
            f"Seeds {seeds[0]} to {seeds[-1]} change nothing here: nothing is drawn at random, and jobs that "
            "are submitted together fare alike in any order. One run of each is shown."
        )
    elif same:
        listed = wording.list_names([make_printable(name) for name in same], 4)
        found.append(f"The seeds change nothing under {listed}: one run is shown.")
    if len(seeds) == 2 and len(same) < len(groups):
        found.append("Two seeds are few: their intervals rest on a single difference. Take five or more.")
    return found


def scale_texts(name: str, intervals: Sequence[Interval | None]) -> tuple[str, list[str | None]]:
    """(unit, texts) of one metric in one scale: ``mean``, ``mean ± half``, or ``mean (low to high)``.

    Means that differ are spelt with as many decimals, within reason, as distinguish them.
    """
    means = [i.mean if i else None for i in intervals]
    if wording.is_seconds(name):
        factor, unit, decimals = wording.scale_of(means)
    elif "utilisation" in name:
        factor, unit, decimals = 100.0, "%", 1
    else:
        factor, unit, decimals = 1.0, "", 0 if name.startswith(("jobs", "promises", "broken")) else 2
    known = {m for m in means if m is not None}
    # More decimals as long as two different means would print alike, three at most.
    while decimals < 3 and len({wording.format_fixed(m * factor, decimals) for m in known}) < len(known):
        decimals += 1
    return unit, [None if i is None else _spell_interval(i, name, factor, decimals) for i in intervals]


def _spell_interval(found: Interval, metric: str, factor: float, decimals: int) -> str:
    text = wording.format_fixed(found.mean * factor, decimals)
    if found.half_width is None:
        return text
    if found.ends_within(metric) != (found.lower_end, found.upper_end):
        low, high = (wording.format_fixed(end * factor, decimals) for end in found.ends_within(metric))
        return f"{text} ({low} to {high})"
    return f"{text} ± {wording.format_fixed(found.half_width * factor, decimals)}"


def _compared_cells(
    name: str, intervals: Sequence[Interval | None], rank: int, unknown: Sequence[bool]
) -> Cells:
    best = best_rows([i.mean if i else None for i in intervals], name)
    unit, texts = scale_texts(name, intervals)
    cells: list[Cell | str] = []
    for i, (text, found) in enumerate(zip(texts, intervals, strict=True)):
        mark = (" *" if i in best else "  ") if best else ""
        if text is None or found is None:
            cells.append(UNKNOWN if unknown[i] else "-")
        else:
            cells.append(Cell(text + mark, found.mean, "best" if i in best else ""))
    pad = "  " if best else ""
    head = f"{wording.metric_title(name, short=True)}{pad}\n{unit}{pad}"
    return Cells(head, cells, rank=rank, about=metric_named(name).about)


def best_rows(means: Sequence[float | None], name: str) -> set[int]:
    """Rows that share the best value; none where every row has it, or there is only one row."""
    known = [v for v in means if v is not None]
    if len(known) < 2:
        return set()
    top = max(known) if name in HIGHER_IS_BETTER else min(known)
    # Means that differ by rounding alone share the mark.
    slack = 1e-9 * max(abs(v) for v in known)
    best = {i for i, v in enumerate(means) if v is not None and abs(v - top) <= slack}
    return set() if len(best) == len(known) else best


def _ratio_cells(intervals: Sequence[Interval | None]) -> Iterator[Cells]:
    known = [i.mean for i in intervals if i is not None]
    least = min(known, default=0.0)
    if len(known) > 1 and least > 0:
        cells = ["-" if i is None else Cell(f"{i.mean / least:.2f}x", i.mean / least) for i in intervals]
        yield Cells("over\nbest", cells, rank=4)


def paired_tables(results: Sequence[Result], *, cut: TrimmedTrace | None = None) -> list[Table]:
    """Every variant against the first, the same draws compared: a table for each metric that all have.

    None where there is nothing to compare so: one variant, one draw, or draws that change nothing.
    """
    groups = group_variants(results)
    if len(groups) < 2 or min(map(len, groups.values())) < 2 or all(map(has_equal_draws, groups.values())):
        return []
    metrics = [name for name in PAIRED if are_comparable(list(groups.values()), name, cut)]
    tables = [_paired_table(groups, metric, cut) for metric in metrics]
    caption = "± 95 % confidence interval of the difference; clear: zero is left out"
    others = len(groups) - 1
    caption += f", corrected for {others} policies compared" if others > 1 else ""
    return [*tables[:-1], *(replace(table, caption=caption) for table in tables[-1:])]


def pairs_heading(results: Sequence[Result]) -> str:
    """Against which policy `paired_tables` holds the others, and draw by draw of what."""
    base, group = next(iter(group_variants(results).items()))
    kind = "replicate" if _describe_draws(group) == "replicates" else "seed"
    return f"Against {base}, {kind} by {kind}"


FEW_JOBS = 100
"""Jobs below which a comparison shows too little for a verdict."""


def outcome_sentence(results: Sequence[Result], *, cut: TrimmedTrace | None = None) -> str:
    """What came of the policy whose mean wait differs most from the first one's, in one plain sentence.

    Empty where there is nothing to compare so: one policy, one draw, several loads, no waits.
    """
    groups = group_variants(results)
    if len(groups) < 2 or len({result.load for result in results}) > 1:
        return ""
    judged = {
        name: one
        for name, one in compare_variants(groups, "mean_wait", cut).items()
        if one.found is not None and one.found.ratio is not None and one.found.difference.n > 1
    }
    if not judged:
        return ""
    base = next(iter(groups))
    name, one = min(judged.items(), key=lambda pair: pair[1].found.difference.mean if pair[1].found else 0.0)
    found = one.found
    assert found is not None
    assert found.ratio is not None
    difference = found.difference.mean
    if found.ratio == 1.0:
        return f"The mean wait is the same under {name} and {base}."
    before = difference / (found.ratio - 1.0)  # the mean of the first policy, over the draws that both have
    was, becomes = map(wording.spell_seconds_shortly, (before, before + difference))
    would = "would have cut" if difference < 0 else "would have raised"
    jobs = min(len(result.records) for result in results)
    if jobs < FEW_JOBS:
        end = f"{wording.count_things(jobs, 'job')} are too few for a verdict"
    else:
        end = f"the difference is {'clear' if one.verdict == 'clear' else 'not clear'}"
    return f"{name} {would} the mean wait of {base} from {was} to {becomes}; {end}."


def _paired_table(groups: Mapping[str, Sequence[Result]], metric: str, cut: TrimmedTrace | None) -> Table:
    _, *others = groups
    judged = [one for one in compare_variants(groups, metric, cut).values() if one.found is not None]
    rows = [one.found for one in judged if one.found is not None]
    scale = wording.scale_of([r.difference.mean for r in rows] + [r.difference.upper_end for r in rows])
    factor, unit, decimals = scale if wording.is_seconds(metric) else (1.0, "", 3)
    differences: list[Cell | str] = []
    for row, one in zip(rows, judged, strict=True):
        d = row.difference
        text = wording.format_fixed(d.mean * factor, decimals, signed=True)
        text += "" if d.half_width is None else f" ± {wording.format_fixed(d.half_width * factor, decimals)}"
        good = (d.mean > 0) is (metric in HIGHER_IS_BETTER)
        style: Style = ("good" if good else "bad") if one.verdict == "clear" else ""
        differences.append(Cell(text, d.mean, style))
    name = wording.metric_title(metric, short=True)
    columns = [
        Cells("policy", others, right=False, keep_end=True),
        Cells(f"{name} difference {unit}".rstrip(), differences),
        Cells("ratio", ["-" if r.ratio is None else Cell(f"{r.ratio:.3f}", r.ratio) for r in rows], rank=1),
        Cells("better on", [Cell(f"{r.wins} of {r.difference.n}", r.wins) for r in rows], rank=1),
        Cells("equal on", [Cell(str(r.ties) if r.ties else "-", r.ties) for r in rows], rank=2),
        Cells(
            "verdict",
            [_clearness_text(*pair) for pair in zip(rows, judged, strict=True)],
            right=False,
            rank=2,
        ),
    ]
    return Table(columns, title=wording.metric_title(metric))


def _clearness_text(row: Paired, judged: Verdict) -> str:
    if row.ties == row.difference.n:
        return "always equal"
    return "clear" if judged.verdict == "clear" else "not clear"


def later_table(results: Sequence[Result], options: ReportOptions) -> Table:
    """By variant: how many jobs end later than under the reference policy, and by how much."""
    found: dict[str, list[list[float]]] = {}
    base = ""
    for name, group in _by_variant(results).items():
        pairs = [(result, options.reference(result)) for result in group]
        known = [(result, reference) for result, reference in pairs if reference is not None]
        found[name] = [list(later_than(*pair).values()) for pair in known]
        base = policy_label(known[0][1]) if known else base
    late = {name: [by for times in runs for by in times] for name, runs in found.items()}
    means = [sum(times) / len(times) if times else 0.0 for times in late.values()]
    most = [max(times, default=0.0) for times in late.values()]
    factor, unit, decimals = wording.scale_of([*means, *most])
    counts = [len(times) / max(1, len(found[name])) for name, times in late.items()]
    columns = [
        Cells("policy", list(late), right=False, keep_end=True),
        Cells("jobs later", [Cell(wording.format_fixed(n, 0 if n.is_integer() else 1), n) for n in counts]),
        Cells(f"mean, {unit}", [Cell(wording.format_fixed(m * factor, decimals), m) for m in means]),
        Cells(f"at most, {unit}", [Cell(wording.format_fixed(m * factor, decimals), m) for m in most]),
    ]
    several = max(map(len, found.values()), default=0) > 1
    return Table(
        columns,
        title=f"Jobs that end later than under {base}",
        caption=f"number of jobs: mean over the {_describe_draws(results)}" if several else "",
    )
