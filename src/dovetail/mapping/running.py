"""Running a batch of items in a worker, of whatever engine: results, failures, times."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from functools import partial
from typing import Any

from dovetail.mapping.folding import Fold
from dovetail.mapping.function import Reference
from dovetail.records import dataclass

SELF_EXPLAINING = ("WorkerLost", "ProgramFailed")
"""Kinds of failure whose message needs no kind before it."""
IN_A_ROW = 3
"""A batch ends after so many failures in a row: perhaps the rest does better on another worker."""
MANY, SPAN = 256, 32
"""A batch of more than so many items reports only every so many where it is."""
COMBINING, UNREADABLE = -1, -2
"""Positions of failures that are a batch's and no item's: combining results; reading items or results."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One item that gave no result: what was raised, and where.

    ``position`` counts within the batch; below 0 it is the batch that failed (`COMBINING`, `UNREADABLE`).
    ``error`` is the pickled exception, empty where it could not be pickled and read again.
    """

    position: int
    kind: str
    message: str
    traceback: str
    error: bytes = b""

    def __str__(self) -> str:
        if self.kind in SELF_EXPLAINING:
            return self.message
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, slots=True)
class Work:
    """What all items of a map have in common: arguments of every call, and how results are folded."""

    common: Mapping[str, Any]
    fold: Fold | None


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that a user's code raised, kept as a value."""

    error: BaseException


def try_call(call: Callable[..., Any], *args: Any) -> Any:
    """What a user's code returns, or `Caught` with whatever it raises: a report, never silence."""
    try:
        return call(*args)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, SystemExit too
        return Caught(error)


def load_function(shipped: bytes) -> Callable[..., Any]:
    """The function that was shipped. Raises what unpickling and importing raise."""
    found = pickle.loads(shipped)
    return found.load() if isinstance(found, Reference) else found


def run_items(
    function: Callable[..., Any],
    items: Sequence[Any],
    work: Work,
    progress: MutableSequence[int] | None = None,
) -> tuple[list[Any], list[Failure], float]:
    """Results by position (``None`` where there is none), failures, and seconds of the function alone.

    There are fewer results than items where `IN_A_ROW` items failed one after the other: no more were run.

    ``progress`` is kept at (first position, number) of items of which one runs. Of a few items it is always
    the one; of many, which are tiny, `SPAN` together.
    """
    call = partial(function, **work.common) if work.common else function
    if work.fold is not None:
        call = work.fold.prepare_call(call)
    progress = [0, 1] if progress is None else progress
    progress[1] = span = SPAN if len(items) > MANY else 1
    values: list[Any] = []
    failures: list[Failure] = []
    row = 0
    began = time.perf_counter()
    for low in range(0, len(items), span):
        progress[0] = low
        rest = iter(items[low : low + span])
        while True:
            try:
                values.extend(map(call, rest))
                break
            except BaseException as error:  # noqa: BLE001 - reported with its item, whatever it is
                row = row + 1 if failures and failures[-1].position == len(values) - 1 else 1
                failures.append(describe_failure(len(values), error))
                values.append(None)
                if row == IN_A_ROW:
                    return values, failures, time.perf_counter() - began
    return values, failures, time.perf_counter() - began


def fold_batch(
    values: list[Any], failures: list[Failure], start: int, work: Work
) -> tuple[list[Any], list[Failure]]:
    """What a worker sends: the values, or, of neighbours from ``start`` on that are to be folded, nodes."""
    if work.fold is None or start < 0:
        return values, failures
    nodes: list[Any] = []
    for low, high in split_failures(len(values), failures):
        found = try_call(work.fold.fold_values, start + low, values[low:high])
        if isinstance(found, Caught):
            return [], [describe_failure(COMBINING, found.error)]
        nodes += found
    return nodes, failures


def describe_failure(position: int, error: BaseException) -> Failure:
    """An exception as a report that can travel."""
    shown = error.with_traceback(_without_ours(error))
    text = "".join(traceback.format_exception(shown))
    if isinstance(error, SystemExit):
        return Failure(position, "SystemExit", f"the function called exit ({error.code!r})", text)
    dumped = try_call(pickle.dumps, error)
    if isinstance(dumped, Caught) or isinstance(try_call(pickle.loads, dumped), Caught):
        dumped = b""
    return Failure(position, type(error).__qualname__, str(error), text, dumped)


def _without_ours(error: BaseException) -> Any:
    """Its traceback from the user's function on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in (__name__, Fold.__module__):
        trace = trace.tb_next
    return trace or error.__traceback__


def split_failures(count: int, failures: Sequence[Failure]) -> Iterator[tuple[int, int]]:
    """The runs of positions without failures, as (start, stop)."""
    start = 0
    for failure in failures:
        if failure.position > start:
            yield start, failure.position
        start = failure.position + 1
    if start < count:
        yield start, count
