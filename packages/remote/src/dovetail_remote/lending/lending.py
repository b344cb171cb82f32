"""Devices that jobs hold and borrow: where they are, how they move home, and who had borrowed what.

An executor that lends has a `DeviceServers`, which knows how servers are started where it runs jobs, and is
a `LendingExecutor`. A job's environment names its devices: those of its own node in its own
process (``local:…``), borrowed ones with the server of the node that lends them. A borrowed device moves
home through the control socket (`dovetail_remote.switchboard`) while the job computes.

Servers end with the Dovetail that has started them. Where borrowed devices are is noted in ``devices.jsonl``
of the run folder, so that the next Dovetail knows which jobs have lost theirs, and ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import DeviceError, ExecutorError
from dovetail.model import (
    EMPTY,
    Allocation,
    Cluster,
    Device,
    Event,
    JobId,
    Migrated,
    Node,
    Placed,
    State,
    bit_indices,
)
from dovetail.process.environment import device_vendor
from dovetail.process.notes import read_notes, write_private
from dovetail.process.spawn_log import uid_of
from dovetail.process.supervised import SupervisedExecutor
from dovetail.records import dataclass
from dovetail_remote.switchboard import Switchboard

_log = logging.getLogger(__name__)
NOTES = "devices.jsonl"
LOST = "the device server that it had borrowed from ended with the Dovetail that had started it"

STARTED = (
    "import os, shutil, signal\n"
    "from dovetail.process.channel import end_with\n"
    "parent = int(os.environ.pop('DOVETAIL_STARTED_BY'))\n"
    "end_with(parent, signal.SIGTERM)\n"
    "place = os.environ.pop('DOVETAIL_SOCKETS', '')\n"
    "def orphan():\n"  # the signal comes with the end of its main thread; others may live on a little
    "    try:\n"
    "        with open(f'/proc/{parent}/stat') as file:\n"
    "            dead = file.read().rpartition(')')[2].split()[0] in 'ZX'\n"
    "    except OSError:\n"
    "        dead = True\n"
    "    return dead or os.getppid() != parent\n"
    "from dovetail.cli.main import run_cli\n"
    "try:\n"
    "    run_cli()\n"
    "finally:\n"
    "    if place and orphan():\n"  # the parent is gone: nothing else would remove them
    "        shutil.rmtree(place, ignore_errors=True)\n"
)
"""A `dovetail device-server` that ends with the process whose id is in its environment."""


class DeviceServers(ABC):
    """A device server on each node that lends."""

    @abstractmethod
    def open_switchboard(self) -> Switchboard:
        """A new one, at an address that jobs reach."""

    @abstractmethod
    def address(self, node: int) -> str:
        """Where the node's server listens; it was seen to."""

    def node_variables(self, node: int) -> Mapping[str, str]:
        """Variables that a job on this node needs beside its addresses."""
        return EMPTY

    def host(self, node: int) -> str:
        """What the node calls the machine that we are on; empty where that does not matter."""
        return ""

    @abstractmethod
    async def see_to(self, nodes: Collection[int]) -> None:
        """Have the servers of these nodes serve; one that has ended is started again.

        Its clients have lost their arrays and end. Raises `ExecutorError` where it does not start.
        """


@dataclass(slots=True)
class Held:
    """A device that a job has: used by node ``client``, and whose it is."""

    client: int
    node: int
    device: int

    @property
    def borrowed(self) -> bool:
        """Whether it is another node's."""
        return self.client != self.node


def lent_as(device: Device, chosen: str) -> str:
    """What a device is, as a server opens it: ``chosen``, which may leave the number of a GPU open.

    >>> gpu = Device("gpu", "", 1)
    >>> lent_as(gpu, "numpy"), lent_as(gpu, "torch:cuda"), lent_as(Device("opencl"), "")
    ('numpy', 'torch:cuda:1', 'opencl')
    """
    if chosen.rpartition(":")[2] == "cuda":
        return f"{chosen}:{device.local}"
    if chosen:
        return chosen
    return f"cuda:{device.local}" if device_vendor(device) == "nvidia" else device.kind


def server_command(node: Node, chosen: str, socket: str, listen: str = "", token: str = "") -> list[str]:
    """The arguments of Python for the device server of a node: on a ``socket``, or ``-`` and the network."""
    options = [part for device in node.devices for part in ("--device", lent_as(device, chosen))]
    network = ["--listen", f"{listen}:0", "--token-file", token] if listen else []
    return ["-c", STARTED, "device-server", *options, "--socket", socket, "--json", *network]


def not_started(node: Node, words: object) -> str:
    """The sentence for a device server that ended with these words before it was ready."""
    return f"the device server of node {node.name} did not start: {str(words).removeprefix('dovetail: ')}"


