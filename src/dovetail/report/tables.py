"""Tables for the terminal and for plain text: one result, its jobs, several results side by side.

Every function returns something that rich can print; `render` makes plain text of it. Columns that do
not fit in the width are left out, the least important first, so that rows never wrap.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dovetail.model import Cluster, Record, Result, State
from dovetail.model.hostlist import compress
from dovetail.report import wording
from dovetail.report.intervals import HIGHER_IS_BETTER, Interval, by_policy, interval, label, paired
from dovetail.report.metrics import Cut, Metrics, breakdown, final_metrics, later_than, metrics
from dovetail.report.usage import Columns

__all__ = [
    "Cells",
    "best_rows",
    "breakdown_table",
    "compared_metrics",
    "comparison_table",
    "console",
    "fairness_table",
    "job_table",
    "later_table",
    "notes",
    "paired_table",
    "render",
    "scaled",
    "summary_table",
    "table",
]

STATE_STYLES = {
    State.COMPLETED: "green",
    State.RUNNING: "cyan",
    State.PENDING: "dim",
    State.CANCELLED: "yellow",
    State.FAILED: "red",
    State.TIMEOUT: "red",
    State.NODE_FAIL: "red",
}

COMPARED = (
    "makespan",
    "mean_wait",
    "mean_bounded_slowdown",
    "utilisation",
    "gpu_utilisation",
    "anl",
    "mit",
    "decision_seconds_mean",
)
"""Metrics of the comparison, the most important first."""

COMPARED_TRACES = (
    "makespan",
    "mean_wait",
    "mean_bounded_slowdown",
    "utilisation",
    "gpu_utilisation",
    "p95_wait",
    "decision_seconds_mean",
)
"""The same for jobs that leave no choice where to run: Ravi's ANL and MIT say nothing about them."""


UNUSUAL = ("promises_broken", "broken_by_overrun")
"""Metrics that the summary names only where they are not 0."""


def console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console that is plain when it is no terminal, heeds NO_COLOR, and is never narrower than 40.

    Away from a terminal the width is COLUMNS, or 80.
    """
    out = file or sys.stdout
    if width is None and not out.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = max(40, int(columns)) if columns.isdigit() else 80
    return Console(file=out, width=width, highlight=False, soft_wrap=False)


def render(*parts: RenderableType, width: int = 80) -> str:
    """Plain text without colours, no blanks at the ends of lines."""
    out = io.StringIO()
    plain = Console(
        file=out, width=width, color_system=None, force_terminal=False, highlight=False, legacy_windows=False
    )
    for part in parts:
        plain.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of a table: header, one text a row; ``rank`` 0 always stays, higher ones go first."""

    header: str
    cells: Sequence[Text | str]
    right: bool = True
    rank: int = 0

    @property
    def width(self) -> int:
        """Width of its widest line."""
        texts = [*self.header.split("\n"), *(str(c) for c in self.cells)]
        return max((cell_len(t) for t in texts), default=0)


def table(columns: Sequence[Cells], *, width: int, title: str = "", caption: str = "") -> Table:
    """A table of the columns that fit; a column whose cells are all ``-`` is left out too."""
    kept = [c for c in columns if c.rank == 0 or any(str(cell) not in ("-", "") for cell in c.cells)]
    while sum(c.width + 2 for c in kept) - 2 > width and any(c.rank for c in kept):
        worst = max(c.rank for c in kept)
        last = max(i for i, c in enumerate(kept) if c.rank == worst)
        kept.pop(last)
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=title or None,
        title_justify="left",
        title_style="bold",
        caption=caption or None,
        caption_justify="left",
        caption_style="dim",
        header_style="bold",
    )
    for column in kept:
        made.add_column(
            column.header,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            vertical="bottom",
        )
    for i in range(len(kept[0].cells) if kept else 0):
        made.add_row(*(_text(c.cells[i]) for c in kept))
    return made


