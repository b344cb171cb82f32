"""``dovetail pack --history``: profiles from real runs in a real database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.history import SqliteHistory
from dovetail.model import WHOLE_POOL, DeviceClass, Run, State

TIMES = {
    "mesh": (60.0, 32.0, 24.0, 20.0),
    "solve": (48.0, 30.0, 22.0, 18.0),
    "plot": (12.0, 8.0, 6.0, 5.0),
}


def run(app: str, seconds: float, **changes: object) -> Run:
    values: dict[str, object] = {
        "app": app,
        "implementation": "omp",
        "device_class": DeviceClass("cpu", "epyc"),
        "nodes": 1,
        "cpus": 1,
        "gpus": 0.0,
        "seconds": seconds,
    }
    return Run(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "runs.sqlite"
    with SqliteHistory(path) as history:
        for app, row in TIMES.items():
            for cpus, seconds in enumerate(row, 1):
                # Two runs whose mean is the time, on one node, or half the CPUs on two.
                nodes = 2 if cpus == 4 else 1
                for share in (0.9, 1.1):
                    history.record(run(app, share * seconds, nodes=nodes, cpus=cpus // nodes))
        history.record(run("mesh", 1.0, state=State.FAILED))
        history.record(run("mesh", 2.0, device_class=DeviceClass("gpu", "T4"), gpus=1.0))
    return path


def test_the_measured_means_are_the_profile(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "profile.json"
    arguments = ["--history", str(database), "--write-profile", str(written), "--k", "2", "--json"]
    assert status_of(["pack", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    profile = json.loads(written.read_text())
    assert profile["processors"] == 4
    assert profile["names"] == ["mesh", "plot", "solve"]
    for name, row in zip(profile["names"], profile["times"], strict=True):
        assert row == pytest.approx(TIMES[name])
    # The file gives the same packs again, as CSV too.
    found = json.loads(captured.out)
    table = tmp_path / "profile.csv"
    assert status_of(["pack", str(written), "--k", "2", "--json", "--write-profile", str(table)]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["cost"], again["packs"]) == (found["cost"], found["packs"])
    assert status_of(["pack", str(table), "--k", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packs"] == found["packs"]


def test_between_and_beyond_the_measured_widths(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--history",
        str(database),
        "--apps",
        "mesh,solve",
        "--processors",
        "6",
        "--k",
        "9",
        "--json",
    ]
    assert status_of(["pack", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["processors"], found["k"], found["names"]) == (6, 6, ["mesh", "solve"])


def test_every_input_is_a_task_and_one_width_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.sqlite"
    with SqliteHistory(path) as history:
        for n in (512, 1024):
            history.record(run("mm", 4.0 * n, inputs={"n": n}))
        # Two implementations of one width: their runs are averaged. Slower on two cores: repaired.
        for name, seconds in (("omp", 600.0), ("mpi", 620.0)):
            history.record(run("mm", seconds, inputs={"n": 128}, cpus=2, implementation=name))
        history.record(run("mm", 512.0, inputs={"n": 128}))
    profile = tmp_path / "p.json"
    assert status_of(["pack", "--history", str(path), "--json", "--write-profile", str(profile)]) == 0
    captured = capsys.readouterr()
    found = json.loads(profile.read_text())
    assert found["names"] == ["mm n=1024", "mm n=128", "mm n=512"]
    assert found["times"] == [[4096.0, 4096.0], [512.0, 512.0], [2048.0, 2048.0]]
    lines = captured.err.splitlines()
    assert "on one number of processors only" in lines[0]
    assert "mm n=512 (1)" in lines[0]
    assert "mm n=128: 1 slower than with fewer processors (Equation 1)" in lines[1]


def test_whole_nodes_are_processors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.sqlite"
    with SqliteHistory(path) as history:
        for nodes, seconds in ((1, 100.0), (2, 60.0), (4, 40.0)):
            history.record(run("cfd", seconds, nodes=nodes, cpus=WHOLE_POOL))
        history.record(run("plot", 5.0))
    profile = tmp_path / "p.csv"
    arguments = ["pack", "--history", str(path), "--apps", "cfd", "--write-profile", str(profile)]
    assert status_of(arguments) == 0
    header, row = profile.read_text().splitlines()
    assert header == "name,1,2,3,4"
    assert [float(cell) for cell in row.split(",")[1:]] == pytest.approx([100.0, 60.0, 48.0, 40.0], rel=0.05)
    capsys.readouterr()
    assert status_of(["pack", "--history", str(path), "--json"]) == 2
    assert "runs of app 'cfd' had all CPUs of their nodes" in capsys.readouterr().err
    assert status_of(["pack", "--history", str(path), "--width", "nodes", "--json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "of times nor --history, expected one"),
        (["FILE", "--history", "DB"], "and --history, expected one of them"),
        (["FILE", "--apps", "a"], "--apps goes with --history"),
        (["--history", "DB", "--apps", "nothing"], "no run of app 'nothing'"),
        (["--history", "DB", "--processors", "0"], "--processors: found 0"),
        (["--history", "DB", "--device", "tpu", "--apps", "mesh"], "--device"),
        (["--history", "DB", "--device", "gpu", "--apps", "mesh"], "no completed run of app 'mesh' on CPUs"),
        (["--history", "DB", "--write-profile", "p.toml"], "--write-profile: found 'p.toml'"),
        (["--history", "DB", "--write-profile", "missing/p.json"], "cannot be written"),
        (["--history", "missing.sqlite"], "missing.sqlite"),
    ],
)
def test_refusals(
    database: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = database.with_name("t.json")
    file.write_text('{"processors": 1, "times": [[1]]}')
    given = [{"FILE": str(file), "DB": str(database)}.get(word, word) for word in arguments]
    assert status_of(["pack", *given, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_several_classes_need_a_choice(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SqliteHistory(database) as history:
        history.record(run("plot", 9.0, device_class=DeviceClass("cpu", "xeon")))
    assert status_of(["pack", "--history", str(database), "--apps", "plot"]) == 2
    assert "cpu:epyc, cpu:xeon" in capsys.readouterr().err
    arguments = ["pack", "--history", str(database), "--apps", "plot", "--device", "cpu:xeon", "--json"]
    assert status_of(arguments) == 0
    assert json.loads(capsys.readouterr().out)["cost"] == 9.0
