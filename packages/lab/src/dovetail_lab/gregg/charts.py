"""The figures of Gregg 2011 as charts: predictions, training, placements, execution flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model import CPU
from dovetail.report.drawing import GRID, INK, MUTED, with_style
from dovetail_lab.figures import add_heading, clean_axes, make_figure, styled_figure
from dovetail_lab.gregg.flows import Flow
from dovetail_lab.gregg.placements import CaseOutcome
from dovetail_lab.gregg.predictions import Bar
from dovetail_lab.gregg.training import GPU_ONLY, REFERENCE, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#97bbf5", "#f3d27a", "#9ed8a6", "#ffb3a8", "#b9e3d9", "#d3b4f7")


@with_style
def training_figure(curves: Sequence[Curve]) -> Figure:
    """Figure 2: mean test makespan over training runs, with 95 % intervals; GPU only as a dashed line."""
    fig, axes, _ = make_figure(8.0, 3.4, above=0.8, right=0.3)
    clean_axes(axes)
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
    add_heading(
        fig, "Figure 2: learning from an empty history", f"mean of {len(curves[0].tests)} repetitions"
    )
    return fig


@with_style
def predicted_figure(bars: Sequence[Bar]) -> Figure:
    """Figure 1: measured mean with least and greatest, beside the predictions of both models."""
    devices = list(dict.fromkeys(bar.device for bar in bars))
    fig, axes, _ = make_figure(10.0, 3.6, above=0.8, below=1.2, right=0.3)
    clean_axes(axes)
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
    add_heading(fig, "Figure 1: measured and predicted", "each predicted from other sizes alone")
    return fig


@with_style
def placement_figure(found: Sequence[CaseOutcome]) -> Figure:
    """Figures 3 to 5: makespans of every case in table order, the paper's as crosses."""
    fig, axes, _ = make_figure(10.0, 3.6, above=0.8, below=1.5, right=0.3)
    clean_axes(axes)
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
    add_heading(fig, "Figures 3 to 5: placements", "table order; the paper shows times of applications")
    return fig


@with_style
def flow_figure(title: str, flows: Sequence[Flow]) -> Figure:
    """Execution flows below each other on one axis of time: a lane a device; GPU only as a dashed line."""
    high, above, below, between = 0.9, 0.75, 0.5, 0.45
    total = above + below + len(flows) * high + (len(flows) - 1) * between
    fig = styled_figure(10.0, total)
    add_heading(fig, title, "seconds; dashed: all applications on the GPU")
    longest = max(max(flow.makespan, flow.gpu_only) for flow in flows)
    for i, flow in enumerate(flows):
        bottom = total - above - (i + 1) * high - i * between
        axes = fig.add_axes((0.06, bottom / total, 0.92, high / total))
        clean_axes(axes)
        _draw_lanes(axes, flow)
        axes.axvline(flow.gpu_only, color=MUTED, linestyle="--", linewidth=1)
        axes.set_xlim(0, longest * 1.02)
        axes.set_title(flow.words(), loc="left", fontsize=9, color=INK)
    return fig


def _draw_lanes(axes: Axes, flow: Flow) -> None:
    kinds = [CPU, "gpu"]
    for n, job in enumerate(flow.jobs):
        lane = kinds.index(job.device)
        axes.barh(
            lane, job.end - job.start, 0.8, left=job.start, color=COLOURS[n % len(COLOURS)], linewidth=0
        )
        if (job.end - job.start) / flow.makespan > 0.012 * len(job.name):
            middle = (job.start + job.end) / 2
            axes.text(middle, lane, job.name, fontsize=7, ha="center", va="center", color=INK)
    axes.set_yticks(range(len(kinds)), [kind.upper() for kind in kinds], fontsize=8)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
