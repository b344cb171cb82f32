"""Runs jobs on this machine with devices that can be lent: its nodes lend each other theirs.

Each node of the cluster that has devices gets a device server (`dovetail device-server`); several nodes on
one machine are several servers. A job's environment says where its devices are: those of its own node in its
own process (``local:…``), borrowed ones with the server of the node that lends them. A program that asks
`dovetail.remote.namespace` for its arrays works with both alike, and a borrowed device moves home through
the control socket (`dovetail.remote.switchboard`) while it computes.

The accounting of Markthub 2015, sections 2 and 3; the servers end with this process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import DeviceError, ExecutorError, InputError
from dovetail.executors.discovery import discover
from dovetail.executors.environment import vendor
from dovetail.executors.local import LocalExecutor
from dovetail.executors.spawnlog import uid_of
from dovetail.interfaces import RunFolder
from dovetail.model import Allocation, Cluster, Device, Job, JobId, Migrated, Placed, bits
from dovetail.remote.switchboard import Switchboard

__all__ = ["Lent", "LentExecutor"]

STARTED = (
    "import ctypes, signal\n"
    "PDEATHSIG = 1\n"
    "ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGTERM, 0, 0, 0)\n"  # it ends with us
    "from dovetail.cli.main import run_cli\n"
    "run_cli()"
)


@dataclass(frozen=True, slots=True)
class Lent:
    """This machine, its devices lent between its nodes; ``device`` is what each of them is.

    As `dovetail device-server --device` takes it, e.g. ``numpy`` or ``torch``; by default ``cuda:N`` for the
    N-th device of kind ``gpu``, ``cuda`` or ``nvidia`` of this machine, ``opencl`` for one of that kind.
    """

    device: str = ""

    def discover(self) -> Cluster:
        """The cores that this process may use, and the GPUs that their drivers find."""
        return discover()

    def open(self, folder: RunFolder, cluster: Cluster) -> LentExecutor:
        """A new run, whose servers are started. Raises `InputError` where one cannot be."""
        return LentExecutor(cluster, folder, self.device)


@dataclass(slots=True)
class _Held:
    """A device that a job has: used by ``client``, and whose it is."""

    client: int
    node: int
    device: int


class LentExecutor(LocalExecutor):
    """The `Executor` of this machine that lends devices; implements `MigratesJobs` too.

    Jobs start as on `LocalExecutor`. Raises `InputError` where a device server does not start.
    """

    def __init__(self, cluster: Cluster, folder: RunFolder, device: str = "") -> None:
        super().__init__(
            cluster,
            folder.path,
            cwd=folder.cwd,
            grace=folder.grace,
            environ=folder.environ,
            run_uid=folder.uid or None,
            endless=folder.endless,
        )
        self._device = device
        self._place = Path(tempfile.mkdtemp(prefix="dovetail-"))  # names of sockets are short
        self._servers: dict[int, subprocess.Popen[str]] = {}
        self._switchboard: Switchboard | None = None
        self._devices: dict[JobId, tuple[str, list[_Held]]] = {}  # and the uid of the attempt
        self._moves: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        with ExitStack() as undo:
            undo.callback(os.close, self._log)
            undo.callback(self._end_servers)
            self._start_servers()
            undo.pop_all()

    # --- device servers ---------------------------------------------------------------------------

    def _start_servers(self) -> None:
        """One for each node with devices, all at once; wait until their devices are open."""
        for n, node in enumerate(self.cluster.nodes):
            if node.devices:
                self._start_server(n)
        for n in self._servers:
            self._wait_for(n)

    def _start_server(self, n: int) -> None:
        devices = self.cluster.nodes[n].devices
        chosen = [part for device in devices for part in ("--device", self._lent(device))]
        command = [sys.executable, "-c", STARTED, "device-server", *chosen]
        with self._complaints(n).open("w") as complaints:
            self._servers[n] = subprocess.Popen(
                [*command, "--socket", self._socket(n), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=self._environ,
                start_new_session=True,
            )

    def _wait_for(self, n: int) -> None:
        """Until a server's devices are open. Raises `InputError` with what it says where they cannot be."""
        server = self._servers[n]
        assert server.stdout is not None
        if not server.stdout.readline():
            name = self.cluster.nodes[n].name
            said = self._complaints(n).read_text().strip().removeprefix("dovetail: ")
            raise InputError(f"the device server of node {name} did not start: {said or server.wait()}")

    async def _lend(self, devices: list[_Held]) -> None:
        """See to it that who lends these devices can; a server that was killed is started again.

        Its clients have lost their arrays and end. Raises `ExecutorError` where it does not start.
        """
        async with self._starting:
            for n in {held.node for held in devices if held.node != held.client}:
                server = self._servers[n]
                if server.poll() is None:
                    continue
                assert server.stdout is not None
                server.stdout.close()
                self._start_server(n)  # by this thread: it ends with whoever has started it
                try:
                    await asyncio.to_thread(self._wait_for, n)
                except InputError as error:
                    raise ExecutorError(str(error)) from None

    def _end_servers(self) -> None:
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

    def _complaints(self, n: int) -> Path:
        return self.run_dir / f"device-server-{self.cluster.nodes[n].name}.err"

    def _socket(self, n: int) -> str:
        return str(self._place / f"{n}.sock")

    def _lent(self, device: Device) -> str:
        """What a device is, as a server opens it."""
        if self._device:
            return self._device
        return f"cuda:{device.local}" if vendor(device) == "nvidia" else device.kind

    def _address(self, held: _Held) -> str:
        """In the job's own process, or with the server that lends it."""
        if held.client == held.node:
            return f"local:{self._lent(self.cluster.nodes[held.node].devices[held.device])}"
        return f"unix:{self._socket(held.node)}#{held.device}"

    # --- the Executor protocol --------------------------------------------------------------------

    async def launch(self, placed: Placed) -> None:
        """Start the job, told where its devices are. Raises `ExecutorError` after `close`."""
        devices = _devices_of(placed.allocation)
        if devices:
            await self._lend(devices)
            board = await self._board()
            uid = uid_of(self.run_uid, placed.job.id, placed.attempt)
            self._devices[placed.job.id] = uid, devices
            board.expect(uid, [self._address(held) for held in devices])
        await super().launch(placed)

    def _of_this_job(self, job: Job) -> dict[str, Any]:
        """Where its devices are, and where it is told when they move."""
        own = super()._of_this_job(job)
        found = self._devices.get(job.id)
        if found is None or self._switchboard is None:
            return own
        variables = {**own.get("vars", {}), **self._switchboard.environment(found[0])}
        if any(vendor(device) == "nvidia" for node in self.cluster.nodes for device in node.devices):
            # What it borrows may come home to any of its node's, which it must be able to open then.
            numbers = {d.local for n in self.cluster.nodes for d in n.devices if vendor(d) == "nvidia"}
            known = self._environ.get("CUDA_VISIBLE_DEVICES")
            variables["CUDA_VISIBLE_DEVICES"] = known or ",".join(map(str, sorted(numbers)))
        return {**own, "vars": variables}

    async def _board(self) -> Switchboard:
        if self._switchboard is None:
            self._switchboard = Switchboard(f"unix:{self._place / 'control.sock'}")
            await self._switchboard.__aenter__()
        return self._switchboard

    def _ended(self, request: dict[str, Any], end: Mapping[str, Any]) -> None:
        found = self._devices.pop(request["job"], None)
        if found is not None and self._switchboard is not None:
            self._switchboard.forget(found[0])
        super()._ended(request, end)

    async def close(self) -> None:
        """Stop what runs, then the servers. May be called again."""
        if self._closing:
            return
        await super().close()
        for task in list(self._moves):
            task.cancel()
        await asyncio.gather(*self._moves, return_exceptions=True)
        if self._switchboard is not None:
            await self._switchboard.__aexit__()
            self._switchboard = None
        self._end_servers()

    async def leave(self) -> None:
        """The servers end with us, and with them the devices: nothing can be left to itself."""
        await self.close()

    # --- moving -----------------------------------------------------------------------------------

    async def migrate(self, placed: Placed, target: Allocation) -> None:
        """Begin to take borrowed devices home; `Migrated` follows, and says why where they stay.

        Raises `ExecutorError` for a job that has none, or that is to go elsewhere than home.
        """
        found = self._devices.get(placed.job.id)
        if found is None:
            raise ExecutorError(f"job {placed.job.id} has no devices that could move")
        uid, devices = found
        steps = _steps(devices, target)
        task = asyncio.create_task(self._move(placed.job.id, uid, devices, steps))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    async def _move(self, job: JobId, uid: str, devices: list[_Held], steps: dict[int, _Held]) -> None:
        """One device after the other; where one stays, those before it go back."""
        board = await self._board()
        before = {k: devices[k] for k in steps}
        done: list[int] = []
        try:
            for k, there in steps.items():
                await board.migrate(uid, k, self._address(there))
                devices[k] = there
                done.append(k)
        except DeviceError as error:
            why = str(error)
            for k in done:
                try:
                    await board.migrate(uid, k, self._address(before[k]))
                    devices[k] = before[k]
                except DeviceError as worse:
                    why += f"; {worse}"
            self._happened(Migrated(job, why))
            return
        self._happened(Migrated(job))


