"""Gantt charts: in the terminal, and as SVG, PNG or PDF.

One row a unit (a CPU pool or a device). Large clusters are drawn as shares in use of groups of units.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from dovetail.model import Result
from dovetail.report import wording
from dovetail.report.figures import INK, MUTED, figure, heading, save_figure, styled
from dovetail.report.intervals import label
from dovetail.report.lanes import Bar, Lanes, Tones, density, failed, lanes, tick_text, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "save", "terminal"]

MOST_LANES = 64
"""Units up to which each gets a lane of its own in a figure."""
MOST_BARS = 20_000
FAILED = ("did not complete", "#b3001b")
BLUE = (0x2B / 255, 0x45 / 255, 0x95 / 255)
LEVELS = " ▁▂▃▄▅▆▇█"
FILLS = "█▓"


def terminal(result: Result, *, width: int = 80, rows: int = 24) -> RenderableType:
    """The chart as text: rows of blocks with the jobs' names where they fit, and a time axis.

    Without colours neighbouring jobs are told apart by two fills. More than ``rows`` units are shown by
    groups, the height of a block saying which share of the group is in use.
    """
    if not any(r.run_time is not None for r in result.records):
        return Text("Nothing has run.")
    if len(result.cluster.units) > rows:
        chart = density(result, rows, 1)
        margin = max(map(len, chart.names)) + 1
        chart = density(result, rows, width - margin - 1)
        lines = [
            Text.assemble((name.ljust(margin), "dim"), *_levels(share))
            for name, share in zip(chart.names, chart.share, strict=True)
        ]
        first, last = float(chart.edges[0]), float(chart.edges[-1])
    else:
        made = lanes(result)
        margin = max(map(len, made.names)) + 1
        tones = Tones(result.records)
        cells = width - margin - 7
        lines = []
        for name, bars, busy in zip(made.names, made.bars, made.busy, strict=True):
            row = _row(bars, made, cells, tones)
            lines.append(Text.assemble((name.ljust(margin), "dim"), row, (f" {busy:>5.0%}", "dim")))
        first, last = made.first, made.last
        width -= 6
    return Group(*lines, *_axis(first, last, margin, width - margin - 1))


def _levels(share: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Text]:
    heights = np.ceil(np.clip(share, 0, 1) * (len(LEVELS) - 1) - 1e-9).astype(int)
    return [Text("".join(LEVELS[h] for h in heights), style="green")]


def _row(bars: tuple[Bar, ...], made: Lanes, cells: int, tones: Tones) -> Text:
    """A lane as text: each cell shows the job that holds most of it."""
    span = made.last - made.first or 1.0
    owner = np.full(cells, -1)
    held = np.zeros(cells)
    for i, bar in enumerate(bars):
        low, high = ((t - made.first) / span * cells for t in (bar.start, bar.end))
        for cell in range(int(low), min(cells, int(np.ceil(high)))):
            part = (min(high, cell + 1) - max(low, cell)) * (bar.high - bar.low)
            if part > held[cell]:
                owner[cell], held[cell] = i, part
    text = Text()
    cell, shown = 0, 0
    while cell < cells:
        end = cell + 1
        while end < cells and owner[end] == owner[cell]:
            end += 1
        if owner[cell] < 0:
            text.append(" " * (end - cell))
        else:
            bar = bars[owner[cell]]
            name = wording.printable(bar.record.job.id)
            long = end - cell
            fill = FILLS[shown % 2]
            body = fill * long if len(name) + 2 > long else fill + name + fill * (long - len(name) - 1)
            style = "red" if failed(bar.record) else tones.of(bar.record)
            text.append(body, style=style)
            shown += 1
        cell = end
    return text


def _axis(first: float, last: float, margin: int, width: int) -> list[Text]:
    span = last - first
    if span <= 0:
        return []
    at = ticks(first, last, max(2, width // 12))
    step = at[1] - at[0] if len(at) > 1 else span
    line, labels = ["─"] * (width + 1), [" "] * (width + 12)
    for tick in at:
        place = round((tick - first) / span * width)
        line[place] = "┬"
        text = tick_text(tick - first, step)
        start = max(0, min(place - len(text) // 2, width + 1 - len(text)))
        if all(c == " " for c in labels[max(0, start - 1) : start + len(text) + 1]):
            labels[start : start + len(text)] = text
    pad = " " * margin
    return [Text(pad + "".join(line), style="dim"), Text(pad + "".join(labels).rstrip(), style="dim")]


def save(result: Result, path: str | Path) -> None:
    """Draw to a file; its ending says in which form. Raises `InputError` if it cannot be written."""
    save_figure(draw(result), path)


@styled
def draw(result: Result, *, titled: bool = True) -> Figure:
    """The chart as a figure: lanes up to 64 units, else shares in use."""
    units = len(result.cluster.units)
    ran = [r for r in result.records if r.run_time is not None and r.allocation is not None]
    bars = sum(r.allocation.mask.bit_count() for r in ran if r.allocation is not None)
    if units <= MOST_LANES and bars <= MOST_BARS:
        return _draw_lanes(result, titled)
    return _draw_density(result, titled)


def _draw_lanes(result: Result, titled: bool) -> Figure:
    made = lanes(result)
    tones = Tones(result.records)
    count = len(made.names)
    each = 0.42 if count <= 16 else 0.3 if count <= 32 else 0.2
    entries = [*tones.legend(), *([FAILED] if any(failed(r) for r in result.records) else [])]
    columns = _legend_columns(entries)
    below = 0.4 + 0.18 * -(-len(entries) // columns)
    above = 0.75 if titled else 0.1
    left = _margin(made.names)
    fig, axes, inches = figure(11, max(1, count) * each, above=above, below=below, left=left)
    for row, bars in enumerate(made.bars):
        axes.axhspan(row - 0.42, row + 0.42, color=INK, alpha=0.045, linewidth=0)
        _bars(axes, row, bars, made, tones, inches, each)
        axes.annotate(
            f"{made.busy[row]:.0%}",
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=MUTED,
        )
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count), made.names, fontsize=9 if count <= 32 else 7)
    axes.tick_params(axis="y", length=0)
    time_axis(axes, made.first, made.last)
    if titled:
        heading(fig, f"{label(result)}: {wording.seconds(result.makespan)}", wording.where(result))
    _legend(axes, entries, columns)
    return fig


def _margin(names: tuple[str, ...]) -> float:
    return 0.35 + 0.075 * max((len(n) for n in names), default=0)


def _bars(
    axes: Axes, row: int, bars: tuple[Bar, ...], made: Lanes, tones: Tones, inches: float, each: float
) -> None:
    from matplotlib.patches import Rectangle

    span = made.last - made.first or 1.0
    thin = inches / span
    for bar in bars:
        height = (bar.high - bar.low) * 0.84
        bottom = row + 0.42 - bar.low * 0.84 - height
        wide = (bar.end - bar.start) * thin
        colour = tones.of(bar.record)
        axes.add_patch(
            Rectangle(
                (bar.start - made.first, bottom),
                bar.end - bar.start,
                height,
                facecolor=colour,
                edgecolor=FAILED[1] if failed(bar.record) else "white",
                linewidth=min(0.8, wide * 8) if not failed(bar.record) else 1.0,
                hatch="////" if failed(bar.record) else None,
            )
        )
        size = min(8.5, height * each * 72 * 0.72)
        name = wording.printable(bar.record.job.id)
        if size >= 5 and len(name) * size * 0.58 / 72 < wide - 0.06:
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
    count = len(chart.names)
    high, above = min(6.0, max(1.5, count * 0.09)), 0.75 if titled else 0.1
    fig, axes, _ = figure(11, high, above=above, below=0.4, left=_margin(chart.names))
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
    axes.set_yticks(list(shown), [chart.names[i] for i in shown], fontsize=7)
    axes.tick_params(axis="y", length=0)
    time_axis(axes, first, last)
    bar = fig.colorbar(image, ax=axes, pad=0.012, fraction=0.02, ticks=[0, 0.5, 1])
    bar.ax.set_yticklabels(["idle", "50 %", "full"], fontsize=8, color=MUTED)
    bar.outline.set_visible(False)
    if titled:
        heading(fig, f"{label(result)}: {wording.seconds(result.makespan)}", wording.where(result))
    return fig
