"""Standard output of which every byte is written, or it fails; errors that never fail; input as text."""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, Any, TextIO

from dovetail.errors import InputError
from dovetail.files.sentences import make_printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN = "-"
"""The name of a file that stands for standard input."""
BEGINS = 2.0
"""Seconds within which the writer of a pipe begins, or ends, where no argument names standard input."""


class Whole(io.FileIO):
    """A descriptor that takes everything or fails: full disks and slow pipes take a part at a time.

    Python's own unbuffered streams (PYTHONUNBUFFERED, as in many containers) drop what was not taken.
    """

    owner: TextIO | None = None
    """Whose descriptor it is: kept, since it would close it when it goes."""

    def write(self, data: ReadableBuffer) -> int:
        """Write all of it, waiting for a pipe that others have made non-blocking. Raises `OSError`."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            done = super().write(left)
            if done is None:
                poll = select.poll()
                poll.register(self.fileno(), select.POLLOUT)
                poll.poll()
            left = left[done or 0 :]
        return size


_inputs: list[tuple[object, bytes]] = []


def is_input_given() -> bool:
    """Whether standard input is a file, or a pipe that begins within `BEGINS`, as a here-document does."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    # Notebooks and tests have streams without a descriptor; a closed one is no stream at all.
    except (AttributeError, OSError, ValueError):
        return False
    if stat.S_ISFIFO(mode):
        # A caller may never write to its pipe, nor close it: a command without words must not wait for ever.
        poll = select.poll()
        poll.register(sys.stdin.fileno(), select.POLLIN)
        if not poll.poll(BEGINS * 1000):
            return False
    elif not stat.S_ISREG(mode):
        return False
    return bool(_input_bytes().strip())


def _input_bytes() -> bytes:
    for stream, data in _inputs:
        # Kept with its stream: tests and notebooks put another in its place.
        if stream is sys.stdin:
            return data
    data = sys.stdin.buffer.read()
    _inputs[:] = [(sys.stdin, data)]
    return data


def standard_input(expected: str = "text", *, lenient: bool = False) -> str:
    """All of standard input as text, however often a program wants it. Raises `InputError`.

    With ``lenient`` bytes that are no UTF-8 stay in the text as lone surrogates.
    """
    where = "standard input"
    try:
        text = _input_bytes().decode("utf-8-sig", "surrogateescape" if lenient else "strict")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"line {line}: found a byte 0x{error.object[error.start]:02x}, expected text in UTF-8"
        raise InputError(found, where=where) from None
    if not text.strip():
        raise InputError(f"found nothing, expected {expected}", where=where)
    return text


def print_note(message: str) -> None:
    """A line for people, on standard error; what jobs are called and what they print moves no cursor."""
    print(make_printable(message), file=sys.stderr)


def ring_bell() -> None:
    """Ring the bell of the terminal that shows standard error; a file or a pipe has none."""
    if sys.stderr.isatty():
        sys.stderr.write("\a")
        sys.stderr.flush()


def whole_stream(stream: TextIO) -> TextIO:
    """The same stream, of which no byte is dropped in silence; line by line where it was unbuffered."""
    if not isinstance(stream, io.TextIOWrapper) or not isinstance(
        stream.buffer, io.BufferedWriter | io.FileIO
    ):
        return stream
    by_line = stream.line_buffering or stream.write_through
    raw = Whole(stream.fileno(), "wb", closefd=False)
    raw.owner = stream
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=by_line)


class ForgivingStream:
    """A text stream; once it cannot be written to, full disk or closed other end, it is silent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or be silent from now on."""
        try:
            return self._stream.write(text)
        except OSError:
            self._silence_buffer()
            return len(text)

    def flush(self) -> None:
        """Flush, or be silent from now on."""
        try:
            self._stream.flush()
        except OSError:
            self._silence_buffer()

    def _silence_buffer(self) -> None:
        """Send what is still in the buffer, which would fail again at the end of the process, nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        # In place of the descriptor: whatever is flushed at exit then succeeds.
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def forgiving_stderr() -> None:
    """Make standard error of this process a `ForgivingStream` one."""
    if not isinstance(sys.stderr, ForgivingStream):
        sys.stderr = ForgivingStream(whole_stream(sys.stderr))
