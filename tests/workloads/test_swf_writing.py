"""Workloads as SWF, and parts of SWF files with their lines as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.testing.builders import full
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.edit import cut_workload, scale_load
from dovetail.workloads.load import load_workload
from dovetail.workloads.swf import swf_request, swf_workload
from dovetail.workloads.swf_arrays import parse_swf
from dovetail.workloads.swf_writer import edited_swf, numbers_for, workload_as_swf
from dovetail.workloads.synthetic import synthesize_workload


def read(text, **options):
    return swf_workload(parse_swf(text.encode(), "f.swf"), **options)


def rows(workload):
    return [
        (
            j.id,
            j.submit_time,
            j.choices[0].request,
            j.walltime,
            j.user,
            j.group,
            j.queue,
            workload.truth.fixed[j.id],
        )
        for j in workload.jobs
    ]


names = st.one_of(st.none(), st.integers(0, 99).map(str))
jobs = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6)),
        st.one_of(st.integers(0, 10**6).map(float), st.floats(0, 1e6)),
        st.integers(1, 40),
        st.one_of(st.none(), st.integers(1, 10**6).map(float)),
        names,
        names,
        names,
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=full(80, 20), derandomize=True)
@given(jobs=jobs, per_node=st.sampled_from([1, 4]))
def test_what_is_written_is_read_back(jobs, per_node):
    builder = TraceBuilder("w", None, app="swf")
    for i, (submit, run, size, walltime, user, group, queue) in enumerate(jobs, start=1):
        request = swf_request(size, per_node)
        builder.add(str(i), submit, run, request, walltime=walltime, user=user, group=group, queue=queue)
    workload = builder.build_workload()
    back = read(workload_as_swf(workload), cpus_per_node=per_node)
    assert rows(back) == rows(workload)
    assert not back.rejected


def test_names_that_are_no_numbers_are_numbered_and_noted():
    assert numbers_for(["7", None, "3"]) == {"7": 7, "3": 3}
    assert numbers_for(["7", "07"]) == {"7": 1, "07": 2}
    builder = TraceBuilder("a\nb", None, app="x")
    builder.add("first", 0, 5, swf_request(1), user="ann")
    builder.add("second", 1, 5, swf_request(2), user="bob")
    text = workload_as_swf(builder.build_workload(), Cluster.uniform(4, 1))
    assert text.splitlines() == [
        "; Version: 2.2",
        "; Note: a b, written by Dovetail",
        "; MaxJobs: 2",
        "; MaxProcs: 4",
        "; Note: user 1 is ann",
        "; Note: user 2 is bob",
        "1 0 -1 5 1 -1 -1 1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1",
        "2 1 -1 5 2 -1 -1 2 -1 -1 -1 2 -1 -1 -1 -1 -1 -1",
    ]


def test_gpus_are_processors_where_all_jobs_use_whole_ones():
    text = workload_as_swf(synthesize_workload("lublin?jobs=50&gpus=1&nodes=8", Cluster.uniform(8, 4, 8)))
    assert "; Note: one processor is one GPU" in text
    assert len(read(text).jobs) == 50


def test_what_swf_cannot_tell_is_refused(tmp_path):
    mixed = TraceBuilder("w", None, app="x")
    mixed.add("a", 0, 5, swf_request(1))
    mixed.add("b", 0, 5, gpu_request(1, 1))
    with pytest.raises(InputError, match="job a: requests 0 GPUs, as other jobs of the workload use GPUs"):
        workload_as_swf(mixed.build_workload())
    shared = TraceBuilder("w", None, app="x")
    shared.add("a", 0, 5, gpu_request(1, 0.5))
    with pytest.raises(InputError, match=r"job a: requests 0\.5 GPUs"):
        workload_as_swf(shared.build_workload())
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "m"\n[[app.implementation]]\nname = "cpu"\ntime = 3\n[[job]]\napp = "m"\n'
    )
    with pytest.raises(InputError, match="job m-1: requests all CPUs of a node, expected a cluster"):
        workload_as_swf(load_workload(path))
    assert " 3 8 " in workload_as_swf(load_workload(path), Cluster.uniform(2, 8))
    with pytest.raises(InputError, match="found several ways of running it"):
        workload_as_swf(load_workload("published:gregg-table2"))


LOG = b"""; Version: 2.2
; MaxProcs: 4
 1   0 7 10  1 1.5 3 -1 20 9 1 1 1 5 2 1 -1 -1
 2  10 7 10  2 1.5 3 -1 20 9 0 1 1 5 2 1 -1 -1
; between
 3  20 7 -1  2 1.5 3 -1 20 9 0 1 1 5 2 1 -1 -1
bad line
 4  30 7 10  2 1.5 3 -1 20 9 5 1 1 5 2 1 -1 -1
"""


def test_a_part_of_a_log_keeps_its_lines():
    workload = swf_workload(parse_swf(LOG, "f.swf", lenient=True))
    lines = edited_swf(LOG, cut_workload(workload, begin=5)).splitlines()
    assert lines == [LOG.splitlines()[i] for i in (0, 1, 3, 4, 7)]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    log = b"\xef\xbb\xbf" + LOG.split(b"4\n", 1)[1]
    workload = swf_workload(parse_swf(log, "f.swf", lenient=True))
    kept = [line.split()[:2] for line in edited_swf(log, workload).splitlines() if line[:1] == b" "]
    assert kept == [[b"1", b"0"], [b"2", b"10"], [b"4", b"30"]]


def test_a_log_with_carriage_returns_gets_line_feeds():
    log = LOG.replace(b"\n", b"\r\n")
    workload = swf_workload(parse_swf(log, "f.swf", lenient=True))
    assert edited_swf(log, workload) == edited_swf(LOG, workload)


def test_nothing_is_written_for_no_job():
    none = swf_workload(parse_swf(b"1 0 7 -1 1" + b" -1" * 13, "f.swf"))
    for write in (lambda: edited_swf(LOG, none), lambda: workload_as_swf(none)):
        with pytest.raises(InputError, match="found no jobs, expected at least one to write"):
            write()


def test_numbers_that_a_reader_would_refuse_are_not_written():
    far = TraceBuilder("w", None, app="x")
    far.add("a", 0, 5, swf_request(1), walltime=2.0**54)
    with pytest.raises(InputError, match=r"job a: found a number of 2\^53 or more"):
        workload_as_swf(far.build_workload())


def test_a_scaled_log_changes_field_two_alone():
    workload = swf_workload(parse_swf(LOG, "f.swf", lenient=True), Cluster.uniform(4, 1))
    scaled = scale_load(workload, 50 / 120 / 2, Cluster.uniform(4, 1))  # half of its load
    lines = [line.split() for line in edited_swf(LOG, scaled).splitlines() if not line.startswith(b";")]
    before = [line.split() for line in LOG.splitlines() if line[:1] == b" " and b" -1  2" not in line]
    assert [line[1] for line in lines] == [b"0", b"20", b"60"]
    assert [line[2:] for line in lines] == [line[2:] for line in before]
