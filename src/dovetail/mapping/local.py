"""Workers on this machine: a process for each, pinned, started once by a supervisor that ends with us."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import pickle
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.mapping.crew import Crew, Event, Finished, Lost, Ready, Slot, Unable
from dovetail.mapping.places import Place, ThisMachine, Wanted, environment_of
from dovetail.mapping.running import UNREADABLE, Caught, Failure, Work, try_call
from dovetail.mapping.wire import Closed, Connection, Parcel, pack_object, pack_sealed, unpack_object
from dovetail.mapping.worker import DUMP_SIGNAL, KEPT, OUTCOME, PAGE

_log = logging.getLogger(__name__)

START = (
    "import sys, json\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from dovetail.mapping.worker import main\n"
    "main()"
)
"""The program of a worker's Python."""
FALSE_STARTS = 3
"""So many workers in a row may end before they are ready; then the function is to blame."""
DUMP_TIME = 0.3
"""Seconds that a worker has to write down where it hangs before it is killed."""
GONE_TIME = 10.0
"""Seconds that the supervisor has to end everything."""
LEAVE_TIME = 2.0
"""Seconds that idle workers have to leave by themselves."""
MOST_SUPERVISORS = 20
PACKET = 1 << 16
ALL = 1 << 62


class SharedState:
    """What a worker and we share beside messages: pages of memory, and tickets for calls.

    A worker takes a ticket before each call that may be taken back (`take_back_tickets`), so that each is
    made by one worker. ``descriptors`` are in the order in which a worker expects them.
    """

    def __init__(self) -> None:
        self._page_fd = os.memfd_create("dovetail-progress", os.MFD_CLOEXEC)
        os.ftruncate(self._page_fd, (1 + KEPT) * PAGE)
        self._pages = mmap.mmap(self._page_fd, (1 + KEPT) * PAGE)
        self._trace_fd = os.memfd_create("dovetail-trace", os.MFD_CLOEXEC)
        self._tickets = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self.descriptors = self._page_fd, self._trace_fd, self._tickets
        self.orders: deque[int] = deque()

    def add_order(self, order: int) -> None:
        """It is sent now, or once more, since whether it was sent is not known."""
        if not self.orders or self.orders[-1] != order:
            self.orders.append(order)

    def item_position(self) -> tuple[int | None, int]:
        """The first of so many items of its order of which one runs.

        ``None`` before it has begun with the order, and while it sends results.
        """
        order, position, span = struct.unpack_from("<qqq", self._pages)
        return (position if self.orders and order == self.orders[0] and position >= 0 else None), span

    def items_begun(self) -> int:
        """How many items of its first order have begun; `ALL` while it sends results."""
        # A page that still shows an earlier order: the worker has not come to this one.
        order, position, span = struct.unpack_from("<qqq", self._pages)
        if not self.orders or order != self.orders[0]:
            return 0
        return position + span if position >= 0 else ALL

    def kept_outcomes(self) -> dict[int, Any]:
        """Outcomes of calls of its first order that it has made and not sent yet, or just now."""
        found: dict[int, Any] = {}
        for position in range(KEPT if self.orders else 0):
            at = (1 + position) * PAGE
            order, length = OUTCOME.unpack_from(self._pages, at)
            text = self._pages[at + OUTCOME.size : at + OUTCOME.size + length]
            # Unless it is overwritten while we read it.
            if order == self.orders[0] and OUTCOME.unpack_from(self._pages, at) == (order, length):
                found[position] = pickle.loads(text)
        return found

    def fault_trace(self) -> str:
        """What Python's fault handler wrote."""
        size = os.fstat(self._trace_fd).st_size
        return os.pread(self._trace_fd, min(size, PACKET), 0).decode("utf-8", "replace")

    def add_tickets(self, count: int) -> None:
        """So many calls follow that may be taken back."""
        os.eventfd_write(self._tickets, count)

    def take_back_tickets(self, most: int = ALL) -> int:
        """Take the calls that have not begun away from the worker, its last ones first: how many."""
        taken = 0
        with suppress(BlockingIOError):
            while taken < most:
                os.eventfd_read(self._tickets)
                taken += 1
        return taken

    def close(self) -> None:
        """Let go of what is ours of it."""
        self._pages.close()
        for fd in self.descriptors:
            os.close(fd)


