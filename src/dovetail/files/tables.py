"""Traces in tables with a header line, and the checks of their cells."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from dovetail.errors import InputError
from dovetail.files.reading import read_lines
from dovetail.files.sentences import file_name, show_value

T = TypeVar("T")

EMPTY_TABLE = "the file is empty; expected a header line"
CELL = 40
"""Characters of a cell that a message shows."""
LARGEST = 2.0**53
"""Numbers from here on are not exact as floats; no trace means them."""
_SECONDS = re.compile(r"\d{1,12}", re.ASCII)
_NO_UTF8 = re.compile("[\udc80-\udcff]")


class Malformed(ValueError):  # noqa: N818 - reads as what it is
    """One line cannot be read; the message names the field, what was found and what was expected."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {show_value(found, limit=CELL, spell=ascii)}, expected {expected}")


class WrongCount(Malformed):
    """A line has too many or too few fields."""

    def __init__(self, count: int, line: str, expected: str) -> None:
        ValueError.__init__(
            self, f"found {count} fields ({show_value(line, limit=CELL, spell=ascii)}), expected {expected}"
        )


def parse_table(
    path: str | Path,
    required: Sequence[str],
    parse: Callable[[Mapping[str, str]], T],
    *,
    delimiter: str = ",",
    lenient: bool = False,
    quoted: bool = True,
) -> tuple[list[T], int]:
    """Every line of a table with a header, through ``parse``; and how many malformed lines were skipped.

    ``parse`` gets a mapping from column name to text (blanks stripped) and raises `Malformed`. Raises
    `InputError` for a table without the ``required`` columns, without a line, and, unless ``lenient``,
    at the first malformed line.
    """
    where = file_name(path)
    # Commas within quotes are data; sacct's output knows no quotes at all. A quote that stays open ends
    # with its line: it must not swallow the lines that follow.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    header: list[str] | None = None
    found: list[T] = []
    skipped = 0
    for place, line in enumerate(read_lines(path, "a table"), start=1):
        try:
            if not line.isascii() and _NO_UTF8.search(line):
                # ASCII first: the test of most lines costs nothing then.
                raise Malformed("line", line, "UTF-8 text")
            reader = csv.reader((line,), delimiter=delimiter, skipinitialspace=True, quoting=quoting)
            cells = [cell.strip() for cell in next(reader, [])]
            if not any(cells):
                continue
            if header is None:
                header = cells
                _check_header(where, header, required)
                continue
            if len(cells) != len(header):
                raise WrongCount(len(cells), line, str(len(header)))
            found.append(parse(dict(zip(header, cells, strict=True))))
        except (Malformed, csv.Error) as error:
            if not lenient or header is None:
                raise InputError(str(error), where=f"{where}: line {place}") from None
            skipped += 1
    if header is None:
        raise InputError(EMPTY_TABLE, where=where)
    if not found and not skipped:
        raise InputError("holds a header and no line; expected at least one", where=where)
    return found, skipped


def _check_header(where: str, header: Sequence[str], required: Sequence[str]) -> None:
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(
            f"found the columns {show_value(', '.join(header), limit=120)}, expected also "
            f"{', '.join(missing)}",
            where=f"{where}: line 1",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise InputError(f"found the column {twice[0]} twice, expected it once", where=f"{where}: line 1")


def read_number(row: Mapping[str, str], field: str, *, least: float | None = None) -> float:
    """A finite number. Raises `Malformed`."""
    text = row[field]
    expected = "a number" if least is None else f"a number of at least {least:g}"
    try:
        # float() also takes "1_000" and digits of other scripts, which no log means.
        value = float(text if text.isascii() and "_" not in text else "?")
    except ValueError:
        raise Malformed(field, text, expected) from None
    if not abs(value) < LARGEST:  # NaN too
        raise Malformed(field, text, "a finite number below 2^53")
    if least is not None and value < least:
        raise Malformed(field, text, expected)
    return value


def job_id(row: Mapping[str, str], field: str) -> str:
    """The name of a job, which is never empty. Raises `Malformed`."""
    if not row[field]:
        raise Malformed(field, "", "a job id")
    return row[field]


def read_whole_number(row: Mapping[str, str], field: str, *, least: int | None = None) -> int:
    """A whole number (``8`` or ``8.0``). Raises `Malformed`."""
    value = read_number(row, field, least=least)
    if value != int(value):
        raise Malformed(field, row[field], "a whole number")
    return int(value)


def unix_seconds(text: str) -> float:
    """Seconds since 1970 of an ISO moment or of a count of seconds. Raises `ValueError`.

    A moment without a zone is taken as it stands: differences within one log are right except across a
    change of daylight saving time.
    """
    if _SECONDS.fullmatch(text):
        return float(text)
    moment = datetime.fromisoformat(text)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except OverflowError as error:
        raise ValueError(text) from error


def wall_clock(row: Mapping[str, str], field: str) -> float:
    """A column that holds a moment, as seconds. Raises `Malformed`."""
    try:
        return unix_seconds(row[field])
    except ValueError:
        raise Malformed(field, row[field], "a moment such as 2017-10-02 00:01:55") from None
