"""What the two studies of Ravi 2012 share: figures as tables and bars, claims with their verdict, a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.errors import InputError
from dovetail.report import tables
from dovetail.report.figures import (
    GRID,
    INK,
    MUTED,
    clean,
    heading,
    inline_svg,
    save_figure,
    styled,
    styled_figure,
)
from dovetail.report.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Claim", "Panel", "Study", "shown", "write"]

COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0", "#a463f2", "#9c6b4e", "#9498a0")


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of the paper: ``values[row][column]`` with its unit, and what the reference found."""

    name: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[Interval | None, ...], ...]
    reference: tuple[tuple[float | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper, what an independent reference found, what we find, and the verdict."""

    text: str
    paper: str
    reference: str
    ours: str
    holds: bool | None  # None: the paper does not say


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that one of the two commands shows; ``numbers`` are the figures behind the claims."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...]
    numbers: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def shown(found: Interval | None) -> str:
    """A mean with half the width of its interval, to three digits or so."""
    if found is None:
        return "-"
    digits = 0 if abs(found.mean) >= 100 else 1 if abs(found.mean) >= 10 else 2
    half = "" if found.half_width is None else f" ± {found.half_width:,.{digits}f}"
    return f"{found.mean:,.{digits}f}{half}"


def show(study: Study, console: Console | None = None) -> None:
    """Figures and claims as tables on standard output."""
    out = console or tables.console()
    out.print(Text(study.title, style="bold"))
    out.print(Text(study.about + "\n", style="dim"))
    for panel in study.panels:
        out.print(_panel_table(panel))
    plain: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "title_justify": "left"}
    claims = Table(title="What the paper says", **plain)
    for name in ("claim", "paper", "reference", "ours", "reproduced"):
        claims.add_column(name, overflow="fold")
    for claim in study.claims:
        style = {True: "green", False: "red", None: ""}[claim.holds]
        claims.add_row(claim.text, claim.paper, claim.reference, claim.ours, Text(_verdict(claim), style))
    out.print(claims)


def _verdict(claim: Claim) -> str:
    return {True: "yes", False: "no", None: "-"}[claim.holds]


def _panel_table(panel: Panel) -> Table:
    plain: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "title_justify": "left"}
    table = Table(title=f"{panel.name} ({panel.unit})", **plain)
    table.add_column("policy", no_wrap=True)
    for column in panel.columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row, values in zip(panel.rows, panel.values, strict=True):
        table.add_row(row, *(shown(value) for value in values))
    return table


def write(study: Study, name: str, out: Path) -> None:
    """``NAME.json``, ``NAME.html`` and one SVG for each figure. Raises `InputError` if that fails."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(study.as_dict(), indent=1) + "\n"
        (out / f"{name}.json").write_text(text, encoding="utf-8")
        (out / f"{name}.html").write_text(_page(study), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from error
    for panel in study.panels:
        save_figure(bars(panel), out / f"{name}-{_slug(panel.name)}.svg")


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.split(":")[0].lower()).strip("-")


@styled
def bars(panel: Panel) -> Figure:
    """Groups of bars, one for each column, a bar for each policy, with 95 % intervals."""
    wide, high, above, below = 11.0, 2.6, 0.85, 0.55
    fig = styled_figure(wide, above + high + below)
    heading(fig, panel.name, f"{panel.unit}; bars show means, lines 95 % confidence intervals")
    share = wide / len(panel.columns)
    for c, column in enumerate(panel.columns):
        left, total = (c * share + 0.55) / wide, above + high + below
        axes = fig.add_axes((left, below / total, (share - 0.75) / wide, high / total))
        clean(axes)
        for r, row in enumerate(panel.rows):
            value = panel.values[r][c]
            if value is None:
                continue
            axes.bar(r, value.mean, 0.8, color=COLOURS[r % len(COLOURS)], label=row, linewidth=0)
            if value.half_width is not None:
                axes.errorbar(r, value.mean, yerr=value.half_width, color=INK, linewidth=1, capsize=2.5)
        axes.set_title(column, loc="left", fontsize=9.5, fontweight="bold", color=INK)
        axes.set_xticks(range(len(panel.rows)), panel.rows, rotation=30, ha="right", fontsize=7.5)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelcolor=MUTED)
    return fig


def _page(study: Study) -> str:
    """One self-contained page."""
    parts = [f"<h1>{escape(study.title)}</h1><p>{escape(study.about)}</p>"]
    for panel in study.panels:
        parts.append(f"<h2>{escape(panel.name)}</h2>{inline_svg(bars(panel), panel.name)}")
        parts.append(
            _html_table(
                ("policy", *panel.columns),
                [
                    (row, *(shown(value) for value in values))
                    for row, values in zip(panel.rows, panel.values, strict=True)
                ],
            )
        )
    rows = [(c.text, c.paper, c.reference, c.ours, _verdict(c)) for c in study.claims]
    parts.append("<h2>What the paper says</h2>")
    parts.append(_html_table(("claim", "paper", "reference", "ours", "reproduced"), rows))
    style = (
        ":root{color-scheme:light dark;--ink:#1b1b1f;--muted:#6b6e76;--line:#d9dbe0;--page:#fff}"
        "@media(prefers-color-scheme:dark){:root{--ink:#e8e8ea;--muted:#a0a3ab;--line:#3a3c42;--page:#16171a}}"
        "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;"
        "color:var(--ink);background:var(--page)}svg{max-width:100%;height:auto}"
        "table{border-collapse:collapse;margin:1rem 0}td,th{text-align:left;padding:.25rem .8rem;"
        "border-bottom:1px solid var(--line)}"
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(study.title)}</title>'
        f"<style>{style}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
