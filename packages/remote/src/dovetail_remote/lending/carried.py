"""Runs jobs on this machine with GPUs that a carrier lends between its nodes (``lent?lend=lupine``).

Any CUDA program can borrow so, unmodified: its variables name the carrier's servers (`Carrier`). The server
of a GPU is started when the first job borrows it, is started again for the next where it has ended, and ends
with this process. It is to listen on the loopback interface; one that listens on an address that others than
this machine and its private network may reach is ended again, and its job refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from dovetail.errors import ExecutorError
from dovetail.model import EMPTY, Allocation, Cluster, Event, JobId, Migrated, Placed, Seconds
from dovetail_remote.lending.carriers import (
    Carrier,
    Endpoint,
    exposed_address,
    foreign_listener,
    free_port,
)
from dovetail_remote.lending.lending import DeviceServers, Lending
from dovetail_remote.switchboard import Switchboard

_log = logging.getLogger(__name__)
HERE = "127.0.0.1"
OPENED = 60.0
"""Seconds within which a server must accept connections."""
LOOK = 0.02
ENDS = 5.0
"""Seconds that a server has to end on SIGTERM."""

BEGUN = (
    "import os, signal, sys\n"
    "from dovetail.process.channel import end_with\n"
    "end_with(int(sys.argv[1]), signal.SIGTERM)\n"
    "os.execvpe(sys.argv[2], sys.argv[2:], os.environ)\n"
)
"""Becomes the server; the signal at its parent's end stays with it."""


class CarryingServers(DeviceServers):
    """Servers of a carrier, one for each GPU that is lent, wherever they run."""

    carrier: Carrier
    environ: Mapping[str, str]

    def open_switchboard(self) -> Switchboard:
        """None: nothing that a carrier lends moves."""
        raise ExecutorError(f"the carrier {self.carrier.name} moves no devices")

    def address(self, node: int) -> str:
        """None for a node: each of its GPUs has a server."""
        raise ExecutorError(f"the carrier {self.carrier.name} has a server for each device")

    def node_variables(self, node: int) -> Mapping[str, str]:
        """None: what a job needs is its own, by the devices that it has borrowed."""
        return EMPTY

    @abstractmethod
    def endpoint(self, node: int, device: int) -> Endpoint:
        """Where the server of a GPU listens."""

    async def see_to_devices(self, devices: Collection[tuple[int, int]]) -> None:
        """Have these GPUs served; a server that has ended is started again. Raises `ExecutorError`."""
        await self.see_to({node for node, _ in devices})


