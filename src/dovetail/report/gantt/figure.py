"""The Gantt chart as a figure: SVG, PNG or PDF.

One row a unit (a CPU pool or a device). Large clusters are drawn as shares in use of groups of units.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.model import Result
from dovetail.report import wording
from dovetail.report.figures import INK, MUTED, figure, heading, save_figure, styled
from dovetail.report.gantt.lanes import (
    Bar,
    Lanes,
    Tones,
    bars_of,
    density,
    lanes,
    short_names,
    tick_text,
    ticks,
)
from dovetail.report.intervals import label
from dovetail.report.tables import clipped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save", "time_axis"]

MOST_LANES = 64
"""Units up to which each gets a lane of its own in a figure."""
MOST_BARS = 20_000
LONGEST_NAME = 32
FAILED = ("did not complete", "#b3001b")
BLUE = (0x2B / 255, 0x45 / 255, 0x95 / 255)


def save(result: Result, path: str | Path) -> None:
    """Draw to a file; its ending says in which form. Raises `InputError` if it cannot be written."""
    save_figure(draw(result), path)


@styled
def draw(result: Result, *, titled: bool = True) -> Figure:
    """The chart as a figure: lanes up to 64 units, else shares in use."""
    if len(result.cluster.units) <= MOST_LANES and bars_of(result) <= MOST_BARS:
        return _draw_lanes(result, titled)
    return _draw_density(result, titled)


def _draw_lanes(result: Result, titled: bool) -> Figure:
    made = lanes(result)
    names = [clipped(name, LONGEST_NAME, keep_end=True) for name in made.names]
    tones = Tones(result.records)
    count = len(made.names)
    each = 0.42 if count <= 16 else 0.3 if count <= 32 else 0.2
    entries = [*tones.legend(), *([FAILED] if made.failed else [])]
    columns = _legend_columns(entries)
    below = 0.4 + 0.18 * -(-len(entries) // columns)
    above = 0.75 if titled else 0.1
    left = _margin(names)
    fig, axes, inches = figure(11, max(1, count) * each, above=above, below=below, left=left)
    for row, bars in enumerate(made.bars):
        axes.axhspan(row - 0.42, row + 0.42, color=INK, alpha=0.045, linewidth=0)
        _bars(axes, row, bars, made, tones, inches, each)
        axes.annotate(
            f"{made.used[row]:.0%}",
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count), names, fontsize=9 if count <= 32 else 7)
    axes.tick_params(axis="y", length=0)
    time_axis(axes, made.first, made.last)
    if titled:
        heading(fig, f"{label(result)}: {wording.seconds(result.makespan)}", wording.where(result))
    _legend(axes, entries, columns)
    return fig


def _margin(names: Sequence[str]) -> float:
    return 0.35 + 0.075 * max((len(n) for n in names), default=0)


def _bars(
    axes: Axes, row: int, bars: tuple[Bar, ...], made: Lanes, tones: Tones, inches: float, each: float
) -> None:
    from matplotlib.patches import Rectangle

    span = made.last - made.first or 1.0
    thin = inches / span
    for bar in bars:
        wide = (bar.end - bar.start) * thin
        colour = tones.of(bar.record)
        marked = bar.failed
        for low, high in bar.shares:
            height = (high - low) * 0.84
            bottom = row + 0.42 - low * 0.84 - height
            axes.add_patch(
                Rectangle(
                    (bar.start - made.first, bottom),
                    bar.end - bar.start,
                    height,
                    facecolor=colour,
                    edgecolor=FAILED[1] if marked else "white",
                    linewidth=1.0 if marked else min(0.8, wide * 8),
                    hatch="////" if marked else None,
                )
            )
            size = min(8.5, height * each * 72 * 0.72)
            fitting = (n for n in short_names(bar.record.job.id) if len(n) * size * 0.58 / 72 < wide - 0.06)
            name = next(fitting, None) if size >= 5 else None
            if name is not None:
                axes.text(
                    (bar.start + bar.end) / 2 - made.first,
                    bottom + height / 2,
                    name,
                    ha="center",
                    va="center_baseline",
                    fontsize=size,
                    color=ink_on(colour),
                    clip_on=True,
                )


def ink_on(colour: str) -> str:
    """Black or white, whichever reads on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#ffffff"


def time_axis(axes: Axes, first: float, last: float) -> None:
    """Round seconds, minutes, hours or days from the first submission on."""
    span = last - first or 1.0
    at = [t - first for t in ticks(first, last, 10)]
    step = at[1] - at[0] if len(at) > 1 else span
    axes.set_xlim(0, span)
    axes.set_xticks(at, [tick_text(t, step) for t in at], fontsize=8)
    axes.tick_params(axis="x", length=3, color=MUTED, labelcolor=MUTED)


def _legend_columns(entries: list[tuple[str, str]]) -> int:
    longest = max((len(name) for name, _ in entries), default=1)
    return max(1, min(8, len(entries), int(10 / (0.4 + 0.085 * longest))))


def _legend(axes: Axes, entries: list[tuple[str, str]], columns: int) -> None:
    from matplotlib.patches import Patch
    from matplotlib.transforms import ScaledTranslation

    handles = [
        Patch(facecolor="none", edgecolor=colour, hatch="////", label=name)
        if (name, colour) == FAILED
        else Patch(facecolor=colour, label=name)
        for name, colour in entries
    ]
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=axes.transAxes + ScaledTranslation(-0.06, -0.24, figure.dpi_scale_trans),
        borderaxespad=0.0,
        ncols=columns,
        frameon=False,
        fontsize=8,
        handlelength=1.1,
        handleheight=1.0,
        labelcolor=INK,
    )


def _draw_density(result: Result, titled: bool) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap

    chart = density(result, 96, 600)
    names = [clipped(name, LONGEST_NAME, keep_end=True) for name in chart.names]
    count = len(chart.names)
    high, above = min(6.0, max(1.5, count * 0.09)), 0.75 if titled else 0.1
    fig, axes, _ = figure(11, high, above=above, below=0.4, left=_margin(names))
    first, last = float(chart.edges[0]), float(chart.edges[-1])
    shade = LinearSegmentedColormap.from_list("use", [(*BLUE, 0.05), (*BLUE, 1.0)])
    image = axes.imshow(
        chart.share,
        aspect="auto",
        interpolation="nearest",
        cmap=shade,
        vmin=0,
        vmax=1,
        extent=(0, last - first or 1.0, count - 0.5, -0.5),
    )
    every = max(1, count // 24)
    shown = range(0, count, every)
    axes.set_yticks(list(shown), [names[i] for i in shown], fontsize=7)
    axes.tick_params(axis="y", length=0)
    time_axis(axes, first, last)
    bar = fig.colorbar(image, ax=axes, pad=0.012, fraction=0.02, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["idle", "50 %", "full"], fontsize=8, color=MUTED)
    bar.outline.set_visible(False)
    if titled:
        heading(fig, f"{label(result)}: {wording.seconds(result.makespan)}", wording.where(result))
    return fig
