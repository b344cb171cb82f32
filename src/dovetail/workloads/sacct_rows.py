"""The rows of what ``sacct --parsable2`` printed, whatever its version and whatever jobs are called.

One layer under the reader of traces and that of measured runs. The delimiter is found by the header: a bar,
`DELIMITER`, which no name contains and which Dovetail uses when it calls sacct itself, or what else
``--delimiter`` had; commas may stand in quoted cells, as other programs write tables. A delimiter in a job's
name, comment or command is put back where it belongs. Counts such as ``1K`` are of 1024. Columns of sacct
before 21.08, ``AllocGRES`` (of the whole job) and ``ReqGRES`` (of each node), become entries of the TRES
columns. Further headers, of tables that were put together, are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.files.tables import Malformed, WrongCount
from dovetail.records import dataclass

DELIMITER = "\x1f"
"""The unit separator: sacct takes any characters, and no name has this one."""
NAME_COLUMN = "JobName"
FREE_COLUMNS = ("SubmitLine", "Comment", "AdminComment", "SystemComment", "Extra", "WorkDir", "Reason")
"""Columns that may hold any text, a delimiter too, beside the names of jobs."""
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{1,6})?)([KMGTPE]?)", re.ASCII)
STEP = re.compile(r"\d+(?:_\d+|\+\d+)?\.", re.ASCII)
UNKNOWN = ("", "None", "Unknown", "N/A", "INVALID")
_BETWEEN = re.compile(r"\s*[A-Za-z]\w*([^\w]+)[A-Za-z]", re.ASCII)
_GRES = re.compile(
    r"(?:PER_(?:JOB|NODE|SOCKET|TASK):)?(?:gres[:/])?"
    r"([A-Za-z_][\w.-]*|[0-9]{4,})(?::([A-Za-z_][\w.-]*))?(?:[:=](\d+)([KMGTPE]?))?",
    re.ASCII,
)
_GRES_NUMBERS = {"7696487": "gpu", "7170": "mps"}
"""Numbers under which Slurm keeps kinds of resources, which sacct prints where its own plugins lack them."""
_QUOTED = re.compile(r'[\w",]*(?:,"|",)|,\w', re.ASCII)
"""Begins a header between commas, with cells in quotes or a first one without a name."""
_INDICES = re.compile(r"\((?:IDX|S|CNT|null)[^)]*\)")


@dataclass(frozen=True, slots=True)
class Row:
    """One line: its number, and its cells by the name of their column."""

    line: int
    cells: Mapping[str, str]


def header_of(line: str) -> tuple[list[str], str]:
    """The names of the columns, and what stands between them; the last is empty in ``--parsable``."""
    text = line.removeprefix("\ufeff").rstrip("\r\n")
    if _QUOTED.match(text):
        return [name.strip() for name in next(csv.reader([text]))], ","
    match = _BETWEEN.match(text)
    # blanks alone are those of the table for people, whose columns cannot be separated
    delimiter = "|" if match is None else match[1].strip(" ") or "|"
    return [name.strip() for name in text.split(delimiter)], delimiter


def rows_of(
    lines: Iterable[str], where: str, required: Sequence[str], name_column: str = NAME_COLUMN
) -> Iterator[Row | tuple[int, Malformed]]:
    """The rows that follow the header, and in the place of one that cannot be read its line and why.

    ``name_column`` is that of the jobs' names. Raises `InputError` where the header lacks a column or holds
    one twice. Linear.
    """
    header: list[str] = []
    free: list[str] = []
    delimiter, first = "|", ""
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if not header:
            header, delimiter = header_of(text)
            _check_header(header, delimiter, where, number, required)
            first, free = text, [one for one in (name_column, *FREE_COLUMNS) if one in header]
            continue
        if text == first:
            continue
        try:
            yield Row(number, dict(zip(header, _split_cells(text, header, delimiter, free), strict=True)))
        except Malformed as error:
            yield number, error


def _check_header(
    header: Sequence[str], delimiter: str, where: str, number: int, required: Sequence[str]
) -> None:
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(
            f"found the columns {show_value(', '.join(header), limit=120)}, expected also "
            f"{', '.join(missing)}",
            where=f"{where}: line {number}",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise InputError(
            f"found the column {twice[0]} twice, expected it once", where=f"{where}: line {number}"
        )


def _split_cells(text: str, header: Sequence[str], delimiter: str, free: Sequence[str]) -> list[str]:
    """The cells of a line. What is too much of them belongs to the first column of ``free`` text that leaves
    the others as they are printed. Raises `Malformed`.
    """
    is_quoted = delimiter == "," and '"' in text
    parts = next(csv.reader([text])) if is_quoted else text.split(delimiter)
    extra = len(parts) - len(header)
    if extra > 0:
        for name in free:
            at = header.index(name)
            joined = delimiter.join(parts[at : at + extra + 1])
            cells = [cell.strip() for cell in (*parts[:at], joined, *parts[at + extra + 1 :])]
            if _looks_right(header, cells):
                return cells
    if extra:
        crowded = next((name for name in header if name.endswith(("TRES", "GRES"))), None)
        if delimiter == "," and crowded is not None:
            raise Malformed(
                "line", text, f"commas in {crowded} within quotes: sacct --parsable2 has bars, or --delimiter"
            )
        raise WrongCount(len(parts), text, str(len(header)))
    return [cell.strip() for cell in parts]


def _looks_right(header: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether no cell of a column that holds figures or states holds other text."""
    found = zip(header, cells, strict=True)
    return all(_FORMS[name].fullmatch(cell) for name, cell in found if name in _FORMS)


