"""Whose a process on a device is: user, program, and since when, by the kernel."""

from __future__ import annotations

import os
import pwd
import time
from typing import Any

from dovetail.files.sentences import make_printable
from dovetail.process.processes import started_at
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
    began = started_at(pid)
    if began is None:
        return DeviceProcess(pid, memory, utilisation=utilisation)
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = make_printable(file.read().strip())
    except OSError:  # it has just ended
        return DeviceProcess(pid, memory, utilisation=utilisation)
    since = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + began
    return DeviceProcess(pid, memory, user_name(owner), name, since, utilisation)


def _format_clock(moment: float) -> str:
    """Hours and minutes, with the day where it is another one."""
    then = time.localtime(moment)
    same = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same else "%Y-%m-%d %H:%M", then)


def user_name(number: int) -> str:
    """A user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
