"""The small process that starts a run's jobs, waits for them, and outlives Dovetail.

Started by `dovetail.local.executor` as ``python -I -S supervisor.py SOCKET LOG OFFSET FOLDER``, one for
each run (not one for each job), in a session of its own. It imports the standard library only, so that it
is up in 20 ms and stays small. It reads one JSON line a request from SOCKET (an inherited file
descriptor) and answers with one JSON line for each job that ended. A job may be to begin after others: it is
started when they have ended, and until then is nothing but a line in memory. What it does is in LOG first
(the spawn log, see `dovetail.process.spawn_log`), one appended line at a time: the request before the
process exists, its pid after, its exit status before it is reported. When Dovetail is gone it goes on
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
from contextlib import suppress
from typing import TYPE_CHECKING, Any

# Run by path: Dovetail is found behind the standard library.
if not __package__:
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from dovetail.files.shortage import lack_of
from dovetail.process.cgroups import Groups
from dovetail.process.channel import become_subreaper
from dovetail.process.children import Child, Setup, encode_variables, end_record, start_record
from dovetail.process.processes import (
    belongs_to_job,
    memory_by_session,
    open_children,
    open_door,
    process_origin,
    ran_last,
    signal_group,
    signal_some,
)
from dovetail.process.spawn_writer import Log
from dovetail.process.starting import NoResourcesError, SpawnError, Starter
from dovetail.process.successors import Successor, Successors

if TYPE_CHECKING:
    from collections.abc import Callable

READ = 1 << 16
LINGER = 0.02
"""Seconds between looks at a process group whose leader ended on TERM and which has its grace left."""
ENDING = 1.0
"""Seconds that processes of a job have to end by themselves after it, as the proxies of MPI launchers do."""
PULSE = 2.0
"""Seconds after which children are looked at anyway, should the word of an end be lost."""
STOPPED = 1.0
"""Seconds that a sleep may last too long, before we take it that we were stopped, or the machine was."""
REPORTED_WITHIN = 0.010
"""Seconds after which an end is reported to Dovetail, though the next jobs are at hand."""
MOST_FAULTS = 1000
"""Unforeseen errors that go to the file of complaints and the log; further ones only reach the client."""
MOST_LATE = 10.0
"""Seconds that a job may have beyond its walltime, as the client counts it, for what its start took …"""
DECIDED = 1.0
"""… and, at most, for what lay between the client's decision and its request."""
WATCH = 0.5
"""Seconds between looks at the memory of jobs, where any has a limit …"""
WATCH_ANYWAY = 2.0
"""… and where none has: a process by itself is measured by the kernel, several together are only seen so."""
ENCODE = json.JSONEncoder(separators=(",", ":")).encode
DECODE = json.JSONDecoder().decode


