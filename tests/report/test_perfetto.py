"""Traces for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import Allocation, Cluster, Donor, Part, Record, Request, Result, State
from dovetail.report.perfetto import to_perfetto, trace_events, write_perfetto
from dovetail.testing.builders import full
from dovetail.workloads.builder import TraceBuilder, gpu_request


def job(name, submit, request):
    builder = TraceBuilder("w", None, app="app")
    builder.add(name, submit, 1.0, request, user="ann", walltime=30)
    return builder.build_workload().jobs[0]


def record(name, submit, start, end, request, *parts, **allocated):
    return Record(
        job(name, submit, request), State.COMPLETED, None, Allocation(request, parts, **allocated), start, end
    )


def events(cluster, *records):
    return list(trace_events(Result("easy", "w", cluster, records)))


def test_slices_lie_on_the_units_that_a_job_holds():
    cluster = Cluster.uniform(2, 4, 2)
    found = events(
        cluster,
        record("a", 0.5, 1.0, 3.5, Request(2, 4), Part(0b11, 4)),
        record("b", 0, 4.0, 5.0, gpu_request(1, 1), Part(0b10, 0, (1,))),
        record(
            "c", 0, 6.0, 7.0, gpu_request(1, 1), Part(0b10, 2), cores={1: (0, 1)}, donors=(Donor(1, 0, 0),)
        ),
    )
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    nodes = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    slices = [
        (e["name"], nodes[e["pid"]], names[e["pid"], e["tid"]], e["ts"], e["dur"])
        for e in found
        if e["ph"] == "X"
    ]
    assert slices == [
        ("a", "n0", "cpu", 1e6, 2.5e6),
        ("a", "n1", "cpu", 1e6, 2.5e6),
        ("b", "n1", "gpu1", 4e6, 1e6),
        ("c", "n1", "cpu", 6e6, 1e6),
        ("c", "n0", "gpu0", 6e6, 1e6),
    ]
    details = next(e for e in found if e["ph"] == "X")["args"]
    assert (details["wait"], details["user"], details["walltime"], details["nodes"]) == (0.5, "ann", 30, 2)


def test_jobs_side_by_side_get_threads_of_their_own():
    request = Request(1, 1)
    found = events(
        Cluster.uniform(1, 4),
        *(
            record(str(i), 0, start, end, request, Part(1, 1))
            for i, (start, end) in enumerate([(0, 9), (1, 3), (3, 5)])
        ),
    )
    threads = {e["name"]: e["tid"] for e in found if e["ph"] == "X"}
    assert threads["0"] != threads["1"] == threads["2"]
    assert {e["args"]["name"] for e in found if e["name"] == "thread_name"} == {"cpu", "cpu (2)"}


def test_counters_follow_the_queue():
    request = Request(1, 1)
    waiting = Record(job("w", 2, request))
    cancelled = Record(job("x", 2, request), State.CANCELLED, end=4.0)
    found = events(Cluster.uniform(1, 1), record("a", 0, 1, 3, request, Part(1, 1)), waiting, cancelled)
    counters = [(e["ts"] / 1e6, e["args"]["waiting"], e["args"]["running"]) for e in found if e["ph"] == "C"]
    assert counters == [(0, 1, 0), (1, 0, 1), (2, 2, 1), (3, 2, 0), (4, 1, 0)]


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(1, 7)), max_size=10)


@settings(deadline=None, max_examples=full(60, 20), derandomize=True)
@given(spans=spans)
def test_slices_of_one_thread_never_overlap(spans):
    records = [
        record(str(i), 0, float(start), float(start + length), Request(mask.bit_count(), 1), Part(mask, 1))
        for i, (start, length, mask) in enumerate(spans)
    ]
    text = to_perfetto(Result("easy", "w", Cluster.uniform(3, 64), records))
    found = json.loads(text)["traceEvents"]
    threads = {}
    for event in found:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for slices in threads.values():
        assert all(a[1] <= b[0] for a, b in pairwise(slices))
    assert sum(len(s) for s in threads.values()) == sum(mask.bit_count() for _, _, mask in spans)


def test_writing_to_a_file(tmp_path):
    write_perfetto(Result("easy", "w", Cluster.uniform(1, 1), ()), tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["otherData"]["policy"] == "easy"
