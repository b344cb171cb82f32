"""Cgroups for the jobs of one run, where they can be made (version 2); what a killed supervisor left of them.

The supervisor makes and removes them; no other process does while it lives. The standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.process.spawn_log import SpawnLog

MOST_FAILED = 3
"""Cgroups that could not be made or entered, after which no more are tried."""


class Group:
    """A cgroup for one job at a time; ``limited``: the kernel holds it to a limit of memory."""

    __slots__ = ("door", "events", "limited", "path")

    def __init__(self, path: str, door: int, events: int, limited: bool) -> None:
        self.path, self.door, self.events, self.limited = path, door, events, limited

    def has_processes(self) -> bool:
        """Whether any process lives in it, or below; in one that was removed from outside none does."""
        try:
            return b"populated 1" in os.pread(self.events, 256, 0)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return False

    def holds_others(self, leader: int) -> bool:
        """Whether another process than this one lives in it."""
        if not self.has_processes():
            return False
        with open(f"{self.path}/cgroup.procs", "rb") as file:
            return any(int(pid) != leader for pid in file.read().split())

    def kill(self) -> bool:
        """Kill all that lives in it; whether that was anything. Waits for 50 ms at most until it is gone."""
        if not self.has_processes():
            return False
        # This also gets what forks while it is killed, which signals one by one do not.
        write_control(f"{self.path}/cgroup.kill", b"1")
        for _ in range(50):
            if not self.has_processes():
                break
            time.sleep(0.001)
        return True

    def peak_memory(self) -> int:
        """The most bytes that it has held; 0 where the kernel does not report it (before Linux 5.19)."""
        try:
            with open(f"{self.path}/memory.peak", "rb") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def out_of_memory(self) -> bool:
        """Whether the kernel has killed for want of memory."""
        with open(f"{self.path}/memory.events", "rb") as file:
            return any(line.startswith(b"oom_kill ") and line != b"oom_kill 0\n" for line in file)


class Groups:
    """Cgroups of one run, below the one that we are in or, where that has been delegated, beside it.

    One that is empty is used again: to enter and to leave costs 20 us, to make and to remove one 80 more. A
    limit of memory gets a new one. ``place`` is empty where no cgroups can be made; ``memory``: whether
    the kernel limits it. Without a name of a ``run`` there are none.
    """

    def __init__(self, run: str) -> None:
        self.place, self.memory, self.home, self.made, self.failed = "", False, -1, 0, 0
        self.free: list[Group] = []
        self.all: list[Group] = []
        if not run or os.environ.get("DOVETAIL_CGROUPS") == "off":
            return
        try:
            own = own_cgroup()
            self.home = os.open(f"{own}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            above, self.memory = with_memory(own)
            place = f"{above}/dovetail-{run}"
            if os.path.isdir(place):
                # Of a supervisor of this run that was killed.
                remove_groups(place)
            os.makedirs(place, exist_ok=True)
            if self.memory:
                write_control(f"{place}/cgroup.subtree_control", b"+memory")
            self.place = place
        except OSError:
            self.close()

    def enter_group(self, limit: int | None) -> Group | None:
        """Go where a job is to be born; ``None`` where we stay where we are."""
        if not self.place or self.failed >= MOST_FAILED:
            return None
        limited = limit is not None and self.memory
        try:
            group = (
                self.free.pop() if self.free and not limited else self.make_group(limit if limited else None)
            )
            # "0" is the writing process: a child forked now is born inside, without a moment outside.
            os.write(group.door, b"0")
        except OSError:
            self.failed += 1
            return None
        return group

    def make_group(self, limit: int | None) -> Group:
        """A new one."""
        self.made += 1
        path = f"{self.place}/{os.getpid()}-{self.made}"
        os.mkdir(path)
        if limit is not None:
            write_control(f"{path}/memory.max", b"%d" % limit)
            # All of a job or nothing: one that lost a process to the kernel would hang, or compute nonsense.
            write_control(f"{path}/memory.oom.group", b"1")
            if os.path.exists(f"{path}/memory.swap.max"):
                write_control(f"{path}/memory.swap.max", b"0")
        # Held open: to enter and to look then cost no walk along the path.
        door = os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        events = os.open(f"{path}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        group = Group(path, door, events, limit is not None)
        self.all.append(group)
        return group

    def leave(self, group: Group) -> None:
        """Go home, and leave the job where it is. Where that cannot be done, nothing is ever killed there."""
        for _ in range(3):
            try:
                os.write(self.home, b"0")
                return
            except OSError:
                continue
        # We are still in the job's group: a kill there would end the supervisor itself.
        self.place, group.path = "", ""

    def give_back(self, group: Group, *, empty: bool = False) -> None:
        """The job is over, and all that it left; ``empty``: that has been seen."""
        if not group.path or (not empty and group.has_processes()):
            return
        if not group.limited:
            self.free.append(group)
            return
        self.all.remove(group)
        os.close(group.door)
        os.close(group.events)
        remove_groups(group.path)

    def close(self) -> None:
        """Leave nothing."""
        for group in self.all:
            os.close(group.door)
            os.close(group.events)
        self.all.clear()
        self.free.clear()
        if self.place:
            remove_groups(self.place)
            self.place = ""
        if self.home >= 0:
            os.close(self.home)
            self.home = -1


def write_control(path: str, data: bytes) -> None:
    """Write into a file of a cgroup. Raises `OSError`."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def own_cgroup() -> str:
    """The folder of the cgroup (version 2) that we are in. Raises `OSError` where there is none."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split() for line in file if " - cgroup2 " in line]
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = [line[3:].rstrip("\n") for line in file if line.startswith("0::/")]
    for _, _, _, root, point, *_ in fields:
        for path in own:
            # A container sees a part of the hierarchy; a path outside of it cannot be opened from here.
            inside = root == "/" or path == root or path.startswith(f"{root}/")
            if inside and not path.startswith("/.."):
                return (point + (path if root == "/" else path[len(root) :])).rstrip("/")
    raise FileNotFoundError(errno.ENOENT, "no cgroup of version 2")


def with_memory(own: str) -> tuple[str, bool]:
    """Where to make cgroups, and whether the kernel limits their memory there.

    Those below our own can have no limits while we are in it (but at the root); those beside it can, which is
    for us to make where what is above was delegated to us.
    """
    above = os.path.dirname(own)
    for place in (own, above):
        try:
            if place == above and not is_delegated(place):
                continue
            with open(f"{place}/cgroup.subtree_control", "rb") as file:
                if b"memory" not in file.read().split():
                    write_control(f"{place}/cgroup.subtree_control", b"+memory")
            return place, True
        except OSError:
            continue
    return own, False


def is_delegated(place: str) -> bool:
    """Whether a cgroup is another's gift to us: it is our user's, or systemd's mark is on it."""
    user = os.stat(place).st_uid
    try:
        return user == os.geteuid() != 0 or os.getxattr(place, "user.delegate") == b"1"
    except OSError:
        return False


