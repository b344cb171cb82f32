"""The tables of one result: its summary, its jobs, its break-downs, and what a reader should know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from dovetail.files.sentences import make_printable
from dovetail.model import Record, Result, State
from dovetail.model.tables import RecordTable
from dovetail.report import wording
from dovetail.report.intervals import policy_label
from dovetail.report.metric_names import METRICS
from dovetail.report.metrics import (
    TOLD_FROM,
    Metrics,
    TrimmedTrace,
    break_down,
    compute_metrics,
    every_metric,
    final_metrics,
    later_than,
    prediction_error,
)
from dovetail.report.run_summary import FAILED
from dovetail.report.spelling import Spelling, place_of
from dovetail.report.tables import STYLES, Cell, Cells, Style, Table

STATE_STYLES: dict[State, Style] = {
    State.COMPLETED: "good",
    State.RUNNING: "info",
    State.PENDING: "dim",
    State.CANCELLED: "warn",
    State.FAILED: "bad",
    State.TIMEOUT: "bad",
    State.NODE_FAIL: "bad",
    State.OUT_OF_MEMORY: "bad",
}

UNUSUAL = (
    *("promises_broken", "broken_by_overrun", "node_failures", "restarts", "preemptions", "suspensions"),
    *("lost_cpu_seconds", "overhead_cpu_seconds"),
)
"""Metrics that the summary names only where they are not 0."""

DETAILS = (
    "anl",
    "mit",
    "decision_seconds_mean",
    "decision_seconds_p99",
    "prediction_error_p90",
    "prediction_coverage",
)
"""Metrics that only the verbose output shows."""

UNKNOWN = "unknown"
"""What stands in the place of a number that would be a guess."""

NAMED = 3
"""So many rejected jobs are named."""


def outcome_summary(
    result: Result,
    *,
    cut: TrimmedTrace | None = None,
    reference: Result | None = None,
    width: int = 80,
    verbose: bool = False,
) -> RenderableType:
    """What came out, metric by metric, under a heading, with notes, as text."""
    found = compute_metrics(result, cut=cut, reference=reference)
    name, where = make_printable(policy_label(result)), make_printable(wording.describe_setting(result))
    heading = Text.assemble((name, "bold"), "  ", (where, "dim"))
    if not result.known:
        # Any other figure would be a guess: the schedule of such a result is not known.
        footnotes = [Text(make_printable(note), style="dim") for note in outcome_notes(result)]
        return Group(
            heading, Text(), Text.assemble((f"{'Makespan':<30}", "dim"), UNKNOWN), Text(), *footnotes
        )
    parts: list[RenderableType] = [heading, Text()]
    parts += [
        Text.assemble((f"{name:<30}", "dim"), (text, STYLES[style]))
        for name, text, style in _summary_lines(result, found, verbose)
    ]
    if found["jobs_counted"]:
        parts += [Text(), spread_table(found).text(width)]
    remarks = outcome_notes(result, cut)
    return Group(
        *parts,
        *([Text()] if remarks else []),
        *(Text(make_printable(note), style="dim") for note in remarks),
    )


def _summary_lines(result: Result, found: Metrics, verbose: bool) -> Iterable[tuple[str, str, Style]]:
    counts = job_counts(found)
    failed = any(found[f"jobs_{state.lower()}"] for state in FAILED)
    yield "Jobs", counts, "bad" if failed else ""
    for name, text in _shown_metrics(result, found, verbose):
        yield wording.metric_title(name), text, ""
    if verbose and result.interpreted:
        yield "Not compiled", f"{result.interpreted}: the engine simulated", ""
    plan = result.plan
    if plan is not None:
        text = f"{plan.status} in {wording.spell_seconds(plan.seconds)}"
        text += "" if plan.bound is None else f", bound {wording.spell_seconds(plan.bound)}"
        yield "Plan", text + ("" if plan.gap is None else f", gap {wording.format_percent(plan.gap)}"), ""


def _shown_metrics(result: Result, found: Metrics, verbose: bool) -> Iterable[tuple[str, str]]:
    """Names and texts of the metrics that apply to this result."""
    error = prediction_error(result, TOLD_FROM) if found.get("prediction_error_median") is not None else None
    errors = {} if error is None else {"median": error.median, "p90": error.p90}
    for name in METRICS:
        value = found.get(name)
        spread = name.startswith(("mean_", "median_", "p95_", "max_"))
        if value is None or spread or name == "aql" or (name in UNUSUAL and not value):
            continue
        # A simulation with perfect knowledge predicts without error by construction; zeros would look like a
        # merit.
        known_beforehand = name.startswith("prediction") and result.knowledge == "perfect" and not result.live
        if known_beforehand or (name in DETAILS and not verbose):
            continue
        if name.startswith("prediction_error_"):
            if error is None:
                continue
            value = errors[name.removeprefix("prediction_error_")]
        yield name, wording.metric_value(name, value)


def metric_table(result: Result, cut: TrimmedTrace | None = None) -> Table:
    """Every metric that applies, one a row, with its meaning under the pointer."""
    found = every_metric(result, cut)
    shown = list(_shown_metrics(result, found, verbose=True))
    titles = [Cell(wording.metric_title(name), title=METRICS[name].about) for name, _ in shown]
    values = [Cell(text, found[name]) for name, text in shown]
    return Table([Cells("metric", titles, right=False), Cells("value", values)])


def spread_table(found: Metrics) -> Table:
    """Wait, response and bounded slowdown: mean, median, p95, maximum."""
    names = ("wait", "response", "bounded_slowdown")
    spreads = ("mean", "median", "p95", "max")
    times = [found[f"{spread}_{name}"] for name in names[:2] for spread in spreads]
    # One unit for both rows, as the rows are compared with each other; a slowdown has none.
    factor, unit, decimals = wording.scale_of(times)
    rows = dict.fromkeys(names[:2], (factor, decimals)) | {names[2]: (1.0, 2)}
    columns = [Cells("", [f"Wait {unit}", f"Response {unit}", "Bounded slowdown"], right=False)]
    for spread in spreads:
        values = [(found[f"{spread}_{name}"], *scale) for name, scale in rows.items()]
        cells = [Cell("-" if v is None else wording.format_fixed(v * by, n), v) for v, by, n in values]
        columns.append(Cells(spread, cells))
    return Table(columns)


def job_counts(found: Metrics) -> str:
    """``11: 6 completed, 5 timeout``; nothing where nothing is known."""
    if found["jobs"] is None:
        return UNKNOWN
    counts = [(str(s).lower(), found[f"jobs_{s.lower()}"] or 0) for s in State]
    counts.append(("rejected", found["jobs_rejected"] or 0))
    listed = ", ".join(f"{number:,.0f} {name}" for name, number in counts if number)
    return wording.format_count(found["jobs"]) + (f": {listed}" if listed else "")


def outcome_notes(result: Result, cut: TrimmedTrace | None = None) -> list[str]:
    """What a reader should know: cut, assumed walltimes, ignored priorities, skipped lines, rejected jobs."""
    found = []
    if cut is not None:
        counted = final_metrics(result, cut)["jobs_counted"] or 0
        found.append(f"Means are over {counted:,.0f} jobs, without warm-up and cool-down.")
    if result.default_walltime is not None:
        taken = (
            "its actual run time as its walltime"
            if result.default_walltime == "actual"
            else f"{wording.spell_seconds(result.default_walltime)} as its walltime"
        )
        found.append(f"A job without a walltime was given {taken}.")
    if result.ignores_priorities:
        found.append(f"{result.policy} ignores the priorities of the jobs.")
    if result.skipped:
        found.append(f"{wording.count_things(result.skipped, 'malformed line')} of the workload skipped.")
    # A table has only jobs that ran: to make records of it for this takes longer than the simulation.
    settled = result.live or not result.known or isinstance(result.records, RecordTable)
    left = 0 if settled else sum(r.state is State.PENDING for r in result.records)
    if left:
        found.append(
            f"{left:,} of {wording.count_things(len(result.records), 'job')} never started: the policy left "
            "them in the queue."
        )
    if result.rejected:
        named = [make_printable(f"{r.id} ({r.reason})") for r in result.rejected]
        found.append(f"Rejected: {wording.list_names(named, NAMED)}.")
    return [*found, *map(str, result.notes)]


def job_table(result: Result, *, limit: int | None = None) -> Table:
    """One row a job, in file order; of more than ``limit`` jobs the first."""
    records = result.records if limit is None else result.records[:limit]
    spelt = Spelling(result.cluster)
    lengths = [x for r in records for x in (r.start, r.end)]
    lengths += [r.predicted.expected for r in records if r.predicted]
    unit, spell = wording.clock_of(lengths)

    def time_cells(name: str, values: Sequence[float | None], rank: int) -> Cells:
        cells = [Cell(spell(value), value) for value in values]
        return Cells(f"{name} {unit}".rstrip(), cells, rank=rank)

    submits = [r.job.submit_time for r in records]
    waits = [None if r.start is None else r.start - r.job.submit_time for r in records]
    expected = [r.predicted.expected if r.predicted else None for r in records]
    flawless = all(r.state is State.COMPLETED for r in records)
    together = not any(submits)
    known = result.knowledge == "perfect" and not result.live and flawless
    named = all(r.job.id.startswith(r.job.app.name) for r in records)  # a job's id names its app already
    # The table drops columns that are empty throughout: so `app`, `submit` and `predicted` disappear where
    # they would repeat what is known.
    apps = ["-" if named else r.job.app.name for r in records]
    columns = [
        Cells("job", [r.job.id for r in records], right=False, keep_end=True),
        Cells("app", apps, right=False, rank=4),
        Cells("user", [r.job.user or "-" for r in records], right=False, rank=8),
        Cells("as", [_implementation_name(r) for r in records], right=False, rank=1),
        Cells("where", [place_of(r.allocation, spelt) for r in records], right=False, rank=1),
        time_cells("submit", [None] * len(records) if together else submits, 5),
        time_cells("start", [r.start for r in records], 2),
        time_cells("wait", waits, 6),
        time_cells("run", [r.took for r in records], 2),
        time_cells("predicted", [None] * len(records) if known else expected, 3),
        time_cells("end", [r.end for r in records], 0),
        Cells("state", [_state_cell(r) for r in records], right=False, rank=7 if flawless else 0),
        Cells("why", [_reason_cell(r) for r in records], right=False, page=True),
        Cells("output", [_output_cell(r) for r in records], right=False, page=True),
    ]
    more = len(result.records) - len(records)
    about = f"and {more:,} more; the JSON form has them all" if more else ""
    kept = [c for c in columns if not (c.page and c.empty)]
    return Table(kept, caption=about, tall=len(records) > 15)


def _implementation_name(record: Record) -> str:
    return record.implementation.name if record.implementation else "-"


def _state_cell(record: Record) -> Cell:
    failed = record.state is State.FAILED and record.exit_code
    text = str(record.state) + (f" {record.exit_code}" if failed else "")
    return Cell(text, style=STATE_STYLES[record.state], title=record.detail)


def _reason_cell(record: Record) -> Cell:
    """What went wrong, else why the job waited, else what was considered for it."""
    if record.detail and record.state is not State.COMPLETED:
        return Cell(record.detail, style="bad")
    if record.wait_reason and record.start is None:
        return Cell(record.wait_reason)
    considered = [
        f"{name}: {'no history' if s is None else wording.spell_seconds_shortly(s)}"
        for name, s in record.considered
    ]
    return Cell("; ".join(considered))


def _output_cell(record: Record) -> Cell:
    failed = record.state in (State.FAILED, State.OUT_OF_MEMORY)
    path = record.stderr if failed and record.stderr else record.stdout
    return Cell(path.rpartition("/")[2], title=path, link=path) if path else Cell("")


def breakdown_table(
    result: Result, by: str, *, limit: int | None = 20, cut: TrimmedTrace | None = None
) -> Table:
    """Jobs, waits and slowdowns of each user, group, queue, app, implementation or size class.

    Of more than ``limit`` rows those that used most. Raises `InputError` for another ``by``.
    """
    rows = list(break_down(result, by, cut=cut).items())
    more = 0
    if limit is not None and len(rows) > limit:
        more = len(rows) - limit
        used = sorted(rows, key=lambda r: -((r[1]["cpu_seconds"] or 0) + (r[1]["device_seconds"] or 0)))
        kept = {name for name, _ in used[:limit]}
        rows = [r for r in rows if r[0] in kept]
    found = [m for _, m in rows]
    columns = [
        Cells(by, [name for name, _ in rows], right=False),
        Cells("jobs", [Cell(wording.format_count(m["jobs"]), m["jobs"]) for m in found]),
    ]
    waits = [(q, [m[f"{q}_wait"] for m in found]) for q in ("mean", "median", "p95", "max")]
    factor, unit, decimals = wording.scale_of([v for _, values in waits for v in values])
    for rank, (q, values) in enumerate(waits):
        cells = [Cell("-" if v is None else wording.format_fixed(v * factor, decimals), v) for v in values]
        columns.append(Cells(f"{q}\nwait {unit}", cells, rank=(0, 4, 2, 5)[rank]))
    for rank, q in ((1, "mean"), (3, "p95")):
        slowdowns = [m[f"{q}_bounded_slowdown"] for m in found]
        cells = [Cell("-" if v is None else f"{v:,.2f}", v) for v in slowdowns]
        columns.append(Cells(f"{q}\nslowdown", cells, rank=rank))
    for used_by, head in (("cpu_seconds", "CPU\nhours"), ("device_seconds", "GPU\nhours")):
        hours = [(m[used_by] or 0) / 3600 for m in found]
        if any(hours):
            columns.append(Cells(head, [Cell(f"{h:,.1f}", h) for h in hours], rank=3))
    return Table(columns, caption=f"and {more:,} more, which used less" if more else "", tall=len(rows) > 15)


def fairness_table(result: Result, reference: Result, *, limit: int = 20) -> Table:
    """Jobs that end later than under ``reference``, the latest first."""
    late = sorted(later_than(result, reference).items(), key=lambda item: -item[1])
    base = policy_label(reference)
    if not late:
        return Table([], caption=f"No job ends later than under {base}.")
    ends = {r.job.id: r.end for r in reference.records}
    mine = {r.job.id: r.end for r in result.records}
    shown = late[:limit]
    unit, spell = wording.clock_of([mine[job] for job, _ in shown])

    def metric_cells(head: str, values: Sequence[float | None]) -> Cells:
        return Cells(f"{head} {unit}".rstrip(), [Cell(spell(v), v) for v in values])

    columns = [
        Cells("job", [job for job, _ in shown], right=False, keep_end=True),
        metric_cells("end", [mine[job] for job, _ in shown]),
        metric_cells(f"end under {base}", [ends[job] for job, _ in shown]),
        metric_cells("later by", [by for _, by in shown]),
    ]
    more = len(late) - len(shown)
    heading = f"{len(late):,} of {len(result.records):,} jobs end later than under {base}"
    return Table(columns, title=heading, caption=f"and {more:,} more" if more else "")
