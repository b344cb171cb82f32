from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail_lab.packing.registry import ALGORITHMS

TABLE = {
    "processors": 4,
    "times": [
        [60, 32, 24, 20],
        [48, 30, 22, 18],
        [40, 21, 15, 12],
        [30, 18, 14, 12],
        [24, 14, 11, 10],
        [12, 8, 6, 5],
    ],
}


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(TABLE))
    return str(path)


def test_json_form(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["pack", table, "--k", "3", "--algorithm", "pack-by-pack-9", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    found = json.loads(captured.out)
    assert found["cost"] == 65
    assert found["packs"] == [
        [{"task": 4, "processors": 3, "time": 11.0}, {"task": 5, "processors": 1, "time": 12.0}],
        [{"task": 2, "processors": 2, "time": 21.0}, {"task": 3, "processors": 2, "time": 18.0}],
        [{"task": 0, "processors": 2, "time": 32.0}, {"task": 1, "processors": 2, "time": 30.0}],
    ]
    assert found["relative_cost"] == pytest.approx(0.8442, abs=5e-5)
    assert found["packing_ratio"] == pytest.approx(0.95)
    assert found["relative_response_time"] == pytest.approx(0.9727, abs=5e-5)
    assert found["lower_bound"] is None
    assert found["proven_optimal"] is False
    assert found["seconds"] >= 0.0
    assert "schedule" not in found


def test_list_has_a_schedule(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["pack", table, "--algorithm", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "packs" not in found
    assert found["cost"] == max(entry["start"] + entry["time"] for entry in found["schedule"]) == 59
    assert found["lower_bound"] == 54.5


def test_auto_is_proven_here_and_k_above_p_counts_as_p(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["pack", table, "--k", "9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["k"], found["cost"], found["lower_bound"], found["proven_optimal"]) == (4, 65, 65, True)


def test_picture_and_energy(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "packs.svg"
    arguments = ["--k", "2", "--algorithm", "matching", "--idle-watts", "10", "--busy-watts", "100"]
    assert status_of(["pack", table, *arguments, "--picture", str(drawn)]) == 0
    shown = capsys.readouterr().out
    assert "cost               65 s" in shown
    assert "247, 13 processor-seconds" in shown
    assert "24830 J" in shown
    assert "proven optimal" in shown
    assert "    0 4444" in shown
    assert "\x1b" not in shown
    assert drawn.read_text().startswith("<svg")


def test_compare(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    assert status_of(["pack", table, "--k", "2", "--compare", "--json", "--time-limit", "0.2"]) == 0
    found = {entry["algorithm"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert set(found) == set(ALGORITHMS)
    assert "at most min" in found["one-pack"]["refused"]
    assert all(entry["cost"] >= 65 for name, entry in found.items() if "cost" in entry and name != "list")
    assert status_of(["pack", table, "--k", "4", "--compare", "--time-limit", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "The pack barrier costs 10.2%" in shown
    assert "matching solves k = 2 only" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "0"], "k is 0"),
        (["--algorithm", "best"], "'best' is not known"),
        (["--algorithm", "one-pack"], "at most min(k, p) = 4"),
        (["--algorithm", "matching"], "k = 2 only, k is 4"),
        (["--time-limit", "-1"], "--time-limit: found -1, expected seconds"),
        (["--idle-watts", "3"], "both"),
        (["--idle-watts", "-3", "--busy-watts", "1"], "--idle-watts: found -3, expected"),
        (["--picture", "packs.gif"], "--picture"),
        (["--k", "0", "--compare"], "k is 0"),
    ],
)
def test_refusals(table: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["pack", table, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_malformed_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ragged.json"
    path.write_text('{"processors": 2, "times": [[2, 1], [3]]}')
    assert status_of(["pack", str(path)]) == 2
    assert (
        capsys.readouterr().err
        == f"dovetail: {path}: times: task 1: has 1 times, expected 2, for 1 to 2 processors\n"
    )


def test_a_wrong_option_is_one_sentence_where_times_are_repaired_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slow.json"
    path.write_text('{"processors": 2, "times": [[2, 3]]}')
    assert status_of(["pack", str(path), "--k", "0"]) == 2
    assert capsys.readouterr().err == "dovetail: k is 0, expected at least 1\n"


def test_a_repair_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slow.json"
    path.write_text('{"processors": 2, "times": [[2, 3]]}')
    assert status_of(["pack", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["cost"] == 2
    assert "warning" in captured.err
    assert "Equation 1" in captured.err


def test_random_proc_range(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for draw in ("share", "full"):
        arguments = ["--algorithm", "random-proc-1", "--k", "4", "--range", draw, "--seed", "2", "--json"]
        assert status_of(["pack", table, *arguments]) == 0
        found.append(json.loads(capsys.readouterr().out)["cost"])
    assert found[0] != found[1]
