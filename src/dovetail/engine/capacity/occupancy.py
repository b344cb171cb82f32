"""Who holds what: running jobs, free capacity, core ids, and when things come free by their bounds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.engine.capacity.cores import CoreBook
from dovetail.engine.capacity.free import FreeCapacity, Layout, Placement
from dovetail.errors import InvariantError
from dovetail.model import (
    EMPTY,
    NODE,
    Allocation,
    Cluster,
    JobId,
    Node,
    Placed,
    Seconds,
    Unit,
    bit_indices,
    without_nodes,
)

_UnitKey = tuple[int, int | None]


class Occupancy:
    """The running jobs and what they hold of a cluster whose nodes may leave, drain, return and grow.

    ``free`` is what new jobs may take: nodes that are lost or drained are not in it. ``releases`` are
    the running jobs' allocations by ascending bound, drained nodes left out. Jobs in ``uncounted`` run where
    an outside scheduler put them, over something that others hold: they take nothing of ours.
    """

    def __init__(self, cluster: Cluster, placement: Placement) -> None:
        self.cluster = cluster
        self.layout = Layout(cluster, placement)
        self.free = FreeCapacity(self.layout)
        self.running: dict[JobId, Placed] = {}
        self.releases: list[tuple[Seconds, Allocation]] = []  # ascending; times apart, for the search
        self.release_times: list[Seconds] = []
        self.lost: set[int] = set()
        self.drained: set[int] = set()
        self.uncounted: set[JobId] = set()
        self._kept: dict[int, tuple[int, ...]] = {}  # by node: its devices' reservations, where there are any
        self._cores = CoreBook(cluster)
        self._aside = FreeCapacity(self.layout, {})  # of drained nodes
        self._shown: dict[JobId, Allocation] = {}  # in ``releases``, where not the whole allocation
        self._on_unit: dict[_UnitKey, list[Placed]] | None = None

    # ------------------------------------------------------------------- holding

    def reserve_allocation(self, allocation: Allocation) -> Allocation:
        """Take an allocation, core ids chosen. Raises `ValueError`, nothing changed, if it is not free."""
        parts = allocation.parts
        if len(parts) == 1 and not allocation.donors:  # mostly
            self.free.move_part(parts[0], False)
            if parts[0].cpus == self._cores.pool and allocation.cores is EMPTY:
                return allocation  # whole pools need no core ids
        else:
            self.free.take(allocation)
        return self._with_cores(allocation)

    def _with_cores(self, allocation: Allocation) -> Allocation:
        try:
            cores = self._cores.assign_cores(allocation)
        except ValueError:
            self._give_capacity(allocation)
            raise
        return allocation if cores is EMPTY else replace(allocation, cores=cores)

    def enter_job(self, placed: Placed) -> None:
        """A job runs that holds what was reserved."""
        self.running[placed.job.id] = placed
        shown = placed.allocation
        if self.drained:
            shown = self._shown[placed.job.id] = without_nodes(shown, _mask_of_nodes(self.drained))
        times, bound = self.release_times, placed.bound
        at = bisect_right(times, bound)
        times.insert(at, bound)
        self.releases.insert(at, (bound, shown))
        if self._on_unit is not None:
            for key in _unit_keys(placed.allocation):
                self._on_unit.setdefault(key, []).append(placed)

    def enter_uncounted(self, placed: Placed) -> None:
        """A job runs elsewhere, or over what others hold: it takes nothing of ours."""
        self.running[placed.job.id] = placed
        self.uncounted.add(placed.job.id)

    def leave(self, placed: Placed) -> None:
        """The job has ended: what it held is free again."""
        del self.running[placed.job.id]
        if self.uncounted and placed.job.id in self.uncounted:
            self.uncounted.discard(placed.job.id)
            return
        self._remove_from_indices(placed)
        allocation = placed.allocation
        parts = allocation.parts
        if len(parts) == 1 and allocation.cores is EMPTY and not allocation.donors and not self.drained:
            self.free.move_part(parts[0], True)  # mostly
        else:
            self._release_allocation(allocation)

    def retake_place(self, placed: Placed) -> Placed:
        """A job that has left holds its old place again, cores included. Raises `ValueError`."""
        self._take_capacity(placed.allocation)
        placed = replace(placed, allocation=self._with_cores(placed.allocation))
        self.enter_job(placed)
        return placed

    def rebind_job(self, before: Placed, after: Placed) -> None:
        """The same job on the same place has another bound."""
        if before.job.id in self.uncounted:
            self.running[before.job.id] = after
            return
        self._remove_from_indices(before)
        self.enter_job(after)

    def exchange(self, before: Placed, after: Placed) -> Placed:
        """The job holds another allocation from now on; returns ``after`` with its core ids.

        Raises `ValueError`, nothing changed, if that is not free beside what the job held before.
        """
        old, new = before.allocation, after.allocation
        beyond = _mask_of_nodes(self.drained) & ~_mask_of_nodes(
            {*old.nodes, *(donor.donor for donor in old.donors)}
        )
        self._remove_from_indices(before)
        self._release_allocation(old)
        kept = {n: c for n, c in old.cores.items() if new.mask >> n & 1}
        try:
            if without_nodes(new, beyond) != new:
                raise ValueError("a node is drained")
            self._take_capacity(new)
            allocation = self._with_cores(replace(new, cores=kept or EMPTY))
        except ValueError:
            self._take_capacity(old)
            self._cores.assign_cores(old)
            self.enter_job(before)
            raise
        after = replace(after, allocation=allocation)
        self.enter_job(after)
        return after

    def _release_allocation(self, allocation: Allocation) -> None:
        if allocation.cores is not EMPTY:
            self._cores.release(allocation)
        self._give_capacity(allocation)

    def _give_capacity(self, allocation: Allocation) -> None:
        if not self.drained:
            self.free.give(allocation)
            return
        ours, aside = self._split_drained_part(allocation)
        self.free.give(ours)
        self._aside.give(aside)

    def _take_capacity(self, allocation: Allocation) -> None:
        if not self.drained:
            self.free.take(allocation)
            return
        ours, aside = self._split_drained_part(allocation)
        self.free.take(ours)
        try:
            self._aside.take(aside)
        except ValueError:
            self.free.give(ours)
            raise

    def _split_drained_part(self, allocation: Allocation) -> tuple[Allocation, Allocation]:
        """What lies on nodes that take new jobs, and what on drained ones."""
        mask = _mask_of_nodes(self.drained)
        return without_nodes(allocation, mask), without_nodes(allocation, ~mask & self.layout.everything)

    def _remove_from_indices(self, placed: Placed) -> None:
        """Take the job out of the indices."""
        shown = self._shown.pop(placed.job.id, placed.allocation) if self._shown else placed.allocation
        times, releases = self.release_times, self.releases
        at = bisect_left(times, placed.bound)
        while releases[at][1] is not shown:
            at += 1
        del times[at], releases[at]
        if self._on_unit is not None:
            for key in _unit_keys(placed.allocation):
                self._on_unit[key].remove(placed)

    # --------------------------------------------------------------------- nodes

    def held_on(self, node: int) -> list[Placed]:
        """Running jobs that hold something of a node, as a donor too, in order of their start."""
        return [
            placed
            for placed in self.running.values()
            if placed.allocation.part_on(node) is not None
            or any(donor.donor == node for donor in placed.allocation.donors)
        ]

    def remove_node(self, node: int) -> None:
        """A node on which nothing runs any more is gone."""
        (self._aside if node in self.drained else self.free).remove_node(node)
        self.drained.discard(node)
        self.lost.add(node)

    def drain_node(self, node: int) -> None:
        """A node gives nothing to new jobs; O(running jobs)."""
        if node in self.lost or node in self.drained:
            return
        state = self.free.state_of(node)
        self.free.remove_node(node)
        self._aside.set_state(node, state)
        self.drained.add(node)
        self._show_releases()

    def join(self, node: int) -> None:
        """A lost or drained node is back."""
        if node in self.drained:
            state = self._aside.state_of(node)
            self._aside.remove_node(node)
            self.free.set_state(node, state)
            self.drained.discard(node)
            self._show_releases()
        elif node in self.lost:
            self.lost.discard(node)
            self.free.join(node)
            self.free.keep(node, self._kept.get(node, ()))

    def keep(self, devices: Mapping[tuple[int, int], int]) -> None:
        """These places are reserved from now on, and no others: bits by (node, device or `NODE`)."""
        before, self._kept = self._kept, {}
        for node in sorted({node for node, _ in devices}):
            count = len(self.cluster.nodes[node].devices)
            self._kept[node] = tuple(devices.get((node, d), 0) for d in range(count))
            if (node, NODE) in devices:
                self._kept[node] += (devices[node, NODE],)
        for node in before.keys() | self._kept.keys():
            for capacity in (self.free, self._aside):
                capacity.keep(node, self._kept.get(node, ()))

    def unused_states(self, *, nodes_kept: bool = True) -> dict[int, int]:
        """The states in which all nodes are while nothing is in use, with the nodes in each.

        Without ``nodes_kept`` only reservations of devices are in them.
        """
        whole = FreeCapacity(self.layout)
        for node, kept in self._kept.items():
            whole.keep(node, kept if nodes_kept else kept[: len(self.cluster.nodes[node].devices)])
        return whole.by_state()

    def visible_allocation(self, placed: Placed) -> Allocation | None:
        """What a running job holds of nodes that take new jobs; ``None`` if it is not counted."""
        if placed.job.id in self.uncounted:
            return None
        return self._shown.get(placed.job.id, placed.allocation)

    def _show_releases(self) -> None:
        """Make ``releases`` anew without what lies on drained nodes."""
        mask = _mask_of_nodes(self.drained)
        self._shown.clear()
        entries: list[tuple[Seconds, Allocation]] = []
        for placed in self.running.values():
            if placed.job.id in self.uncounted:
                continue
            shown = placed.allocation
            if mask:
                shown = self._shown[placed.job.id] = without_nodes(shown, mask)
            entries.append((placed.bound, shown))
        entries.sort(key=lambda entry: entry[0])
        self.releases[:] = entries
        self.release_times[:] = [when for when, _ in entries]

    def append_node(self, node: Node) -> Cluster:
        """A node that was never there takes the next index; returns the cluster with it."""
        self.cluster = self.layout.append_node(node)
        self._cores.extend_cluster(self.cluster)
        self.free.join(len(self.cluster) - 1)
        return self.cluster

    # ------------------------------------------------------------------- queries

    def on_unit(self, unit: Unit) -> Sequence[Placed]:
        """Jobs that use a unit; the index is built at the first question, then kept."""
        if self._on_unit is None:
            self._on_unit = {}
            for placed in self.running.values():
                if placed.job.id not in self.uncounted:
                    for key in _unit_keys(placed.allocation):
                        self._on_unit.setdefault(key, []).append(placed)
        return self._on_unit.get((unit.node, unit.device), ())

    def validate_books(self) -> None:
        """Compare the books with what the running jobs hold; raises `InvariantError`. O(running + states)."""
        known = FreeCapacity(self.layout, self.unused_states())
        cores: set[tuple[int, int]] = set()
        shown: list[Seconds] = []
        for job, placed in self.running.items():
            if job in self.uncounted:
                continue
            try:
                known.take(placed.allocation)
            except ValueError as error:
                raise InvariantError(f"job {job} holds what is held by others: {error}") from None
            shown.append(placed.bound)
            for n in placed.allocation.nodes:
                for core in placed.allocation.cores_on(n, self.cluster.nodes[n]):
                    if (n, core) in cores:
                        raise InvariantError(f"core {core} of node {n} is held twice")
                    cores.add((n, core))
        for node in self.lost:
            if any(placed.job.id not in self.uncounted for placed in self.held_on(node)):
                raise InvariantError(f"jobs run on node {node}, which is lost")
            known.remove_node(node)
        together = self.free.copy()
        for node in self.drained:
            together.set_state(node, self._aside.state_of(node))
        if sorted(known.iterate_state_masks()) != sorted(together.iterate_state_masks()):
            raise InvariantError("free capacity is not the cluster less what running jobs hold")
        if sorted(shown) != self.release_times or [when for when, _ in self.releases] != self.release_times:
            raise InvariantError("releases are not the running jobs' bounds in order")
        if not self.uncounted <= self.running.keys():
            raise InvariantError("a job that does not run is kept as uncounted")


def _mask_of_nodes(nodes: set[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def _unit_keys(allocation: Allocation) -> list[_UnitKey]:
    keys: list[_UnitKey] = []
    for part in allocation.parts:
        for node in bit_indices(part.nodes):
            if part.cpus:
                keys.append((node, None))
            keys.extend((node, device) for device in part.devices)
    keys.extend((donor.donor, donor.device) for donor in allocation.donors)
    return keys
