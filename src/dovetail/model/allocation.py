"""What a job holds while it runs: nodes, cores, devices, memory, remote devices.

A gang takes the same from many nodes, so an allocation is a few *parts*: a set of nodes, as a bit mask
over node indices, and what each of these nodes gives. A gang on 4,096 nodes is one part and two
integers; node names are spelt out only when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dovetail.model.cluster import Cluster, Node
from dovetail.model.frozen import frozen
from dovetail.model.job import EMPTY, FRACTION_UNITS, Request

__all__ = ["Allocation", "Donor", "Part", "bits"]


def bits(mask: int) -> Iterator[int]:
    """Indices of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Part(NamedTuple):
    """What each node of ``nodes`` (bit mask) gives.

    ``cpus`` is a count; ``devices`` are node-local device indices, of each of which ``units`` of
    `FRACTION_UNITS` are taken; ``memory`` is bytes.
    """

    nodes: int
    cpus: int
    devices: tuple[int, ...] = ()
    units: int = FRACTION_UNITS
    memory: int = 0


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
        return list(bits(self.mask))

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
        held = [(n, d) for part in self.parts for n in bits(part.nodes) for d in part.devices]
        held += [(donor.donor, donor.device) for donor in self.donors]
        return [f"{cluster.nodes[n].name}/{cluster.nodes[n].devices[d].name}" for n, d in sorted(held)]

    def node_names(self, cluster: Cluster) -> list[str]:
        """Names of the gang's nodes, in node order."""
        return [cluster.nodes[n].name for n in bits(self.mask)]
