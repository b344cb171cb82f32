"""The log of calls that changed a server, from which it can be rebuilt elsewhere.

Source: mrCUDA's record and replay, Markthub 2015, section 3.1. The log is the frames as they were sent, in a
file without a name. When it has grown, a snapshot of the arrays takes its place, so that it stays in
proportion to what the program holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

_CHUNK = 1 << 20


class ReplayLog:
    """Frames in the order in which they were sent.

    Attributes:
        complete: whether the frames make up all that the server holds; not so while work is being moved.
        limit: bytes from which on a snapshot should take the place of the frames.
    """

    def __init__(self, least: int = 1 << 28) -> None:
        self._least = self.limit = least
        self._file = tempfile.TemporaryFile(prefix="dovetail-replay-")  # noqa: SIM115 - as long as the link
        self.size = 0
        self.complete = False

    def write(self, part: Any) -> None:
        """Add bytes."""
        self._file.write(part)
        self.size += len(part)

    def start_over(self) -> None:
        """Forget everything; what follows is a snapshot."""
        self._file.seek(0)
        self._file.truncate()
        self.size = 0
        self.complete = False

    def finish(self) -> None:
        """All that the server holds is in the log now."""
        self.complete = True
        self.limit = max(self._least, 2 * self.size)

    def iterate_frames(self) -> Iterator[bytes]:
        """Everything, in pieces."""
        self._file.flush()
        self._file.seek(0)
        while piece := self._file.read(_CHUNK):
            yield piece
        self._file.seek(0, 2)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