class CarrierServers(CarryingServers):
    """A server of the carrier for each GPU that is lent, on this machine."""

    def __init__(self, carrier: Carrier, cluster: Cluster, run_dir: Path, environ: Mapping[str, str]) -> None:
        self.carrier = carrier
        self.environ = environ
        self._cluster, self._run_dir = cluster, run_dir
        self._servers: dict[tuple[int, int], tuple[subprocess.Popen[bytes], Endpoint]] = {}
        self._starting = asyncio.Lock()

    async def see_to(self, nodes: Collection[int]) -> None:
        """Nothing: servers are started by device, see `see_to_devices`."""

    def endpoint(self, node: int, device: int) -> Endpoint:
        """Where the server of a GPU listens."""
        return self._servers[node, device][1]

    async def see_to_devices(self, devices: Collection[tuple[int, int]]) -> None:
        """Have these GPUs served; a server that has ended is started again. Raises `ExecutorError`."""
        async with self._starting:
            for node, device in devices:
                found = self._servers.get((node, device))
                if found is None or found[0].poll() is not None:
                    self._start(node, device)  # by this thread: it ends with the thread that started it
                    await asyncio.to_thread(self._wait_for, node, device)

    def end(self) -> None:
        """End all of them."""
        for server, _ in self._servers.values():
            signal_server(server, signal.SIGTERM)
        for server, _ in self._servers.values():
            end_server(server)
        self._servers.clear()

    def _start(self, n: int, device: int) -> None:
        node = self._cluster.nodes[n]
        number = node.devices[device].local
        at = Endpoint(HERE, free_port(HERE))
        command = self.carrier.server_command(at, number)
        environ = {**self.environ, **self.carrier.server_environment(at, number)}
        with self._complaints(n, device).open("wb") as complaints:
            server = subprocess.Popen(
                [sys.executable, "-c", BEGUN, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env=environ,
                start_new_session=True,
            )
        self._servers[n, device] = server, at
        _log.info("%s serves %s of %s on %s", self.carrier.name, node.devices[device].name, node.name, at)

    def _wait_for(self, n: int, device: int) -> None:
        """Until it accepts connections, where no other machine reaches it. Raises `ExecutorError`."""
        server, at = self._servers[n, device]
        node, until = self._cluster.nodes[n], time.monotonic() + OPENED
        about = f"the {self.carrier.name} server of {node.devices[device].name} of node {node.name}"
        while not accepts_connections(at):
            if server.poll() is not None or time.monotonic() > until:
                said = self._complaints(n, device).read_text(errors="replace").strip()[-1000:]
                end_server(server)
                raise ExecutorError(f"{about} did not start: {said or f'status {server.returncode}'}")
            time.sleep(LOOK)
        try:
            refuse_exposed(about, at)
        except ExecutorError:
            end_server(server)
            raise

    def _complaints(self, n: int, device: int) -> Path:
        return self._run_dir / f"carrier-{self._cluster.nodes[n].name}-{device}.err"


class CarrierLending(Lending):
    """Which GPUs jobs have borrowed through a carrier; they stay."""

    def __init__(self, servers: CarryingServers, folder: Path, happened: Callable[[Event], None]) -> None:
        super().__init__("", servers, folder, happened)
        self._carriers = servers

    async def begin_job(self, placed: Placed, uid: str, cluster: Cluster) -> None:
        """A job with devices is about to start. Raises `ExecutorError` where no server lends them."""
        devices = self._take_note(placed, uid)
        borrowed = [(held.node, held.device) for held in devices if held.borrowed]
        await self._carriers.see_to_devices(borrowed)
        if borrowed:
            self._note_devices(uid, devices)
            name = self._carriers.carrier.name
            _log.info("job %s borrows %d devices through %s, and stays", placed.job.id, len(borrowed), name)
            self._happened(Migrated(placed.job.id, f"what {name} carries does not move", stays=True))

    def job_environment(
        self, job: JobId, cluster: Cluster, visible: Callable[[int], str | None]
    ) -> Mapping[str, str]:
        """Where its borrowed GPUs are; those of its own node it sees as without lending."""
        devices = self.devices_of_job(job)
        borrowed = [held for held in devices if held.borrowed]
        if not borrowed:
            return {}
        at = [self._carriers.endpoint(held.node, held.device) for held in borrowed]
        own = len(devices) - len(borrowed)
        return self._carriers.carrier.job_environment(at, own, self._carriers.environ)

    def migrate(self, placed: Placed, target: Allocation, cluster: Cluster) -> None:
        """Raises `ExecutorError`: what a carrier lends does not move."""
        raise ExecutorError(f"what {self._carriers.carrier.name} carries does not move")


def refuse_exposed(about: str, at: Endpoint) -> None:
    """Raises `ExecutorError` for a server that hosts outside of the private network may reach.

    The same for the server of another account, which has taken the port.
    """
    uid = foreign_listener(at.port)
    if uid is not None:
        raise ExecutorError(
            f"{about} did not get its port {at.port}: user {uid} of this machine listens there"
        )
    exposed = exposed_address(at.port)
    if exposed:
        _log.warning("%s listens on %s: it is ended", about, exposed)
        raise ExecutorError(
            f"{about} listens on {exposed}, where it knows no secret; expected loopback or private "
            "addresses only (a firewall does not show here: lend inside of a private network)"
        )


def accepts_connections(at: Endpoint) -> bool:
    """Whether a server listens there."""
    try:
        with socket.create_connection(at, LOOK * 10):
            return True
    except OSError:
        return False


def signal_server(server: subprocess.Popen[bytes], number: int) -> None:
    """Signal a server and the processes that it has made for its clients."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, number)


def end_server(server: subprocess.Popen[bytes], grace: Seconds = ENDS) -> None:
    """End a server, and what it has started."""
    signal_server(server, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.wait(grace)
    signal_server(server, signal.SIGKILL)
    server.wait()
