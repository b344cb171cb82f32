"""What a machine lacks for a moment: one class of reasons, one set of words. The standard library only.

For want of these nothing fails: what was to be started waits until it can be, with the reason.
"""

from __future__ import annotations

import errno
import os

WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.ENOLCK: "the file system has no locks (on NFS: no lock service); XDG_STATE_HOME may name another",
    errno.ESTALE: "the file system was taken away by its server (stale file handle)",
    errno.EMFILE: "no file descriptors are left (ulimit -n)",
    errno.ENFILE: "no file descriptors are left on this machine",
    errno.EAGAIN: "no more processes can be started (ulimit -u, or the pids.max of a cgroup)",
    errno.ENOMEM: "there is no memory for another process",
}
"""By the kernel's error."""
OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""What no file has to do with."""
NO_INODES = "no inodes are left on the disk"
LEAST_WRITTEN = 1 << 12
LEAST_BYTES = 1 << 20
"""Free bytes of a file system below which nothing is started on it."""


class NoPlaceError(Exception):
    """A file lies where a folder is to be: until it is gone nothing can be written there."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place}: found a file, expected a folder")


def lack_of(error: BaseException | None, path: str = "") -> str:
    """What is lacking by an error, or one that it came from; empty where that is about something else.

    ``path`` (default: the error's own) is where bytes or inodes were wanted.
    """
    while error is not None:
        if isinstance(error, NoPlaceError):
            return str(error)
        if isinstance(error, OSError) and error.errno in WORDS:
            where = path or (error.filename if isinstance(error.filename, str) else "")
            if error.errno == errno.ENOSPC and where and lacks_inodes(where):
                return NO_INODES
            return WORDS[error.errno]
        error = error.__cause__
    return ""


def describe_lack(error: OSError) -> str:
    """What is lacking by an error, as a clause that names the file where its file system lacks it."""
    named = isinstance(error.filename, str | bytes) and error.errno not in OF_THE_PROCESS
    where = f"{os.fsdecode(error.filename)}: " if named else ""
    return where + (lack_of(error) or error.strerror or "")


def why_unwritable(folder: str) -> str:
    """Why nothing can be written to a folder now; empty where it can.

    SQLite reports a quota, a handle that became stale, and much else, as nothing but an error of the disk.
    """
    name = os.path.join(folder, f".{os.urandom(8).hex()}.tried")
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(LEAST_WRITTEN))
            os.fsync(fd)
        finally:
            os.close(fd)
            os.unlink(name)
    except OSError as error:
        return lack_of(error, folder) or error.strerror or ""
    return ""


def lacks_inodes(path: str) -> bool:
    """Whether the file system of a path, or of the folder it is to be in, has no inodes left, but bytes."""
    for place in (path, os.path.dirname(path)):
        try:
            found = os.statvfs(place or ".")
        except OSError:
            continue
        return found.f_files > 0 and found.f_favail == 0
    return False


def lack_at(folder: str) -> str:
    """What the file system of a folder lacks now; empty where it has enough. Raises `OSError`."""
    found = os.statvfs(folder)
    if found.f_files > 0 and found.f_favail == 0:
        return NO_INODES
    return WORDS[errno.ENOSPC] if found.f_bavail * found.f_frsize < LEAST_BYTES else ""
