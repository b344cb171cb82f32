"""Schedules as SWF logs."""

from __future__ import annotations

from dovetail.model import Allocation, Cluster, Part, Record, Request, Result, State
from dovetail.report.swf_writer import to_swf, write_swf
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.swf_arrays import read_swf_arrays


def test_a_schedule_is_a_log(tmp_path):
    builder = TraceBuilder("w", None, app="app")
    builder.add("7", 0, 1, Request(3, 2), walltime=60, user="4", group="5", queue="6")
    builder.add("9", 1, 1, gpu_request(1, 2), user="4")
    builder.add("11", 2, 1, Request(1, 1))
    first, second, third = builder.build_workload().jobs
    result = Result(
        "easy",
        "w",
        Cluster.uniform(4, 2, 2),
        [
            Record(
                first,
                State.COMPLETED,
                None,
                Allocation(first.choices[0].request, (Part(0b111, 2),)),
                5.0,
                12.5,
            ),
            Record(
                second,
                State.TIMEOUT,
                None,
                Allocation(second.choices[0].request, (Part(1, 0, (0, 1)),)),
                3.0,
                4.0,
            ),
            Record(third, State.CANCELLED, end=9.0),
        ],
    )
    lines = [line for line in to_swf(result).splitlines() if not line.startswith(";")]
    assert lines == [
        "7 0 5 7.5 6 -1 -1 -1 60 -1 1 4 5 -1 6 -1 -1 -1",
        "9 1 2 1 2 -1 -1 -1 -1 -1 0 4 -1 -1 -1 -1 -1 -1",
        "11 2 -1 -1 -1 -1 -1 -1 -1 -1 5 -1 -1 -1 -1 -1 -1 -1",
    ]
    write_swf(result, tmp_path / "s.swf.gz")
    arrays = read_swf_arrays(tmp_path / "s.swf.gz")
    assert arrays.processors.tolist() == [6, 2, 0]
    assert arrays.header["MaxProcs"] == "8"
