"""What all figures share: size, type, colours, and how they are written to a file.

Figures are made without pyplot, so that drawing changes no global state and needs no display.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from dovetail.files.writing import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GRID",
    "INK",
    "MUTED",
    "clean",
    "figure",
    "heading",
    "inline_svg",
    "save_figure",
    "styled",
    "styled_figure",
]

P = ParamSpec("P")

INK = "#1b1b1f"
MUTED = "#6b6e76"
GRID = "#d9dbe0"

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "dovetail",
    "hatch.linewidth": 0.6,
}


def figure(
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
    clean(axes)
    return fig, axes, inner


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in our style: fonts, and names taken literally, ``$`` too."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


@contextmanager
def _writing() -> Iterator[None]:
    """Our style while writing; characters that the font lacks are boxes, and no warning."""
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def styled_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=(width, height), facecolor="white")


def clean(axes: Axes) -> None:
    """Only the lines that say something."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(colors=MUTED, labelsize=8)
    axes.tick_params(axis="y", labelcolor=INK)


def heading(fig: Figure, title: str, subtitle: str = "") -> None:
    """Title and what it is about, at the upper left."""
    high = fig.get_figheight()
    fig.text(0.013, 1 - 0.14 / high, title, fontsize=12, fontweight="bold", color=INK, va="top")
    fig.text(0.013, 1 - 0.40 / high, subtitle, fontsize=8.5, color=MUTED, va="top")


def save_figure(fig: Figure, path: str | Path) -> None:
    """Write to a file, whole or not at all; its ending says in which form.

    Raises `InputError` if it cannot be written. The same figure always gives the same bytes of SVG.
    """
    form = Path(path).suffix.lower().lstrip(".")
    about = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
    drawn = io.BytesIO()
    with _writing():
        fig.savefig(drawn, format=form, dpi=150, metadata=about)
    write_text(path, drawn.getvalue())


def inline_svg(fig: Figure, title: str) -> str:
    """The figure as an SVG element for a page: no background, ink in the page's own text colour."""
    out = io.StringIO()
    with _writing():
        fig.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in ((INK, "var(--ink)"), (MUTED, "var(--muted)"), (GRID, "var(--line)")):
        text = text.replace(colour, variable)
    head, rest = text.split(">", 1)
    return f'{head} role="img" aria-label="{escape(title)}">{rest}'
