"""Jobs, nodes and constants of borrowed GPUs as the arrays that the kernel takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.model.cluster import Cluster
from dovetail.model.job import Communication, Job, Request, Seconds
from dovetail.model.node import Node
from dovetail.model.remote_costs import CONSTANTS, RemoteCosts
from dovetail_lab.markthub.borrowing_arrays import Machine, Row, machine

__all__ = ["MOST_DEVICES", "costs_array", "machine_of", "own_devices", "row_of"]

MOST_DEVICES = 62
"""GPUs of a node, and its cores, that fit into a mask."""


def costs_array(costs: RemoteCosts) -> npt.NDArray[np.float64]:
    """The constants in their order."""
    return np.array([getattr(costs, name) for name in CONSTANTS], np.float64)


def own_devices(node: Node, kind: str, models: Sequence[str] = ()) -> int:
    """Mask of a node's devices of a kind (and of these models, where there are any)."""
    mask = 0
    for d, device in enumerate(node.devices):
        if device.kind == kind and (not models or device.model in models):
            mask |= 1 << d
    return mask


def row_of(job: Job, request: Request, communication: Communication, base: Seconds, cpus: int) -> Row:
    """A job that takes ``base`` seconds alone, as a row."""
    count = request.devices[0][1] if len(request.devices) == 1 else 0
    return Row(
        job.submit_time,
        request.nodes,
        int(count),
        cpus,
        float(request.memory),
        base,
        communication.other,
        communication.gpu_calls,
        communication.gpu_bytes,
        communication.net_calls,
        communication.net_bytes,
    )


def machine_of(cluster: Cluster, costs: RemoteCosts, kind: str, models: Sequence[str] = ()) -> Machine:
    """The nodes that are there, with devices of a kind; ``costs`` has bandwidths where they give none."""
    rows = []
    for n, node in enumerate(cluster.nodes):
        there = n not in cluster.gone
        memory = float("inf") if node.memory is None else float(node.memory)
        rows.append(
            (
                node.cpus if there else 0,
                own_devices(node, kind, models) if there else 0,
                memory if there else -1.0,
                node.network_bandwidth or costs.network_bandwidth,
                node.gpu_bandwidth or costs.gpu_bandwidth,
            )
        )
    return machine(rows)
