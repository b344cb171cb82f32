"""What the commands that talk to a service have in common."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import typer

from dovetail.files.sentences import printable
from dovetail.files.streams import note
from dovetail.service.client import Connection, connection

__all__ = ["At", "Jobs", "Parsable", "clock", "joined", "opened", "print_json", "show_rows", "span"]

At: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="URL|FOLDER",
        help="Another service than this account's own. Default: $DOVETAIL_SERVICE.",
    ),
]
Jobs: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="JOBS…", help="Numbers, 3-7, 3,5, 12_0-4, a name, 'last' or 'all'.")
]
Parsable: TypeAlias = Annotated[
    bool, typer.Option("--parsable", help="Fields separated by '|', no header, no alignment.")
]
"""For scripts."""


def opened(at: str | None, *, start: bool = False) -> Connection:
    """The service; ``start`` one where none runs."""
    return connection(at, start=note if start else None)


def joined(jobs: Sequence[str]) -> str:
    """Selectors that were given as several words."""
    return ",".join(jobs)


def print_json(found: Any) -> None:
    """JSON alone on standard output."""
    print(json.dumps(found, indent=2))


def clock(when: float | None, now: float) -> str:
    """A moment as people write it: the time today, the date on other days."""
    if when is None:
        return ""
    at, today = time.localtime(when), time.localtime(now)
    same = at[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", at)


def span(seconds: float | None) -> str:
    """A length of time: 4.2 s, 3:07, 2:15:00, 3 d 04:00."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, parsable: bool = False) -> None:
    """A table; with ``parsable`` one line a row."""
    if parsable:
        for row in rows:
            print("|".join(printable(row[name]).replace("|", "\\|") for name in columns))
        return
    _print(columns, rows)


def _print(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    from rich.table import Table as Rich
    from rich.text import Text

    from dovetail.report import tables

    table = Rich(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.upper().replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(row[name])) for name in columns))
    tables.console().print(table)
