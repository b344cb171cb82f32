"""The small process that starts a map's workers, and ends them all when Dovetail has gone.

Started by `dovetail.mapping.local` as ``python -I -S supervisor.py SOCKET PID FD…``, in a session of its own;
it imports the standard library only, and has one thread, so that workers start from a process where that is
safe. While it lives it holds the descriptors open, by which the workers' cores and devices are claimed. One
JSON object a packet: ``start``, ``signal``, ``kill`` and ``close`` come in, ``started``, ``failed`` and
``ended`` go out, each with the number that Dovetail gave the worker.

Every worker leads a session. The supervisor is the subreaper of all that they start, and watches Dovetail's
process itself, not only the socket: whatever ends Dovetail ends the workers and what they have started.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__.startswith("dovetail."):
    from dovetail.executors.processes import become_subreaper
else:  # run by path, with nothing of Dovetail importable
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "executors"))
    from processes import become_subreaper

    del sys.path[0]

PACKET = 1 << 17
FIRST_FD = 3
"""A worker finds its descriptors at 3, 4, …."""
SPARE_FD = 64
PATIENCE = 5.0
"""Seconds in which all must be gone at the end; what hangs in the kernel is left."""
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Supervisor:
    """One poll loop: requests, ends of workers, the end of Dovetail."""

    def __init__(self, sock: socket.socket, dovetail: int) -> None:
        self.sock = sock
        self.dovetail = dovetail
        self.pids: dict[int, int] = {}
        self.numbers: dict[int, int] = {}
        self.open = True

    def run(self) -> None:
        """Until Dovetail closes or is gone; then nothing is left behind."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.on_term)
        for deaf in (signal.SIGINT, signal.SIGHUP):
            signal.signal(deaf, signal.SIG_IGN)
        poll = select.poll()
        for fd in (woken, self.sock.fileno(), self.dovetail):
            poll.register(fd, select.POLLIN)
        while self.open:
            for fd, _ in poll.poll():
                if fd == woken:
                    os.read(woken, 4096)
                    self.reap()
                elif fd == self.dovetail:
                    self.open = False
                else:
                    self.receive()
        self.end_all()

    def on_term(self, *_: object) -> None:
        """SIGTERM ends all, as the end of Dovetail does."""
        self.open = False

    def receive(self) -> None:
        """Carry out one request; an end of file means that Dovetail has gone."""
        try:
            data, ancillary, _, _ = self.sock.recvmsg(PACKET, socket.CMSG_SPACE(64), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.open = False
            return
        fds = [fd for *_, raw in ancillary for fd in struct.unpack(f"{len(raw) // 4}i", raw)]
        request = json.loads(data)
        number = request.get("number", -1)
        if request["do"] == "start":
            self.start(number, request, fds)
        elif request["do"] == "signal" and number in self.pids:
            os.kill(self.pids[number], request["signal"])
        elif request["do"] == "kill" and number in self.pids:
            kill_session(self.pids[number])
        elif request["do"] == "close":
            self.open = False

    def tell(self, message: dict[str, Any]) -> None:
        """Say something to Dovetail, if it is still there."""
        try:
            self.sock.send(json.dumps(message).encode())
        except OSError:
            self.open = False

    def start(self, number: int, request: dict[str, Any], fds: list[int]) -> None:
        """Start a worker with these descriptors."""
        # Out of the way of the numbers that they are to get.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE_FD) for fd in fds]
        actions = [(os.POSIX_SPAWN_DUP2, fd, FIRST_FD + i) for i, fd in enumerate(high)]
        argv = request["argv"]
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                os.environ | request["env"],
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=RESET,
            )
        except OSError as error:
            self.tell({"failed": number, "why": str(error)})
        else:
            self.pids[number], self.numbers[pid] = pid, number
            self.tell({"started": number, "pid": pid})
        finally:
            for fd in (*fds, *high):
                os.close(fd)

    def reap(self) -> None:
        """Take every child that has ended: workers, and orphans of theirs that came to us."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
            if info is None:
                return
            number = self.numbers.pop(info.si_pid, None)
            if number is not None:
                # Until it is reaped its pid, hence its session's id, cannot be given to another process.
                del self.pids[number]
                kill_session(info.si_pid)
            _, status = os.waitpid(info.si_pid, 0)
            if number is not None:
                self.tell({"ended": number, "status": status})

    def end_all(self) -> None:
        """Kill the workers, then whatever of theirs comes back to us."""
        for pid in self.numbers:
            kill_session(pid)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in children():
                os.kill(pid, signal.SIGKILL)
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return


def children() -> list[int]:
    """Our children, unreaped ones included; none where the kernel does not say."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def kill_session(session: int) -> None:
    """Kill a worker and all that is in its session, until nothing new is found."""
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        return
    killed: set[int] = set()
    while True:
        found = {
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if session_of(pid) == session
        }
        if found <= killed:
            return
        for pid in found - killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed |= found


def session_of(pid: int) -> int:
    """The session of a process; 0 if it is gone."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return 0


def main() -> None:
    """Take over the inherited socket and serve."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    for fd in (sock.fileno(), *map(int, sys.argv[3:])):
        os.set_inheritable(fd, False)
    become_subreaper()
    try:
        dovetail = os.pidfd_open(int(sys.argv[2]))
    except ProcessLookupError:
        return
    Supervisor(sock, dovetail).run()


if __name__ == "__main__":
    main()
