"""Nodes and their devices; many like nodes at the cost of one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from dovetail.records import dataclass

__all__ = [
    "BESIDE",
    "CPU",
    "NVLINK",
    "SWITCH",
    "Device",
    "DeviceClass",
    "Node",
    "NodeGroup",
]

CPU = "cpu"


BESIDE = " beside "
"""Between a model and the app with which a device of it was shared."""

SWITCH, NVLINK = 1, 1000
"""How close two devices are that are behind one PCIe switch, and that NVLink joins; others are 0. One pair
with NVLink is worth more than any number of pairs behind switches."""


class DeviceClass(NamedTuple):
    """What history is kept apart by: a T4 and an A100 are two classes.

    ``kind`` is ``cpu``, a device kind, or ``cpu+KIND`` for implementations that use both. A tuple, since it
    is part of many keys and is hashed dozens of times a job.
    """

    kind: str
    model: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.model}" if self.model else self.kind

    def beside(self, app: str) -> DeviceClass:
        """The class of runs that shared such a device with a run of that app: their times are others."""
        return DeviceClass(self.kind, f"{self.model}{BESIDE}{app}")

    @property
    def shared(self) -> bool:
        """Whether this is a class of runs that shared their device."""
        return BESIDE in self.model


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is not a CPU. ``cores`` host it and are not in the node's pool.

    ``local`` is its number among the devices of its kind on the node. ``address`` is what its driver calls
    it, where that was found out: the maker, and a number or UUID of the driver's own (``nvidia:GPU-6f1c…``,
    ``amd:1``); other devices are known to programs by their place among those of one maker. ``memory`` is
    its own memory in bytes (``None``: not limited). ``near`` are cores of the pool on its NUMA node: they are
    preferred for its host threads (empty: all are alike). ``links`` are pairs of another device's index on
    the node and how close it is: `NVLINK` or `SWITCH`. ``mps``: on this machine jobs share it
    through NVIDIA's MPS. ``exclusive``: its driver lets one program at a time compute on it.
    """

    kind: str
    model: str = ""
    local: int = 0
    cores: tuple[int, ...] = ()
    address: str = ""
    memory: int | None = None
    near: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    mps: bool = False
    exclusive: bool = False

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

    ``host_cpus`` is the number of CPUs that a job on a device takes that gives no number. ``partitions``
    are those to which the node belongs, as in Slurm; a request may be for one of them. Bandwidths are in
    bytes a second (``None``: those of Markthub 2015, Table 3).
    """

    name: str
    cores: tuple[int, ...]
    devices: tuple[Device, ...] = ()
    memory: int | None = None
    host_cpus: int = 0
    cpu_model: str = ""
    partitions: tuple[str, ...] = ()
    network_bandwidth: float | None = None
    gpu_bandwidth: float | None = None

    @property
    def cpus(self) -> int:
        """CPUs in the pool."""
        return len(self.cores)

    def device_class(self, kind: str) -> DeviceClass | None:
        """The class in which an implementation of this kind runs here, or ``None`` if it cannot."""
        if kind == CPU:
            # cpu+KIND is a class of its own: its times are neither those of the CPU nor of the device.
            return DeviceClass(CPU, self.cpu_model) if self.cores else None
        wanted = kind.removeprefix("cpu+")
        for device in self.devices:
            if device.kind == wanted:
                return DeviceClass(kind, device.model)
        return None

    def named(self, name: str) -> Node:
        """A node like this one."""
        cores, devices, memory = self.cores, self.devices, self.memory
        bandwidths = self.network_bandwidth, self.gpu_bandwidth
        return Node(
            name, cores, devices, memory, self.host_cpus, self.cpu_model, self.partitions, *bandwidths
        )

    def like(self, other: Node) -> bool:
        """Whether the two differ in nothing but their names."""
        return (
            self.cores == other.cores
            and self.devices == other.devices
            and self.memory == other.memory
            and self.host_cpus == other.host_cpus
            and self.cpu_model == other.cpu_model
            and self.partitions == other.partitions
            and self.network_bandwidth == other.network_bandwidth
            and self.gpu_bandwidth == other.gpu_bandwidth
        )


HERE = "localhost"
"""The name of this machine as a node, unless it was given one."""


def uniform_node(cpus: int, gpus: int = 0, memory: int | None = None) -> Node:
    """What each node of the short form ``COUNTxCPUScpu[+GPUSgpu]`` is like."""
    return Node("", tuple(range(cpus)), tuple(Device("gpu", "", g) for g in range(gpus)), memory)


def short_form(count: int, cpus: int, gpus: int = 0) -> str:
    """The short form itself.

    >>> short_form(16, 8, 1)
    '16x8cpu+1gpu'
    """
    return f"{count}x{cpus}cpu" + (f"+{gpus}gpu" if gpus else "")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Neighbouring nodes that differ in name only: ``count`` of them from index ``first`` on."""

    node: Node
    first: int
    count: int


class Numbered(Sequence[str]):
    """The names ``n0``, ``n1``, … without the memory for them."""

    def __init__(self, stem: str, count: int) -> None:
        self.stem, self._count = stem, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        places = range(self._count)[index]
        return f"{self.stem}{places}" if isinstance(places, int) else [f"{self.stem}{i}" for i in places]


class Nodes(Sequence[Node]):
    """The nodes of a large cluster, each made on demand: it costs what its groups cost."""

    def __init__(self, groups: Iterable[tuple[Node, Sequence[str]]]) -> None:
        parts = [(node, names) for node, names in groups if len(names)]
        self._parts = parts
        self._starts = [0, *accumulate(len(names) for _, names in parts)]
        self._made: dict[int, Node] = {}

    @property
    def parts(self) -> Sequence[tuple[Node, Sequence[str]]]:
        """What the nodes of each group are like, and their names."""
        return self._parts

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """Each group with its first node."""
        rows = zip(self._parts, self._starts, strict=False)
        return tuple(NodeGroup(node.named(names[0]), first, len(names)) for (node, names), first in rows)

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Node]:
        return (node.named(name) for node, names in self._parts for name in names)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | Sequence[Node]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(len(self))[index])
        # Kept: policies look at the same few nodes again and again.
        found = self._made.get(index)
        if found is None:
            place = range(len(self))[index]
            # By bisection over groups: a machine of 100,000 like nodes has one.
            group = bisect_right(self._starts, place) - 1
            node, names = self._parts[group]
            found = self._made[index] = node.named(names[place - self._starts[group]])
        return found

    def numbered(self, stem: str) -> bool:
        """Whether the names are STEM0, STEM1, … O(1) where they are `Numbered`, else O(nodes)."""
        if len(self._parts) == 1 and isinstance(names := self._parts[0][1], Numbered):
            return names.stem == stem
        return all(node.name == f"{stem}{i}" for i, node in enumerate(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # sequences of like length are compared element by element
