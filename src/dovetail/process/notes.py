"""Files that a run keeps for the next Dovetail: private, of one JSON object a line, what is torn left out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.errors import ExecutorError
from dovetail.files.writing import write_all


@contextmanager
def refuse_errors(path: str | os.PathLike[str], what: str = "written") -> Iterator[None]:
    """Raises `ExecutorError` for an `OSError`: which file it is that cannot be ``what``, and why."""
    try:
        yield
    except OSError as error:
        raise ExecutorError(f"{os.fspath(path)}: cannot be {what}: {error.strerror}") from error


def private_file(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor for writing to a file that its owner only can read; never through a link.

    Raises `OSError`.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)


def write_private(path: str | os.PathLike[str], data: bytes, flags: int) -> None:
    """Write to such a file, by one write. Raises `ExecutorError`."""
    with refuse_errors(path):
        descriptor = private_file(path, flags)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)


def line_of(record: Mapping[str, Any]) -> bytes:
    """A record as a line."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def append_note(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record. Raises `ExecutorError`."""
    write_private(path, line_of(record), os.O_APPEND)


def read_notes(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; none if it is not there. Raises `ExecutorError` where it cannot be read."""
    with refuse_errors(path, "read"):
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            # Empty, or torn by a full disk or a crash.
            continue
        if isinstance(record, dict):
            yield record
