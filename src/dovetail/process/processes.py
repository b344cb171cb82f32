"""Facts of the kernel about processes: which live, in what place, kin, sessions, groups, a socket.

Standard library only: supervisors are run by path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Container, Iterator, Mapping
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
SLACK = 1.0
"""Seconds within which a process must have been started after its recorded moment to be the one meant."""


def boot_id() -> str:
    """Changes when the machine starts anew."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_origin() -> dict[str, str]:
    """Where a pid of ours means something: the host, its boot, and the PID namespace.

    The host is ``$DOVETAIL_HOST`` where that is set (containers whose names are made up anew), else the
    machine's name. The number of a namespace is given again at once: the start of its process 1 makes it
    unique.
    """
    try:
        first = stat_of(1)[19].decode()
    except OSError:  # hidden from this account
        first = ""
    return {
        "host": os.environ.get("DOVETAIL_HOST") or os.uname().nodename,
        "boot_id": boot_id(),
        "ns": f"{os.stat('/proc/self/ns/pid').st_ino}.{first}",
    }


def standing_of(record: Mapping[str, Any], *, locked: bool = False) -> str:
    """Where the processes of a record (with what `process_origin` gave) are, seen from here.

    ``here``: a pid of it may be looked at; ``boot``: they ended when this host was started anew;
    ``namespace``: they are in another PID namespace of this machine, or ended with it; ``host``: on another
    host, which only that host knows more about. ``locked``: a lock of theirs is held, so that they live.
    """
    now = process_origin()
    if record.get("boot_id", now["boot_id"]) != now["boot_id"]:
        return "host" if locked or record.get("host", now["host"]) != now["host"] else "boot"
    return "here" if record.get("ns", now["ns"]) == now["ns"] else "namespace"


def sees_itself() -> bool:
    """Whether ``/proc`` is the one of our PID namespace."""
    return os.readlink("/proc/self") == str(os.getpid())


def stat_of(pid: int) -> list[bytes]:
    """The kernel's fields of a process (``/proc/PID/stat``), from its state on. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        # The name may hold spaces and brackets: fields are counted from its last bracket.
        return file.read(1024).rpartition(b")")[2].split()


def start_ticks(pid: int) -> int | None:
    """When a living process was started, in ticks since boot; ``None`` if there is none (or a zombie)."""
    try:
        fields = stat_of(pid)
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def started_at(pid: int) -> float | None:
    """The same in seconds."""
    ticks = start_ticks(pid)
    return None if ticks is None else ticks / TICKS


def is_alive(pid: int, boot: float) -> bool:
    """Whether the process that was started at ``boot`` seconds since boot still runs under this pid."""
    start = started_at(pid)
    # Start times are rounded down to a tick (10 ms), and ``boot`` was read just before the start.
    return start is not None and -0.05 <= start - boot <= SLACK


def ran_last(pid: int) -> float | None:
    """When a process (mostly a zombie) was last on a core, in seconds of the monotonic clock.

    By the scheduler's own account, which goes by a clock of each core: that is read off ourselves, there.
    ``None`` where the kernel does not show it (without CONFIG_SCHED_DEBUG). Moves us to another core for
    a moment.
    """
    allowed = os.sched_getaffinity(0)
    try:
        core = int(stat_of(pid)[36])
        then = _on_core_since(pid)
        os.sched_setaffinity(0, {core})
        os.sched_yield()
        now, ours = time.monotonic(), _on_core_since(os.getpid())
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.sched_setaffinity(0, allowed)
    return now - max(0.0, ours - then)


def _on_core_since(pid: int) -> float:
    """The scheduler's last look at a process, by its core's clock. Raises `OSError`, `ValueError`."""
    with open(f"/proc/{pid}/sched", "rb", buffering=0) as file:
        _, found, rest = file.read(4096).partition(b"se.exec_start")
    if not found:
        raise ValueError("the kernel does not show it")
    return float(rest.partition(b":")[2].split(maxsplit=1)[0]) / 1e3


def parent_of(pid: int) -> int:
    """The process above one that lives. Raises `ProcessLookupError`."""
    try:
        return int(stat_of(pid)[1])
    except OSError:
        raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended") from None


def child_processes() -> list[int]:
    """Processes that our main thread has started or inherited; none where the kernel keeps no list."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb", buffering=0) as file:
            return [int(pid) for pid in file.read(1 << 20).split()]
    except OSError:
        return []


def is_zombie(pid: int) -> bool:
    """Whether a process has ended, and its end has not been taken yet."""
    try:
        return stat_of(pid)[0] == b"Z"
    except OSError:
        return False


def all_pids() -> Iterator[int]:
    """Every process that there is, for a moment."""
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def marked_processes(uids: Container[str]) -> Iterator[tuple[str, int]]:
    """Processes that have one of these as their DOVETAIL_UID; as (uid, pid)."""
    for pid in all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                _, found, rest = (b"\0" + file.read()).partition(b"\0DOVETAIL_UID=")
        except OSError:
            # It has ended, or is another user's.
            continue
        uid = os.fsdecode(rest.partition(b"\0")[0])
        if found and uid in uids:
            yield uid, pid


def open_children() -> int:
    """The kernel's list of our children, -1 if it keeps none (without CONFIG_PROC_CHILDREN)."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def belongs_to_job(pid: int, uid: str, session: int) -> bool:
    """Whether a living process comes from the job with this uid and session."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environ = file.read(1 << 20)
        # The variable finds what has made a session of its own, the session what has cleared its environment.
        named = f"DOVETAIL_UID={uid}".encode() in environ.split(b"\0")
        return bool(environ) and (named or os.getsid(pid) == session)
    except OSError:
        # It has just ended, or became another user's.
        return False


def memory_by_session() -> dict[int, int]:
    """Resident bytes of all processes, by the session that they are in; shared pages count for each."""
    found: dict[int, int] = {}
    for pid in all_pids():
        try:
            fields = stat_of(pid)
        except OSError:  # it has just ended
            continue
        session = int(fields[3])
        found[session] = found.get(session, 0) + int(fields[21]) * PAGE
    return found


def signal_some(pid: int, number: int, to: str) -> None:
    """Signal a job whose first process is ``pid``: ``all`` of its group, its ``first``, or all ``others``.

    The others are those of its session, so that groups that a shell makes get it, too.
    """
    if to == "all":
        signal_group(pid, number)
        return
    for one in [pid] if to == "first" else all_pids():
        # It has just ended, or is another user's.
        with contextlib.suppress(OSError):
            if to == "first" or (one != pid and os.getsid(one) == pid):
                os.kill(one, number)


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

    ``None`` where it cannot be made (a file system without sockets): then there is no take-over.
    """
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # By the descriptor: a socket's name has 108 bytes at most, and a run folder's may be longer.
    path = f"/proc/self/fd/{place}/supervisor.sock"
    # Only our user may connect: a client can start and end jobs in our name.
    before = os.umask(0o177)
    try:
        if os.path.lexists(path):
            # Of a supervisor that was killed: the lock on the log proves that we are alone.
            os.unlink(path)
        door.bind(path)
        door.listen(4)
        door.setblocking(False)
    except OSError:
        door.close()
        os.close(place)
        return None
    finally:
        os.umask(before)
    # ``place`` stays open: the socket's name goes through it.
    return door
