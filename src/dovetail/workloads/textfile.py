"""Reading the text of traces: plain or gzip, with every failure told in one sentence."""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from dovetail.errors import InputError
from dovetail.model.files import file_name

__all__ = [
    "EMPTY_TABLE",
    "GZIP_MAGIC",
    "Malformed",
    "WrongCount",
    "job_id",
    "number",
    "parse_table",
    "read_bytes",
    "read_text",
    "shown",
    "whole",
    "write_text",
]

T = TypeVar("T")

EMPTY_TABLE = "the file is empty; expected a header line"
GZIP_MAGIC = b"\x1f\x8b"
LARGEST = 2.0**53
"""Numbers from here on are not exact as floats; no trace means them."""
_BREAK = re.compile(r"\r\n?|\n")
_NO_UTF8 = re.compile("[\udc80-\udcff]")


class Malformed(ValueError):  # noqa: N818 - reads as what it is
    """One line cannot be read; the message names the field, what was found and what was expected."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {shown(found)}, expected {expected}")


class WrongCount(Malformed):
    """A line has too many or too few fields."""

    def __init__(self, count: int, line: str, expected: str) -> None:
        ValueError.__init__(self, f"found {count} fields ({shown(line)}), expected {expected}")


def shown(found: object, *, limit: int = 40) -> str:
    """What was found, quoted in ASCII and cut to a length that fits a sentence."""
    text = ascii(found)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes, decompressed if it is gzip (by its first bytes, not its name).

    Raises `InputError` for a file that is missing, unreadable, or a truncated or damaged gzip.
    """
    where = file_name(path)
    if not str(path):
        raise InputError("found no name of a file, expected one")
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("no such file; expected a trace", where=where) from None
    except IsADirectoryError:
        raise InputError("is a folder; expected a file", where=where) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot be read ({reason}); expected a readable file", where=where) from None
    if not data.startswith(GZIP_MAGIC):
        if str(path).lower().endswith(".gz") and data:
            raise InputError(f"found {shown(data[:8])} at the start, expected gzip data", where=where)
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError("the gzip data end too early; expected a whole gzip file", where=where) from None
    except (OSError, zlib.error) as error:
        raise InputError(f"damaged gzip data ({error}); expected a whole gzip file", where=where) from None


def read_text(path: str | Path, *, lenient: bool = False) -> str:
    """The file's text (UTF-8, a byte order mark is dropped).

    Raises `InputError` for binary data, and names the line of the first byte that is no UTF-8; with
    ``lenient`` such bytes stay in the text as lone surrogates, for the caller to find in their lines.
    """
    data, where = read_bytes(path), file_name(path)
    if b"\0" in data:
        raise InputError(f"found binary data at byte {data.index(0)}, expected text", where=where)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if lenient:
            return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        found = shown(error.object[error.start : error.start + 4])
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"found {found}, expected UTF-8 text", where=f"{where}: line {line}") from None


def write_text(path: str | Path, text: str | bytes) -> None:
    """Write the file whole or not at all, as gzip where its name ends in ``.gz``.

    A new file is put in the place of the old one when all is written; what is no file (``/dev/stdout``)
    is written to. Raises `InputError` where it cannot be.
    """
    data = text.encode() if isinstance(text, str) else text
    if str(path).lower().endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    try:
        wanted = os.path.realpath(path)
        if os.path.exists(wanted) and not os.path.isfile(wanted):
            Path(wanted).write_bytes(data)
            return
        part = Path(f"{wanted}.part")
        try:
            part.write_bytes(data)
            part.replace(wanted)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            f"cannot be written ({reason.lower()}); expected a path that can", where=file_name(path)
        ) from None


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
    for place, line in enumerate(_BREAK.split(read_text(path, lenient=lenient)), start=1):
        try:
            if not line.isascii() and _NO_UTF8.search(line):
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
            f"found the columns {shown(', '.join(header), limit=120)}, expected also {', '.join(missing)}",
            where=f"{where}: line 1",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise InputError(f"found the column {twice[0]} twice, expected it once", where=f"{where}: line 1")


def number(row: Mapping[str, str], field: str, *, least: float | None = None) -> float:
    """A finite number. Raises `Malformed`."""
    text = row[field]
    expected = "a number" if least is None else f"a number of at least {least:g}"
    try:
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


def whole(row: Mapping[str, str], field: str, *, least: int | None = None) -> int:
    """A whole number (``8`` or ``8.0``). Raises `Malformed`."""
    value = number(row, field, least=least)
    if value != int(value):
        raise Malformed(field, row[field], "a whole number")
    return int(value)
