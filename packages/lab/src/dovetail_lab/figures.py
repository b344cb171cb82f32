"""What the studies' figures share: size, type, and how they stand on a page.

Figures are made without pyplot, so that drawing changes no global state and needs no display.
"""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING

from dovetail.report.drawing import GRID, INK, MUTED, writing_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def make_figure(
    width: float,
    height: float,
    *,
    above: float = 0.6,
    below: float = 0.6,
    left: float = 0.8,
    right: float = 0.6,
) -> tuple[Figure, Axes, float]:
    """A figure with one plain axes of ``height`` inches; also how many inches wide the axes is."""
    total = above + height + below
    fig = styled_figure(width, total)
    inner = width - left - right
    axes = fig.add_axes((left / width, below / total, inner / width, height / total))
    clean_axes(axes)
    return fig, axes, inner


def styled_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height), facecolor="white")


def clean_axes(axes: Axes) -> None:
    """Only the lines that carry meaning."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=MUTED, labelsize=8)
    axes.tick_params(axis="y", labelcolor=INK)


def add_heading(fig: Figure, title: str, subtitle: str = "") -> None:
    """Title and what it is about, at the upper left."""
    high = fig.get_figheight()
    fig.text(0.013, 1 - 0.14 / high, title, fontsize=12, fontweight="bold", color=INK, va="top")
    fig.text(0.013, 1 - 0.40 / high, subtitle, fontsize=8.5, color=MUTED, va="top")


def inline_svg(fig: Figure, title: str) -> str:
    """The figure as an SVG element for a page: no background, ink in the page's own text colour."""
    out = io.StringIO()
    with writing_style():
        fig.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in ((INK, "var(--ink)"), (MUTED, "var(--muted)"), (GRID, "var(--line)")):
        text = text.replace(colour, variable)
    head, rest = text.split(">", 1)
    return f'{head} role="img" aria-label="{escape(title)}">{rest}'
