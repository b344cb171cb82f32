"""Tables and pictures of `dovetail.reproduce.gregg`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.report import tables
from dovetail.report.figures import GRID, INK, MUTED, clean, figure, heading, save_figure, styled
from dovetail.report.wording import seconds
from dovetail.reproduce.gregg_decisions import PAPER, DecisionTime
from dovetail.reproduce.gregg_figures import SECONDS, SHARES, Found
from dovetail.reproduce.gregg_predictions import Bar
from dovetail.reproduce.gregg_training import GPU_ONLY, REFERENCE, Curve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "predicted_figure", "show", "training_figure"]

PLAIN: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "title_justify": "left"}
ROWS = (*SECONDS, *SHARES, "gpu_only_over_dynamic")


def show(
    source: str,
    bars: Sequence[Bar],
    curves: Sequence[Curve],
    found: Sequence[Found],
    decisions: Sequence[DecisionTime],
    clocks: Sequence[str],
) -> None:
    """Everything as tables on standard output."""
    console = tables.console()
    _predictions(console, source, bars)
    _training(console, curves)
    _placements(console, found)
    _fairness(console, found)
    _decisions(console, decisions)
    console.print(Text("The paper's two clocks", style="bold"))
    for line in clocks:
        console.print(Text(f"  {line}"))


def _predictions(console: Console, source: str, bars: Sequence[Bar]) -> None:
    table = Table(title=f"Figure 1: predicted and measured, milliseconds ({source})", **PLAIN)
    for name in ("app", "device"):
        table.add_column(name, no_wrap=True)
    for name in ("n", "least", "mean", "most", "least-squares", "learned", "90 % interval"):
        table.add_column(name, justify="right")
    for bar in bars:
        paper, learned = _ms(bar.paper_model), _ms(bar.learned)
        table.add_row(
            bar.app,
            bar.device,
            f"{bar.n:,}",
            *(_ms(value) for value in (bar.least, bar.mean, bar.most)),
            Text(paper, style="" if bar.paper_within else "yellow"),
            Text(learned, style="" if bar.learned_within else "yellow"),
            f"{_ms(bar.lower)}-{_ms(bar.upper)}",
        )
    console.print(table)
    paper_in, learned_in, seen_in = (
        sum(getattr(bar, f"{model}_within") for bar in bars) for model in ("paper", "learned", "seen")
    )
    console.print(
        Text(
            f"Within the least and the greatest measured, of {len(bars)}: least-squares {paper_in}, learned "
            f"{learned_in} from other sizes alone; learned {seen_in} when it has seen this size, as in the "
            "paper, where all are.\n"
        )
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:,.0f}"


def _training(console: Console, curves: Sequence[Curve]) -> None:
    runs = curves[0].tests.shape[1]
    title = f"Figure 2: seconds for Table 2 after so many training runs ({len(curves[0].tests)} repetitions)"
    table = Table(title=title, **PLAIN)
    table.add_column("policy", no_wrap=True)
    for run in range(runs):
        table.add_column(str(run), justify="right")
    for curve in curves:
        table.add_row(curve.policy, *(f"{mean:.2f}" for mean in curve.tests.mean(axis=0)))
    told = (f"{REFERENCE[run]:.2f}" if run in REFERENCE else "" for run in range(runs))
    table.add_row("reference (history)", *told, style="dim")
    console.print(table)
    console.print(
        Text(f"GPU only: {GPU_ONLY:.2f} s. Paper: worse than GPU only at first, better after five runs.")
    )
    for curve in curves:
        first, worst = curve.ratios[:, 0].max(), curve.ratios.max()
        console.print(
            Text(f"  {curve.policy}: a first run takes {first:.2f}x GPU only at most, any run {worst:.2f}x")
        )
    console.print()


def _placements(console: Console, found: Sequence[Found]) -> None:
    table = Table(title="Figures 3 to 5: seconds in table order", **PLAIN)
    table.add_column("clock, applications", no_wrap=True)
    table.add_column("placement", no_wrap=True)
    for name in ("paper", "reference", "ours"):
        table.add_column(name, justify="right")
    table.add_column("ours over random orders", justify="right", no_wrap=True)
    for case in found:
        ours = case.ours()
        for row in ROWS:
            if row not in ours:
                continue
            told = (_value(row, where.get(row)) for where in (case.case.paper, case.case.reference, ours))
            shuffled = ""
            if row == "dynamic":
                mean, least, greatest = case.dynamic()
                shuffled = f"{mean:.3f} [{least:.3f} to {greatest:.3f}]"
            name = case.case.name if row == ROWS[0] else ""
            table.add_row(name, row.replace("_", " "), *told, shuffled)
        table.add_section()
    console.print(table)
    console.print()


def _value(row: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if row in SHARES else f"{value:.3f}"


def _fairness(console: Console, found: Sequence[Found]) -> None:
    table = Table(title="Section 4.1: applications that end later than under static placement", **PLAIN)
    table.add_column("case", no_wrap=True)
    for name in ("late", "by at most", "late, mean", "late, most", "by at most", "unfair orders"):
        table.add_column(name, justify="right")
    for case in found:
        late = [order.late for order in case.orders] or [case.table.late]
        latest = max((order.latest for order in case.orders), default=case.table.latest)
        table.add_row(
            case.case.name,
            str(case.table.late),
            seconds(case.table.latest),
            f"{np.mean(late):.2f}",
            str(max(late)),
            seconds(latest),
            f"{np.mean(np.array(late) > 0):.0%}",
        )
    console.print(table)
    console.print(
        Text(
            "First two: table order; then over the random orders. Paper: none while predictions are right.\n"
        )
    )


def _decisions(console: Console, decisions: Sequence[DecisionTime]) -> None:
    table = Table(title="Section 4.3: milliseconds a decision takes", **PLAIN)
    for name in ("queued", "per job", "per call", "its deviation", "longest call"):
        table.add_column(name, justify="right")
    for row in decisions:
        times = (row.per_job, row.mean, row.stdev, row.longest)
        table.add_row(f"{row.queued:,}", *(f"{time * 1000:.3f}" for time in times))
    console.print(table)
    console.print(Text(f"Paper: {PAPER * 1000:g} ms, deviation 0.2 ms, on its machine.\n"))


@styled
def training_figure(curves: Sequence[Curve]) -> Figure:
    """Figure 2: mean test makespan over training runs, with 95 % intervals; GPU only as a dashed line."""
    fig, axes, _ = figure(8.0, 3.4, above=0.8, right=0.3)
    clean(axes)
    for curve in curves:
        runs = np.arange(curve.tests.shape[1])
        mean = curve.tests.mean(axis=0)
        half = 1.96 * curve.tests.std(axis=0) / np.sqrt(len(curve.tests))
        axes.errorbar(
            runs, mean, yerr=half, marker="o", markersize=3, capsize=2, linewidth=1.4, label=curve.policy
        )
    known = [(run, value) for run, value in REFERENCE.items() if run < curves[0].tests.shape[1]]
    axes.plot(*zip(*known, strict=True), "x", color=INK, markersize=6, label="reference (history)")
    axes.axhline(GPU_ONLY, color=MUTED, linestyle="--", linewidth=1)
    axes.annotate(
        "GPU only", (0, GPU_ONLY), xytext=(2, 3), textcoords="offset points", color=MUTED, fontsize=8
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("training runs")
    axes.set_ylabel("seconds for Table 2")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)
    heading(fig, "Figure 2: learning from an empty history", f"mean of {len(curves[0].tests)} repetitions")
    return fig


@styled
def predicted_figure(bars: Sequence[Bar]) -> Figure:
    """Figure 1: measured mean with least and greatest, beside the predictions of both models."""
    devices = list(dict.fromkeys(bar.device for bar in bars))
    fig, axes, _ = figure(10.0, 3.6, above=0.8, below=1.2, right=0.3)
    clean(axes)
    places = [f"{bar.app} {bar.device}" for bar in sorted(bars, key=lambda bar: devices.index(bar.device))]
    rows = {f"{bar.app} {bar.device}": bar for bar in bars}
    at = np.arange(len(places))
    own = [rows[place] for place in places]
    mean = np.array([bar.mean for bar in own])
    spread = [mean - [bar.least for bar in own], np.array([bar.most for bar in own]) - mean]
    axes.bar(at - 0.2, mean, width=0.38, color="#97bbf5", label="measured, least to greatest")
    axes.errorbar(at - 0.2, mean, yerr=spread, fmt="none", ecolor=INK, capsize=2, linewidth=0.9)
    axes.bar(at + 0.2, [bar.learned or 0.0 for bar in own], width=0.38, color="#4269d0", label="learned")
    axes.plot(
        at + 0.2, [bar.paper_model or np.nan for bar in own], "x", color="#efb118", label="least-squares"
    )
    axes.set_xticks(at, places, rotation=90, fontsize=7)
    axes.set_ylabel("seconds")
    axes.legend(frameon=False, fontsize=8)
    heading(fig, "Figure 1: measured and predicted", "each predicted from other sizes alone")
    return fig


@styled
def placement_figure(found: Sequence[Found]) -> Figure:
    """Figures 3 to 5: makespans of every case in table order, the paper's as crosses."""
    fig, axes, _ = figure(10.0, 3.6, above=0.8, below=1.5, right=0.3)
    clean(axes)
    shown = ("gpu-only", "static", "dynamic", "optimum")
    at = np.arange(len(found))
    for i, row in enumerate(shown):
        values = [case.optimum if row == "optimum" else case.table.makespans[row] for case in found]
        heights = [np.nan if value is None else value for value in values]
        axes.bar(at + 0.2 * (i - 1.5), heights, width=0.18, label=row)
        paper = [case.case.paper.get(row, np.nan) for case in found]
        axes.plot(at + 0.2 * (i - 1.5), paper, "x", color=INK, label="paper" if i == 0 else None)
    axes.set_xticks(at, [case.case.name for case in found], rotation=30, ha="right", fontsize=7.5)
    axes.set_ylabel("makespan, seconds")
    axes.legend(frameon=False, fontsize=8)
    heading(fig, "Figures 3 to 5: placements", "table order; the paper shows times of applications")
    return fig


def draw(bars: Sequence[Bar], curves: Sequence[Curve], found: Sequence[Found], out: Path) -> None:
    """Write the figures as SVG into a folder that exists."""
    if bars:
        save_figure(predicted_figure(bars), out / "figure-1.svg")
    save_figure(training_figure(curves), out / "figure-2.svg")
    save_figure(placement_figure(found), out / "figures-3-to-5.svg")
