"""``dovetail split``."""

from __future__ import annotations

import json

import pytest

from dovetail.cli.main import status_of

PAPER = ["--tasks", "4000", "--cpu-slots", "14", "--gpu-slots", "2", "--cpu-time", "77.4"]


def split(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float]:
    assert status_of(["split", *arguments, "--json"]) == 0
    found: dict[str, float] = json.loads(capsys.readouterr().out)
    return found


def test_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    found = split(capsys, *PAPER, "--gpu-time", "27.9")
    assert list(found) == [
        "acceleration", "cpu_tasks", "gpu_tasks", "fractional_makespan", "optimal_makespan",
        "greedy_makespan", "finish_time_makespan", "cpu_only_makespan",
    ]  # fmt: skip
    assert found == {
        "acceleration": pytest.approx(2.7742, abs=1e-4),
        "cpu_tasks": pytest.approx(2864.69, abs=0.01),
        "gpu_tasks": pytest.approx(1135.31, abs=0.01),
        "fractional_makespan": pytest.approx(15837.6, abs=0.05),
        "optimal_makespan": pytest.approx(15867.0),
        "greedy_makespan": pytest.approx(15867.0),
        "finish_time_makespan": pytest.approx(15867.0),
        "cpu_only_makespan": pytest.approx(19350.0),
    }


def test_many_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    found = split(capsys, *PAPER, "--gpu-time", "27.9", "--nodes", "64")
    assert found["cpu_only_makespan"] == pytest.approx(309.6)
    assert found["greedy_makespan"] == pytest.approx(309.6)
    assert found["optimal_makespan"] == found["finish_time_makespan"] == pytest.approx(306.9)
    assert found["fractional_makespan"] == pytest.approx(247.5, abs=0.05)


def test_a_larger_factor(capsys: pytest.CaptureFixture[str]) -> None:
    found = split(capsys, *PAPER, "--gpu-time", str(77.4 / 8.44), "--nodes", "64")
    assert found["greedy_makespan"] == pytest.approx(232.2)
    assert found["finish_time_makespan"] == pytest.approx(165.1, abs=0.05)


@pytest.mark.parametrize(("cpus", "gpus"), [("0", "2"), ("3", "0")])
def test_one_kind_alone(capsys: pytest.CaptureFixture[str], cpus: str, gpus: str) -> None:
    found = split(
        capsys, "--tasks", "7", "--cpu-slots", cpus, "--gpu-slots", gpus, "--cpu-time", "3", "--gpu-time", "1"
    )
    waves = 9.0 if gpus == "0" else 4.0
    assert found["optimal_makespan"] == found["greedy_makespan"] == found["finish_time_makespan"] == waves


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["split", *PAPER, "--gpu-time", "27.9", "--nodes", "64"]) == 0
    said = capsys.readouterr().out
    assert "CPU tasks 2,864.7, GPU tasks 1,135.3" in said
    assert "306.9 s   1.000 of the optimum" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--cpu-time", "0"], "--cpu-time: found 0, expected seconds above 0"),
        (["--gpu-time", "nan"], "--gpu-time: found nan"),
        (["--tasks", "0"], "--tasks: found '0', expected"),
        (["--cpu-slots", "0", "--gpu-slots", "0"], "found no slots"),
        (["--nodes", "1000000"], "--nodes: found more than 1,000,000 slots"),
        (["--cpu-time", "1e12"], "found more than 1e+12 seconds of work"),
        (["--cpu-slots", "-1"], "--cpu-slots"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    capsys: pytest.CaptureFixture[str], change: list[str], message: str
) -> None:
    assert status_of(["split", *PAPER, "--gpu-time", "27.9", *change]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said
