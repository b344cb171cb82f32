"""The Gantt chart as a drawing.

One row a unit (a CPU pool or a device). Large clusters are drawn as shares in use of groups of units.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model import Result
from dovetail.report import drawing, wording
from dovetail.report.drawing import INK, MUTED, Drawing, Label, Line, Rectangle, Shading, text_width
from dovetail.report.gantt.lanes import (
    MOST_BARS,
    MOST_LANES,
    AppColours,
    Bar,
    Lanes,
    bars_of,
    make_density,
    make_lanes,
    round_ticks,
    tick_text,
)
from dovetail.report.intervals import policy_label
from dovetail.report.tables import clip_text

LONGEST_NAME = 32
FAILED = ("did not complete", "#b3001b")
BLUE = "#2b4595"
WIDTH = 792.0
"""Of all charts, in points: 11 inches."""


def draw_gantt(result: Result, *, titled: bool = True) -> Drawing:
    """The chart: lanes up to 64 units, else shares in use."""
    few = len(result.cluster.units) <= MOST_LANES and bars_of(result) <= MOST_BARS
    drawn = _draw_lanes(result, titled) if few else _draw_density(result, titled)
    if titled:
        drawn.add_heading(
            f"{policy_label(result)}: {wording.spell_seconds(result.makespan)}",
            wording.describe_setting(result),
        )
    return drawn


def _draw_lanes(result: Result, titled: bool) -> Drawing:
    made = make_lanes(result)
    names = [clip_text(name, LONGEST_NAME, keep_end=True) for name in made.names]
    tones = AppColours(result.records)
    count = len(names)
    each, size = (30.0, 9.0) if count <= 16 else (22.0, 9.0) if count <= 32 else (14.0, 7.0)
    left, top, inner = _chart_margins(names, size, titled)
    bottom = top + max(1, count) * each
    entries = [*tones.legend_entries(), *([FAILED] if made.failed else [])]
    rows = _legend_rows(entries, left)
    drawn = Drawing(WIDTH, bottom + 32 + 14 * len(rows))
    for lane, (name, bars) in enumerate(zip(names, made.bars, strict=True)):
        y = top + lane * each
        drawn.add(Rectangle(left, y + each * 0.08, inner, each * 0.84, INK, 0.045))
        drawn.add(Label(left - 6, y + each / 2 + size / 3, name, size, INK, "end"))
        for bar in bars:
            _draw_bar(drawn, bar, made, tones, (left, y, inner, each))
        drawn.add(Label(left + inner + 6, y + each / 2 + 2.7, f"{made.used[lane]:.0%}", 8, MUTED))
    time_axis(drawn, (made.first, made.last), left, bottom, inner)
    for row, cells in enumerate(rows):
        y = bottom + 36 + 14 * row
        for x, (name, colour) in cells:
            drawn.add(
                Rectangle(x, y - 7, 9, 8, "none", edge=colour, line=1.0, hatched=True)
                if (name, colour) == FAILED
                else Rectangle(x, y - 7, 9, 8, colour)
            )
            drawn.add(Label(x + 13, y, name))
    return drawn


def _chart_margins(names: Sequence[str], size: float, titled: bool) -> tuple[float, float, float]:
    """Where the chart begins, from the left and from above, and how wide it is."""
    left = 16 + max((text_width(name, size) for name in names), default=0.0)
    return left, 54.0 if titled else 8.0, WIDTH - left - 44


def _draw_bar(
    drawn: Drawing, bar: Bar, made: Lanes, tones: AppColours, place: tuple[float, float, float, float]
) -> None:
    left, top, inner, each = place
    scale = inner / (made.last - made.first or 1.0)
    # A job of seconds in a schedule of days would be invisible: 0.3 points keep it on the page.
    x, wide = left + (bar.start - made.first) * scale, max(0.3, (bar.end - bar.start) * scale)
    colour, about = tones.of(bar.record), bar.record.job.id
    # Bars that are thinner than their white edge would vanish behind it.
    edge, line = (FAILED[1], 1.0) if bar.failed else ("white", min(0.8, wide / 9))
    for low, high in bar.shares:
        height = (high - low) * 0.84 * each
        y = top + 0.92 * each - low * 0.84 * each - height
        drawn.add(Rectangle(x, y, wide, height, colour, 1.0, edge, line, bar.failed, about))
        size = min(8.5, height * 0.72)
        # Letters below five points cannot be read.
        room = int((wide - 4) / (size * drawing.LETTER)) if size >= 5 else 0
        name = made.labels.fitting_label(bar.record, room)
        if name:
            middle = y + height / 2 + size * 0.36
            drawn.add(Label(x + wide / 2, middle, name, size, ink_on(colour), "middle"))


def ink_on(colour: str) -> str:
    """Black or white, whichever reads on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    # Luma of ITU-R BT.601: the eye takes green for much brighter than blue.
    return "#111111" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#ffffff"


def time_axis(
    drawn: Drawing, span: tuple[float, float], left: float, y: float, inner: float, *, named: bool = True
) -> None:
    """Round seconds, minutes, hours or days from the first submission on; ``named``: with their numbers."""
    first, last = span
    length = last - first or 1.0
    at = [t - first for t in round_ticks(first, last, 10)]
    step = at[1] - at[0] if len(at) > 1 else length
    drawn.add(Line([(left, y), (left + inner, y)], MUTED, 0.6))
    for moment in at:
        x = left + moment / length * inner
        drawn.add(Line([(x, y), (x, y + 3)], MUTED, 0.6))
        if named:
            drawn.add(Label(x, y + 13, tick_text(moment, step), 8, MUTED, "middle"))


def _legend_rows(
    entries: Sequence[tuple[str, str]], left: float
) -> list[list[tuple[float, tuple[str, str]]]]:
    """The entries in rows, each with where it begins."""
    rows: list[list[tuple[float, tuple[str, str]]]] = []
    # As if a row were full, so that the first entry opens one.
    x = WIDTH
    for entry in entries:
        wide = 26 + text_width(entry[0], 8)
        if x + wide > WIDTH - 10:
            rows.append([])
            x = left
        rows[-1].append((x, entry))
        x += wide
    return rows


def _draw_density(result: Result, titled: bool) -> Drawing:
    chart = make_density(result)
    names = [clip_text(name, LONGEST_NAME, keep_end=True) for name in chart.names]
    count = len(names)
    left, top, inner = _chart_margins(names, 7, titled)
    high = min(432.0, max(108.0, count * 6.5))
    drawn = Drawing(WIDTH, top + high + 24)
    drawn.add(Shading(left, top, inner, high, BLUE, chart.share))
    # Fewer than 48 names, as more would run into each other.
    every = max(1, count // 24)
    for row in range(0, count, every):
        drawn.add(Label(left - 6, top + (row + 0.5) * high / count + 2.5, names[row], 7, INK, "end"))
    time_axis(drawn, (float(chart.edges[0]), float(chart.edges[-1])), left, top + high, inner)
    for share, text in ((0.05, "idle"), (0.5, "50 %"), (1.0, "full")):
        y = top + 8 + high * (1 - share) * 0.9
        drawn.add(
            Rectangle(left + inner + 8, y - 6, 7, 7, BLUE, share), Label(left + inner + 18, y, text, 7, MUTED)
        )
    return drawn
