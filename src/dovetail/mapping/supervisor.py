"""The supervisor of a map's workers: that of jobs, but what it starts ends with Dovetail.

Started by `dovetail.mapping.local` as ``python -I -S supervisor.py SOCKET LOG DESCRIPTORS PID FD…``: as
`dovetail.process.supervisor`, with a socket over which each worker's descriptors come before its request,
and Dovetail's process, which is watched itself and not only by its socket. The log is a file in memory, since
nothing is left to take up. While it lives it holds the last descriptors open, by which the workers' cores and
devices are claimed.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
import time
from typing import Any

# Run by path, as that of jobs.
if not __package__:
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from dovetail.process import supervisor
from dovetail.process.channel import become_subreaper
from dovetail.process.children import Child

MOST_FDS = 4
FIRST_FD, SPARE_FD = 3, 64
"""A worker finds its descriptors at 3, 4, …; until then they are out of the way of these numbers."""
PATIENCE = 5.0
"""Seconds in which all that a worker has started must be gone; what hangs in the kernel is left."""
PAUSE = 0.002


class WorkerSupervisor(supervisor.Supervisor):
    """Starts workers with the descriptors that came for them, and ends all when ``dovetail`` has gone."""

    def __init__(self, sock: int, log: int, parcels: socket.socket, dovetail: int) -> None:
        super().__init__(sock, log, time.time() - time.monotonic(), None)
        self.parcels, self.dovetail = parcels, dovetail
        self.watched = False

    def run_turn(self, woken: int) -> None:
        """Also look whether Dovetail lives."""
        if not self.watched:
            self.watched = True
            self.poll.register(self.dovetail, select.POLLIN)
        super().run_turn(woken)

    def read_descriptor(self, fd: int) -> None:
        """Dovetail has ended, though others may have inherited its end of the socket."""
        self.poll.unregister(fd)
        self.end_all()

    def receive_requests(self) -> None:
        """Requests; their end is the end of all workers."""
        super().receive_requests()
        if not self.client:
            self.end_all()

    def end_all(self) -> None:
        """Kill all workers; we leave after the last one."""
        self.closing = True
        for child in self.children.values():
            self.stop(child, "CANCELLED", 0.0)

    def launch(self, job: dict[str, Any], line: bytes) -> bool:
        """Start a worker with its descriptors."""
        _, fds, _, _ = socket.recv_fds(self.parcels, 1, MOST_FDS)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE_FD) for fd in fds]
        self.starter.inherited = {FIRST_FD + n: fd for n, fd in enumerate(high)}
        try:
            return super().launch(job, line)
        finally:
            self.starter.inherited = {}
            for fd in (*fds, *high):
                os.close(fd)

    def kill_strays(self, ended: Child) -> bool:
        """Kill all that a worker has started: programs, and theirs, which come back to us one by one."""
        found, deadline = False, time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if super().kill_strays(ended):
                found = True
            elif not found:
                break
            else:
                # What ends may not have given its children back yet.
                time.sleep(PAUSE)
                if not super().kill_strays(ended):
                    break
            time.sleep(PAUSE)
        return found


def main() -> None:
    """Take over the inherited descriptors and serve."""
    sock, log, parcels = map(int, sys.argv[1:4])
    for fd in (sock, log, parcels, *map(int, sys.argv[5:])):
        os.set_inheritable(fd, False)
    os.set_blocking(sock, False)
    become_subreaper()
    try:
        dovetail = os.pidfd_open(int(sys.argv[4]))
    except ProcessLookupError:
        return
    WorkerSupervisor(sock, log, socket.socket(fileno=parcels), dovetail).run()


if __name__ == "__main__":
    main()
