"""The process that runs items for a map on this machine, one item at a time, for as long as it is needed.

It is bound to its cores before it imports anything large, listens on one socket, and leaves when the other
end is closed. Two small pages of memory are shared with Dovetail: how far a batch has come, and where
Python was when it crashed or got the signal.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, MutableSequence
from contextlib import suppress
from typing import Any, cast

from dovetail.mapping.running import (
    UNREADABLE,
    Caught,
    Failure,
    Work,
    describe_failure,
    fold_batch,
    load_function,
    run_items,
    try_call,
)
from dovetail.mapping.wire import Closed, Connection, Parcel, pack_object, pack_sealed, unpack_object
from dovetail.process.channel import end_with

PAGE = mmap.PAGESIZE
KEPT = 16
"""Calls that travel together at most. The outcome of each has a page: the next call may be a long one."""
OUTCOME = struct.Struct("<qq")
"""What a page begins with: the order of the outcome (0: none), and its length."""
DUMP_SIGNAL = signal.SIGUSR1
"""Requests the traceback of what runs, even of what holds on to the interpreter."""
SOCKET, PROGRESS, TRACE, TICKETS = 3, 4, 5, 6
"""Inherited descriptors."""


def main() -> None:
    """Set the process up by its argument, and serve until the other end is closed."""
    setup = json.loads(sys.argv[2])
    # The worker must not outlive the process that started it, whatever runs.
    end_with(setup["parent"])
    os.sched_setaffinity(0, setup["cores"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is Dovetail's to handle
    for fd in (SOCKET, PROGRESS, TRACE, TICKETS):
        os.set_inheritable(fd, False)
    _be_first_to_go()
    if setup["memory"]:
        _limit_memory(setup["memory"])
    _serve_connection(Connection(socket.socket(fileno=SOCKET)), PROGRESS, TRACE, TICKETS)


def join_process() -> None:
    """Serve the process that listens at the socket of the argument: this is a job, and already bound."""
    setup = json.loads(sys.argv[2])
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(setup["socket"])
        cores = sorted(os.sched_getaffinity(0))
        sock.send(json.dumps({"number": setup["number"], "pid": os.getpid(), "cores": cores}).encode())
        _, fds, _, _ = socket.recv_fds(sock, 1, 3)
    except (OSError, ValueError) as error:
        sys.exit(f"the executor whose worker this is does not answer on this machine: {error}")
    if len(fds) != 3:
        # It needs no worker any more.
        sys.exit(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _be_first_to_go()
    _serve_connection(Connection(sock), *fds)


def _serve_connection(connection: Connection, progress: int, trace_fd: int, tickets: int) -> None:
    """Serve until the connection closes; then the process has ended."""
    # Written from a signal handler: a descriptor without a buffer is all that is safe there.
    size = os.fstat(progress).st_size
    with open(trace_fd, "wb", closefd=False, buffering=0) as trace, mmap.mmap(progress, size) as pages:
        faulthandler.enable(trace)
        faulthandler.register(DUMP_SIGNAL, trace, all_threads=False)
        worker = _Worker(connection, pages, tickets)
        try:
            worker.serve()
        except Closed:
            worker.finish()
            # No caller waits for what the user's modules would do at exit.
            os._exit(0)


def _be_first_to_go() -> None:
    """Where memory runs out, the kernel shall end a worker, not Dovetail or another program."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("900")
    except OSError:
        # A container that does not let us: the kernel chooses.
        return


