"""The commands ``dovetail workload …``, through the entry point."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

import pytest
import typer

from dovetail.cli.main import status_of
from dovetail.cli.workload import workload_app
from dovetail.errors import InputError
from dovetail.workloads.load import load_workload

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

LOG = "; MaxProcs: 4\n" + "".join(
    f"{i} {10 * i} -1 {run} {size} -1 -1 -1 60 -1 1 {i % 2} -1 -1 -1 -1 -1 -1\n"
    for i, (run, size) in enumerate([(8, 1), (8, 4), (-1, 1), (8, 2), (8, 9)])
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_describe(log, capsys):
    assert status_of(["workload", "describe", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in ("jobs", "rejected", "skipped", "span", "cluster")} == {
        "jobs": 3,
        "rejected": ["2", "4"],
        "skipped": 0,
        "span": 30,
        "cluster": "4x1cpu",  # the log's own machine
    }
    assert found["load"] == 8 * 7 / (4 * 30)
    assert status_of(["workload", "describe", str(log), "--cluster", "16x1cpu"]) == 0
    out = capsys.readouterr().out
    assert "jobs       4" in out
    assert "load       0.2 of the cpus of 16x1cpu" in out
    assert "rejected   1 × negative run time (-1)" in out


def test_describe_without_a_machine(tmp_path, capsys):
    path = tmp_path / "log.swf"
    path.write_text(LOG.partition("\n")[2])
    assert status_of(["workload", "describe", str(path)]) == 0
    assert "unknown without --cluster" in capsys.readouterr().out


def test_cut_and_scale_keep_the_log(log, tmp_path, capsys):
    out = tmp_path / "part.swf"
    assert status_of(["workload", "cut", str(log), str(out), "--from", "10", "--jobs", "2"]) == 0
    assert out.read_text().splitlines() == [LOG.splitlines()[i] for i in (0, 2, 4)]
    assert "2 jobs, 2 rejected jobs left out" in capsys.readouterr().err
    assert status_of(["workload", "scale", str(log), str(out), "--load", "0.9333333333333333"]) == 0
    assert [job.submit_time for job in load_workload(out).jobs] == [0, 5, 15]


def test_convert_to_a_job_file_and_back(log, tmp_path):
    jobs, back = tmp_path / "jobs.toml", tmp_path / "back.swf.gz"
    assert status_of(["workload", "convert", str(log), str(jobs)]) == 0
    assert status_of(["workload", "convert", str(jobs), str(back)]) == 0
    first, second = load_workload(log, "4x1cpu"), load_workload(back)
    assert [(j.id, j.submit_time, j.nodes, j.walltime, j.user) for j in second.jobs] == [
        (j.id, j.submit_time, j.nodes, j.walltime, j.user) for j in first.jobs
    ]
    assert dict(second.truth.fixed) == dict(first.truth.fixed)


def test_export_prints_a_job_file(log, tmp_path, capsys):
    assert status_of(["workload", "export", str(log)]) == 0
    path = tmp_path / "jobs.toml"
    path.write_text(capsys.readouterr().out)
    assert len(load_workload(path).jobs) == 3


def test_a_log_may_come_through_a_pipe_once(log, tmp_path, capsys):
    pipe, out = tmp_path / "pipe", tmp_path / "out.swf"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(LOG,))
    writer.start()
    assert status_of(["workload", "cut", f"swf:{pipe}", str(out), "--jobs", "2"]) == 0
    writer.join()
    assert out.read_text().splitlines() == [LOG.splitlines()[i] for i in (0, 1, 2)]


def test_names_in_capitals_are_names_too(log, tmp_path, capsys):
    for name in ("LOG.SWF", "LOG.SWF.GZ", "LOG.TOML"):
        assert status_of(["workload", "convert", str(log), str(tmp_path / name)]) == 0
        assert status_of(["workload", "describe", str(tmp_path / name), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["jobs"] == 3
    assert (tmp_path / "LOG.SWF.GZ").read_bytes()[:2] == b"\x1f\x8b"


def test_a_machine_beyond_all_bounds_in_the_header_is_none(tmp_path, capsys):
    path = tmp_path / "log.swf"
    path.write_text(LOG.replace("MaxProcs: 4", "MaxProcs: 9999999999"))
    assert status_of(["workload", "describe", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] is None


def test_a_cut_that_holds_nothing_writes_nothing(log, tmp_path, capsys):
    for name in ("out.swf", "out.toml"):
        assert status_of(["workload", "cut", str(log), str(tmp_path / name), "--from", "1e6"]) == 2
        assert "found no jobs, expected at least one to write" in capsys.readouterr().err
        assert not (tmp_path / name).exists()


def test_names_move_no_cursor(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_text("JobID|User|Submit|State|Elapsed|NCPUS\n5|\x1b[31mu|100|COMPLETED|00:00:05|2\n")
    assert status_of(["workload", "describe", str(path)]) == 0
    assert "users      1 (?[31mu 1)" in capsys.readouterr().out


def test_synthetic_workloads_have_a_name(tmp_path, capsys):
    spec = "synthetic:rigid?jobs=100&nodes=16"
    assert status_of(["workload", "describe", spec, "--cluster", "16x1cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["load"] == pytest.approx(0.85, rel=1e-3)
    assert status_of(["workload", "convert", spec, str(tmp_path / "s.swf")]) == 0
    assert len(load_workload(tmp_path / "s.swf").jobs) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "none.swf"], "dovetail: none.swf: found no such file, expected SWF text"),
        (["cut", "{log}", "{out}"], "found neither --from, --to nor --jobs"),
        (["cut", "{log}", "{out}", "--from", "9", "--to", "3"], "found the interval 9 to 3"),
        (["convert", "{log}", "{out}.xyz"], "expected a name that ends in .swf, .swf.gz or .toml"),
        (["convert", "{log}", "{out}/no/such.swf"], "cannot be written"),
        (["scale", "{log}", "{out}", "--load", "0"], "load: found 0, expected a number above 0"),
        (["scale", "synthetic:rigid?jobs=5", "{out}", "--load", "1"], "expected --cluster"),
        (["describe", "synthetic:odd"], "found the kind 'odd', expected one of rigid, lublin"),
        (["describe", "{log}", "--cpus-per-node", "0"], "--cpus-per-node"),
        (["describe"], "Missing argument"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, message, log, tmp_path, capsys):
    arguments = [a.format(log=log, out=tmp_path / "out.swf") for a in arguments]
    assert status_of(["workload", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_corpus_of_broken_files_is_answered_in_a_sentence():
    command = typer.main.get_command(workload_app)
    for path in sorted(CORPUS.glob("*/*")):
        with pytest.raises(InputError) as caught:
            command.main(["describe", str(path)], standalone_mode=False)
        assert path.name in str(caught.value)
        assert "\n" not in str(caught.value)
        with contextlib.suppress(InputError):  # lenient or not: a workload or a sentence
            command.main(["describe", str(path), "--lenient", "--json"], standalone_mode=False)


@needs_traces
@pytest.mark.parametrize(
    ("name", "cluster", "jobs", "load"),
    [
        ("kth-sp2-1996-2.1-cln.first8000.swf.gz", "100x1cpu", 8000, 0.69),
        ("aaicwl-2017Q3.csv.gz", "40x20cpu+8gpu", 13712, 0.41),
        ("philly_jobs_2017-10-02_2017-10-08.csv.gz", "80x20cpu+8gpu", 11386, 0.89),
    ],
)
def test_the_samples(name, cluster, jobs, load, capsys):
    assert status_of(["workload", "describe", str(TRACES / name), "--cluster", cluster, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["jobs"], found["rejected"], found["skipped"]) == (jobs, [], 0)
    assert round(found["load"], 2) == load
