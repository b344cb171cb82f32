"""Whatever is in a trace, a job file or a cluster file: a schedule, or one sentence that says where.

The command runs in this process, through its entry point; exit status 3 (an internal error), a traceback
or a second line on standard error is a failure.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_files import CLUSTER, JOBS, SWF, TRACES

from dovetail.cli.main import status_of
from dovetail.testing.builders import full

CORPUS = Path(__file__).resolve().parents[1] / "corpus"

ODD = st.sampled_from(
    [
        *("-1", "0", "1", "2", "1.5", "-0.0", "nan", "inf", "-inf", "1e400", "1e308", "1e18", "1e-320"),
        *("9" * 30, "1_0", "0x1", "٣", "é", "\x00", "\u2028", '"', "'", "true", "null", "", " ", "x"),
        *("2017-13-45 00:00:00", "9999-12-31T23:59:59", "99:99:99", "UNLIMITED", "cpu=-1", "a|b", "{n}"),
    ]
)
ODD_TOML = st.sampled_from(
    [
        *("-1", "0", "1", "2.5", "nan", "inf", "-inf", "1e308", "1e-320", "9" * 30, "1_000", "0x10"),
        *('""', '"a"', '"\\u0000"', '"{n}"', '"{"', '"}{"', "true", "1979-05-27", "[]", "{}", "[1]", "[[]]"),
        *('["./a"]', '["{n}", "{m}"]', '"n[0-3]"', '"n[0-999999999]"', '"n[3-1]"', '"cpu"', '"cpu+gpu"'),
        *("{ a = 1 }", "{ cpu = 1.0 }", "{ 2 = 3.0 }", "{ cpu = { 2 = 1.0 } }", "{ gpu = -1 }"),
        *('{ n = "x" }', '[{ kind = "gpu" }]', '[{ kind = "gpu", count = 2, cores = [1] }]', "1000000000"),
    ]
)
KEYS = st.sampled_from(
    [
        *("name", "cpus", "gpus", "memory", "time", "times", "id", "app", "inputs", "submit", "count"),
        *("nodes", "speedup", "walltime", "user", "priority", "on", "command", "env", "kind", "cores"),
        *("devices", "host_cpus", "sequential", "implementation", "zzz"),
    ]
)
LIGHT = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def edits(draw: st.DrawFn, text: str, *, toml: bool = False) -> str:
    """The text with one to three lines lost, doubled, cut, or with something odd in them."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 3))):
        i = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.integers(0, 6))
        if kind == 0 and len(lines) > 1:
            del lines[i]
        elif kind == 1:
            lines.insert(i, lines[draw(st.integers(0, len(lines) - 1))])
        elif kind == 2:
            at = draw(st.integers(0, len(lines[i])))
            lines[i] = lines[i][:at] + draw(ODD) + lines[i][at + draw(st.integers(0, 3)) :]
        elif kind == 3:
            lines[i] = lines[i][: draw(st.integers(0, len(lines[i])))]
        elif toml and "=" in lines[i]:
            lines[i] = lines[i].partition("=")[0] + "= " + draw(ODD_TOML)
        elif toml:
            lines.insert(i, f"{draw(KEYS)} = {draw(ODD_TOML)}")
        else:
            separator = draw(st.sampled_from([" ", ",", "|"]))
            fields = lines[i].split(separator)
            fields[draw(st.integers(0, len(fields) - 1))] = draw(ODD)
            lines[i] = separator.join(fields)
    return "\n".join(lines)


