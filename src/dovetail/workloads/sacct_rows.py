"""The rows of what ``sacct --parsable2`` printed, whatever its version and whatever jobs are called.

One layer under the reader of traces and that of measured runs. The delimiter is found by the header: a bar,
`DELIMITER`, which no name contains and which Dovetail uses when it calls sacct itself, or what else
``--delimiter`` had. One in a job's name is put back where it belongs. Counts such as ``1K`` are of 1024.
Columns of sacct before 21.08, ``AllocGRES`` (of the whole job) and ``ReqGRES`` (of each node), become entries
of the TRES columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.files.tables import Malformed, WrongCount
from dovetail.records import dataclass

DELIMITER = "\x1f"
"""The unit separator: sacct takes any characters, and no name has this one."""
NAME_COLUMN = "JobName"
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{1,6})?)([KMGTP]?)", re.ASCII)
STEP = re.compile(r"\d+(?:_\d+|\+\d+)?\.", re.ASCII)
UNKNOWN = ("", "None", "Unknown", "N/A", "INVALID")
_BETWEEN = re.compile(r"\s*[A-Za-z]\w*([^\w]+)[A-Za-z]", re.ASCII)
_GRES = re.compile(
    r"(?:gres[:/])?([A-Za-z_][\w.-]*)(?::([A-Za-z_][\w.-]*))?(?:[:=](\d+)([KMGTP]?))?", re.ASCII
)
_INDICES = re.compile(r"\((?:IDX|S|CNT|null)[^)]*\)")


@dataclass(frozen=True, slots=True)
class Row:
    """One line: its number, and its cells by the name of their column."""

    line: int
    cells: Mapping[str, str]


def header_of(line: str) -> tuple[list[str], str]:
    """The names of the columns, and what stands between them; the last is empty in ``--parsable``."""
    text = line.removeprefix("\ufeff").rstrip("\r\n")
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
    delimiter = "|"
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        if not header:
            header, delimiter = header_of(text)
            _check_header(header, delimiter, where, number, required)
            continue
        try:
            yield Row(
                number, dict(zip(header, _split_cells(text, header, delimiter, name_column), strict=True))
            )
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
    crowded = [name for name in header if name.endswith(("TRES", "GRES"))]
    if delimiter == "," and crowded:
        raise InputError(
            f"found commas between the columns, which {crowded[0]} has inside, expected other characters: "
            "sacct --parsable2 (bars) or --delimiter",
            where=f"{where}: line {number}",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise InputError(
            f"found the column {twice[0]} twice, expected it once", where=f"{where}: line {number}"
        )


def _split_cells(text: str, header: Sequence[str], delimiter: str, name_column: str) -> list[str]:
    """The cells of a line. What is too much of them belongs to the job's name. Raises `Malformed`."""
    cells = [cell.strip() for cell in text.split(delimiter)]
    extra = len(cells) - len(header)
    if extra > 0 and name_column in header:
        at = list(header).index(name_column)
        cells[at : at + extra + 1] = [delimiter.join(text.split(delimiter)[at : at + extra + 1]).strip()]
    if len(cells) != len(header):
        raise WrongCount(len(cells), text, str(len(header)))
    return cells


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
        name = f"gres/{match[1]}:{match[2]}" if match[2] else f"gres/{match[1]}"
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