def _devices_of(allocation: Allocation) -> list[_Held]:
    """Node by node a gang's own devices, then those that it borrows there."""
    found: list[_Held] = []
    for n in allocation.nodes:
        part = allocation.part_on(n)
        found += [_Held(n, n, device) for device in (part.devices if part is not None else ())]
        found += [_Held(n, donor.donor, donor.device) for donor in allocation.donors if donor.client == n]
    return found


def _steps(devices: list[_Held], target: Allocation) -> dict[int, _Held]:
    """By place in the job's list, the devices at home that take over from borrowed ones.

    Raises `ExecutorError` where the target is anything but the job's own devices and more of them.
    """
    staying = {(donor.client, donor.donor, donor.device) for donor in target.donors}
    free: dict[int, list[int]] = {}
    for part in target.parts:
        for n in bits(part.nodes):
            own = {held.device for held in devices if held.client == held.node == n}
            if not own <= set(part.devices):
                raise ExecutorError("a job's own devices stay where they are while it runs")
            free[n] = [device for device in part.devices if device not in own]
    steps: dict[int, _Held] = {}
    for k, held in enumerate(devices):
        if held.client != held.node and (held.client, held.node, held.device) not in staying:
            if not free.get(held.client):
                raise ExecutorError("a borrowed device can only move home, to the node that uses it")
            steps[k] = _Held(held.client, held.client, free[held.client].pop(0))
    return steps
