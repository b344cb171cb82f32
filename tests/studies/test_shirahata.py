"""The study of hybrid maps: its figures keep to the reference, its overheads are real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.testing.builders import full
from dovetail_lab.shirahata import simulated, study
from dovetail_lab.shirahata.measured import overheads
from dovetail_lab.shirahata.simulated import ALPHA, NEEDED, Case


def mean(case: Case, seeds: int) -> float:
    return sum(case.played(seed).makespan for seed in range(1, seeds + 1)) / seeds


@pytest.mark.parametrize(
    ("alpha", "noise", "greedy", "finish_time"),
    [
        (ALPHA, 0.1, 1.07, 1.12),
        (ALPHA, 0.2, 1.12, 1.17),
        (NEEDED, 0.1, 1.40, 1.83),
        (NEEDED, 0.2, 1.40, 1.76),
    ],
)
def test_speed_ups_on_64_nodes_are_the_references(
    alpha: float, noise: float, greedy: float, finish_time: float
) -> None:
    """An independent program's, over 4 seeds, its means taken without the gap to the next heartbeat."""
    seeds = full(4, 2)
    hadoop = mean(Case("hadoop", 64, alpha, noise), seeds)
    assert hadoop / mean(Case("hadoop-gpu2", 64, alpha, noise), seeds) == pytest.approx(greedy, abs=0.06)
    ours = Case("finish-time", 64, alpha, noise, count_gap=False)
    assert hadoop / mean(ours, seeds) == pytest.approx(finish_time, abs=0.15)  # seeds differ by 0.05


def test_the_gap_counted_the_rule_never_loses_to_greedy() -> None:
    """Ignored, it loses 4 % in one case of the reference: 32 nodes, heartbeats, no noise."""
    greedy = mean(Case("hadoop-gpu2", 32, NEEDED, 0.0), 3)
    assert mean(Case("finish-time", 32, NEEDED, 0.0), 3) <= greedy * 1.001
    assert mean(Case("finish-time", 32, NEEDED, 0.0, count_gap=False), 3) > greedy * 1.02


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes, few settings, fewer tasks."""
    monkeypatch.setattr(simulated, "TASKS", 1500)
    for module in (simulated, study):
        monkeypatch.setattr(module, "NODES", (1, 16, 64))
        monkeypatch.setattr(module, "ALPHAS", (ALPHA, NEEDED))
        monkeypatch.setattr(module, "NOISES", (0.1, 0.2))


@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_overheads_are_milliseconds() -> None:
    found = {overhead.what: overhead for overhead in overheads(ray=False, tasks=20)}
    assert set(found) == {
        "a program for each task", "a program that stays", "a function, one task at a time",
        "a function, tiny items together",
    }  # fmt: skip
    for overhead in found.values():
        assert 0 < overhead.overhead < 0.5  # a loaded machine; the paper's are 12 s
        assert overhead.task > overhead.own >= 0
    assert found["a function, tiny items together"].overhead < 1e-4


@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.usefixtures("small")
def test_the_study_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study.command(seeds=1, ray_too=False, workers=1, as_json=True, out=tmp_path / "out", quiet=True)
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "out" / "shirahata.json").read_text())
    names = [panel["name"] for panel in said["panels"]]
    for figure in ("Figure 6", "Figure 7", "Figure 8", "Figure 9"):
        assert any(name.startswith(figure) for name in names)
    verdicts = {claim["text"]: claim["verdict"] for claim in said["claims"]}
    assert verdicts["the proposal is 1.93 times faster than hadoop on 64 nodes"] != "yes"
    assert verdicts["mean times of CPU and GPU tasks grow linearly with the nodes (Figure 7)"] == "yes"
    assert verdicts["starting programs from Hadoop costs 6 % (CPU) and 44 % (GPU)"] == "no"
    clean = next(
        panel for panel in said["panels"] if panel["name"].startswith("Figure 6, factor 2.77, clean")
    )
    rows = dict(zip(clean["rows"], clean["values"], strict=True))
    assert rows["optimum"] == rows["finish-time"]
    assert (tmp_path / "out" / "shirahata.html").stat().st_size > 1000