def _limit_memory(limit: int) -> None:
    """What goes beyond is a MemoryError of the item, not the end of the machine."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class _Worker:
    """Serves one connection.

    The first of ``pages`` holds the order's number and the position of the item that runs, the others the
    outcomes of the calls before it.

    ``tickets`` is a semaphore (an eventfd): of calls that may be taken back each needs one to begin.
    """

    def __init__(self, connection: Connection, pages: mmap.mmap, tickets: int) -> None:
        self._connection = connection
        self._tickets = tickets
        self._pages = pages
        self._page = page = memoryview(pages)[:PAGE].cast("q")
        self._progress = cast("MutableSequence[int]", page[1:3])
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._function: Callable[..., Any] | None = None
        self._work = Work({}, None)

    def serve(self) -> None:
        """Carry out the requests, in order. Raises `Closed` at the end."""
        while True:
            received = self._connection.receive_message()
            assert received is not None
            (what, *about), parts = received
            if what == "calls":
                self._make_calls(about[0], about[1], parts)
            elif what == "again":
                # Sent once more, since whether it came is not known there.
                if self._page[0] != about[0]:
                    self._make_calls(about[0], about[1], parts)
            elif what == "function":
                self._take_function(about[0], parts)
            elif what == "work":
                self._take_work(about[0], parts)
            elif what == "run":
                number, start, plain = about
                self._run_batch(number, start, plain, parts)
            # What lies in shared memory goes with them.
            del parts, received

    def finish(self) -> None:
        """There is nothing more to do: a function with something that stays lets it go."""
        finish = getattr(self._function, "finish", None)
        if finish is not None:
            try_call(finish)

    def _take_function(self, digest: bytes, parts: Any) -> None:
        if digest not in self._functions:
            found = try_call(load_function, bytes(parts[0]))
            if isinstance(found, Caught):
                self._connection.send_message(("unable", describe_failure(0, found.error)))
                return
            self._functions[digest] = found
        self._function = self._functions[digest]

    def _take_work(self, number: int, parts: Any) -> None:
        self._connection.trim_rooms()  # of the last map
        found = try_call(unpack_object, parts)
        if isinstance(found, Caught):
            self._connection.send_message(("unable", describe_failure(0, found.error)))
        elif self._function is not None:
            self._work = found
            self._connection.send_message(("set", number))

    def _make_calls(self, number: int, with_tickets: bool, parts: Any) -> None:
        """Make calls of an executor, up to those that were taken back."""
        self._page[2] = 1  # of the calls one runs
        self._page[0], self._page[1] = number, 0
        items = unpack_object(parts)
        parts.clear()
        assert self._function is not None
        outcomes: list[Any] = []
        first, last = 0, len(items) - 1
        began = time.perf_counter()
        for position, item in enumerate(items):
            if with_tickets and not self._take_ticket():
                break
            self._page[1] = position
            outcome = try_call(self._function, item)
            if isinstance(outcome, Caught):  # not by the user's function: memory may be short
                outcome = describe_failure(position, outcome.error)
            outcomes.append(outcome)
            # The next call may take for ever, and perhaps waits for who waits for this one.
            if position < last and not self._keep_outcome(number, position, outcome):
                self._send_outcomes(number, first, began, outcomes)
                first = position + 1
        del items
        _flush_output()
        self._page[1] = -1
        self._send_outcomes(number, first, began, outcomes, last=True)

    def _keep_outcome(self, number: int, position: int, outcome: Any) -> bool:
        """Write an outcome to its page; whether it fits there."""
        # Large buffers lie in shared memory of their own, once they are sent.
        if position >= KEPT or (type(outcome) is tuple and any(type(p) is list and p for p in outcome)):
            return False
        text = pickle.dumps(outcome, protocol=5)
        at = (1 + position) * PAGE
        if OUTCOME.size + len(text) > PAGE:
            return False
        # What is there is none while it is overwritten.
        OUTCOME.pack_into(self._pages, at, 0, 0)
        self._pages[at + OUTCOME.size : at + OUTCOME.size + len(text)] = text
        OUTCOME.pack_into(self._pages, at, number, len(text))
        return True

    def _send_outcomes(
        self, number: int, first: int, began: float, outcomes: list[Any], *, last: bool = False
    ) -> None:
        """Send outcomes from the call at ``first`` on, and keep none."""
        seconds, made = time.perf_counter() - began, len(outcomes)
        parcel = try_call(pack_sealed, outcomes)
        if isinstance(parcel, Caught):
            parcel = pack_sealed([describe_failure(first, parcel.error)] * made)
        outcomes.clear()
        self._connection.send_message(("made", number, first, seconds, first + made, last), parcel)

    def _take_ticket(self) -> bool:
        try:
            os.eventfd_read(self._tickets)
        except BlockingIOError:
            return False
        return True

    def _run_batch(self, number: int, start: int, plain: bool, parts: Any) -> None:
        """Run a batch of neighbours from item ``start`` on; below 0 they are none, and are not folded.

        ``plain``: the results as the function gives them, whatever the map makes of them.
        """
        # Before the items are unpacked: a crash in unpickling is one of this order.
        self._page[0], self._page[1] = number, 0
        work = Work(self._work.common, None) if plain else self._work
        items = try_call(unpack_object, parts)
        parts.clear()
        if isinstance(items, Caught):
            self._connection.send_message(
                ("done", number, 0.0, 0, [describe_failure(UNREADABLE, items.error)])
            )
            return
        assert self._function is not None
        values, failures, seconds = run_items(self._function, items, work, self._progress)
        ran = len(values)
        # Items and values go as soon as they are done with: both at once may not fit into memory.
        del items
        reply, failures = _pack_results(values, failures, start, work)
        del values
        _flush_output()
        self._page[1] = -1
        self._connection.send_message(("done", number, seconds, ran, failures), reply)


def _flush_output() -> None:
    if sys.stdout is not None:
        # Closed by the user, or by its reader.
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def _pack_results(
    values: list[Any], failures: list[Failure], start: int, work: Work
) -> tuple[Parcel, list[Failure]]:
    """The results ready to be sent; a result that cannot be pickled is a failure of its item."""
    # One result cannot be pickled: which, is found by pickling each.
    thing, failures = fold_batch(values, failures, start, work)
    parcel = try_call(pack_object, thing)
    if isinstance(parcel, Parcel):
        return parcel, failures
    known = {failure.position for failure in failures}
    for position, value in enumerate(values):
        packed = try_call(pack_object, value)
        if isinstance(packed, Caught) and position not in known:
            values[position] = None
            failures.append(_unsendable_failure(position, value, packed.error))
    failures.sort(key=lambda failure: failure.position)
    thing, failures = fold_batch(values, failures, start, work)
    return pack_object(thing), failures


def _unsendable_failure(position: int, value: Any, error: BaseException) -> Failure:
    found = describe_failure(position, error)
    message = f"the result, of type {type(value).__qualname__}, cannot be sent back: {found}"
    return Failure(position, found.kind, message, found.traceback, found.error)
