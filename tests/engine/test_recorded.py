"""The schedule as a log tells it: starts, ends, what is free, and by how much it exceeds the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import InputError
from dovetail.model import Cluster, State
from dovetail.report.metrics import final_metrics
from dovetail.simulation.recorded import replay_log
from dovetail.workloads.load import load_workload
from dovetail.workloads.swf import swf_workload
from dovetail.workloads.swf_arrays import parse_swf

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")


def log(*rows):
    """(submit, wait, run, processors) of each job."""
    rest = "-1 -1 1 1 1 1 1 1 -1 -1"
    lines = [f"{i} {s} {w} {r} {p} -1 -1 {p} {rest}" for i, (s, w, r, p) in enumerate(rows, 1)]
    return "\n".join(lines).encode()


def result(nodes, *rows):
    cluster = Cluster.uniform(nodes, 1)
    return replay_log(swf_workload(parse_swf(log(*rows), "w.swf"), cluster, name="w.swf"), cluster)


def test_the_schedule_is_the_logs():
    found = result(4, (0, 5, 10, 2), (1, 0, 3, 2), (2, 20, 4, 4))
    assert [(r.job.id, r.start, r.end, r.state) for r in found.records] == [
        ("1", 5.0, 15.0, State.COMPLETED),
        ("2", 1.0, 4.0, State.COMPLETED),
        ("3", 22.0, 26.0, State.COMPLETED),
    ]
    metrics = final_metrics(found)
    assert metrics["mean_wait"] == (5 + 0 + 20) / 3
    assert metrics["utilisation"] == (20 + 6 + 16) / (4 * 26)
    assert metrics["anl"] == 0
    assert metrics["decision_seconds_mean"] is None
    assert found.notes == []


def test_what_the_log_holds_beyond_the_machine_is_told():
    found = result(4, (0, 0, 10, 3), (0, 4, 10, 3), (0, 6, 2, 4))
    assert found.notes == ["The log holds more CPUs than the 4 of the machine, for 6 s in all, by up to 6."]
    assert [r.allocation.mask.bit_count() for r in found.records] == [3, 3, 4]


def test_jobs_whose_start_is_not_told_are_left_out():
    found = result(4, (0, -1, 10, 1), (3, 0, 10, 1))
    assert [(r.job.id, r.state) for r in found.records] == [("1", State.PENDING), ("2", State.COMPLETED)]
    assert found.notes == ["The log does not give the time at which 1 job started: it is left out."]
    with pytest.raises(InputError, match=r"w\.swf: has no start of any job, expected"):
        result(4, (0, -1, 10, 1))


job = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 9), st.integers(1, 4))


@settings(deadline=None, derandomize=True)
@given(st.lists(job, min_size=1, max_size=20))
def test_nodes_are_shared_only_where_there_are_none_left(rows):
    found = result(4, *rows)
    moments = {moment for r in found.records for moment in (r.start, r.end)}
    excess = seconds = 0
    for moment in range(60):
        there = [r for r in found.records if r.start <= moment < r.end]
        used = sum(r.allocation.mask.bit_count() for r in there)
        apart = sum(r.allocation.mask for r in there).bit_count() == used
        assert apart or any(
            sum(r.allocation.mask.bit_count() for r in found.records if r.start <= m < r.end) > 4
            for m in moments
            if m <= moment
        )
        excess, seconds = max(excess, used - 4), seconds + (used > 4)
    told = [f"The log holds more CPUs than the 4 of the machine, for {seconds} s in all, by up to {excess}."]
    assert found.notes == (told if seconds and seconds < 120 else [])


@needs_traces
@pytest.mark.parametrize(
    ("name", "cluster", "started"),
    [
        ("kth-sp2-1996-2.1-cln.first8000.swf.gz", None, 8000),
        ("aaicwl-2017Q3.csv.gz", "50x20cpu+8gpu", 13712),
        ("eagle_jobs_sample1000.csv.gz", "2604x36cpu+2gpu", None),
        ("openb_pod_list_gpuspec33.first5000.csv.gz", "1523x96cpu+8gpu", None),
    ],
)
def test_logs_of_several_formats(name, cluster, started):
    machine = None if cluster is None else Cluster.parse(cluster)
    workload = load_workload(TRACES / name, machine)
    report = dovetail.simulate(workload, cluster=machine or workload.machine, policy="recorded")
    there = [job for job in report.jobs if job["start"] is not None]
    assert len(there) == (started or len(there)) > 900
    assert all(job["start"] >= job["submit"] for job in there)


def test_beside_policies(tmp_path):
    path = tmp_path / "log.swf"
    path.write_bytes(b"; MaxProcs: 4\n" + log((0, 0, 10, 4), (0, 30, 10, 4), (0, 10, 20, 1)))
    found = dovetail.compare(path, "recorded,fcfs", reference="recorded", replicates=1)
    assert [report.makespan for report in found] == [40.0, 40.0]
    assert [form["later_than"]["jobs"] for form in found.to_json()] == [{}, {"3": 10.0}]
    assert found.to_json()[0]["knowledge"] == "recorded"
    with pytest.raises(InputError, match=r"recorded: found load 0\.5, expected none"):
        dovetail.compare(path, "recorded,fcfs", loads=[0.5])
