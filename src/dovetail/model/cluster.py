"""Nodes and devices: where jobs can run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property

__all__ = ["CPU", "Cluster", "Device", "DeviceClass", "Node", "Unit"]

CPU = "cpu"


@dataclass(frozen=True, slots=True, order=True)
class DeviceClass:
    """What history is kept apart by: a T4 and an A100 are two classes.

    ``kind`` is ``cpu``, a device kind, or ``cpu+KIND`` for implementations that use both.
    """

    kind: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.model}" if self.model else self.kind


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is not a CPU. ``cores`` host it and are not in the node's pool.

    ``local`` is its number among the devices of its kind (what CUDA_VISIBLE_DEVICES takes).
    """

    kind: str
    model: str = ""
    local: int = 0
    cores: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its name on the node, e.g. ``gpu0``."""
        return f"{self.kind}{self.local}"

    @property
    def device_class(self) -> DeviceClass:
        """Kind and model."""
        return DeviceClass(self.kind, self.model)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: a pool of CPU cores, devices, memory in bytes (``None``: not limited).

    ``host_cpus`` is the number of CPUs that a job on a device takes when it does not say.
    """

    name: str
    cores: tuple[int, ...]
    devices: tuple[Device, ...] = ()
    memory: int | None = None
    host_cpus: int = 0
    cpu_model: str = ""

    @property
    def cpus(self) -> int:
        """CPUs in the pool."""
        return len(self.cores)

    def device_class(self, kind: str) -> DeviceClass | None:
        """The class in which an implementation of this kind runs here, or ``None`` if it cannot."""
        if kind == CPU:
            return DeviceClass(CPU, self.cpu_model) if self.cores else None
        wanted = kind.removeprefix("cpu+")
        for device in self.devices:
            if device.kind == wanted:
                return DeviceClass(kind, device.model)
        return None


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


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes in a fixed order; a node is known by its index in ``nodes``."""

    nodes: tuple[Node, ...]
    label: str = field(default="", compare=False)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Every CPU pool and device, node by node, the CPU first."""
        units: list[Unit] = []
        for n, node in enumerate(self.nodes):
            if node.cores:
                units.append(Unit(len(units), n, None, DeviceClass(CPU, node.cpu_model), f"{node.name}/cpu"))
            for d, device in enumerate(node.devices):
                units.append(Unit(len(units), n, d, device.device_class, f"{node.name}/{device.name}"))
        return tuple(units)

    @cached_property
    def classes(self) -> tuple[DeviceClass, ...]:
        """Device classes in order of first appearance."""
        return tuple(dict.fromkeys(unit.device_class for unit in self.units))

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Node index by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def total_cpus(self) -> int:
        """CPUs in all pools."""
        return sum(node.cpus for node in self.nodes)

    @cached_property
    def total_devices(self) -> int:
        """Devices that are not CPUs."""
        return sum(len(node.devices) for node in self.nodes)

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
        for node in self.nodes:
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
        cores = tuple(range(cpus))
        devices = tuple(Device("gpu", "", g) for g in range(gpus))
        label = f"{count}x{cpus}cpu" + (f"+{gpus}gpu" if gpus else "")
        return Cluster(tuple(Node(f"n{i}", cores, devices, memory) for i in range(count)), label)

    @staticmethod
    def parse(text: str | os.PathLike[str]) -> Cluster:
        """A cluster from its short form, or from a cluster file (TOML). Raises `InputError`."""
        from dovetail.model.cluster_file import parse_cluster  # the parser needs pydantic: load it late

        return parse_cluster(text)
