"""Tables that are told apart by their header, and node lists."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.testing.builders import full
from dovetail.workloads.load import load_workload
from dovetail.workloads.tables import TABLES, read_node_list, read_table

CORPUS = Path(__file__).resolve().parents[1] / "corpus" / "tables"
TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")


@needs_traces
@pytest.mark.parametrize(
    ("name", "app"),
    [
        ("aaicwl-2017Q3.csv.gz", "aaic"),
        ("philly_jobs_2017-10-02_2017-10-08.csv.gz", "philly"),
        ("openb_pod_list_gpuspec33.first5000.csv.gz", "openb"),
        ("eagle_jobs_sample1000.csv.gz", "eagle"),
    ],
)
def test_a_csv_is_known_by_its_header(name, app):
    assert load_workload(TRACES / name).jobs[0].app.name == app


@needs_traces
@pytest.mark.parametrize(
    ("name", "nodes"),
    [("aaic_nodes.csv", 50), ("philly_machines.csv", 552), ("openb_node_list_all_node.csv", 1523)],
)
def test_a_node_list_is_known_by_its_header(name, nodes):
    assert len(read_node_list(TRACES / name)) == nodes


def test_sacct_is_known_by_its_bars_and_braces(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("JobID|Submit|State|Elapsed|NCPUS\n5|100|COMPLETED|00:00:05|2\n")
    assert read_table(path).truth.seconds is not None
    assert read_table(path).jobs[0].id == "5"
    path.write_text('{"jobs": []}')
    with pytest.raises(InputError, match="the list jobs is empty"):
        read_table(path)


def test_an_unknown_table_is_one_sentence(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"line 1: found the columns 'a,b', expected those of aaic, eagle"):
        read_table(path)
    with pytest.raises(InputError, match="expected a node list of aaic, openb, philly"):
        read_node_list(path)


def test_a_header_that_lacks_a_column_is_told_which(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("timestamp,duration,cluster\n2017-10-02 00:01:55,5,a\n")
    with pytest.raises(InputError, match=r"line 1: found .*, expected also num_gpus, as in those of philly"):
        read_table(path)
    path.write_text("sn,cpu_milli,memory_mib,gpu\na,1000,5,1\n")
    with pytest.raises(InputError, match="expected also model, as in those of openb"):
        read_node_list(path)


def test_an_empty_table_is_called_empty(tmp_path):
    path = tmp_path / "a.csv"
    for text in ("", "\n\n"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"a\.csv: the file is empty; expected a header line"):
            read_table(path)


LINES = [b"timestamp,duration,num_gpus,cluster", *(b"2017-10-02 00:01:5%d,5,1,a" % i for i in range(4))]


@pytest.mark.parametrize(
    "broken", [b'"2017-10-02 00:01:50,5,1,a', b"2017-10-02 00:01:50,5,1,\xe9", b"2017-10-02 00:01:50,5,1"]
)
@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_a_broken_line_costs_no_other_line(tmp_path, broken, ends):
    path = tmp_path / "a.csv"
    path.write_bytes(ends.join([*LINES[:2], broken, *LINES[2:]]))
    if ends != b"\r":
        with pytest.raises(InputError, match=r"a\.csv: line 3: "):
            read_table(path)
    found = read_table(path, lenient=True)
    assert (len(found.jobs), found.skipped) == (4, 1)


def test_columns_may_stand_in_quotes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join(b",".join(b'"%s"' % cell for cell in line.split(b",")) for line in LINES))
    assert len(read_table(path).jobs) == 4


def test_text_that_opens_with_a_header_of_sacct_is_no_list_of_commands(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|Submit|State|Elapsed|NCPUS\n5|100|COMPLETED|00:00:05|2\n")
    assert [(job.id, job.app.name) for job in load_workload(path).jobs] == [("5", "slurm")]
    packed = tmp_path / "jobs.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [(job.id, job.app.name) for job in load_workload(packed).jobs] == [("5", "slurm")]
    packed.write_bytes(packed.read_bytes()[:20])
    with pytest.raises(InputError):
        load_workload(packed)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*")), ids=lambda p: p.name)
@pytest.mark.parametrize("lenient", [False, True])
def test_the_corpus_of_broken_tables_never_escapes(path, lenient):
    readers = [read_table, *(reader for _, reader in TABLES.values())]
    for reader in readers:
        try:
            workload = reader(path, Cluster.uniform(4, 8, 2), lenient=lenient)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017 - either outcome is right, a traceback is not
        else:
            assert lenient
            assert workload.skipped


cells = st.one_of(
    st.integers(-3, 2000).map(str),
    st.floats(allow_nan=True).map(repr),
    st.sampled_from(
        ["", "x", "1e400", "2017-10-02 00:01:55", "T4|V100", '"', "\0", "9" * 40, "٣", "2017-99-01"]
    ),
)


@settings(deadline=None, max_examples=full(120, 30), derandomize=True)
@given(data=st.data(), kind=st.sampled_from(sorted(TABLES)))
def test_no_table_makes_a_traceback(data, kind, tmp_path_factory):
    columns, reader = TABLES[kind]
    lines = data.draw(st.lists(st.lists(cells, min_size=len(columns), max_size=len(columns)), max_size=3))
    path = tmp_path_factory.mktemp("t") / "t.csv"
    path.write_text("\n".join(",".join(line) for line in [list(columns), *lines]) + "\n")
    for lenient in (False, True):
        try:
            workload = reader(path, Cluster.uniform(2, 8, 2), lenient=lenient)
        except InputError as error:
            assert str(error).startswith(str(path))  # noqa: PT017
        else:
            assert all(workload.truth.fixed[job.id] >= 0 for job in workload.jobs)


@settings(deadline=None, max_examples=full(80, 20), derandomize=True)
@given(junk=st.binary(max_size=120))
def test_no_bytes_make_a_traceback(junk, tmp_path_factory):
    path = tmp_path_factory.mktemp("b") / "t.csv"
    path.write_bytes(junk)
    for lenient in (False, True):
        with pytest.raises(InputError):
            read_table(path, lenient=lenient)
        with pytest.raises(InputError):
            read_node_list(path)
