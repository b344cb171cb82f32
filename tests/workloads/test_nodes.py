"""Node lists: what a cluster file could not say is malformed."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.model.cluster_file import cluster_as_toml
from dovetail.workloads.tables import read_node_list

HEADER = "sn,cpu_milli,memory_mib,gpu,model\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,1000,5,0,", "sn: found 'a', expected each node once"),
        (",1000,5,0,", "sn: found '', expected the name of a node"),
        ("b[0-3],1000,5,0,", r"sn: found 'b\[0-3\]', expected the name of a node"),
        ('"b,c",1000,5,0,', "sn: found 'b,c', expected the name of a node"),
        ("b,999,5,0,", "sn: found 'b', expected a node with a CPU or a device"),
        ("b,9007199254740991,5,0,", r"b: CPUs: found 9007199254740, expected at most 1e\+06"),
        ("b,1000,5,20000,X", "b: devices: found 20000, expected at most 10000"),
        ("b,1000,9007199254740991,0,", "b: bytes of memory: found 9444732965739289378816"),
        ("b,1000,5,1,", "model: found '', expected the model of the node's GPUs"),
    ],
)
def test_a_malformed_node_is_one_sentence(tmp_path, line, message):
    path = tmp_path / "nodes.csv"
    path.write_text(f"{HEADER}a,1000,5,0,\n{line}\n")
    with pytest.raises(InputError, match=rf"nodes\.csv: line 3: {message}"):
        read_node_list(path)


def test_what_is_written_of_a_list_is_a_cluster_file(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text(HEADER + "".join(f"n-{i:04},{1000 * (1 + i % 2)},{i},{i % 3},T4\n" for i in range(40)))
    (tmp_path / "c.toml").write_text(cluster_as_toml(read_node_list(path)))
    again = Cluster.parse(str(tmp_path / "c.toml"))
    assert again.nodes == read_node_list(path).nodes
