"""Ray clusters as a backend: whether one is there, its nodes, runs on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import InputError
from dovetail.extras import needing_extra
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.local.discovery import discover_cluster
from dovetail.model import Cluster, Device, Node
from dovetail.records import dataclass

if TYPE_CHECKING:
    from dovetail_ray.executor import RayExecutor

OBJECT_STORE = 200 << 20
"""Bytes of the object store of a Ray of our own."""


KNOCK = 10.0
"""Seconds that a cluster has to accept a connection, and to answer."""
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""How a client of gRPC begins: the preface and a frame of settings (4), with which its server begins too."""


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
        return Cluster(tuple(node for _, node in self._connected_nodes()), f"Ray at {self._cluster_label()}")

    def _connected_nodes(self) -> list[tuple[str, Node]]:
        self._connect_cluster()
        found = nodes_of(import_ray().nodes())
        if not found:
            raise InputError("found no node with CPUs or GPUs, expected one", where="executor ray")
        return found

    def _cluster_label(self) -> str:
        return self.address or os.environ.get("RAY_ADDRESS", "this machine")

    def _connect_cluster(self) -> None:
        """Be connected. Raises `InputError` where there is no such cluster."""
        ray = import_ray()
        if ray.is_initialized():
            return
        address = self.address or os.environ.get("RAY_ADDRESS", "")
        try:
            connect_ray(ray, address or None, _this_machine)
        except (OSError, RuntimeError, ValueError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(
                f"Ray cannot be reached at {address or 'this machine'}: {lines[0]}; 'ray status' shows "
                "whether it is up, and one that wants a token wants RAY_AUTH_MODE=token",
                where="executor ray",
            ) from error

    def open(self, folder: RunFolder, cluster: Cluster) -> RayExecutor:
        """A new run. Raises `InputError` for a cluster that is not what is there."""
        here = self._connected_nodes()
        names = {node.name: (id, node) for id, node in here}
        ids: list[str] = []
        for node in cluster.nodes:
            id, found = names.get(node.name, ("", node))
            if not id:
                # A file of nodes can be older than the cluster: better refused by name than waited for.
                known = ", ".join(names)
                raise InputError(f"found no such node in Ray, expected of {known}", where=f"node {node.name}")
            if node.cpus > found.cpus or len(node.devices) > len(found.devices):
                raise InputError(
                    f"found {node.cpus} CPUs and {len(node.devices)} devices, expected at most "
                    f"{found.cpus} and {len(found.devices)}, which Ray has there",
                    where=f"node {node.name}",
                )
            ids.append(id)
        return self._make_executor(folder, cluster, ids)

    def _make_executor(self, folder: RunFolder, cluster: Cluster, ids: Sequence[str]) -> RayExecutor:
        if not self.lend:
            from dovetail_ray.executor import RayExecutor

            return RayExecutor(self.patience, folder, cluster, ids)
        from dovetail_ray.lending import LendingRayExecutor

        return LendingRayExecutor(self.lend, self.patience, folder, cluster, ids)

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[RayExecutor, LastAttempts]:
        """Take up a run. Its tasks have ended with its Dovetail, as Ray has it: what ran is lost."""
        # By node, not by id: a node that was started anew has another id, and is the same machine.
        here = {node: id for id, node in self._connected_nodes()}
        ids = [here.pop(node, "") for node in cluster.nodes]
        executor = self._make_executor(folder, cluster, ids)
        return executor, executor.take_up([(id, node) for node, id in here.items()])


def _this_machine() -> dict[str, Any]:
    """What a Ray of our own has."""
    here = discover_cluster()
    gpus = sum(device.kind == "gpu" for node in here.nodes for device in node.devices)
    return {"num_cpus": here.total_cpus, "num_gpus": gpus, "object_store_memory": OBJECT_STORE}


def import_ray() -> Any:
    """Ray. Raises `InputError` where it is not installed."""
    with needing_extra("executor 'ray'"):
        import ray
    return ray


def check_listening(address: str) -> None:
    """Whether a server listens at HOST:PORT that may be Ray; Ray would try for minutes. Raises `OSError`."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        with socket.create_connection((host.strip("[]"), int(port)), KNOCK) as peer:
            # Ray's client retries for minutes; a first look costs a round trip. Under TLS no plain answer can
            # be expected.
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                peer.sendall(HTTP2)
                if peer.recv(4)[3:] != b"\4":
                    raise ConnectionError("it is not Ray that answers there; Ray's port is 6379, mostly")


def connect_ray(ray: Any, address: str | None, own: Callable[[], Mapping[str, Any]]) -> None:
    """Connect to a cluster; without an ``address`` start Ray on this machine with what ``own`` gives it.

    Raises `OSError`, `RuntimeError`, `ValueError`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        # Before `ray.init`, which prints pages where nothing is there.
        check_listening(address)
        ray.init(address=address, **quiet)
    else:
        # On the loopback address only: a Ray that we start is for this run, and open to no other machine.
        here = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
        ray.init(**here, **own(), **quiet)


def model_of(resources: Iterable[str]) -> str:
    """The model of a node's GPUs, by the names of its resources; empty where Ray knows none."""
    return next((name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")), "")


def draining_nodes() -> Collection[str]:
    """Ray's ids of the nodes that are being drained (``ray drain-node``, or its autoscaler)."""
    from ray._private.state import state  # as Ray's own libraries do: `ray.nodes` has no such field

    return frozenset(state.get_draining_nodes())


def nodes_of(listed: Sequence[Mapping[str, Any]]) -> list[tuple[str, Node]]:
    """Ray's id of each node that is alive and has something to run jobs on, and the node as we know it.

    Its name is its host's, with the beginning of its id where several share that.
    """
    alive = [about for about in listed if about["Alive"]]
    # Of all, dead ones too: a name must not change when a namesake dies.
    hosts = [about["NodeManagerHostname"] for about in listed]
    found: list[tuple[str, Node]] = []
    for about in alive:
        id, host, resources = about["NodeID"], about["NodeManagerHostname"], about["Resources"]
        cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        if cpus or gpus:
            name = host if hosts.count(host) == 1 else f"{host}-{id[:6]}"
            devices = tuple(Device("gpu", model_of(resources), number) for number in range(gpus))
            memory = int(resources["memory"]) if "memory" in resources else None
            found.append((id, Node(name, tuple(range(cpus)), devices, memory)))
    return sorted(found, key=lambda one: one[1].name)
