"""The nodes of a node list: names that a cluster file takes, counts within its bounds."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.files.sentences import is_name
from dovetail.files.tables import Malformed
from dovetail.files.units import MOST_BYTES
from dovetail.model import Device, Node
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES

__all__ = ["NodeList"]


class NodeList:
    """Makes the nodes of one list, line by line; ``row`` and ``field`` say what a message is about."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def node(
        self,
        row: Mapping[str, str],
        field: str,
        *,
        cpus: int,
        gpus: int,
        model: str = "",
        memory: int | None = None,
    ) -> Node:
        """The node named in ``field``; raises `Malformed` for what no cluster file can say."""
        name = row[field]
        if not is_name(name) or set(name) & set("[],"):
            raise Malformed(field, name, "the name of a node")
        if name in self._names:
            raise Malformed(field, name, "each node once")
        if not cpus and not gpus:
            raise Malformed(field, name, "a node with a CPU or a device")
        for found, most, what in (
            (cpus, MOST_CPUS, "CPUs"),
            (gpus, MOST_DEVICES, "devices"),
            (memory or 0, MOST_BYTES, "bytes of memory"),
        ):
            if found > most:
                raise Malformed(f"{name}: {what}", found, f"at most {most:g}")
        self._names.add(name)
        devices = tuple(Device("gpu", model, i) for i in range(gpus))
        return Node(name, tuple(range(cpus)), devices, memory)
