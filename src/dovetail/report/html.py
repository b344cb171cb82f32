"""One self-contained HTML page of a result, or of a comparison.

No external resource is loaded. Light and dark follow the reader's setting, tables sort by a press on a
heading, charts are SVG with descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from dovetail.model import Record, Result, State
from dovetail.report import gantt, plots, tables, wording
from dovetail.report.figures import inline_svg
from dovetail.report.intervals import HIGHER_IS_BETTER, by_policy, comparable, interval, label, paired
from dovetail.report.json_form import Spelling
from dovetail.report.metrics import Cut, Metrics, breakdown, final_metrics
from dovetail.report.svg import gantt_svg
from dovetail.report.usage import Columns

__all__ = ["comparison_fragment", "fragment", "page"]

MOST_JOBS = 2_000
"""Rows of the table of jobs; the JSON form has them all."""
MOST_BARS = 3_000
"""Bars up to which the chart is drawn with descriptions; above, as shares in use."""
CARDS = ("makespan", "mean_wait", "mean_bounded_slowdown", "utilisation", "gpu_utilisation")


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a cell; ``value`` sorts it as a number (NaN-free), ``style`` is a class of the style sheet."""

    text: str
    value: float | None = None
    number: bool = False
    style: str = ""

    @staticmethod
    def of(name: str, value: float | None, style: str = "") -> Cell:
        """A metric."""
        return Cell(wording.metric(name, value).split(" (")[0], value, True, style)

    def html(self) -> str:
        """The table cell."""
        names = " ".join(n for n in ("number" if self.number else "", self.style) if n)
        sort = f' data-v="{"" if self.value is None else repr(float(self.value))}"' if self.number else ""
        return f"<td{f' class={chr(34)}{names}{chr(34)}' if names else ''}{sort}>{escape(self.text)}</td>"


def page(results: Sequence[Result], *, cut: Cut | None = None) -> str:
    """The page: of the one result, or the comparison of several; ``cut`` is that of `metrics`."""
    if len(results) == 1:
        result = results[0]
        return _document(f"{label(result)} on {wording.workload(result)}", _single(result, cut))
    groups = by_policy(results)
    names = ", ".join(dict.fromkeys(wording.workload(r) for r in results))
    return _document(f"{len(groups)} policies on {names}", _comparison(results, cut))


def fragment(result: Result) -> str:
    """Chart and metrics for a notebook, in its own style sheet."""
    return f"<style>{_scoped()}</style><div class='dovetail'>{_heading(result)}{_chart(result)}</div>"


def comparison_fragment(results: Sequence[Result]) -> str:
    """The comparison table for a notebook."""
    return f"<style>{_scoped()}</style><div class='dovetail'>{_policies(results)}</div>"


def _scoped() -> str:
    return f".dovetail {{ {_asset('page.css').replace(':root', '&').replace('body {', '& {')} }}"


def _asset(name: str) -> str:
    return (files("dovetail.report") / name).read_text(encoding="utf-8")


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · Dovetail</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n<footer>Made by Dovetail. Means leave out rejected and cancelled jobs; "
        "charts count time from the first submission.</footer>\n</main>\n"
        f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _heading(result: Result, cut: Cut | None = None) -> str:
    found = final_metrics(result, cut)
    cards = [("Jobs", f"{len(result.records):,}", _states(found))]
    for name in CARDS:
        value = found.get(name)
        if value is None:
            continue
        main, _, more = wording.metric(name, value).partition(" (")
        base = name.removeprefix("mean_")
        if base != name:
            p95 = found[f"p95_{base}"]
            p95_text = f"{p95:,.2f}" if p95 is not None and "slowdown" in name else wording.seconds(p95)
            more = f"p95 {p95_text.split(' (')[0]}"
        cards.append((wording.title(name), main, more.rstrip(")")))
    inner = "".join(
        f"<div><dt>{escape(a)}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in cards
    )
    return (
        f"<h1>{escape(label(result))}</h1><p class='about'>{escape(wording.where(result))}</p>"
        f"<dl class='cards'>{inner}</dl>"
    )


def _states(found: Metrics) -> str:
    counts = [(s.lower(), found[f"jobs_{s.lower()}"]) for s in State]
    counts.append(("rejected", found["jobs_rejected"]))
    return ", ".join(f"{n:,.0f} {name}" for name, n in counts if n)