def _text(cell: Text | str) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def summary_table(
    result: Result, *, cut: Cut | None = None, reference: Result | None = None, width: int = 80
) -> RenderableType:
    """What came out, metric by metric, with a heading that says of what."""
    found = metrics(result, cut=cut, reference=reference)
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    made.add_row("Jobs", _job_counts(found))
    for name in wording.TITLES:
        value = found.get(name)
        spread = name.startswith(("mean_", "median_", "p95_", "max_"))
        if value is None or spread or name == "aql" or (name in UNUSUAL and not value):
            continue
        made.add_row(wording.title(name), wording.metric(name, value))
    plan = result.plan
    if plan is not None:
        made.add_row("Plan", _plan(plan.status, plan.bound, plan.gap, plan.seconds))
    heading = Text.assemble((label(result), "bold"), "  ", (wording.where(result), "dim"))
    parts: list[RenderableType] = [heading, Text(), made]
    if found["jobs_counted"]:
        parts += [Text(), _spread_table(found, width)]
    return Group(*parts, *(Text(note, style="dim") for note in notes(result, cut)))


def _spread_table(found: Metrics, width: int) -> Table:
    """Wait, response and bounded slowdown: mean, median, p95, maximum."""
    names = ("wait", "response", "bounded_slowdown")
    spreads = ("mean", "median", "p95", "max")
    times = [found[f"{spread}_{name}"] for name in names[:2] for spread in spreads]
    factor, unit, decimals = wording.scale_of(times)
    rows = dict.fromkeys(names[:2], (factor, decimals)) | {names[2]: (1.0, 2)}
    columns = [Cells("", [f"Wait {unit}", f"Response {unit}", "Bounded slowdown"], right=False)]
    for spread in spreads:
        values = [(found[f"{spread}_{name}"], *scale) for name, scale in rows.items()]
        cells = ["-" if v is None else wording.fixed(v * by, places) for v, by, places in values]
        columns.append(Cells(spread, cells))
    return table(columns, width=width)


def _job_counts(found: Metrics) -> Text:
    text = Text(wording.count(found["jobs"]))
    counts = [(s, found[f"jobs_{s.lower()}"] or 0) for s in State]
    known = [(str(s), n) for s, n in counts if n]
    known += [("rejected", found["jobs_rejected"] or 0)] if found["jobs_rejected"] else []
    for i, (name, number) in enumerate(known):
        style = STATE_STYLES.get(State(name), "") if name in State.__members__ else "yellow"
        text.append(", " if i else ": ").append(f"{number:,.0f} {name.lower()}", style=style)
    return text


def _plan(status: str, bound: float | None, gap: float | None, spent: float) -> str:
    text = f"{status} in {wording.seconds(spent)}"
    if bound is not None:
        text += f", bound {wording.seconds(bound)}"
    return text + (f", gap {wording.percent(gap)}" if gap is not None else "")


def notes(result: Result, cut: Cut | None = None) -> list[str]:
    """What a reader should know: cut, assumed walltimes, ignored priorities, skipped lines, rejected jobs."""
    found = []
    if cut is not None:
        counted = final_metrics(result, cut)["jobs_counted"] or 0
        found.append(f"Means are over {counted:,.0f} jobs, without warm-up and cool-down.")
    if result.default_walltime is not None:
        taken = (
            "its actual run time as its walltime"
            if result.default_walltime == "actual"
            else f"{wording.seconds(result.default_walltime)} as its walltime"
        )
        found.append(f"A job without a walltime was given {taken}.")
    if result.ignores_priorities:
        found.append(f"{result.policy} ignores the priorities of the jobs.")
    if result.skipped:
        found.append(f"{result.skipped:,} malformed lines of the workload were skipped.")
    if result.rejected:
        shown = ", ".join(f"{r.id} ({r.reason})" for r in result.rejected[:3])
        more = len(result.rejected) - 3
        found.append(f"Rejected: {shown}{f' and {more:,} more' if more > 0 else ''}.")
    return found