def answer(folder: Path, arguments: list[str], *names: str) -> int:
    """Run the command; whatever comes, it must be an answer: a schedule, or a sentence with a name in it."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = status_of(arguments)
    finally:
        os.chdir(before)
    said = err.getvalue()
    if status == 2:
        assert said.count("\n") == 1, said
        assert said.startswith("dovetail: "), said
        # that a policy cannot place these jobs is no fault of the file
        assert any(name in said for name in (*names, "policy ")), said
    else:
        assert (status, said) == (0, ""), (status, said)
    return status


POLICIES = ["history", "fcfs", "easy?walltime=learned", "conservative", "best-device", "brr", "sufferage"]
options = st.lists(
    st.sampled_from(
        [
            ("--overrun", "run"),
            ("--knowledge", "learned"),
            ("--default-walltime", "5"),
            ("--seed", "3"),
            ("--json",),
            ("--warmup", "10%"),
            ("--by", "user"),
            ("--reference", "fcfs"),
        ]
    ),
    unique=True,
    max_size=3,
).map(lambda pairs: [part for pair in pairs for part in pair])


@pytest.mark.parametrize("name", TRACES)
@settings(LIGHT, max_examples=full(600, 15))
@given(data=st.data())
def test_broken_traces_are_answered(name, data, tmp_path):
    (tmp_path / name).write_text(data.draw(edits(TRACES[name])), encoding="utf-8")
    cluster = data.draw(st.sampled_from(["4x8cpu+1gpu", "8x1cpu", "3x4cpu+2gpu"]))
    arguments = ["simulate", name, "--cluster", cluster, "--policy", data.draw(st.sampled_from(POLICIES))]
    arguments += data.draw(options)
    arguments += ["--on", "cpu,gpu"] if name == "commands.txt" else []
    if data.draw(st.booleans()):
        arguments.append("--lenient")
    answer(tmp_path, arguments, name)


@settings(LIGHT, max_examples=full(3000, 50))
@given(data=st.data())
def test_broken_job_files_are_answered(data, tmp_path):
    (tmp_path / "jobs.toml").write_text(data.draw(edits(JOBS, toml=True)), encoding="utf-8")
    arguments = ["simulate", "jobs.toml", "--cluster", data.draw(st.sampled_from(["4x8cpu+1gpu", "2x2cpu"]))]
    arguments += ["--policy", data.draw(st.sampled_from(POLICIES)), *data.draw(options)]
    answer(tmp_path, arguments, "jobs.toml")


@settings(LIGHT, max_examples=full(3000, 40))
@given(data=st.data())
def test_broken_cluster_files_are_answered(data, tmp_path):
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    (tmp_path / "cluster.toml").write_text(data.draw(edits(CLUSTER, toml=True)), encoding="utf-8")
    policy = data.draw(st.sampled_from(POLICIES))
    answer(
        tmp_path,
        ["simulate", "jobs.toml", "--cluster", "cluster.toml", "--policy", policy],
        "cluster.toml",
        "jobs.toml",
    )


@settings(LIGHT, max_examples=full(1000, 20))
@given(blob=st.binary(max_size=200), name=st.sampled_from([*TRACES, "jobs.toml", "log.swf.gz"]))
def test_bytes_of_any_kind_are_answered(blob, name, tmp_path):
    (tmp_path / name).write_bytes(blob)
    arguments = ["simulate", name, "--cluster", "2x2cpu+1gpu", "--policy", "fcfs", "--on", "cpu"]
    answer(tmp_path, arguments, name)


@settings(LIGHT, max_examples=full(500, 12))
@given(at=st.integers(0, 200), flip=st.integers(0, 255))
def test_damaged_gzip_is_answered(at, flip, tmp_path):
    packed = bytearray(gzip.compress(SWF.encode(), mtime=0))
    packed[at % len(packed)] ^= flip
    (tmp_path / "log.swf.gz").write_bytes(packed)
    answer(tmp_path, ["simulate", "log.swf.gz", "--cluster", "8x1cpu", "--policy", "easy"], "log.swf.gz")


@settings(LIGHT, max_examples=full(1000, 24))
@given(text=st.text(st.sampled_from("0123456789x+-cpugpu. "), max_size=24))
def test_short_forms_of_clusters_are_answered(text, tmp_path):
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    answer(
        tmp_path,
        ["simulate", "jobs.toml", f"--cluster={text}", "--policy", "fcfs"],
        text.strip(),
        "jobs.toml",
    )


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: path.name)
def test_the_corpus_of_broken_files_is_answered(path, lenient, tmp_path):
    arguments = ["simulate", str(path), "--cluster", "8x4cpu+2gpu", "--policy", "easy"]
    status = answer(tmp_path, [*arguments, *["--lenient"] * lenient], path.name)
    assert lenient or status == 2


BROKEN_JOBS = {
    "empty": "",
    "no jobs": '[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\n',
    "not TOML": "[[app]\n",
    "unknown key": JOBS.replace("cpus = 2", "cpu = 2"),
    "unknown placeholder": JOBS.replace("{rows}", "{row}"),
    "negative time": JOBS.replace("time = 4.475", "time = -4.475"),
    "not a number": JOBS.replace("cpu = 4.475", "cpu = nan"),
    "infinite": JOBS.replace("walltime = 3600", "walltime = inf"),
    "a name twice": JOBS + '[[job]]\nid = "a"\napp = "mm"\n',
    "an app twice": JOBS + '[[app]]\nname = "mm"\n[[app.implementation]]\nname = "cpu"\n',
    "no such app": JOBS.replace('app = "train"', 'app = "trian"'),
    "no implementation": '[[app]]\nname = "a"\n[[job]]\napp = "a"\n',
    "an implementation twice": JOBS.replace('name = "gpu"', 'name = "cpu"'),
    "text for a number": JOBS.replace("submit = 0.0", 'submit = "soon"'),
    "far too many": JOBS.replace("count = 3", "count = 99999999999"),
    "no jobs by count": JOBS.replace("count = 3", "count = 0"),
    "one table for a list": JOBS.replace("[[job]]", "[job]", 1),
    "times of no implementation": JOBS.replace("gpu = 0.041", "fpga = 0.041"),
}


@pytest.mark.parametrize("name", BROKEN_JOBS)
def test_broken_job_files_by_hand(name, tmp_path):
    (tmp_path / "jobs.toml").write_text(BROKEN_JOBS[name], encoding="utf-8")
    arguments = ["simulate", "jobs.toml", "--cluster", "2x8cpu+1gpu", "--policy", "fcfs"]
    assert answer(tmp_path, arguments, "jobs.toml") == 2


BROKEN_CLUSTERS = {
    "empty": "",
    "not TOML": "[[node]\n",
    "no name": "[[node]]\ncpus = 2\n",
    "a name twice": '[[node]]\nname = "n"\ncpus = 1\n' * 2,
    "a name twice by range": '[[node]]\nname = "n[0-2]"\ncpus = 1\n[[node]]\nname = "n1"\ncpus = 1\n',
    "nothing in it": '[[node]]\nname = "n"\ncpus = 0\n',
    "negative": '[[node]]\nname = "n"\ncpus = -1\n',
    "cores twice": '[[node]]\nname = "n"\ncores = [1, 1]\n',
    "cpus and cores": '[[node]]\nname = "n"\ncpus = 2\ncores = [0, 1]\n',
    "far too many": '[[node]]\nname = "n[0-99999999999]"\ncpus = 1\n',
    "backwards": '[[node]]\nname = "n[3-1]"\ncpus = 1\n',
    "open bracket": '[[node]]\nname = "n[3"\ncpus = 1\n',
    "unknown key": CLUSTER.replace("memory", "ram"),
    "device without a kind": CLUSTER.replace('kind = "opencl", ', ""),
}


@pytest.mark.parametrize("name", BROKEN_CLUSTERS)
def test_broken_cluster_files_by_hand(name, tmp_path):
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    (tmp_path / "cluster.toml").write_text(BROKEN_CLUSTERS[name], encoding="utf-8")
    arguments = ["simulate", "jobs.toml", "--cluster", "cluster.toml", "--policy", "fcfs"]
    assert answer(tmp_path, arguments, "cluster.toml") == 2


def test_what_is_whole_is_scheduled(tmp_path):
    """The texts above, unbroken: else the tests would only show that everything is refused."""
    for name, text in {**TRACES, "jobs.toml": JOBS, "cluster.toml": CLUSTER}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in [*TRACES, "jobs.toml"]:
        if name != "commands.txt":  # commands have no times to simulate
            arguments = ["simulate", name, "--cluster", "4x8cpu+1gpu", "--policy", "easy", "--strict"]
            assert answer(tmp_path, arguments, name) == 0
    assert answer(tmp_path, ["simulate", "jobs.toml", "--cluster", "cluster.toml"], "jobs.toml") == 0
