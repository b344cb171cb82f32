"""On a Ray cluster whose nodes lend each other their devices (``--executor ray?lend=DEVICE``).

Such a run holds the GPUs of its nodes from its start to its end, as in an allocation: Ray can give a task no
GPU while it runs, nor take one from it. An actor on each node, the lender, takes all of them from Ray and has
them served (`dovetail_ray.lender`); tasks request CPUs and memory of Ray, and get the names of their GPUs
from here. Who has what, and how it moves home, is for `dovetail_remote.lending.lending`.

Gangs, whose tasks are on several nodes, keep to the devices of their nodes.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import RunFolder
from dovetail.model import Allocation, Cluster, JobId, Node, Placed, Seconds
from dovetail.process.channel import bracket_host
from dovetail.process.environment import is_gang
from dovetail.process.spawn_log import uid_of
from dovetail_ray import lender as ray_lender
from dovetail_ray.backend import import_ray
from dovetail_ray.executor import RayExecutor
from dovetail_remote.address import TOKEN_FILE
from dovetail_remote.lending.carried import CarrierLending, CarryingServers
from dovetail_remote.lending.carriers import Carrier, Endpoint, load_carrier
from dovetail_remote.lending.keeper import specify_keeper
from dovetail_remote.lending.lending import (
    DeviceServers,
    Lending,
    devices_of,
    not_started,
    refuse_to_borrow,
    server_command,
)
from dovetail_remote.switchboard import Switchboard

ENDED = 10.0
"""Seconds that lenders have to end what they keep; the kernel and Ray do it after that."""
OPENED = 130.0
"""Seconds within which a node's devices must be open, once Ray has given us its GPUs."""


