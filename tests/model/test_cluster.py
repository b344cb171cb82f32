"""Clusters: what they tell of themselves is the same however their nodes are kept."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import CPU, Cluster, Device, DeviceClass, Node, NodeGroup, cluster
from dovetail.model.node import Nodes, Numbered

NODES = [
    Node("", (0, 1)),
    Node("", (0, 1), (Device("gpu", "t4", 0), Device("gpu", "a100", 1)), 10**9, 1),
    Node("", (), (Device("opencl", "", 0),)),
    Node("", (3,), cpu_model="old"),
]
shapes = st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 3)), max_size=6)


@settings(deadline=None, derandomize=True)
@given(shapes)
def test_a_large_cluster_is_what_the_same_small_one_is(parts):
    groups = [(node, [f"m{i}-{n}" for n in range(count)]) for i, (node, count) in enumerate(parts)]
    small = Cluster.of(groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "MADE_AT_ONCE", -1)
        large = Cluster.of(groups)
    assert isinstance(small.nodes, tuple)
    assert isinstance(large.nodes, Nodes)
    assert large.nodes == small.nodes
    assert tuple(large.nodes[i] for i in range(len(large))) == small.nodes
    assert large.nodes[1:3] == small.nodes[1:3]
    assert tuple(large.units) == tuple(small.units)
    assert large.units[-2:] == small.units[-2:]
    for name in ("classes", "total_cpus", "total_devices"):
        assert getattr(large, name) == getattr(small, name)
    for kind in (CPU, "gpu", "opencl", "cpu+gpu", "tpu"):
        assert large.device_classes(kind) == small.device_classes(kind)
    assert sum(group.count for group in small.groups) == len(small)
    assert [small.nodes[group.first] for group in small.groups] == [group.node for group in small.groups]
    assert all(small.nodes[g.first + i].like(g.node) for g in small.groups for i in range(g.count))
    assert tuple(pickle.loads(pickle.dumps(large)).units) == tuple(small.units)


def test_beyond_the_last_node_and_unit():
    large = Nodes([(NODES[0], Numbered("n", 3))])
    assert large[-1].name == "n2"
    units = cluster.Units(large, large.groups)
    for sequence in (large, units, Numbered("n", 3)):
        with pytest.raises(IndexError):
            sequence[3]


def test_a_million_nodes_cost_what_their_shape_costs():
    assert len(Cluster.parse("1x1cpu").units) == 1  # imports what it needs
    tracemalloc.start()
    found = Cluster.parse("1000000x64cpu+8gpu")
    assert found.total_cpus == 64_000_000
    assert found.total_devices == 8_000_000
    assert found.groups == (NodeGroup(found.nodes[0], 0, 1_000_000),)
    assert found.classes == (DeviceClass(CPU), DeviceClass("gpu"))
    assert found.device_classes("cpu+gpu") == (DeviceClass("cpu+gpu"),)
    assert len(found.units) == 9_000_000
    assert found.units[-1].name == "n999999/gpu7"
    assert found.units[9 * 777_777].name == "n777777/cpu"
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
