"""The cgroups that a supervisor which was killed has left: what lives in them, and how they go.

The supervisor makes and removes them (`dovetail.executors.job_groups`); nobody else while it lives.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from dovetail.executors.job_groups import own_cgroup, put, remove_groups
from dovetail.executors.spawnlog import SpawnLog


def place_of(log: SpawnLog) -> Path | None:
    """Where the cgroups of a run are, if there are any: a log may say anything, the run must be the name."""
    name = f"dovetail-{log.header.get('run')}"
    try:
        # A supervisor killed before it could say where has made them below its own cgroup, mostly ours.
        place = Path(log.place or f"{own_cgroup()}/{name}")
        if place.name != name:
            return None
        return place if place.stat().st_dev == os.stat(own_cgroup()).st_dev else None
    except (OSError, ValueError):
        return None


def group_of(log: SpawnLog, uid: str) -> Path | None:
    """The cgroup in which a job was born."""
    place, name = place_of(log), log.starts.get(uid, {}).get("group")
    return None if place is None or not name or "/" in name or name.startswith(".") else place / name


def members(group: Path) -> list[int]:
    """The processes in a cgroup, and in those below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):  # it has just gone
            found += map(int, Path(folder, "cgroup.procs").read_bytes().split())
    return found


def kill(group: Path) -> None:
    """Kill all that lives in a cgroup; waits for half a second at most until it is gone."""
    with contextlib.suppress(OSError):  # it has gone
        put(f"{group}/cgroup.kill", b"1")
    for _ in range(100):
        if not members(group):
            return
        time.sleep(0.005)


def clear(log: SpawnLog) -> None:
    """Remove the cgroups of a run whose supervisor is dead, as far as nothing lives there."""
    place = place_of(log)
    if place is not None:
        remove_groups(str(place))
