"""Values of options as Slurm reads them: time limits, memory, counts, generic resources, arrays, signals.

Every function raises `ValueError` whose text names what was found and what was expected.
"""

from __future__ import annotations

import re
import signal

from dovetail.files.signals import signal_of
from dovetail.records import dataclass

MEBIBYTE = 1 << 20
# Digits are counted in each pattern: a number of a thousand digits would cost more to read than the script.
MOST_NUMBER = 1_000_000_000_000
_TIME = re.compile(r"(?:(\d{1,9})-)?(\d{1,10})?((?::\d{1,9}){0,2})", re.ASCII)
_MEMORY = re.compile(r"\+?(\d{1,12})([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_NODES = re.compile(r"\+?(\d{1,9})([km]?)", re.ASCII | re.IGNORECASE)
_RESOURCE = re.compile(r"[A-Za-z_][\w.+/-]*", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,12})([kmgtp]?)", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_SIGNAL = re.compile(r"(?:([RBrb]{1,2}):)?([A-Za-z0-9+-]+)(?:@(\d{0,9}))?", re.ASCII)
_ELEMENTS = re.compile(r"(\d+)_(?:\*|\[([^\]]*)\])", re.ASCII)
MOST_NAMED = 10_000
"""Jobs of an array that a dependency may name one by one."""
NOTICE = 60.0
"""Seconds before the end at which a signal comes whose option names no time."""
LONGEST_NOTICE = 65535


