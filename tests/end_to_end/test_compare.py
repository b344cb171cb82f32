"""``dovetail compare``: policies, seeds and loads side by side, in worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load
from waiting import until

from dovetail import comparison, simulate
from dovetail.cli.main import status_of
from dovetail.errors import DovetailError, DovetailWarning, InputError, PolicyError, UnsupportedWorkload
from dovetail.native.interrupts import interrupts_later
from dovetail.report.metrics import final_metrics

Call = Callable[..., subprocess.CompletedProcess[str]]

TABLE2 = ("published:gregg-table2", "--cluster", "1x8cpu+1gpu")

LOG = "; MaxProcs: 8\n" + "".join(
    f"{i} {20 * i} -1 {10 + 37 * i % 90} {1 + 3 * i % 8} -1 -1 -1 {100 + i % 50} -1 1 {i % 3} 1 1 1 1 -1 -1\n"
    for i in range(60)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_a_list_in_order_of_policy_then_seed(dovetail: Call) -> None:
    done = dovetail("compare", *TABLE2, "--policy", "history,best-device", "--seeds", "3", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = load(done)
    assert [(entry["policy"], entry["seed"]) for entry in found] == [
        (policy, seed) for policy in ("history", "best-device") for seed in (1, 2, 3)
    ]
    one = load(dovetail("simulate", *TABLE2, "--policy", "history", "--seed", "2", "--json"))
    assert found[1]["jobs"] == one["jobs"]


def test_tables_of_several_seeds(dovetail: Call) -> None:
    arguments = ("compare", *TABLE2, "--policy", "history,best-device,cpu-only")
    one = dovetail(*arguments).stdout
    assert "seed by seed" not in one
    several = dovetail(*arguments, "--seeds", "3", "--reference", "best-device").stdout
    assert "Against history, seed by seed" in several
    assert "± 95 % confidence interval" in several
    assert "Jobs that end later than under best-device" in several
    assert max(map(len, several.splitlines())) <= 80


def test_loads(dovetail: Call, log: Path, tmp_path: Path) -> None:
    arguments = (
        "compare",
        "log.swf",
        "--cluster",
        "8x1cpu",
        "--policy",
        "fcfs,easy",
        "--loads",
        "0.5,0.9,1.2",
        "--replicates",
        "1",
    )
    found = load(dovetail(*arguments, "--json"))
    assert [(entry["load"], entry["policy"]) for entry in found] == [
        (at, policy) for at in (0.5, 0.9, 1.2) for policy in ("fcfs", "easy")
    ]
    waits = [entry["metrics"]["mean_wait"] for entry in found if entry["policy"] == "fcfs"]
    assert waits == sorted(waits)
    done = dovetail(*arguments, "--report", "out", "--by", "user")
    assert "at load 1.2" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"load-0.5", "load-0.9", "load-1.2", "loads.svg", "results.json"}
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 6
    inner = {path.name for path in (tmp_path / "out" / "load-0.9").iterdir()}
    assert {"index.html", "comparison.svg", "easy.svg", "easy-timeline.svg", "fcfs.csv"} <= inner


def test_without_loads_the_field_is_null(dovetail: Call, log: Path) -> None:
    found = load(
        dovetail(
            "compare",
            "log.swf",
            "--cluster",
            "8x1cpu",
            "--policy",
            "fcfs,easy",
            "--replicates",
            "1",
            "--json",
        )
    )
    assert [entry["load"] for entry in found] == [None, None]


def test_the_reference_need_not_be_compared(dovetail: Call, log: Path) -> None:
    arguments = (
        "compare",
        "log.swf",
        "--cluster",
        "8x1cpu",
        "--policy",
        "easy,sjf",
        "--replicates",
        "1",
        "--json",
    )
    found = load(dovetail(*arguments, "--reference", "fcfs"))
    assert [entry["policy"] for entry in found] == ["easy", "sjf"]
    fcfs = load(dovetail("simulate", "log.swf", "--cluster", "8x1cpu", "--policy", "fcfs", "--json"))
    before = {job["id"]: job["end"] for job in fcfs["jobs"]}
    for entry in found:
        late = {j["id"]: j["end"] - before[j["id"]] for j in entry["jobs"] if j["end"] > before[j["id"]]}
        assert entry["later_than"] == {"policy": "fcfs", "jobs": late}


def test_files_of_one_policy_with_two_options_do_not_overwrite_each_other(
    dovetail: Call, log: Path, tmp_path: Path
) -> None:
    done = dovetail(
        *("compare", "log.swf", "--cluster", "8x1cpu", "--policy", "easy,easy?order=sjf,easy?order=f1"),
        *("--report", "out"),
    )
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"easy.csv", "easy_order_sjf.csv", "easy_order_f1.csv"} <= names
    assert {"easy.svg", "easy_order_sjf.svg", "easy_order_f1-timeline.svg"} <= names


def test_workers_give_what_one_process_gives(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "PATIENCE", 0.0)  # never do it all here
    monkeypatch.setattr(comparison, "WORTH", -1.0)
    tasks = [
        (str(log), {"cluster": "8x1cpu", "policy": policy, "seed": seed})
        for policy in ("fcfs", "easy")
        for seed in (1, 2)
    ]
    here = comparison.simulate_all(tasks, 1)
    known = [final_metrics(one) for one in here]
    monkeypatch.setattr(comparison, "_at_once", lambda tasks: [])  # nor the first, which is short
    there = comparison.simulate_all(tasks, 2)
    monkeypatch.setattr("dovetail.report.metrics._worked_out", None)  # the workers have done that
    for one, other in zip(known, map(final_metrics, there), strict=True):
        own = {"simulation_seconds", "decision_seconds_mean", "decision_seconds_p99"}
        assert {n: v for n, v in other.items() if n not in own} == {
            n: v for n, v in one.items() if n not in own
        }
    assert [(r.policy, r.seed) for r in there] == [(r.policy, r.seed) for r in here]
    for one, other in zip(here, there, strict=True):
        assert [(r.job.id, r.start, r.end) for r in one.records] == [
            (r.job.id, r.start, r.end) for r in other.records
        ]


MINE = """
import os, signal
class Killed:
    def decide(self, view):
        os.kill(os.getpid(), signal.SIGKILL)
