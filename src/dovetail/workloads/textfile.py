"""Reading the text of traces: plain or gzip, with every failure told in one sentence."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from dovetail.errors import InputError
from dovetail.model.files import file_name

__all__ = ["Malformed", "number", "parse_table", "read_bytes", "read_text", "shown", "whole", "write_text"]

T = TypeVar("T")

GZIP_MAGIC = b"\x1f\x8b"
LARGEST = 2.0**53
"""Numbers from here on are not exact as floats; no trace means them."""


class Malformed(ValueError):  # noqa: N818 - reads as what it is
    """One line cannot be read; the message names the field, what was found and what was expected."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {shown(found)}, expected {expected}")


def shown(found: object, *, limit: int = 40) -> str:
    """What was found, quoted in ASCII and cut to a length that fits a sentence."""
    text = ascii(found)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes, decompressed if it is gzip (by its first bytes, not its name).

    Raises `InputError` for a file that is missing, unreadable, or a truncated or damaged gzip.
    """
    where = file_name(path)
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
        if str(path).endswith(".gz") and data:
            raise InputError(f"found {shown(data[:8])} at the start, expected gzip data", where=where)
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError("the gzip data end too early; expected a whole gzip file", where=where) from None
    except (OSError, zlib.error) as error:
        raise InputError(f"damaged gzip data ({error}); expected a whole gzip file", where=where) from None


def read_text(path: str | Path) -> str:
    """The file's text (UTF-8, a byte order mark is dropped). Raises `InputError` for binary data."""
    data = read_bytes(path)
    if b"\0" in data:
        raise InputError(f"found binary data at byte {data.index(0)}, expected text", where=file_name(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = shown(data[error.start : error.start + 4])
        raise InputError(
            f"found {found} at byte {error.start}, expected UTF-8 text", where=str(path)
        ) from None


def write_text(path: str | Path, text: str | bytes) -> None:
    """Write the file, as gzip where its name ends in ``.gz``. Raises `InputError` where it cannot be."""
    data = text.encode() if isinstance(text, str) else text
    try:
        Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)
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
    # Commas within quotes are data; sacct's output knows no quotes at all.
    reader = csv.reader(
        read_text(path).splitlines(),
        delimiter=delimiter,
        skipinitialspace=True,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    header: list[str] | None = None
    found: list[T] = []
    skipped = 0
    while True:
        try:
            cells = next(reader, None)
            if cells is None:
                break
            if not any(cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_header(where, header, required)
                continue
            if len(cells) != len(header):
                raise Malformed("line", delimiter.join(cells), f"{len(header)} fields, not {len(cells)}")
            found.append(parse({name: cell.strip() for name, cell in zip(header, cells, strict=True)}))
        except (Malformed, csv.Error) as error:
            if not lenient or header is None:
                raise InputError(str(error), where=f"{where}: line {max(1, reader.line_num)}") from None
            skipped += 1
    if header is None:
        raise InputError("the file is empty; expected a header line", where=where)
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
    expected = "a number" if least is None else f"a number of at least {least:g}"
    try:
        value = float(row[field])
    except ValueError:
        raise Malformed(field, row[field], expected) from None
    if not math.isfinite(value) or abs(value) >= LARGEST or (least is not None and value < least):
        raise Malformed(field, row[field], expected)
    return value


def whole(row: Mapping[str, str], field: str, *, least: int | None = None) -> int:
    """A whole number (``8`` or ``8.0``). Raises `Malformed`."""
    value = number(row, field, least=least)
    if value != int(value):
        raise Malformed(field, row[field], "a whole number")
    return int(value)
