"""The scheduler's side of the control socket: devices of running jobs are moved from here.

A scheduler that lends devices opens one switchboard for a run, registers each job that it starts
(`Switchboard.expect_job`), puts `environment` into the job's environment, and awaits `migrate`, which returns
when the work has moved in every process of the job, and raises when it stays where it was. The messages are
described in `dovetail_remote.control`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import orjson

from dovetail.errors import DeviceError, InputError
from dovetail.process.channel import Handshake, bracket_host, nonce_of
from dovetail.records import dataclass
from dovetail_remote.address import ADDRESSES, parse_address

_log = logging.getLogger(__name__)
MOST_LINE = 1 << 16
_HELLO = 5.0
"""Seconds that a process has to identify itself."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A device of a job that has moved: processes that had it, arrays and bytes, seconds.

    ``pause`` is the longest that any process could make no calls, ``prepared`` the longest before that.
    """

    processes: int
    arrays: int
    size: int
    pause: float
    prepared: float


@dataclass(slots=True)
class _Process:
    """A process of a job, connected."""

    pid: int
    writer: asyncio.StreamWriter
    addresses: list[str]
    answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Job:
    """A job: where its devices are, and its processes."""

    addresses: list[str]
    processes: list[_Process] = field(default_factory=list)
    moving: asyncio.Lock = field(default_factory=asyncio.Lock)


class Switchboard:
    """Listens for the processes of jobs, on a unix socket (0600) or, with a token, on the network.

    Use as ``async with``. Jobs are known by their unique id (``DOVETAIL_UID``).
    """

    def __init__(self, address: str, token: bytes | None = None) -> None:
        self.address = parse_address(address)
        if self.address.kind == "tcp" and token is None:
            raise InputError(f"{address}: found no token, expected one for a socket on the network")
        if self.address.is_local:
            raise InputError(f"{address}: found a device, expected unix:PATH or tcp:HOST:PORT")
        self._token = token if self.address.kind == "tcp" else None
        self._jobs: dict[str, _Job] = {}
        self._orders = 0
        self._server: asyncio.Server | None = None
        self._connected: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Switchboard:
        if self.address.kind == "unix":
            path = self.address.place
            if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)  # of a scheduler that was killed; a run has one at a time
            # Mode 0600 from the first instant: this socket can move the devices of every job.
            mask = os.umask(0o177)
            try:
                self._server = await asyncio.start_unix_server(self._attend_process, path, limit=MOST_LINE)
            finally:
                os.umask(mask)
        else:
            self._server = await asyncio.start_server(
                self._attend_process, *self.address.host_port, limit=MOST_LINE
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connected):
            task.cancel()
        await asyncio.gather(*self._connected, return_exceptions=True)
        if self.address.kind == "unix":
            Path(self.address.place).unlink(missing_ok=True)

    # -- what a scheduler does -------------------------------------------------------------------------

    def expect_job(self, uid: str, addresses: Sequence[str]) -> None:
        """A job is being started, with its devices there. Raises `InputError` for what is no address."""
        self._jobs[uid] = _Job([str(parse_address(address)) for address in addresses])

    def job_environment(self, uid: str, host: str = "") -> dict[str, str]:
        """What the job's processes need to find their devices and this socket; beside ``DOVETAIL_UID``.

        ``host`` is what they call the machine that we are on, if that is not where we listen.
        """
        return {
            ADDRESSES: " ".join(self._jobs[uid].addresses),
            "DOVETAIL_CONTROL": self._reached_address(host),
        }

    def forget_job(self, uid: str) -> None:
        """A job has ended."""
        self._jobs.pop(uid, None)

    def where(self, uid: str) -> Sequence[str]:
        """Where the devices of a job are."""
        return tuple(self._jobs[uid].addresses)

    async def migrate(self, uid: str, device: int, to: str, timeout: float = 600.0) -> Migration:
        """Move a job's device; returns when no process of the job has anything left at the old place.

        A process that opens the device meanwhile opens it at the new place. Where one of several processes
        fails, the others go back.

        Raises:
            DeviceError: the work is where it was; the text gives the reason.
        """
        job = self._jobs.get(uid)
        if job is None or not 0 <= device < len(job.addresses):
            raise DeviceError(f"job {uid} has no device {device}")
        target = str(parse_address(to))
        # One move of a job at a time: a second one would read addresses that are half changed.
        # The new address is in place before the first order, so a process that connects meanwhile gets it.
        async with job.moving:
            source, job.addresses[device] = job.addresses[device], target
            done: list[dict[str, Any]] = []
            try:
                async with asyncio.timeout(timeout):
                    # Again and again, since a process may connect with the old address while the others are
                    # moving.
                    while left := [p for p in job.processes if p.addresses[device] != target]:
                        found = await asyncio.gather(*[self._order_move(p, device, target) for p in left])
                        done += [answer for answer in found if answer is not None]
                        failed = next((a["failed"]["why"] for a in done if "failed" in a), None)
                        if failed is not None:
                            raise DeviceError(failed)
            except (DeviceError, TimeoutError) as error:
                job.addresses[device] = source
                back = [p for p in job.processes if p.addresses[device] == target]
                # All processes of a job must compute at one place: those that moved already go back.
                await asyncio.gather(*[self._order_move(p, device, source) for p in back])
                why = str(error) or f"no answer within {timeout:g} s"
                raise DeviceError(f"job {uid}: device {device} stays at {source}: {why}") from None
        _log.info("job %s: device %d moved from %s to %s", uid, device, source, target)
        moved = [answer["moved"] for answer in done]
        return Migration(
            len(moved),
            sum(m["arrays"] for m in moved),
            sum(m["size"] for m in moved),
            max((m["pause"] for m in moved), default=0.0),
            max((m["prepared"] for m in moved), default=0.0),
        )

    # -- processes -------------------------------------------------------------------------------------

    async def _order_move(self, process: _Process, device: int, to: str) -> dict[str, Any] | None:
        """Order a process to move; its answer, None where it has ended."""
        self._orders += 1
        number = self._orders
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        process.answers[number] = answer
        try:
            _write_message(process.writer, {"migrate": {"id": number, "device": device, "to": to}})
            found = await answer
        except ConnectionError:
            return None
        finally:
            process.answers.pop(number, None)
        if "moved" in found:
            process.addresses[device] = to
        return found

    async def _attend_process(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One process of some job, as long as it is there."""
        task = asyncio.current_task()
        assert task is not None
        self._connected.add(task)
        job, process = None, None
        try:
            async with asyncio.timeout(_HELLO):
                job, process = await self._introduce_process(reader, writer)
            while line := await reader.readline():
                message = orjson.loads(line)
                if "holding" in message:
                    process.addresses = [str(parse_address(address)) for address in message["holding"]]
                found = message.get("moved") or message.get("failed") or {}
                answer = process.answers.get(found.get("id", -1))
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            TimeoutError,
            asyncio.CancelledError,
        ):
            pass  # it has ended, or is none of ours
        except DeviceError as error:
            with contextlib.suppress(OSError):
                _write_message(writer, {"refused": str(error)})
        finally:
            self._connected.discard(task)
            if job is not None and process is not None:
                job.processes.remove(process)
                # A move that waits for this process must not wait for its whole timeout.
                for answer in process.answers.values():
                    if not answer.done():
                        answer.set_exception(ConnectionResetError("the process has ended"))
            writer.close()

    async def _introduce_process(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[_Job, _Process]:
        handshake = Handshake(self._token, "scheduler")
        if self._token is not None:
            _write_message(writer, {"nonce": handshake.nonce.hex()})
        hello = orjson.loads(await reader.readline())["hello"]
        welcome: dict[str, Any] = {}
        if self._token is not None:
            theirs = nonce_of(hello["nonce"])
            if not handshake.is_proven("process", theirs, hello["proof"]):
                raise DeviceError("the token is not the one of this scheduler")
            welcome["proof"] = handshake.make_proof(theirs)
        job = self._jobs.get(hello["uid"])
        if job is None:
            raise DeviceError(f"found the job {str(hello['uid'])[:100]!r}, which does not run")
        process = _Process(int(hello["pid"]), writer, list(job.addresses))
        job.processes.append(process)
        _write_message(writer, {"welcome": {**welcome, "addresses": job.addresses}})
        return job, process

    def _reached_address(self, called: str) -> str:
        """The address, with the port that was taken."""
        if self.address.kind == "unix" or self._server is None:
            return f"{self.address.kind}:{self.address.place}"
        host, port = self._server.sockets[0].getsockname()[:2]
        host = called or host
        return f"tcp:{bracket_host(host)}:{port}"


def _write_message(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(orjson.dumps(message) + b"\n")