def remove_groups(place: str) -> None:
    """Remove a cgroup and all below it, as far as nothing lives there."""
    # Bottom up: the kernel removes only cgroups without children.
    for folder, _, _ in os.walk(place, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            continue


# --- what a supervisor that was killed has left ---------------------------------------------------------


def place_of(log: SpawnLog) -> str | None:
    """Where the cgroups of a run are, if there are any; the log is untrusted, so the run must be the name."""
    name = f"dovetail-{log.header.get('run')}"
    try:
        # A supervisor killed before it could note where has made them below its own cgroup, mostly ours.
        place = log.place or f"{own_cgroup()}/{name}"
        if os.path.basename(place) != name:
            return None
        return place if os.stat(place).st_dev == os.stat(own_cgroup()).st_dev else None
    except (OSError, ValueError):
        return None


def group_of(log: SpawnLog, uid: str) -> str | None:
    """The cgroup in which a job was born."""
    place, name = place_of(log), log.starts.get(uid, {}).get("group")
    return None if place is None or not name or "/" in name or name.startswith(".") else f"{place}/{name}"


def member_processes(group: str) -> list[int]:
    """The processes in a cgroup, and in those below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", "rb") as file:  # it has just gone
            found += map(int, file.read().split())
    return found


def kill_all(group: str) -> None:
    """Kill all that lives in a cgroup; waits for half a second at most until it is gone."""
    with contextlib.suppress(OSError):  # it has gone
        write_control(f"{group}/cgroup.kill", b"1")
    for _ in range(100):
        if not member_processes(group):
            return
        time.sleep(0.005)


def clear_groups(log: SpawnLog) -> None:
    """Remove the cgroups of a run whose supervisor is dead, as far as nothing lives there."""
    place = place_of(log)
    if place is not None:
        remove_groups(place)
