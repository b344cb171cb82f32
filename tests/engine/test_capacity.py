"""Free capacity as bit masks against a naive model that looks at every node."""

from __future__ import annotations

import math

import pytest
from capacities import meet
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.capacity.free import FreeCapacity, Layout, lowest_set_bits
from dovetail.model import FRACTION_UNITS, Allocation, Cluster, Device, Node, Part, Request, bit_indices
from dovetail.testing.builders import full


@given(st.integers(min_value=1, max_value=2**300 - 1), st.data())
def test_lowest_takes_the_lowest_bits(mask: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, mask.bit_count()))
    assert list(bit_indices(lowest_set_bits(mask, count))) == list(bit_indices(mask))[:count]


nodes_of = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([(), ("a",), ("a", "a"), ("a", "b"), ("b", "b", "b"), ("c", "a"), ("c", "d", "c")]),
        st.sampled_from([None, 4, 9]),
        st.integers(0, 1),
    ).filter(lambda node: node[0] > 0 or bool(node[1])),
    min_size=1,
    max_size=6,
)
SIZES = {"c": 16, "d": 40}
"""Memory of the devices of these models; that of others is not known."""
requests = st.builds(
    Request,
    nodes=st.integers(1, 3),
    cpus=st.sampled_from([-2, -1, 0, 1, 2]),
    devices=st.sampled_from([(), (("gpu", 0.25),), (("gpu", 0.5),), (("gpu", 1),), (("gpu", 2),)]),
    memory=st.sampled_from([0, 0, 1, 3]),
    models=st.sampled_from([(), ("a",), ("a", "b"), ("c", "d")]),
    gpu_memory=st.sampled_from([0, 0, 3, 10, 20]),
    gpu_least=st.sampled_from([0, 0, 20]),
)


def cluster_of(rows: list[tuple[int, tuple[str, ...], int | None, int]]) -> Cluster:
    return Cluster(
        tuple(
            Node(
                f"n{i}",
                tuple(range(cpus)),
                tuple(
                    Device("gpu", model, local, memory=SIZES.get(model)) for local, model in enumerate(models)
                ),
                memory,
                min(host, cpus),
            )
            for i, (cpus, models, memory, host) in enumerate(rows)
        )
    )


Given = tuple[int, tuple[int, ...], int]
"""CPUs, devices and units."""