_MOMENT, _COUNT = re.compile(r"[\d:T -]*|Unknown|None|N/A", re.ASCII), re.compile(r"[\d.]*[KMGTP]?", re.ASCII)
_LENGTH, _LIST = (
    re.compile(r"[\d:.-]*|INVALID|UNLIMITED|Partition_Limit", re.ASCII),
    re.compile(r"(?:[\w/:.-]+=[^,=]+,?)*"),
)
_FORMS = {
    **dict.fromkeys(("Submit", "Start", "End", "Eligible"), _MOMENT),
    **dict.fromkeys(("NNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "AllocNodes", "ReqNodes", "MaxRSS"), _COUNT),
    **dict.fromkeys(("Elapsed", "ElapsedRaw", "Timelimit", "TimelimitRaw"), _LENGTH),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), _LIST),
    "JobID": re.compile(r"\d+(?:[_+.][\w.+,%\[\]-]*)?", re.ASCII),
    "State": re.compile(r"[A-Z_]+\+?(?: by \d+)?", re.ASCII),
    "ExitCode": re.compile(r"\d*:?\d*", re.ASCII),
}


def count_of(text: str, field: str, expected: str = "a count") -> float:
    """A count such as ``4`` or ``1K``, which is 1024. Raises `Malformed`.

    >>> count_of("1K", "NNodes")
    1024.0
    """
    match = AMOUNT.fullmatch(text)
    if match is None:
        raise Malformed(field, text, expected)
    return float(match[1]) * UNITS[match[2]]


def parse_tres(text: str, field: str = "TRES") -> dict[str, float]:
    """``cpu=4,mem=8G,node=1,gres/gpu:a100=2`` as amounts by name, memory in bytes. Raises `Malformed`.

    >>> parse_tres("cpu=4,mem=8G,gres/gpu:a100=2")
    {'cpu': 4.0, 'mem': 8589934592.0, 'gres/gpu:a100': 2.0}
    """
    amounts: dict[str, float] = {}
    for entry in filter(None, text.split(",")):
        name, equals, value = entry.partition("=")
        match = AMOUNT.fullmatch(value)
        if not equals or match is None:
            raise Malformed(field, entry, "NAME=AMOUNT such as cpu=4 or mem=8G")
        # Slurm prints plain memory in MiB in some versions, but then always with the letter M.
        amounts[name] = float(match[1]) * UNITS[match[2]]
    return amounts


def parse_gres(text: str, field: str = "AllocGRES") -> dict[str, float]:
    """``gpu:2`` or ``gpu:a100:2(IDX:0-1),lic:1`` under the names of `parse_tres`. Raises `Malformed`.

    >>> parse_gres("gpu:a100:2(IDX:0-1),nvme:1K")
    {'gres/gpu:a100': 2.0, 'gres/nvme': 1024.0}
    """
    amounts: dict[str, float] = {}
    for entry in filter(None, _INDICES.sub("", "" if text in (*UNKNOWN, "0", "(null)") else text).split(",")):
        match = _GRES.fullmatch(entry.strip())
        if match is None:
            raise Malformed(field, entry, "NAME[:TYPE][:COUNT] such as gpu:2")
        kind = _GRES_NUMBERS.get(match[1], match[1])
        name = f"gres/{kind}:{match[2]}" if match[2] else f"gres/{kind}"
        amounts[name] = amounts.get(name, 0.0) + float(int(match[3] or 1) * UNITS[match[4] or ""])
    return amounts


def resources_of(row: Mapping[str, str], nodes: float) -> tuple[dict[str, float], dict[str, float]]:
    """What the job of a row held, and what it requested, both as `parse_tres` has it. Raises `Malformed`.

    ``nodes`` multiplies what older versions give for one node.
    """
    requested = parse_tres(row.get("ReqTRES", ""), "ReqTRES")
    held = parse_tres(row.get("AllocTRES", ""), "AllocTRES") or dict(requested)
    old = {name: n * max(1, nodes) for name, n in parse_gres(row.get("ReqGRES", ""), "ReqGRES").items()}
    if not any(name.startswith("gres/") for name in held):
        held |= parse_gres(row.get("AllocGRES", ""), "AllocGRES") or old
    if not any(name.startswith("gres/") for name in requested):
        requested |= old
    return held, requested


def gpus_of(tres: Mapping[str, float]) -> float:
    """GPUs among amounts by name: ``gres/gpu``, else those of all models together."""
    return tres.get("gres/gpu") or sum(v for k, v in tres.items() if k.startswith("gres/gpu:"))


def is_step(row: Mapping[str, str]) -> bool:
    """Whether a row is that of a step of a job."""
    return bool(STEP.match(row["JobID"]))
