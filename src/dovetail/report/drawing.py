"""Charts as a few kinds of shapes: written as SVG here; as PNG and PDF by matplotlib.

Lengths are points (1/72 inch) from the upper left corner.
"""

from __future__ import annotations

import functools
import io
import struct
import warnings
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from dovetail.extras import needing_extra
from dovetail.files.sentences import make_printable
from dovetail.files.writing import write_text
from dovetail.records import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1b1f"
MUTED = "#6b6e76"
GRID = "#d9dbe0"
GROUND = "#fefefe"
"""What lies beneath a chart: about a line that crosses a bar, so that it is seen there in each mode."""

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.parse_math": False,
    "svg.fonttype": "none",
    # matplotlib makes ids from this salt instead of random numbers: the same figure has the same bytes.
    "svg.hashsalt": "dovetail",
    "hatch.linewidth": 0.6,
}

P = ParamSpec("P")
Point: TypeAlias = tuple[float, float]
Floats = npt.NDArray[np.float64]
Anchor = Literal["start", "middle", "end"]

FONT = "'DejaVu Sans', sans-serif"
PAGE_SCALE = 1.9
"""Pixels of a page for a point of a chart, at most: the widest chart then fills the page."""
LETTER = 0.6
"""The width of a letter, as a share of its size."""
HATCH = (
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<path d="M-1 1L1 -1M0 5L5 0M4 6L6 4" stroke="#b3001b" stroke-width="0.8"/></pattern>'
)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A filled box; ``edge`` is the colour of its outline, ``about`` its text under the pointer."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    opacity: float = 1.0
    edge: str = ""
    line: float = 0.0
    hatched: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, or the area within (``filled``); ``dots`` is the radius of a dot at each."""

    points: Sequence[Point]
    colour: str
    width: float = 1.0
    filled: bool = False
    opacity: float = 1.0
    dots: float = 0.0


@dataclass(frozen=True, slots=True)
class Label:
    """Text on one line; ``y`` is the line on which its letters stand."""

    x: float
    y: float
    text: str
    size: float = 8.0
    colour: str = INK
    anchor: Anchor = "start"
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Shading:
    """Boxes of one colour, each as opaque as its ``share`` (rows, columns), from 0 to 1."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    share: Floats

    def render_pixels(self) -> npt.NDArray[np.uint8]:
        """Red, green, blue and opacity of each box, shape (rows, columns, 4)."""
        colour = [int(self.colour[i : i + 2], 16) for i in (1, 3, 5)]
        found = np.empty((*self.share.shape, 4), np.uint8)
        found[..., :3] = colour
        # Never quite clear: an interval with little use must differ from the background.
        found[..., 3] = np.rint(255 * (0.05 + 0.95 * self.share))
        return found


Shape: TypeAlias = Rectangle | Line | Label | Shading


@dataclass
class Drawing:
    """Shapes on a sheet of so many points, the later ones above the earlier ones."""

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw more."""
        self.shapes += shapes

    def add_heading(self, title: str, subtitle: str) -> None:
        """Title and what it is about, at the upper left."""
        self.add(Label(10, 20, title, 12, bold=True), Label(10, 36, subtitle, 8.5, MUTED))

    def render_svg(self, title: str = "", *, page: bool = False) -> str:
        """As SVG; on a ``page`` without background, its ink in the page's own text colour."""
        hatched = any(isinstance(shape, Rectangle) and shape.hatched for shape in self.shapes)
        ground = "" if page else f'<rect width="{self.width:g}" height="{self.height:g}" fill="white"/>\n'
        body = "\n".join(map(_shape_svg, self.shapes))
        if page:
            # On a page the theme's own colours, so that dark mode works without another file.
            names = {INK: "ink", MUTED: "muted", GRID: "line", GROUND: "card"}
            for colour, variable in names.items():
                body = body.replace(colour, f"var(--{variable})")
        about = f' role="img" aria-label="{escape(title)}"' if title else ""
        # A narrow chart is not blown up to the width of the page, where its letters would be headlines.
        about += f' style="max-width: {PAGE_SCALE * self.width:g}px"' if page else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}pt" height="{self.height:g}pt" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" font-family="{FONT}"{about}>\n'
            f"{f'<defs>{HATCH}</defs>' if hatched else ''}{ground}{body}\n</svg>\n"
        )


def save_drawing(drawing: Drawing, path: str | Path) -> None:
    """Write to a file, whole or not at all; its ending decides the form.

    Raises `InputError` if it cannot be written, or where matplotlib is missing for another form than SVG.
    The same drawing always gives the same bytes of SVG.
    """
    if Path(path).suffix.lower() == ".svg":
        write_text(path, '<?xml version="1.0" encoding="utf-8"?>\n' + drawing.render_svg())
    else:
        save_figure(_paint_figure(drawing), path)


def text_width(text: str, size: float) -> float:
    """About how wide a text is, in points."""
    return cell_len(text) * size * LETTER


def _format_number(value: float) -> str:
    # Two decimals are below what a screen shows, and the same on every machine.
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _shape_svg(shape: Shape) -> str:
    if isinstance(shape, Rectangle):
        return _rectangle_svg(shape)
    if isinstance(shape, Label):
        weight = ' font-weight="bold"' if shape.bold else ""
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        place = (
            f'x="{_format_number(shape.x)}" y="{_format_number(shape.y)}" '
            f'font-size="{_format_number(shape.size)}"'
        )
        text = escape(make_printable(shape.text), quote=False)
        return f'<text {place} fill="{shape.colour}"{anchor}{weight}>{text}</text>'
    if isinstance(shape, Line):
        return _line_svg(shape)
    # As one small picture: a box for each of a million cells would make megabytes of SVG.
    place = " ".join(
        f'{name}="{_format_number(getattr(shape, name))}"' for name in ("x", "y", "width", "height")
    )
    data = b64encode(_encode_png(shape.render_pixels())).decode()
    how = 'preserveAspectRatio="none" style="image-rendering: pixelated"'
    return f'<image {place} {how} href="data:image/png;base64,{data}"/>'


