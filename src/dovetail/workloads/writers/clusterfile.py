"""Writes clusters as cluster files (TOML), for instance those of a trace's node list."""

from __future__ import annotations

import json
from itertools import groupby

from dovetail.errors import InputError
from dovetail.model import Cluster, Device, Node
from dovetail.model.hostlist import compress, expand

__all__ = ["cluster_as_toml"]

LONGEST_NAME = 200
"""Characters that a cluster file takes for a name."""


def cluster_as_toml(cluster: Cluster) -> str:
    """A cluster file with the same nodes in the same order; alike neighbours share an entry. O(nodes).

    Raises `InputError` for a cluster without nodes.
    """
    if not cluster.nodes:
        raise InputError(f"{cluster.label or 'cluster'}: found no node, expected at least one")
    lines = [f"# {' '.join(cluster.label.split())}"]
    for _, alike in groupby(cluster.nodes, key=_shape):
        nodes = list(alike)
        for name in _hostlists([node.name for node in nodes]):
            lines += ["", "[[node]]", f"name = {_text(name)}", *_entry(nodes[0])]
    return "\n".join(lines) + "\n"


def _hostlists(names: list[str]) -> list[str]:
    """Hostlists that are short enough for a name, and keep the order, which breaks ties."""
    together = compress(names)
    if len(names) == 1 or (len(together) <= LONGEST_NAME and expand(together) == names):
        return [together]
    half = len(names) // 2
    return _hostlists(names[:half]) + _hostlists(names[half:])


def _shape(node: Node) -> tuple[object, ...]:
    return node.cores, node.devices, node.memory, node.host_cpus, node.cpu_model, node.partitions


def _entry(node: Node) -> list[str]:
    hosts = [core for device in node.devices for core in device.cores]
    cores = sorted({*node.cores, *hosts})
    plain = cores == list(range(len(cores)))
    lines = [f"cpus = {len(cores)}" if plain else f"cores = {cores}"]
    groups = [list(group) for _, group in groupby(node.devices, key=_device_shape)]
    if groups:
        lines.append(f"devices = [{', '.join(map(_devices, groups))}]")
    if node.memory is not None:
        lines.append(f"memory = {node.memory}")
    if node.host_cpus:
        lines.append(f"host_cpus = {node.host_cpus}")
    if node.cpu_model:
        lines.append(f"cpu_model = {_text(node.cpu_model)}")
    if node.partitions:
        lines.append(f"partitions = [{', '.join(map(_text, node.partitions))}]")
    return lines


def _device_shape(device: Device) -> tuple[object, ...]:
    return device.kind, device.model, len(device.cores)


def _devices(group: list[Device]) -> str:
    fields = [f"kind = {_text(group[0].kind)}"]
    if group[0].model:
        fields.append(f"model = {_text(group[0].model)}")
    hosts = [core for device in group for core in device.cores]
    if hosts:
        fields.append(f"cores = {hosts}")
    return "{ " + ", ".join([*fields, f"count = {len(group)}"]) + " }"


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
