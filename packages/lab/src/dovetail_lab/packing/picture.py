"""A schedule as a picture, processors over time: a character grid, SVG, PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.files.writing import write_text
from dovetail_lab.packing.schedule import ListSchedule, Packing

SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Paul Tol's light scheme: distinct for colour-blind readers, and dark text stays legible on it.
PALETTE = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00", "#dddddd")


@dataclass(frozen=True, slots=True)
class Bar:
    """A task in the picture: when it runs, and on which processors (numbered from 0)."""

    task: int
    start: float
    end: float
    processors: tuple[int, ...]


def task_bars(schedule: Packing | ListSchedule, processors: int) -> list[Bar]:
    """Give every task the lowest processors that are free at its start; in order of start."""
    free_at = np.zeros(processors)
    found = []
    # By start, so that a processor's earlier task has ended when the next one looks for it.
    for entry in sorted(schedule.started(), key=lambda task: (task.start, task.task)):
        # Ends are sums of the same times in another order, so equality is up to rounding.
        free = np.flatnonzero(free_at <= entry.start + 1e-9 * max(entry.end, 1.0))[: entry.processors]
        free_at[free] = entry.end
        found.append(Bar(entry.task, entry.start, entry.end, tuple(int(row) for row in free)))
    return found


def task_grid(drawn: Sequence[Bar], processors: int, width: int) -> NDArray[np.int64]:
    """The task in each cell, -1 where a processor idles; shape ``(processors, width)``."""
    span = max(bar.end for bar in drawn)
    cells = np.full((processors, width), -1, np.int64)
    # A cell shows what runs at its middle: short tasks are not stretched to a cell each.
    middles = (np.arange(width) + 0.5) * span / width
    for bar in drawn:
        inside = (middles >= bar.start) & (middles < bar.end)
        for row in bar.processors:
            cells[row, inside] = bar.task
    return cells


def task_symbol(task: int) -> str:
    """One character for a task; they repeat after 62."""
    return SYMBOLS[task % len(SYMBOLS)]


def to_svg(schedule: Packing | ListSchedule, processors: int, names: Sequence[str], title: str) -> str:
    """The picture as an SVG document; packs are separated by lines."""
    drawn = task_bars(schedule, processors)
    span = schedule.total_cost
    left, top, inner = 46.0, 30.0, 900.0
    # Rows shrink with their number, so that a picture of 1,000 processors still fits a page.
    row = min(22.0, max(4.0, 480.0 / processors))
    bottom = top + row * processors
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + inner + 20:.0f}" height="{bottom + 40:.0f}" '
        f'font-family="sans-serif" font-size="11">',
        f"<title>{escape(title)}</title>",
        f'<text x="{left}" y="18" font-size="13">{escape(title)}</text>',
        f'<rect x="{left}" y="{top}" width="{inner}" height="{row * processors}" fill="#f4f4f4"/>',
    ]
    for bar in drawn:
        x, wide = left + bar.start / span * inner, (bar.end - bar.start) / span * inner
        name = escape(names[bar.task])
        count = len(bar.processors)
        parts.append(f"<g><title>{name}: {bar.end - bar.start:.6g} s on {count} processors</title>")
        # Neighbouring processors as one rectangle: far fewer elements, and no seams.
        for first, last in _neighbouring_runs(bar.processors):
            y, tall = top + first * row, (last - first + 1) * row
            colour = PALETTE[bar.task % len(PALETTE)]
            parts.append(
                f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{tall:.2f}" fill="{colour}" '
                f'stroke="#ffffff" stroke-width="0.6"/>'
            )
            if wide > 6.5 * len(names[bar.task]) and tall >= 11:
                middle = f'x="{x + wide / 2:.2f}" y="{y + tall / 2 + 4:.2f}"'
                parts.append(f'<text {middle} text-anchor="middle">{name}</text>')
        parts.append("</g>")
    for boundary in _pack_boundaries(schedule):
        x = left + boundary / span * inner
        line = f"M{x:.2f} {top - 4}V{bottom + 4:.2f}"
        parts.append(f'<path d="{line}" stroke="#333333" stroke-dasharray="3 2"/>')
    for share in np.linspace(0.0, 1.0, 6):
        x = left + share * inner
        parts.append(
            f'<text x="{x:.2f}" y="{bottom + 18:.2f}" text-anchor="middle">{share * span:.4g}</text>'
        )
    parts.append(f'<text x="{left + inner / 2}" y="{bottom + 34:.2f}" text-anchor="middle">seconds</text>')
    parts.append(
        f'<text x="14" y="{(top + bottom) / 2:.2f}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(top + bottom) / 2:.2f})">{processors} processors</text></svg>'
    )
    return "\n".join(parts) + "\n"


def save_picture(
    path: Path, schedule: Packing | ListSchedule, processors: int, names: Sequence[str], title: str
) -> None:
    """Write ``path`` as SVG or PNG, by its suffix.

    Raises ``InputError`` for another suffix, or where it cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in (".svg", ".png"):
        raise InputError(f"a picture is .svg or .png, found {path.suffix or 'no suffix'!r}", where=str(path))
    try:
        if suffix == ".svg":
            write_text(path, to_svg(schedule, processors, names, title))
        else:
            _save_png(path, schedule, processors, names, title)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _save_png(
    path: Path, schedule: Packing | ListSchedule, processors: int, names: Sequence[str], title: str
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, min(8.0, 1.6 + 0.28 * processors)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for bar in task_bars(schedule, processors):
        for first, last in _neighbouring_runs(bar.processors):
            axes.barh(
                first,
                bar.end - bar.start,
                left=bar.start,
                height=last - first + 1,
                align="edge",
                color=PALETTE[bar.task % len(PALETTE)],
                edgecolor="white",
                linewidth=0.5,
            )
            if (bar.end - bar.start) > 0.012 * len(names[bar.task]) * schedule.total_cost:
                axes.text(
                    (bar.start + bar.end) / 2, (first + last + 1) / 2, names[bar.task],
                    ha="center", va="center", fontsize=7,
                )  # fmt: skip
    for boundary in _pack_boundaries(schedule):
        axes.axvline(boundary, color="#333333", linewidth=0.8, linestyle="--")
    axes.set(
        xlim=(0, schedule.total_cost),
        ylim=(processors, 0),
        xlabel="seconds",
        ylabel="processors",
        title=title,
    )
    figure.savefig(path, dpi=150)


def _pack_boundaries(schedule: Packing | ListSchedule) -> list[float]:
    """When each pack but the last ends."""
    if isinstance(schedule, ListSchedule):
        return []
    return [float(end) for end in np.cumsum(schedule.pack_costs)[:-1]]


def _neighbouring_runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbouring processors."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and runs[-1][1] == row - 1:
            runs[-1] = (runs[-1][0], row)
        else:
            runs.append((row, row))
    return runs