class Wrong:
    def decide(self, view):
        from dovetail.model import Start
        from dovetail.model.allocation import Allocation
        job = next(iter(view.queue))
        whole = view.free().fit(job.choices[0].request)
        return [Start(job.id, job.choices[0].implementation, whole)] * 2
"""


def test_errors_in_workers_are_one_sentence(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "PATIENCE", -1.0)
    monkeypatch.setattr(comparison, "WORTH", -1.0)  # what is compiled ends before it can take too long
    (tmp_path / "mine.py").write_text(MINE)
    fine = (str(log), {"cluster": "8x1cpu", "policy": "fcfs"})
    wrong_file = (str(tmp_path / "none.swf"), {"cluster": "8x1cpu", "policy": "fcfs"})
    with pytest.raises(InputError, match=r"none\.swf") as caught:
        comparison.simulate_all([fine, wrong_file, fine], 2)
    assert caught.value.exit_status == 2
    wrong_policy = (str(log), {"cluster": "8x1cpu", "policy": f"{tmp_path / 'mine.py'}:Wrong"})
    with pytest.raises(PolicyError, match="policy Wrong, job"):
        comparison.simulate_all([fine, wrong_policy, fine], 2)
    killed = (str(log), {"cluster": "8x1cpu", "policy": f"{tmp_path / 'mine.py'}:Killed"})
    with pytest.raises(DovetailError, match="a worker process was killed"):
        comparison.simulate_all([fine, killed, fine], 2)


@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted_it_leaves_at_once(workers: str, tmp_path: Path, environment: dict[str, str]) -> None:
    options = ("--cluster", "256x1cpu", "--policy", "fcfs,easy,sjf", "--workers", workers)

    process = subprocess.Popen(
        [*DOVETAIL, "compare", "synthetic:rigid?jobs=200000", *options, "--compiled", "off"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # In the midst of simulating: beyond start-up, and with both workers there where there are two.
    most = 2 * int(workers) - 2
    until(lambda: sum(used := _cpu_seconds(process.pid)) > 1.5 and len(used) > most)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=280)
    assert (process.returncode, out, err) == (130, "", "")
    until(lambda: not _alive(process.pid), "somebody is left")


def test_an_interrupt_waits_until_workers_have_started() -> None:
    done = []
    inherited = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it
    before = signal.getsignal(signal.SIGINT)

    def interrupted() -> None:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, inherited)


def _cpu_seconds(group: int) -> list[float]:
    """What each process of the group has used."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                found.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return found


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fcfs,fcfs"], ["--policy", "fcfs twice"]),
        (["--policy", "fcfs,"], ["''"]),
        (["--policy", "fcfs,esay"], ["'esay'", "did you mean 'easy'"]),
        (["--seed", "1", "--seeds", "2"], ["--seed and --seeds"]),
        (["--seeds", "0"], ["--seeds"]),
        (["--loads", "0.5,high"], ["--loads", "'high'"]),
        (["--loads", "0"], ["--loads", "'0'"]),
        (["--loads", "1,1.0"], ["--loads", "1 twice"]),
        (["--loads", "nan"], ["--loads", "'nan'"]),
        (["--warmup", "60%"], ["warm-up", "less than 1"]),
        (["--warmup", "soon"], ["warm-up", "'soon'"]),
        (["--warmup", "inf"], ["warm-up"]),
        (["--by", "colour"], ["--by", "colour"]),
        (["--reference", "nobody"], ["'nobody'"]),
        (["--workers", "0"], ["--workers"]),
        (["--live", "--loads", "1"], ["--loads with --live"]),
        (["--loads", "0.5,0.7", "--html", "x.html"], ["--html", "found several loads"]),
        (["--default-walltime", "-1"], ["--default-walltime", "'-1'"]),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], words: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["compare", str(log), "--cluster", "8x1cpu", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("dovetail: ")
    for word in words:
        assert word in said


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    """The JSON entries."""
    assert status_of(["compare", *arguments, "--json", "--workers", "1"]) == 0
    found: list[Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_trace_is_drawn_anew(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "summary.json"
    arguments = (str(log), "--cluster", "8x1cpu", "--policy", "fcfs,easy,sjf", "--summary", str(file))
    found = compared(capsys, *arguments)
    assert [(one["policy"], one["replicate"]) for one in found] == [
        (policy, number) for policy in ("fcfs", "easy", "sjf") for number in range(10)
    ]
    submits = [tuple(job["submit"] for job in one["jobs"]) for one in found]
    assert submits[:10] == submits[10:20]  # paired: all policies meet the same draws
    assert len(set(submits)) == 10
    wait = {n: [e["metrics"]["mean_wait"] for e in found[n : n + 10]] for n in (0, 10)}
    summary = json.loads(file.read_text())
    known = summary["mean_wait"]["easy"]
    assert set(known) == {"difference", "low", "high", "ratio", "verdict", "reason"}
    assert known["difference"] == pytest.approx((sum(wait[10]) - sum(wait[0])) / 10)
    assert known["ratio"] == pytest.approx(sum(wait[10]) / sum(wait[0]))
    assert known["low"] < known["difference"] < known["high"]
    assert set(summary["mean_wait"]) == {"easy", "sjf"}
    assert {one["verdict"] for by in summary.values() for one in by.values()} <= {"clear", "open", "none"}

    alone = compared(capsys, *arguments, "--replicates", "1")
    assert [entry["replicate"] for entry in alone] == [0] * 3
    assert alone[0]["jobs"] == found[0]["jobs"]
    none = json.loads(file.read_text())["mean_wait"]["easy"]
    assert (none["low"], none["high"], none["verdict"]) == (None, None, "none")

    drawn = compared(capsys, *arguments, "--seeds", "2", "--bootstrap", "none", "--jitter", "0s")
    assert [(entry["seed"], entry["replicate"]) for entry in drawn] == [(1, 1), (2, 2)] * 3


def test_a_run_is_a_trace_too(log: Path, tmp_path: Path, dovetail: Call) -> None:
    journal, file = tmp_path / "journal.jsonl", tmp_path / "summary.json"
    simulate(log, cluster="8x1cpu", policy="fcfs", journal=journal)
    done = dovetail("compare", journal, "--policy", "fcfs,easy,sjf", "--summary", file)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "10 replicates: submissions moved by up to" in said
    assert "other moments of the same submissions" in said
    assert "corrected for 2 policies compared" in said
    assert {one["verdict"] for one in json.loads(file.read_text())["mean_wait"].values()} <= {"clear", "open"}

    together = tmp_path / "together.swf"
    fields = [line.split() for line in LOG.splitlines()[1:]]
    together.write_text(
        "; MaxProcs: 8\n" + "".join(" ".join([n, "0", *rest]) + "\n" for n, _, *rest in fields)
    )
    journal = tmp_path / "together.jsonl"
    simulate(together, cluster="8x1cpu", policy="fcfs", journal=journal)
    assert "replicate" not in dovetail("compare", journal, "--policy", "fcfs,easy").stdout
    done = dovetail("compare", journal, "--policy", "fcfs,easy", "--replicates", "3")
    said = " ".join(done.stdout.split())
    assert "3 replicates: jobs of one instant in another order." in said
    assert "other orders of the same submissions" in said


def test_a_model_is_drawn_afresh(capsys: pytest.CaptureFixture[str]) -> None:
    source = "synthetic:rigid?jobs=40&nodes=8&seed=5"
    found = compared(capsys, source, "--policy", "fcfs", "--cluster", "8x1cpu", "--replicates", "3")
    assert [(one["seed"], one["replicate"]) for one in found] == [(None, 0), (6, 1), (7, 2)]
    assert len({one["makespan"] for one in found}) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "2", "--replicates", "2"), "found --seeds and --replicates, expected one of them"),
        (("--jitter", "soon"), "--jitter"),
        (("--bootstrap", "week"), "expected none, or two weeks at least"),
        (("--live", "--replicates", "2"), "found --replicates with --live, expected it in simulation only"),
    ],
)
def test_what_cannot_be_drawn(
    log: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert status_of(["compare", str(log), "--cluster", "8x1cpu", *arguments]) == 2
    assert said in capsys.readouterr().err


GANGS = "synthetic:rigid?jobs=60&nodes=8"


def test_a_policy_that_cannot_place_the_jobs_is_left_out_and_why_is_said() -> None:
    with pytest.warns(DovetailWarning, match=r"^policy min-min places each job on one node; .*: left out of"):
        found = comparison.compare(GANGS, "fcfs,min-min,easy", cluster="8x1cpu", replicates=2)
    assert found.policies == ["fcfs", "easy"]
    assert len(found) == 4
    with pytest.raises(UnsupportedWorkload, match="policy min-min places each job on one node"):
        comparison.compare(GANGS, "min-min,brr", cluster="8x1cpu", replicates=1)
    with pytest.raises(UnsupportedWorkload, match="policy min-min places each job on one node"):
        comparison.compare(GANGS, "fcfs", cluster="8x1cpu", replicates=1, reference="min-min")


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_live_comparisons_leave_it_out_too(dovetail: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[app]]\nname = "x"\n[[app.implementation]]\nname = "cpu"\ncommand = ["true"]\n'
        '[[job]]\napp = "x"\nnodes = 2\n'
    )
    cluster = '[[node]]\nname = "a"\ncores = [0]\n[[node]]\nname = "b"\ncores = [1]\n'
    (tmp_path / "cluster.toml").write_text(cluster)
    where = ("jobs.toml", "--cluster", "cluster.toml", "--live")
    done = dovetail("compare", *where, "--policy", "min-min,brr")
    assert done.returncode == 2
    assert done.stderr.count("places each job on one node") == 1
    assert "starts on" not in done.stderr
