"""The small process that starts a run's jobs, waits for them, and outlives Dovetail.

Started by `dovetail.executors.local` as ``python -I -S supervisor.py SOCKET LOG OFFSET FOLDER``, one for
each run (not one for each job), in a session of its own. It imports the standard library only, so that it
is up in 20 ms and stays small. It reads one JSON line a request from SOCKET (an inherited file
descriptor) and answers with one JSON line for each job that ended. A job may be to begin after others: it is
started when they have ended, and until then is nothing but a line in memory. What it does is in LOG first
(the spawn log, see `dovetail.executors.spawnlog`), one appended line at a time: the request before the
process exists, its pid after, its exit status before anybody is told. When Dovetail is gone it goes on
waiting, writes down what ends, and leaves after the last job; another Dovetail of the same user may take
the place of the first, through ``supervisor.sock`` in the run folder.

Where it may make cgroups (version 2), each job is born in one of its own, and nothing in there outlives the
job. It is also the subreaper of its jobs: a process that outlives its job comes back to it, is found by
session or by DOVETAIL_UID in its environment, and is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__.startswith("dovetail."):
    from dovetail.executors.children import Child, Setup, ended, started
    from dovetail.executors.job_groups import Group, Groups
    from dovetail.executors.processes import (
        become_subreaper,
        belongs,
        memory_by_session,
        open_children,
        signal_group,
    )
    from dovetail.executors.spawnwriter import Log
    from dovetail.executors.starting import SpawnError, enter, find_program, open_output, pin, spawn_failure
    from dovetail.executors.successors import Next, Successors
else:  # run by path, with nothing of Dovetail importable
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from children import Child, Setup, ended, started
    from job_groups import Group, Groups
    from processes import become_subreaper, belongs, memory_by_session, open_children, signal_group
    from spawnwriter import Log
    from starting import SpawnError, enter, find_program, open_output, pin, spawn_failure
    from successors import Next, Successors

    del sys.path[0]

READ = 1 << 16
LINGER = 0.02
"""Seconds between looks at a process group whose leader ended on TERM and which has its grace left."""
PULSE = 2.0
"""Seconds after which children are looked at anyway, should the word of an end be lost."""
TOLD = 0.010
"""Seconds after which Dovetail hears of an end, though the next jobs are at hand."""
WATCH = 0.5
"""Seconds between looks at the memory of jobs, where any has a limit …"""
WATCH_ANYWAY = 2.0
"""… and where none has: a process by itself is measured by the kernel, several together are only seen so."""
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
DECODE = json.JSONDecoder().decode
EMPTY: dict[str, str] = {}
EMPTY_SIZES: dict[int, int] = {}
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that Python or whoever started us may ignore; jobs get the default back."""


