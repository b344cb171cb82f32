"""The Standard Workload Format as arrays: 100,000 lines in a hundredth of a second.

Nearly all logs hold nothing but whole numbers, which C reads (without it, array operations over the file's
bytes do); a file with decimal points is parsed number by number; only a file that is not clean is read line
by line, which finds the malformed line. All give the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.files.reading import BYTE_ORDER_MARK, read_blocks
from dovetail.files.sentences import file_name
from dovetail.files.tables import LARGEST, Malformed, WrongCount
from dovetail.native.library import load_library
from dovetail.native.texts import read_whole_numbers
from dovetail.records import dataclass
from dovetail.workloads.builder import MOST_JOBS

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
WANTED = (0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14)
"""Columns that become arrays, counted from 0."""
WHOLE = (0, 4, 7, 11, 12, 13, 14)
"""Of these, the columns that hold counts or identifiers."""
PRECEDING, THINK = 16, 17
"""Columns that become arrays in the few logs that hold them."""
MOST_DIGITS = 15
LONG_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class SwfArrays:
    """A log in file order, one entry a job line; all arrays have shape (jobs,).

    Times are seconds. ``processors`` is field 5 where positive, else field 8, else 0; ``walltime`` is
    field 9 where positive, else NaN; identifiers are -1 where unknown. ``header`` holds the ``; Key:
    value`` lines (the first of each key), ``skipped`` counts malformed lines. ``wait`` is field 3 where it is
    not negative, else NaN; ``None`` where there was no machine to wait for. ``preceding`` and ``think`` are
    fields 17 and 18, ``None`` where no job of the log names a preceding one.
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
    wait: Floats | None = None
    preceding: Ints | None = None
    think: Floats | None = None

    def __len__(self) -> int:
        return int(self.number.size)


def read_swf_arrays(path: str | Path, *, lenient: bool = False, fields: int = WIDTH) -> SwfArrays:
    """The arrays of an SWF file (plain or gzip), read block by block. O(bytes).

    Lines hold ``fields`` numbers, of which the first 18 are read. Raises `InputError` naming file and line
    at the first malformed line (another number of fields, or a count that is no whole number) unless
    ``lenient``, which also takes lines that have more fields; and for a file without job lines.
    """
    return _parse_blocks(read_blocks(path, "SWF text"), file_name(path), Form(fields, lenient))


def parse_swf(data: bytes, where: str, *, lenient: bool = False, fields: int = WIDTH) -> SwfArrays:
    """The same from bytes; ``where`` names them in messages."""
    if 0 in data:
        raise InputError(f"found binary data at byte {data.index(0)}, expected SWF text", where=where)
    return _parse_blocks(iter((data.removeprefix(BYTE_ORDER_MARK),)), where, Form(fields, lenient))


@dataclass(frozen=True, slots=True)
class Form:
    """How many numbers a line holds, and whether malformed lines are skipped.

    Raises `InputError` for fewer ``fields`` than SWF has.
    """

    fields: int = WIDTH
    lenient: bool = False

    def __post_init__(self) -> None:
        if self.fields < WIDTH:
            raise InputError(f"found {self.fields}, expected at least the {WIDTH} of SWF", where="fields")

    def takes_count(self, count: int) -> bool:
        """Whether a line of so many numbers is well-formed."""
        return count == self.fields or (self.lenient and count > WIDTH)


def _parse_blocks(source: Iterator[bytes], where: str, form: Form) -> SwfArrays:
    header: dict[str, str] = {}
    found: list[dict[int, Floats]] = []
    jobs = skipped = lines = 0
    for block in source:
        # Comments before the first job are the header; later ones are skipped with the lines.
        body = block if jobs or skipped else _split_header(block, header)
        columns = _clean_columns(body, form)
        if columns is None:
            columns, wrong = _line_by_line(block, where, lines, form)
            skipped += wrong
        found.append(columns)
        jobs += columns[0].size
        if jobs > MOST_JOBS:
            raise InputError(f"found more than {MOST_JOBS:,} jobs, expected at most that", where=where)
        lines += block.count(b"\n")
    if not jobs:
        found_lines = f"found no well-formed line among {skipped:,}" if skipped else "holds no job line"
        raise InputError(f"{found_lines}; expected lines of {form.fields} numbers", where=where)
    columns = found[0] if len(found) == 1 else _join_blocks(found)
    found.clear()  # a million jobs twice would be the most memory of the command
    return _make_arrays(columns, header, skipped)


