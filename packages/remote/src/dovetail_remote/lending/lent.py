"""Runs jobs on this machine with devices that can be lent: its nodes lend each other theirs.

Each node of the cluster that has devices gets a device server (`dovetail device-server`); several nodes on
one machine are several servers, on unix sockets. Who has what, and how it moves, is for
`dovetail_remote.lending.lending`.

The accounting of Markthub 2015, sections 2 and 3; the servers end with this process. What they had lent is
lost then; jobs with devices of their own node go on, and the next Dovetail takes them up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.local.discovery import discover_cluster
from dovetail.local.executor import MachineExecutor
from dovetail.model import Cluster, Seconds
from dovetail.records import dataclass
from dovetail_remote.lending.carried import CarrierLending, CarrierServers
from dovetail_remote.lending.carriers import KNOWN, Carrier, find_program, load_carrier
from dovetail_remote.lending.lending import (
    DeviceServers,
    Lending,
    LendingExecutor,
    not_started,
    server_command,
)
from dovetail_remote.switchboard import Switchboard

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lent:
    """This machine, its devices lent between its nodes; ``device`` is what each of them is.

    As `dovetail device-server --device` takes it, e.g. ``numpy`` or ``torch:cuda`` (without a number: the
    N-th device is ``torch:cuda:N``); by default ``cuda:N`` for the N-th device of kind ``gpu``, ``cuda`` or
    ``nvidia`` of this machine, ``opencl`` for one of that kind. With ``lend`` any CUDA program borrows,
    through the carrier of that name (``lupine``) or of that file (`dovetail_remote.lending.carriers`).
    """

    device: str = ""
    lend: str = ""

    def __post_init__(self) -> None:
        if not self.lend:
            return
        if self.device:
            raise InputError("found device and lend, expected one of them", where="lent")
        if load_carrier(self.lend) is None:
            known = ", ".join(KNOWN)
            raise InputError(f"lend: found {self.lend!r}, expected {known} or a file *.toml", where="lent")

    def discover(self) -> Cluster:
        """The cores that this process may use, and the GPUs that their drivers find."""
        return discover_cluster()

    def open(self, folder: RunFolder, cluster: Cluster) -> LentExecutor:
        """A new run, whose servers are started. Raises `InputError` where one cannot be."""
        carrier = load_carrier(self.lend) if self.lend else None
        return LentExecutor(folder, cluster, self.device, carrier)

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[LentExecutor, LastAttempts]:
        """Take up a run with new servers: jobs that had borrowed from the old ones are ended.

        Raises `ExecutorError` while the Dovetail of this run lives, `InputError` as `open`.
        """
        carrier = load_carrier(self.lend) if self.lend else None
        executor = LentExecutor(folder, cluster, self.device, carrier, resume=True)
        return executor, executor.left_behind


class _ServersHere(DeviceServers):
    """A device server for each node with devices, on sockets in a folder of our own."""

    def __init__(
        self, cluster: Cluster, chosen: str, run_dir: Path, environ: Mapping[str, str], grace: Seconds
    ) -> None:
        self._cluster, self._chosen, self._run_dir, self._grace = cluster, chosen, run_dir, grace
        self._place = Path(tempfile.mkdtemp(prefix="dovetail-"))  # names of sockets are short
        about = {"DOVETAIL_STARTED_BY": str(os.getpid()), "DOVETAIL_SOCKETS": str(self._place)}
        self._environ = {**environ, **about}
        self._servers: dict[int, subprocess.Popen[str]] = {}
        self._starting = asyncio.Lock()

    def begin_servers(self) -> None:
        """All at once; wait until their devices are open. Raises `InputError`."""
        for n, node in enumerate(self._cluster.nodes):
            if node.devices:
                self._start_server(n)
        for n in self._servers:
            self._wait_for(n)

    def open_switchboard(self) -> Switchboard:
        """On a socket beside those of the servers."""
        return Switchboard(f"unix:{self._place / 'control.sock'}")

    def address(self, node: int) -> str:
        """The node's socket."""
        return f"unix:{self._socket_path(node)}"

    async def see_to(self, nodes: Collection[int]) -> None:
        """Start those again that were killed. Raises `ExecutorError`."""
        async with self._starting:
            for n in nodes:
                server = self._servers[n]
                if server.poll() is None:
                    continue
                assert server.stdout is not None
                server.stdout.close()
                _log.warning(
                    "the device server of node %s ended; starting it again", self._cluster.nodes[n].name
                )
                self._start_server(n)  # by this thread: the server ends with the thread that started it
                try:
                    await asyncio.to_thread(self._wait_for, n)
                except InputError as error:
                    raise ExecutorError(str(error)) from None

    def end(self) -> None:
        """End all of them, and remove their sockets."""
        for server in self._servers.values():
            server.terminate()
        for server in self._servers.values():
            try:
                server.wait(self._grace + 5.0)
            except subprocess.TimeoutExpired:
                server.send_signal(signal.SIGKILL)
                server.wait()
            if server.stdout is not None:
                server.stdout.close()
        self._servers.clear()
        shutil.rmtree(self._place, ignore_errors=True)

    def _start_server(self, n: int) -> None:
        command = server_command(self._cluster.nodes[n], self._chosen, self._socket_path(n))
        with self._complaints_path(n).open("w") as complaints:
            self._servers[n] = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=self._environ,
                # A session of its own: Ctrl-C in the terminal must reach the scheduler alone, which ends the
                # jobs first and the servers last.
                start_new_session=True,
            )

    def _wait_for(self, n: int) -> None:
        """Until a server's devices are open. Raises `InputError` with its own message where they are not."""
        server = self._servers[n]
        assert server.stdout is not None
        if not server.stdout.readline():
            state = self._complaints_path(n).read_text().strip()
            raise InputError(not_started(self._cluster.nodes[n], state or server.wait()))

    def _complaints_path(self, n: int) -> Path:
        return self._run_dir / f"device-server-{self._cluster.nodes[n].name}.err"

    def _socket_path(self, n: int) -> str:
        return str(self._place / f"{n}.sock")


