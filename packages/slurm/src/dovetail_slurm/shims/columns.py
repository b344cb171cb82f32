"""Lines of columns: Slurm's two ways to write a format, and how a value is fitted to its column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail_slurm.shims.options import Wrong, write_complaint

_MARK = re.compile(r"%+(\.?)(\d*)([^\d.%])", re.ASCII)
_LONG = re.compile(r"([A-Za-z_/-]+)(?::(\.?)(\d*)(.*))?", re.ASCII | re.DOTALL)


class Field(NamedTuple):
    """One column: its letter (empty: none), its long name, its header, and its value of a row."""

    letter: str
    name: str
    header: str
    value: Callable[[Any], str]


class Column(NamedTuple):
    """A column of a line: ``width`` 0 is as wide as its value; ``after`` is the text up to the next."""

    field: Field
    width: int
    right: bool
    after: str


class Layout(NamedTuple):
    """A line: what stands before its first column, and the columns."""

    before: str
    columns: Sequence[Column]

    def header_line(self) -> str:
        """The line of headers."""
        return self._format_line([one.field.header for one in self.columns])

    def item_line(self, item: Any) -> str:
        """The line of an item."""
        return self._format_line([one.field.value(item) for one in self.columns])

    def _format_line(self, values: Sequence[str]) -> str:
        fitted = [
            fit_text(text, one.width, right=one.right) + one.after
            for text, one in zip(values, self.columns, strict=True)
        ]
        return self.before + "".join(fitted)


def fit_text(text: str, width: int, *, right: bool) -> str:
    """The text cut or filled up to a width; 0: as it is."""
    text = text.replace("\n", "\\n")
    if not width:
        return text
    return text[:width].rjust(width) if right else text[:width].ljust(width)


def by_letters(text: str, fields: Sequence[Field], command: str) -> Layout:
    """A format such as ``%.18i %9P|%T``; what stands for no column is complained about, and printed."""
    known = {one.letter: one for one in fields if one.letter}
    before, at, columns = "", 0, list[Column]()

    def add_between(between: str) -> None:
        nonlocal before
        if columns:
            columns[-1] = columns[-1]._replace(after=columns[-1].after + between)
        else:
            before += between

    for match in _MARK.finditer(text):
        add_between(text[at : match.start()])
        at = match.end()
        field = known.get(match[3])
        if field is None:
            write_complaint(f"{command}: error: Invalid job format specification: {match[3]}")
            add_between(match[0])  # as Slurm does, which goes on
            continue
        columns.append(Column(field, int(match[2] or 0), bool(match[1]), ""))
    add_between(text[at:])
    return Layout(before, columns)


def by_names(text: str, fields: Sequence[Field], command: str) -> Layout:
    """A format such as ``JobID:10,Name:.20|``; 20 wide where no width is given. Raises `Wrong`."""
    known = {one.name.lower(): one for one in fields}
    columns = []
    for part in text.split(","):
        match = _LONG.fullmatch(part.strip())
        field = None if match is None else known.get(match[1].lower())
        if match is None or field is None:
            raise Wrong(f"{command}: error: Invalid job format specification: {part.strip()}")
        width = int(match[3]) if match[3] else 20
        columns.append(Column(field, width, bool(match[2]), match[4] or ""))
    return Layout("", columns)


def columns_named(fields: Mapping[str, Field], names: Sequence[str]) -> list[Field]:
    """Columns by their names."""
    return [fields[name] for name in names]