class _ServersOfActors(DeviceServers):
    """The device servers of a cluster's nodes, each kept by the lender of its node."""

    def __init__(self, chosen: str, patience: Seconds) -> None:
        self._ray = ray = import_ray()
        ray.cloudpickle.register_pickle_by_value(ray_lender)
        self._lender = ray.remote(num_cpus=0, max_restarts=0)(ray_lender.Lender)
        self._chosen, self._patience = chosen, patience
        self._token = secrets.token_hex(32)
        self._here = ray.util.get_node_ip_address()
        self._lenders: dict[int, Any] = {}
        self._nodes: dict[int, tuple[Node, str]] = {}  # and Ray's id of it
        self._heard: dict[int, dict[str, Any]] = {}  # by node, its lender's last answer

    def begin_servers(self, cluster: Cluster, ids: Sequence[str]) -> None:
        """On all nodes at once; wait for them. Raises `ExecutorError`, `InputError`."""
        # Nodes without an id were lost before this run was taken up.
        nodes = [n for n, id in enumerate(ids) if id]
        # All at once: each waits for Ray to give it its node's GPUs.
        lenders = [self.start_lender(n, cluster.nodes[n], ids[n]) for n in nodes]
        try:
            self._ray.get([lender.hold.remote() for lender in lenders], timeout=self._patience)
            found = self._ray.get([lender.serve.remote() for lender in lenders], timeout=OPENED)
        except self._ray.exceptions.GetTimeoutError:
            raise ExecutorError(self._not_held()) from None
        except self._ray.exceptions.RayError as error:
            raise ExecutorError(f"Ray: {str(error).strip().splitlines()[0]}") from None
        for n, reply in zip(nodes, found, strict=True):
            if reply["complaint"]:
                raise InputError(not_started(cluster.nodes[n], reply["complaint"]))
            self._heard[n] = reply

    def start_lender(self, n: int, node: Node, id: str) -> Any:
        """Have Ray put a lender on a node, with all of its GPUs."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        address = next((a["NodeManagerAddress"] for a in self._ray.nodes() if a["NodeID"] == id), "")
        self._nodes[n] = node, id
        argv, env = self._what_serves(node, bracket_host(address))
        where = NodeAffinitySchedulingStrategy(id, soft=False)
        lender = self._lender.options(scheduling_strategy=where, num_gpus=len(node.devices))
        self._lenders[n] = lender.remote(argv if node.devices else [], self._token, env)
        return self._lenders[n]

    def _what_serves(self, node: Node, address: str) -> tuple[list[str], dict[str, str]]:
        """The arguments of Python for what serves a node's devices, and its variables."""
        # The lender puts the token's own file in place of `{token}`: a secret in a command line could be read
        # by every user of the node.
        return server_command(node, self._chosen, "-", address, "{token}"), {}

    def end(self) -> None:
        """Have all lenders end what they keep: Ray may kill keepers too, and their tokens would stay."""
        refs = [self._lenders[n].end.remote() for n in self._lenders]
        if refs:
            self._ray.wait(refs, num_returns=len(refs), timeout=ENDED)

    def has_lender(self, n: int) -> bool:
        """Whether the node has a lender that has answered."""
        return n in self._heard

    def lost(self, n: int) -> None:
        """A node is gone."""
        self._lenders.pop(n, None)
        self._heard.pop(n, None)

    def visible_devices(self, n: int) -> list[str]:
        """What the node's GPUs are called there, in our order."""
        return [word for word in self._heard[n]["visible"].split(",") if word]

    # --- DeviceServers ----------------------------------------------------------------------------

    def open_switchboard(self) -> Switchboard:
        """At the address that Ray gives this machine, with the servers' token."""
        return Switchboard(f"tcp:{bracket_host(self._here)}:0", self._token.encode())

    def address(self, node: int) -> str:
        """Where the node's server listens."""
        (address,) = json.loads(self._heard[node]["ready"])["addresses"]
        return str(address)

    def node_variables(self, node: int) -> Mapping[str, str]:
        """Where the token is on that node."""
        return {TOKEN_FILE: self._heard[node]["token"]}

    async def see_to(self, nodes: Collection[int]) -> None:
        """Call their lenders, which start a server again that has ended. Raises `ExecutorError`."""
        for n in nodes:
            if n not in self._lenders:
                raise ExecutorError("a node that was to lend is lost")
            try:
                reply = await self._await_lender(n)
            except self._ray.exceptions.ActorDiedError:  # killed, while its node lives: put another one there
                self.start_lender(n, *self._nodes[n])
                reply = await self._await_lender(n)
            if reply["complaint"]:
                raise ExecutorError(not_started(self._nodes[n][0], reply["complaint"]))
            self._heard[n] = reply

    async def _await_lender(self, n: int) -> dict[str, Any]:
        """The answer of a node's lender. Raises `ExecutorError`, `ActorDiedError`."""
        answer = asyncio.wrap_future(self._lenders[n].serve.remote().future())
        errors = self._ray.exceptions
        try:
            reply: dict[str, Any] = await asyncio.wait_for(answer, self._patience + OPENED)
        except TimeoutError:
            raise ExecutorError(self._not_held()) from None
        except errors.RayError as error:
            if isinstance(error, errors.ActorDiedError):
                raise
            raise ExecutorError(f"Ray: {str(error).strip().splitlines()[0]}") from None
        return reply

    def _not_held(self) -> str:
        return (
            f"Ray did not give this run the GPUs of its nodes within {self._patience:g} s, which it holds to "
            "lend them; others may use them ('ray status')"
        )


class _CarriersOfActors(CarryingServers, _ServersOfActors):
    """A carrier's servers of a cluster's nodes, those of a node kept by one process of its lender.

    They know no secret, and listen at the address that Ray has of their node.
    """

    def __init__(self, carrier: Carrier, patience: Seconds, environ: Mapping[str, str]) -> None:
        _ServersOfActors.__init__(self, "", patience)
        self.carrier, self.environ = carrier, environ

    def _what_serves(self, node: Node, address: str) -> tuple[list[str], dict[str, str]]:
        numbers = [device.local for device in node.devices]
        return ["-m", "dovetail_remote.lending.keeper", address], specify_keeper(self.carrier, numbers)

    def endpoint(self, node: int, device: int) -> Endpoint:
        """Where the server of a GPU listens."""
        host, _, port = json.loads(self._heard[node]["ready"])["addresses"][device].rpartition(":")
        return Endpoint(host, int(port))


