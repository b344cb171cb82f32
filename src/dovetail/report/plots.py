"""Plots: utilisation and queue over time, comparison of policies with confidence intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model import Cluster, Result, State
from dovetail.report import wording
from dovetail.report.columns import Columns, Floats, columns_of
from dovetail.report.figures import GRID, INK, MUTED, clean, heading, save_figure, styled, styled_figure
from dovetail.report.gantt.figure import time_axis
from dovetail.report.gantt.lanes import OTHER, PALETTE, Span, span_of
from dovetail.report.intervals import (
    HIGHER_IS_BETTER,
    Interval,
    interval,
    label,
    of_replicates,
    unmoved,
    variants,
)
from dovetail.report.metrics import Cut, final_metrics
from dovetail.report.steps import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COMPARED",
    "comparison",
    "over_load",
    "predicted_pairs",
    "predictions",
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
def timeline(results: Sequence[Result], *, titled: bool = True) -> Figure:
    """CPUs and devices in use and jobs waiting, over time; longer runs as means of 400 intervals.

    Several results are lines on one axis of time.
    """
    columns = {name: columns_of(group[0]) for name, group in variants(results).items()}
    panels = [panel for panel in PANELS if any(panel.capacity(c.cluster) != 0 for c in columns.values())]
    span = span_of(results)
    high, gap, above, below = 1.0, 0.42, 1.0 if titled else 0.3, 0.35 if len(columns) == 1 else 0.65
    total_height = above + below + len(panels) * high + (len(panels) - 1) * gap
    fig = styled_figure(11, total_height)
    for i, panel in enumerate(panels):
        bottom = below + (len(panels) - 1 - i) * (high + gap)
        axes = fig.add_axes((0.72 / 11, bottom / total_height, 9.9 / 11, high / total_height))
        clean(axes)
        _panel(axes, panel, columns, span)
        time_axis(axes, *span)
        if i < len(panels) - 1:
            axes.set_xticklabels([])
    if len(columns) > 1:
        lines, names = fig.axes[0].get_legend_handles_labels()
        fig.legend(lines, names, loc="lower center", ncols=min(5, len(columns)), fontsize=8, frameon=False)
    if titled:
        result = results[0]
        name = f"{label(result)}: {wording.seconds(result.makespan)}"
        heading(fig, name if len(results) == 1 else "Use over time", wording.where(result))
    return fig


@dataclass(frozen=True, slots=True)
class Panel:
    """A quantity over time; ``capacity`` is what a cluster has of it, ``None`` where there is no limit."""

    title: str
    step: Callable[[Columns], Step]
    capacity: Callable[[Cluster], int | None]
    colour: str


PANELS = (
    Panel("CPUs in use", Columns.cpus_in_use, lambda cluster: cluster.total_cpus, BLUE),
    Panel("Devices in use", Columns.devices_in_use, lambda cluster: cluster.total_devices, GREEN),
    Panel("Jobs waiting", Columns.jobs_waiting, lambda cluster: None, AMBER),
)


def _panel(axes: Axes, panel: Panel, columns: Mapping[str, Columns], span: Span) -> None:
    shares = [panel.capacity(c.cluster) for c in columns.values()]
    greatest = 0.0
    for place, (name, one) in enumerate(columns.items()):
        capacity = panel.capacity(one.cluster) or 1
        times, values = _series(panel.step(one), span)
        colour = panel.colour if len(columns) == 1 else PALETTE[place % len(PALETTE)]
        if len(columns) == 1:
            axes.fill_between(times, values / capacity, step="post", color=colour, alpha=0.28, linewidth=0)
        axes.step(times, values / capacity, where="post", color=colour, linewidth=1.1, label=name)
        greatest = max(greatest, float(values.max(initial=0.0)) / capacity)
    limited = shares[0] is not None
    top = 1.0 if limited else max(1.0, greatest)
    of = f", of {shares[0]:,}" if limited and len(set(shares)) == 1 else ""
    axes.set_title(f"{panel.title}{of}", loc="left", fontsize=9, fontweight="bold", color=INK, pad=5)
    axes.set_ylim(0, top * 1.04)
    axes.set_yticks([0, top / 2, top], ["0 %", "50 %", "100 %"] if limited else ["0", "", f"{top:,.0f}"])
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelcolor=MUTED)


def _series(step: Step, span: Span) -> tuple[Floats, Floats]:
    """Times from the first moment on and values of a step function; of many steps, means of intervals."""
    first, last = span
    inside = (step.times >= first) & (step.times <= last)
    if inside.sum() <= BINS:
        times = np.concatenate([step.times[inside], [last]])
        values = np.concatenate([step.values[inside], step.values[inside][-1:] if inside.any() else [0.0]])
    else:
        times = np.linspace(first, last, BINS + 1)
        means = step.mean(times)
        values = np.append(means, means[-1:])
    return times - first, values


def predicted_pairs(result: Result) -> list[tuple[float, float, str]]:
    """Predicted and actual seconds, and the app, of the completed jobs that had a prediction."""
    return [
        (record.predicted.expected, record.took, record.job.app.name)
        for record in result.records
        if record.predicted is not None
        and record.state is State.COMPLETED
        and record.took
        and 0 < record.predicted.expected < math.inf
    ]


@styled
def predictions(result: Result) -> Figure:
    """Every job's predicted against its actual run time, on logarithmic axes, coloured by app."""
    pairs = predicted_pairs(result)
    fig = styled_figure(6, 4.2)
    axes = fig.add_axes((0.13, 0.13, 0.62, 0.83))
    clean(axes)
    apps = [app for app, _ in Counter(app for _, _, app in pairs).most_common(len(PALETTE))]
    for place, app in enumerate([*apps, None]):
        mine = [(x, y) for x, y, name in pairs if name == app or (app is None and name not in apps)]
        if mine:
            name = wording.printable(app) if app is not None else "others"
            colour = PALETTE[place] if app is not None else OTHER
            across, up = zip(*mine, strict=True)
            axes.scatter(across, up, s=14, alpha=0.7, linewidths=0, color=colour, label=name)
    ends = [min(min(x, y) for x, y, _ in pairs) * 0.8, max(max(x, y) for x, y, _ in pairs) * 1.25]
    axes.plot(ends, ends, color=MUTED, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_xlabel("predicted, s", fontsize=8.5, color=MUTED)
    axes.set_ylabel("actual, s", fontsize=8.5, color=MUTED)
    axes.tick_params(axis="both", labelsize=8, labelcolor=MUTED)
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


@styled
def comparison(
    results: Sequence[Result],
    names: Sequence[str] = COMPARED,
    *,
    titled: bool = True,
    cut: Cut | None = None,
) -> Figure:
    """A panel for each metric, a bar for each policy; over several seeds with 95 % intervals."""
    groups = {name: group[:1] if unmoved(group) else group for name, group in variants(results).items()}
    found = {row: [final_metrics(r, cut) for r in group] for row, group in groups.items()}
    replicates = of_replicates(results)
    intervals = {
        name: [interval((m.get(name) for m in found[row]), replicates=replicates) for row in found]
        for name in names
    }
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
    about = wording.where(results[0]) if seeds == 1 else f"{seeds} draws, bars show 95 % confidence intervals"
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
    reach = max((i.within(name)[1] for i in found if i is not None), default=1.0) or 1.0
    for y, i in zip(at, found, strict=True):
        text = wording.metric(name, i.mean if i else None).split(" (")[0]
        if i is not None and i.half_width is not None:
            low, high = i.within(name)
            axes.errorbar(
                i.mean, y, xerr=[[i.mean - low], [high - i.mean]], color=INK, linewidth=1.0, capsize=2.5
            )
        axes.annotate(
            text,
            (i.within(name)[1] if i else 0.0, y),
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
def over_load(results: Sequence[Result], *, titled: bool = True, cut: Cut | None = None) -> Figure:
    """Metrics against the offered load, a line for each policy; over several seeds their means.

    ``results`` have been simulated at several loads (`Result.load`). Waits grow without bound towards a load
    of 1, so all but utilisation is on a logarithmic axis.
    """
    names = [n for n in OVER_LOAD if any(final_metrics(r, cut).get(n) is not None for r in results)]
    height = 3.6 if titled else 3.0
    fig = styled_figure(11, height)
    wide = 11 / max(1, len(names))
    for i, name in enumerate(names):
        axes = fig.add_axes(((i * wide + 0.75) / 11, 0.58 / height, (wide - 0.95) / 11, 2.0 / height))
        clean(axes)
        for place, (policy, group) in enumerate(variants(results, loads=False).items()):
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
        if "utilisation" in name:
            axes.set_ylim(0, 1.02)
        elif "slowdown" in name:
            axes.set_yscale("log")
        else:
            axes.set_yscale("symlog", linthresh=1.0)
            axes.set_ylim(bottom=0)
        if i == 0:
            axes.legend(fontsize=8, frameon=False)
    if titled:
        one = results[0]
        heading(fig, "Over the offered load", f"{wording.workload(one)} on {wording.machine(one.cluster)}")
    return fig


def save_over_load(results: Sequence[Result], path: str | Path, *, cut: Cut | None = None) -> None:
    """Draw `over_load` to a file. Raises `InputError` if it cannot be written."""
    save_figure(over_load(results, cut=cut), path)


def save_timeline(result: Result, path: str | Path) -> None:
    """Draw `timeline` to a file. Raises `InputError` if it cannot be written."""
    save_figure(timeline([result]), path)


def save_comparison(results: Sequence[Result], path: str | Path, *, cut: Cut | None = None) -> None:
    """Draw `comparison` to a file. Raises `InputError` if it cannot be written."""
    save_figure(comparison(results, cut=cut), path)