def job_table(result: Result, *, width: int = 80, limit: int | None = None) -> Table:
    """One row a job, in file order; of more than ``limit`` jobs the first."""
    records = result.records if limit is None else result.records[:limit]
    times = [x for r in records for x in (r.start, r.end)]
    factor, unit, decimals = wording.scale_of(times)

    def at(value: float | None) -> str:
        return "-" if value is None else wording.fixed(value * factor, decimals)

    def less(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else a - b

    flawless = all(r.state is State.COMPLETED for r in records)
    together = all(r.job.submit_time == 0 for r in records)
    cells = [
        Cells("job", [_clip_middle(r.job.id, 24) for r in records], right=False),
        Cells("app", [_clip(r.job.app.name, 20) for r in records], right=False, rank=4),
        Cells("as", [r.implementation.name if r.implementation else "-" for r in records], right=False),
        Cells("where", [_where(r, result.cluster) for r in records], right=False, rank=1),
        Cells(f"submit {unit}", ["-" if together else at(r.job.submit_time) for r in records], rank=5),
        Cells(f"start {unit}", [at(r.start) for r in records], rank=2),
        Cells(f"wait {unit}", [at(less(r.start, r.job.submit_time)) for r in records], rank=6),
        Cells(f"run {unit}", [at(r.run_time) for r in records], rank=2),
        Cells(f"end {unit}", [at(r.end) for r in records]),
        Cells(
            f"predicted {unit}", [at(r.predicted.expected if r.predicted else None) for r in records], rank=3
        ),
        Cells("state", [_state(r) for r in records], right=False, rank=7 if flawless else 0),
    ]
    more = len(result.records) - len(records)
    return table(cells, width=width, caption=f"and {more:,} more jobs" if more else "")


def _clip(text: str, most: int) -> str:
    text = wording.printable(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _clip_middle(text: str, most: int) -> str:
    """As `_clip`, but with the end, which tells jobs of one app apart."""
    text = wording.printable(text)
    end = most // 2
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def _state(record: Record) -> Text:
    text = str(record.state)
    if record.exit_code:
        text += f" {record.exit_code}"
    return Text(text, style=STATE_STYLES[record.state])


def _where(record: Record, cluster: Cluster) -> str:
    """Units where it ran: ``n0/cpu``, ``n0/gpu0``; for gangs the nodes."""
    allocation = record.allocation
    if allocation is None:
        return "-"
    mask = allocation.mask
    if mask.bit_count() > 1:
        return _clip(compress(allocation.node_names(cluster)), 24)
    node = cluster.nodes[allocation.first_node].name
    devices = [name.removeprefix(f"{node}/") for name in allocation.device_names(cluster)]
    cpus = [f"{p.cpus} CPU" + ("s" if p.cpus > 1 else "") for p in allocation.parts if p.cpus]
    pool = cluster.nodes[allocation.first_node].cpus
    if any(p.cpus == pool for p in allocation.parts if p.cpus):
        cpus = ["cpu"]
    return _clip(f"{node}/{'+'.join([*cpus, *devices])}" if cpus or devices else node, 24)


def compared_metrics(results: Sequence[Result]) -> tuple[str, ...]:
    """The metrics worth comparing these results by."""
    choice = any(len(record.job.choices) > 1 for result in results[:1] for record in result.records)
    return COMPARED if choice else COMPARED_TRACES


def comparison_table(
    results: Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    cut: Cut | None = None,
    width: int = 80,
) -> Table:
    """A row for each policy, the best of each metric marked; over several seeds mean ± half the interval."""
    groups = by_policy(results)
    found = {name: [final_metrics(r, cut) for r in group] for name, group in groups.items()}
    rows = list(found)
    columns = [Cells("policy", [_clip(row, 34) for row in rows], right=False)]
    seeds = max((len(group) for group in groups.values()), default=0)
    for rank, name in enumerate(names or compared_metrics(results)):
        intervals = [interval(m.get(name) for m in found[row]) for row in rows]
        columns.append(_compared(name, intervals, rank))
        if rank == 0:
            columns.append(_ratios(intervals, name))
    rejected = [max(m["jobs_rejected"] or 0 for m in found[row]) for row in rows]
    if any(rejected):
        columns.append(Cells("rejected", [wording.count(r) for r in rejected], rank=1))
    broken = [sum(m["promises_broken"] or 0 for m in found[row]) for row in rows]
    if any(broken):
        columns.append(Cells("promises\nbroken", [wording.count(b) for b in broken], rank=1))
    caption = "* best" if len(rows) > 1 else ""
    if seeds > 1:
        caption += ("; " if caption else "") + f"± 95 % confidence interval of the mean of {seeds} seeds"
    return table(columns, width=width, caption=caption)


def scaled(name: str, intervals: Sequence[Interval | None]) -> tuple[str, list[str | None]]:
    """(unit, texts) of one metric in one scale, ``mean`` or ``mean ± half the interval``."""
    means = [i.mean if i else None for i in intervals]
    if wording.is_seconds(name):
        factor, unit, decimals = wording.scale_of(means)
        if unit == "s" and max((abs(m or 0.0) for m in means), default=0.0) < 100:
            decimals = 3
    elif "utilisation" in name:
        factor, unit, decimals = 100.0, "%", 1
    else:
        factor, unit, decimals = 1.0, "", 0 if name.startswith(("jobs", "promises", "broken")) else 2
    texts: list[str | None] = []
    for found in intervals:
        text = None if found is None else wording.fixed(found.mean * factor, decimals)
        if text is not None and found is not None and found.half_width is not None:
            text += f" ± {found.half_width * factor:,.{decimals}f}"
        texts.append(text)
    return unit, texts


def _compared(name: str, intervals: Sequence[Interval | None], rank: int) -> Cells:
    best = best_rows([i.mean if i else None for i in intervals], name)
    unit, texts = scaled(name, intervals)
    cells: list[Text | str] = []
    for i, text in enumerate(texts):
        style, mark = ("bold green", " *") if i in best else ("", "  " if best else "")
        cells.append("-" if text is None else Text(text + mark, style=style))
    pad = "  " if best else ""
    return Cells(f"{wording.title(name, short=True)}{pad}\n{unit}{pad}", cells, rank=rank)


def best_rows(means: Sequence[float | None], name: str) -> set[int]:
    """Rows that share the best value; none where every row has it, or there is only one row."""
    known = [v for v in means if v is not None]
    if len(known) < 2:
        return set()
    top = max(known) if name in HIGHER_IS_BETTER else min(known)
    slack = 1e-9 * max(abs(v) for v in known)
    best = {i for i, v in enumerate(means) if v is not None and abs(v - top) <= slack}
    return set() if len(best) == len(known) else best


def _ratios(intervals: Sequence[Interval | None], name: str) -> Cells:
    known = [i.mean for i in intervals if i is not None]
    least = min(known, default=0.0)
    if len(known) < 2 or least <= 0:
        return Cells("", ["-"] * len(intervals), rank=9)
    return Cells("over\nbest", ["-" if i is None else f"{i.mean / least:.2f}x" for i in intervals], rank=4)


def paired_table(
    results: Sequence[Result],
    *,
    metric: str = "makespan",
    baseline: str | None = None,
    cut: Cut | None = None,
    width: int = 80,
) -> Table:
    """Every policy against ``baseline`` (the first by default), the same seeds compared.

    Raises `InputError` where policies have no seed in common.
    """
    groups = by_policy(results)
    base = baseline if baseline is not None else next(iter(groups), "")
    rows = [paired(group, groups[base], metric, cut=cut) for name, group in groups.items() if name != base]
    scale = wording.scale_of([r.difference.mean for r in rows] + [r.difference.high for r in rows])
    factor, unit, decimals = scale if wording.is_seconds(metric) else (1.0, "", 3)
    differences: list[Text | str] = []
    for row in rows:
        d = row.difference
        text = f"{d.mean * factor:+,.{decimals}f}"
        text += "" if d.half_width is None else f" ± {d.half_width * factor:,.{decimals}f}"
        good = (d.mean > 0) is (metric in HIGHER_IS_BETTER)
        style = ("green" if good else "red") if row.significant else ""
        differences.append(Text(text, style=style))
    name = wording.title(metric, short=True)
    columns = [
        Cells("policy", [_clip(r.a, 34) for r in rows], right=False),
        Cells(f"{name} difference {unit}".rstrip(), differences),
        Cells("ratio", ["-" if r.ratio is None else f"{r.ratio:.3f}" for r in rows], rank=1),
        Cells("better on", [f"{r.wins} of {r.difference.n}" for r in rows], rank=1),
        Cells("equal on", [f"{r.ties}" if r.ties else "-" for r in rows], rank=2),
        Cells("", ["clear" if r.significant else "not clear" for r in rows], right=False, rank=2),
    ]
    return table(
        columns,
        width=width,
        title=escape(f"Against {base}, seed by seed"),
        caption="± 95 % confidence interval of the mean difference; clear: it leaves out zero",
    )


def breakdown_table(
    result: Result, by: str, *, width: int = 80, limit: int | None = 20, cut: Cut | None = None
) -> Table:
    """Jobs, waits and slowdowns of each user, group, queue, app, implementation or size class.

    Of more than ``limit`` rows those that used most. Raises `InputError` for another ``by``.
    """
    rows = list(breakdown(result, by, columns=Columns.of(result), cut=cut).items())
    more = 0
    if limit is not None and len(rows) > limit:
        more = len(rows) - limit
        used = sorted(rows, key=lambda r: -((r[1]["cpu_seconds"] or 0) + (r[1]["device_seconds"] or 0)))
        kept = {name for name, _ in used[:limit]}
        rows = [r for r in rows if r[0] in kept]
    found = [m for _, m in rows]
    columns = [
        Cells(by, [_clip(name, 24) for name, _ in rows], right=False),
        Cells("jobs", [wording.count(m["jobs"]) for m in found]),
    ]
    waits = [(q, [m[f"{q}_wait"] for m in found]) for q in ("mean", "median", "p95", "max")]
    factor, unit, decimals = wording.scale_of([v for _, values in waits for v in values])
    for rank, (q, values) in enumerate(waits):
        cells = ["-" if v is None else wording.fixed(v * factor, decimals) for v in values]
        columns.append(Cells(f"{q}\nwait {unit}", cells, rank=(0, 4, 2, 5)[rank]))
    for rank, q in ((1, "mean"), (3, "p95")):
        cells = ["-" if v is None else f"{v:,.2f}" for v in (m[f"{q}_bounded_slowdown"] for m in found)]
        columns.append(Cells(f"{q}\nslowdown", cells, rank=rank))
    for used_by, head in (("cpu_seconds", "CPU\nhours"), ("device_seconds", "GPU\nhours")):
        hours = [(m[used_by] or 0) / 3600 for m in found]
        if any(hours):
            columns.append(Cells(head, [f"{h:,.1f}" for h in hours], rank=3))
    return table(columns, width=width, caption=f"and {more:,} more, which used less" if more else "")


def later_table(results: Sequence[Result], references: Sequence[Result], *, width: int = 80) -> Table:
    """By policy: how many jobs end later than under the reference, and by how much.

    ``references`` holds, for each result, that of the reference policy on the same jobs.
    """
    found: dict[str, list[list[float]]] = {}
    for result, reference in zip(results, references, strict=True):
        found.setdefault(label(result), []).append(list(later_than(result, reference).values()))
    late = {name: [by for times in runs for by in times] for name, runs in found.items()}
    means = [sum(times) / len(times) if times else 0.0 for times in late.values()]
    most = [max(times, default=0.0) for times in late.values()]
    factor, unit, decimals = wording.scale_of([*means, *most])
    counts = [len(times) / len(found[name]) for name, times in late.items()]
    columns = [
        Cells("policy", [_clip(name, 34) for name in late], right=False),
        Cells("jobs later", [wording.fixed(n, 0 if float(n).is_integer() else 1) for n in counts]),
        Cells(f"mean, {unit}", [wording.fixed(m * factor, decimals) for m in means]),
        Cells(f"at most, {unit}", [wording.fixed(m * factor, decimals) for m in most]),
    ]
    base = label(references[0]) if references else ""
    several = max(map(len, found.values()), default=0) > 1
    return table(
        columns,
        width=width,
        title=escape(f"Jobs that end later than under {base}"),
        caption="number of jobs: mean over the seeds" if several else "",
    )


def fairness_table(result: Result, reference: Result, *, width: int = 80, limit: int = 20) -> RenderableType:
    """Jobs that end later than under ``reference``, the latest first."""
    late = sorted(later_than(result, reference).items(), key=lambda item: -item[1])
    if not late:
        return Text(f"No job ends later than under {label(reference)}.")
    ends = {r.job.id: r.end for r in [*reference.records]}
    mine = {r.job.id: r.end for r in result.records}
    shown = late[:limit]
    times = [mine[job] for job, _ in shown]
    factor, unit, decimals = wording.scale_of(times)

    def at(value: float | None) -> str:
        return "-" if value is None else wording.fixed(value * factor, decimals)

    columns = [
        Cells("job", [_clip(job, 24) for job, _ in shown], right=False),
        Cells(f"end {unit}", [at(mine[job]) for job, _ in shown]),
        Cells(f"end {unit} under {label(reference)}", [at(ends[job]) for job, _ in shown]),
        Cells(f"later by {unit}", [at(by) for _, by in shown]),
    ]
    more = len(late) - len(shown)
    heading = f"{len(late):,} of {len(result.records):,} jobs end later than under {label(reference)}"
    return table(
        columns,
        width=width,
        title=escape(heading),
        caption=f"and {more:,} more" if more else "",
    )
