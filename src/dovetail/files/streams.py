"""Standard error that never fails: what cannot be told there must not end what is being told of."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

__all__ = ["Forgiving", "forgiving_stderr"]


class Forgiving:
    """A text stream; once it cannot be written to, full disk or nobody at the other end, it is silent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or be silent from now on."""
        try:
            return self._stream.write(text)
        except OSError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        """Flush, or be silent from now on."""
        try:
            self._stream.flush()
        except OSError:
            self._silence()

    def _silence(self) -> None:
        """Send what is still in the buffer, which would fail again at the end of the process, nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def forgiving_stderr() -> None:
    """Make standard error of this process a `Forgiving` one."""
    if not isinstance(sys.stderr, Forgiving):
        sys.stderr = Forgiving(sys.stderr)