def _single(result: Result, cut: Cut | None = None) -> str:
    parts = [_heading(result, cut)]
    parts += [f"<p class='note'>{escape(note)}</p>" for note in tables.notes(result, cut)]
    parts += [_section("Schedule", _chart(result))]
    if any(r.run_time for r in result.records):
        drawn = inline_svg(
            plots.timeline(result, titled=False), f"Use of the cluster over time under {label(result)}"
        )
        parts.append(_section("Use over time", f"<div class='chart'>{drawn}</div>"))
    parts.append(_section("Metrics", _metrics_table(result, cut)))
    parts += [_section(f"By {by}", table) for by, table in _breakdowns(result, cut)]
    parts.append(_section("Jobs", _jobs_table(result)))
    return "\n".join(parts)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _chart(result: Result) -> str:
    ran = [r for r in result.records if r.run_time is not None and r.allocation is not None]
    if not ran:
        return "<p>Nothing has run.</p>"
    bars = sum(r.allocation.mask.bit_count() for r in ran if r.allocation is not None)
    if len(result.cluster.units) <= gantt.MOST_LANES and bars <= MOST_BARS:
        return gantt_svg(result)
    drawn = inline_svg(
        gantt.draw(result, titled=False), f"Shares of the cluster in use under {label(result)}"
    )
    return f"<div class='chart'>{drawn}</div>"


def _metrics_table(result: Result, cut: Cut | None) -> str:
    found = final_metrics(result, cut)
    rows = [
        [Cell(wording.title(name)), Cell.of(name, value)]
        for name, value in found.items()
        if value is not None
        and not name.startswith(("jobs", "median", "p95", "max_"))
        and (value or name not in tables.UNUSUAL)
        and name != "aql"
    ]
    return _table(["metric", "value"], rows, numbers={1}, sortable=False)


def _breakdowns(result: Result, cut: Cut | None) -> Iterable[tuple[str, str]]:
    columns = Columns.of(result)
    shown = (
        "jobs",
        "mean_wait",
        "p95_wait",
        "mean_response",
        "mean_bounded_slowdown",
        "p95_bounded_slowdown",
    )
    for by in ("app", "implementation", "user", "group", "queue", "size"):
        rows = breakdown(result, by, columns=columns, cut=cut)
        if not 1 < len(rows) <= 500:
            continue
        cells = [
            [
                Cell(wording.printable(name)),
                *(Cell.of(m, found[m]) for m in shown),
                Cell(f"{(found['cpu_seconds'] or 0) / 3600:,.2f}", found["cpu_seconds"], True),
                Cell(f"{(found['device_seconds'] or 0) / 3600:,.2f}", found["device_seconds"], True),
            ]
            for name, found in rows.items()
        ]
        heads = ["jobs", "mean wait", "p95 wait", "mean response", "mean slowdown", "p95 slowdown"]
        heads = [by, *heads, "CPU hours", "device hours"]
        yield by, _table(heads, cells, numbers=set(range(1, 9)), tall=len(rows) > 15)


def _jobs_table(result: Result) -> str:
    spelling = Spelling(result.cluster)
    records = result.records[:MOST_JOBS]
    factor, unit, decimals = wording.scale_of([x for r in records for x in (r.start, r.end)])

    def time(value: float | None) -> Cell:
        text = "-" if value is None else wording.fixed(value * factor, decimals)
        return Cell(text, value, True)

    rows = [_job_row(record, spelling, time) for record in records]
    heads = ["job", "app", "user", "as", "nodes", "devices"]
    heads += [f"{name} {unit}" for name in ("submit", "wait", "start", "run", "end", "predicted")] + ["state"]
    more = len(result.records) - len(records)
    about = f"The first {MOST_JOBS:,} jobs; the JSON form has {more:,} more." if more else ""
    return _table(heads, rows, numbers=set(range(6, 12)), caption=about, tall=len(rows) > 15)


def _job_row(record: Record, spelling: Spelling, time: Callable[[float | None], Cell]) -> list[Cell]:
    job, held = record.job, record.allocation
    wait = None if record.start is None else record.start - job.submit_time
    devices = ", ".join(held.device_names(spelling.cluster)) if held is not None else ""
    good = record.state in (State.COMPLETED, State.RUNNING, State.PENDING)
    return [
        Cell(wording.printable(job.id)),
        Cell(wording.printable(job.app.name)),
        Cell(wording.printable(job.user or "-")),
        Cell(record.implementation.name if record.implementation else "-"),
        Cell(spelling(held.mask) if held is not None and held.mask else "-"),
        Cell(devices if len(devices) <= 60 else f"{devices[:57]}…"),
        time(job.submit_time),
        time(wait),
        time(record.start),
        time(record.run_time),
        time(record.end),
        time(record.predicted.expected if record.predicted else None),
        Cell(
            f"{record.state}{f' {record.exit_code}' if record.exit_code else ''}", style="" if good else "bad"
        ),
    ]


