"""What a Ray cluster says of itself: whether it is there, its nodes, which of them are being drained."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from dovetail.extras import needing
from dovetail.model import Device, Node

KNOCK = 10.0
"""Seconds that a cluster has to accept a connection."""


def import_ray() -> Any:
    """Ray. Raises `InputError` where it is not installed."""
    with needing("executor 'ray'"):
        import ray
    return ray


def knock(address: str) -> None:
    """Whether somebody listens at HOST:PORT; Ray itself would try for minutes. Raises `OSError`."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()


def connect(ray: Any, address: str | None, own: Callable[[], Mapping[str, Any]]) -> None:
    """Connect to a cluster; without an ``address`` start Ray on this machine with what ``own`` gives it.

    Raises `OSError`, `RuntimeError`, `ValueError`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        knock(address)
        ray.init(address=address, **quiet)
    else:
        here = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
        ray.init(**here, **own(), **quiet)


def model_of(resources: Iterable[str]) -> str:
    """The model of a node's GPUs, by the names of its resources; empty where Ray knows none."""
    return next((name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")), "")


def draining() -> Collection[str]:
    """Ray's ids of the nodes that are being drained (``ray drain-node``, or its autoscaler)."""
    from ray._private.state import state  # Ray's own libraries ask there: `ray.nodes` does not say

    return frozenset(state.get_draining_nodes())


def nodes_of(listed: Sequence[Mapping[str, Any]]) -> list[tuple[str, Node]]:
    """Ray's id of each node that is alive and has something to run jobs on, and the node as we know it.

    Its name is its host's, with the beginning of its id where several share that.
    """
    alive = [about for about in listed if about["Alive"]]
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
