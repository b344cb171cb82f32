"""Which core ids a job gets on nodes whose CPU pool it shares: near its devices, then the lowest free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.model import EMPTY, Allocation, Cluster, bit_indices


class CoreBook:
    """Free core positions of the nodes whose pools are shared; whole pools need no book-keeping."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        pools = {group.node.cpus for group in cluster.groups}
        self.pool = pools.pop() if len(pools) == 1 else None
        """CPUs of every node, if all have as many."""
        self._free: dict[int, int] = {}  # node -> bit mask over positions in the pool

    def extend_cluster(self, cluster: Cluster) -> None:
        """The cluster has more nodes, at the end."""
        self._cluster = cluster
        if self.pool != cluster.nodes[-1].cpus:
            self.pool = None

    def assign_cores(self, allocation: Allocation) -> Mapping[int, tuple[int, ...]]:
        """Take core ids for every node of which only some CPUs are taken.

        Raises `ValueError` where core ids that the policy chose itself are not free or not enough.
        """
        chosen: dict[int, tuple[int, ...]] = {}
        nodes = self._cluster.nodes
        for part in allocation.parts:
            if not part.cpus:
                continue
            if part.cpus == self.pool and allocation.cores is EMPTY:
                continue  # all pools are alike, and all are given whole
            for n in bit_indices(part.nodes):
                node = nodes[n]
                if part.cpus == node.cpus and n not in allocation.cores:
                    continue
                free = self._free.get(n, (1 << node.cpus) - 1)
                if n in allocation.cores:
                    foreign = [core for core in allocation.cores[n] if core not in node.cores]
                    if foreign:
                        raise ValueError(f"core {foreign[0]} is not one of {node.name}'s")
                    positions = [node.cores.index(core) for core in allocation.cores[n]]
                    if len(set(positions)) != part.cpus:
                        raise ValueError(f"{len(positions)} cores of {node.name} named for {part.cpus} CPUs")
                else:
                    near = self._near(n, part.devices) & free if part.devices else 0
                    positions = _lowest(near, part.cpus)
                    positions += _lowest(free & ~near, part.cpus - len(positions))
                for position in positions:
                    if not free >> position & 1:
                        raise ValueError(f"core {node.cores[position]} of {node.name} is not free")
                    free ^= 1 << position
                self._free[n] = free
                chosen[n] = tuple(node.cores[position] for position in positions)
        return chosen or EMPTY

    def _near(self, node: int, devices: Sequence[int]) -> int:
        """The positions of the cores that are near any of these devices."""
        found = self._cluster.nodes[node]
        cores = {core for d in devices for core in found.devices[d].near}
        return sum(1 << place for place, core in enumerate(found.cores) if core in cores) if cores else 0

    def release(self, allocation: Allocation) -> None:
        """Give core ids back."""
        for n, cores in allocation.cores.items():
            pool = self._cluster.nodes[n].cores
            for core in cores:
                self._free[n] |= 1 << pool.index(core)


def _lowest(mask: int, count: int) -> list[int]:
    """The lowest ``count`` bits that are set in a mask; fewer where it has fewer."""
    found: list[int] = []
    while mask and len(found) < count:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
