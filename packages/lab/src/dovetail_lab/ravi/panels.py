"""A figure of Ravi 2012: groups of bars, as a table with the reference below each row, and as a chart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dovetail.report.drawing import GRID, INK, MUTED, with_style
from dovetail.report.intervals import Interval
from dovetail_lab.figures import add_heading, clean_axes, styled_figure
from dovetail_lab.study import Chart, Table, format_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e", "#9498a0")


@dataclass(frozen=True, slots=True)
class Panel:
    """``values[row][column]`` of one figure, with its unit, and what the reference found.

    ``least`` is the least value that there can be.
    """

    name: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[Interval | None, ...], ...]
    reference: tuple[tuple[float | None, ...], ...] = ()
    least: float = 0.0


def panel_parts(panel: Panel, study: str, note: str = "") -> tuple[Table, Chart]:
    """The panel as a table and as a chart, which is named after the study and the figure."""
    rows: list[tuple[str, ...]] = []
    faint: list[int] = []
    for r, (row, values) in enumerate(zip(panel.rows, panel.values, strict=True)):
        rows.append((row, *(format_interval(value, least=panel.least) for value in values)))
        if r < len(panel.reference):
            faint.append(len(rows))
            reference = panel.reference[r]
            rows.append(("  reference", *("-" if value is None else f"{value:.2f}" for value in reference)))
    columns = ("policy", *panel.columns)
    table = Table(f"{panel.name} ({panel.unit})", columns, tuple(rows), faint=frozenset(faint), note=note)
    return table, Chart(f"{study}-{_name_slug(panel.name)}", panel.name, partial(draw_bars, panel))


def _name_slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.split(":")[0].lower()).strip("-")


@with_style
def draw_bars(panel: Panel) -> Figure:
    """Groups of bars, one for each column, a bar for each policy, with 95 % intervals."""
    wide, high, above, below = 11.0, 2.6, 0.85, 0.55
    fig = styled_figure(wide, above + high + below)
    add_heading(fig, panel.name, f"{panel.unit}; bars show means, lines 95 % confidence intervals")
    share = wide / len(panel.columns)
    for c, column in enumerate(panel.columns):
        left, total = (c * share + 0.55) / wide, above + high + below
        axes = fig.add_axes((left, below / total, (share - 0.75) / wide, high / total))
        clean_axes(axes)
        for r, row in enumerate(panel.rows):
            value = panel.values[r][c]
            if value is None:
                continue
            axes.bar(r, value.mean, 0.8, color=COLOURS[r % len(COLOURS)], label=row, linewidth=0)
            if value.half_width is not None:
                below_mean = value.mean - max(value.lower_end, min(panel.least, value.mean))
                ends = ((below_mean,), (value.half_width,))
                axes.errorbar(r, value.mean, yerr=ends, color=INK, linewidth=1, capsize=2.5)
            reference = panel.reference[r][c] if r < len(panel.reference) else None
            if reference is not None:
                axes.plot(r, reference, "x", color=INK, markersize=5)
        axes.set_title(column, loc="left", fontsize=9.5, fontweight="bold", color=INK)
        axes.set_xticks(range(len(panel.rows)), panel.rows, rotation=30, ha="right", fontsize=7.5)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelcolor=MUTED)
    return fig
