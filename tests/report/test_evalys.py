"""The CSV in the columns of the evalys tools."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import (
    FRACTION_UNITS,
    Allocation,
    Cluster,
    Device,
    Donor,
    Node,
    Part,
    Record,
    Rejected,
    Request,
    Result,
    State,
    bit_indices,
)
from dovetail.report.evalys_csv import COLUMNS, ResourceNumbers, to_evalys_csv, write_csv
from dovetail.workloads.builder import TraceBuilder, gpu_request

CONTRACT = (
    "job_id, workload_name, profile, submission_time, requested_number_of_resources, requested_time, "
    "success, final_state, starting_time, execution_time, finish_time, waiting_time, turnaround_time, "
    "stretch, allocated_resources"
)


def jobs(*requests):
    builder = TraceBuilder("w", None, app="app")
    for i, request in enumerate(requests):
        builder.add(f"j{i}", float(i), 1.0, request, walltime=60 if i else None)
    return builder.build_workload().jobs


def result(cluster, *records):
    return Result("fcfs", "w.swf", cluster, records)


def table(of):
    return list(csv.DictReader(io.StringIO(to_evalys_csv(of))))


def test_the_columns_are_the_contracts():
    assert ", ".join(COLUMNS) == CONTRACT
    assert to_evalys_csv(result(Cluster.uniform(1, 1))) == CONTRACT.replace(" ", "") + "\n"


def test_on_single_cpu_nodes_resources_are_nodes():
    first, second = jobs(Request(3, 1), Request(1, 1))
    cluster = Cluster.uniform(8, 1)
    rows = table(
        result(
            cluster,
            Record(
                first,
                State.COMPLETED,
                first.app.implementations[0],
                Allocation(first.choices[0].request, (Part(0b10110, 1),)),
                4.0,
                14.5,
            ),
            Record(
                second,
                State.TIMEOUT,
                second.app.implementations[0],
                Allocation(second.choices[0].request, (Part(0b1, 1),)),
                1.0,
                61.0,
            ),
        )
    )
    assert rows[0] == {
        "job_id": "j0",
        "workload_name": "w.swf",
        "profile": "app",
        "submission_time": "0",
        "requested_number_of_resources": "3",
        "requested_time": "-1",
        "success": "1",
        "final_state": "COMPLETED_SUCCESSFULLY",
        "starting_time": "4",
        "execution_time": "10.5",
        "finish_time": "14.5",
        "waiting_time": "4",
        "turnaround_time": "14.5",
        "stretch": repr(14.5 / 10.5),
        "allocated_resources": "1-2 4",
    }
    assert (rows[1]["success"], rows[1]["final_state"]) == ("0", "COMPLETED_WALLTIME_REACHED")
    assert (rows[1]["requested_time"], rows[1]["stretch"]) == ("60", "1.0")


def test_cores_and_devices_are_numbered_node_by_node():
    cluster = Cluster.uniform(2, 4, 2)  # resources 0-3 cores, 4-5 GPUs of n0; 6-9, 10-11 of n1
    pool, gpu, remote = jobs(Request(1, 2), gpu_request(1, 0.5), gpu_request(1, 1))
    half = Part(0b10, 0, (1,), FRACTION_UNITS // 2)
    rows = table(
        result(
            cluster,
            Record(
                pool,
                State.COMPLETED,
                None,
                Allocation(pool.choices[0].request, (Part(0b10, 2),), {1: (1, 3)}),
                0.0,
                1.0,
            ),
            Record(gpu, State.FAILED, None, Allocation(gpu.choices[0].request, (half,)), 1.0, 2.0),
            Record(
                remote,
                State.COMPLETED,
                None,
                Allocation(remote.choices[0].request, (Part(0b10, 4),), donors=(Donor(1, 0, 0),)),
                2.0,
                3.0,
            ),
        )
    )
    assert [row["allocated_resources"] for row in rows] == ["7 9", "11", "4 6-9"]
    assert [row["requested_number_of_resources"] for row in rows] == ["2", "1", "5"]


def test_jobs_that_never_started_have_no_times():
    (job,) = jobs(Request(2, 1))
    (row,) = table(result(Cluster.uniform(2, 1), Record(job, State.CANCELLED, end=9.0)))
    assert row["final_state"] == "COMPLETED_KILLED"
    assert row["requested_number_of_resources"] == "2"
    assert [row[c] for c in COLUMNS[8:14]] == ["-1"] * 6
    assert row["allocated_resources"] == ""


def test_zero_lengths():
    (job,) = jobs(Request(1, 1))
    held = Allocation(job.choices[0].request, (Part(1, 1),))
    at_once, later = table(
        result(
            Cluster.uniform(1, 1),
            Record(job, State.COMPLETED, None, held, 0.0, 0.0),
            Record(job, State.COMPLETED, None, held, 5.0, 5.0),
        )
    )
    assert (at_once["stretch"], later["stretch"]) == ("1.0", "inf")


def test_rejected_jobs_have_no_line():
    of = Result("fcfs", "w", Cluster.uniform(1, 1), (), rejected=[Rejected("x", "too large")])
    assert table(of) == []


parts = st.lists(
    st.tuples(st.integers(1, 2**8 - 1), st.integers(0, 3), st.lists(st.integers(0, 1), unique=True)),
    max_size=3,
)


@settings(deadline=None, derandomize=True)
@given(parts, st.sampled_from([None, 0, 5, 7]))
def test_numbers_of_resources_are_counted_node_by_node(given, donor):
    plain, mixed = Node("", (0, 1)), Node("", (4, 5, 6), (Device("gpu", "", 0), Device("gpu", "", 1)))
    cluster = Cluster.of([(plain, ["a", "b", "c"]), (mixed, ["d", "e"]), (plain, ["f", "g", "h"])])
    taken, cores, expected = 0, {}, set()
    firsts = list(accumulate([0, *(len(n.cores) + len(n.devices) for n in cluster.nodes)]))
    held = []
    for mask, cpus, devices in given:
        nodes = [n for n in bit_indices(mask & ~taken) if cpus <= cluster.nodes[n].cpus]
        devices = devices if all(cluster.nodes[n].devices for n in nodes) else []
        mask = sum(1 << n for n in nodes)
        taken |= mask
        if mask:
            held.append(Part(mask, cpus, tuple(devices)))
        for n in nodes:
            if cpus and cpus < cluster.nodes[n].cpus:
                cores[n] = cluster.nodes[n].cores[-cpus:]
            pool = cluster.nodes[n].cpus
            expected |= {firsts[n] + i for i in range(pool - cpus, pool)}
            expected |= {firsts[n] + pool + d for d in devices}
    donors = () if donor is None else (Donor(0, 3, donor % 2),)
    expected |= {firsts[3] + 3 + d.device for d in donors}
    numbers = ResourceNumbers(cluster)
    for _ in range(2):  # what is remembered is what was found
        text, count = numbers.held(Allocation(Request(), tuple(held), cores, donors))
        found = [tuple(map(int, span.split("-"))) for span in text.split()]
        spelt = [i for span in found for i in range(span[0], span[-1] + 1)]
        assert spelt == sorted(expected)
        assert count == len(expected)
        assert all(later[0] > earlier[-1] + 1 for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("id", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-x", "'-x"),
        ("-17", "-17"),
        ("\tx", "'\tx"),
        ("a=1", "a=1"),
        ('a,"b"', 'a,"b"'),
        ("two\nlines", "two\nlines"),
    ],
)
def test_a_name_is_never_a_formula_and_never_breaks_its_row(id, cell):
    (job,) = jobs(Request(1, 1))
    job = replace(job, id=id)
    of = result(Cluster.uniform(1, 1), Record(job, State.PENDING))
    (row,) = table(of)
    assert row["job_id"] == cell
    assert list(row) == list(COLUMNS)


def test_writing_to_a_file(tmp_path):
    of = result(Cluster.uniform(1, 1))
    write_csv(of, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == to_evalys_csv(of)
    with pytest.raises(InputError, match="cannot be written"):
        write_csv(of, tmp_path)
