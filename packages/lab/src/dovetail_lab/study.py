"""What a study found, and its three forms: text for the terminal, one page (HTML), JSON; charts as SVG.

A study fills a `Study` with tables, charts and claims and hands it to `publish_study`. No table ever loses a
digit or a column: one that is wider than the terminal goes on below, its rows named again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dovetail import __version__
from dovetail.files.writing import make_folder, write_text
from dovetail.report import tables
from dovetail.report.drawing import save_figure
from dovetail.report.intervals import Interval
from dovetail_lab.claims import Chosen, Claim, Verdict
from dovetail_lab.figures import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="Write a page (HTML), charts (SVG) and JSON there."),
]
"""The option of every study that names its folder."""
Set: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="CONSTANT=VALUE", help="Change what verdicts rest on; several times."),
]
"""The option of every study with claims that changes a constant."""
FirstSeed: TypeAlias = Annotated[
    int, typer.Option(min=0, metavar="N", help="First seed of the draws, to draw afresh.")
]
Workers: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each CPU.")]
"""The option for how many processes share the work."""

GAP = 2
"""Blanks between two columns."""
MOST_LABEL = 34
"""Columns of text that a row's name may take before it goes on in the next line."""

STYLES = {Verdict.YES: "green", Verdict.DIRECTION: "yellow", Verdict.OPEN: "yellow", Verdict.NO: "red"}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under ``columns``; the first ``names`` columns name a row, the others are figures.

    ``faint`` are the places of rows that only accompany others (a paper's, a reference's).
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    faint: frozenset[int] = frozenset()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: ``draw`` makes it; ``text`` is what the terminal shows for it, if anything, by its width.

    ``note`` is shown with it everywhere.
    """

    name: str
    title: str
    draw: Callable[[], Figure]
    text: Callable[[int], str] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """A few sentences, one a line, under a title."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that a study shows; ``numbers`` are its figures, the fields of its JSON."""

    name: str
    title: str
    about: str
    parts: tuple[Table | Chart | Prose, ...]
    claims: tuple[Claim, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    chosen: Chosen = field(default_factory=lambda: Chosen(()))

    def __post_init__(self) -> None:
        # Checked when it is made: a claim must not rest on what --set cannot change.
        known = {constant.name for constant in self.chosen.known}
        for claim in self.claims:
            if not known.issuperset(claim.rests_on):
                raise ValueError(f"{claim.text}: rests on {claim.rests_on}, which {self.name} does not have")

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: what was studied, the numbers, the claims, the constants that they rest on."""
        about = {"study": self.name, "title": self.title, "about": self.about}
        claims = [asdict(claim) | {"over": claim.readings_text} for claim in self.claims]
        return about | dict(self.numbers) | {"claims": claims, "constants": self.chosen.as_dict()}

    def json_text(self) -> str:
        """The JSON form as text."""
        return json.dumps(self.as_dict(), indent=1, default=_plain_value) + "\n"


def _plain_value(value: Any) -> Any:
    """Values that are made of fields, for JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def format_interval(found: Interval | None, digits: int | None = None, least: float = -math.inf) -> str:
    """A mean with half the width of its interval, to three digits or so.

    Where that would reach below ``least``, the least value that there can be, both ends stand instead.

    >>> format_interval(Interval(1.2345, 0.0512, 30)), format_interval(Interval(1.25, 1.5, 2), least=1.0)
    ('1.23 ± 0.05', '1.25 (1.00 to 2.75)')
    """
    if found is None:
        return "-"
    if digits is None:
        # As many digits as the number carries: three or so.
        digits = 0 if abs(found.mean) >= 100 else 1 if abs(found.mean) >= 10 else 2
    half = "" if found.half_width is None else f" ± {found.half_width:,.{digits}f}"
    # A ratio cannot be below its least value, so the symmetric form would mislead.
    if round(found.lower_end, digits) < least <= found.mean:
        half = f" ({least:,.{digits}f} to {found.upper_end:,.{digits}f})"
    return f"{round(found.mean, digits) + 0.0:,.{digits}f}{half}"  # + 0.0: a mean of -0.001 is 0.00


def few_draws_note(draws: int) -> str:
    """What to know where intervals rest on few draws.

    >>> few_draws_note(2), few_draws_note(30)
    (' Two draws are few: an interval rests on a single difference. Take five or more.', '')
    """
    return (
        " Two draws are few: an interval rests on a single difference. Take five or more."
        if draws == 2
        else ""
    )


def seeds_from(first: int, count: int) -> range:
    """The seeds of ``count`` draws.

    >>> list(seeds_from(1, 3)), list(seeds_from(1001, 2))
    ([1, 2, 3], [1001, 1002])
    """
    return range(first, first + count)


def named_seeds(first: int, count: int) -> str:
    """How a study names its draws: their number, and which they are where they are not the usual ones.

    >>> named_seeds(1, 30), named_seeds(1001, 30)
    ('30', '30 (seeds 1001 to 1030)')
    """
    return f"{count}" if first == 1 else f"{count} (seeds {first} to {first + count - 1})"


def process_count(workers: int | None) -> int:
    """How many processes to use: those of the option, else one for each CPU."""
    return workers or len(os.sched_getaffinity(0))


def prepare_folder(out: Path | None) -> Path | None:
    """Make the folder that a study will write to, before minutes of work; raises `InputError`."""
    return None if out is None else make_folder(out)


def publish_study(study: Study, *, as_json: bool, out: Path | None, console: Console | None = None) -> None:
    """Print the study, as JSON alone or as text, and write its folder if there is one."""
    if out is not None:
        write_study(study, out)
    if as_json:
        print(study.json_text(), end="")
    else:
        show_study(study, console)


# ------------------------------------------------------------------------------------------------- text


def show_study(study: Study, console: Console | None = None) -> None:
    """The study as text on standard output, as wide as the terminal (80 where there is none)."""
    out = console or tables.make_console()
    out.print(Text(study.title, style="bold"))
    out.print(Text(study.about, style="dim"))
    for part in study.parts:
        if isinstance(part, Table):
            out.print()
            out.print(Text(part.title, style="bold"))
            for block in _column_blocks(part, out.width):
                out.print(block)
            if part.note:
                out.print(Text(part.note, style="dim"))
        elif isinstance(part, Prose):
            out.print()
            out.print(Text(part.title, style="bold"))
            for line in part.lines:
                _print_indented(out, Text(line))
        elif part.text is not None:
            out.print()
            out.print(Text(part.title, style="bold"))
            out.print(Text(part.text(out.width).rstrip("\n")), no_wrap=True, overflow="ignore", crop=False)
            if part.note:
                out.print(Text(part.note, style="dim"))
    if study.claims:
        out.print()
        _show_claims(study.claims, out)


def _show_claims(claims: Sequence[Claim], out: Console) -> None:
    out.print(Text("Statements of the paper", style="bold"))
    for claim in claims:
        line = Text.assemble((f"{claim.verdict.value}: ", STYLES.get(claim.verdict, "")), claim.text)
        _print_indented(out, line)
        parts = (("paper", claim.paper), ("reference", claim.reference), ("ours", claim.ours))
        words = "; ".join(f"{name} {text}" for name, text in parts if text not in ("", "-"))
        _print_indented(out, Text(words, style="dim"), 6)
        for name, text in (("over", claim.readings_text), ("rests on", ", ".join(claim.rests_on))):
            if text:
                _print_indented(out, Text(f"{name}: {text}", style="dim"), 6)


def _print_indented(out: Console, line: Text, by: int = 2) -> None:
    """Print a line that goes on below its own beginning where it is too long."""
    for part in line.wrap(out, max(out.width - by, 20)):
        part.rstrip()
        out.print(Text(" " * by) + part)


def _column_blocks(table: Table, width: int) -> list[RichTable]:
    """The table in as many blocks as it needs to keep every column whole."""
    figures = [_widest_cell(table, c) for c in range(table.names, len(table.columns))]
    most = max(min(MOST_LABEL, (width - max(figures, default=0)) // table.names - GAP), 6)
    label = [min(_widest_cell(table, c), most) for c in range(table.names)]
    room = max(width - sum(wide + GAP for wide in label), 1)
    blocks: list[list[int]] = [[]]
    used = 0
    for c in range(table.names, len(table.columns)):
        wide = _widest_cell(table, c) + GAP
        if blocks[-1] and used + wide - GAP > room:
            blocks.append([])
            used = 0
        blocks[-1].append(c)
        used += wide
    return [_column_block(table, label, columns) for columns in blocks]


def _widest_cell(table: Table, column: int) -> int:
    texts = [table.columns[column], *(row[column] for row in table.rows)]
    return max(cell_len(text) for text in texts)


def _column_block(table: Table, label: Sequence[int], columns: Sequence[int]) -> RichTable:
    made = RichTable(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        show_edge=False,
        header_style="bold",
    )
    for c, wide in enumerate(label):
        made.add_column(table.columns[c], overflow="fold", min_width=wide, max_width=wide)
    for c in columns:
        made.add_column(table.columns[c], justify="right", no_wrap=True, min_width=_widest_cell(table, c))
    for i, row in enumerate(table.rows):
        cells = [Text(row[c]) for c in (*range(table.names), *columns)]
        made.add_row(*cells, style="dim" if i in table.faint else "")
    return made


# ------------------------------------------------------------------------------------------ page, folder


def write_study(study: Study, out: Path) -> None:
    """``NAME.json``, ``NAME.html`` and an SVG for each chart; raises `InputError` where that fails."""
    write_text(out / f"{study.name}.json", study.json_text())
    write_text(out / f"{study.name}.html", study_page(study))
    for part in study.parts:
        if isinstance(part, Chart):
            save_figure(part.draw(), out / f"{part.name}.svg")


STYLE = (
    ":root{color-scheme:light dark;--ink:#1b1b1f;--muted:#6b6e76;--line:#d9dbe0;--page:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--muted:#a0a3ab;--line:#3a3c42;--page:#16171a}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;"
    "color:var(--ink);background:var(--page)}svg{max-width:100%;height:auto}"
    "h2{font-size:1.1rem;margin-top:2rem}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;padding:.25rem .8rem;"
    "border-bottom:1px solid var(--line);white-space:nowrap}.figure{text-align:right;"
    "font-variant-numeric:tabular-nums}.faint td{color:var(--muted)}.claims td{white-space:normal;"
    "vertical-align:top}.note{color:var(--muted);max-width:60rem}"
    ".yes{color:#238636}.direction{color:#9a6700}.no{color:#cf222e}"
)


def study_page(study: Study) -> str:
    """One self-contained page."""
    body = [f"<h1>{escape(study.title)}</h1><p>{escape(study.about)}</p>"]
    for part in study.parts:
        if isinstance(part, Table):
            body.append(f"<h2>{escape(part.title)}</h2>{_html_table(part)}")
        elif isinstance(part, Prose):
            lines = "".join(f"<p>{escape(line)}</p>" for line in part.lines)
            body.append(f"<h2>{escape(part.title)}</h2>{lines}")
        else:
            note = f'<p class="note">{escape(part.note)}</p>' if part.note else ""
            body.append(f"<h2>{escape(part.title)}</h2>{inline_svg(part.draw(), part.title)}{note}")
    if study.claims:
        body.append(f"<h2>Statements of the paper</h2>{_html_claims(study.claims)}")
    body.append(f'<p class="note">dovetail {__version__}, reproduce {escape(study.name)}</p>')
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(study.title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _html_table(table: Table) -> str:
    def row_html(cells: Sequence[str], tag: str) -> str:
        kinds = ["" if c < table.names else ' class="figure"' for c in range(len(cells))]
        return "".join(
            f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )

    rows = "".join(
        f"<tr{' class=faint' if i in table.faint else ''}>{row_html(row, 'td')}</tr>"
        for i, row in enumerate(table.rows)
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    head = f"<thead><tr>{row_html(table.columns, 'th')}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>{note}'


def _html_claims(claims: Sequence[Claim]) -> str:
    head = "".join(
        f"<th>{cell}</th>"
        for cell in ("claim", "paper", "reference", "ours", "reproduced", "over", "rests on")
    )
    classes = {Verdict.YES: "yes", Verdict.DIRECTION: "direction", Verdict.NO: "no"}
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in (c.text, c.paper, c.reference, c.ours))
        + f'<td class="{classes.get(c.verdict, "")}">{escape(c.verdict.value)}</td>'
        + f"<td>{escape(c.readings_text)}</td><td>{escape(', '.join(c.rests_on))}</td></tr>"
        for c in claims
    )
    table = f'<table class="claims"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="wide">{table}</div>'
