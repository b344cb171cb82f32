"""Locks of files, which end with the process that has them. The standard library only.

A network file system may give none (NFS without its lock service, Lustre without ``-o flock``), and NFS gives
an exclusive one only through a descriptor that may write. Without locks it could not be known who lives, so
that nothing is done there: the error names the file.
"""

from __future__ import annotations

import errno
import fcntl
import os

NONE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system answers that has no locks."""


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file; ``False`` where another process has it. Raises `OSError`, with the file's name.

    For an exclusive lock the descriptor must be one to write with.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        number = errno.ENOLCK if error.errno in NONE else error.errno
        raise OSError(number, os.strerror(number or 0), _name_of(fd)) from error
    return True


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Whether a process has a file to itself. Raises `OSError`.

    Only to read, and shared: a process that may read the file can look, also on a file system that became
    read-only, and two that look at once do not take each other for the owner.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def has_locks(folder: str | os.PathLike[str]) -> bool:
    """Whether files of a folder can be locked as SQLite does it, which reports one without locks as busy."""
    name = os.path.join(folder, f".{os.urandom(8).hex()}.locked")
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return True  # not known
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NONE
    finally:
        os.close(fd)
        os.unlink(name)
    return True


def _name_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