class Lending:
    """Which devices jobs have, by their executor's word; moves them; reports it by ``happened``.

    ``chosen`` is what each device is (`lent_as`), ``folder`` the run's.
    """

    def __init__(
        self, chosen: str, servers: DeviceServers, folder: Path, happened: Callable[[Event], None]
    ) -> None:
        self.chosen = chosen
        self._servers = servers
        self._notes = folder / NOTES
        self._happened = happened
        self._board: Switchboard | None = None
        self._devices: dict[JobId, tuple[str, list[Held]]] = {}  # and the uid of the attempt
        self._moves: set[asyncio.Task[None]] = set()

    async def begin_job(self, placed: Placed, uid: str, cluster: Cluster) -> None:
        """A job with devices is about to start. Raises `ExecutorError` where no server lends them."""
        devices = self._take_note(placed, uid)
        await self._servers.see_to({held.node for held in devices if held.borrowed})
        board = await self._open_board()
        board.expect_job(uid, [self._device_address(held, cluster) for held in devices])
        if any(held.borrowed for held in devices):
            # Written before the job starts: should we be killed in between, a successor ends a job that never
            # ran, rather than leave one whose server is gone.
            self._note_devices(uid, devices)

    def _take_note(self, placed: Placed, uid: str) -> list[Held]:
        """A job has these devices from now on, in the place of those that it had."""
        # A job that is requeued keeps its id: what its last attempt had borrowed must not be found again.
        self.forget_job(placed.job.id)
        devices = devices_of(placed.allocation)
        self._devices[placed.job.id] = uid, devices
        return devices

    def devices_of_job(self, job: JobId) -> list[Held]:
        """What a job has now."""
        found = self._devices.get(job)
        return [] if found is None else found[1]

    def job_environment(
        self, job: JobId, cluster: Cluster, visible: Callable[[int], str | None]
    ) -> Mapping[str, str]:
        """Where a job's devices are, and the socket that announces their moves.

        ``visible`` gives a node's CUDA_VISIBLE_DEVICES: what a job borrows may come home to any of these.
        """
        found = self._devices.get(job)
        if found is None or self._board is None:
            return {}
        uid, devices = found
        home = devices[0].client
        where = self._board.job_environment(uid, self._servers.host(home))
        variables = {**where, **self._servers.node_variables(home)}
        # All CUDA devices that the nodes have: a process cannot see more later, and borrowed ones come home.
        lent = [
            device for node in cluster.nodes for device in node.devices if device_vendor(device) == "nvidia"
        ]
        if lent:
            numbers = sorted({device.local for device in lent})
            known = visible(home)
            variables["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, numbers)) if known is None else known
        return variables

    def forget_job(self, job: JobId) -> None:
        """A job has ended, or starts anew."""
        found = self._devices.pop(job, None)
        if found is not None and self._board is not None:
            self._board.forget_job(found[0])

    def noted_borrowers(self) -> set[str]:
        """Unique ids of the jobs that were noted to have borrowed devices, under an earlier Dovetail too.

        Raises `ExecutorError` where the notes cannot be read.
        """
        last = {record["uid"]: record["borrowed"] for record in read_notes(self._notes)}
        return {uid for uid, borrowed in last.items() if borrowed}

    async def close(self) -> None:
        """Give up what moves, and close the control socket."""
        for task in list(self._moves):
            task.cancel()
        await asyncio.gather(*self._moves, return_exceptions=True)
        if self._board is not None:
            await self._board.__aexit__()
            self._board = None

    # --- moving -----------------------------------------------------------------------------------

    def migrate(self, placed: Placed, target: Allocation, cluster: Cluster) -> None:
        """Begin to take borrowed devices home; `Migrated` follows, with the reason where they stay.

        Raises `ExecutorError` for a job that has none, or that is to go elsewhere than home.
        """
        found = self._devices.get(placed.job.id)
        if found is None:
            raise ExecutorError(f"job {placed.job.id} has no devices that could move")
        uid, devices = found
        work = self._move_devices(placed.job.id, uid, devices, steps_home(devices, target), cluster)
        task = asyncio.create_task(self._finish_move(placed.job.id, work))
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    async def _finish_move(self, job: JobId, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong with a move, it is over."""
        # Any exception: the policy waits for `Migrated`, and would hold the job's devices for ever.
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the job stays where it is
            _log.exception("the devices of job %s could not be moved", job)
            self._happened(Migrated(job, str(error) or type(error).__name__))

    async def _move_devices(
        self, job: JobId, uid: str, devices: list[Held], there: Mapping[int, Held], cluster: Cluster
    ) -> None:
        """One device after the other; where one stays, those before it go back."""
        board = await self._open_board()
        before = {k: devices[k] for k in there}
        done: list[int] = []
        try:
            for k, held in there.items():
                await board.migrate(uid, k, self._device_address(held, cluster))
                devices[k] = held
                done.append(k)
        except DeviceError as error:
            # Home or abroad, but together: a job with half of its devices at home would hold both sets.
            why = str(error)
            for k in done:
                try:
                    await board.migrate(uid, k, self._device_address(before[k], cluster))
                    devices[k] = before[k]
                except DeviceError as worse:
                    why += f"; {worse}"
            self._happened(Migrated(job, why))
            return
        with contextlib.suppress(ExecutorError):  # a full disk: it moved all the same
            self._note_devices(uid, devices)
        self._happened(Migrated(job))

    # --- what is where ----------------------------------------------------------------------------

    async def _open_board(self) -> Switchboard:
        if self._board is None:
            self._board = self._servers.open_switchboard()
            await self._board.__aenter__()
        return self._board

    def _device_address(self, held: Held, cluster: Cluster) -> str:
        """In the job's own process, or with the server that lends it."""
        if held.borrowed:
            return f"{self._servers.address(held.node)}#{held.device}"
        return f"local:{lent_as(cluster.nodes[held.node].devices[held.device], self.chosen)}"

    def _note_devices(self, uid: str, devices: Sequence[Held]) -> None:
        """Whether a job has borrowed devices now. Raises `ExecutorError`."""
        record = {"uid": uid, "borrowed": any(held.borrowed for held in devices)}
        # An own newline first: what a killed scheduler left is then a line of its own, which the reader
        # skips.
        line = b"\n" + json.dumps(record).encode() + b"\n"  # the last line may be torn
        write_private(self._notes, line, os.O_APPEND)


class LendingExecutor(SupervisedExecutor):
    """What executors that lend devices have in common; implements `MigratesJobs`.

    To be put before the executor that starts jobs in the list of bases; sets ``_lending`` itself.
    """

    _lending: Lending

    async def launch(self, placed: Placed) -> None:
        """Start the job with the places of its devices. Raises `ExecutorError` after `close`."""
        if self._told_where(placed):
            uid = uid_of(self.run_uid, placed.job.id, placed.attempt)
            await self._lending.begin_job(placed, uid, self.cluster)
        await super().launch(placed)

    def _told_where(self, placed: Placed) -> bool:
        """Whether the job's environment names its devices. Raises `ExecutorError` if it cannot."""
        return bool(devices_of(placed.allocation))

    def _cuda_on(self, node: int) -> str | None:
        """CUDA_VISIBLE_DEVICES on a node; ``None`` where it is not set, which leaves all."""
        return self._environ.get("CUDA_VISIBLE_DEVICES")

    def _of_this_job(self, placed: Placed) -> dict[str, Any]:
        """Where its devices are, and the socket that announces where they move."""
        own = super()._of_this_job(placed)
        variables = self._lending.job_environment(placed.job.id, self.cluster, self._cuda_on)
        return {**own, "vars": {**own.get("vars", {}), **variables}} if variables else own

    def _handle_end(self, request: dict[str, Any], end: Mapping[str, Any]) -> None:
        self._lending.forget_job(request["job"])
        super()._handle_end(request, end)

    async def migrate(self, placed: Placed, target: Allocation) -> None:
        """Begin to take borrowed devices home; `Migrated` follows, with the reason where they stay.

        Raises `ExecutorError` for a job that has none, or that is to go elsewhere than home.
        """
        self._lending.migrate(placed, target, self.cluster)

    def end_borrowers(self) -> None:
        """End what runs with devices of servers that have ended, or are about to, with their Dovetail."""
        borrowers = self._lending.noted_borrowers()
        # The arrays on those servers are lost, so the jobs can only end; NODE_FAIL lets them be requeued.
        for link, uid in self._running.values():
            if uid in borrowers:
                link.stop(uid, State.NODE_FAIL.value, self._grace, LOST)


def refuse_to_borrow(placed: Placed) -> None:
    """For a gang, whose tasks share one environment. Raises `ExecutorError` for one that borrows."""
    if placed.allocation.donors:
        raise ExecutorError(
            "a job of several tasks or nodes uses the devices of its nodes, and cannot borrow others"
        )


def devices_of(allocation: Allocation) -> list[Held]:
    """Node by node a gang's own devices, then those that it borrows there."""
    found: list[Held] = []
    for n in allocation.nodes:
        part = allocation.part_on(n)
        found += [Held(n, n, device) for device in (part.devices if part is not None else ())]
        found += [Held(n, donor.donor, donor.device) for donor in allocation.donors if donor.client == n]
    return found


def steps_home(devices: Sequence[Held], target: Allocation) -> dict[int, Held]:
    """By place in the job's list, the devices at home that take over from borrowed ones.

    Raises `ExecutorError` where the target is anything but the job's own devices and more of them.
    """
    staying = {(donor.client, donor.donor, donor.device) for donor in target.donors}
    free: dict[int, list[int]] = {}
    for part in target.parts:
        for n in bit_indices(part.nodes):
            # A process opens its own devices by index: moving these would need a new process.
            own = {held.device for held in devices if held.client == held.node == n}
            if not own <= set(part.devices):
                raise ExecutorError("a job's own devices stay where they are while it runs")
            free[n] = [device for device in part.devices if device not in own]
    found: dict[int, Held] = {}
    for k, held in enumerate(devices):
        if held.borrowed and (held.client, held.node, held.device) not in staying:
            if not free.get(held.client):
                raise ExecutorError("a borrowed device can only move home, to the node that uses it")
            found[k] = Held(held.client, held.client, free[held.client].pop(0))
    return found