class Supervisor:
    """One thread, one poll loop: requests, ends of children, deadlines."""

    beside = True  # the client is on this machine: its monotonic clock is ours

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
        self.starter = Starter()
        self.unreported = 0  # lines that can wait, since the next jobs are at hand
        self.tell_by = float("inf")
        self.setups: dict[int, Setup] = {}
        self.environs: dict[int, dict[bytes, bytes]] = {}  # that clients have brought along
        self.kin = open_children()
        self.groups: Groups | None = None  # made for the first job
        self.terminated = False
        self.limited: set[int] = set()  # pids of jobs with a limit of memory
        self.kill_next = float("inf")  # no job's grace has passed before
        self.look_at = float("inf")
        self.overdue: list[tuple[float, Child, float | None]] = []  # at whose walltimes: when, grace
        self.retry_at = 0.0  # when what is owed to the log is tried again
        self.faults = 0  # unforeseen errors
        self.poll = select.poll()
        self.continued = False  # a SIGSTOP had stopped us
        self.turned = time.monotonic()  # when we were last seen to go round
        self.unseen_since: float | None = None  # while ends are taken that came when we were stopped

    def now(self) -> float:
        """Seconds since the epoch, by the monotonic clock and the client's offset: differences are exact."""
        return time.monotonic() + self.offset

    # --- the loop ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the client is gone (or has requested to close) and the last job has ended."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # The byte that this writes ends the poll: a signal between the check for ended children and the poll
        # would otherwise be seen a PULSE later.
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGCONT, self.on_continued)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        # The boot clock goes on while the machine is suspended, as the kernel's start times of processes do.
        self.write_record({"t": "supervisor", "pid": os.getpid(), "boot": boot, **process_origin()})
        poll = self.poll = select.poll()
        poll.register(woken, select.POLLIN)
        if self.client:
            poll.register(self.sock, select.POLLIN)
        if self.door is not None:
            poll.register(self.door, select.POLLIN)
        while self.is_needed():
            try:
                self.run_turn(woken)
            except Exception as error:  # noqa: BLE001 - jobs run, and only this process learns of their ends
                self.report_fault("a turn of its loop", error)
                time.sleep(LINGER)
        self.leave()
        if self.groups is not None:
            self.groups.close()
        self.write_record({"t": "done", "cpu": time.process_time()})

    def run_turn(self, woken: int) -> None:
        """Wait until something happens, and do what is to be done then."""
        self.go_where_one_ends()
        timeout = self.timeout()
        began = time.monotonic()
        found = self.poll.poll(timeout)
        now = time.monotonic()
        # A sleep far beyond its timeout means SIGSTOP or a suspended machine: walltimes that passed meanwhile
        # must not end jobs which had finished before.
        if self.continued or (timeout is not None and now > began + timeout / 1e3 + STOPPED):
            self.catch_up()
            found = self.poll.poll(0)
        self.turned = now
        if not found:
            self.reap_children()
        for fd, events in found:
            if fd == woken:
                os.read(woken, 4096)
                self.reap_children()
            elif self.door is not None and fd == self.door.fileno():
                self.accept_client(self.door)
            elif fd == self.sock and self.client:
                self.serve(events)
            else:
                self.read_descriptor(fd)
        self.deadlines()

    def catch_up(self) -> None:
        """We were stopped for a while, and jobs ended unseen: read what was wanted of them, then take them.

        What a job had, and whether it ended before its stop was requested, is by its own account.
        """
        self.continued = False
        self.unseen_since = self.turned
        try:
            if self.client:
                self.serve(select.POLLIN)
            self.reap_children()
        finally:
            self.unseen_since = None

    def ended_at(self, pid: int) -> float:
        """When a process ended that is a zombie: now, but for one that ended while we were stopped."""
        if self.unseen_since is None:
            return self.now()
        seen = ran_last(pid)
        # We have been on another core.
        self.starter.at = None
        now = time.monotonic()
        return self.offset + (now if seen is None else min(now, max(seen, self.unseen_since)))

    def is_needed(self) -> bool:
        """Whether there is anything to do, or to write down, or anybody who may want something."""
        if self.children or self.lingering:
            return True
        # A client that has closed has received every end; else what the disk did not take is known only here.
        return (self.client or bool(self.log.owed)) and not self.closing

    def serve(self, events: int) -> None:
        """Send to the client what it takes, and carry out what it wants."""
        if events & select.POLLOUT:
            self.flush()
        if events & ~select.POLLOUT:
            self.receive_requests()
        if self.client:
            self.poll.modify(self.sock, select.POLLIN | (select.POLLOUT if self.outbox else 0))
        else:
            self.poll.unregister(self.sock)
            os.close(self.sock)

    def read_descriptor(self, fd: int) -> None:
        """Something has come on another descriptor."""

    def leave(self) -> None:
        """Close the door: a later client finds no supervisor, and reads the log."""
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
            return PULSE * 1e3 if self.log.owed else None
        due = min(self.look_at, self.tell_by, self.kill_next, *(when for when, _, _ in self.overdue))
        return min(PULSE * 1e3, max(0.0, (due - time.monotonic()) * 1e3) + 1)

    def on_term(self, *_: object) -> None:
        """SIGTERM: end all jobs; done in the loop, since a handler may interrupt anything."""
        self.terminated = True

    def on_continued(self, *_: object) -> None:
        """SIGCONT: we were stopped, by a person or a debugger."""
        self.continued = True

    def deadlines(self) -> None:
        """Kill what has used up its grace; finish what lingered and is gone."""
        now = time.monotonic()
        if self.tell_by <= now:
            self.flush()
        if self.log.owed and self.retry_at <= now:
            self.log.write_owed()
            self.retry_at = now + PULSE
        if self.terminated:
            self.terminated = False
            self.withdraw(list(self.next.waiting))
            for child in self.children.values():
                self.stop(child, "CANCELLED", None)
        if self.look_at <= now:
            self.watch()
        if self.overdue:
            due = [entry for entry in self.overdue if entry[0] <= now]
            self.overdue = [entry for entry in self.overdue if entry[0] > now]
            for _, child, grace in due:
                # Where it has ended meanwhile, its pid may be another process's.
                if self.children.get(child.pid) is child:
                    child.asked_at = child.asked_at or self.now()
                    self.stop(child, "TIMEOUT", grace)
        if self.lingering or self.kill_next <= now:
            for child in self.children.values():
                if child.kill_at <= now:
                    child.kill_at, child.forced = float("inf"), True
                    signal_group(child.pid, signal.SIGKILL)
            self.kill_next = min((c.kill_at for c in self.children.values()), default=float("inf"))
            for child in list(self.lingering):
                if child.leaving:
                    self.let_go(child, now)
                    continue
                if child.kill_at <= now:
                    child.survivors = child.forced = True
                    signal_group(child.pid, signal.SIGKILL)
                if not signal_group(child.pid, 0) or child.forced:
                    self.lingering.remove(child)
                    self.finish(child)

    def let_go(self, child: Child, now: float) -> None:
        """Finish a job that ended by itself once nothing of it is left; kill what outstays its time."""
        child.alone = self.examine_ended(child, child.group_is_empty)
        if self.leaves_others(child):
            if now < child.kill_at:
                return
            child.survivors = True
            signal_group(child.pid, signal.SIGKILL)
        else:
            child.gone = True
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

    def accept_client(self, door: socket.socket) -> None:
        """Take a new client, if the old one is gone and the new one is of our user."""
        try:
            found, _ = door.accept()
        except OSError:
            # Without free descriptors, poll would report the same client again at once.
            time.sleep(LINGER)
            return
        # struct ucred: pid, uid, gid, four bytes each. Nor may a second Dovetail take the run from the first.
        peer = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if self.client or self.closing or int.from_bytes(peer[4:8], sys.byteorder) != os.geteuid():
            found.close()
            return
        self.welcome_client(found, {"t": "welcome"})

    def welcome_client(self, found: socket.socket, greeting: dict[str, Any]) -> None:
        """Serve this client from now on."""
        found.setblocking(False)
        self.sock, self.client = found.detach(), True
        self.inbox = self.outbox = b""
        # Of the old client; the new one sends its own.
        self.setups.clear()
        self.environs.clear()
        self.poll.register(self.sock, select.POLLIN)
        self.tell(ENCODE(greeting).encode())
        # The new client does not find these ends in the log.
        for line in self.log.owed.splitlines():
            if line.startswith(b'{"t":"end"'):
                self.tell(line)

    def receive_requests(self) -> None:
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
            # Who takes up the run knows nothing of them, and starts them again.
            self.next = Successors()
            self.write_record({"t": "gone"})
            return
        *lines, self.inbox = (self.inbox + data).split(b"\n")
        for line in lines:
            try:
                # The other lines are other jobs' requests: one that fails must not stop them.
                self.carry_out(DECODE(line.decode()), line)
            except Exception as error:  # noqa: BLE001 - it ends at most the job that it is about
                self.refuse_request(line, error)

    def refuse_request(self, line: bytes, error: Exception) -> None:
        """A request could not be carried out: report it, and end the job that it names."""
        try:
            request = DECODE(line.decode())
            kind, uid = str(request["t"]), request.get("uid", "")
        except Exception:  # noqa: BLE001 - it is no request at all
            self.report_fault("a line that is no request", error)
            return
        self.report_fault(f"the request {kind!r}", error, uid, request.get(kind))
        if kind == "intent":
            pid = self.pids.get(uid)
            if pid is None:
                self.report_never_started(
                    uid, self.now(), f"its supervisor could not start it: {error_line(error)}", noted=False
                )
            else:
                self.children[pid].why = f"its supervisor could not look after it: {error_line(error)}"
                self.stop(self.children[pid], "FAILED", None)

    def report_fault(self, what: str, error: Exception, uid: str = "", number: int | None = None) -> None:
        """Note an unforeseen error, where people look for it, and send it to the client.

        ``uid`` is the job that it is about, ``number`` that of a setup or environment that is not there now.
        """
        record = {"t": "fault", "at": self.now(), "of": what, "uid": uid, "why": error_line(error)}
        if number is not None:
            record["number"] = number
        self.faults += 1
        if self.faults <= MOST_FAULTS:
            import traceback

            trace = "".join(traceback.format_exception(error))
            print(f"{record['at']:.3f} {what} {uid}\n{trace}", file=sys.stderr, flush=True)
            self.write_record(record)
        self.tell(ENCODE(record).encode())

    def carry_out(self, request: dict[str, Any], line: bytes) -> None:
        """Carry out the request of one line."""
        kind = request["t"]
        if kind == "intent":
            self.next.restore_job(request["uid"])
            after = request.get("after", ())
            before = self.next.before(after, self.runs) if after else None
            if before:
                self.next.add(request["uid"], Successor(request, line, before))
            elif not self.launch(request, line):
                self.start_followers(request["uid"])
        elif kind == "withdraw":
            self.withdraw(self.next.followers_of(request["uid"]), request["uid"])
        elif kind == "setup":
            self.setups[request["setup"]] = Setup.of(request, self.environs)
            # What cannot be used is not written: readers would take it for damage.
            self.log.write(line)
        elif kind == "environ":
            self.environs[request["environ"]] = encode_variables(request["vars"])
            # On the log before any intent names its number, so that a reader always finds it.
            self.log.write(line)
        elif kind == "forget":
            for number in request["numbers"]:
                self.setups.pop(number, None)
                self.environs.pop(number, None)
        elif kind == "stop":
            pid = self.pids.get(request["uid"])
            if pid is not None:
                child = self.children[pid]
                if request["reason"] == "TIMEOUT" and child.reason is None:
                    # The client counts from its decision: the process has its whole walltime.
                    left = child.began + child.walltime - self.now()
                    if 0.0 < left <= child.late:
                        self.overdue.append((time.monotonic() + left, child, request["grace"]))
                        return
                child.why = child.why or ("" if child.reason else request.get("why", ""))
                requested = request.get("at") if self.beside else None
                child.asked_at = child.asked_at or (
                    self.now() if requested is None else requested + self.offset
                )
                self.stop(child, request["reason"], request["grace"])
            elif request["uid"] in self.next:
                self.withdraw([request["uid"]])
        elif kind == "signal":
            pid = self.pids.get(request["uid"])
            if pid is not None:
                signal_some(pid, request["number"], request.get("to", "all"))
        elif kind == "client":
            self.log.write(line)
            self.go_by(request.get("epoch", self.offset))
        elif kind == "shorten":
            try:
                self.log.shorten_file(request["after"], self.setups.keys(), self.environs.keys())
            finally:
                # Also after a failure: the next attempt waits until the log is much longer.
                self.tell(b'{"t":"shortened"}')
        elif kind != "close":
            raise ValueError(f"found a request of kind {kind!r}")
        else:
            self.closing = True
            self.withdraw(list(self.next.waiting))
            for child in self.children.values():
                self.stop(child, request.get("reason", "CANCELLED"), request["grace"])

    def go_by(self, offset: float) -> None:
        """Go by the clock of a new client: the old one's may have been set meanwhile."""
        for child in (*self.children.values(), *self.lingering):
            child.began += offset - self.offset
        self.offset = offset

    # --- jobs that begin after others -------------------------------------------------------------

    def runs(self, uid: str) -> bool:
        """Whether this job has begun, and it or something of it is left."""
        return uid in self.pids or any(child.uid == uid for child in self.lingering)

    def start_followers(self, uid: str) -> None:
        """Nothing is left of this job: start its successors that wait for no other."""
        over = [uid]
        while over:
            freed = self.next.release_followers(over.pop())
            over += [one.request["uid"] for one in freed if not self.launch(one.request, one.line)]

    def withdraw(self, uids: list[str], of: str = "") -> None:
        """These will not begin; because of one that goes on, if it is named, else they were stopped."""
        self.next.drop_jobs(uids)
        if uids or of:
            self.tell(ENCODE({"t": "withdrawn", "of": of, "uids": uids}).encode())

    # --- words to the client ----------------------------------------------------------------------

    def tell(self, line: bytes) -> None:
        """Send one line to the client without blocking; a burst of starts delays it a little."""
        if not self.client:
            return
        self.outbox += line + b"\n"
        self.unreported += 1
        if self.unreported >= len(self.next):
            self.flush()
        elif self.unreported == 1:
            self.tell_by = time.monotonic() + REPORTED_WITHIN

    def flush(self) -> None:
        """Send what the socket takes; poll reports when it takes more."""
        self.unreported, self.tell_by = 0, float("inf")
        try:
            self.outbox = self.outbox[os.write(self.sock, self.outbox) :]
        except ConnectionError:
            # The client is gone: its end of file follows.
            self.outbox = b""
        except OSError:
            # The socket is full, or the kernel lacks memory for a moment.
            pass
        if self.outbox:
            self.poll.modify(self.sock, select.POLLIN | select.POLLOUT)

    def write_record(self, record: dict[str, Any]) -> bytes:
        """Write a record down."""
        line = ENCODE(record).encode()
        self.log.write(line)
        return line

    # --- jobs -------------------------------------------------------------------------------------

    def launch(self, job: dict[str, Any], line: bytes) -> bool:
        """Start one job, if that can be done; the intent is on disk before the process exists."""
        began, noted, self.starter.born = self.now(), False, 0
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        uid = job["uid"]
        try:
            setup = self.setups[job["setup"]]
            if self.groups is None:
                self.groups = self.find_groups(uid.partition("/")[0].partition(".")[0])
            # The intent comes first: a recovery searches for its uid if we are killed right after the fork.
            why = self.log.write(line, must=False)
            if why is not None:
                lack = lack_of(self.log.error)
                if lack:
                    raise NoResourcesError(f"the spawn log cannot be written: {lack}")
                raise SpawnError(f"the spawn log cannot be written: {why}")
            noted = True
            began = self.now()
            pid, group = self.starter.spawn_job(job, setup, self.groups)
        except NoResourcesError as error:
            self.report_lack(uid, str(error), noted=noted)
            return True  # it is not over
        except Exception as error:  # noqa: BLE001 - it ends this job
            if self.starter.born:
                signal_group(self.starter.born, signal.SIGKILL)
            sentence = str(error)
            if not isinstance(error, SpawnError):
                self.report_fault("a job's start", error, uid)
                sentence = f"its supervisor could not start it: {error_line(error)}"
            self.report_never_started(uid, began, sentence, noted=noted)
            return False
        self.children[pid] = Child(
            uid, pid, began, setup.grace, memory=job.get("memory"), group=group, cores=setup.cores
        )
        self.pids[uid] = pid
        if self.beside and "sent" in job:
            late = min(MOST_LATE, began - self.offset - job["sent"]) + DECIDED
            self.children[pid].walltime, self.children[pid].late = job["walltime"], late
        if "memory" in job and (group is None or not group.limited):
            self.limited.add(pid)
            self.look_at = min(self.look_at, time.monotonic() + WATCH)
        self.look_at = min(self.look_at, time.monotonic() + WATCH_ANYWAY)
        self.log.write(start_record(uid, pid, began, boot, group))
        return True

    def report_lack(self, uid: str, why: str, *, noted: bool) -> None:
        """A job and those behind it wait: the client starts them again when there may be what they lack."""
        if noted:
            self.write_record({"t": "unstarted", "uid": uid})
        behind = self.next.followers_of(uid)
        self.next.drop_jobs(behind)
        self.tell(ENCODE({"t": "lack", "why": why, "uids": [uid, *behind]}).encode())
        self.flush()

    def report_never_started(self, uid: str, began: float, why: str, *, noted: bool) -> None:
        """Report that a job was not started; on the log, too, if its intent is ``noted`` there."""
        end = {"t": "end", "uid": uid, "from": began, "at": self.now(), "error": why}
        self.tell(self.write_record(end) if noted else ENCODE(end).encode())

    def find_groups(self, run: str) -> Groups:
        """The cgroups of this run, as far as there are any."""
        groups = Groups(run)
        if groups.place:
            self.write_record({"t": "groups", "place": groups.place})
        return groups

    def go_where_one_ends(self) -> None:
        """Before we sleep: while jobs follow each other, be where one is likely to end next, else anywhere.

        Who follows is born on that core, and nothing else runs there then. Woken on another one, we would
        wait for our turn beside its job while this one is idle: the kernel leaves recent processes in place.
        """
        first = next(iter(self.children.values()), None) if self.next else None
        cores = (first.cores or None) if first is not None else None
        self.starter.take_cores(cores)

    def stop(self, child: Child, reason: str, grace: float | None) -> None:
        """TERM to the whole group; KILL when the grace has passed. The first reason stays."""
        if child.reason is None:
            child.reason = reason
            child.kill_at = time.monotonic() + (child.grace if grace is None else grace)
            self.kill_next = min(self.kill_next, child.kill_at)
            signal_group(child.pid, signal.SIGTERM)
            # A stopped process acts on TERM only once it runs again.
            signal_group(child.pid, signal.SIGCONT)

    def reap_children(self) -> None:
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
                self.note_other_end(pid, os.waitpid(pid, 0)[1])
                continue
            if self.next and child.cores:
                # It has nothing to do until who follows is born there.
                self.starter.take_cores(child.cores)
            # While the leader is a zombie its pid, hence its group's id, cannot be given to another.
            at = self.ended_at(pid)
            if self.unseen_since is not None and child.reason is not None and at < child.asked_at:
                # It had ended by itself before it was to be stopped.
                child.reason, child.why, child.kill_at = None, "", float("inf")
            grace_left = child.kill_at < float("inf")
            if not grace_left and child.reason is not None:
                # Seen now: killed, they may be gone at once.
                child.survivors = self.examine_ended(child, child.group_holds_others)
                signal_group(pid, signal.SIGKILL)
            _, child.status, usage = os.wait4(pid, 0)
            del self.pids[child.uid]
            self.limited.discard(pid)
            child.end = end_record(child, at, usage)
            child.alone = self.examine_ended(child, child.group_is_empty)
            if child.reason is None:
                if self.leaves_others(child):
                    # A zombie among them is none for long: the next turns of this loop take it.
                    child.leaving, child.kill_at = True, time.monotonic() + ENDING
                    self.lingering.append(child)
                    continue
                child.gone = True
            elif not child.alone and signal_group(pid, 0):
                if grace_left:
                    self.lingering.append(child)
                    continue
                child.survivors = True
            self.finish(child)

    def examine_ended(self, child: Child, look: Callable[[], bool]) -> bool:
        """Look at a job that has ended; its end is reported though the look fails."""
        try:
            return look()
        except Exception as error:  # noqa: BLE001 - its end is reported all the same
            self.report_fault("a job's end", error, child.uid)
            return False

    def note_other_end(self, pid: int, status: int) -> None:
        """A process that is no job has ended."""

    def finish(self, child: Child) -> None:
        """The job and all its processes are gone: write it down, then report it."""
        if not child.gone and self.examine_ended(child, lambda: self.kill_strays(child)):
            child.survivors = True
        self.examine_ended(child, lambda: self.empty(child))
        more = child.more
        if child.reason is not None:
            more["stop"], more["forced"] = child.reason, child.forced and not child.why
        if child.why:
            more["why"] = child.why
        if child.survivors:
            more["survivors"] = True
        line = child.end + (b"," + ENCODE(more)[1:].encode() if more else b"}")
        self.log.write(line)
        self.start_followers(child.uid)
        self.tell(line)

    def empty(self, child: Child) -> bool:
        """Nothing that a job has left in its cgroup outlives it."""
        group = child.group
        if group is None or self.groups is None:
            return True
        if group.limited and (peak := group.peak_memory()):
            # A second time in the same record: the later value counts.
            child.more["rss"] = peak
        if group.limited and child.reason is None and group.out_of_memory():
            child.why = f"memory: its processes needed more than the {child.memory} bytes that they may hold"
            child.reason = "OUT_OF_MEMORY"
        elif group.path and not child.alone and group.kill():
            child.survivors = True
        self.groups.give_back(group, empty=child.alone)
        return True

    def leaves_others(self, ended: Child) -> bool:
        """Whether anything of a job lives whose leader is gone: in its group, its cgroup, or as a daemon."""

        def look() -> bool:
            if not ended.alone and (signal_group(ended.pid, 0) or ended.holds_any()):
                return True
            return bool(self.find_strays(ended))

        return self.examine_ended(ended, look)

    def find_strays(self, ended: Child) -> list[int]:
        """Find processes that left the group of an ended job (daemons): as subreaper we are their parent."""
        if self.kin < 0:
            return []
        kin = map(int, os.pread(self.kin, READ, 0).split())
        return [pid for pid in kin if pid not in self.children and belongs_to_job(pid, ended.uid, ended.pid)]

    def kill_strays(self, ended: Child) -> bool:
        """Kill them; whether there were any."""
        strays = self.find_strays(ended)
        for pid in strays:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(strays)


def error_line(error: Exception) -> str:
    """An error as one line: its kind, and its text."""
    return f"{type(error).__name__}: {error}"[:500]


def main() -> None:
    """Take over the inherited descriptors and serve."""
    sock, log = int(sys.argv[1]), int(sys.argv[2])
    # The last is a claim, ours as long as we live.
    for fd in (sock, log, *map(int, sys.argv[5:])):
        os.set_inheritable(fd, False)
    os.set_blocking(sock, False)
    become_subreaper()
    Supervisor(sock, log, float(sys.argv[3]), open_door(sys.argv[4])).run()


if __name__ == "__main__":
    main()
