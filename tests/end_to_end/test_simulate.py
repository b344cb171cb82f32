"""``dovetail simulate`` and the Python API behind it, as users meet them."""

from __future__ import annotations

import csv
import json
import math
import os
import pty
import re
import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL, load

import dovetail as api

Call = Callable[..., subprocess.CompletedProcess[str]]

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
[[app.implementation]]
name = "gpu"
[[job]]
app = "mm"
count = 6
user = "ann"
times = { cpu = 4.0, gpu = 1.0 }
[[job]]
id = "late"
app = "mm"
user = "bob"
submit = 20.0
times = { cpu = 4.0, gpu = 1.0 }
"""

LOG = "; MaxProcs: 4\n" + "".join(
    f"{i} {submit} -1 {run} {size} -1 -1 {size} {run + 5} -1 1 {i % 2} 1 -1 -1 -1 -1 -1\n"
    for i, (submit, run, size) in enumerate([(0, 10, 3), (1, 10, 4), (2, 5, 1), (3, 40, 1), (4, 5, 9)])
)

MINE = '''
"""A policy of a user's own."""
from dataclasses import dataclass
from dovetail.model import Start


@dataclass(frozen=True)
class Last:
    """The job that came last goes first, on the first implementation that fits."""

    patience: float = 0.0

    def decide(self, view):
        free = view.free()
        for job in reversed(list(view.queue)):
            for choice in job.choices:
                allocation = free.fit(choice.request)
                if allocation is not None:
                    free.take(allocation)
                    yield Start(job.id, choice.implementation.name, allocation)
                    break


class Broken:
    def decide(self, view):
        raise RuntimeError("no idea")


class Nothing:
    pass
