"""Ray clusters as a backend: what is there, and runs on it (`dovetail.executors.ray_executor`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dovetail.errors import InputError
from dovetail.executors.discovery import discover
from dovetail.executors.ray_executor import RayExecutor
from dovetail.executors.ray_nodes import import_ray, knock, nodes_of
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import Cluster, Node
from dovetail.records import dataclass

OBJECT_STORE = 200 << 20
"""Bytes of the object store of a Ray of our own."""


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster.

    ``address`` is HOST:PORT or ``auto`` (empty: RAY_ADDRESS, else a Ray is started on this machine and
    stopped again). ``patience`` is the seconds that a gang may wait for Ray to hold its nodes. ``lend`` is
    what each device is where nodes lend them to each other, as `dovetail device-server --device` takes it,
    e.g. ``cuda`` (the N-th is ``cuda:N``) or ``numpy``; empty: they do not.
    """

    address: str = ""
    patience: float = 60.0
    lend: str = ""

    def discover(self) -> Cluster:
        """The nodes that are alive."""
        return Cluster(tuple(node for _, node in self._nodes()), f"Ray at {self._label()}")

    def _nodes(self) -> list[tuple[str, Node]]:
        self._connect()
        found = nodes_of(import_ray().nodes())
        if not found:
            raise InputError("found no node with CPUs or GPUs, expected one", where="executor ray")
        return found

    def _label(self) -> str:
        return self.address or os.environ.get("RAY_ADDRESS", "this machine")

    def _connect(self) -> None:
        """Be connected. Raises `InputError` where there is no such cluster."""
        ray = import_ray()
        if ray.is_initialized():
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = self.address or os.environ.get("RAY_ADDRESS", "")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address:
                knock(address)
                ray.init(address=address, **quiet)
                return
            here = discover()
            gpus = sum(device.kind == "gpu" for node in here.nodes for device in node.devices)
            ray.init(
                address="local",
                _node_ip_address="127.0.0.1",
                num_cpus=here.total_cpus,
                num_gpus=gpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,
                **quiet,
            )
        except (OSError, RuntimeError, ValueError) as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(
                f"Ray cannot be reached at {address or 'this machine'}: {said[0]}; 'ray status' shows "
                "whether it is up, RAY_AUTH_TOKEN must be the cluster's",
                where="executor ray",
            ) from error

    def open(self, folder: RunFolder, cluster: Cluster) -> RayExecutor:
        """A new run. Raises `InputError` for a cluster that is not what is there."""
        here = self._nodes()
        names = {node.name: (id, node) for id, node in here}
        ids: list[str] = []
        for node in cluster.nodes:
            id, found = names.get(node.name, ("", node))
            if not id:
                known = ", ".join(names)
                raise InputError(f"found no such node in Ray, expected of {known}", where=f"node {node.name}")
            if node.cpus > found.cpus or len(node.devices) > len(found.devices):
                raise InputError(
                    f"found {node.cpus} CPUs and {len(node.devices)} devices, expected at most "
                    f"{found.cpus} and {len(found.devices)}, which Ray has there",
                    where=f"node {node.name}",
                )
            ids.append(id)
        return self._executor(folder, cluster, ids)

    def _executor(self, folder: RunFolder, cluster: Cluster, ids: Sequence[str]) -> RayExecutor:
        if not self.lend:
            return RayExecutor(self.patience, folder, cluster, ids)
        from dovetail.executors.ray_lending import LendingRayExecutor

        return LendingRayExecutor(self.lend, self.patience, folder, cluster, ids)

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[RayExecutor, LastAttempts]:
        """Take up a run. Its tasks have ended with its Dovetail, as Ray has it: what ran is lost."""
        here = {node: id for id, node in self._nodes()}
        ids = [here.pop(node, "") for node in cluster.nodes]
        executor = self._executor(folder, cluster, ids)
        return executor, executor.take_up([(id, node) for node, id in here.items()])
