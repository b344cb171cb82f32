"""`steps.c` from Python: free nodes over time where nodes are alike, and the promises that are made in it.

Numbers and times live in arrays of this side, so that they go when no longer needed; C searches and changes
them in about the square root of their steps.
"""

from __future__ import annotations

import ctypes
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any

from dovetail.files.arrays import Floats, Ints, np
from dovetail.native.library import load_library

if TYPE_CHECKING:
    from numpy.typing import NDArray


CAPACITY = DEPTH = 64
MEMO = 8

_BLOCK: Any = [
    *((name, "i8") for name in ("count", "added", "low", "high", "stamp")),
    ("free", "i8", CAPACITY),
    ("since", "f8", CAPACITY),
]
_LOG: Any = [
    *((name, "i8") for name in ("from", "to", "seen")),
    ("version", "i8", DEPTH),
    ("when", "f8", DEPTH),
]
_MEMO: Any = [("nodes", "i8"), ("duration", "f8"), ("before", "f8")]
_RUNS: Any = [("stamp", "i8"), ("opens", "f8"), ("closes", "f8"), ("longest", "f8")]
"""Records as NumPy describes them."""


class _Steps(ctypes.Structure):
    """The struct of that name in `steps.c`."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("room", "used", "unused", "version", "looked_at", "classes", "most", "stamps")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("blocks", "order", "spare", "class_of", "least_of", "logs", "memos", "runs")
        ),
    )


@cache
def _library_functions() -> ctypes.CDLL:
    """The library, with what its functions take and return."""
    found = load_library()
    assert found is not None
    steps, number, time, array = ctypes.POINTER(_Steps), ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    for name, result, *takes in (
        ("add", None, time, time, number),
        ("least", number, time, time),
        ("advance", None, time),
        ("note_all", None, time),
        # Every type is declared: ctypes would pass an undeclared number as a 32-bit int.
        ("give", None, time, time, number),
        ("first_gap", time, number, time, time, time),
        ("compress", number, time, array, array, number, array, array, ctypes.POINTER(number)),
    ):
        function = getattr(found, f"dovetail_steps_{name}")
        function.argtypes, function.restype = [steps, *takes], result
    return found


class FreeSteps:
    """How many of ``most`` nodes are free from each of the ``times`` on, which ascend; numbers of ``free``.

    There must be a `load_library`.
    """

    def __init__(self, times: Floats, free: Ints, most: int) -> None:
        # Equal neighbours are one step. Blocks are filled by half, so that the first steps that are put into
        # them do not split each at once.
        changes = np.flatnonzero(np.concatenate(([True], free[1:] != free[:-1])))
        times, free, half = times[changes], free[changes], CAPACITY // 2
        used = -(-len(times) // half)
        blocks = np.zeros(used, _BLOCK)
        for b in range(used):
            part = free[b * half : (b + 1) * half]
            blocks["free"][b, : len(part)], blocks["count"][b] = part, len(part)
            blocks["since"][b, : len(part)] = times[b * half : (b + 1) * half]
            blocks["low"][b], blocks["high"][b] = part.min(), part.max()
        self.class_of = _classes_up_to(most)
        """The class of each number of nodes: what was given back is noted by class."""
        classes = int(self.class_of[-1]) + 1
        # The arrays are attributes, though only C reads them: it has their addresses alone, and they would be
        # freed under it.
        self._least_of = np.searchsorted(self.class_of, np.arange(classes))
        self._logs, self._memos = np.zeros(classes, _LOG), np.zeros(classes * MEMO, _MEMO)
        self._memos["nodes"] = most + 1  # nothing is remembered yet
        blocks["stamp"] = 1
        self._c = _library_functions()
        self._steps = _Steps(classes=classes, most=most, stamps=1)
        self._steps.class_of, self._steps.least_of = self.class_of.ctypes.data, self._least_of.ctypes.data
        self._steps.logs, self._steps.memos = self._logs.ctypes.data, self._memos.ctypes.data
        self._at = ctypes.byref(self._steps)
        self._runs = np.zeros((0, classes), _RUNS)
        self._lie_in(blocks, np.arange(used))
        self._moved = ctypes.c_int64()

    def _lie_in(self, blocks: NDArray[Any], order: Ints) -> None:
        """Blocks, and those of them in use by time; the others are spare."""
        room = len(blocks)
        runs = np.zeros((room, self._runs.shape[1]), _RUNS)
        runs[: len(self._runs)] = self._runs
        self._blocks, self._runs, self._order = blocks, runs, np.zeros(room, np.int64)
        self._order[: len(order)] = order
        # Blocks that are not in use: C takes a spare one where a block splits, and never allocates itself.
        others = np.setdiff1d(np.arange(room), order)
        self._spare = np.zeros(room, np.int64)
        self._spare[: len(others)] = others[::-1]
        steps = self._steps
        steps.room, steps.used, steps.unused = room, len(order), len(others)
        steps.blocks, steps.order = blocks.ctypes.data, self._order.ctypes.data
        steps.runs = runs.ctypes.data
        steps.spare = self._spare.ctypes.data

    def make_room(self, steps: int) -> None:
        """See to it that so many more steps have room, wherever they are put."""
        # Each block in use, and each that the new steps fill, may split and then needs a spare one. C does
        # not allocate in the middle of a change, so the room is made before it.
        used = self._steps.used
        needed = used + 2 * steps // CAPACITY + 1
        if self._steps.unused < needed:
            room = len(self._blocks)
            larger = np.zeros(room + 2 * (room + needed), _BLOCK)
            larger[:room] = self._blocks
            self._lie_in(larger, self._order[:used].copy())

    @property
    def version(self) -> int:
        """How often nodes have been given back."""
        return int(self._steps.version)

    def note_all(self, when: float) -> None:
        """From this time on enough for any class may have been given back."""
        self._c.dovetail_steps_note_all(self._at, when)

    def advance_to(self, now: float) -> None:
        """Forget what is over; the first step begins at this instant."""
        self._c.dovetail_steps_advance(self._at, now)

    def gap(self, nodes: int, duration: float, now: float) -> float:
        """The first time from which so many nodes are free for so long; infinite if there is none."""
        return float(self._c.dovetail_steps_first_gap(self._at, nodes, duration, inf, now))

    def least_free(self, start: float, end: float) -> int:
        """The least number that is free between two times, the first of them before the other."""
        return int(self._c.dovetail_steps_least(self._at, start, end))

    def take(self, start: float, end: float, nodes: int) -> None:
        """Take nodes from one time on to another, infinite perhaps."""
        self.make_room(2)
        self._c.dovetail_steps_add(self._at, start, end, -nodes)

    def give(self, start: float, end: float, nodes: int) -> None:
        """Give nodes back, and note it for the classes that may fit now."""
        self.make_room(2)
        self._c.dovetail_steps_give(self._at, start, end, nodes)

    def compress_promises(
        self, now: float, runs: Ints, slots: Floats, new_runs: Ints, new_slots: Floats
    ) -> tuple[int, int]:
        """Make every promise anew in turn; gives how many new runs there are, and how many jobs have moved.

        ``runs`` has shape ``(runs, 4)``: nodes, jobs, class, version; ``slots`` shape ``(runs, 2)``: start,
        duration. The new ones must have room for one run a job, and the steps for four a job.
        """
        count = self._c.dovetail_steps_compress(
            self._at, now, runs.ctypes.data, slots.ctypes.data, len(runs), new_runs.ctypes.data,
            new_slots.ctypes.data, ctypes.byref(self._moved),
        )  # fmt: skip
        return int(count), int(self._moved.value)


@cache
def _classes_up_to(most: int) -> Ints:
    """The class of each number of nodes from 0 on: eight to every doubling, each its own up to 15."""
    numbers = np.arange(1, most + 1)
    octave = np.maximum(0, np.log2(numbers).astype(np.int64) - 3)
    return np.concatenate(([0], 8 * octave + (numbers >> octave) - 1))
