"""``dovetail bench``: real runs of two small apps, and the forms of its output."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import DeviceClass
from dovetail_lab.apps.bench.measured import MeasuredRun, write_measurements

ONE_CORE = '[[node]]\nname = "here"\ncores = [{core}]\n'


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(ONE_CORE.format(core=min(os.sched_getaffinity(0))))
    return str(path)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    measured = [
        MeasuredRun("fft", device, role, n, seconds, seconds, 0.0)
        for n, role in ((100, "train"), (200, "train"), (400, "train"), (300, "unseen"), (800, "unseen"))
        for device, seconds in (("cpu", n / 100), ("opencl", 1 + n / 400))
    ]
    write_measurements(measured, path)
    return path


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_runs_fill_the_history(
    tmp_path: Path, cluster: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    history, csv = tmp_path / "history.sqlite", tmp_path / "runs.csv"
    options = ["--apps", "reduction,scan", "--sizes", "1000,2000", "--repeat", "1", "--cluster", cluster]
    assert status_of(["bench", *options, "--history", str(history), "--csv", str(csv), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(row["app"], row["n"]) for row in said["rows"]] == [
        ("reduction", 1000), ("reduction", 2000), ("scan", 1000), ("scan", 2000),
    ]  # fmt: skip
    assert all(row["devices"]["cpu"]["runs"] == 1 for row in said["rows"])
    assert said["preferred"]["scan"] == [{"n": 1000, "device": "cpu"}]
    with SqliteHistory(history) as kept:
        recorded = [run for app in ("reduction", "scan") for run in kept.runs(app)]
    assert {(run.app, run.inputs["n"]) for run in recorded} == {
        (row["app"], row["n"]) for row in said["rows"]
    }
    assert {run.device_class for run in recorded} == {DeviceClass("cpu")}
    assert len(csv.read_text().splitlines()) == 5


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_a_failed_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "cluster.toml"
    core = min(os.sched_getaffinity(0))
    path.write_text(f'[[node]]\nname = "here"\ncores = [{core}]\ndevices = [{{ kind = "cuda" }}]\n')
    options = ["--apps", "scan", "--sizes", "1000", "--repeat", "1", "--cluster", str(path)]
    assert status_of(["bench", *options, "--history", str(tmp_path / "h.sqlite"), "--quiet"]) == 1
    captured = capsys.readouterr()
    assert "scan-1000-cuda-1: FAILED" in captured.err
    assert "scan" in captured.out


def test_stored_runs_as_a_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["bench", "--from", str(runs), "--accuracy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "app", "n", "cpu", "s", "opencl", "s", "speedup", "transfer", "preferred", "device",
    ]  # fmt: skip
    assert lines[2].split()[:6] == ["fft", "100", "1.000", "1.250", "0.80", "0.0"]
    assert "cpu, from" in lines[2]
    assert any(line.split()[:2] == ["learned", "4"] for line in lines)


def test_stored_runs_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["bench", "--from", str(runs), "--accuracy", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {row["model"]: row["sizes"] for row in said["accuracy"]} == {
        "least-squares": 4, "power": 4, "learned": 4,
    }  # fmt: skip
    assert said["rows"][0]["speedup"] == {"opencl": pytest.approx(0.8)}
    assert said["history"] is None


def test_accuracy_without_unseen_sizes_is_still_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.csv"
    write_measurements([MeasuredRun("fft", "cpu", "small", 64, 0.5, 0.5, 0.0)], path)
    assert status_of(["bench", "--from", str(path), "--accuracy", "--json"]) == 0
    said = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert said["accuracy"][0]["median_error"] is None
    assert status_of(["bench", "--from", str(path), "--accuracy"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apps", "nothing"], "--apps: found 'nothing'"),
        (["--sizes", "tiny"], "--sizes: found 'tiny'"),
        (["--accuracy", "--sizes", "small"], "--sizes: found with --accuracy"),
        (["--from", "no-such-file.csv"], "no-such-file.csv: cannot be read"),
        (["--repeat", "0"], "repeat"),
        (["--sizes", ""], "--sizes: found ''"),
        (["--apps", "scan", "--csv", "no-such-folder/x.csv"], "x.csv: cannot be written: its folder is not"),
        (["--from", "x.csv", "--repeat", "3"], "--repeat: found with --from"),
    ],
)
def test_bad_use_is_refused(
    arguments: list[str], message: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["bench", "--cluster", cluster, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


HEADER = "app,device,role,n,seconds,cpu_seconds,transfer_seconds\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found the columns none"),
        (HEADER, "found no run below the header"),
        (HEADER + "fft,cpu,small,8,1,1,1\nfft,cpu,small,x,1,1,1\n", "line 3: n: found 'x'"),
        (HEADER + "fft,cpu,small,-8,1,1,1\n", "line 2: n: found '-8'"),
        (HEADER + "fft,cpu,small,8,-1,1,1\n", "line 2: seconds: found '-1'"),
        (HEADER + "fft,cpu,small,8,1,nan,1\n", "line 2: cpu_seconds: found 'nan'"),
        (HEADER + "fft,,small,8,1,1,1\n", "line 2: device: found nothing"),
        (HEADER + "nope,cpu,small,8,1,1,1\n", "line 2: app: found 'nope'"),
        (HEADER + "fft,cpu,small,8,1,1\n", "line 2: found fewer than 7 fields"),
        (HEADER + "fft,cpu,small,8,1,1,1,1\n", "line 2: found more than 7 fields"),
    ],
)
def test_a_malformed_file_of_runs_is_refused_with_line_and_column(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    assert status_of(["bench", "--from", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dovetail: {path}: {message}")
    assert captured.out == ""


def test_apps_choose_among_stored_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["bench", "--from", str(runs), "--apps", "fft", "--json"]) == 0
    assert {row["app"] for row in json.loads(capsys.readouterr().out)["rows"]} == {"fft"}
    assert status_of(["bench", "--from", str(runs), "--apps", "scan"]) == 2
    assert "found no run of scan" in capsys.readouterr().err
