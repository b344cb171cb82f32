"""One self-contained HTML page of a result, or of a comparison.

No external resource is loaded. Light and dark follow the reader's setting, tables sort by a press on a
heading, schedules are drawn when they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from html import escape
from importlib.resources import files
from urllib.parse import quote

from dovetail.files.sentences import make_printable
from dovetail.model import Result
from dovetail.report import plots, wording
from dovetail.report.columns import columns_of
from dovetail.report.compared import (
    comparison_remarks,
    comparison_table,
    later_table,
    outcome_sentence,
    paired_tables,
    pairs_heading,
)
from dovetail.report.device_memory import device_memories, device_memory_table, drawn_devices
from dovetail.report.drawing import Drawing, Rectangle
from dovetail.report.gantt import figure
from dovetail.report.gantt.lanes import span_of
from dovetail.report.gantt.page import PageCharts
from dovetail.report.intervals import group_variants, has_equal_draws, of_replicates, policy_label
from dovetail.report.metric_names import MAIN, METRICS
from dovetail.report.metrics import TrimmedTrace, final_metrics
from dovetail.report.options import ReportOptions
from dovetail.report.outcome import breakdown_table, job_counts, job_table, metric_table, outcome_notes
from dovetail.report.tables import Cell, Cells, Table
from dovetail.version import __version__

MOST_JOBS = 2_000
"""Rows of the table of jobs; the JSON form has them all."""
MANY_JOBS = 400
"""Jobs from which the schedules of a comparison are drawn only on a press."""
FIELDS = ("app", "implementation", "user", "group", "queue", "size")
HIGHER = "More is better for utilisation, less for all else."
NO_SCRIPT = "<noscript><p class='note'>Schedules are drawn by a script, which is off.</p></noscript>"


def report_page(results: Sequence[Result], options: ReportOptions | None = None) -> str:
    """The page: of the one result, or the comparison of several."""
    options = options or ReportOptions()
    body = (
        _single_result_body(results[0], options) if len(results) == 1 else _comparison_body(results, options)
    )
    return _page_document(_page_title(results), body, options)


def notebook_fragment(result: Result) -> str:
    """Chart and metrics for a notebook, in its own style sheet."""
    parts = [_page_heading(result), _metric_cards(result)]
    if any(r.run_time is not None for r in result.records):
        parts.append(
            _drawing_element(
                figure.draw_gantt(result, titled=False), f"Schedule under {policy_label(result)}"
            )
        )
    return _scope_styles("".join(parts))


def comparison_fragment(results: Sequence[Result], *, drift: bool = False) -> str:
    """The comparison table for a notebook."""
    table = table_html(comparison_table(results, drift=drift), sortable=False)
    return _scope_styles(table + _note_elements(comparison_remarks(results, drift=drift)))


def _scope_styles(body: str) -> str:
    style = _read_asset("page.css").replace(":root", "&").replace("body {", "& {")
    return f"<style>.dovetail {{ {style} }}</style><div class='dovetail'>{body}</div>"


def _read_asset(name: str) -> str:
    return (files("dovetail.report") / name).read_text(encoding="utf-8")


def _page_document(title: str, body: str, options: ReportOptions) -> str:
    made = f"Made by Dovetail {__version__} on {date.today().isoformat()}"
    made += f", by <code>{escape(make_printable(options.command))}</code>" if options.command else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · "
        f"Dovetail</title>\n<style>\n{_read_asset('page.css')}</style>\n</head>\n<body>\n"
        f"<main>\n{body}\n<footer>{made}. "
        "Means leave out rejected and cancelled jobs; charts count time from the first submission.</footer>\n"
        f"</main>\n<script>\n{_read_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _page_title(results: Sequence[Result]) -> str:
    names = ", ".join(dict.fromkeys(wording.workload_name(r) for r in results))
    if len(results) == 1:
        return f"{names} under {policy_label(results[0])}"
    return f"{names or 'Nothing'}: {len(group_variants(results))} compared"


def _page_heading(result: Result) -> str:
    under = f"under <strong>{escape(policy_label(result))}</strong>"
    about = wording.describe_setting(result).partition(", ")[2]
    return f"<h1>{escape(wording.workload_name(result))}</h1><p class='about'>{under} {escape(about)}</p>"


def _metric_cards(result: Result, cut: TrimmedTrace | None = None) -> str:
    found = final_metrics(result, cut)
    total, _, states = job_counts(found).partition(": ")
    cards = [("Jobs", total, states, "")]
    for name in MAIN:
        value = found.get(name)
        if value is None:
            continue
        main, _, more = wording.metric_value(name, value).partition(" (")
        base = name.removeprefix("mean_")
        # A mean beside its 95th percentile: the mean alone hides a few very long waits.
        if base != name:
            p95 = found[f"p95_{base}"]
            slowed = p95 is not None and "slowdown" in name
            more = "p95 " + (f"{p95:,.2f}" if slowed else wording.spell_seconds_shortly(p95))
        cards.append((wording.metric_title(name), main, more.rstrip(")"), METRICS[name].about))
    inner = "".join(
        f'<div title="{escape(about)}"><dt>{escape(name)}</dt>'
        f"<dd>{escape(text)}<small>{escape(more)}</small></dd></div>"
        for name, text, more, about in cards
    )
    return f"<dl class='cards'>{inner}</dl>"


def _single_result_body(result: Result, options: ReportOptions) -> str:
    cut = options.cut
    charts = PageCharts([result])
    parts = [_page_heading(result), _metric_cards(result, cut), _note_elements(outcome_notes(result, cut))]
    parts.append(
        _section_element("Schedule", charts.add(result, policy_label(result), main=True) + NO_SCRIPT)
    )
    if any(r.run_time for r in result.records):
        drawn = plots.draw_timeline([result], titled=False)
        parts.append(
            _section_element("Use over time", _drawing_element(drawn, "Use of the cluster over time"))
        )
    parts += _device_memory_section(result)
    if (result.live or result.knowledge != "perfect") and plots.predicted_pairs(result):
        scatter = _drawing_element(plots.draw_predictions(result), "Predicted against actual run times")
        parts.append(_section_element("Predicted against actual", scatter))
    parts.append(_section_element("Metrics", table_html(metric_table(result, cut), sortable=False)))
    parts += [_section_element(f"By {by}", table_html(table)) for by, table in _breakdown_tables(result, cut)]
    parts.append(_section_element("Jobs", table_html(job_table(result, limit=MOST_JOBS))))
    return "\n".join([*parts, charts.script()])


def _device_memory_section(result: Result) -> list[str]:
    """Memory of devices over time, where it is known and jobs were on them."""
    found = device_memories(result)
    if not found:
        return []
    span = span_of([result])
    drawn = plots.draw_device_memory(drawn_devices(found), span)
    chart = _drawing_element(drawn, "Memory of devices that jobs were given and used, over time")
    return [_section_element("Memory of devices", chart + table_html(device_memory_table(found, span)))]


def _breakdown_tables(result: Result, cut: TrimmedTrace | None) -> Iterable[tuple[str, Table]]:
    for by in FIELDS:
        # A breakdown by a field with one value would repeat the table above it.
        if by == "size" or len(columns_of(result).keys(by)[0]) > 1:
            table = breakdown_table(result, by, limit=500, cut=cut)
            if table.rows > 1:
                yield by, table


def _comparison_body(results: Sequence[Result], options: ReportOptions) -> str:
    cut = options.cut
    groups = group_variants(results)
    firsts = [group[0] for group in groups.values()]
    names = ", ".join(dict.fromkeys(wording.workload_name(r) for r in results))
    parts = [
        f"<h1>{escape(names or 'Nothing to compare')}</h1><p "
        f"class='about'>{escape(_describe_comparison(groups))}</p>"
    ]
    if not results:
        return "\n".join(parts)
    sentence = "" if options.drift else outcome_sentence(results, cut=cut)
    parts += [f"<p><strong>{escape(make_printable(sentence))}</strong></p>"] if sentence else []
    parts.append(_section_element("Outcome", _outcome_section(results, cut, options.drift)))
    drawn = plots.draw_comparison(results, titled=False, cut=cut, drift=options.drift)
    parts.append(_drawing_element(drawn, "Bars of each metric by policy", main=True))
    parts.append(_bars_legend(results, drawn))
    if len({r.load for r in results}) > 1:
        drawn = plots.over_load(results, titled=False, cut=cut)
        parts.append(
            _section_element("Over the load", _drawing_element(drawn, "Metrics by the offered load"))
        )
    drawn = plots.draw_timeline(firsts, titled=False)
    parts.append(
        _section_element(
            "Use over time", _drawing_element(drawn, "Use of the cluster and jobs waiting over time")
        )
    )
    if options.references:
        table = later_table(results, options)
        parts.append(_section_element(table.title, table_html(Table(table.columns, caption=table.caption))))
    pairs = paired_tables(results, cut=cut)
    if pairs:
        parts.append(_section_element(pairs_heading(results), "".join(map(table_html, pairs))))
    charts = PageCharts(firsts)
    # Many bars make a page slow to open, so the charts are folded then.
    few = sum(len(result.records) for result in firsts) <= MANY_JOBS
    drawings = [
        _drawer_element(
            f"{name}{wording.shown_draw(group)}: {wording.spell_seconds(group[0].makespan)}", chart, few
        )
        for (name, group), chart in zip(groups.items(), map(charts.add, firsts, groups), strict=True)
    ]
    how = "All on one axis of time." + ("" if few else " Press on one to draw it.")
    parts.append(_section_element("Schedules", _note_elements([how]) + NO_SCRIPT + "".join(drawings)))
    return "\n".join([*parts, charts.script()])


def _describe_comparison(groups: Mapping[str, Sequence[Result]]) -> str:
    results = [result for group in groups.values() for result in group]
    machines = ", ".join(dict.fromkeys(wording.machine_name(r.cluster) for r in results))
    policies = dict.fromkeys(policy_label(r) for r in results)
    loads = ", ".join(dict.fromkeys(f"{r.load:g}" for r in results if r.load is not None))
    seeds = max((len(group) for group in groups.values()), default=0)
    parts = ["1 policy" if len(policies) == 1 else f"{len(policies)} policies", f"on {machines}"]
    parts += [f"load {loads}"] if loads else []
    drawn = "replicates" if of_replicates(results) else "seeds"
    return ", ".join([*parts, *([f"{seeds} {drawn}"] if seeds > 1 else [])])


def _outcome_section(results: Sequence[Result], cut: TrimmedTrace | None, drift: bool) -> str:
    table = comparison_table(results, cut=cut, drift=drift)
    about = [HIGHER]
    about += ["Means leave out the warm-up and the cool-down."] if cut is not None else []
    caption = table.caption.replace("* best", "A star marks the best")
    remarks = comparison_remarks(results, cut=cut, drift=drift)
    return table_html(Table(table.columns, caption=caption, notes=[*about, *remarks]))


def _drawer_element(title: str, inner: str, opened: bool) -> str:
    return f"<details{' open' if opened else ''}><summary>{escape(title)}</summary>{inner}</details>"


def _drawing_element(drawing: Drawing, about: str, *, main: bool = False) -> str:
    """A chart; the ``main`` one of a page can be saved as a picture there."""
    mark = " data-save" if main else ""
    return f"<div class='chart'{mark}>{drawing.render_svg(about, page=True)}</div>"


def _bars_legend(results: Sequence[Result], drawn: Drawing) -> str:
    """What the colours and whiskers of the bars mean, of those that are there."""
    several = any(len(group) > 1 and not has_equal_draws(group) for group in group_variants(results).values())
    bars = {bar.fill for bar in drawn.shapes if isinstance(bar, Rectangle) and bar.width > 0}
    entries = [
        (f"<span class='swatch' style='background: {colour}'></span>", meaning)
        for colour, meaning in ((plots.BLUE, "the best"), (plots.PALE, "others"))
        if colour in bars
    ]
    if several:
        entries.append(("<span class='whisker'></span>", "95 % confidence interval, as in the table"))
    return f"<ul class='legend'>{''.join(f'<li>{mark}{text}</li>' for mark, text in entries)}</ul>"


def _note_elements(lines: Iterable[str]) -> str:
    return "".join(f"<p class='note'>{escape(line)}</p>" for line in lines)


def _section_element(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


# -- tables: sorted by a press on a heading, explained when pointed at ---------------------------------


def table_html(table: Table, *, sortable: bool = True) -> str:
    """The table as an element that scrolls within the page; every name is whole."""
    lines = [line for line in (table.caption, *table.notes) if line]
    about = "".join(f"<p class='note'>{escape(line)}</p>" for line in lines)
    if not table.columns:
        return about
    columns = [column for column in table.columns if column.rank == 0 or not column.empty]
    heads = "".join(_header_cell(column, sortable) for column in columns)
    rows = zip(*columns, strict=True)
    body = "\n".join(
        f"<tr>{''.join(_cell(cell, column.right) for cell, column in zip(row, columns, strict=True))}</tr>"
        for row in rows
    )
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    scroll = "scroll tall" if table.tall else "scroll"
    return (
        f'{title}<div class="{scroll}" tabindex="0" role="region" aria-label="table"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>{about}"
    )


def _header_cell(column: Cells, sortable: bool) -> str:
    name = escape(" ".join(column.header.split()))
    inner = f'<button type="button">{name}</button>' if sortable else name
    return (
        f"<th "
        f'scope="col"{_class_text("number" if column.right else "")}{_title_text(column.about)}>{inner}</th>'
    )


def _cell(cell: Cell, right: bool) -> str:
    text = escape(make_printable(cell.text.rstrip(" *") if cell.style == "best" else cell.text.rstrip()))
    if cell.link:
        text = f'<a href="file://{quote(cell.link)}">{text}</a>'
    sort = f' data-v="{"" if cell.value is None else repr(float(cell.value))}"' if right else ""
    names = " ".join(name for name in ("number" if right else "", cell.style) if name)
    return f"<td{_class_text(names)}{sort}{_title_text(cell.title)}>{text}</td>"


def _class_text(names: str) -> str:
    return f' class="{names}"' if names else ""


def _title_text(text: str) -> str:
    return f' title="{escape(make_printable(text))}"' if text else ""