class LentExecutor(LendingExecutor, MachineExecutor):
    """The `Executor` of this machine that lends devices.

    Jobs start as on `MachineExecutor`. Raises `InputError` where a device server does not start.
    """

    def __init__(
        self,
        folder: RunFolder,
        cluster: Cluster,
        device: str = "",
        carrier: Carrier | None = None,
        *,
        resume: bool = False,
    ) -> None:
        MachineExecutor.__init__(self, folder, cluster, resume=resume)
        self._servers: _ServersHere | CarrierServers
        if carrier is None:
            self._servers = _ServersHere(cluster, device, self.run_dir, self._environ, self._grace)
            self._lending = Lending(device, self._servers, self.run_dir, self._report_event)
        else:
            if not find_program(carrier.server[0], self._environ):
                raise InputError(
                    f"the carrier {carrier.name} cannot lend: found no program {carrier.server[0]!r} in PATH"
                )
            self._servers = CarrierServers(carrier, cluster, self.run_dir, self._environ)
            self._lending = CarrierLending(self._servers, self.run_dir, self._report_event)
        with ExitStack() as undo:
            # In the reverse order of what was made, if a server does not start: nothing is to be left.
            undo.callback(os.close, self._log)
            undo.callback(self._link.detach)
            undo.callback(self._servers.end)
            if isinstance(self._servers, _ServersHere):
                self._servers.begin_servers()
            self.end_borrowers()
            undo.pop_all()

    async def close(self) -> None:
        """Stop what runs, then the servers. May be called again."""
        if not self._closing:
            # Jobs before servers: a job that loses its device first would be recorded as lost, not as
            # stopped.
            await super().close()
            await self._lending.close()
            self._servers.end()

    async def leave(self) -> None:
        """Go without the jobs, but for those that have borrowed: the servers end with us."""
        if not self._closing:
            self.end_borrowers()
            await super().leave()
            await self._lending.close()
            self._servers.end()
