"""What a job holds while it runs: nodes, cores, devices, memory, remote devices.

A gang takes the same from many nodes, so an allocation is a few *parts*: a set of nodes, as a bit mask
over node indices, and what each of these nodes gives. A gang on 4,096 nodes is one part and two
integers; node names are spelt out only when they are read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from dovetail.model.cluster import Cluster
from dovetail.model.frozen import frozen
from dovetail.model.job import EMPTY, FRACTION_UNITS, Request
from dovetail.model.masks import bit_runs
from dovetail.model.node import Node

__all__ = ["Allocation", "Donor", "Part", "bit_indices", "join_allocations", "without_nodes"]

NARROW = 2048
"""Up to so many nodes a mask is small enough to be kept, and remembered."""


def bit_indices(mask: int) -> Iterator[int]:
    """Indices of the set bits, ascending."""
    while mask:
        # The lowest set bit: as many steps as there are nodes in the mask, not bits below them.
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Part(NamedTuple):
    """What each node of ``nodes`` (bit mask) gives.

    ``cpus`` is a count; ``devices`` are node-local device indices, of each of which ``units`` of
    `FRACTION_UNITS` are taken; ``memory`` is bytes. ``gpu_memory`` is the bytes taken of each device; where
    it is 0 that is the part of its memory that ``units`` are of the device.
    """

    nodes: int
    cpus: int
    devices: tuple[int, ...] = ()
    units: int = FRACTION_UNITS
    memory: int = 0
    gpu_memory: int = 0


class Donor(NamedTuple):
    """A remote device: ``client`` uses ``device`` of node ``donor`` over the network (Markthub 2015)."""

    client: int
    donor: int
    device: int


@frozen(frozen=True, slots=True)
class Allocation:
    """Parts of disjoint node sets, remote devices, and core ids where the engine has chosen them.

    ``cores`` maps a node to core ids for nodes whose pool is shared; a node that is not in it gives its
    whole pool (``cpus`` = pool) or no CPU. Policies leave ``cores`` empty: the engine takes the lowest
    free ids.
    """

    request: Request
    parts: tuple[Part, ...]
    cores: Mapping[int, tuple[int, ...]] = EMPTY
    donors: tuple[Donor, ...] = ()

    @property
    def mask(self) -> int:
        """All nodes of the gang as a bit mask (donor nodes excluded)."""
        mask = 0
        for part in self.parts:
            mask |= part.nodes
        return mask

    @property
    def nodes(self) -> list[int]:
        """Node indices, ascending (donor nodes excluded)."""
        return list(bit_indices(self.mask))

    @property
    def first_node(self) -> int:
        """The lowest node index of the gang."""
        mask = self.mask
        return (mask & -mask).bit_length() - 1

    def part_on(self, node: int) -> Part | None:
        """The part that node belongs to."""
        bit = 1 << node
        for part in self.parts:
            if part.nodes & bit:
                return part
        return None

    def cores_on(self, index: int, node: Node) -> tuple[int, ...]:
        """Core ids held on a node."""
        if index in self.cores:
            return self.cores[index]
        part = self.part_on(index)
        return node.cores if part is not None and part.cpus and part.cpus == node.cpus else ()

    def device_names(self, cluster: Cluster) -> list[str]:
        """``node/device`` of every device held, remote ones too, in node order."""
        held = sorted(self.device_places())
        return [f"{cluster.nodes[n].name}/{cluster.nodes[n].devices[d].name}" for n, d in held]

    def device_places(self) -> list[tuple[int, int]]:
        """(node, device) of every device held, remote ones too."""
        held = [(n, d) for part in self.parts for n in bit_indices(part.nodes) for d in part.devices]
        return held + [(donor.donor, donor.device) for donor in self.donors]

    def node_names(self, cluster: Cluster) -> list[str]:
        """Names of the gang's nodes, in node order."""
        return [cluster.nodes[n].name for n in bit_indices(self.mask)]

    def pack_runs(self) -> Allocation:
        """The same in the memory of its runs of nodes, where that is less: for what is only kept."""
        # A narrow mask is smaller than any list of runs.
        if all(part.nodes.bit_length() <= NARROW for part in self.parts):
            return self
        found = Packed(self.request, self.parts, self.cores, self.donors)
        return found if found.worth_it else self