def _rectangle_svg(shape: Rectangle) -> str:
    place = " ".join(
        f'{name}="{_format_number(getattr(shape, name))}"' for name in ("x", "y", "width", "height")
    )
    how = f'fill="{shape.fill}"' + (f' fill-opacity="{shape.opacity:g}"' if shape.opacity < 1 else "")
    if shape.edge:
        how += f' stroke="{shape.edge}" stroke-width="{_format_number(shape.line)}"'
    if not shape.about:
        text = f"<rect {place} {how}/>"
    else:
        about = escape(make_printable(shape.about), quote=False)
        text = f"<rect {place} {how}><title>{about}</title></rect>"
    # The hatching lies above the bar and must not take the pointer from it, or the title would not appear.
    return text + (f'<rect {place} fill="url(#hatch)" pointer-events="none"/>' if shape.hatched else "")


def _line_svg(shape: Line) -> str:
    opacity = f' opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
    points = [f"{_format_number(x)} {_format_number(y)}" for x, y in shape.points]
    text = ""
    if shape.filled:
        text = f'<path d="M{"L".join(points)}Z" fill="{shape.colour}"{opacity}/>'
    elif shape.width and len(points) > 1:
        how = f'fill="none" stroke="{shape.colour}" stroke-width="{_format_number(shape.width)}"{opacity}'
        text = f'<path d="M{"L".join(points)}" {how}/>'
    if shape.dots:
        how = f'r="{_format_number(shape.dots)}" fill="{shape.colour}"{opacity}'
        text += "".join(
            f'<circle cx="{_format_number(x)}" cy="{_format_number(y)}" {how}/>' for x, y in shape.points
        )
    return text


def _encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """The picture as PNG (ISO/IEC 15948): a header, the rows without filters, an end."""

    def encode_chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows, columns, _ = pixels.shape
    # Each row of a PNG begins with the number of its filter, 0 for none.
    lines = np.zeros((rows, 1 + 4 * columns), np.uint8)
    lines[:, 1:] = pixels.reshape(rows, -1)
    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 6)
    return (
        b"\x89PNG\r\n\x1a\n"
        + encode_chunk(b"IHDR", head)
        + encode_chunk(b"IDAT", body)
        + encode_chunk(b"IEND", b"")
    )


# ------------------------------------------------------------------------------------------- other forms


def with_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in our style: fonts, and names taken literally, ``$`` too."""

    @functools.wraps(draw)
    def draw_styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return draw_styled


@contextmanager
def writing_style() -> Iterator[None]:
    """Our style while writing; characters that the font lacks are boxes, and no warning."""
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def save_figure(fig: Figure, path: str | Path) -> None:
    """Write to a file, whole or not at all; its ending decides the form.

    Raises `InputError` if it cannot be written. The same figure always gives the same bytes of SVG.
    """
    form = Path(path).suffix.lower().lstrip(".")
    about = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
    drawn = io.BytesIO()
    with writing_style():
        fig.savefig(drawn, format=form, dpi=150, metadata=about)
    write_text(path, drawn.getvalue())


@with_style
def _paint_figure(drawing: Drawing) -> Figure:
    """The shapes on one axes that fills the figure, whose units are points."""
    with needing_extra("a chart as PNG or PDF"):
        from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(drawing.width / 72, drawing.height / 72), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        for shape in drawing.shapes:
            _paint_shape(axes, shape)
    axes.set_xlim(0, drawing.width)
    # matplotlib counts upwards, drawings count downwards from the upper edge.
    axes.set_ylim(drawing.height, 0)
    axes.set_aspect("auto")
    return figure


def _paint_shape(axes: Axes, shape: Shape) -> None:
    from matplotlib.patches import Rectangle as Patch

    look: dict[str, Any]
    if isinstance(shape, Rectangle):
        look = {"facecolor": shape.fill, "edgecolor": shape.edge or "none", "linewidth": shape.line}
        look |= {"hatch": "////" if shape.hatched else None}
        opacity = shape.opacity if shape.opacity < 1 else None
        axes.add_patch(Patch((shape.x, shape.y), shape.width, shape.height, alpha=opacity, **look))
    elif isinstance(shape, Label):
        look = {"fontsize": shape.size, "color": shape.colour, "weight": "bold" if shape.bold else "normal"}
        look |= {"ha": {"start": "left", "middle": "center", "end": "right"}[shape.anchor], "va": "baseline"}
        axes.text(shape.x, shape.y, make_printable(shape.text), **look)
    elif isinstance(shape, Line):
        across, down = zip(*shape.points, strict=True)
        look = {"color": shape.colour, "alpha": shape.opacity}
        if shape.filled:
            axes.fill(across, down, linewidth=0, **look)
        else:
            look |= {"linewidth": shape.width, "marker": "o" if shape.dots else ""}
            axes.plot(across, down, markersize=2 * shape.dots, markeredgewidth=0, **look)
    else:
        extent = (shape.x, shape.x + shape.width, shape.y + shape.height, shape.y)
        axes.imshow(shape.render_pixels(), interpolation="nearest", extent=extent)