def parse_limit(text: str) -> float | None:
    """Seconds of a time limit; ``None``: no limit.

    ``MINUTES``, ``MINUTES:SECONDS``, ``HOURS:MINUTES:SECONDS``, ``DAYS-HOURS``, ``DAYS-HOURS:MINUTES``,
    ``DAYS-HOURS:MINUTES:SECONDS``; ``0``, ``-1``, ``UNLIMITED``, ``INFINITE``: no limit.

    >>> parse_limit("90"), parse_limit("1:5"), parse_limit("1-12"), parse_limit("unlimited")
    (5400.0, 65.0, 129600.0, None)
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    match = _TIME.fullmatch(text)
    if match is None or (match[2] is None and (match[1] is None or match[3])):
        raise ValueError(
            f"found {text!r}, expected minutes, or a time such as 10:30, 1:00:00, 2-12 or UNLIMITED"
        )
    parts = [int(part) for part in (match[2] or "0", *match[3].split(":")[1:])]
    if match[1] is not None:  # days, then hours first
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    # 0 means no limit, as in Slurm, and no job that ends at once.
    total = int(match[1] or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return float(total) or None


def parse_memory(text: str) -> int:
    """Bytes of ``--mem``: MiB where no unit is given, K, M, G, T of 1024; K is rounded up to whole MiB.

    >>> parse_memory("500") == 500 * 2**20, parse_memory("2g") == 2**31, parse_memory("1K") == 2**20
    (True, True, True)
    """
    match = _MEMORY.fullmatch(text.lstrip())
    if match is None:
        raise ValueError(f"found {text!r}, expected MiB, or a whole number with K, M, G or T")
    number = int(match[1])
    unit = match[2].lower()
    # Slurm counts memory in MiB: a smaller amount would be none.
    if unit == "k":
        return -(-number // 1024) * MEBIBYTE
    return number * (MEBIBYTE << 10 * "mgt".index(unit or "m"))


def parse_nodes(text: str) -> tuple[int, int | None]:
    """The least and the largest number of nodes of ``MIN[-MAX]``; K is 1024, M 1024 times that.

    A range that begins with 0, or with nothing, begins with 1, as in sbatch.

    >>> parse_nodes("2"), parse_nodes("1k-2K"), parse_nodes("0-3")
    ((2, 2), (1024, 2048), (1, 3))
    """
    least, dash, most = (part.strip() for part in text.partition("-"))
    first = _node_count(least or ("0" if most else ""), text)
    last = _node_count(most, text) if dash else first
    if dash and last:
        first = max(1, first)
    if first < 1 or last < first:
        raise ValueError(f"found {text!r}, expected a number of nodes above 0, or MIN-MAX")
    return first, last


def _node_count(text: str, whole: str) -> int:
    match = _NODES.fullmatch(text)
    if match is None:
        raise ValueError(f"found {whole!r}, expected a number of nodes, or MIN-MAX")
    return int(match[1]) << 10 * " km".index(match[2].lower() or " ")


def parse_count(text: str, *, least: int = 1) -> int:
    """A whole number without a unit, as ``--ntasks`` and ``--cpus-per-task`` have it."""
    # "+8" is written by scripts that add to a default; sbatch reads it as 8.
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()) or not least <= int(digits) <= MOST_NUMBER:
        raise ValueError(f"found {text!r}, expected a whole number of at least {least}")
    return int(digits)


@dataclass(frozen=True, slots=True)
class Resource:
    """A generic resource: its name, its type (empty: any) and how many."""

    name: str
    type: str
    count: int


def parse_resources(text: str) -> list[Resource]:
    """The entries of ``--gres``: ``NAME[[:TYPE]:COUNT]`` with commas between them; ``none``: no entry.

    >>> parse_resources("gpu:a100:2,nvme:1K")
    [Resource(name='gpu', type='a100', count=2), Resource(name='nvme', type='', count=1024)]
    """
    if text.lower() == "none":
        return []
    found = []
    for entry in text.split(","):
        # Names with their plugin's prefix are how scontrol prints them.
        name, *rest = entry.removeprefix("gres:").removeprefix("gres/").split(":")
        if not _RESOURCE.fullmatch(name) or len(rest) > 2 or not all(rest):
            raise ValueError(f"found {entry!r}, expected NAME[:TYPE][:COUNT], such as gpu:2 or gpu:a100:1")
        found.append(Resource(name, *_type_and_count(rest, entry)))
    return found


def parse_gpus(text: str) -> list[Resource]:
    """The entries of ``--gpus`` and its kin: ``[TYPE:]COUNT`` or ``TYPE`` with commas between them; none in
    an empty text. ``none`` is a type like any other, as in sbatch.

    >>> parse_gpus("volta:3")
    [Resource(name='gpu', type='volta', count=3)]
    """
    found = []
    for entry in text.split(",") if text else ():
        rest = entry.split(":")
        if not entry or len(rest) > 2 or not all(rest):
            raise ValueError(f"found {entry!r}, expected [TYPE:]COUNT, such as 2 or a100:1")
        found.append(Resource("gpu", *_type_and_count(rest, entry)))
    return found


def _type_and_count(parts: list[str], entry: str) -> tuple[str, int]:
    if not parts:
        return "", 1
    amount = _AMOUNT.fullmatch(parts[-1])
    if amount is None:
        # Without a number at its end it is a type, of which one is meant.
        if len(parts) == 2 or not _RESOURCE.fullmatch(parts[0]):
            raise ValueError(f"found {entry!r}, expected a whole number at its end")
        return parts[0], 1
    count = int(amount[1]) << 10 * " kmgtp".index(amount[2].lower() or " ")
    return (parts[0] if len(parts) == 2 else ""), count


@dataclass(frozen=True, slots=True)
class Array:
    """The indices of an array: as Dovetail writes them, how many, the smallest, the largest, their step.

    The step is 1 where they have none in common, as in Slurm.
    """

    text: str
    count: int
    least: int
    most: int
    step: int


def parse_array(text: str) -> Array:
    """``0-15:4%2,20``: lists, ranges, steps, in brackets or not, and how many run at once.

    >>> parse_array("0-15:4%2,20")
    Array(text='0-15:4,20%2', count=5, least=0, most=20, step=1)
    """
    bare, percent, rest = text.partition("%")
    limit = re.match(r"(\d*)[^,\]]*", rest, re.ASCII)
    assert limit is not None  # it matches nothing, too
    # What stands between the number and the next comma is passed over.
    bare = (bare + rest[limit.end() :].partition("%")[0]).removeprefix("[").removesuffix("]")
    # sbatch passes over empty parts, but not before the percent sign.
    if percent and text.partition("%")[0].endswith(","):
        raise ValueError(f"found {text!r}, expected an index before %")
    if percent and not bare and limit[1]:
        bare = "0"  # as sbatch has it
    spans = []
    parts = [part for part in bare.split(",") if part]  # sbatch passes over commas with nothing between them
    bare = ",".join(parts)
    for part in parts or [""]:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"found {text!r}, expected indices such as 0-9, 1,3,5 or 0-15:4%2")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"found {part!r}, expected the lower index first and a step above 0")
        spans.append(range(first, last + 1, step))
    # Spans may overlap: an index counts once.
    count = len(spans[0]) if len(spans) == 1 else len(set().union(*map(set, spans)))
    at_once = f"%{int(limit[1])}" if limit[1] and int(limit[1]) else ""
    most = max(span[-1] for span in spans)
    # Slurm gives lists the step 1, whatever their parts have.
    step = spans[0].step if len(spans) == 1 else 1
    return Array(bare + at_once, count, min(span[0] for span in spans), most, step)


def elements_named(text: str) -> str:
    """A text of dependencies with each job of an array by itself: ``7_[1,3-4]`` and ``7_*``, written out.

    >>> elements_named("afterok:7_[1,3-4],afterany:8_*")
    'afterok:7_1:7_3:7_4,afterany:8'
    """

    def written_out(match: re.Match[str]) -> str:
        if match[2] is None:
            return match[1]
        array = parse_array(match[2])
        # Each is a dependency of its own in the ledger.
        if array.count > MOST_NAMED:
            raise ValueError(f"found {array.count} jobs of an array, expected at most {MOST_NAMED}")
        found: list[int] = []
        for span in array.text.partition("%")[0].split(","):
            first, _, rest = span.partition("-")
            last, _, step = rest.partition(":")
            found += range(int(first), int(last or first) + 1, int(step or 1))
        return ":".join(f"{match[1]}_{index}" for index in found)

    return _ELEMENTS.sub(written_out, text)


@dataclass(frozen=True, slots=True)
class Notice:
    """A signal before the end: its name, the seconds before, and whether the script alone gets it."""

    signal: str
    seconds: float
    script_alone: bool


def parse_signal(text: str) -> Notice:
    """``[R|B:]SIGNAL[@SECONDS]``, a name or a number.

    >>> parse_signal("B:USR1@90")
    Notice(signal='USR1', seconds=90.0, script_alone=True)
    """
    match = _SIGNAL.fullmatch(text)
    number = None if match is None else _signal_number(match[2])
    seconds = NOTICE if match is None or not match[3] else float(match[3])
    if match is None or number is None or seconds > LONGEST_NOTICE:
        raise ValueError(f"found {text!r}, expected [B:]SIGNAL[@SECONDS], such as B:USR1@60")
    return Notice(signal.Signals(number).name.removeprefix("SIG"), seconds, "B" in (match[1] or "").upper())


def _signal_number(text: str) -> int | None:
    # Slurm knows real-time signals by number alone.
    if text.upper().removeprefix("SIG").startswith("RT"):
        return None
    try:
        return signal_of(text) or None
    except ValueError:
        return None
