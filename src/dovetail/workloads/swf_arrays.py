"""The Standard Workload Format as arrays: 100,000 lines in a tenth of a second.

Nearly all logs hold nothing but whole numbers, so the digits of the fields that matter are summed with
array operations over the file's bytes; a file with decimal points is parsed number by number; only a
file that is not clean is read line by line, which finds the malformed line. All three give the same
arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.model.files import file_name
from dovetail.workloads.textfile import LARGEST, Malformed, WrongCount, read_bytes

__all__ = ["FIELDS", "SwfArrays", "parse_swf", "read_swf_arrays", "readable_lines"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

FIELDS = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
WIDTH = len(FIELDS)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
WANTED = (0, 1, 3, 4, 7, 8, 11, 12, 13, 14)
"""Columns that become arrays, counted from 0."""
WHOLE = (0, 4, 7, 11, 12, 13, 14)
"""Of these, the columns that hold counts or identifiers."""
MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class SwfArrays:
    """A log in file order, one entry a job line; all arrays have shape (jobs,).

    Times are seconds. ``processors`` is field 5 where positive, else field 8, else 0; ``walltime`` is
    field 9 where positive, else NaN; identifiers are -1 where unknown. ``header`` holds the ``; Key:
    value`` lines (the first of each key), ``skipped`` counts malformed lines.
    """

    number: Ints
    submit: Floats
    run: Floats
    processors: Ints
    walltime: Floats
    user: Ints
    group: Ints
    application: Ints
    queue: Ints
    header: dict[str, str] = field(default_factory=dict)
    skipped: int = 0

    def __len__(self) -> int:
        return int(self.number.size)


def read_swf_arrays(path: str | Path, *, lenient: bool = False) -> SwfArrays:
    """The arrays of an SWF file (plain or gzip). O(bytes).

    Raises `InputError` naming file and line at the first malformed line (not 18 numbers, or a count that
    is no whole number) unless ``lenient``, and for a file without job lines.
    """
    return parse_swf(read_bytes(path), file_name(path), lenient=lenient)


def parse_swf(data: bytes, where: str, *, lenient: bool = False) -> SwfArrays:
    """The same from bytes; ``where`` names them in messages."""
    if 0 in data:
        raise InputError(f"found binary data at byte {data.index(0)}, expected SWF text", where=where)
    data = data.removeprefix(BYTE_ORDER_MARK)
    header, body = _split_header(data)
    columns = _clean_integers(body)
    if columns is None:
        columns = _clean_numbers(body)
    skipped = 0
    if columns is None:
        columns, skipped = _line_by_line(data, where, lenient=lenient)
    if not columns[0].size and not skipped:
        raise InputError("holds no job line; expected lines of 18 numbers", where=where)
    return _arrays(columns, header, skipped)


def _arrays(columns: dict[int, Floats], header: dict[str, str], skipped: int) -> SwfArrays:
    whole = {c: columns[c].astype(np.int64) for c in WHOLE}
    asked = np.where(whole[4] > 0, whole[4], np.maximum(whole[7], 0))
    walltime = np.where(columns[8] > 0, columns[8], np.nan)
    return SwfArrays(
        number=whole[0],
        submit=columns[1],
        run=columns[3],
        processors=asked,
        walltime=walltime,
        user=whole[11],
        group=whole[12],
        application=whole[13],
        queue=whole[14],
        header=header,
        skipped=skipped,
    )


def _split_header(data: bytes) -> tuple[dict[str, str], bytes]:
    """The header's keys, and the bytes after the last of the comment lines that open the file."""
    header: dict[str, str] = {}
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end + 1
        line = data[start:end].strip()
        if line and not line.startswith(b";"):
            break
        key, colon, value = line.lstrip(b"; \t").partition(b":")
        if colon:  # header lines may hold no colon, or nothing at all
            header.setdefault(key.strip().decode("latin-1"), value.strip().decode("latin-1"))
        start = end
    return header, data[start:]


def _token_bounds(text: Bytes) -> tuple[Ints, Ints] | None:
    """Starts and ends of the tokens if every line that is not blank holds 18, else ``None``."""
    space = np.ones(text.size + 2, dtype=np.bool_)
    np.less_equal(text, 32, out=space[1:-1])
    edges = np.flatnonzero(space[1:] != space[:-1])
    starts, ends = edges[0::2], edges[1::2]
    if starts.size % WIDTH:
        return None
    before = np.searchsorted(starts, np.flatnonzero(text == 10))
    per_line = np.diff(before, prepend=0, append=starts.size)
    if not np.isin(per_line, (0, WIDTH)).all():
        return None
    return starts.reshape(-1, WIDTH), ends.reshape(-1, WIDTH)


