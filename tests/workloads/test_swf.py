"""The SWF reader: its mapping, its refusals, and that its three ways of parsing agree."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import Cluster, Request
from dovetail.testing.builders import full
from dovetail.workloads import swf_arrays
from dovetail.workloads.swf import read_swf, swf_machine, swf_request
from dovetail.workloads.swf_arrays import parse_swf, read_swf_arrays

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "swf"
TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

GOOD = """; Version: 2.2
; MaxProcs: 8
;
; a line without a colon
7 10 -1 100 4 -1 -1 2 200 -1 1 3 5 -1 2 -1 -1 -1
9 0 -1 0 -1 -1 -1 2 -1 -1 1 -1 -1 12 0 -1 -1 -1

3 5 3 50.5 1 -1 -1 1 60 -1 0 0 0 -1 -1 -1 -1 -1
"""


def line(*, number=1, submit=0, run=1, processors=1, asked=-1, walltime=-1):
    return f"{number} {submit} -1 {run} {processors} -1 -1 {asked} {walltime} -1 1 -1 -1 -1 -1 -1 -1 -1\n"


def write(tmp_path: Path, text: str | bytes, name: str = "t.swf") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_mapping_is_the_contracts(tmp_path):
    workload = read_swf(write(tmp_path, GOOD), Cluster.uniform(8, 1))
    by_id = {job.id: job for job in workload.jobs}
    assert [job.id for job in workload.jobs] == ["9", "3", "7"]  # by submit time
    assert [job.index for job in workload.jobs] == [1, 2, 0]  # place in the file
    assert by_id["7"].choices[0].request == Request(4, 1)  # field 5, not 8
    assert by_id["9"].choices[0].request == Request(2, 1)  # field 8, for field 5 is unknown
    assert (by_id["7"].nodes, by_id["7"].submit_time, by_id["7"].walltime) == (4, 10.0, 200.0)
    assert by_id["9"].walltime is None
    assert (by_id["7"].user, by_id["7"].group, by_id["7"].queue) == ("3", "5", "2")
    assert (by_id["9"].user, by_id["9"].group, by_id["9"].queue) == (None, None, "0")
    assert [job.app.name for job in workload.jobs] == ["swf-12", "swf", "swf"]
    assert workload.truth.fixed == {"7": 100.0, "9": 0.0, "3": 50.5}
    assert not workload.rejected
    assert workload.skipped == 0


def test_jobs_that_cannot_run_are_rejected_and_named(tmp_path):
    text = (
        line(number=1)
        + line(number=2, run=-1)
        + line(number=3, processors=-1)
        + line(number=4, processors=0, asked=0)
        + line(number=5, processors=9)
        + line(number=6, submit=-1)
    )
    workload = read_swf(write(tmp_path, text), Cluster.uniform(8, 1))
    assert [job.id for job in workload.jobs] == ["1"]
    assert {r.id: r.reason for r in workload.rejected} == {
        "2": "negative run time (-1)",
        "3": "requests no processors",
        "4": "requests no processors",
        "5": "requests 9 processors: requests 9 nodes with 1 cpu; the machine has 8 such",
        "6": "negative submit time (-1)",
    }
    assert len(read_swf(write(tmp_path, text)).jobs) == 2  # without a cluster nothing is too large


def test_equal_requests_share_their_objects(tmp_path):
    jobs = read_swf(write(tmp_path, line(number=1) + line(number=2) + line(number=3, processors=2))).jobs
    assert jobs[0].app is jobs[1].app
    assert jobs[0].choices is jobs[1].choices
    assert jobs[0].choices is not jobs[2].choices
    assert jobs[0].choices[0].implementation is jobs[0].app.implementations[0]
    assert not jobs[2].moldable


@pytest.mark.parametrize(
    ("processors", "per_node", "expected"),
    [(4, 1, (4, 1)), (3, 4, (1, 3)), (4, 4, (1, 4)), (5, 4, (2, 4)), (8, 4, (2, 4)), (1, 36, (1, 1))],
)
def test_processors_spread_over_nodes(processors, per_node, expected):
    assert swf_request(processors, per_node) == Request(*expected)


def test_cpus_per_node_decides_what_is_too_large(tmp_path):
    path = write(tmp_path, line(number=1, processors=8) + line(number=2, processors=9))
    workload = read_swf(path, Cluster.uniform(2, 4), cpus_per_node=4)
    assert [(job.id, job.nodes) for job in workload.jobs] == [("1", 2)]
    assert [r.id for r in workload.rejected] == ["2"]
    with pytest.raises(InputError, match="cpus_per_node: found 0, expected at least 1"):
        read_swf(path, cpus_per_node=0)


def test_a_number_used_twice_is_made_unique_in_file_order(tmp_path):
    path = write(tmp_path, line(number=4) + line(number=4, submit=1) + line(number=4, submit=2))
    workload = read_swf(path)
    assert [job.id for job in workload.jobs] == ["4", "4#2", "4#3"]
    assert set(workload.truth.fixed) == {"4", "4#2", "4#3"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", r"t\.swf: line 1: found 3 fields \('1 2 3'\), expected 18 numbers"),
        (line() + line()[:-4] + "\n", r"line 2: found 17 fields"),
        (line() + line().rstrip() + " 5\n", r"line 2: found 19 fields"),
        (line(run="abc"), r"line 1: field 4 \(run time\): found 'abc', expected a number"),
        ("; x\n\n" + line(submit="nan"), r"line 3: field 2 \(submit time\): found 'nan', expected a finite"),
        (line(submit="inf"), "field 2"),
        (line(submit="1_000"), "field 2"),
        (line(submit="--5"), "field 2"),
        (line(submit="5-"), "field 2"),
        (line(submit="-"), "field 2"),
        (line(submit="1e300"), r"field 2 .*below 2\^53"),
        (line(submit="99999999999999999999"), "field 2"),
        (line(processors="1.5"), r"field 5 \(allocated processors\): found '1.5', expected a whole number"),
        ("", "holds no job line; expected lines of 18 numbers"),
        ("; Version: 2\n;\n", "holds no job line"),
        ("\x00\x01", "found binary data at byte 0, expected SWF text"),
        ("é" * 200, "expected 18 numbers"),
    ],
)
def test_a_malformed_file_is_one_sentence(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        read_swf(path)
    assert len(str(caught.value)) < 200 + len(str(path))
    assert "\n" not in str(caught.value)


def test_lenient_skips_and_counts(tmp_path):
    path = write(tmp_path, line(number=1) + "1 2 3\n" + line(number=2, run="x") + line(number=3))
    workload = read_swf(path, lenient=True)
    assert [job.id for job in workload.jobs] == ["1", "3"]
    assert workload.skipped == 2
    with pytest.raises(InputError, match="found no well-formed line among 2; expected lines of 18 numbers"):
        read_swf(write(tmp_path, "what\nis this\n"), lenient=True)


def test_gzip_by_content_and_its_damage(tmp_path):
    packed = gzip.compress(GOOD.encode())
    assert len(read_swf(write(tmp_path, packed, "t.swf.gz")).jobs) == 3
    assert len(read_swf(write(tmp_path, packed, "t.swf")).jobs) == 3
    with pytest.raises(InputError, match="end too early"):
        read_swf(write(tmp_path, packed[:-20], "t.swf.gz"))
    damaged = packed[:30] + bytes(255 - b for b in packed[30:50]) + packed[50:]
    with pytest.raises(InputError, match="gzip"):
        read_swf(write(tmp_path, damaged, "t.swf.gz"))
    with pytest.raises(InputError, match="expected gzip data"):
        read_swf(write(tmp_path, GOOD, "t.swf.gz"))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_swf(tmp_path / "none.swf")
    with pytest.raises(InputError, match="found a folder"):
        read_swf(tmp_path)
    with pytest.raises(InputError, match="found the file name 'a"):
        read_swf("a\0b")


def test_the_header_gives_the_machine(tmp_path):
    arrays = read_swf_arrays(write(tmp_path, GOOD))
    assert arrays.header["Version"] == "2.2"
    assert swf_machine(arrays) == 8
    assert swf_machine(read_swf_arrays(write(tmp_path, "; MaxProcs: many\n" + line()))) is None


def test_comments_and_odd_line_ends_within_the_file(tmp_path):
    text = (
        line(number=1)
        + "; a comment: here\r\n\r\n"
        + line(number=2).replace("\n", "\r\n")
        + "\t"
        + line(number=3)
    )
    assert [job.id for job in read_swf(write(tmp_path, text)).jobs] == ["1", "2", "3"]
    assert len(read_swf(write(tmp_path, text.rstrip())).jobs) == 3  # no line end at the end


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda p: p.name)
@pytest.mark.parametrize("lenient", [False, True])
def test_the_corpus_of_broken_files_never_escapes(path, lenient):
    try:
        workload = read_swf(path, Cluster.uniform(16, 1), lenient=lenient)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right, a traceback is not
    else:
        assert lenient or not workload.skipped


token = st.one_of(
    st.integers(-2, 10**6).map(str),
    st.floats(allow_nan=True).map(repr),
    st.sampled_from(["-1", "", "x", "1e5", "-", "--1", "1-1", ";", "0x10", "١", "1.", ".5", "+3", "9" * 30]),
)
rows = st.lists(
    st.one_of(st.lists(token, min_size=18, max_size=18), st.lists(token, max_size=20)), max_size=4
)


@settings(deadline=None, max_examples=full(200, 50), derandomize=True)
@given(data=st.one_of(rows.map(lambda r: "\n".join(map(" ".join, r)).encode()), st.binary(max_size=200)))
def test_no_bytes_make_a_traceback(data):
    for lenient in (False, True):
        try:
            arrays = parse_swf(data, "f.swf", lenient=lenient)
        except InputError as error:
            assert str(error).startswith("f.swf")  # noqa: PT017
        else:
            assert np.isfinite(arrays.submit).all()


clean = st.lists(st.tuples(*[st.integers(-1, 10**9)] * 18), min_size=1, max_size=6)


@settings(deadline=None, max_examples=full(100, 25), derandomize=True)
@given(
    rows=clean, gap=st.sampled_from([" ", "   ", "\t"]), end=st.sampled_from(["\n", "\r\n", "\n\n", " \n"])
)
def test_all_ways_of_parsing_agree(rows, gap, end):
    body = end.join(gap.join(map(str, row)) for row in rows).encode()
    by_bytes = swf_arrays._clean_integers(body, 18)
    by_numbers = swf_arrays._clean_numbers(body, 18)
    by_line, skipped = swf_arrays._line_by_line(body, "f", 0, swf_arrays.Form())
    assert by_bytes is not None
    assert by_numbers is not None
    assert skipped == 0
    for column in swf_arrays.WANTED:
        expected = [row[column] for row in rows]
        assert (
            by_bytes[column].tolist() == by_numbers[column].tolist() == by_line[column].tolist() == expected
        )


@needs_traces
@pytest.mark.parametrize(
    ("name", "jobs", "rejected", "machine", "load", "days", "users"),
    [
        ("kth-sp2-1996-2.1-cln.first8000", 8000, 0, 100, 0.69, 106.1, 110),
        ("hpc2n-2002-2.1.first3170", 3145, 25, 240, 0.42, 57.3, 17),
        ("theta-2022.first8000", 8000, 0, 4360, 0.72, 101.7, 0),
        ("nasa-ipsc-1993-3.1-cln.first6000", 6000, 0, 128, 0.42, 31.5, 50),
        ("lublin-256", 10000, 0, 256, 1.06, 89.2, 0),
    ],
)
def test_the_sample_traces(name, jobs, rejected, machine, load, days, users):
    path = TRACES / f"{name}.swf.gz"
    assert swf_machine(read_swf_arrays(path)) == machine
    workload = read_swf(path, Cluster.uniform(machine, 1))
    assert (len(workload.jobs), len(workload.rejected), workload.skipped) == (jobs, rejected, 0)
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    work = sum(job.nodes * workload.truth.fixed[job.id] for job in workload.jobs)
    assert round(span / 86400, 1) == days
    assert round(work / machine / span, 2) == load
    assert len({job.user for job in workload.jobs} - {None}) == users
