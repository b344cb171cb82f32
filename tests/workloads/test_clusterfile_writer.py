"""Clusters written as cluster files and read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import Cluster, Device, Node
from dovetail.model.cluster_file import cluster_as_toml
from dovetail.model.node import NVLINK, SWITCH
from dovetail.testing.builders import full
from dovetail.workloads.tables import read_node_list

NODES = "sn,cpu_milli,memory_mib,gpu,model\nb-01,32000,1024,0,\nb-02,32000,1024,0,\nb-03,64000,2048,2,T4\n"


def read_back(cluster, tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(cluster_as_toml(cluster), encoding="utf-8")
    return Cluster.parse(str(path))


@st.composite
def node(draw, name):
    cpus = draw(st.integers(1, 4))
    start = draw(st.integers(0, 2))
    cores = tuple(range(start, start + cpus))
    local: dict[str, int] = {}
    devices = []
    for kind, model in draw(
        st.lists(st.tuples(st.sampled_from(["gpu", "opencl"]), st.sampled_from(["", "T4", 'q"'])), max_size=3)
    ):
        devices.append(Device(kind, model, local.get(kind, 0)))
        local[kind] = local.get(kind, 0) + 1
    memory = draw(st.sampled_from([None, 10**9]))
    return Node(name, cores, tuple(devices), memory, draw(st.integers(0, 1)))


@settings(deadline=None, max_examples=full(60, 20), derandomize=True)
@given(data=st.data(), names=st.lists(st.sampled_from([f"n{i}" for i in range(12)]), min_size=1, unique=True))
def test_the_same_nodes_in_the_same_order(data, names, tmp_path_factory):
    cluster = Cluster(tuple(data.draw(node(name)) for name in names), "drawn")
    assert read_back(cluster, tmp_path_factory.mktemp("c")).nodes == cluster.nodes


def test_a_node_list(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    cluster = read_node_list(path)
    assert read_back(cluster, tmp_path).nodes == cluster.nodes
    assert cluster_as_toml(cluster).count("[[node]]") == 2


def test_names_that_make_no_short_hostlist(tmp_path):
    cluster = Cluster(tuple(Node(f"m{i * i}", (0,)) for i in range(200)))
    assert read_back(cluster, tmp_path).nodes == cluster.nodes


def test_devices_that_have_cores_of_their_own(tmp_path):
    devices = (Device("opencl", "pocl", 0, (1,)), Device("opencl", "pocl", 1, (2,)))
    cluster = Cluster((Node("a", (0, 3), devices),))
    assert read_back(cluster, tmp_path).nodes == cluster.nodes


def test_devices_that_are_close_to_each_other_and_to_cores(tmp_path):
    """Links that make no whole groups too: 0 with 1 and 2, and these not with each other."""
    links = (((1, NVLINK), (2, NVLINK), (3, SWITCH)), ((0, NVLINK),), ((0, NVLINK),), ((0, SWITCH),))
    nears = ((0, 1), (0, 1), (2,), ())
    devices = tuple(
        Device("gpu", "T4", d, near=near, links=joined)
        for d, (near, joined) in enumerate(zip(nears, links, strict=True))
    )
    whole = tuple(
        Device("gpu", "", d, links=tuple((e, NVLINK) for e in range(8) if e != d)) for d in range(8)
    )
    cluster = Cluster((Node("a", (0, 1, 2), devices), Node("b", (0,), whole)))
    assert read_back(cluster, tmp_path).nodes == cluster.nodes
    assert 'nvlink = ["gpu[0-7]"]' in cluster_as_toml(cluster)


def test_no_nodes():
    with pytest.raises(InputError, match="found no node"):
        cluster_as_toml(Cluster(()))
