"""What one node's agents of a run leave behind: the spawn log, its lock, jobs without a supervisor.

Standard library only: `dovetail.process.agent` is run by path.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from typing import Any

from dovetail.files.locks import try_lock
from dovetail.process.processes import boot_id, marked_processes, start_ticks
from dovetail.process.spawn_writer import Log
from dovetail.process.supervisor import ENCODE


def open_log(folder: str, node: str, run: str) -> tuple[int, str]:
    """The node's spawn log in the run folder, or where that cannot be written in a folder of its own."""
    own = os.path.join(tempfile.gettempdir(), f"dovetail-{os.geteuid()}")
    error: OSError | None = None
    for place, name in ((os.path.join(folder, "agents"), node), (own, f"{run}-{node}")):
        path = os.path.join(place, f"{name}.log")
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            if os.stat(place).st_uid != os.geteuid():
                raise PermissionError(f"{place} belongs to another user")
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            return os.open(path, flags, 0o600), path
        except OSError as found:
            error = found
    raise SystemExit(f"no spawn log can be written: {error}")


def take_lock(log: int) -> None:
    """Be the only agent of the run on this node: one that was left behind is ended first."""
    before = [record for record in read_records(log) if record.get("t") == "run"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 10.0
        for record in before:
            if record["boot_id"] == boot_id() and start_ticks(record["pid"]) == record["began"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record["pid"], number)
        while time.monotonic() < deadline:
            try:
                if try_lock(log):
                    return
            except OSError:
                return  # a file system without locks
            time.sleep(0.02)
    raise SystemExit("another agent of this run holds its spawn log")


def read_records(log: int) -> list[dict[str, Any]]:
    """What an earlier agent of the run on this node has written down."""
    records: list[dict[str, Any]] = []
    for line in os.pread(log, os.fstat(log).st_size, 0).split(b"\n"):
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                records.append(record)
    return records


def end_strays(log: Log, records: list[dict[str, Any]], now: float) -> None:
    """Kill what an earlier agent had started and left running, and write down that it has ended."""
    open_ones = {r["uid"] for r in records if r.get("t") == "intent"}
    open_ones -= {r["uid"] for r in records if r.get("t") == "end"}
    if not open_ones:
        return
    for _, pid in marked_processes(open_ones):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    began_at = {r["uid"]: r["at"] for r in records if r.get("t") == "start"}
    for uid in open_ones:
        why = "its agent was killed while it ran"
        end = {"t": "end", "uid": uid, "from": began_at.get(uid, now), "at": now, "error": why}
        log.write(ENCODE({**end, "state": "NODE_FAIL"}).encode())