class Supervisor:
    """One thread, one poll loop: requests, ends of children, deadlines."""

    def __init__(self, sock: int, log: int, offset: float, door: socket.socket | None) -> None:
        self.sock = sock
        self.door = door
        self.client = True
        self.closing = False
        self.log = Log(log)
        self.offset = offset
        self.inbox = b""
        self.outbox = b""
        self.children: dict[int, Child] = {}
        self.pids: dict[str, int] = {}
        self.lingering: list[Child] = []
        self.next = Successors()
        self.at: list[int] | None = None  # whose cores we have taken on
        self.untold = 0  # lines that can wait, since the next jobs are at hand
        self.tell_by = float("inf")
        self.setups: dict[int, Setup] = {}
        self.environs: dict[int, dict[bytes, bytes]] = {}  # that clients have brought along
        self.cores = os.sched_getaffinity(0)
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.kin = open_children()
        self.groups: Groups | None = None  # made for the first job
        self.terminated = False
        self.limited: set[int] = set()  # pids of jobs with a limit of memory
        self.kill_next = float("inf")  # nobody's grace has passed before
        self.look_at = float("inf")
        self.poll = select.poll()

    def now(self) -> float:
        """Seconds since the epoch, by the monotonic clock and the client's offset: differences are exact."""
        return time.monotonic() + self.offset

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the client is gone (or has asked to close) and the last job has ended."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.note({"t": "supervisor", "pid": os.getpid(), "boot": time.clock_gettime(time.CLOCK_BOOTTIME)})
        poll = self.poll = select.poll()
        poll.register(woken, select.POLLIN)
        if self.client:
            poll.register(self.sock, select.POLLIN)
        if self.door is not None:
            poll.register(self.door, select.POLLIN)
        while self.needed():
            self.go_where_one_ends()
            found = poll.poll(self.timeout())
            if not found:
                self.reap()
            for fd, events in found:
                if fd == woken:
                    os.read(woken, 4096)
                    self.reap()
                elif self.door is not None and fd == self.door.fileno():
                    self.accept(self.door)
                elif fd == self.sock and self.client:
                    self.serve(events)
                else:
                    self.hear(fd)
            self.deadlines()
        self.leave()
        if self.groups is not None:
            self.groups.close()
        self.note({"t": "done", "cpu": time.process_time()})

    def needed(self) -> bool:
        """Whether there is anything to do, or anybody who may want something."""
        return bool(self.children or self.lingering) or (self.client and not self.closing)

    def serve(self, events: int) -> None:
        """Send to the client what it takes, and carry out what it wants."""
        if events & select.POLLOUT:
            self.flush()
        if events & ~select.POLLOUT:
            self.receive()
        if self.client:
            self.poll.modify(self.sock, select.POLLIN | (select.POLLOUT if self.outbox else 0))
        else:
            self.poll.unregister(self.sock)
            os.close(self.sock)

    def hear(self, fd: int) -> None:
        """Something has come on another descriptor."""

    def leave(self) -> None:
        """Close the door: who comes now finds nobody, and reads the log."""
        if self.door is not None:
            if os.path.lexists(self.door.getsockname()):
                os.unlink(self.door.getsockname())
            self.door.close()

    def timeout(self) -> float | None:
        """Milliseconds until something is due, ``None`` if nothing is."""
        if self.terminated:
            return 0
        if self.lingering:
            return LINGER * 1e3
        if not self.children:
            return None
        due = min(self.look_at, self.tell_by, self.kill_next)
        return min(PULSE * 1e3, max(0.0, (due - time.monotonic()) * 1e3) + 1)

    def on_term(self, *_: object) -> None:
        """SIGTERM: end all jobs; done in the loop, since a handler may interrupt anything."""
        self.terminated = True

    def deadlines(self) -> None:
        """Kill what has used up its grace; finish what lingered and is gone."""
        now = time.monotonic()
        if self.tell_by <= now:
            self.flush()
        if self.terminated:
            self.terminated = False
            self.withdraw(list(self.next.waiting))
            for child in self.children.values():
                self.stop(child, "CANCELLED", None)
        if self.look_at <= now:
            self.watch()
        if self.lingering or self.kill_next <= now:
            for child in self.children.values():
                if child.kill_at <= now:
                    child.kill_at, child.forced = float("inf"), True
                    signal_group(child.pid, signal.SIGKILL)
            self.kill_next = min((c.kill_at for c in self.children.values()), default=float("inf"))
            for child in list(self.lingering):
                if child.kill_at <= now:
                    child.survivors = child.forced = True
                    signal_group(child.pid, signal.SIGKILL)
                if not signal_group(child.pid, 0) or child.forced:
                    self.lingering.remove(child)
                    self.finish(child)

    def watch(self) -> None:
        """See how much memory jobs hold; end those whose processes hold more than they may, together."""
        self.look_at = float("inf")
        if not self.children:
            return
        self.look_at = time.monotonic() + (WATCH if self.limited else WATCH_ANYWAY)
        held = memory_by_session()
        for pid, child in self.children.items():
            used = held.get(pid, 0)
            child.peak = max(child.peak, used)
            if pid not in self.limited:
                continue
            if child.memory is not None and used > child.memory and child.reason is None:
                child.why = f"memory: its processes held {used} bytes, and may hold {child.memory}"
                child.reason, child.forced = "OUT_OF_MEMORY", True
                signal_group(pid, signal.SIGKILL)

    # --- the client -------------------------------------------------------------------------------

    def accept(self, door: socket.socket) -> None:
        """Take a new client, if the old one is gone and the new one is of our user."""
        try:
            found, _ = door.accept()
        except OSError:
            return
        peer = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if self.client or self.closing or int.from_bytes(peer[4:8], sys.byteorder) != os.geteuid():
            found.close()
            return
        self.welcome(found, {"t": "welcome"})

    def welcome(self, found: socket.socket, greeting: dict[str, Any]) -> None:
        """Serve this client from now on."""
        found.setblocking(False)
        self.sock, self.client = found.detach(), True
        self.inbox = self.outbox = b""
        self.setups.clear()  # of the old client; the new one sends its own
        self.environs.clear()
        self.poll.register(self.sock, select.POLLIN)
        self.tell(ENCODE(greeting).encode())

    def receive(self) -> None:
        """Carry out the requests that have come; an end of file means that Dovetail is gone."""
        try:
            data = os.read(self.sock, READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.client = False
            self.outbox = b""
            self.next = Successors()  # who takes up the run knows nothing of them, and starts them again
            self.note({"t": "gone"})
            return
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            self.carry_out(DECODE(line.decode()), line)

    def carry_out(self, request: dict[str, Any], line: bytes) -> None:
        """Do what one line asks for."""
        kind = request["t"]
        if kind == "intent":
            self.next.again(request["uid"])
            after = request.get("after", ())
            before = self.next.before(after, self.runs) if after else None
            if before:
                self.next.add(request["uid"], Next(request, line, before))
            else:
                self.launch(request, line)
        elif kind == "withdraw":
            self.withdraw(self.next.behind(request["uid"]), request["uid"])
        elif kind == "setup":
            self.log.write(line)
            self.setups[request["setup"]] = self.prepared(request)
        elif kind == "environ":
            self.log.write(line)
            variables = request["vars"].items()
            self.environs[request["environ"]] = {os.fsencode(k): os.fsencode(v) for k, v in variables}
        elif kind == "forget":
            for number in request["numbers"]:
                self.setups.pop(number, None)
                self.environs.pop(number, None)
        elif kind == "stop":
            pid = self.pids.get(request["uid"])
            if pid is not None:
                child = self.children[pid]
                child.why = child.why or ("" if child.reason else request.get("why", ""))
                self.stop(child, request["reason"], request["grace"])
            elif request["uid"] in self.next:
                self.withdraw([request["uid"]])
        elif kind == "signal":
            pid = self.pids.get(request["uid"])
            if pid is not None:
                signal_group(pid, request["number"])
        elif kind == "client":
            self.log.write(line)
        elif kind == "shorten":
            if self.log.shorten(request["after"], self.setups.keys(), self.environs.keys()):
                self.tell(b'{"t":"shortened"}')
        else:
            self.closing = True
            self.withdraw(list(self.next.waiting))
            for child in self.children.values():
                self.stop(child, request.get("reason", "CANCELLED"), request["grace"])

    def prepared(self, request: dict[str, Any]) -> Setup:
        """A setup as it is sent, over our own environment or one that was brought along."""
        outer = request.get("outer")
        environ = os.environb.copy() if outer is None else self.environs[outer].copy()
        environ.update((os.fsencode(name), os.fsencode(value)) for name, value in request["env"].items())
        for name in request["unset"]:
            environ.pop(os.fsencode(name), None)
        path = os.fsdecode(environ.get(b"PATH", os.defpath.encode()))
        return Setup(environ, path, request["cores"], request["cwd"], request["grace"])

    # --- jobs that begin after others -------------------------------------------------------------

    def runs(self, uid: str) -> bool:
        """Whether this job has begun, and it or something of it is left."""
        return uid in self.pids or any(child.uid == uid for child in self.lingering)

    def follow(self, uid: str) -> None:
        """Nothing is left of this job: start who waited for nobody else."""
        for one in self.next.over(uid):
            self.launch(one.request, one.line)

    def withdraw(self, uids: list[str], of: str = "") -> None:
        """These will not begin; because of one that goes on, if it is named, else they were stopped."""
        self.next.drop(uids)
        if uids or of:
            self.tell(ENCODE({"t": "withdrawn", "of": of, "uids": uids}).encode())

    # --- words to the client ----------------------------------------------------------------------

    def tell(self, line: bytes) -> None:
        """Send one line to the client, without ever blocking; later, while more is to start than to tell."""
        if not self.client:
            return
        self.outbox += line + b"\n"
        self.untold += 1
        if self.untold >= len(self.next):
            self.flush()
        elif self.untold == 1:
            self.tell_by = time.monotonic() + TOLD

    def flush(self) -> None:
        """Send what the socket takes; poll says when it takes more."""
        self.untold, self.tell_by = 0, float("inf")
        try:
            self.outbox = self.outbox[os.write(self.sock, self.outbox) :]
        except ConnectionError:
            self.outbox = b""  # the client is gone: its end of file follows
        except OSError:
            pass  # the socket is full, or the kernel lacks memory for a moment
        if self.outbox:
            self.poll.modify(self.sock, select.POLLIN | select.POLLOUT)

    def note(self, record: dict[str, Any]) -> bytes:
        """Write a record down."""
        line = ENCODE(record).encode()
        self.log.write(line)
        return line

    # --- jobs -------------------------------------------------------------------------------------

    def launch(self, job: dict[str, Any], line: bytes) -> None:
        """Start one job; the intent is on disk before the process exists."""
        began = self.now()
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        uid, setup = job["uid"], self.setups[job["setup"]]
        if self.groups is None:
            self.groups = self.grouped(uid.partition("/")[0].partition(".")[0])
        try:
            why = self.log.write(line, must=False)
            if why is not None:
                raise SpawnError(f"the spawn log cannot be written: {why}")
            pid, began, group = self.spawn(job, setup)
        except SpawnError as error:
            end = {"t": "end", "uid": uid, "from": began, "at": self.now(), "error": str(error)}
            self.tell(self.note(end))
            self.follow(uid)
            return
        self.children[pid] = Child(
            uid, pid, began, setup.grace, memory=job.get("memory"), group=group, cores=setup.cores
        )
        if "memory" in job and (group is None or not group.limited):
            self.limited.add(pid)
            self.look_at = min(self.look_at, time.monotonic() + WATCH)
        self.look_at = min(self.look_at, time.monotonic() + WATCH_ANYWAY)
        self.pids[uid] = pid
        self.log.write(started(uid, pid, began, boot, group))

    def grouped(self, run: str) -> Groups:
        """The cgroups of this run, as far as there are any."""
        groups = Groups(run)
        if groups.place:
            self.note({"t": "groups", "place": groups.place})
        return groups

    def spawn(self, job: dict[str, Any], setup: Setup) -> tuple[int, float, Group | None]:
        """posix_spawn with the job's folder, files and cores; the child inherits our affinity and cgroup."""
        assert self.groups is not None
        environ = setup.environ.copy()
        environ[b"DOVETAIL_JOB"] = os.fsencode(job["job"])
        environ[b"DOVETAIL_UID"] = os.fsencode(job["uid"])
        for name, value in job.get("vars", EMPTY).items():
            environ[os.fsencode(name)] = os.fsencode(value)
        files: list[int] = []
        try:
            enter(setup.folder)
            for path in job["files"]:
                files.append(open_output(path, files, job["files"], job.get("chosen", False)))
            program = find_program(job["argv"][0], setup.path)
            actions = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((self.null, *files))]
            if setup.cores:
                if self.at is not setup.cores:
                    pin(setup.cores)
                    self.at = setup.cores
            elif self.at is not None:
                self.go(None)
            began, pid = self.now(), 0
            group = self.groups.enter(job.get("memory"))
            try:
                pid = os.posix_spawn(
                    program,
                    job["argv"],
                    environ,
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=RESET,
                )
            except (OSError, ValueError) as error:
                raise SpawnError(spawn_failure(job["argv"][0], program, error)) from error
            finally:
                if group is not None:
                    self.groups.leave(group)
                    if not pid:
                        self.groups.give_back(group)
            return pid, began, group
        finally:
            for fd in files:
                os.close(fd)

    def go_where_one_ends(self) -> None:
        """Before we sleep: while jobs follow each other, be where one is likely to end next, else anywhere.

        Who follows is born on that core, and nothing else runs there then. Woken on another one, we would
        wait for our turn beside its job while this one is idle: the kernel moves nobody who ran a moment ago.
        """
        first = next(iter(self.children.values()), None) if self.next else None
        cores = (first.cores or None) if first is not None else None
        if self.at is not cores:
            self.go(cores)

    def go(self, cores: list[int] | None) -> None:
        """Take on these cores only, or have all of ours again; where they are gone, a job's start says so."""
        try:
            os.sched_setaffinity(0, self.cores if cores is None else cores)
        except OSError:
            return
        self.at = cores

    def stop(self, child: Child, reason: str, grace: float | None) -> None:
        """TERM to the whole group; KILL when the grace has passed. The first reason stays."""
        if child.reason is None:
            child.reason = reason
            child.kill_at = time.monotonic() + (child.grace if grace is None else grace)
            self.kill_next = min(self.kill_next, child.kill_at)
            signal_group(child.pid, signal.SIGTERM)
            signal_group(child.pid, signal.SIGCONT)

    def reap(self) -> None:
        """Take every child that has ended, jobs and processes that came back to us."""
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return
            if info is None:
                return
            pid = info.si_pid
            child = self.children.pop(pid, None)
            if child is None:
                self.passed(pid, os.waitpid(pid, 0)[1])
                continue
            if self.next and child.cores and self.at is not child.cores:
                self.go(child.cores)  # it has nothing to do until who follows is born there
            # While the leader is a zombie its pid, hence its group's id, cannot be given to another.
            grace_left = child.kill_at < float("inf")
            if not grace_left:
                if child.group is not None and child.group.path and child.group.holds_others(pid):
                    child.survivors = True  # seen now: killed, they may be gone at once
                signal_group(pid, signal.SIGKILL)
            _, child.status, usage = os.wait4(pid, 0)
            del self.pids[child.uid]
            self.limited.discard(pid)
            child.end = ended(child, self.now(), usage)
            child.alone = child.group is not None and not child.group.populated()
            if not child.alone and signal_group(pid, 0):
                if grace_left:
                    self.lingering.append(child)
                    continue
                child.survivors = True
            self.finish(child)

    def passed(self, pid: int, status: int) -> None:
        """A process that is no job has ended."""

    def finish(self, child: Child) -> None:
        """The job and all its processes are gone: write it down, then tell."""
        if self.kill_strays(child):
            child.survivors = True
        if child.group is not None:
            self.empty(child, child.group)
        more = child.more
        if child.reason is not None:
            more["stop"], more["forced"] = child.reason, child.forced and not child.why
        if child.why:
            more["why"] = child.why
        if child.survivors:
            more["survivors"] = True
        line = child.end + (b"," + ENCODE(more)[1:].encode() if more else b"}")
        self.log.write(line)
        self.follow(child.uid)
        self.tell(line)

    def empty(self, child: Child, group: Group) -> None:
        """Nothing that a job has left in its cgroup outlives it."""
        assert self.groups is not None
        if group.limited and (peak := group.peak_memory()):
            child.more["rss"] = peak  # said once more in the same record: the later word counts
        if group.limited and child.reason is None and group.out_of_memory():
            child.why = f"memory: its processes needed more than the {child.memory} bytes that they may hold"
            child.reason = "OUT_OF_MEMORY"
        elif group.path and not child.alone and group.kill():
            child.survivors = True
        self.groups.give_back(group, empty=child.alone)

    def kill_strays(self, ended: Child) -> bool:
        """Kill processes that left the group of an ended job (daemons): as subreaper we are their parent."""
        if self.kin < 0:
            return False
        found = False
        for pid in map(int, os.pread(self.kin, READ, 0).split()):
            if pid not in self.children and belongs(pid, ended.uid, ended.pid):
                found = True
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        return found


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


def main() -> None:
    """Take over the inherited descriptors and serve."""
    sock, log = int(sys.argv[1]), int(sys.argv[2])
    for fd in (sock, log, *map(int, sys.argv[5:])):  # the last is a claim, ours as long as we live
        os.set_inheritable(fd, False)
    os.set_blocking(sock, False)
    become_subreaper()
    Supervisor(sock, log, float(sys.argv[3]), open_door(sys.argv[4])).run()


if __name__ == "__main__":
    main()
