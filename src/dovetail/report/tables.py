"""Tables: what they hold, and how they look as text. Pages show the same (`dovetail.report.html`).

A table that is wider than the terminal never loses a digit. Its names are cut first; then the columns that
matter least go, or, where all of them matter, the table goes on in a second block below the first.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Literal, TextIO, TypeAlias

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from dovetail.files.sentences import make_printable
from dovetail.records import dataclass

Style: TypeAlias = Literal["", "best", "good", "bad", "warn", "info", "dim"]

STYLES: dict[Style, str] = {
    "": "",
    "best": "bold green",
    "good": "green",
    "bad": "red",
    "warn": "yellow",
    "info": "cyan",
    "dim": "dim",
}
GAP = 2
"""Blanks between two columns."""
SHORTEST, LONGEST = 12, 34
"""Columns of text to which a long name is cut where the table would not fit, and in any case."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell; ``value`` is what it stands for: it sorts the rows of a page, JSON has it.

    ``title`` is a longer text for where there is room: under the pointer on a page. ``link`` is the
    path of a file to which it leads there.
    """

    text: str
    value: float | None = None
    style: Style = ""
    title: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Cells:
    """A column: header, a cell for each row; ``rank`` 0 always stays, higher ones go first.

    ``right`` marks figures, which are never cut. Of names, ``keep_end`` keeps the end too: there jobs
    of one app differ. A column with ``page`` is for pages alone. ``about`` explains the header there.
    """

    header: str
    cells: Sequence[Cell | str]
    right: bool = True
    rank: int = 0
    keep_end: bool = False
    page: bool = False
    about: str = ""

    def __iter__(self) -> Iterator[Cell]:
        """The cells, texts as such."""
        return (cell if isinstance(cell, Cell) else Cell(cell) for cell in self.cells)

    @property
    def width(self) -> int:
        """Width of its widest line."""
        texts = [*self.header.split("\n"), *(make_printable(cell.text) for cell in self)]
        return max((cell_len(text) for text in texts), default=0)

    @property
    def empty(self) -> bool:
        """Whether all cells are empty."""
        return all(cell.text in ("-", "") for cell in self)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of equal length, the first of which names the rows.

    ``fold``: all columns matter, and go on below where they do not fit. ``tall`` is scrolled on pages.
    """

    columns: Sequence[Cells]
    title: str = ""
    caption: str = ""
    fold: bool = False
    tall: bool = False
    notes: Sequence[str] = field(default=())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0].cells) if self.columns else 0

    def text(self, width: int = 80) -> RenderableType:
        """What the terminal shows, at most ``width`` wide unless a single figure is wider than that."""
        # A column of nothing but dashes goes, unless it is one that every table of its kind has.
        shown = [c for c in self.columns if not c.page and (c.rank == 0 or not c.empty)]
        widths = _fit_widths(shown, width, self.fold)
        if not self.fold:
            # The least important column goes first, and of equal ones the last, until the rest fits.
            while _total_width(shown, widths) > width and any(c.rank for c in shown):
                worst = max(c.rank for c in shown)
                shown.pop(max(i for i, c in enumerate(shown) if c.rank == worst))
                widths = _fit_widths(shown, width, self.fold)
        parts: list[RenderableType] = [Text(make_printable(self.title), style="bold")] if self.title else []
        for i, block in enumerate(_column_blocks(shown, widths, width)):
            parts += [*([Text()] * bool(i)), _rich_table([(c, widths[id(c)]) for c in block])]
        lines = [line for line in (self.caption, *self.notes) if line]
        return Group(*parts, *(Text(make_printable(line), style="dim") for line in lines))


def name_cells(header: str, cells: Iterable[object], rank: int = 0) -> Cells:
    """A column of names, or of other words: cut where there is no room.

    What terminals must not see of them is made visible when the table is printed.
    """
    return Cells(header, [str(cell) for cell in cells], right=False, rank=rank)