def _comparison(results: Sequence[Result], cut: Cut | None) -> str:
    groups = by_policy(results)
    names = ", ".join(dict.fromkeys(wording.workload(r) for r in results))
    machines = ", ".join(dict.fromkeys(wording.machine(r.cluster) for r in results))
    seeds = max((len(g) for g in groups.values()), default=0)
    loads = ", ".join(dict.fromkeys(f"load {r.load:g}" for r in results if r.load is not None))
    about = ", ".join(x for x in (names, f"on {machines}", loads, f"{seeds} seeds" * (seeds > 1)) if x)
    parts = [
        f"<h1>{len(groups)} policies compared</h1><p class='about'>{escape(about)}</p>",
        _section("Outcome", _policies(results, cut)),
    ]
    if results:
        drawn = inline_svg(plots.comparison(results, titled=False, cut=cut), "Bars of each metric by policy")
        parts.append(f"<div class='chart'>{drawn}</div>")
    if seeds > 1 and len(groups) > 1:
        parts.append(_section("Seed by seed", _pairs(results, cut)))
    charts = []
    for i, (name, group) in enumerate(groups.items()):
        state = " open" if i == 0 or len(groups) <= 4 else ""
        which = f", seed {group[0].seed}" if len(group) > 1 and group[0].seed is not None else ""
        makespan = wording.seconds(group[0].makespan)
        charts.append(
            f"<details{state}><summary>{escape(name)}{escape(which)}: {escape(makespan)}</summary>"
            f"{_chart(group[0])}</details>"
        )
    parts.append(_section("Schedules", "".join(charts)))
    return "\n".join(parts)


def _policies(results: Sequence[Result], cut: Cut | None = None) -> str:
    groups = by_policy(results)
    found = {name: [final_metrics(r, cut) for r in group] for name, group in groups.items()}
    compared = tables.compared_metrics(results)
    shown = [
        name
        for name in (*compared, "promises_broken", "jobs_rejected")
        if any(m.get(name) is not None for rows in found.values() for m in rows)
        and (name in compared or any(m[name] for rows in found.values() for m in rows))
    ]
    rows = [[Cell(name)] for name in found]
    heads = ["policy"]
    for name in shown:
        intervals = [interval(m.get(name) for m in found[row]) for row in found]
        best = tables.best_rows([i.mean if i else None for i in intervals], name)
        unit, texts = tables.scaled(name, intervals)
        heads.append(f"{wording.title(name, short=True)}{f', {unit}' if unit else ''}")
        for i, (row, value, text) in enumerate(zip(rows, intervals, texts, strict=True)):
            style = "best" if i in best else ""
            row.append(Cell(text or "-", value.mean if value else None, True, style))
    several = any(len(group) > 1 for group in groups.values())
    about = "A star marks the best. " + HIGHER * any(n in HIGHER_IS_BETTER for n in shown)
    about += OUTSIDE * (cut is not None)
    about += "Behind ± is half the 95 % confidence interval of the mean." if several else ""
    return _table(heads, rows, numbers=set(range(1, len(heads))), caption=about)


OUTSIDE = "Means leave out the warm-up and the cool-down. "
HIGHER = "More is better for utilisation, less for all else. "


def _pairs(results: Sequence[Result], cut: Cut | None) -> str:
    groups = by_policy(results)
    base, *others = groups
    rows = []
    for metric in ("makespan", "mean_wait", "mean_bounded_slowdown"):
        if not comparable(list(groups.values()), metric, cut):
            continue
        found = [paired(groups[name], groups[base], metric, cut=cut) for name in others]
        unit, texts = tables.scaled(metric, [pair.difference for pair in found])
        heading = f"{wording.title(metric)}{f', {unit}' if unit else ''}"
        rows += [
            [
                Cell(pair.a),
                Cell(heading),
                Cell(text or "-", pair.difference.mean, True),
                Cell("-" if pair.ratio is None else f"{pair.ratio:.3f}", pair.ratio, True),
                Cell(f"{pair.wins} of {pair.difference.n}", float(pair.wins), True),
                Cell("yes" if pair.significant else "no"),
            ]
            for pair, text in zip(found, texts, strict=True)
        ]
    heads = ["policy", "metric", f"difference from {base}", "ratio", "better on seeds", "interval clear of 0"]
    about = "The same seeds compared; ± is half the 95 % confidence interval of the mean difference."
    return _table(heads, rows, numbers={2, 3, 4}, caption=about)


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    numbers: set[int],
    caption: str = "",
    sortable: bool = True,
    tall: bool = False,
) -> str:
    cells = []
    for i, name in enumerate(heads):
        style = ' class="number"' if i in numbers else ""
        inner = f'<button type="button">{escape(name)}</button>' if sortable else escape(name)
        cells.append(f'<th scope="col"{style}>{inner}</th>')
    body = "\n".join(f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in rows)
    note = f"<caption>{escape(caption)}</caption>" if caption else ""
    scroll = "scroll tall" if tall else "scroll"
    return (
        f'<div class="{scroll}" tabindex="0" role="region" aria-label="table"><table>{note}'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )
