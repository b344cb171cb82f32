"""Whose a process on a device is: user, program, and since when, by the kernel."""

from __future__ import annotations

import os
import pwd
import time
from functools import lru_cache
from typing import Any

from dovetail.files.sentences import make_printable
from dovetail.process.processes import TICKS
from dovetail.records import dataclass


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that computes on a device. ``memory`` is its bytes there; ``since`` is in seconds, Unix time.

    ``name`` and ``user`` are empty, and ``since`` is ``None``, where the kernel shows no such process: it is
    one of another container, or has ended.
    """

    pid: int
    memory: int | None = None
    user: str = ""
    name: str = ""
    since: float | None = None
    utilisation: float | None = None

    @property
    def is_visible(self) -> bool:
        """Whether the kernel shows it to us."""
        return self.since is not None

    @property
    def process_label(self) -> str:
        """For people: ``ana's python (process 4711) since 14:02``."""
        if self.since is None:
            return f"a process of another container (process {self.pid})"
        return f"{self.user}'s {self.name} (process {self.pid}) since {_format_clock(self.since)}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"pid": self.pid, "user": self.user, "name": self.name, "memory": self.memory}


def process_of(pid: int, memory: int | None = None, utilisation: float | None = None) -> DeviceProcess:
    """A process as its driver names it, with what the kernel knows of it."""
    # One file has all: devices are looked at often, and each process costs what its files cost.
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return DeviceProcess(pid, memory, utilisation=utilisation)
    try:
        owner, (head, _, rest) = os.fstat(file).st_uid, os.read(file, 1024).rpartition(b")")
    except OSError:  # it has just ended
        return DeviceProcess(pid, memory, utilisation=utilisation)
    finally:
        os.close(file)
    fields = rest.split()
    if not fields or fields[0] in (b"Z", b"X"):
        return DeviceProcess(pid, memory, utilisation=utilisation)
    name = make_printable(head.partition(b"(")[2].decode("utf-8", "replace").strip())
    since = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / TICKS
    return DeviceProcess(pid, memory, user_name(owner), name, since, utilisation)


def _format_clock(moment: float) -> str:
    """Hours and minutes, with the day where it is another one."""
    then = time.localtime(moment)
    same = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", then)


@lru_cache(maxsize=256)
def user_name(number: int) -> str:
    """A user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
