"""What fits in the partitions of an outside scheduler, and on which device classes it runs there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from dovetail.model import Choice, Cluster, DeviceClass, Node, Request
from dovetail.model.fitting import cpus_on, devices_on


@lru_cache(maxsize=64)
def partitions_for(cluster: Cluster, request: Request, model: str = "") -> Sequence[tuple[str, int]]:
    """Partitions with nodes enough (of a CPU ``model``, if given), and how many fit there. O(nodes)."""
    nodes: dict[str, int] = {}
    jobs: dict[str, int] = {}
    for index, node in enumerate(cluster.nodes):
        fitting = (
            0 if index in cluster.gone or model not in ("", node.cpu_model) else _jobs_per_node(node, request)
        )
        for partition in node.partitions if fitting else ():
            nodes[partition] = nodes.get(partition, 0) + 1
            jobs[partition] = jobs.get(partition, 0) + fitting
    return [
        (partition, max(1, jobs[partition] // request.nodes))
        for partition, count in nodes.items()
        if count >= request.nodes and request.partition in ("", partition)
    ]


def _jobs_per_node(node: Node, request: Request) -> int:
    """How many such jobs fit on an empty node. Outside schedulers give every job a CPU at least."""
    fits = [node.cpus // max(1, cpus_on(request, node.cpus, node.host_cpus))]
    if request.memory and node.memory is not None:
        fits.append(node.memory // request.memory)
    return min([*fits, *(len(held) // count for count, held in devices_on(request, node.devices))])


def classes_in(cluster: Cluster, choice: Choice, target: str, cpu: str = "") -> Sequence[DeviceClass]:
    """The device classes of a partition on which a choice may run, of nodes with that ``cpu`` model."""
    kind, models = choice.implementation.kind, choice.request.models
    found: dict[DeviceClass, None] = {}
    for group in cluster.groups:
        in_one = not set(target.split(",")).isdisjoint(group.node.partitions)
        there = in_one and cpu in ("", group.node.cpu_model)
        device = group.node.device_class(kind) if there else None
        if device is not None and (not models or device.model in models):
            found[device] = None
    return list(found)
