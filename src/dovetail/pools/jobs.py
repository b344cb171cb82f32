"""Workers that are jobs of a service on this machine: the same processes as those of maps.

A worker connects to a socket in a folder that only this account can enter, and gets the two pages of memory
that it shares with us; from then on all is as with a worker that we have started ourselves.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dovetail.client.connection import PATIENCE, NoService, open_connection
from dovetail.client.requests import request_context
from dovetail.errors import DovetailError
from dovetail.mapping.crew import Event, Lost, Ready, Slot, Unable
from dovetail.mapping.local import SharedState, send_calls, take_made
from dovetail.mapping.places import InUse, Place, Wanted
from dovetail.mapping.running import Failure, Work
from dovetail.mapping.wire import Closed, Connection, Parcel, pack_object
from dovetail.model import CPU

START = (
    "import sys, json\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from dovetail.mapping.worker import join_process\n"
    "join_process()"
)
"""What the Python of a job runs."""
LOOK = 1.0
"""Seconds between looks at jobs that have not come yet."""
FALSE_STARTS = 3
"""So many jobs in a row may end before they have come; then no more are submitted."""
KNOWN_WITHIN = 5.0
"""Seconds in which the service knows how a job ended whose process has gone."""
LONGEST_NAME = 100
_ENDED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"})
_log = logging.getLogger(__name__)


class _Member(SharedState):
    """One worker: its job, and its connection as soon as it has come."""

    def __init__(self, slot: Slot, job: str) -> None:
        super().__init__()
        self.slot, self.job = slot, job
        self.connection: Connection | None = None

    def close(self) -> None:
        """Let go of what is ours of it."""
        if self.connection is not None:
            self.connection.close()
        super().close()


class JobCrew:
    """Workers of an executor as jobs, each of which requests what the executor requests for each worker.

    ``resources`` has ``gpus``, ``memory``, ``gpu_memory``. Raises `NoService`, `InputError`.
    """

    queued = True

    def __init__(
        self,
        service: str | os.PathLike[str] | None,
        resources: Mapping[str, Any],
        variables: Mapping[str, str],
        name: str,
    ) -> None:
        self._asked, self._variables, self._name = resources, variables, name
        self._service = open_connection(service, start=lambda sentence: None)
        self._service.be_patient(PATIENCE, _log.warning)
        nodes = self._service.get("/api/v1/nodes")["nodes"]
        self.cores = max((int(node["cpus"]) for node in nodes), default=1)
        self._devices = [device["kind"] for node in nodes for device in node["devices"]]
        self.slots: list[Slot] = []
        self._members: dict[int, _Member] = {}
        self._numbers = 0
        self._false_starts = 0
        self._look_at = 0.0
        self._lost_service = 0.0
        self._events: list[Event] = []
        self._shipped: dict[str, tuple[bytes, Parcel]] = {}
        self._work = pack_object(Work({}, None))
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._folder = tempfile.mkdtemp(prefix="dovetail-")
        self._where = os.path.join(self._folder, "executor")
        # A socket's name has 108 bytes at most; $TMPDIR may be long.
        if len(os.fsencode(self._where)) > LONGEST_NAME:
            shutil.rmtree(self._folder)
            self._folder = tempfile.mkdtemp(prefix="dovetail-", dir="/tmp")
            self._where = os.path.join(self._folder, "executor")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._where)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self)
        self._closed = False

    def devices(self, kind: str) -> int:
        """How many devices of a kind the service has."""
        return self._devices.count(kind)

    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """What all workers run."""
        self._work = pack_object(work)
        for kind, text in shipped.items():
            self._shipped[kind] = hashlib.blake2b(text, digest_size=16).digest(), Parcel([text])

    # -- workers that come and go -----------------------------------------------------------------------

    def hire_worker(self, some: Wanted, *, share: bool) -> Slot:
        """Submit a job for one more worker. Raises `InUse` while the service does not answer."""
        # What a job has is its own.
        del share
        number = self._numbers
        setup = {"socket": self._where, "number": number}
        argv = [sys.executable, "-c", START, json.dumps(sys.path), json.dumps(setup)]
        gpus = self._asked["gpus"] or (0 if some.kind == CPU else 1)
        form: dict[str, Any] = {"command": argv, "name": self._name, "cpus": some.cores, "app": self._name}
        form |= {"gpus": gpus, "on": [some.kind]} if some.kind != CPU else {}
        given = {"memory": self._asked["memory"], "gpu_memory": self._asked["gpu_memory"]}
        form |= {key: value for key, value in given.items() if value is not None}
        around = request_context()
        around["environment"] |= self._variables
        try:
            (job,) = self._service.post("/api/v1/jobs", {**around, "jobs": [form]})["ids"]
        except NoService as error:
            now = time.monotonic()
            self._lost_service = self._lost_service or now
            if now > self._lost_service + PATIENCE:
                raise
            raise InUse(str(error)) from None
        self._lost_service = 0.0
        self._numbers += 1
        index = sum(slot.kind == some.kind for slot in self.slots)
        slot = Slot(number, Place(some.kind, index, ()), node=f"job {job}")
        self.slots.append(slot)
        self._members[number] = _Member(slot, job)
        self._look_at = self._look_at or time.monotonic() + LOOK
        return slot

    def lay_off(self, slot: Slot) -> None:
        """Its job ends, and gives back what it holds."""
        self.dismiss_worker(slot)

    def recall_worker(self, slot: Slot) -> bool:
        """A job that has ended does not come again; another is submitted."""
        del slot
        return False

    def dismiss_worker(self, slot: Slot) -> None:
        """A worker goes: it ends when its connection does; one that has not come yet is cancelled."""
        if slot not in self.slots:
            return
        member = self._members[slot.number]
        self._forget_member(member)
        if member.connection is None:
            self._cancel_jobs([member.job])

    def _cancel_jobs(self, jobs: Sequence[str]) -> None:
        try:
            self._service.post("/api/v1/cancel", {"jobs": ",".join(jobs)})
        except DovetailError as error:
            # One that comes later is not let in, and leaves.
            _log.warning("not cancelled: jobs %s: %s", ", ".join(jobs), error)

    def _forget_member(self, member: _Member) -> None:
        if member.connection is not None and not member.connection.is_closed:
            self._selector.unregister(member.connection.sock)
        del self._members[member.slot.number]
        self.slots.remove(member.slot)
        member.close()

    # -- messages ---------------------------------------------------------------------------------------

    def send_calls(
        self, slot: Slot, order: int, items: Sequence[Any], *, tickets: bool = False, again: bool = False
    ) -> None:
        """Give a worker calls; see `dovetail.mapping.local.send_calls`."""
        member = self._members[slot.number]
        assert member.connection is not None
        send_calls(member.connection, member, order, items, tickets=tickets, again=again)

    def take_back_calls(self, slot: Slot) -> int:
        """Take the calls with tickets that a worker has not begun away from it: how many, its last ones."""
        return self._members[slot.number].take_back_tickets()

    def kept_outcomes(self, slot: Slot) -> dict[int, Any]:
        """Outcomes of calls that a worker has made and not sent yet, by their places in its first order."""
        return self._members[slot.number].kept_outcomes()

    def await_news(self, seconds: float | None) -> list[selectors.SelectorKey]:
        """Wait for something, or for the next look at jobs that have not come yet."""
        if self._look_at:
            left = max(0.0, self._look_at - time.monotonic())
            seconds = left if seconds is None else min(seconds, left)
        return [] if self._events else [key for key, _ in self._selector.select(seconds)]

    def take_news(self, ready: Sequence[selectors.SelectorKey]) -> list[Event]:
        """What has happened."""
        for key in ready:
            if key.data is None:
                os.eventfd_read(self._wake_fd)
            elif key.data is self:
                self._welcome()
            else:
                self._receive_message(key.data)
        if self._look_at and time.monotonic() >= self._look_at:
            self._check_pending_jobs()
        found, self._events = self._events, []
        return found

    def end_wait(self) -> None:
        """End a wait; from any thread."""
        if not self._closed:
            os.eventfd_write(self._wake_fd, 1)

    def _welcome(self) -> None:
        """A worker has come."""
        sock, _ = self._listener.accept()
        sock.settimeout(KNOWN_WITHIN)
        try:
            # Only our own account: a stranger's process must get neither the function nor the memory.
            _, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            hello = json.loads(sock.recv(1 << 16))
            member = self._members.get(hello["number"])
            if member is None or member.connection is not None or user != os.geteuid():
                sock.close()
                return
            socket.send_fds(sock, [b"."], list(member.descriptors))
        except (OSError, ValueError, KeyError):
            # Its job ends, and is looked at.
            sock.close()
            return
        sock.settimeout(None)
        member.connection = Connection(sock)
        self._selector.register(sock, selectors.EVENT_READ, member)
        digest, function = self._shipped[member.slot.kind]
        with suppress(Closed):
            member.connection.send_message(("function", digest), function)
            member.connection.send_message(("work", 0), self._work)

    def _receive_message(self, member: _Member) -> None:
        assert member.connection is not None
        try:
            # The others keep the socket readable.
            received = member.connection.receive_message(wait=False)
            if received is not None:
                (what, *about), parts = received
                self._take_in(member, what, about, parts)
        except Closed:
            self._handle_gone(member)

    def _take_in(self, member: _Member, what: str, about: list[Any], parts: Sequence[Any]) -> None:
        slot = member.slot
        if what == "set":
            self._false_starts = 0
            self._events.append(Ready(slot))
        elif what == "unable":
            self._events.append(Unable(slot, about[0]))
        elif what == "made":
            self._events.append(take_made(member, slot, about, parts))

    def _handle_gone(self, member: _Member) -> None:
        """A worker has ended: the service knows how."""
        reason = f"its worker, job {member.job}, has ended"
        try:
            # The service may learn of the end a moment after we do.
            self._service.post("/api/v1/wait", {"jobs": member.job, "timeout": KNOWN_WITHIN})
            row = self._service.get(f"/api/v1/jobs/{member.job}")
            why = f": {row['reason']}" if row["reason"] else ""
            reason = f"its worker, job {member.job}, ended {row['state']}{why}"
        except DovetailError as error:
            _log.warning("how job %s ended is not known: %s", member.job, error)
        where, begun = member.item_position(), member.items_begun()
        trace, outcomes = member.fault_trace(), member.kept_outcomes()
        self._events.append(Lost(member.slot, reason, *where, trace, begun=begun, outcomes=outcomes))
        self._forget_member(member)

    def _check_pending_jobs(self) -> None:
        """Jobs that ended before they came: cancelled by a user, or what they need is not there."""
        coming = [member for member in self._members.values() if member.connection is None]
        self._look_at = time.monotonic() + LOOK if coming else 0.0
        for member in coming:
            try:
                row = self._service.get(f"/api/v1/jobs/{member.job}")
            except NoService:
                return
            if row["state"] not in _ENDED:
                continue
            self._false_starts += 1
            why = f": {row['reason']}" if row["reason"] else ""
            sentence = f"job {member.job} of its workers ended {row['state']}{why}"
            if self._false_starts >= FALSE_STARTS or row["state"] == "CANCELLED":
                failure = Failure(0, "WorkerLost", f"{sentence}, before it was ready", "")
                self._events.append(Unable(member.slot, failure))
                return
            _log.warning("%s", sentence)
            self._events.append(Lost(member.slot, sentence))
            self._forget_member(member)

    def close(self) -> None:
        """All workers leave; jobs that have not begun, or are in a call, are cancelled. Nothing stays."""
        if self._closed:
            return
        self._closed = True
        # Who is in a call would notice only after it that it may leave.
        members = self._members.values()
        waiting = [member.job for member in members if member.connection is None or member.orders]
        for member in list(self._members.values()):
            self._forget_member(member)
        if waiting:
            self._cancel_jobs(waiting)
        self._service.close()
        self._selector.close()
        self._listener.close()
        os.close(self._wake_fd)
        shutil.rmtree(self._folder)
