"""The AAIC reader and its node list."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model import HOST_CPUS, Cluster, Request
from dovetail.workloads.tables import read_aaic, read_aaic_nodes

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

HEADER = (
    "id, user, group, queue, nodes, gpus, walltime_req, termcode, "
    "time_submit, time_start, time_end, waittime, walltime\n"
)


def table(tmp_path, *lines):
    path = tmp_path / "aaic.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def test_the_mapping(tmp_path):
    path = table(
        tmp_path,
        "4, 2, 1, 3, 2, 8, 600, 0, 1500, 1510, 1530, 10, 20",
        "5, 7, 0, 0, 1, 3, -1, 1, 1000, 1000, 1005, 0, 5",
        "6, 7, 0, 0, 9, 8, 60, 1, 1100, 1100, 1105, 0, 5",
        "8, 7, 0, 0, 1, 8, 60, 1, 1100, 1100, 1099, 0, -1",
    )
    workload = read_aaic(path, Cluster.uniform(4, 20, 8))
    first, second = workload.jobs
    assert (first.id, first.submit_time, first.walltime, first.index) == ("5", 0.0, None, 1)
    assert (second.id, second.submit_time, second.walltime) == (
        "4",
        500.0,
        600.0,
    )  # from the first submission
    assert (second.user, second.group, second.queue, second.nodes) == ("2", "1", "3", 2)
    assert second.choices[0].request == Request(2, HOST_CPUS, (("gpu", 8),))
    assert second.app.implementations[0].kind == "gpu"
    assert workload.truth.fixed == {"4": 20.0, "5": 5.0}
    assert [(r.id, r.reason) for r in workload.rejected] == [
        ("6", "requests 9 nodes with 8 gpu; the machine has 4 such"),
        ("8", "negative run time (-1)"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1, 2, 3", r"line 2: found 3 fields \('1, 2, 3'\), expected 13"),
        ("1, 2, 3, 0, x, 8, 1, 0, 1, 1, 1, 1, 1", "line 2: nodes: found 'x', expected a number"),
        ("1, 2, 3, 0, 1, 1.5, 1, 0, 1, 1, 1, 1, 1", "gpus: found '1.5', expected a whole number"),
        ("1, 2, 3, 0, 1, -1, 1, 0, 1, 1, 1, 1, 1", "gpus: found '-1', expected a number of at least 0"),
        ("1, 2, 3, 0, 1, 1, 1, 0, nan, 1, 1, 1, 1", "time_submit"),
        ("1, 2, 3, 0, 1, 1, 1, 0, 1, 1, 1, 1,", "walltime: found '', expected a number"),
        (", 2, 3, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1", "id: found '', expected a job id"),
        ("1, 2, 3, 0, 1_0, 1, 1, 0, 1, 1, 1, 1, 1", "nodes: found '1_0', expected a number"),
        ("1, 2, 3, 0, \u0661, 1, 1, 0, 1, 1, 1, 1, 1", r"nodes: found '\\u0661', expected a number"),
    ],
)
def test_a_malformed_line_is_one_sentence_or_counted(tmp_path, line, message):
    path = table(tmp_path, line, "9, 2, 3, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1")
    with pytest.raises(InputError, match=message):
        read_aaic(path)
    lenient = read_aaic(path, lenient=True)
    assert ([job.id for job in lenient.jobs], lenient.skipped) == (["9"], 1)


def test_a_wrong_table_is_one_sentence(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"line 1: found the columns 'a, b', expected also id, user"):
        read_aaic(path)
    path.write_text("")
    with pytest.raises(InputError, match="the file is empty"):
        read_aaic(path)
    path.write_text(HEADER)
    with pytest.raises(InputError, match="holds a header and no line"):
        read_aaic(path)
    path.write_text(HEADER.replace("user", "id"))
    with pytest.raises(InputError, match="expected also user"):
        read_aaic(path)


def test_the_node_list(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("node_id,cpu_cores,gpus,memory_gib,ssd_gb\na1,20,8,256,480\na2,20,0,128,480\n")
    cluster = read_aaic_nodes(path)
    assert [(n.name, n.cpus, len(n.devices), n.memory) for n in cluster.nodes] == [
        ("a1", 20, 8, 256 * 2**30),
        ("a2", 20, 0, 128 * 2**30),
    ]


@needs_traces
def test_the_sample():
    cluster = read_aaic_nodes(TRACES / "aaic_nodes.csv")
    assert (len(cluster), cluster.total_devices, cluster.total_cpus) == (50, 400, 1000)
    workload = read_aaic(TRACES / "aaicwl-2017Q3.csv.gz", cluster)
    assert (len(workload.jobs), len(workload.rejected), workload.skipped) == (13_712, 0, 0)
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    work = sum(j.nodes * j.choices[0].request.gpus * workload.truth.fixed[j.id] for j in workload.jobs)
    assert round(span / 86400, 1) == 78.4
    assert round(work / 320 / span, 2) == 0.41
    assert len({j.user for j in workload.jobs}) == 39
    assert len({j.group for j in workload.jobs}) == 14
