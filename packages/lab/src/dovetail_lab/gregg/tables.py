"""What ``dovetail reproduce gregg`` shows: the figures of the paper as tables and charts, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dovetail_lab.gregg import charts
from dovetail_lab.gregg.decisions import PAPER, DecisionTime
from dovetail_lab.gregg.flows import Flow, Identical
from dovetail_lab.gregg.placements import SECONDS, SHARES, STATIC, CaseOutcome
from dovetail_lab.gregg.predictions import Bar
from dovetail_lab.gregg.training import GPU_ONLY, REFERENCE, Curve
from dovetail_lab.study import Chart, Prose, Table

ROWS = (*SECONDS, STATIC, *SHARES, "gpu_only_over_dynamic")


def prediction_parts(source: str, bars: Sequence[Bar]) -> tuple[Table | Chart, ...]:
    """Figure 1."""
    rows = [
        (
            bar.app,
            bar.device,
            f"{bar.n:,}",
            *(_format_milliseconds(value) for value in (bar.least, bar.mean, bar.most)),
            _format_milliseconds(bar.paper_model) + ("" if bar.paper_within else " *"),
            _format_milliseconds(bar.learned) + ("" if bar.learned_within else " *"),
            f"{_format_milliseconds(bar.lower)}-{_format_milliseconds(bar.upper)}",
        )
        for bar in sorted(bars, key=lambda bar: bar.app)
    ]
    paper, learned, seen = (
        sum(getattr(bar, f"{m}_within") for bar in bars) for m in ("paper", "learned", "seen")
    )
    columns = ("app", "device", "n", "least", "mean", "most", "paper's", "learned", "90 %")
    table = Table(
        f"Figure 1: predicted and measured, milliseconds ({source})",
        columns,
        tuple(rows),
        names=2,
        note="* outside of the least and the greatest measured. The paper predicts sizes that its model has "
        "seen, and a model that answers with the average of what it has seen cannot miss them. Here both "
        f"models know other sizes only: of {len(bars)}, the paper's least-squares lies within in {paper}, "
        f"learned in {learned}. Having seen this size, learned does in {seen}.",
    )
    if not bars:
        return (table,)
    return table, Chart("figure-1", "Figure 1 as a chart", partial(charts.predicted_figure, bars))


def _format_milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:,.0f}"


def training_parts(curves: Sequence[Curve]) -> tuple[Table | Chart, ...]:
    """Figure 2."""
    runs = curves[0].tests.shape[1]
    rows = [(curve.policy, *(f"{mean:.2f}" for mean in curve.tests.mean(axis=0))) for curve in curves]
    rows.append(
        ("  reference (history)", *(f"{REFERENCE[r]:.2f}" if r in REFERENCE else "" for r in range(runs)))
    )
    worst = "; ".join(
        f"{curve.policy}: {curve.ratios[:, 0].max():.2f}, {curve.ratios.max():.2f}" for curve in curves
    )
    table = Table(
        f"Figure 2: seconds for Table 2 after so many training runs ({len(curves[0].tests)} repetitions)",
        ("policy", *map(str, range(runs))),
        tuple(rows),
        faint=frozenset([len(curves)]),
        note=f"GPU only: {GPU_ONLY:.2f} s. At worst, a first training run and any take so many times GPU "
        f"only: {worst}.",
    )
    return table, Chart("figure-2", "Figure 2 as a chart", partial(charts.training_figure, curves))


def placement_parts(found: Sequence[CaseOutcome]) -> tuple[Table | Chart, ...]:
    """Figures 3 to 5, on every clock."""
    rows = []
    for case in found:
        ours = case.table_order_figures()
        for row in ROWS:
            if row not in ours:
                continue
            values = (
                _format_value(row, where.get(row)) for where in (case.case.paper, case.case.reference, ours)
            )
            name = case.case.name if row == ROWS[0] else ""
            rows.append((name, row.replace("_", " "), *values))
            if row == "dynamic":
                words = ("mean of random orders", "least", "greatest")
                rows += [
                    ("", f"  {word}", "", "", f"{s:.3f}")
                    for word, s in zip(words, case.dynamic_makespans(), strict=True)
                ]
    columns = ("clock, applications", "placement", "paper", "reference", "ours")
    table = Table("Figures 3 to 5: seconds in table order", columns, tuple(rows), names=2)
    return table, Chart(
        "figures-3-to-5", "Figures 3 to 5 as a chart", partial(charts.placement_figure, found)
    )


def _format_value(row: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if row in (STATIC, *SHARES) else f"{value:.3f}"


def flow_chart(number: int, pair: Sequence[Flow]) -> Chart:
    """Figure 4 or 5: both schedules, as lanes."""
    title = f"Figure {number}: execution flow"

    def flow_text(width: int) -> str:
        lanes = (f"  {flow.words()}\n{flow.report.gantt(width=width)}" for flow in pair)
        return "".join(lanes)

    return Chart(f"figure-{number}", title, partial(charts.flow_figure, title, pair), flow_text)


def identical_chart(found: Identical) -> Chart:
    """Section 5.4: ten identical applications."""
    flow = found.flow
    title = "Section 5.4: ten identical applications"
    return Chart(
        "section-5-4",
        title,
        partial(charts.flow_figure, title, [flow]),
        lambda width: flow.report.gantt(width=width),
        f"Each takes 1 s on the GPU and 5 s on the CPU. {flow.makespan:.1f} s (optimum {found.optimum:.1f} "
        f"s, GPU only {flow.gpu_only:.1f} s), CPU {flow.cpu_utilisation:.0%}. The first on the CPU is number "
        f"{found.first_on_cpu}: it ends there at 5 s, on the GPU it would at 6 s; the paper says number "
        f"{found.paper_first_on_cpu}.",
    )


def fairness_table(found: Sequence[CaseOutcome]) -> Table:
    """Section 4.1."""
    rows = []
    for case in found:
        late = [order.late for order in case.orders] or [case.table.late]
        latest = max((order.latest for order in case.orders), default=case.table.latest)
        rows.append(
            (
                case.case.name,
                str(case.table.late),
                f"{case.table.latest:.2f}",
                f"{np.mean(late):.2f}",
                str(max(late)),
                f"{latest:.2f}",
                f"{np.mean(np.array(late) > 0):.0%}",
            )
        )
    return Table(
        "Section 4.1: applications that end later than under static placement",
        ("case", "late", "by s", "mean", "most", "by s ", "unfair"),
        tuple(rows),
        note="Late in table order, and by how many seconds at most; over the random orders the mean and the "
        "greatest number that are late, by how many seconds at most, and how many orders have any. Paper: "
        "none while predictions are right.",
    )


def decision_table(found: Sequence[DecisionTime]) -> Table:
    """Section 4.3."""
    rows = [
        (f"{row.queued:,}", *(f"{t * 1000:.3f}" for t in (row.per_job, row.mean, row.stdev, row.longest)))
        for row in found
    ]
    return Table(
        "Section 4.3: milliseconds a decision takes",
        ("queued", "per job", "per call", "its deviation", "longest call"),
        tuple(rows),
        note=f"Paper: {PAPER * 1000:g} ms, deviation 0.2 ms, on its machine.",
    )


def clock_prose(lines: Sequence[str]) -> Prose:
    """Why figures of the paper disagree with each other."""
    return Prose("The paper's two clocks", tuple(lines))
