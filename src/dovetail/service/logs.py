"""What jobs wrote, read in pieces."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dovetail.client.errors import Forbidden, NotFound
from dovetail.records import dataclass

PIECE = 1 << 20
"""Bytes of one answer."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where an attempt of a job writes; ``chosen`` by its user, or ours."""

    out: Path
    err: Path
    ended: bool
    chosen: bool


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file from ``offset`` on; the file has ``length`` of them now."""

    data: bytes
    offset: int
    length: int
    ended: bool


def read_log(path: Path, offset: int, ended: bool, chosen: bool) -> FilePart:
    """A piece of what was written; nothing where there is no file yet.

    Only plain files are read: a user might have named a pipe, or a device. Raises `NotFound`, `Forbidden`.
    """
    # Without blocking, so a pipe without a writer cannot hold this thread; no links among our own names.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if chosen else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        if ended:
            raise NotFound(f"{path.name}: the file is not there any more, or was never written") from None
        return FilePart(b"", 0, 0, False)
    except OSError as error:
        raise Forbidden(f"{path.name}: cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        # After opening: between a look at the path and its opening the file may be exchanged.
        if not stat.S_ISREG(found.st_mode):
            raise Forbidden(f"{path.name}: is no plain file")
        start = max(0, found.st_size + offset) if offset < 0 else offset
        data = os.pread(fd, PIECE, start) if start < found.st_size else b""
    finally:
        os.close(fd)
    return FilePart(data, start, found.st_size, ended and start + len(data) >= found.st_size)
