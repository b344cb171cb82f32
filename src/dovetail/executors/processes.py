"""What a supervisor asks of the kernel: kin, sessions, groups, a socket. Standard library only."""

from __future__ import annotations

import os
import socket

PAGE = os.sysconf("SC_PAGE_SIZE")


def open_children() -> int:
    """The kernel's list of our children, -1 if it keeps none (without CONFIG_PROC_CHILDREN)."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def belongs(pid: int, uid: str, session: int) -> bool:
    """Whether a living process comes from the job with this uid and session."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environ = file.read(1 << 20)
        named = f"DOVETAIL_UID={uid}".encode() in environ.split(b"\0")
        return bool(environ) and (named or os.getsid(pid) == session)
    except OSError:  # it has just ended, or became another user's
        return False


def memory_by_session() -> dict[int, int]:
    """Resident bytes of all processes, by the session that they are in; shared pages count for each."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    fields = file.read(1024).rpartition(b")")[2].split()
            except OSError:  # it has just ended
                continue
            session = int(fields[3])
            found[session] = found.get(session, 0) + int(fields[21]) * PAGE
    return found


def signal_group(pid: int, number: int) -> bool:
    """Signal a process group; whether it has members (another user's count)."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def open_door(folder: str) -> socket.socket | None:
    """The socket at which another Dovetail may take over; the folder may have a long name.

    ``None`` where it cannot be made (a file system without sockets): then nobody takes over.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = f"/proc/self/fd/{place}/supervisor.sock"
    before = os.umask(0o177)
    try:
        if os.path.lexists(path):
            os.unlink(path)  # of a supervisor that was killed: the lock on the log says that we are alone
        door.bind(path)
        door.listen(4)
        door.setblocking(False)
    except OSError:
        door.close()
        os.close(place)
        return None
    finally:
        os.umask(before)
    return door  # ``place`` stays open: the socket's name goes through it