def send_calls(
    connection: Connection,
    shared: SharedState,
    order: int,
    items: Sequence[Any],
    *,
    tickets: bool = False,
    again: bool = False,
) -> None:
    """Give a worker calls, ready to travel; those with ``tickets`` may be taken back.

    ``again``: whether they were sent is not known, and a worker that has them makes them once.
    """
    parcel = pack_sealed(items)
    shared.add_order(order)
    if tickets:
        shared.add_tickets(len(items))
    try:
        # Its end is on the way, and reports the order as lost.
        with suppress(Closed):
            connection.send_message(("again" if again else "calls", order, tickets), parcel)
    except OSError:
        shared.orders.pop()
        if tickets:
            shared.take_back_tickets(len(items))
        raise


def take_made(shared: SharedState, slot: Slot, about: Sequence[Any], parts: Sequence[Any]) -> Finished:
    """Outcomes of calls that a worker has sent, those of its first order."""
    order, first, seconds, made, last = about
    if last:
        shared.orders.popleft()
    values = try_call(unpack_object, parts)
    failures = []
    if isinstance(values, Caught):
        failures = [_unreadable_failure(values.error)]
        values = []
    return Finished(slot, order, values, failures, seconds, made, first=first, last=last)


class Process(SharedState):
    """One worker process."""

    def __init__(self, uid: str, slot: Slot) -> None:
        super().__init__()
        self.uid, self.slot = uid, slot
        self.connection, self.theirs = Connection.make_pair()
        self.knows: set[bytes] = set()
        self.reason = ""
        self.ready = False
        self.dismissed = False

    def close(self) -> None:
        """Let go of what is ours of it."""
        self.connection.close()
        super().close()


