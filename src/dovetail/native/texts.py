"""`texts.c` from Python: the columns of a text of whole numbers, and lines of text from columns.

Where `dovetail.native.library` finds nothing, or the text is of another kind, the callers do without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.native.library import load_library

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Steps = npt.NDArray[np.int32]

MOST_LETTERS = 20
"""Of a number of 64 bits."""


# -------------------------------------------------------------------------------------- columns from a text


def read_whole_numbers(
    text: bytes, width: int, wanted: Sequence[int], where_given: Sequence[int] = ()
) -> dict[int, Floats] | None:
    """The wanted columns (counted from 0) of lines that hold ``width`` whole numbers each. O(bytes).

    Those of ``where_given`` are left out where the first of them is negative throughout. ``None`` where
    anything else is in the text, or a number has more than 15 letters, or nothing is compiled.
    """
    library = load_library()
    if library is None:
        return None
    columns = (*wanted, *where_given)
    lines = text.count(b"\n") + 1
    place = np.full(width, -1, np.int64)
    place[list(columns)] = np.arange(len(columns))
    found, signs = np.empty((len(columns), lines)), np.zeros(width, np.int64)
    arguments = (text, len(text), width, place.ctypes.data, found.ctypes.data, lines, signs.ctypes.data)
    read = library.dovetail_read_whole_numbers
    read.restype = ctypes.c_int64
    read.argtypes = _READ_TYPES
    count = read(*arguments)
    if count < 0:
        return None
    kept = columns if where_given and signs[where_given[0]] else wanted
    return {column: row[:count] for column, row in zip(columns, found, strict=True) if column in kept}


_READ_TYPES: tuple[Any, ...] = (
    ctypes.c_char_p,
    *[ctypes.c_int64] * 2,
    *[ctypes.c_void_p] * 2,
    ctypes.c_int64,
    ctypes.c_void_p,
)

# -------------------------------------------------------------------------------------- lines from columns


class Numbers(NamedTuple):
    """A whole number a line."""

    numbers: Ints


class Fractions(NamedTuple):
    """A number with decimals a line: ``numbers`` and ``.0`` where not negative, else the next word."""

    numbers: Ints
    words: Callable[[slice], Iterable[str]]


class Choices(NamedTuple):
    """One of a few texts a line."""

    numbers: Ints
    texts: Sequence[str]


class Words(NamedTuple):
    """A text without line feeds a line, of some lines at once."""

    words: Callable[[slice], Iterable[str]]


class Spans(NamedTuple):
    """Runs of numbers a line, such as ``0-3 7``: so many ``runs`` from ``first`` on.

    Each is from ``low`` to before ``high``, and each step of it ``each`` numbers.
    """

    runs: Ints
    first: Ints
    low: Steps
    high: Steps
    each: int


Cells = Numbers | Fractions | Choices | Words | Spans
_KINDS = (Numbers, Fractions, Choices, Words, Spans)
"""In the order of `texts.c`."""


class _Cells(ctypes.Structure):
    """The struct of that name in `texts.c`."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("numbers", ctypes.c_void_p),
        ("text", ctypes.c_char_p),
        *((name, ctypes.c_void_p) for name in ("ends", "first", "low", "high")),
        ("each", ctypes.c_int64),
    )


def can_write_lines() -> bool:
    """Whether `write_lines` is compiled here."""
    return load_library() is not None


def write_lines(columns: Sequence[Cells], lines: int, at_once: int) -> Iterator[bytes]:
    """Lines of cells with commas between them, so many at once, each ended by a line feed. O(bytes)."""
    library = load_library()
    assert library is not None
    write = library.dovetail_write_lines
    write.restype = ctypes.c_int64
    write.argtypes = (ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)
    made = [_Made(cells) for cells in columns]
    passed = (_Cells * len(made))(*[one.cells for one in made])
    out = np.empty(0, np.uint8)
    for begin in range(0, lines, at_once):
        part = slice(begin, min(begin + at_once, lines))
        # One letter more for the comma, or the line feed, after each cell.
        room = sum(one.begin_part(passed[i], part) + part.stop - begin for i, one in enumerate(made))
        if len(out) < room:
            out = np.empty(room, np.uint8)
        written = write(ctypes.addressof(passed), len(made), begin, part.stop, out.ctypes.data)
        yield out[:written].tobytes()


class _Made:
    """What C gets of a column, and what must live as long: the struct has only addresses."""

    def __init__(self, cells: Cells) -> None:
        self.of = cells
        self.cells = _Cells(kind=_KINDS.index(type(cells)))
        self._held: list[Any] = []
        self._longest = MOST_LETTERS
        match cells:
            case Numbers(numbers):
                self.cells.numbers = self._address(numbers, np.int64)
            case Fractions(numbers, _):
                self.cells.numbers = self._address(numbers, np.int64)
                self._longest += len(".0")
            case Choices(numbers, texts):
                encoded = [text.encode() for text in texts]
                self._longest = max(map(len, encoded), default=0)
                self.cells.numbers = self._address(numbers, np.int64)
                self.cells.ends = self._address([0, *accumulate(map(len, encoded))], np.int64)
                self._give_text(self.cells, b"".join(encoded))
            case Spans(runs, first, low, high, each):
                self.cells.numbers = self._address(runs, np.int64)
                self.cells.first = self._address(first, np.int64)
                self.cells.low, self.cells.high = self._address(low, np.int32), self._address(high, np.int32)
                self.cells.each = each

    def begin_part(self, passed: _Cells, part: slice) -> int:
        """Give C the words of some lines; how many bytes these lines need at most."""
        count: int = part.stop - part.start
        if isinstance(self.of, Spans):
            spans: int = self.of.runs[part].sum().item()
            return spans * 2 * (MOST_LETTERS + 1)
        if not isinstance(self.of, Words | Fractions):
            return count * self._longest
        words: bytes = "".join([f"{word}\n" for word in self.of.words(part)]).encode()
        self._give_text(passed, words)
        return len(words) + (count * self._longest if isinstance(self.of, Fractions) else 0)

    def _give_text(self, passed: _Cells, text: bytes) -> None:
        self._text = text
        passed.text = text

    def _address(self, values: Any, kind: type[np.generic]) -> int:
        array: npt.NDArray[Any] = np.ascontiguousarray(values, kind)
        self._held.append(array)
        address: int = array.ctypes.data
        return address
