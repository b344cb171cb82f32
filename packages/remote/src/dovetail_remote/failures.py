"""Calls that failed on a device, until the program receives the failure.

A call is sent ahead, so its caller is elsewhere when it fails. The failure is kept in place of the
arrays that the call should have given, and is raised where the program next waits for the device, as the
exception that the call would have raised, with the line that made it.
"""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

import numpy as np

from dovetail.errors import DeviceError
from dovetail.records import dataclass

CALL_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What functions over arrays raise; backends add their own."""

_RAISED_AS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        AttributeError,
        BufferError,
        DeviceError,
        FloatingPointError,
        IndexError,
        MemoryError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
        np.exceptions.AxisError,
        np.linalg.LinAlgError,
    )
}
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in a call, and the site (a number of `CallSites`) that made it."""

    kind: str
    message: str
    call: str
    site: int

    @classmethod
    def of(cls, error: Exception, call: str, site: int) -> Failure:
        """From the exception that a call raised."""
        names = [kind.__name__ for kind in type(error).__mro__]
        kind = next((name for name in names if name in _RAISED_AS), "RuntimeError")
        if "OutOfMemoryError" in names:  # torch's is a RuntimeError
            kind = "MemoryError"
        message = " ".join(str(error).split()) or type(error).__name__
        if kind != type(error).__name__ and kind == "RuntimeError":
            message = f"{type(error).__name__}: {message}"
        return cls(kind, message[:_LONGEST], call, site)

    def exception(self, where: str) -> Exception:
        """The exception to raise; ``where`` is the line that made the call."""
        message = f"{self.message} ({self.call}, called {where})"
        kind = _RAISED_AS.get(self.kind, RuntimeError)
        return kind(message)

    def as_json(self) -> list[Any]:
        """JSON-ready values; `parse_failure` reads them."""
        return [self.kind, self.message, self.call, self.site]

    @classmethod
    def parse_failure(cls, data: Any) -> Failure:
        """From JSON. Raises `ValueError`."""
        kind, message, call, site = data
        if not all(isinstance(text, str) for text in (kind, message, call)) or type(site) is not int:
            raise ValueError("a failure")
        return cls(kind, message[:_LONGEST], call[:100], site)


class FailedError(Exception):
    """A result that is needed is not there: its call failed, and the program has to receive that failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class CallSites:
    """The places in the program that make calls, each with a number; as many as the program has."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._numbers: dict[tuple[CodeType, int], int] = {}
        self._places: list[tuple[CodeType, int]] = []

    def number(self, frame: FrameType | None) -> int:
        """Of the innermost frame at or above ``frame`` that is not in the folder ``ours``."""
        while frame is not None and frame.f_code.co_filename.startswith(self._ours):
            frame = frame.f_back
        if frame is None:
            return -1
        place = (frame.f_code, frame.f_lasti)
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self._places)
            self._places.append(place)
        return number

    def where(self, number: int) -> str:
        """``at FILE, line N, in FUNCTION``."""
        if not 0 <= number < len(self._places):
            return "at a place that is not known"
        code, instruction = self._places[number]
        line = code.co_firstlineno
        for begin, end, found in code.co_lines():
            if begin <= instruction < end and found is not None:
                line = found
        name = "" if code.co_name == "<module>" else f", in {code.co_name}"
        return f"at {code.co_filename}, line {line}{name}"