class _Supervisor:
    """Our end of the process that starts workers (`dovetail.mapping.supervisor`).

    It inherits the ``held`` descriptors. Raises `ExecutorError` where it cannot be started.
    """

    def __init__(self, held: Sequence[int]) -> None:
        self.sock, theirs = socket.socketpair()
        self._parcels, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._inbox = b""
        # In memory: with the supervisor its log goes too, since no later process takes up a map's workers.
        log = os.memfd_create("dovetail-workers", os.MFD_CLOEXEC)
        script = str(Path(__file__).with_name("supervisor.py"))
        passed = (theirs.fileno(), log, taken.fileno())
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script, *map(str, (*passed, os.getpid(), *held))],
                stdin=subprocess.DEVNULL,
                pass_fds=(*passed, *held),
                # Its own session: Ctrl-C reaches this process alone, which ends workers in good order.
                start_new_session=True,
            )
        except OSError as error:
            self._hang_up()
            raise ExecutorError(f"workers cannot be started: {error.strerror}") from error
        finally:
            theirs.close()
            taken.close()
            os.close(log)
        self.pid = self._process.pid

    def ask(self, what: str, **about: Any) -> None:
        """Send a request; a supervisor that has gone is noticed by `ends`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(json.dumps({"t": what, **about}).encode() + b"\n")

    def stop(self, uid: str) -> None:
        """Kill a worker."""
        self.ask("stop", uid=uid, reason="CANCELLED", grace=0.0)

    def give(self, *fds: int) -> None:
        """Send descriptors for the worker that is requested next."""
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._parcels, [b"."], list(fds))

    def ends(self) -> list[dict[str, Any]]:
        """The workers that have ended, as far as its lines are whole. Raises `Closed` where it has gone."""
        try:
            data = self.sock.recv(PACKET)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        return [record for line in lines if (record := json.loads(line))["t"] == "end"]

    def end(self) -> None:
        """Close our ends, upon which it ends, and all workers with it."""
        self._hang_up()
        try:
            self._process.wait(GONE_TIME)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hang_up(self) -> None:
        self.sock.close()
        self._parcels.close()


class LocalCrew(Crew):
    """Worker processes of this machine.

    ``memory`` is the most bytes that one may allocate (0: no limit). ``kept`` crews serve several maps:
    their workers stay until `close`, and have their places only while a map runs. ``variables`` are set for
    workers beside what their places need.
    """

    tells_position = True

    def __init__(
        self,
        units: ThisMachine,
        wanted: Sequence[Wanted],
        *,
        memory: int = 0,
        kept: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._units, self._memory, self.kept = units, memory, kept
        self._variables = variables or {}
        self._wanted = wanted
        seats = [Place(some.kind, index, ()) for some in wanted for index in range(some.count)]
        self.slots = [Slot(i, seat) for i, seat in enumerate(seats)]
        self._placed = self._ever_placed = False
        self._kinds = list(dict.fromkeys(some.kind for some in wanted))
        self._processes: dict[str, Process] = {}
        self._of_slot: dict[int, Process] = {}
        self._false_starts = 0
        self._started = 0
        self._job: tuple[int, Parcel, dict[str, tuple[bytes, Parcel]]] | None = None
        self._jobs = 0
        self._events: list[Event] = []
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._supervisors = 0
        self._supervisor: _Supervisor | None = None
        self._uid = f"map.{os.getpid()}.{secrets.token_hex(4)}"
        self._closed = False

    # -- for the scheduler -----------------------------------------------------------------------------

    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """Give all workers their function; starts those that do not run yet."""
        self._take_places()
        self._jobs += 1
        self._false_starts = 0
        # One parcel for all workers of a kind: the function is pickled once, however many there are.
        functions = {
            kind: (hashlib.blake2b(text, digest_size=16).digest(), Parcel([text]))
            for kind, text in shipped.items()
        }
        parcel = try_call(pack_object, work)
        if isinstance(parcel, Caught):
            raise InputError(f"cannot be sent to a worker: {parcel.error}", where="common") from parcel.error
        self._job = (self._jobs, parcel, functions)
        self.start_supervisor()
        for slot in self.slots:
            process = self._of_slot.get(slot.number)
            if process is None:
                self._start_worker(slot)
                continue
            process.orders.clear()
            # One with a reason is being killed, and another will be prepared in its place.
            if not process.reason:
                self._prepare_worker(process)

    def start_supervisor(self) -> None:
        """Start the process that starts workers, unless it runs. Raises `ExecutorError`."""
        if self._supervisor is None:
            self._supervisor = self._new_supervisor()

    def _take_places(self) -> None:
        """Hold all workers' places; a worker that is there and has lost its own is replaced."""
        if self._placed:
            return
        # The same places where that is possible: a worker that keeps its place keeps its process.
        before = [slot.place for slot in self.slots] if self._ever_placed else []
        for slot, place in zip(self.slots, self._units.take(self._wanted, before), strict=True):
            if slot.place != place and slot.number in self._of_slot:
                self.kill(slot, "others use its place")
            slot.place = place
        self._placed = self._ever_placed = True

    def rest(self) -> None:
        """Between two maps others may use the places."""
        for slot in self.slots if self._placed else ():
            self._units.give(slot.place)
        self._placed = False
        # Between maps idle shared memory is worth more to others.
        for process in self._processes.values():
            process.connection.trim_rooms()

    def send_items(
        self, slot: Slot, order: int, items: Sequence[Any], start: int, *, plain: bool = False
    ) -> None:
        """Give a worker items."""
        process = self._of_slot[slot.number]
        parcel = pack_object(items)
        process.orders.append(order)
        # Its end is on the way, and reports the order as lost.
        with suppress(Closed):
            process.connection.send_message(("run", order, start, plain), parcel)

    def wait(self, seconds: float | None) -> list[Event]:
        """Happenings; see `Crew`."""
        return self.take_news(self.await_news(seconds))

    def await_news(self, seconds: float | None) -> list[selectors.SelectorKey]:
        """Wait for something; other threads may send meanwhile."""
        return [] if self._events else [key for key, _ in self._selector.select(seconds)]

    def take_news(self, ready: Sequence[selectors.SelectorKey]) -> list[Event]:
        """What has happened there."""
        for key in ready:
            if key.data is None:
                os.eventfd_read(self._wake_fd)
            elif key.data is self:
                self._hear_supervisor()
            else:
                # The others keep the socket readable.
                self._receive_messages(key.data, 1)
        found, self._events = self._events, []
        return found

    def end_wait(self) -> None:
        """End a wait."""
        if not self._closed:
            os.eventfd_write(self._wake_fd, 1)

    def item_position(self, slot: Slot) -> int | None:
        """Which item of its order the worker is at."""
        process = self._of_slot.get(slot.number)
        return process.item_position()[0] if process is not None else None

    def kill(self, slot: Slot, reason: str, *, trace: bool = False) -> None:
        """End a busy worker; on request it first writes down where it is."""
        process = self._of_slot[slot.number]
        process.reason = reason
        if trace:
            self._running_supervisor.ask("signal", uid=process.uid, number=int(DUMP_SIGNAL))
            # Killed before its dump is written, it would leave no trace of where it hung.
            deadline = time.monotonic() + DUMP_TIME
            while not process.fault_trace() and time.monotonic() < deadline:
                time.sleep(0.005)
        self._running_supervisor.stop(process.uid)

    def dismiss_worker(self, slot: Slot) -> None:
        """Let a worker go."""
        self.slots.remove(slot)
        process = self._of_slot.get(slot.number)
        if process is None:
            self._units.give(slot.place)
        else:
            process.dismissed = True
            self._running_supervisor.stop(process.uid)

    def close(self) -> None:
        """End the supervisor, and with it all workers and what they have started."""
        if self._closed:
            return
        self._closed = True
        if self._supervisor is not None:
            # Idle workers first, by their closed sockets: killed with the others, they could not clean up.
            self._let_leave()
            self._supervisor.ask("close", grace=0.0)
            self._supervisor.end()
        self._selector.close()
        os.close(self._wake_fd)
        for process in self._processes.values():
            process.close()
            if process.dismissed:
                self._units.give(process.slot.place)
        self.rest()
        self._units.close()
        self._processes.clear()
        self._of_slot.clear()
        self.slots = []

    def _let_leave(self) -> None:
        """Idle workers may leave in good order, and let go of what stays beside them."""
        leaving = {uid for uid, process in self._processes.items() if process.ready and not process.orders}
        for uid in leaving:
            self._stop_listening(self._processes[uid])
        self._running_supervisor.sock.settimeout(LEAVE_TIME)
        with suppress(TimeoutError, Closed):
            while leaving:
                leaving -= {end["uid"] for end in self._running_supervisor.ends()}

    # -- workers ---------------------------------------------------------------------------------------

    def _start_worker(self, slot: Slot) -> None:
        """Start a worker; what is sent meanwhile stays in its socket."""
        number, supervisor = self._started, self._running_supervisor
        self._started += 1
        process = Process(f"{self._uid}/{number}", slot)
        self._processes[process.uid] = self._of_slot[slot.number] = process
        setup = {"parent": supervisor.pid, "memory": self._memory, "cores": slot.place.cores}
        bound = environment_of(slot.place, os.environ, self._kinds)
        around = {**bound, **self._variables, **self._units.worker_environment()}
        # It binds itself: the supervisor would go to its core, and start the next one only beside it.
        place = {"env": around, "unset": [], "cores": [], "cwd": ".", "grace": 0.0}
        supervisor.ask("setup", setup=number, **place)
        supervisor.give(process.theirs.sock.fileno(), *process.descriptors)
        process.theirs.close()
        argv = [sys.executable, "-c", START, json.dumps(sys.path), json.dumps(setup)]
        # A map within a job stays that job's, also for who lends it devices.
        outer = {name: os.environ[name] for name in ("DOVETAIL_JOB", "DOVETAIL_UID") if name in os.environ}
        job = {"uid": process.uid, "job": slot.name, "argv": argv, "files": [], "vars": outer}
        supervisor.ask("intent", setup=number, **job)
        supervisor.ask("forget", numbers=[number])
        self._selector.register(process.connection.sock, selectors.EVENT_READ, process)
        self._prepare_worker(process)

    def _prepare_worker(self, process: Process) -> None:
        """Send the map's function, if it is not there yet, and what its calls share."""
        assert self._job is not None
        number, work, shipped = self._job
        digest, function = shipped[process.slot.kind]
        process.ready = False
        process.slot.warm = process.slot.warm and digest in process.knows
        try:
            process.connection.send_message(
                ("function", digest), function if digest not in process.knows else None
            )
            process.knows.add(digest)
            process.connection.send_message(("work", number), work)
        except Closed:
            # Its end is on the way.
            return

    def _receive_messages(self, process: Process, most: int = ALL) -> None:
        """Take in messages of a worker; when it has gone, the supervisor reports how."""
        try:
            while most and not process.connection.is_closed:
                most -= 1
                received = process.connection.receive_message(wait=False)
                if received is None:
                    return
                (what, *about), parts = received
                self._handle_message(process, what, about, parts)
        except Closed:
            self._stop_listening(process)

    def _stop_listening(self, process: Process) -> None:
        """Listen to a worker no more."""
        if not process.connection.is_closed:
            self._selector.unregister(process.connection.sock)
            process.connection.close()

    def _handle_message(self, process: Process, what: str, about: list[Any], parts: Sequence[Any]) -> None:
        slot = process.slot
        if what == "set":
            self._false_starts = 0
            # An answer to an earlier map's preparation is not one to this map's.
            if self._job is not None and about[0] == self._job[0]:
                process.ready = True
                self._events.append(Ready(slot))
        elif what == "made":
            self._events.append(take_made(process, slot, about, parts))
        elif what == "unable":
            self._events.append(Unable(slot, about[0]))
        # Orders of a map before, whose results nothing waits for, do not match.
        elif what == "done" and process.orders and about[0] == process.orders[0]:
            order, seconds, ran, failures = about
            process.orders.popleft()
            values = try_call(unpack_object, parts) if parts else []
            if isinstance(values, Caught):
                self._events.append(_unreadable_event(slot, order, values.error))
            else:
                size = sum(len(part) for part in parts)
                self._events.append(Finished(slot, order, values, failures, seconds, ran, size))

    # -- the supervisor ------------------------------------------------------------------------------------

    def _new_supervisor(self) -> _Supervisor:
        made = _Supervisor(self._units.claim_descriptors())
        self._selector.register(made.sock, selectors.EVENT_READ, self)
        return made

    @property
    def _running_supervisor(self) -> _Supervisor:
        assert self._supervisor is not None
        return self._supervisor

    def _hear_supervisor(self) -> None:
        try:
            ends = self._running_supervisor.ends()
        except Closed:
            self._supervisor_gone()
            return
        for end in ends:
            if "error" in end:
                raise ExecutorError(f"a worker cannot be started: {end['error']}")
            self._handle_exit(self._processes[end["uid"]], end["status"])

    def _handle_exit(self, process: Process, status: int) -> None:
        """A worker has gone: report what was lost, and start another in its place."""
        # What it sent before it ended counts: results in the socket are not lost with it.
        self._receive_messages(process)  # its last messages
        self._stop_listening(process)
        slot = process.slot
        del self._processes[process.uid], self._of_slot[slot.number]
        if process.dismissed:
            self._units.give(slot.place)
        else:
            code = os.waitstatus_to_exitcode(status)
            reason = process.reason or _describe_exit(code)
            _log.info("the %s worker has gone: %s", slot.name, reason)
            if process.ready:
                by_itself = code >= 0 and not process.reason
                where, trace, begun = process.item_position(), process.fault_trace(), process.items_begun()
                outcomes = process.kept_outcomes()
                self._events.append(Lost(slot, reason, *where, trace, by_itself, begun, outcomes))
            else:
                self._false_starts += 1
            # A function that kills each worker at its start would be started for ever.
            if self._false_starts < FALSE_STARTS * len(self.slots):
                self._start_worker(slot)
            else:
                failure = Failure(0, "WorkerLost", f"{reason} before it was ready", process.fault_trace())
                self._events.append(Unable(slot, failure))
        process.close()

    def _supervisor_gone(self) -> None:
        """It was killed, and with it the workers; start again."""
        self._supervisors += 1
        if self._supervisors > MOST_SUPERVISORS:
            raise ExecutorError(f"the process that starts workers ended {MOST_SUPERVISORS} times")
        _log.warning("the process that starts workers of a map was killed: another takes its place")
        self._selector.unregister(self._running_supervisor.sock)
        self._running_supervisor.end()
        self._supervisor = self._new_supervisor()
        for process in list(self._processes.values()):
            self._handle_exit(process, signal.SIGKILL)


def _describe_exit(code: int) -> str:
    """How a worker ended, in words."""
    if code >= 0:
        return f"its worker left with exit status {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    why = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
    return f"its worker was killed by {name}{why}"


def _unreadable_event(slot: Slot, order: int, error: BaseException) -> Event:
    """Results that cannot be read here: the order has failed as a whole."""
    return Finished(slot, order, [], [_unreadable_failure(error)], 0.0, 0)


def _unreadable_failure(error: BaseException) -> Failure:
    return Failure(UNREADABLE, type(error).__qualname__, f"the result cannot be read: {error}", "")
