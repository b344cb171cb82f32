"""The Philly reader and its machine list."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, Cluster, Request
from dovetail.workloads.tables import philly_request, read_philly, read_philly_machines

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def table(tmp_path, *lines):
    path = tmp_path / "philly.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("gpus", "nodes", "each"),
    [(1, 1, 1), (8, 1, 8), (9, 2, 5), (12, 2, 6), (16, 2, 8), (20, 3, 7), (32, 4, 8)],
)
def test_gpus_spread_over_as_few_nodes_as_hold_them(gpus, nodes, each):
    assert philly_request(gpus) == Request(nodes, HOST_CPUS, (("gpu", each),))


def test_the_mapping(tmp_path):
    path = table(
        tmp_path,
        "2017-10-02 00:01:55,108.5,1,108.5,11cb48",
        "2017-10-02 00:11:55,74.0,16,1184,ee9e8c",
        "2017-10-02 00:12:00,74.0,0,0,ee9e8c",
        "2017-10-02 00:12:00,-1,1,0,ee9e8c",
        "2017-10-02 00:12:00,5,32,0,ee9e8c",
    )
    workload = read_philly(path, Cluster.uniform(2, 20, 8))
    assert [(j.id, j.submit_time, j.nodes, j.queue) for j in workload.jobs] == [
        ("job-1", 0.0, 1, "11cb48"),
        ("job-2", 600.0, 2, "ee9e8c"),
    ]
    assert workload.jobs[0].walltime is None
    assert workload.jobs[0].user is None
    assert workload.truth.fixed == {"job-1": 108.5, "job-2": 74.0}
    assert [r.id for r in workload.rejected] == ["job-3", "job-4", "job-5"]
    assert workload.rejected[0].reason == "requests no CPU and no device"
    on_four = read_philly(path, Cluster.uniform(8, 20, 4), gpus_per_node=4)
    assert [j.nodes for j in on_four.jobs] == [1, 4, 8]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("yesterday,1,1,1,a", "line 2: timestamp: found 'yesterday', expected a moment such as"),
        ("2017-13-02 00:01:55,1,1,1,a", "timestamp"),
        ("2017-10-02 00:01:55,1,1.5,1,a", "num_gpus: found '1.5', expected a whole number"),
        ("2017-10-02 00:01:55,inf,1,1,a", r"duration: found 'inf', expected a finite number below 2\^53"),
        ('"2017-10-02 00:01:55,1,1,1,a', "line 2"),
    ],
)
def test_a_malformed_line_is_one_sentence(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        read_philly(table(tmp_path, line))


def test_gpus_per_node_must_be_positive(tmp_path):
    with pytest.raises(InputError, match="gpus_per_node: found 0, expected at least 1"):
        read_philly(table(tmp_path, "2017-10-02 00:01:55,1,1,1,a"), gpus_per_node=0)


@needs_traces
def test_the_sample():
    machines = read_philly_machines(TRACES / "philly_machines.csv")
    assert len(machines) == 552
    workload = read_philly(TRACES / "philly_jobs_2017-10-02_2017-10-08.csv.gz", Cluster.uniform(80, 1, 8))
    assert (len(workload.jobs), len(workload.rejected)) == (11_386, 0)
    span = workload.jobs[-1].submit_time
    work = sum(j.nodes * j.choices[0].request.gpus * workload.truth.fixed[j.id] for j in workload.jobs)
    assert round(span / 86400, 1) == 7.0
    assert round(work / span) == 573
    assert statistics.median(workload.truth.fixed.values()) == 2322
    assert len({j.queue for j in workload.jobs}) == 11