class LendingRayExecutor(RayExecutor):
    """Jobs on the nodes of a Ray cluster that lend each other their devices; implements `MigratesJobs`.

    Raises `InputError` where a device server does not start, `ExecutorError` where Ray gives us no GPUs.
    """

    def __init__(
        self, chosen: str, patience: Seconds, folder: RunFolder, cluster: Cluster, ids: Sequence[str]
    ) -> None:
        super().__init__(patience, folder, cluster, ids)
        carrier = load_carrier(chosen)
        self._servers: _ServersOfActors
        self._lending: Lending
        if carrier is None:
            self._servers = _ServersOfActors(chosen, patience)
            self._lending = Lending(chosen, self._servers, self.run_dir, self._report_event)
        else:
            carried = _CarriersOfActors(carrier, patience, os.environ)
            self._servers = carried
            self._lending = CarrierLending(carried, self.run_dir, self._report_event)
        try:
            self._servers.begin_servers(cluster, ids)
        except (ExecutorError, InputError):
            self._marker.unlink(missing_ok=True)
            self._servers.end()
            self._ray.shutdown()
            raise

    async def launch(self, placed: Placed) -> None:
        """Start the job with the places of its devices; `ExecutorError` where it cannot have them."""
        devices = devices_of(placed.allocation)
        for n in {*placed.allocation.nodes, *(held.node for held in devices)}:
            if not self._servers.has_lender(n) and n not in self._lost:  # it has joined
                self._servers.start_lender(n, self.cluster.nodes[n], self._ids[n])
                await self._servers.see_to([n])
        if is_gang(placed):
            refuse_to_borrow(placed)
        elif devices:
            if placed.allocation.donors:
                await self._servers.see_to(placed.allocation.nodes)  # for the token
            uid = uid_of(self.run_uid, placed.job.id, placed.attempt)
            await self._lending.begin_job(placed, uid, self.cluster)
        await super().launch(placed)

    async def migrate(self, placed: Placed, target: Allocation) -> None:
        """Begin to take borrowed devices home; `Migrated` follows, with the reason where they stay.

        Raises `ExecutorError` for a job that has none, or that is to go elsewhere than home.
        """
        self._lending.migrate(placed, target, self.cluster)

    def _node_bundle(self, placed: Placed, node: int) -> dict[str, float]:
        """Without GPUs: those are ours already."""
        held = super()._node_bundle(placed, node)
        held.pop("GPU", None)
        return held or {"CPU": 0.001}

    def _task_needs(self, placed: Placed, node: int, tasks: int) -> dict[str, float]:
        return {**super()._task_needs(placed, node, tasks), "num_gpus": 0}

    def _task_spec(
        self, task: Any, words: list[str], uid: str, node: int, rank: tuple[int, int, int]
    ) -> dict[str, Any]:
        spec = super()._task_spec(task, words, uid, node, rank)
        placed = task.placed
        names, part = self._servers.visible_devices(node), placed.allocation.part_on(node)
        own = (
            {}
            if is_gang(placed)
            else dict(self._lending.job_environment(placed.job.id, self.cluster, self._cuda_devices))
        )
        held = [names[d] for d in (() if part is None else part.devices) if d < len(names)]
        visible = own.pop("CUDA_VISIBLE_DEVICES", ",".join(held))
        return {**spec, "gpus": 0, "visible": visible, "env": {**spec["env"], **own}}

    def _cuda_devices(self, node: int) -> str:
        return ",".join(self._servers.visible_devices(node))

    def _finish_task(self, task: Any, end: dict[str, Any]) -> None:
        self._lending.forget_job(task.placed.job.id)
        super()._finish_task(task, end)

    def _lose_node(self, n: int) -> None:
        jobs: list[JobId] = [job for job, task in self._running.items() if n in task.placed.allocation.nodes]
        self._servers.lost(n)
        super()._lose_node(n)
        for job in jobs:
            self._lending.forget_job(job)

    async def _end_tasks(self) -> None:
        """What goes on beside, and the lenders: nothing runs any more, and Ray is still there."""
        await super()._end_tasks()
        await asyncio.to_thread(self._servers.end)

    async def close(self) -> None:
        """Stop what still runs, then the servers, and let Ray go."""
        await super().close()
        await self._lending.close()