class Naive:
    """What every node has free, one by one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cpus = [node.cpus for node in cluster.nodes]
        self.memory = [math.inf if node.memory is None else node.memory for node in cluster.nodes]
        self.units = [[FRACTION_UNITS] * len(node.devices) for node in cluster.nodes]
        self.bytes = [[d.memory or 0 for d in node.devices] for node in cluster.nodes]

    def give_of(self, n: int, request: Request) -> Given | None:
        """CPUs, devices and units that this node would give."""
        node = self.cluster.nodes[n]
        cpus = {-1: node.cpus, -2: node.host_cpus}.get(request.cpus, request.cpus)
        if cpus > self.cpus[n] or (request.cpus == -1 and cpus == 0) or request.memory > self.memory[n]:
            return None
        if not request.devices:
            return cpus, (), FRACTION_UNITS
        [(_, count)] = request.devices
        wanted = math.ceil(count)
        shared: list[int] = []  # known memory and whole devices: nothing but memory is taken
        other: list[int] = []
        for d, device in enumerate(node.devices):
            units, size = round(min(count, 1) * FRACTION_UNITS), device.memory
            if request.models and device.model not in request.models:
                continue
            if size is None:
                if self.units[n][d] >= units:
                    other.append(d)
                continue
            if size < max(request.gpu_memory, request.gpu_least):
                continue
            if request.gpu_memory:
                if request.gpu_memory <= self.bytes[n][d] and (count >= 1 or self.units[n][d] >= units):
                    (shared if count >= 1 else other).append(d)
            elif self.units[n][d] >= units and self.bytes[n][d] >= size * units // FRACTION_UNITS:
                other.append(d)
        if count < 1 or request.gpu_memory:
            shared.sort(key=lambda d: self.tightness(n, d))
            other.sort(key=lambda d: self.tightness(n, d))
        if len(shared) >= wanted:
            return cpus, tuple(shared[:wanted]), 0
        units = round(min(count, 1) * FRACTION_UNITS)
        return (cpus, tuple(other[:wanted]), units) if len(other) >= wanted else None

    def tightness(self, n: int, d: int) -> tuple[float, int]:
        known = self.cluster.nodes[n].devices[d].memory is not None
        return self.bytes[n][d] if known else math.inf, self.units[n][d]

    def order(self, n: int, request: Request) -> tuple[float, float]:
        given = self.give_of(n, request)
        assert given is not None
        if given[1] and (request.gpu_memory or any(count < 1 for _, count in request.devices)):
            return max(self.tightness(n, d) for d in given[1])
        free = 0
        for d, device in enumerate(self.cluster.nodes[n].devices):
            units = self.units[n][d]
            if device.memory is not None:
                units = min(units, self.bytes[n][d] * FRACTION_UNITS // device.memory)
            free += units
        # Among nodes without devices the fewest free CPUs come first.
        return free, 0 if self.cluster.nodes[n].devices else self.cpus[n]

    def fit(self, request: Request) -> dict[int, Given] | None:
        able = [n for n in range(len(self.cpus)) if self.give_of(n, request) is not None]
        able.sort(key=lambda n: (self.order(n, request), n))
        chosen = {n: found for n in able[: request.nodes] if (found := self.give_of(n, request))}
        return chosen if len(chosen) == request.nodes else None

    def move(self, allocation: Allocation, sign: int) -> None:
        for part in allocation.parts:
            for n in bit_indices(part.nodes):
                self.cpus[n] += sign * part.cpus
                self.memory[n] += sign * part.memory
                for d in part.devices:
                    self.units[n][d] += sign * part.units
                    size = self.cluster.nodes[n].devices[d].memory
                    if size is not None:
                        self.bytes[n][d] += sign * (part.gpu_memory or size * part.units // FRACTION_UNITS)
                        assert 0 <= self.bytes[n][d] <= size


def spelt(allocation: Allocation | None) -> dict[int, Given] | None:
    if allocation is None:
        return None
    return {
        n: (part.cpus, part.devices, part.units) for part in allocation.parts for n in bit_indices(part.nodes)
    }


@settings(deadline=None, max_examples=full(150, 37))
@given(nodes_of, st.lists(st.tuples(requests, st.integers(0, 3)), max_size=25))
def test_agrees_with_a_naive_model(
    rows: list[tuple[int, tuple[str, ...], int | None, int]], steps: list[tuple[Request, int]]
) -> None:
    """Fits, counts, takes and gives in any order; and everything given back leaves the whole."""
    cluster = cluster_of(rows)
    free, naive = FreeCapacity(Layout(cluster)), Naive(cluster)
    whole = set(free.iterate_state_masks())
    held: list[Allocation] = []
    for request, choice in steps:
        able = [n for n in range(len(rows)) if naive.give_of(n, request) is not None]
        assert free.count(request) == len(able)
        found = free.fit(request)
        assert spelt(found) == naive.fit(request)
        if choice == 0 and held:
            given = held.pop(len(held) // 2)
            free.give(given)
            naive.move(given, +1)
        elif found is not None:
            before = free.copy()
            free.take(found)
            naive.move(found, -1)
            held.append(found)
            assert before.fit(request) == found, "a copy is independent"
    for allocation in held:
        free.give(allocation)
    assert set(free.iterate_state_masks()) == whole


@settings(deadline=None, max_examples=full(80, 20))
@given(nodes_of, st.lists(requests, max_size=12), st.lists(requests, max_size=12), requests)
def test_meet_keeps_what_both_have(
    rows: list[tuple[int, tuple[str, ...], int | None, int]],
    one: list[Request],
    other: list[Request],
    asked: Request,
) -> None:
    cluster = cluster_of(rows)
    layout = Layout(cluster)
    frees, naives = [], []
    for taken in (one, other):
        free, naive = FreeCapacity(layout), Naive(cluster)
        for request in taken:
            found = free.fit(request)
            if found is not None:
                free.take(found)
                naive.move(found, -1)
        frees.append(free)
        naives.append(naive)
    met = meet(layout, *frees)
    a, b = naives
    for n in range(len(rows)):
        a.cpus[n] = min(a.cpus[n], b.cpus[n])
        a.memory[n] = min(a.memory[n], b.memory[n])
        a.units[n] = [min(pair) for pair in zip(a.units[n], b.units[n], strict=True)]
        a.bytes[n] = [min(pair) for pair in zip(a.bytes[n], b.bytes[n], strict=True)]
    assert spelt(met.fit(asked)) == a.fit(asked)


def test_placement_rules() -> None:
    """Pack: fewest free devices first; spread: most, then most free CPUs; first: lowest index."""
    gpus = [("gpu0",), ("gpu0", "gpu1")]
    nodes = [
        Node(f"n{i}", (0,), tuple(Device("gpu", "", d) for d in range(len(names))))
        for i, names in enumerate([gpus[1], gpus[0], gpus[1]])
    ]
    request = Request(1, 0, (("gpu", 1),))
    chosen = {}
    for placement in ("pack", "spread", "first"):
        found = FreeCapacity(Layout(Cluster(tuple(nodes)), placement)).fit(request)  # type: ignore[arg-type]
        assert found is not None
        chosen[placement] = found.nodes
    assert chosen == {"pack": [1], "spread": [0], "first": [0]}


def test_spread_goes_by_free_cpus_where_devices_are_even() -> None:
    free = FreeCapacity(Layout(Cluster.parse("3x4cpu"), "spread"))
    taken = []
    for _ in range(4):
        found = free.fit(Request(1, 1))
        assert found is not None
        free.take(found)
        taken += found.nodes
    assert taken == [0, 1, 2, 0]


def test_refuses_what_is_not_there() -> None:
    free = FreeCapacity(Layout(Cluster.uniform(2, 2, 1)))
    request = Request(2, 2)
    both = Allocation(request, (Part(0b11, 2),))
    free.take(both)
    with pytest.raises(ValueError, match="not free"):
        free.take(Allocation(Request(1, 1), (Part(0b01, 1),)))
    with pytest.raises(ValueError, match="more than there is"):
        free.give(Allocation(Request(1, 0, (("gpu", 1),)), (Part(0b01, 0, (0,)),)))
    with pytest.raises(ValueError, match="unknown"):
        free.give(Allocation(Request(1, 1), (Part(0b100, 1),)))
    free.give(both)
    mixed = Allocation(Request(2, 1), (Part(0b01, 1), Part(0b10, 5)))
    before = set(free.iterate_state_masks())
    with pytest.raises(ValueError, match="not free"):
        free.take(mixed)
    assert set(free.iterate_state_masks()) == before, "nothing changes when a part is not free"


def test_nodes_are_lost_and_join() -> None:
    free = FreeCapacity(Layout(Cluster.uniform(3, 1)))
    request = Request(1, 1)
    free.remove_node(1)
    assert free.count(request) == 2
    assert free.fit(Request(3, 1)) is None
    free.join(1)
    assert free.count(request) == 3


def test_earliest_counts_equal_releases_together() -> None:
    free = FreeCapacity(Layout(Cluster.uniform(4, 1)))
    held = [Allocation(Request(1, 1), (Part(1 << n, 1),)) for n in range(4)]
    for allocation in held:
        free.take(allocation)
    releases = [(5.0, held[0]), (7.0, held[1]), (7.0, held[2]), (9.0, held[3])]
    assert free.earliest(Request(1, 1), releases, 0.0) == (5.0, held[0])
    found = free.earliest(Request(2, 1), releases, 0.0)
    assert found is not None
    assert found[0] == 7.0
    assert found[1].nodes == [0, 1]
    assert free.earliest(Request(5, 1), releases, 0.0) is None


def test_whole_nodes() -> None:
    alike = FreeCapacity(Layout(Cluster.uniform(3, 4)))
    assert alike.takes_whole_nodes(Request())
    assert alike.takes_whole_nodes(Request(2, 4))
    assert not alike.takes_whole_nodes(Request(1, 3))
    assert not FreeCapacity(Layout(Cluster.uniform(3, 4, 1))).takes_whole_nodes(Request())
