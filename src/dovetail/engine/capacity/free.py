"""Free capacity of a cluster: which nodes can give what, kept as a few bit masks.

Nodes in the same *state* (same kind of node, same free CPUs, memory and devices) share one bit mask, so
that finding room, taking it and giving it back cost a step per distinct state, not per node: an idle
node costs nothing. States are interned; transitions between them are computed once and remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations, zip_longest
from math import comb
from typing import Any, Literal, NamedTuple

from dovetail.model import (
    FRACTION_UNITS,
    WHOLE_POOL,
    Allocation,
    Cluster,
    Device,
    Node,
    Part,
    Request,
    Seconds,
    Unit,
)
from dovetail.model.fitting import (
    cpus_on,
    memory_taken,
    shares_device,
    suits_request,
    takes_alike,
    units_taken,
    whole_devices,
)

Placement = Literal["pack", "spread", "first"]
UNLIMITED = -1
KEPT_FIRST = 1 << 300
"""Beyond any rank: who may use a reserved device takes it before one that all may use."""
FEW = 6
"""So many bits are taken one by one."""
MOST_SETS = 3000
"""Sets of devices of a node that are compared for the links among them."""
MOST_CPUS = 1 << 40  # above the CPUs of any node
MOST_BYTES = 1 << 62  # above the memory of any device


def lowest_set_bits(mask: int, count: int) -> int:
    """The ``count`` lowest set bits of a mask that has at least so many. O(log n) big-int steps at best."""
    if count == 1:
        return mask & -mask
    found = mask.bit_count()
    if found == count:
        return mask
    if count <= FEW:
        return mask ^ _without_lowest(mask, count)
    # Interpolate: set bits lie about evenly. ``low`` bits hold ``least`` of them, ``high`` hold ``most``.
    low, least, high, most = 0, 0, mask.bit_length(), found
    while True:
        middle = max(low + 1, low + (high - low) * (count - least) // (most - least))
        part = mask & ((1 << middle) - 1)
        found = part.bit_count()
        if found == count:
            return part
        if found < count:
            if count - found <= FEW:
                return mask ^ _without_lowest(mask ^ part, count - found)
            low, least = middle, found
        else:
            high, most = middle, found


def _without_lowest(mask: int, count: int) -> int:
    """A mask less so many of its lowest bits."""
    for _ in range(count):
        mask &= mask - 1
    return mask


class NodeClass(NamedTuple):
    """What identical nodes have: CPUs in the pool, host CPUs, memory, devices."""

    cpus: int
    host_cpus: int
    memory: int
    devices: tuple[Device, ...]
    partitions: tuple[str, ...]


class NodeState(NamedTuple):
    """What is free on a node: class index, CPUs, memory (`UNLIMITED`: not counted), units of each device.

    ``device_memory`` is the free bytes of each device (`UNLIMITED`: not counted); empty where none has any.
    ``kept`` is the bits of each device's reservations, then those of the node itself; empty where nothing is
    reserved, without the last where only devices are.
    """

    node_class: int
    cpus: int
    memory: int
    devices: tuple[int, ...]
    device_memory: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


class Share(NamedTuple):
    """What one node gives; the part of a gang without its nodes."""

    cpus: int
    devices: tuple[int, ...]
    units: int
    memory: int
    gpu_memory: int = 0


class Fit(NamedTuple):
    """How a request is met from a state: what the node gives, and its state afterwards.

    Of nodes that fit, the one of least ``rank`` is taken first.
    """

    share: Share
    after: int
    rank: int


Fits = dict[int, Fit | None]
"""How a request is met from each state that was looked at so far."""

# A part from its fields as one tuple: a third of the cost of calling `Part`, in the hottest place there is.
_part = partial(tuple.__new__, Part)


class Layout:
    """Interned node states of one cluster, and the remembered steps between them."""

    def __init__(self, cluster: Cluster, placement: Placement = "pack") -> None:
        self.cluster = cluster
        self.placement = placement
        self.states: list[NodeState] = []
        self.rank: list[int] = []  # placement order of a state: lower is taken first
        self._ids: dict[NodeState, int] = {}
        self._classes: list[NodeClass] = []
        self.fits: defaultdict[Request, Fits] = defaultdict(dict)  # remembered; fill gaps with `fit_state`
        self.taken: defaultdict[tuple[Any, ...], dict[int, int | None]] = defaultdict(dict)
        self.given: defaultdict[tuple[Any, ...], dict[int, int | None]] = defaultdict(dict)
        self.full: dict[int, int] = {}  # state -> mask, nothing in use
        self._least: dict[tuple[int, int], int] = {}
        self.everything = 0  # mask of all nodes
        self._class_index: dict[NodeClass, int] = {}
        for group in cluster.groups:
            self._append_nodes(group.node, group.first, group.count)

    def _append_nodes(self, node: Node, first: int, count: int) -> None:
        """Neighbouring nodes that are all like this one."""
        node_class = self._class_of(node)
        c = self._class_index.setdefault(node_class, len(self._class_index))
        if c == len(self._classes):
            self._classes.append(node_class)
        state = self._intern_state(
            NodeState(
                c,
                node_class.cpus,
                node_class.memory,
                (FRACTION_UNITS,) * len(node_class.devices),
                _whole_memory(node_class.devices),
            )
        )
        mask = ((1 << count) - 1) << first
        self.full[state] = self.full.get(state, 0) | mask
        self.everything |= mask

    def append_node(self, node: Node) -> Cluster:
        """One more node, at the end; returns the cluster with it."""
        self._append_nodes(node, len(self.cluster), 1)
        self.cluster = Cluster((*self.cluster.nodes, node), self.cluster.label, closed=self.cluster.closed)
        return self.cluster

    @staticmethod
    def _class_of(node: Node) -> NodeClass:
        # Core ids of hosts do not matter for capacity: leave them out, so that alike nodes are alike.
        devices = tuple(
            Device(d.kind, d.model, d.local, memory=d.memory, links=d.links, exclusive=d.exclusive)
            for d in node.devices
        )
        memory = UNLIMITED if node.memory is None else node.memory
        return NodeClass(node.cpus, node.host_cpus, memory, devices, node.partitions)

    def _intern_state(self, state: NodeState) -> int:
        found = self._ids.get(state)
        if found is None:
            found = self._ids[state] = len(self.states)
            self.states.append(state)
            free_units = self._free_units(state)
            most_free = free_units * MOST_CPUS + state.cpus  # free devices first, then free CPUs
            least_free = most_free if not state.devices else free_units * MOST_CPUS
            self.rank.append({"pack": least_free, "spread": -most_free, "first": 0}[self.placement])
        return found

    def _free_units(self, state: NodeState) -> int:
        """What is free of all devices of a node, in `FRACTION_UNITS`: the lesser of units and memory."""
        if not state.device_memory:
            return sum(state.devices)
        devices = self._classes[state.node_class].devices
        return sum(
            units if not device.memory else min(units, memory * FRACTION_UNITS // device.memory)
            for units, memory, device in zip(state.devices, state.device_memory, devices, strict=True)
        )

    def fit_state(self, request: Request, state_id: int) -> Fit | None:
        """How one node in this state meets the request, or ``None``; remembered."""
        state = self.states[state_id]
        share = self._make_share(request, state)
        after = None if share is None else self.after_take(state_id, share)
        fit = None
        if share is not None and after is not None:
            rank = self.rank[state_id]
            if share.devices and shares_device(request):
                tightest = max(self._share_tightness(state, d) for d in share.devices)
                rank = tightest * MOST_BYTES + rank if self.placement == "spread" else tightest
            if state.kept and any(state.kept[d] for d in share.devices):
                rank -= KEPT_FIRST
            fit = Fit(share, after, rank)
        self.fits[request][state_id] = fit
        return fit

    def cpus_of(self, request: Request, node_class: int) -> int:
        """CPUs that the request takes on a node of this class."""
        node = self._classes[node_class]
        return cpus_on(request, node.cpus, node.host_cpus)

    def _make_share(self, request: Request, state: NodeState) -> Share | None:
        node_class = self._classes[state.node_class]
        cpus = self.cpus_of(request, state.node_class)
        if request.cpus == WHOLE_POOL and cpus == 0:
            return None  # a CPU implementation needs a CPU
        if cpus > state.cpus:
            return None
        if request.partition and request.partition not in node_class.partitions:
            return None
        if request.avoids and state.kept and self.node_kept(state) & request.avoids:
            return None
        if request.memory and state.memory != UNLIMITED and request.memory > state.memory:
            return None
        if not request.devices:
            return Share(cpus, (), FRACTION_UNITS, request.memory)
        devices = node_class.devices
        free = [d for d in range(len(devices)) if self._has_room(request, state, d)]
        if shares_device(request):
            free.sort(key=lambda d: self._share_tightness(state, d))
        if state.kept:  # what others may not use goes first: it leaves them the rest
            free.sort(key=lambda d: not state.kept[d])
        for alike in takes_alike(request, devices, free):
            chosen = _choose_devices(request, devices, alike)
            if chosen is not None:
                units = units_taken(request, devices[chosen[0]])
                return Share(cpus, chosen, units, request.memory, request.gpu_memory)
        return None

    def _has_room(self, request: Request, state: NodeState, d: int) -> bool:
        """Whether a device has free what the request would take of it, were it of the right kind."""
        device = self._classes[state.node_class].devices[d]
        units = units_taken(request, device)
        if state.devices[d] < units or (state.kept and state.kept[d] & request.avoids):
            return False
        if device.memory is None:
            return True
        return state.device_memory[d] >= memory_taken(device.memory, units, request.gpu_memory)

    def _share_tightness(self, state: NodeState, d: int) -> int:
        """Where a device stands among those that suffice for a share: least free memory, then least share."""
        memory = state.device_memory[d] if state.device_memory else UNLIMITED
        if memory == UNLIMITED:
            memory = MOST_BYTES
        tightness = memory * (FRACTION_UNITS + 1) + state.devices[d]
        kept = KEPT_FIRST if state.kept and state.kept[d] else 0
        return {"pack": tightness, "spread": -tightness, "first": 0}[self.placement] - kept

    def tightness(self, state_id: int, device: int) -> int:
        """The same of a state by its id; lower is taken first."""
        return self._share_tightness(self.states[state_id], device)

    def whole_devices(self, state_id: int, kind: str, models: tuple[str, ...]) -> tuple[int, ...]:
        """Indices of the devices of a kind of which nothing is taken in this state."""
        state = self.states[state_id]
        return tuple(
            d
            for d, device in enumerate(self._classes[state.node_class].devices)
            if device.kind == kind
            and state.devices[d] == FRACTION_UNITS
            and (device.memory is None or state.device_memory[d] == device.memory)
            and (not models or device.model in models)
            and not (state.kept and state.kept[d])
        )

    def node_kept(self, state: NodeState) -> int:
        """The bits of the reservations of a node as a whole."""
        return state.kept[-1] if len(state.kept) > len(state.devices) else 0

    def with_node_kept(self, state_id: int, bits: int) -> int:
        """The same state with these reservations of the node too."""
        state = self.states[state_id]
        devices = state.kept[: len(state.devices)] or (0,) * len(state.devices)
        return self._intern_state(state._replace(kept=(*devices, self.node_kept(state) | bits)))

    def with_kept(self, state_id: int, kept: tuple[int, ...]) -> int:
        """The same state with these reservations of its devices."""
        return self._intern_state(self.states[state_id]._replace(kept=kept))

    def after_take(self, state_id: int, share: Share) -> int | None:
        """State after a node gives the share; ``None`` if it has not got it."""
        steps = self.taken[share]
        return steps[state_id] if state_id in steps else self.step(state_id, share, giving=False)

    def steps(self, share: tuple[Any, ...], *, giving: bool) -> dict[int, int | None]:
        """Remembered states after a share is taken or given, by state; fill gaps with `step`."""
        return (self.given if giving else self.taken)[share]

    def step(self, state_id: int, share: tuple[Any, ...], *, giving: bool) -> int | None:
        """State after a share is taken or given; ``None`` if that cannot be; remembered."""
        after = self._compute_step(state_id, Share(*share), +1 if giving else -1)
        self.steps(share, giving=giving)[state_id] = after
        return after

    def common_state(self, one: int, other: int) -> int:
        """The state of a node that has what two states of it have in common; remembered."""
        key = (one, other)
        if key not in self._least:
            a, b = self.states[one], self.states[other]
            self._least[key] = self._intern_state(
                NodeState(
                    a.node_class,
                    min(a.cpus, b.cpus),
                    min(a.memory, b.memory),
                    tuple(map(min, a.devices, b.devices)),
                    tuple(map(min, a.device_memory, b.device_memory)),
                    a.kept if a.kept == b.kept else _join_kept(a.kept, b.kept),
                )
            )
        return self._least[key]

    def _compute_step(self, state_id: int, share: Share, sign: int) -> int | None:
        state = self.states[state_id]
        node_class = self._classes[state.node_class]
        cpus = state.cpus + sign * share.cpus
        memory = state.memory if state.memory == UNLIMITED else state.memory + sign * share.memory
        devices, device_memory = list(state.devices), list(state.device_memory)
        for d in share.devices:
            if d >= len(devices):
                return None
            devices[d] += sign * share.units
            if not 0 <= devices[d] <= FRACTION_UNITS:
                return None
            size = node_class.devices[d].memory
            if size is not None:
                device_memory[d] += sign * memory_taken(size, share.units, share.gpu_memory)
                if not 0 <= device_memory[d] <= size:
                    return None
        if not 0 <= cpus <= node_class.cpus:
            return None
        if state.memory != UNLIMITED and not 0 <= memory <= node_class.memory:
            return None
        after = NodeState(state.node_class, cpus, memory, tuple(devices), tuple(device_memory), state.kept)
        return self._intern_state(after)


def _join_kept(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """The reservations of both, place by place."""
    return tuple(a | b for a, b in zip_longest(one, other, fillvalue=0))


def _whole_memory(devices: Sequence[Device]) -> tuple[int, ...]:
    """The memory of each device with nothing in use; empty where none has any."""
    if all(device.memory is None for device in devices):
        return ()
    return tuple(UNLIMITED if device.memory is None else device.memory for device in devices)


def _choose_devices(
    request: Request, devices: Sequence[Device], free: Sequence[int]
) -> tuple[int, ...] | None:
    """Of these devices of each kind in the request the closest, else the first; ``None``: too few."""
    chosen: list[int] = []
    for kind, count in request.devices:
        wanted = whole_devices(count)
        eligible = [d for d in free if suits_request(devices[d], kind, request)]
        if len(eligible) < wanted:
            return None
        chosen += closest_devices(devices, eligible, wanted)
    return tuple(chosen)


def closest_devices(devices: Sequence[Device], eligible: Sequence[int], wanted: int) -> Sequence[int]:
    """So many of the eligible devices, with the most links among them; of equal ones the first in order.

    Exact where that are at most `MOST_SETS` sets, else each next one is the one with the most links to those
    before.
    """
    if wanted < 2 or len(eligible) == wanted or not any(devices[d].links for d in eligible):
        return eligible[:wanted]
    close = {d: dict(devices[d].links) for d in eligible}
    if comb(len(eligible), wanted) <= MOST_SETS:
        # The first of the best in the order of `eligible`: sets come in that order.
        return max(
            combinations(eligible, wanted),
            key=lambda some: sum(close[one].get(other, 0) for one, other in combinations(some, 2)),
        )
    first, second = max(combinations(eligible, 2), key=lambda two: close[two[0]].get(two[1], 0))
    chosen = [first, second]
    while len(chosen) < wanted:
        rest = [d for d in eligible if d not in chosen]
        chosen.append(max(rest, key=lambda d: sum(close[d].get(other, 0) for other in chosen)))
    return chosen


class FreeCapacity:
    """What is free now; implements `dovetail.interfaces.Free`. A copy costs a small dict."""

    __slots__ = ("_layout", "_states")

    def __init__(self, layout: Layout, states: dict[int, int] | None = None) -> None:
        self._layout = layout
        self._states = dict(layout.full) if states is None else states

    def copy(self) -> FreeCapacity:
        """An independent copy. O(distinct states)."""
        return FreeCapacity(self._layout, self._states.copy())

    def count(self, request: Request, *, within: int = -1) -> int:
        """Nodes that could give one share now. O(distinct states)."""
        layout = self._layout
        fits = layout.fits[request]
        total = 0
        for state, mask in self._states.items():
            try:
                fit = fits[state]
            except KeyError:
                fit = layout.fit_state(request, state)
            if fit is not None:
                total += mask.bit_count() if within == -1 else (mask & within).bit_count()
        return total

    def nodes(self, request: Request) -> int:
        """Bit mask of the nodes that could give one share now. O(distinct states)."""
        layout = self._layout
        fits = layout.fits[request]
        found = 0
        for state, mask in self._states.items():
            if (fits[state] if state in fits else layout.fit_state(request, state)) is not None:
                found |= mask
        return found

    def cpus(self) -> tuple[int, int]:
        """The most free CPUs of a node, and those of all nodes. O(distinct states)."""
        states = self._layout.states
        most = total = 0
        for state, mask in self._states.items():
            free = states[state].cpus
            most = max(most, free)
            total += free * mask.bit_count()
        return most, total

    def devices(self, kind: str, models: tuple[str, ...] = ()) -> list[tuple[int, tuple[int, ...]]]:
        """Wholly free devices of a kind: (nodes that have the same free, their indices). O(states)."""
        found: dict[tuple[int, ...], int] = {}
        for state, mask in self._states.items():
            indices = self._layout.whole_devices(state, kind, models)
            if indices:
                found[indices] = found.get(indices, 0) | mask
        return [(mask, indices) for indices, mask in found.items()]

    def fit(self, request: Request, *, within: int = -1) -> Allocation | None:
        """Where the request fits by the placement rule, or ``None``. O(distinct states)."""
        layout = self._layout
        fits = layout.fits[request]
        wanted = request.nodes
        only: Fit | None = None
        eligible = 0
        for state, mask in self._states.items():
            try:
                fit = fits[state]
            except KeyError:
                fit = layout.fit_state(request, state)
            if fit is None:
                continue
            mask &= within
            if mask:
                if only is not None:
                    return self._fit_ranked(request, fits, within)
                only, eligible = fit, mask
        if only is None or eligible.bit_count() < wanted:
            return None
        return Allocation(request, (_part((lowest_set_bits(eligible, wanted), *only[0])),))

    def claim(self, request: Request) -> Allocation | None:
        """`fit`, and take what was found. O(distinct states)."""
        layout, states = self._layout, self._states
        fits = layout.fits[request]
        only, where, eligible = None, -1, 0
        for state, mask in states.items():
            try:
                fit = fits[state]
            except KeyError:
                fit = layout.fit_state(request, state)
            if fit is not None:
                if only is not None:
                    found = self._fit_ranked(request, fits, -1)
                    if found is not None:
                        self.take(found)
                    return found
                only, where, eligible = fit, state, mask
        if only is None or eligible.bit_count() < request.nodes:
            return None
        chosen = lowest_set_bits(eligible, request.nodes)
        if chosen == eligible:
            del states[where]
        else:
            states[where] = eligible ^ chosen
        states[only[1]] = states.get(only[1], 0) | chosen
        return Allocation(request, (_part((chosen, *only[0])),))

    def claim_as(self, allocation: Allocation) -> Allocation | None:
        """Take it, or any nodes for its request if it names none; ``None`` if that is not free."""
        if not allocation.parts:
            return self.claim(allocation.request)
        try:
            self.take(allocation)
        except ValueError:
            return None
        return allocation

    def _fit_ranked(self, request: Request, fits: Fits, within: int) -> Allocation | None:
        """Nodes in several states fit: by rank, then lowest index; parts stand by their lowest nodes."""
        if request.nodes == 1:
            return self._fit_one(request, fits, within)
        layout = self._layout
        by_rank: dict[int, list[tuple[int, Share]]] = {}
        found, missing = 0, request.nodes
        for state, mask in self._states.items():
            fit = fits[state] if state in fits else layout.fit_state(request, state)
            mask &= within
            if fit is not None and mask:
                found += mask.bit_count()
                by_rank.setdefault(fit.rank, []).append((mask, fit.share))
        if found < missing:
            return None
        chosen: dict[Share, int] = {}
        for rank in sorted(by_rank):
            together = 0
            for mask, _ in by_rank[rank]:
                together |= mask
            picked = lowest_set_bits(together, min(missing, together.bit_count()))
            taken = [(mask & picked, share) for mask, share in by_rank[rank] if mask & picked]
            for mask, share in taken if len(taken) == 1 else sorted(taken, key=_lowest_node):
                chosen[share] = chosen.get(share, 0) | mask
            missing -= picked.bit_count()
            if missing == 0:
                break
        return Allocation(request, tuple(Part(nodes, *share) for share, nodes in chosen.items()))

    def _fit_one(self, request: Request, fits: Fits, within: int) -> Allocation | None:
        """The node of least rank that fits; of these the one of lowest index."""
        layout = self._layout
        least, where = 0, 0
        found: Fit | None = None
        for state, mask in self._states.items():
            fit = fits[state] if state in fits else layout.fit_state(request, state)
            mask &= within
            if fit is not None and mask:
                rank, low = fit.rank, mask & -mask
                if found is None or rank < least or (rank == least and low < where):
                    least, where, found = rank, low, fit
        return None if found is None else Allocation(request, (_part((where, *found[0])),))

    def fit_unit(self, request: Request, unit: Unit) -> Allocation | None:
        """The request on this unit's node, and on that device if it is one; or ``None``."""
        if request.nodes != 1:
            return None
        bit = 1 << unit.node
        if unit.device is None or not request.devices:
            return self.fit(request, within=bit)
        layout = self._layout
        for state_id, mask in self._states.items():
            if mask & bit:
                state = layout.states[state_id]
                count = request.devices[0][1]
                if len(request.devices) != 1 or count > 1 or request.devices[0][0] != unit.kind:
                    return self.fit(request, within=bit)  # more than this one device: any that fit
                device = layout.cluster.nodes[unit.node].devices[unit.device]
                if not suits_request(device, unit.kind, request):
                    return None
                kept = state.kept and state.kept[unit.device] | layout.node_kept(state)
                if kept and kept & request.avoids:
                    return None
                cpus, units = layout.cpus_of(request, state.node_class), units_taken(request, device)
                share = Share(cpus, (unit.device,), units, request.memory, request.gpu_memory)
                if layout.after_take(state_id, share) is None:
                    return None
                return Allocation(request, (Part(bit, *share),))
        return None

    def tightness(self, unit: Unit) -> int:
        """Where a device stands among those that suffice for a share, by the placement rule: least first."""
        assert unit.device is not None
        bit = 1 << unit.node
        for state, mask in self._states.items():
            if mask & bit:
                return self._layout.tightness(state, unit.device)
        raise ValueError("a node is lost or unknown")

    def take(self, allocation: Allocation) -> None:
        """Mark as used; raises `ValueError`, nothing changed, if any of it is not free."""
        parts = allocation.parts
        if len(parts) == 1 and not allocation.donors:
            self.move_part(parts[0], False)
        else:
            self._move_all(allocation, False)

    def give(self, allocation: Allocation) -> None:
        """Mark as free again; raises `ValueError`, nothing changed, if it was not in use."""
        parts = allocation.parts
        if len(parts) == 1 and not allocation.donors:
            self.move_part(parts[0], True)
        else:
            self._move_all(allocation, True)

    def _move_all(self, allocation: Allocation, giving: bool) -> None:
        before = self._states.copy()
        try:
            for part in allocation.parts:
                if part.nodes:
                    self.move_part(part, giving)
            for donor in allocation.donors:
                self.move_part(Part(1 << donor.donor, 0, (donor.device,), FRACTION_UNITS, 0), giving)
        except ValueError:
            self._states = before
            raise

    def move_part(self, part: Part, giving: bool) -> None:
        """`take` or `give` one part."""
        nodes, states, layout = part[0], self._states, self._layout
        steps = (layout.given if giving else layout.taken)[part[1:]]
        for state, mask in states.items():
            if mask & nodes == nodes:
                after = steps.get(state)
                if after is None:
                    break
                if mask == nodes:  # mostly all its nodes are alike
                    del states[state]
                else:
                    states[state] = mask ^ nodes
                states[after] = states.get(after, 0) | nodes
                return
        self._move_mixed(part, steps, giving)

    def _move_mixed(self, part: Part, steps: dict[int, int | None], giving: bool) -> None:
        """The same of nodes in several states, or in one that is seen for the first time."""
        rest, share = part[0], part[1:]
        layout, states = self._layout, self._states
        moves: list[tuple[int, int, int]] = []
        for state, mask in states.items():
            hit = mask & rest
            if hit:
                try:
                    after = steps[state]
                except KeyError:
                    after = layout.step(state, share, giving=giving)
                if after is None:
                    raise ValueError("more than there is" if giving else "not free")
                moves.append((state, after, hit))
                rest ^= hit
                if not rest:
                    break
        if rest:
            raise ValueError("a node is lost or unknown")
        for before, after, hit in moves:
            left = states[before] ^ hit
            if left:
                states[before] = left
            else:
                del states[before]
            states[after] = states.get(after, 0) | hit

    def earliest(
        self, request: Request, releases: Iterable[tuple[Seconds, Allocation]], now: Seconds
    ) -> tuple[Seconds, Allocation] | None:
        """First time at which the request fits as ``releases`` come true, and where. O(releases · states)."""
        return self.copy().give_until_fit(request, releases, now)

    def give_until_fit(
        self,
        request: Request,
        releases: Iterable[tuple[Seconds, Allocation]],
        now: Seconds,
        *,
        fits_now: bool = True,
    ) -> tuple[Seconds, Allocation] | None:
        """Give back what ``releases`` bring up to the first time at which the request fits; when, and where.

        Without ``fits_now`` it is not looked for before something has been given back.
        """
        time, look = now, fits_now
        for when, allocation in releases:
            # All that is released at one time counts together, so the look comes with the next time.
            if when > time:
                found = self.fit(request) if look else None
                if found is not None:
                    return time, found
                time = when
            self.give(allocation)
            look = True
        found = self.fit(request)
        return None if found is None else (time, found)

    def remove_node(self, node: int) -> None:
        """A node without running jobs is gone."""
        bit = 1 << node
        for state, mask in self._states.items():
            if mask & bit:
                if mask == bit:
                    del self._states[state]
                else:
                    self._states[state] = mask ^ bit
                return

    def join(self, node: int) -> None:
        """A lost node is back, with nothing in use."""
        bit = 1 << node
        for state, mask in self._layout.full.items():
            if mask & bit:
                self._states[state] = self._states.get(state, 0) | bit
                return

    def keep(self, node: int, kept: tuple[int, ...]) -> None:
        """A node's devices have these reservations from now on; nothing for a node that is not there."""
        bit = 1 << node
        for state, mask in self._states.items():
            if mask & bit:
                after = self._layout.with_kept(state, kept)
                if after != state:
                    self.remove_node(node)
                    self.set_state(node, after)
                return

    def state_of(self, node: int) -> int:
        """Id of the state that a node is in; raises `ValueError` for one that is lost."""
        for state, mask in self._states.items():
            if mask >> node & 1:
                return state
        raise ValueError("a node is lost or unknown")

    def set_state(self, node: int, state: int) -> None:
        """A node that was not there is, in this state."""
        self._states[state] = self._states.get(state, 0) | (1 << node)

    def by_state(self) -> dict[int, int]:
        """The nodes in each state, by its id."""
        return self._states.copy()

    def has_like_nodes(self) -> bool:
        """Whether all nodes of the cluster are alike, with CPUs and without devices."""
        states = [self._layout.states[state] for state in self._layout.full]
        return len(states) == 1 and states[0].cpus > 0 and not states[0].devices

    def unused(self) -> int:
        """Nodes on which nothing runs."""
        full = self._layout.full
        return sum(mask.bit_count() for state, mask in self._states.items() if state in full)

    def takes_whole_nodes(self, request: Request) -> bool:
        """Whether that is so, and the request takes whole pools."""
        if not self.has_like_nodes():
            return False
        state = self._layout.states[next(iter(self._layout.full))]
        return self._layout.cpus_of(request, state.node_class) == state.cpus

    def iterate_state_masks(self) -> Iterable[tuple[NodeState, int]]:
        """(state, nodes in it) of every state in use."""
        return [(self._layout.states[state], mask) for state, mask in self._states.items()]


def _lowest_node(entry: tuple[int, Share]) -> int:
    return entry[0] & -entry[0]
