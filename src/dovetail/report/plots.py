"""Plots: utilisation and queue over time, comparison of policies with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model import Result
from dovetail.report import wording
from dovetail.report.figures import GRID, INK, MUTED, clean, heading, save_figure, styled, styled_figure
from dovetail.report.gantt import time_axis
from dovetail.report.intervals import HIGHER_IS_BETTER, Interval, by_policy, interval, label
from dovetail.report.lanes import PALETTE
from dovetail.report.metrics import Cut, final_metrics
from dovetail.report.usage import Columns, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COMPARED",
    "comparison",
    "over_load",
    "save_comparison",
    "save_over_load",
    "save_timeline",
    "timeline",
]

COMPARED = ("makespan", "mean_wait", "mean_bounded_slowdown", "utilisation", "gpu_utilisation")
"""Metrics of the comparison plot; those that no result has are left out."""

OVER_LOAD = ("mean_wait", "mean_bounded_slowdown", "utilisation")
"""Metrics that are drawn against the load."""

BINS = 400
BLUE, GREEN, AMBER = "#4269d0", "#3ca951", "#efb118"


@styled
def timeline(result: Result, *, titled: bool = True) -> Figure:
    """CPUs and devices in use and jobs waiting, over time; longer runs as means of 400 intervals."""
    columns = Columns.of(result)
    cluster = result.cluster
    cpus, devices = cluster.total_cpus, cluster.total_devices
    panels: list[tuple[str, Step, float | None, str]] = []
    if cpus:
        panels.append((f"CPUs in use, of {cpus:,}", columns.cpus_in_use(), cpus, BLUE))
    if devices:
        panels.append((f"Devices in use, of {devices:,}", columns.devices_in_use(), devices, GREEN))
    panels.append(("Jobs waiting", columns.jobs_waiting(), None, AMBER))
    high, gap, above, below = 1.0, 0.42, 1.0 if titled else 0.3, 0.35
    total_height = above + below + len(panels) * high + (len(panels) - 1) * gap
    fig = styled_figure(11, total_height)
    for i, (name, step, most, colour) in enumerate(panels):
        bottom = below + (len(panels) - 1 - i) * (high + gap)
        axes = fig.add_axes((0.72 / 11, bottom / total_height, 9.9 / 11, high / total_height))
        clean(axes)
        _area(axes, step, columns, most, colour)
        axes.set_title(name, loc="left", fontsize=9, fontweight="bold", color=INK, pad=5)
        time_axis(axes, columns.first, columns.last)
        if i < len(panels) - 1:
            axes.set_xticklabels([])
    if titled:
        heading(fig, f"{label(result)}: {wording.seconds(result.makespan)}", wording.where(result))
    return fig


def _area(axes: Axes, step: Step, columns: Columns, most: float | None, colour: str) -> None:
    edges = np.linspace(columns.first, columns.last, BINS + 1)
    inside = (step.times >= columns.first) & (step.times <= columns.last)
    if inside.sum() <= BINS:
        times = np.append(step.times[inside], columns.last)
        values = np.append(step.values[inside], step.values[inside][-1:])
    else:
        times, values = edges, np.append(step.mean(edges), 0.0)
        values[-1] = values[-2]
    if not len(values):
        times, values = edges, np.zeros(len(edges))
    values = values[: len(times)]
    axes.fill_between(times - columns.first, values, step="post", color=colour, alpha=0.28, linewidth=0)
    axes.step(times - columns.first, values, where="post", color=colour, linewidth=1.1)
    top = most if most is not None else max(1.0, float(values.max()))
    axes.set_ylim(0, top * 1.04)
    axes.set_yticks([0, top / 2, top], ["0 %", "50 %", "100 %"] if most else ["0", "", f"{top:,.0f}"])
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=MUTED)


@styled
def comparison(
    results: Sequence[Result],
    names: Sequence[str] = COMPARED,
    *,
    titled: bool = True,
    cut: Cut | None = None,
) -> Figure:
    """A panel for each metric, a bar for each policy; over several seeds with 95 % intervals."""
    groups = by_policy(results)
    found = {row: [final_metrics(r, cut) for r in group] for row, group in groups.items()}
    intervals = {name: [interval(m.get(name) for m in found[row]) for row in found] for name in names}
    shown = [name for name in names if any(intervals[name])]
    rows = list(groups)
    across = min(3, max(1, len(shown)))
    down = -(-len(shown) // across)
    left = 0.35 + 0.078 * max((len(row) for row in rows), default=0)
    high, gap, above, below = 0.27 * len(rows) + 0.1, 0.55, 1.05 if titled else 0.35, 0.25
    total = above + below + down * high + (down - 1) * gap
    wide = (11 - left - 0.2) / across
    fig = styled_figure(11, total)
    for i, name in enumerate(shown):
        row, column = divmod(i, across)
        bottom = below + (down - 1 - row) * (high + gap)
        axes = fig.add_axes(((left + column * wide) / 11, bottom / total, (wide - 0.25) / 11, high / total))
        clean(axes)
        _bars(axes, name, intervals[name], rows if column == 0 else None)
    seeds = max((len(group) for group in groups.values()), default=0)
    about = wording.where(results[0]) if seeds == 1 else f"{seeds} seeds, bars show 95 % confidence intervals"
    if titled:
        heading(fig, f"{len(rows)} policies compared" if len(rows) > 1 else rows[0] if rows else "", about)
    return fig


def _bars(axes: Axes, name: str, found: Sequence[Interval | None], rows: Sequence[str] | None) -> None:
    means = [i.mean if i else 0.0 for i in found]
    known = [i.mean for i in found if i is not None]
    best = (max if name in HIGHER_IS_BETTER else min)(known)
    colours = [BLUE if i is not None and i.mean == best else "#97bbf5" for i in found]
    at = list(range(len(means)))
    axes.barh(at, means, height=0.72, color=colours, linewidth=0)
    reach = max((i.high for i in found if i is not None), default=1.0) or 1.0
    for y, i in zip(at, found, strict=True):
        text = wording.metric(name, i.mean if i else None).split(" (")[0]
        if i is not None and i.half_width is not None:
            axes.errorbar(i.mean, y, xerr=i.half_width, color=INK, linewidth=1.0, capsize=2.5)
        axes.annotate(
            text,
            (i.high if i else 0.0, y),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.set_ylim(len(means) - 0.5, -0.5)
    axes.set_xlim(0, reach * 1.32)
    axes.set_yticks(at, rows or [""] * len(at), fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.axvline(0, color=GRID, linewidth=1)
    axes.set_title(wording.title(name), loc="left", fontsize=9.5, fontweight="bold", color=INK, pad=5)


@styled
def over_load(results: Sequence[Result], *, cut: Cut | None = None) -> Figure:
    """Metrics against the offered load, a line for each policy; over several seeds their means.

    ``results`` have been simulated at several loads (`Result.load`).
    """
    names = [n for n in OVER_LOAD if any(final_metrics(r, cut).get(n) is not None for r in results)]
    fig = styled_figure(11, 3.6)
    wide = 11 / max(1, len(names))
    for i, name in enumerate(names):
        axes = fig.add_axes(((i * wide + 0.75) / 11, 0.16, (wide - 0.95) / 11, 0.56))
        clean(axes)
        for place, (policy, group) in enumerate(by_policy(results).items()):
            loads = sorted({r.load for r in group if r.load is not None})
            means = [interval(final_metrics(r, cut).get(name) for r in group if r.load == at) for at in loads]
            known = [(at, mean.mean) for at, mean in zip(loads, means, strict=True) if mean is not None]
            shown, values = [at for at, _ in known], [value for _, value in known]
            axes.plot(shown, values, color=PALETTE[place % len(PALETTE)], marker="o", ms=3.5, label=policy)
        unit = " (s)" if wording.is_seconds(name) else ""
        axes.set_title(wording.title(name) + unit, loc="left", fontsize=9.5, fontweight="bold", color=INK)
        axes.set_xlabel("offered load", fontsize=8.5, color=MUTED)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_ylim(bottom=0)
        if i == 0:
            axes.legend(fontsize=8, frameon=False)
    heading(
        fig,
        "Over the offered load",
        f"{wording.workload(results[0])} on {wording.machine(results[0].cluster)}",
    )
    return fig


def save_over_load(results: Sequence[Result], path: str | Path, *, cut: Cut | None = None) -> None:
    """Draw `over_load` to a file. Raises `InputError` if it cannot be written."""
    save_figure(over_load(results, cut=cut), path)


def save_timeline(result: Result, path: str | Path) -> None:
    """Draw `timeline` to a file. Raises `InputError` if it cannot be written."""
    save_figure(timeline(result), path)


def save_comparison(results: Sequence[Result], path: str | Path, *, cut: Cut | None = None) -> None:
    """Draw `comparison` to a file. Raises `InputError` if it cannot be written."""
    save_figure(comparison(results, cut=cut), path)