def _join_blocks(found: list[dict[int, Floats]]) -> dict[int, Floats]:
    """The columns of all blocks, one after the other; what a block does not hold is -1."""
    known = [*WANTED, *(c for c in (PRECEDING, THINK) if any(c in block for block in found))]
    # A block without preceding jobs has no such column; logs fill it in some parts only.
    missing = {len(block[0]): np.full(len(block[0]), -1.0) for block in found}
    return {c: np.concatenate([block.get(c, missing[len(block[0])]) for block in found]) for c in known}


def _clean_columns(body: bytes, form: Form) -> dict[int, Floats] | None:
    """Columns of a body of which every line is well-formed, ``None`` if it holds anything else."""
    width = form.fields
    # Some logs have more fields than SWF: by the first line, for all of them.
    if form.lenient:
        first = next((line for line in body[:LONG_LINE].split(b"\n") if line.strip()), b"")
        width = max(width, len(first.split()))
    if load_library() is None:
        columns = _clean_integers(body, width)
    else:
        columns = read_whole_numbers(body, width, WANTED, (PRECEDING, THINK))
    return _clean_numbers(body, width) if columns is None else columns


def _make_arrays(columns: dict[int, Floats], header: dict[str, str], skipped: int) -> SwfArrays:
    whole = {c: columns[c].astype(np.int64) for c in WHOLE}
    # Allocated where that is known, as the archive's own definition has it.
    counts = np.where(whole[4] > 0, whole[4], np.maximum(whole[7], 0))
    walltime = np.where(columns[8] > 0, columns[8], np.nan)
    follows = PRECEDING in columns
    return SwfArrays(
        number=whole[0],
        submit=columns[1],
        run=columns[3],
        processors=counts,
        walltime=walltime,
        user=whole[11],
        group=whole[12],
        application=whole[13],
        queue=whole[14],
        header=header,
        skipped=skipped,
        wait=np.where(columns[2] >= 0, columns[2], np.nan),
        preceding=columns[PRECEDING].astype(np.int64) if follows else None,
        think=np.maximum(columns[THINK], 0.0) if follows else None,
    )


