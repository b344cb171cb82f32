"""Functions for executors in tests, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from waiting import until

import dovetail

READY: list[str] = []


class Odd(Exception):  # noqa: N818 - an exception that cannot be read again
    """Its arguments are not those that it is made of."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unreadable:
    """Can be pickled, and not read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("no")


def square(number: int) -> int:
    """Its square."""
    return number * number


def fail(text: str) -> None:
    """Raise."""
    raise LookupError(text)


def fail_oddly() -> None:
    """Raise what cannot be read again."""
    raise Odd(1, 2)


def leave(status: int) -> None:
    """Raise `SystemExit`."""
    sys.exit(status)


def unpicklable() -> Any:
    """A lock."""
    return threading.Lock()


def unreadable() -> Any:
    """What cannot be read again."""
    return Unreadable()


def die(mark: str) -> None:
    """Be killed; ``mark`` notes each attempt."""
    with Path(mark).open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(path: str) -> str:
    """Wait for a file."""
    until(Path(path).exists)
    return path


def meet(folder: str, me: int, count: int) -> int:
    """Wait until so many are here at once."""
    Path(folder, str(me)).touch()
    until(lambda: len(list(Path(folder).iterdir())) >= count)
    return me


def short_or_long(mark: str, folder: str, me: int, count: int) -> int:
    """Short; with a ``count`` wait until so many are there at once. ``mark`` notes each attempt."""
    if mark:
        with Path(mark).open("a") as file:
            file.write("x")
    return meet(folder, me, count) if count else me


def prepare(word: str) -> None:
    """An initializer."""
    READY.append(word)


def prepared() -> tuple[int, list[str]]:
    """What the initializer left here."""
    return os.getpid(), READY


def around(*names: str) -> tuple[list[str | None], list[int]]:
    """Variables, and cores."""
    return [os.environ.get(name) for name in names], sorted(os.sched_getaffinity(0))


def total(array: Any) -> tuple[float, bool, Any]:
    """Its sum, whether it may be written to, its double."""
    return float(array.sum()), bool(array.flags.writeable), array * 2


def nest(depth: int, wide: int, options: dict[str, Any]) -> int:
    """Executors within executors: ``wide ** depth``."""
    if not depth:
        return 1
    with dovetail.Executor(wide, **options) as executor:
        return sum(executor.map(nest, [depth - 1] * wide, [wide] * wide, [options] * wide))


def nest_in_joblib(numbers: list[int]) -> list[int]:
    """A joblib pool within a worker."""
    from joblib import Parallel, delayed

    return list(Parallel(n_jobs=2)(delayed(square)(number) for number in numbers))


@dovetail.function
def kind(_: int) -> str:
    """Which implementation runs."""
    return "cpu"


@kind.gpu
def _(_: int) -> str:
    return "gpu"


def end_of(future: Future[Any]) -> BaseException | None:
    """How a future ended, within a time that no machine exceeds."""
    return future.exception(100)
