"""The Gantt chart as text: rows of blocks with the jobs' names where they fit, and a time axis."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from dovetail.model import Result
from dovetail.report.columns import Floats
from dovetail.report.gantt.lanes import (
    AppColours,
    Bar,
    Lanes,
    make_density,
    make_lanes,
    round_ticks,
    tick_text,
)
from dovetail.report.tables import clip_text

LEVELS = " ▁▂▃▄▅▆▇█"
FILLS = "█▓"
MOST_ROWS = 48
"""Rows up to which jobs that share a unit each have one of their own."""
AT_RIGHT = 6
"""Columns of text that the share in use takes."""


def terminal_chart(result: Result, *, width: int = 80, units: int = 24) -> RenderableType:
    """The chart, ``width`` wide at most.

    Jobs that share a unit at one time lie in rows below each other. At the right is the mean share of the
    unit that was in use. Without colours neighbouring jobs have one of two fills. More than ``units``
    units are shown by groups, the height of a block being the share of the group in use; so are units
    that more jobs share than there is room for.
    """
    if not any(r.run_time is not None for r in result.records):
        return Text("Nothing has run.")
    count = len(result.cluster.units)
    if count <= units:
        made = make_lanes(result)
        rows = sum(made.rows(lane) for lane in range(count))
        # As many rows as units are always accepted, as one row a unit is the least that this form can have.
        if rows <= max(MOST_ROWS, count):
            return _lane_rows(made, AppColours(result.records), width)
    return _density_rows(result, min(count, units), width)


def _lane_rows(made: Lanes, tones: AppColours, width: int) -> RenderableType:
    names = _padded_names(made.names, width)
    margin = len(names[0]) + 1
    cells = max(1, width - margin - AT_RIGHT - 1)
    lines = []
    for lane, (name, bars, used) in enumerate(zip(names, made.bars, made.used, strict=True)):
        for row in range(made.rows(lane)):
            body = _lane_text(tuple(bar for bar in bars if bar.row == row), made, cells, tones)
            end = f" {used:>5.0%}" if not row else ""
            lines.append(Text.assemble(((name if not row else "").ljust(margin), "dim"), body, (end, "dim")))
    return Group(*lines, *_time_axis(made.first, made.last, margin, cells))


def _density_rows(result: Result, rows: int, width: int) -> RenderableType:
    # The width that is left for the chart depends on the names of the groups, so these are formed once with a
    # single column.
    names = _padded_names(make_density(result, rows, 1).names, width)
    margin = len(names[0]) + 1
    cells = max(1, width - margin - 1)
    chart = make_density(result, rows, cells)
    lines = [
        Text.assemble((name.ljust(margin), "dim"), (_block_letters(share), "green"))
        for name, share in zip(names, chart.share, strict=True)
    ]
    first, last = float(chart.edges[0]), float(chart.edges[-1])
    return Group(*lines, *_time_axis(first, last, margin, cells))


def _padded_names(names: tuple[str, ...], width: int) -> list[str]:
    """All of one width, which leaves room for the chart."""
    short = [clip_text(name, max(8, width // 3), keep_end=True) for name in names]
    longest = max(map(len, short))
    return [name.ljust(longest) for name in short]


def _block_letters(share: Floats) -> str:
    # Rounded up, so that any use at all is visible; the tiny term keeps a share that rounding has lifted
    # above a level from the next one.
    heights = np.ceil(np.clip(share, 0, 1) * (len(LEVELS) - 1) - 1e-9).astype(int)
    return "".join(LEVELS[h] for h in heights)


def _lane_text(bars: tuple[Bar, ...], made: Lanes, cells: int, tones: AppColours) -> Text:
    """Bars that follow each other as text: each cell shows the job that holds most of it."""
    span = made.last - made.first or 1.0
    owner = np.full(cells, -1)
    held = np.zeros(cells)
    for i, bar in enumerate(bars):
        low, high = ((t - made.first) / span * cells for t in (bar.start, bar.end))
        for cell in range(int(low), min(cells, int(np.ceil(high)))):
            part = (min(high, cell + 1) - max(low, cell)) * bar.lane_share
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
            style = "red" if bar.failed else tones.of(bar.record)
            # Two cells less: a bar keeps its fill on both sides of a name, or neighbours' names would run
            # into each other.
            name = made.labels.fitting_label(bar.record, end - cell - 2)
            fill = FILLS[shown % 2]
            text.append(
                fill * bool(name) + name + fill * (end - cell - cell_len(name) - bool(name)), style=style
            )
            shown += 1
        cell = end
    return text


def _time_axis(first: float, last: float, margin: int, width: int) -> list[Text]:
    span = last - first
    if span <= 0:
        return []
    at = round_ticks(first, last, max(2, width // 12))
    step = at[1] - at[0] if len(at) > 1 else span
    line, labels = ["─"] * (width + 1), [" "] * (width + 12)
    for tick in at:
        place = round((tick - first) / span * width)
        line[place] = "┬"
        text = tick_text(tick - first, step)
        start = max(0, min(place - len(text) // 2, width + 1 - len(text)))
        # A label that would touch its neighbour is left out, its tick stays.
        if all(c == " " for c in labels[max(0, start - 1) : start + len(text) + 1]):
            labels[start : start + len(text)] = text
    pad = " " * margin
    return [Text(pad + "".join(line), style="dim"), Text(pad + "".join(labels).rstrip(), style="dim")]