def _split_header(data: bytes, header: dict[str, str]) -> bytes:
    """Adds the keys of the comment lines that open the data to ``header``; returns what follows them."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end + 1
        line = data[start:end].strip()
        if line and not line.startswith(b";"):
            break
        key, colon, value = line.lstrip(b"; \t").partition(b":")
        # Header lines may hold no colon, or nothing at all.
        if colon:
            header.setdefault(key.strip().decode("latin-1"), value.strip().decode("latin-1"))
        start = end
    return data[start:]


def _token_bounds(text: Bytes, width: int) -> tuple[Ints, Ints] | None:
    """Starts and ends of the tokens if every line that is not blank holds ``width``, else ``None``."""
    space = np.ones(text.size + 2, dtype=np.bool_)
    np.less_equal(text, 32, out=space[1:-1])
    edges = np.flatnonzero(space[1:] != space[:-1])
    starts, ends = edges[0::2], edges[1::2]
    # A number of tokens that does not divide: some line is not clean.
    if starts.size % width:
        return None
    # Each line holds all fields or none: tokens before each line feed, counted once.
    before = np.searchsorted(starts, np.flatnonzero(text == 10))
    per_line = np.diff(before, prepend=0, append=starts.size)
    if not np.isin(per_line, (0, width)).all():
        return None
    return starts.reshape(-1, width), ends.reshape(-1, width)


def _allowed_bytes(extra: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, dtype=np.bool_)
    table[np.frombuffer(b"0123456789- \t\r\n" + extra, dtype=np.uint8)] = True
    return table


def _clean_integers(body: bytes, width: int) -> dict[int, Floats] | None:
    """Columns of a body of whole numbers only; ``None`` if it is anything else."""
    text = np.frombuffer(body, dtype=np.uint8)
    if not _allowed_bytes(b"")[text].all():
        return None
    bounds = _token_bounds(text, width)
    if bounds is None:
        return None
    starts, ends = bounds
    dashes = np.flatnonzero(text == ord("-"))
    # A dash must open its token and be followed by a digit.
    if dashes.size:
        if text[-1] == ord("-") or (text[dashes + 1] <= ord("-")).any():
            return None
        if (text[dashes[dashes > 0] - 1] > 32).any():
            return None
    # Fifteen digits fit a float exactly.
    if starts.size and int((ends - starts).max()) > MOST_DIGITS:
        return None
    found = {c: _parse_digits(text, starts[:, c], ends[:, c]) for c in WANTED}
    if (text[starts[:, PRECEDING]] != ord("-")).any():
        found |= {c: _parse_digits(text, starts[:, c], ends[:, c]) for c in (PRECEDING, THINK)}
    return found


def _parse_digits(text: Bytes, starts: Ints, ends: Ints) -> Floats:
    """The whole numbers written at text[start:end], which hold digits after at most one dash."""
    negative = text[starts] == ord("-")
    starts = starts + negative
    length = ends - starts
    values = np.zeros(starts.size, dtype=np.int64)
    for place in range(int(length.max(initial=0))):
        longer = length > place
        # Place by place over all tokens at once; the shorter ones drop out.
        if longer.all():
            values = values * 10 + (text[starts + place] - ord("0"))
        else:
            values[longer] = values[longer] * 10 + (text[starts[longer] + place] - ord("0"))
    return np.where(negative, -values, values).astype(np.float64)


def _clean_numbers(body: bytes, width: int) -> dict[int, Floats] | None:
    """Columns of a body of numbers, decimals allowed; ``None`` if it is anything else."""
    text = np.frombuffer(body, dtype=np.uint8)
    if not _allowed_bytes(b"+.eE")[text].all() or _token_bounds(text, width) is None:
        return None
    try:
        table = np.array(body.split(), dtype=np.float64).reshape(-1, width)[:, :WIDTH]
    except ValueError:
        return None
    # A count with decimals is malformed: the slow path names its line.
    if not (np.abs(table) < LARGEST).all() or (table[:, WHOLE] != np.floor(table[:, WHOLE])).any():
        return None
    return _wanted_columns(table)


def _wanted_columns(table: Floats) -> dict[int, Floats]:
    """The columns of a table that become arrays."""
    follows = (PRECEDING, THINK) if (table[:, PRECEDING] > 0).any() else ()
    return {c: np.ascontiguousarray(table[:, c]) for c in (*WANTED, *follows)}


def _line_by_line(data: bytes, where: str, before: int, form: Form) -> tuple[dict[int, Floats], int]:
    """Columns of lines that are not clean, which ``before`` others precede.

    Stops at the first malformed line, or counts them.
    """
    rows: list[list[float]] = []
    skipped = 0
    for index, line in enumerate(data.split(b"\n"), start=before + 1):
        tokens = line.split()
        if not tokens or tokens[0].startswith(b";"):
            continue
        try:
            rows.append(_parse_row(tokens, form))
        except Malformed as error:
            if not form.lenient:
                raise InputError(str(error), where=f"{where}: line {index}") from None
            skipped += 1
    table = np.array(rows, dtype=np.float64).reshape(-1, WIDTH)
    return _wanted_columns(table), skipped


def _parse_row(tokens: list[bytes], form: Form) -> list[float]:
    if not form.takes_count(len(tokens)):
        found = b" ".join(tokens).decode("latin-1")
        raise WrongCount(len(tokens), found, f"{form.fields} numbers")
    row: list[float] = []
    for column, token in enumerate(tokens[:WIDTH]):
        name = f"field {column + 1} ({FIELDS[column]})"
        text = token.decode("latin-1")
        try:
            # float() would also take "1_000" and digits of other scripts.
            value = float(text if "_" not in text and text.isascii() else "?")
        except ValueError:
            raise Malformed(name, text, "a number") from None
        if not abs(value) < LARGEST:  # NaN too
            raise Malformed(name, text, "a finite number below 2^53")
        if column in WHOLE and value != int(value):
            raise Malformed(name, text, "a whole number")
        row.append(value)
    return row


def readable_lines(data: bytes, fields: int = WIDTH) -> Iterator[tuple[bytes, list[bytes] | None]]:
    """Comment lines with ``None``, job lines with their fields; blank and malformed lines are left out."""
    form = Form(fields, lenient=True)
    for line in data.removeprefix(BYTE_ORDER_MARK).split(b"\n"):
        tokens = line.split()
        if tokens and tokens[0].startswith(b";"):
            yield line, None
        elif tokens:
            try:
                _parse_row(tokens, form)
            except Malformed:
                continue
            yield line, tokens