def _allowed(extra: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, dtype=np.bool_)
    table[np.frombuffer(b"0123456789- \t\r\n" + extra, dtype=np.uint8)] = True
    return table


def _clean_integers(body: bytes) -> dict[int, Floats] | None:
    """Columns of a body of whole numbers only; ``None`` if it is anything else."""
    text = np.frombuffer(body, dtype=np.uint8)
    if not _allowed(b"")[text].all():
        return None
    bounds = _token_bounds(text)
    if bounds is None:
        return None
    starts, ends = bounds
    dashes = np.flatnonzero(text == ord("-"))
    if dashes.size:  # a dash must open its token and be followed by a digit
        if text[-1] == ord("-") or (text[dashes + 1] <= ord("-")).any():
            return None
        if (text[dashes[dashes > 0] - 1] > 32).any():
            return None
    if starts.size and int((ends - starts).max()) > MOST_DIGITS:
        return None
    return {c: _digits(text, starts[:, c], ends[:, c]) for c in WANTED}


def _digits(text: Bytes, starts: Ints, ends: Ints) -> Floats:
    """The whole numbers written at text[start:end], which hold digits after at most one dash."""
    negative = text[starts] == ord("-")
    starts = starts + negative
    length = ends - starts
    values = np.zeros(starts.size, dtype=np.int64)
    for place in range(int(length.max(initial=0))):
        longer = length > place
        if longer.all():
            values = values * 10 + (text[starts + place] - ord("0"))
        else:
            values[longer] = values[longer] * 10 + (text[starts[longer] + place] - ord("0"))
    return np.where(negative, -values, values).astype(np.float64)


def _clean_numbers(body: bytes) -> dict[int, Floats] | None:
    """Columns of a body of numbers, decimals allowed; ``None`` if it is anything else."""
    text = np.frombuffer(body, dtype=np.uint8)
    if not _allowed(b"+.eE")[text].all() or _token_bounds(text) is None:
        return None
    try:
        table = np.array(body.split(), dtype=np.float64).reshape(-1, WIDTH)
    except ValueError:
        return None
    if not (np.abs(table) < LARGEST).all() or (table[:, WHOLE] != np.floor(table[:, WHOLE])).any():
        return None
    return {c: np.ascontiguousarray(table[:, c]) for c in WANTED}


def _line_by_line(data: bytes, where: str, *, lenient: bool) -> tuple[dict[int, Floats], int]:
    """Columns of a file that is not clean; stops at the first malformed line, or counts them."""
    rows: list[list[float]] = []
    skipped = 0
    for index, line in enumerate(data.split(b"\n"), start=1):
        tokens = line.split()
        if not tokens or tokens[0].startswith(b";"):
            continue
        try:
            rows.append(_row(tokens))
        except Malformed as error:
            if not lenient:
                raise InputError(str(error), where=f"{where}: line {index}") from None
            skipped += 1
    table = np.array(rows, dtype=np.float64).reshape(-1, WIDTH)
    return {c: np.ascontiguousarray(table[:, c]) for c in WANTED}, skipped


def _row(tokens: list[bytes]) -> list[float]:
    if len(tokens) != WIDTH:
        found = b" ".join(tokens).decode("latin-1")
        raise WrongCount(len(tokens), found, f"{WIDTH} numbers")
    row: list[float] = []
    for column, token in enumerate(tokens):
        name = f"field {column + 1} ({FIELDS[column]})"
        text = token.decode("latin-1")
        try:
            value = float(text if "_" not in text and text.isascii() else "?")
        except ValueError:
            raise Malformed(name, text, "a number") from None
        if not abs(value) < LARGEST:  # NaN too
            raise Malformed(name, text, "a finite number below 2^53")
        if column in WHOLE and value != int(value):
            raise Malformed(name, text, "a whole number")
        row.append(value)
    return row


def readable_lines(data: bytes) -> Iterator[tuple[bytes, list[bytes] | None]]:
    """Comment lines with ``None``, job lines with their 18 fields; blank and malformed lines are left out."""
    for line in data.removeprefix(BYTE_ORDER_MARK).split(b"\n"):
        tokens = line.split()
        if tokens and tokens[0].startswith(b";"):
            yield line, None
        elif tokens:
            try:
                _row(tokens)
            except Malformed:
                continue
            yield line, tokens
