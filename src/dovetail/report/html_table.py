"""Tables (`dovetail.report.tables`) on pages: sorted by a press on a heading, explained when pointed at."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from dovetail.files.sentences import printable
from dovetail.report.tables import Cell, Cells, Table


def table_html(table: Table, *, sortable: bool = True) -> str:
    """The table as an element that scrolls within the page; every name is whole."""
    lines = [line for line in (table.caption, *table.notes) if line]
    about = "".join(f"<p class='note'>{escape(line)}</p>" for line in lines)
    if not table.columns:
        return about
    columns = [column for column in table.columns if column.rank == 0 or not column.empty]
    heads = "".join(_head(column, sortable) for column in columns)
    rows = zip(*columns, strict=True)
    body = "\n".join(
        f"<tr>{''.join(_cell(cell, column.right) for cell, column in zip(row, columns, strict=True))}</tr>"
        for row in rows
    )
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    scroll = "scroll tall" if table.tall else "scroll"
    return (
        f'{title}<div class="{scroll}" tabindex="0" role="region" aria-label="table"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>{about}"
    )


def _head(column: Cells, sortable: bool) -> str:
    name = escape(" ".join(column.header.split()))
    inner = f'<button type="button">{name}</button>' if sortable else name
    return f'<th scope="col"{_class("number" if column.right else "")}{_title(column.about)}>{inner}</th>'


def _cell(cell: Cell, right: bool) -> str:
    text = escape(printable(cell.text.rstrip(" *") if cell.style == "best" else cell.text.rstrip()))
    if cell.link:
        text = f'<a href="file://{quote(cell.link)}">{text}</a>'
    sort = f' data-v="{"" if cell.value is None else repr(float(cell.value))}"' if right else ""
    names = " ".join(name for name in ("number" if right else "", cell.style) if name)
    return f"<td{_class(names)}{sort}{_title(cell.title)}>{text}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _title(text: str) -> str:
    return f' title="{escape(printable(text))}"' if text else ""
