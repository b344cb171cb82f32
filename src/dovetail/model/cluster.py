"""Where jobs can run: nodes in a fixed order, and the units in them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import accumulate
from typing import overload

from dovetail.model.conditions import NO_CONDITIONS, Conditions
from dovetail.model.job import EMPTY
from dovetail.model.node import (
    CPU,
    HERE,
    DeviceClass,
    Node,
    NodeGroup,
    Nodes,
    Numbered,
    short_form,
    uniform_node,
)
from dovetail.records import dataclass

__all__ = [
    "Cluster",
    "Unit",
]

MADE_AT_ONCE = 20_000
"""Up to so many nodes all are made at once, which is quickest where every one is looked at."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A resource that runs one job at a time: a node's CPU pool (``device`` is ``None``) or one device.

    Units are the "resources" of Ravi 2012 and the "devices" of Gregg 2011: node by node, the CPU first.
    ``node`` and ``device`` are indices, ``index`` is the place in `Cluster.units`.
    """

    index: int
    node: int
    device: int | None
    device_class: DeviceClass
    name: str

    @property
    def kind(self) -> str:
        """Kind of device, ``cpu`` for the pool."""
        return self.device_class.kind


class Units(Sequence[Unit]):
    """The units of a large cluster, each made on demand."""

    def __init__(self, nodes: Sequence[Node], groups: Sequence[NodeGroup]) -> None:
        self._nodes = nodes
        self._groups = groups
        self._starts = [0, *accumulate(group.count * _units_of(group.node) for group in groups)]

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Unit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Unit]: ...
    def __getitem__(self, index: int | slice) -> Unit | Sequence[Unit]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        place = range(len(self))[index]
        g = bisect_right(self._starts, place) - 1
        group = self._groups[g]
        n, local = divmod(place - self._starts[g], _units_of(group.node))
        return _unit_of_node(self._nodes[group.first + n], group.first + n, local, place)


def _units_of(node: Node) -> int:
    return (1 if node.cores else 0) + len(node.devices)


def _unit_of_node(node: Node, index: int, local: int, place: int) -> Unit:
    """The unit of a node that is its ``local``-th: the CPU pool first, where there is one."""
    device = local - 1 if node.cores else local
    if device < 0:
        return Unit(place, index, None, DeviceClass(CPU, node.cpu_model), f"{node.name}/cpu")
    found = node.devices[device]
    return Unit(place, index, device, found.device_class, f"{node.name}/{found.name}")


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes in a fixed order; a node is known by its index in ``nodes``.

    ``gone`` are those that take no jobs now: lost or drained. They keep their index, and their units theirs.
    ``closed`` are partitions into which only jobs go that name them. ``kept`` has the bits of the
    reservations of devices, by (node, device), as `Request.avoids` names them. ``conditions`` are those that
    its file gives for simulations.

    A question about the cluster as a whole costs O(groups of like neighbours), not O(nodes).

    >>> cluster = Cluster.parse("2x8cpu+1gpu")
    >>> len(cluster), cluster.total_cpus, [unit.name for unit in cluster.units]
    (2, 16, ['n0/cpu', 'n0/gpu0', 'n1/cpu', 'n1/gpu0'])
    """

    nodes: Sequence[Node]
    label: str = field(default="", compare=False)
    gone: frozenset[int] = frozenset()
    closed: frozenset[str] = frozenset()
    kept: Mapping[tuple[int, int], int] = EMPTY
    conditions: Conditions = NO_CONDITIONS

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """Neighbouring nodes that differ in name only, in order."""
        if isinstance(self.nodes, Nodes):
            return self.nodes.groups
        # A group ends where a neighbour differs: order decides ties, so like nodes apart are two groups.
        firsts = [i for i, node in enumerate(self.nodes) if not i or not node.like(self.nodes[i - 1])]
        ends = [*firsts[1:], len(self.nodes)]
        return tuple(NodeGroup(self.nodes[i], i, end - i) for i, end in zip(firsts, ends, strict=False))

    @cached_property
    def units(self) -> Sequence[Unit]:
        """Every CPU pool and device, node by node, the CPU first."""
        if isinstance(self.nodes, Nodes):
            return Units(self.nodes, self.groups)
        made: list[Unit] = []
        for n, node in enumerate(self.nodes):
            first = len(made)
            made += [_unit_of_node(node, n, local, first + local) for local in range(_units_of(node))]
        return tuple(made)

    def short_name(self, node: int, unit: str) -> str:
        """``n0/gpu0``; on this machine alone, whose name is no news, ``gpu0``."""
        name = self.nodes[node].name
        return unit if name == HERE and len(self) == 1 else f"{name}/{unit}"

    @cached_property
    def classes(self) -> tuple[DeviceClass, ...]:
        """Device classes in order of first appearance."""
        found: dict[DeviceClass, None] = {}
        for group in self.groups:
            if group.node.cores:
                found[DeviceClass(CPU, group.node.cpu_model)] = None
            found.update({device.device_class: None for device in group.node.devices})
        return tuple(found)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Node index by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def total_cpus(self) -> int:
        """CPUs in all pools."""
        return sum(group.count * group.node.cpus for group in self.groups)

    @cached_property
    def total_devices(self) -> int:
        """Devices that are not CPUs."""
        return sum(group.count * len(group.node.devices) for group in self.groups)

    @cached_property
    def _known_classes(self) -> dict[str, tuple[DeviceClass, ...]]:
        return {}

    def device_classes(self, kind: str) -> tuple[DeviceClass, ...]:
        """Classes in which an implementation of this kind can run here, in node order. O(1) when known."""
        known = self._known_classes.get(kind)
        if known is None:
            known = self._known_classes[kind] = self._find_classes(kind)
        return known

    def _find_classes(self, kind: str) -> tuple[DeviceClass, ...]:
        found: dict[DeviceClass, None] = {}
        for group in self.groups:
            node = group.node
            # A class whose last node is gone is none: jobs would wait for it for ever.
            if self.gone and all(n in self.gone for n in range(group.first, group.first + group.count)):
                continue
            if kind == CPU or not kind.startswith("cpu+"):
                if kind == CPU:
                    if node.cores:
                        found[DeviceClass(CPU, node.cpu_model)] = None
                else:
                    found.update({d.device_class: None for d in node.devices if d.kind == kind})
            else:
                wanted = kind.removeprefix("cpu+")
                found.update({DeviceClass(kind, d.model): None for d in node.devices if d.kind == wanted})
        return tuple(found)

    @staticmethod
    def uniform(count: int, cpus: int, gpus: int = 0, *, memory: int | None = None) -> Cluster:
        """``count`` identical nodes n0, n1, … as the short form ``COUNTxCPUScpu[+GPUSgpu]`` gives them."""
        groups = [(uniform_node(cpus, gpus, memory), Numbered("n", count))]
        return Cluster.of(groups, short_form(count, cpus, gpus))

    @staticmethod
    def of(
        groups: Sequence[tuple[Node, Sequence[str]]],
        label: str = "",
        conditions: Conditions = NO_CONDITIONS,
    ) -> Cluster:
        """A cluster of groups of like nodes: what each is like, and the names."""
        nodes: Sequence[Node] = Nodes(groups)
        # Many nodes are made on demand: most commands look at few.
        return Cluster(tuple(nodes) if len(nodes) <= MADE_AT_ONCE else nodes, label, conditions=conditions)

    @staticmethod
    def parse(text: str | os.PathLike[str]) -> Cluster:
        """A cluster from its short form, or from a cluster file (TOML). Raises `InputError`."""
        # The parser of files needs pydantic: it is loaded for files alone.
        from dovetail.model.short_form import parse_short_form

        if isinstance(text, str) and (found := parse_short_form(text.strip())) is not None:
            return Cluster.of(*found)
        from dovetail.model.cluster_file import parse_groups

        return Cluster.of(*parse_groups(text))
