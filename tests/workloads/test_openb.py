"""The openb reader: pods with shares of GPUs, memory and models, and nodes."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster, Request
from dovetail.workloads.tables import read_openb, read_openb_nodes

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
NODES = (
    "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,96500,393216,2,T4\nn2,96000,393216,8,V100M32\n"
)
MIB = 2**20


def table(tmp_path, *lines):
    path = tmp_path / "pods.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text(NODES)
    return read_openb_nodes(path)


def test_the_mapping(tmp_path, nodes):
    path = table(
        tmp_path,
        "a,12000,16384,1,1000,,LS,Running,10,500,40",
        "b,6500,128,1,460,V100M32|T4|T4,BE,Running,0,100,0",
        "c,500,10,0,0,,BE,Pending,20,90,",
        "d,0,10,8,1000,T4,BE,Running,30,90,30",
        "e,1000,10,0,0,,BE,Running,30,,30",
        "f,97000,10,0,0,,BE,Running,30,40,30",
    )
    workload = read_openb(path, nodes)
    by_id = {job.id: job for job in workload.jobs}
    assert [job.id for job in workload.jobs] == ["b", "a", "c"]
    assert by_id["a"].submit_time == 10.0  # from the file's own zero
    assert by_id["a"].choices[0].request == Request(1, 12, (("gpu", 1.0),), 16384 * MIB)
    assert by_id["b"].choices[0].request == Request(1, 7, (("gpu", 0.46),), 128 * MIB, ("T4", "V100M32"))
    assert by_id["c"].choices[0].request == Request(1, 1, (), 10 * MIB)
    assert workload.truth.fixed == {"a": 460.0, "b": 100.0, "c": 70.0}
    assert by_id["b"].queue == "BE"
    assert {r.id: r.reason for r in workload.rejected} == {
        "d": "requests 1 node with 8 gpu and model T4 and 10485760 bytes; the machine has 0 such",
        "e": "unknown length",
        "f": "requests 1 node with 97 cpu and 10485760 bytes; the machine has 0 such",
    }


def test_models_count_only_where_the_cluster_names_its_own(tmp_path, nodes):
    path = table(tmp_path, "a,1000,10,1,1000,G2,LS,Running,0,5,0")
    assert read_openb(path).jobs[0].choices[0].request.models == ("G2",)
    assert read_openb(path, Cluster.uniform(1, 8, 1)).jobs[0].choices[0].request.models == ()
    assert [r.id for r in read_openb(path, nodes).rejected] == ["a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,1000,10,1,0,,LS,Running,0,5,0", "gpu_milli: found '0', expected 1 to 1000"),
        ("a,1000,10,1,1001,,LS,Running,0,5,0", "gpu_milli"),
        ("a,-1,10,1,1000,,LS,Running,0,5,0", "cpu_milli"),
        ("a,1000,lots,1,1000,,LS,Running,0,5,0", "memory_mib"),
        ("a,1000,10,1,1000,,LS,Running,,5,0", "creation_time: found '', expected a number"),
    ],
)
def test_a_malformed_line_is_one_sentence(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        read_openb(table(tmp_path, line))


def test_the_node_list(nodes, tmp_path):
    assert [(n.cpus, n.memory, [d.name for d in n.devices]) for n in nodes.nodes[:2]] == [
        (32, 262144 * MIB, []),
        (96, 393216 * MIB, ["gpu0", "gpu1"]),
    ]
    assert {d.model for n in nodes.nodes for d in n.devices} == {"T4", "V100M32"}
    path = tmp_path / "bad.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,2,\n")
    with pytest.raises(InputError, match="line 2: model: found '', expected the model of the node's GPUs"):
        read_openb_nodes(path)


@needs_traces
def test_the_sample():
    cluster = read_openb_nodes(TRACES / "openb_node_list_all_node.csv")
    assert (len(cluster), cluster.total_devices) == (1523, 6212)
    assert sum(bool(n.devices) for n in cluster.nodes) == 1213
    workload = read_openb(TRACES / "openb_pod_list_gpuspec33.first5000.csv.gz", cluster)
    assert (len(workload.jobs), [r.id for r in workload.rejected]) == (4999, ["openb-pod-1639"])
    assert statistics.median(workload.truth.fixed.values()) == 563
    requests = [job.choices[0].request for job in workload.jobs]
    assert round(100 * sum(not r.devices for r in requests) / 5000) == 15
    assert round(100 * sum(0 < r.gpus < 1 for r in requests) / 5000) == 37
    assert round(100 * sum(bool(r.models) for r in requests) / 5000) in (28, 29)