def print_table(*columns: Cells) -> None:
    """Print a table of these columns, as wide as the terminal."""
    out = make_console()
    out.print(Table(columns).text(out.width))


def _total_width(columns: Sequence[Cells], widths: dict[int, int]) -> int:
    return sum(widths[id(c)] + GAP for c in columns) - GAP


def _fit_widths(columns: Sequence[Cells], width: int, fold: bool) -> dict[int, int]:
    """The width of each column, by identity: figures as wide as they are, names cut as far as is needed.

    Where the table may ``fold``, that is until there is room for one figure beside them.
    """
    widths = {id(c): c.width if c.right else min(c.width, max(LONGEST, _header_width(c))) for c in columns}
    names = [c for c in columns if not c.right]
    over = _total_width(columns, widths) - width
    # Figures are never cut: a number without its last digits would be another number.
    if fold and names:
        widest = max((widths[id(c)] + GAP for c in columns if c.right), default=0)
        over = _total_width(names, widths) + widest - width
    while over > 0 and names:
        # The longest name gives way first, down to the next longest, so that all stay about equal.
        longest = max(names, key=lambda c: widths[id(c)])
        least = max(SHORTEST, _header_width(longest))
        if widths[id(longest)] <= least:
            names.remove(longest)
            continue
        others = max((widths[id(c)] for c in names if c is not longest), default=least)
        step = min(over, max(1, widths[id(longest)] - max(least, others)))
        widths[id(longest)] -= step
        over -= step
    return widths


def _header_width(column: Cells) -> int:
    return max(map(cell_len, column.header.split("\n")))


def _column_blocks(columns: Sequence[Cells], widths: dict[int, int], width: int) -> Iterator[list[Cells]]:
    """The columns in blocks that fit, each led by the column that names the rows."""
    if not columns:
        return
    first, rest = columns[0], list(columns[1:])
    block = [first]
    for column in rest:
        if len(block) > 1 and _total_width([*block, column], widths) > width:
            yield block
            block = [first]
        block.append(column)
    yield block


def _rich_table(columns: Sequence[tuple[Cells, int]]) -> RichTable:
    made = RichTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="bold"
    )
    for column, width in columns:
        made.add_column(
            Text(column.header),
            justify="right" if column.right else "left",
            no_wrap=True,
            min_width=width,
            vertical="bottom",
        )
    for row in zip(*(column for column, _ in columns), strict=True):
        made.add_row(
            *(
                Text(clip_text(cell.text, width, keep_end=column.keep_end), style=STYLES[cell.style])
                for cell, (column, width) in zip(row, columns, strict=True)
            )
        )
    return made


def clip_text(text: str, width: int, *, keep_end: bool = False) -> str:
    """A name on one line, cut to so many columns of text; ``keep_end`` cuts out of its middle.

    >>> clip_text("python:train.py-12", 12), clip_text("python:train.py-12", 12, keep_end=True)
    ('python:trai…', 'pytho….py-12')
    """
    text = make_printable(text)
    if cell_len(text) <= width:
        return text
    end = width // 2 if keep_end else 0
    head = set_cell_size(text, width - end - 1).rstrip()
    tail = text
    while cell_len(tail) > end:
        tail = tail[1:]
    return f"{head}…{tail}"


def make_console(file: TextIO | None = None, *, width: int | None = None) -> Console:
    """A console that is plain when it is no terminal, heeds NO_COLOR, and is never narrower than 40.

    Away from a terminal the width is COLUMNS, or 80. What is printed is text: brackets in it mean nothing.
    """
    out = file or sys.stdout
    if width is None and not out.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() else 80
    found = Console(file=out, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if found.width < 40:
        found.width = 40
    return found


def render_plain(*parts: RenderableType | Table, width: int = 80) -> str:
    """Plain text without colours, no blanks at the ends of lines."""
    out = io.StringIO()
    plain = Console(
        file=out,
        width=width,
        color_system=None,
        force_terminal=False,
        highlight=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        plain.print(part.text(width) if isinstance(part, Table) else part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"
