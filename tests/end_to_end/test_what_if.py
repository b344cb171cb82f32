"""What nobody knows is called unknown: a what-if shows no number that is a guess."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import load

import dovetail
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import DeviceClass, Note, Run

Call = Callable[..., subprocess.CompletedProcess[str]]

LIST = "python train.py --device {device} --rows 1e6\npython render.py --device {device} --frames 240\n"
BOTH = ("--cluster", "1x8cpu+1gpu", "--cluster", "1x8cpu+2gpu")


@pytest.fixture
def ran(dovetail: Call, environment: dict[str, str], tmp_path: Path) -> Call:
    """The command, after a run of README's first example on a machine without a GPU."""
    environment["CUDA_VISIBLE_DEVICES"] = environment["ROCR_VISIBLE_DEVICES"] = ""
    for name in ("train.py", "render.py"):
        (tmp_path / name).write_text("pass\n")
    (tmp_path / "commands.txt").write_text(LIST)
    done = dovetail("run", "commands.txt", "--on", "cpu,gpu", "--json")
    assert done.returncode == 0, done.stderr
    if any(job["implementation"] != "cpu" for job in load(done)["jobs"]):
        pytest.skip("a GPU is here, and was used")
    assert load(done)["notes"] == []
    return dovetail


def test_a_gpu_on_which_nothing_ran_is_unknown(ran: Call) -> None:
    found = load(ran("compare", "last", *BOTH, "--json"))
    assert [(entry["metrics"], entry["makespan"], entry["jobs"]) for entry in found] == [(None, None, [])] * 4
    assert [[note["code"] for note in entry["notes"]] for entry in found] == [["unknown"]] * 4
    done = ran("compare", "last", *BOTH, "--policy", "history,cpu-only", "--report", "out")
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:4] for line in done.stdout.split("* best")[0].splitlines() if " on 1x" in line]
    found = {(policy, cluster): number for policy, _, cluster, number in rows[::-1]}
    assert [found["history", cluster] for cluster in BOTH[1::2]] == ["unknown"] * 2
    assert all(found["cpu-only", cluster][0].isdigit() for cluster in BOTH[1::2])
    one = load(ran("simulate", "last", *BOTH[:2], "--json"))
    assert (one["metrics"], one["notes"][-1]["code"]) == (None, "unknown")


def test_where_nothing_at_all_is_known_compare_says_so(dovetail: Call, tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text(LIST)
    done = dovetail("compare", "commands.txt", "--on", "cpu,gpu", *BOTH, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [(e["metrics"], e["notes"][-1]["code"]) for e in load(done)] == [(None, "unknown")] * 4


JOBS = """
[[app]]
name = "x"
implementation = [{ name = "cpu", command = "true" }, { name = "gpu", command = "true" }]
[[job]]
app = "x"
id = "first"
inputs = { n = 1 }
times = { %s = 3.0 }
[[job]]
app = "x"
id = "second"
inputs = { n = 2 }
times = { %s = 3.0 }
"""


def _ran_as(tmp_path: Path, kinds: tuple[str, str], cluster: str, policy: str = "fcfs") -> Path:
    """The journal of a run that used these kinds of device."""
    (tmp_path / "jobs.toml").write_text(JOBS % kinds)
    journal = tmp_path / "journal.jsonl"
    dovetail.simulate(tmp_path / "jobs.toml", cluster=cluster, policy=policy, journal=journal)
    return journal


def _history(path: Path, kind: str, model: str, seconds: float) -> Path:
    with SqliteHistory(path) as history:
        for n in (1.0, 2.0):
            history.record(Run("x", kind, DeviceClass(kind, model), 1, 1, 1.0, {"n": n}, seconds))
    return path


def test_the_history_tells_what_the_run_does_not(tmp_path: Path) -> None:
    journal = _ran_as(tmp_path, ("cpu", "cpu"), "1x1cpu")
    options: dict[str, Any] = {"cluster": "1x1cpu+1gpu", "policy": "best-device"}
    unknown = dovetail.simulate(journal, history=tmp_path / "none.sqlite", **options)
    assert not unknown.known
    assert math.isnan(unknown.makespan)
    assert set(unknown.metrics.values()) == {None}
    store = _history(tmp_path / "h.sqlite", "gpu", "T4", 1.0)
    report = dovetail.simulate(journal, history=store, **options)
    assert [job["implementation"] for job in report.jobs] == ["gpu", "gpu"]
    assert report.makespan == pytest.approx(2.0)
    assert [Note.code_of(note) for note in report.result.notes] == ["model", "expected"]


def test_times_of_one_model_are_not_those_of_another(tmp_path: Path) -> None:
    file = """[[node]]
name = "a"
cpus = 1
devices = [{ kind = "gpu", model = "%s" }]
"""
    for model in ("T4", "A100"):
        (tmp_path / f"{model}.toml").write_text(file % model)
    journal = _ran_as(tmp_path, ("gpu", "gpu"), str(tmp_path / "T4.toml"), "gpu-only")
    options: dict[str, Any] = {"policy": "gpu-only", "history": tmp_path / "none.sqlite"}
    for same in (tmp_path / "T4.toml", "1x1cpu+1gpu"):
        assert dovetail.simulate(journal, cluster=same, **options).makespan == pytest.approx(6.0)
    for entry in dovetail.compare(journal, cluster=tmp_path / "A100.toml", **options):
        assert not entry.known


def test_a_policy_that_cannot_do_what_its_name_says_tells(tmp_path: Path) -> None:
    journal = _ran_as(tmp_path, ("cpu", "gpu"), "1x1cpu+1gpu")
    options: dict[str, Any] = {"cluster": "1x1cpu+1gpu", "history": tmp_path / "none.sqlite"}
    found = dovetail.compare(journal, "cpu-only,gpu-only,best-device", **options)
    assert [[Note.code_of(note) for note in report.result.notes] for report in found] == [
        ["unknown", "not_as_named"],
        ["unknown", "not_as_named"],
        ["unknown"],
    ]
    said = " ".join(str(found).split())
    assert "cpu-only ran 1 of 2 jobs elsewhere than its name promises (the first is second as gpu)" in said