'''


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


# ------------------------------------------------------------------------------------------ the command


def test_json_is_the_contracts_form(dovetail: Call, jobs: Path) -> None:
    done = dovetail("simulate", "jobs.toml", "--cluster", "1x8cpu+1gpu", "--policy", "history", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    form = load(done)
    assert list(form)[:11] == [
        *("policy", "options", "workload", "cluster", "seed", "knowledge", "makespan", "rejected", "jobs"),
        *("metrics", "plan"),
    ]
    assert (form["policy"], form["workload"], form["cluster"]) == ("history", "jobs.toml", "1x8cpu+1gpu")
    assert [job["id"] for job in form["jobs"]] == [f"mm-{i}" for i in range(1, 7)] + ["late"]
    first = form["jobs"][0]
    assert {"id", "app", "user", "implementation", "state", "submit", "start", "end"} <= set(first)
    assert {"nodes", "devices", "predicted", "exit_code"} <= set(first)
    assert first["state"] == "COMPLETED"
    assert not {"cut", "breakdown", "later_than"} & set(form)  # only where they were asked for


def test_break_downs_a_cut_and_a_reference_add_fields(dovetail: Call, jobs: Path) -> None:
    done = dovetail(
        *("simulate", "jobs.toml", "--cluster", "1x8cpu+1gpu", "--policy", "history", "--json"),
        *("--by", "user", "--by", "app", "--cooldown", "5", "--reference", "gpu-only"),
    )
    form = load(done)
    assert form["breakdown"]["user"]["ann"]["jobs"] == 6
    assert list(form["breakdown"]["user"]) == ["ann"]  # bob's job lies in the cool-down
    assert form["cut"] == {"warmup": 0.0, "cooldown": 5.0, "fraction": False}
    assert form["metrics"]["jobs"] == 7
    assert form["metrics"]["jobs_counted"] == 6
    assert form["later_than"]["policy"] == "gpu-only"
    late = form["later_than"]["jobs"]
    ends = {job["id"]: job["end"] for job in form["jobs"]}
    assert form["metrics"]["later_jobs"] == len(late)
    alone = load(
        dovetail("simulate", "jobs.toml", "--cluster", "1x8cpu+1gpu", "--policy", "gpu-only", "--json")
    )
    others = {job["id"]: job["end"] for job in alone["jobs"]}
    assert late == {id: ends[id] - others[id] for id in ends if ends[id] > others[id]}


def test_tables_for_people(dovetail: Call, jobs: Path) -> None:
    done = dovetail(
        *("simulate", "jobs.toml", "--cluster", "1x8cpu+1gpu", "--policy", "cpu-only"),
        *("--by", "user", "--warmup", "10%", "--cooldown", "0", "--reference", "history"),
    )
    assert done.returncode == 0
    assert "without warm-up and cool-down" in done.stdout
    assert re.search(r"^bob +1 ", done.stdout, re.M)
    assert not re.search(r"^ann ", done.stdout, re.M)  # before the warm-up had passed
    assert "jobs end later than under history" in done.stdout
    assert "\x1b" not in done.stdout  # no terminal, no colours
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_every_file_that_can_be_asked_for(dovetail: Call, log: Path, tmp_path: Path) -> None:
    done = dovetail(
        *("simulate", "log.swf", "--cluster", "4x1cpu", "--policy", "easy", "--csv", "jobs.csv"),
        *("--gantt", "gantt.svg", "--perfetto", "trace.json", "--report", "out", "--journal", "j.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert [row["job_id"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[0]["requested_number_of_resources"] == "3"
    assert (tmp_path / "gantt.svg").read_text().lstrip().startswith("<?xml")
    assert json.loads((tmp_path / "trace.json").read_text())
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"index.html", "results.json", "easy.csv", "easy.svg", "timeline.svg"}
    assert json.loads((tmp_path / "out" / "results.json").read_text())["rejected"] == ["4"]
    assert dovetail("replay", "j.jsonl").returncode == 0


def test_strict_refuses_what_was_rejected(dovetail: Call, log: Path) -> None:
    arguments = ("simulate", "log.swf", "--cluster", "4x1cpu", "--policy", "easy", "--json")
    assert dovetail(*arguments).returncode == 0
    done = dovetail(*arguments, "--strict")
    assert done.returncode == 2
    assert load(done)["rejected"] == ["4"]
    assert done.stderr.startswith("dovetail: log.swf: 1 job rejected, the first is 4: requests 9 processors")
    assert done.stderr.count("\n") == 1


def test_walltimes_kill_or_do_not(dovetail: Call, tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text("1 0 -1 100 1 -1 -1 1 10 -1 1 1 1 -1 -1 -1 -1 -1\n")
    arguments = ("simulate", "log.swf", "--cluster", "1x1cpu", "--policy", "fcfs", "--json")
    killed = dovetail(*arguments)
    assert killed.returncode == 0  # in a simulation this is an outcome, no failure
    assert [(job["state"], job["end"]) for job in load(killed)["jobs"]] == [("TIMEOUT", 10.0)]
    ran = load(dovetail(*arguments, "--overrun", "run"))["jobs"]
    assert [(job["state"], job["end"]) for job in ran] == [("COMPLETED", 100.0)]


def on_a_terminal(arguments: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What the command writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    environment = {**environment, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [*DOVETAIL, *arguments], cwd=folder, env=environment, stdout=follower, stderr=follower, stdin=follower
    )
    os.close(follower)
    said = b""
    while True:
        ready, _, _ = select.select([leader], [], [], 60)
        assert ready, "the command said nothing for a minute"
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(leader)
    assert process.wait(60) == 0
    return said.decode()


def test_colours_on_a_terminal_unless_no_color(
    jobs: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    arguments = ["simulate", "jobs.toml", "--cluster", "1x8cpu+1gpu"]
    environment.pop("NO_COLOR", None)
    coloured = on_a_terminal(arguments, tmp_path, environment)
    assert re.search(r"\x1b\[[0-9;]*m", coloured)
    plain = on_a_terminal(arguments, tmp_path, {**environment, "NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|4[0-9]|38;|48;)[0-9;]*m", plain)


# ------------------------------------------------------------------------------------ a user's own policy


def test_a_policy_from_a_file(dovetail: Call, jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    arguments = ("simulate", "jobs.toml", "--cluster", "1x8cpu", "--json")
    form = load(dovetail(*arguments, "--policy", "mine.py:Last"))
    assert form["policy"] == "Last"
    starts = {job["id"]: job["start"] for job in form["jobs"]}
    assert starts["mm-6"] == 0.0
    assert starts["mm-1"] == 24.0  # after the one that came meanwhile
    form = load(dovetail(*arguments, "--policy", "mine.py:Last?patience=2.5"))
    assert form["options"] == {"patience": 2.5}
    found = load(
        dovetail("compare", "jobs.toml", "--cluster", "1x8cpu", "--policy", "fcfs,mine.py:Last", "--json")
    )
    assert [entry["policy"] for entry in found] == ["fcfs", "Last"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("mine.py:Missing", ["mine.py", "found no class 'Missing', expected one of Last"]),
        ("mine.py:Nothing", ["Nothing", "has neither decide(view) nor plan(view)"]),
        ("mine.py:Last?patience=long", ["patience", "'long'", "expected a number"]),
        ("mine.py:Last?hurry=1", ["'hurry'", "patience"]),
        ("broken.py:Last", ["broken.py", "SyntaxError"]),
        ("away.py:Last", ["away.py"]),
        ("esay", ["'esay'", "did you mean 'easy'"]),
        ("easy?order=best", ["order", "'best'", "sjf"]),
        ("easy?order", ["easy?order"]),
        ("easy?odrer=sjf", ["'odrer'", "order"]),
        ("", ["''"]),
    ],
)
def test_wrong_policies_are_said_in_a_sentence(
    dovetail: Call, jobs: Path, tmp_path: Path, policy: str, words: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("class Last(:\n")
    done = dovetail("simulate", "jobs.toml", "--cluster", "1x8cpu", "--policy", policy)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_a_policy_that_fails_is_its_authors_mistake(dovetail: Call, jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    arguments = ("simulate", "jobs.toml", "--cluster", "1x8cpu", "--policy", "mine.py:Broken")
    done = dovetail(*arguments)
    assert done.returncode == 2
    assert "mine.py, line " in done.stderr
    assert "no idea" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in dovetail(*arguments, "--debug").stderr


# ------------------------------------------------------------------------------------------ from Python


def test_the_python_api(jobs: Path, tmp_path: Path) -> None:
    report = api.simulate(str(jobs), cluster="16x8cpu+1gpu", policy="fcfs")
    assert report.makespan == report.metrics["makespan"] == 21.0
    assert len(report.jobs) == 7
    assert report.jobs[0]["id"] == "mm-1"
    assert report.rejected == []
    assert report.gantt(tmp_path / "out.svg") == str(tmp_path / "out.svg")
    assert (tmp_path / "out.svg").stat().st_size > 1000
    assert "n0/gpu0" in api.simulate(str(jobs), cluster="1x8cpu+1gpu").gantt()
    assert "Makespan" in str(report)
    assert "makespan=21" in repr(report)


def test_jobs_as_a_data_frame(jobs: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = api.simulate(str(jobs), cluster="1x8cpu+1gpu", policy="history").jobs.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.index.name == "id"
    assert list(frame.loc[["mm-1", "late"], "submit"]) == [0.0, 20.0]


def test_objects_and_names_are_the_same(jobs: Path) -> None:
    cluster = api.Cluster.parse("2x8cpu+1gpu")
    workload = api.load_workload(jobs)
    by_objects = api.simulate(workload, cluster=cluster, policy="min-min")
    by_names = api.simulate(str(jobs), cluster="2x8cpu+1gpu", policy="min-min")
    assert by_objects.jobs == by_names.jobs
    with pytest.raises(api.InputError, match=r"jbos\.toml"):
        api.load_workload("jbos.toml")
    with pytest.raises(api.InputError, match="2x8"):
        api.Cluster.parse("2x8")


def test_a_load_of_ones_own(log: Path) -> None:
    half = api.simulate(str(log), cluster="4x1cpu", policy="fcfs", load=0.5)
    assert half.result.load == 0.5
    assert half.to_json()["load"] == 0.5
    submits = [job["submit"] for job in half.jobs]
    assert submits[-1] > 3.0  # spread out


# ------------------------------------------------------------------------------------------ real traces


@needs_traces
@pytest.mark.parametrize(
    ("name", "cluster", "jobs"),
    [
        ("kth-sp2-1996-2.1-cln.first8000.swf.gz", "100x1cpu", 8000),
        ("hpc2n-2002-2.1.first3170.swf.gz", "240x1cpu", 3145),
        ("theta-2022.first8000.swf.gz", "4360x1cpu", 8000),
        ("philly_jobs_2017-10-02_2017-10-08.csv.gz", "80x20cpu+8gpu", 11386),
        ("aaicwl-2017Q3.csv.gz", "40x20cpu+8gpu", 13712),
    ],
)
def test_no_promise_is_broken_on_real_traces(name: str, cluster: str, jobs: int) -> None:
    report = api.simulate(str(TRACES / name), cluster=cluster, policy="easy")
    found = report.metrics
    assert (found["jobs"], found["promises_broken"], found["broken_by_overrun"]) == (jobs, 0, 0)
    wait = found["mean_wait"]
    assert wait is not None
    assert math.isfinite(wait)