class Packed(Allocation):
    """An allocation that keeps runs of neighbouring nodes, and spells the masks out on demand.

    A mask takes an eighth of a byte for each node below its last one: kilobytes on a wide machine, for every
    job that ever ran there.
    """

    __slots__ = ("_packed",)
    _packed: tuple[tuple[array[int], tuple[int, tuple[int, ...], int, int, int]], ...]

    def __init__(
        self,
        request: Request,
        parts: tuple[Part, ...],
        cores: Mapping[int, tuple[int, ...]] = EMPTY,
        donors: tuple[Donor, ...] = (),
    ) -> None:
        packed = tuple((array("i", chain.from_iterable(bit_runs(part.nodes))), part[1:]) for part in parts)
        for name, value in (("request", request), ("cores", cores), ("donors", donors), ("_packed", packed)):
            object.__setattr__(self, name, value)

    @property
    def parts(self) -> tuple[Part, ...]:
        """As of any allocation. O(runs) steps on masks."""
        return tuple(Part(_mask_of_runs(edges), *share) for edges, share in self._packed)

    @property
    def worth_it(self) -> bool:
        """Whether it takes less than the masks do."""
        # An edge takes four bytes, a mask an eighth of a byte for each node.
        return all(32 * len(edges) < edges[-1] for edges, _ in self._packed if edges)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Allocation):
            return NotImplemented
        return (self.request, self.parts, self.cores, self.donors) == (
            other.request,
            other.parts,
            other.cores,
            other.donors,
        )

    def __hash__(self) -> int:
        return hash((self.request, self.parts, self.cores, self.donors))

    def __reduce__(self) -> tuple[object, ...]:
        return Packed, (self.request, self.parts, self.cores, self.donors)


def _mask_of_runs(edges: Sequence[int]) -> int:
    """The mask of runs, given by their first nodes and those after their last ones."""
    mask = 0
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        mask |= ((1 << (high - low)) - 1) << low
    return mask


def join_allocations(one: Allocation, other: Allocation) -> Allocation:
    """What a job holds while it moves from one place to the other: all of both, what they share once.

    Raises `ValueError` where a node gives different CPUs, memory or shares of devices in the two.
    """
    parts: dict[Part, int] = {}
    for n in bit_indices(one.mask | other.mask):
        before, after = one.part_on(n), other.part_on(n)
        part = before or after
        assert part is not None
        if before is not None and after is not None:
            # The engine counts these per node: a change in place would need both at once.
            if (before.cpus, before.memory) != (after.cpus, after.memory):
                raise ValueError("CPUs and memory of a node stay as they are while a job moves on it")
            if before.devices and after.devices and before[3:] != after[3:]:
                raise ValueError("shares of devices stay as they are while a job moves")
            devices = tuple(sorted({*before.devices, *after.devices}))
            part = (before if before.devices else after)._replace(devices=devices)
        key = part._replace(nodes=0)
        parts[key] = parts.get(key, 0) | 1 << n
    # A donor that both have is held once.
    donors = {(d.donor, d.device): d for d in (*one.donors, *other.donors)}
    return Allocation(
        other.request,
        tuple(key._replace(nodes=mask) for key, mask in parts.items()),
        # The present place's cores win: processes run there until the move is over.
        {**other.cores, **one.cores} or EMPTY,
        tuple(donors.values()),
    )


def without_nodes(allocation: Allocation, mask: int) -> Allocation:
    """What of an allocation lies on other nodes than those of the mask (donors too)."""
    parts = tuple(p._replace(nodes=p.nodes & ~mask) for p in allocation.parts if p.nodes & ~mask)
    donors = tuple(d for d in allocation.donors if not mask >> d.donor & 1)
    cores = {n: c for n, c in allocation.cores.items() if not mask >> n & 1}
    return Allocation(allocation.request, parts, cores or EMPTY, donors)
