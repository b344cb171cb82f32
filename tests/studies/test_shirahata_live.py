"""Figures 6 to 8 of Shirahata 2010, live on several nodes of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm

from dovetail.cli.main import status_of
from dovetail.testing.builders import full
from dovetail_lab.claims import Chosen, Verdict
from dovetail_lab.shirahata.kmeans import main, sums_by_differences, sums_by_products
from dovetail_lab.shirahata.live import PAPER, REAL, Live, LiveMap
from dovetail_lab.shirahata.live_claims import live_claims
from dovetail_lab.shirahata.study import CONSTANTS, make_live_study

slowly = pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
SECONDS = {"hadoop": 10.0, "hadoop-gpu2": 10 / 1.13, "shares": 10 / 1.93, "finish-time": 10 / 1.93,
           "finish-time-gpu1": 10 / 1.02}  # fmt: skip


def made_up(seconds: dict[str, float]) -> Live:
    """Three rounds in which maps took so long, but for a thousandth."""
    rounds = tuple(
        tuple(
            LiveMap(PAPER, by, policy, 3, {"cpu": 6, "gpu": 3}, s * (1 + k / 1000), {"cpu": 20, "gpu": 28},
                    {"cpu": 0.7, "gpu": 0.2}, 0.7, s, {"cpu": 20, "gpu": 28}, 0.7)
            for by in ("programs", "functions")
            for policy, s in seconds.items()
        )
        for k in range(3)
    )  # fmt: skip
    return Live("slurm", 0.01, ((3, 1), (4, 2), (2, 0)), rounds)


@pytest.mark.holds("shirahata", "Live, slurm: ", "Live, ray: ")
def test_verdicts_follow_the_maps() -> None:
    chosen = Chosen(CONSTANTS)

    def verdicts(seconds: dict[str, float]) -> list[Verdict]:
        return [claim.verdict for claim in live_claims(made_up(seconds), chosen)]

    yes, no, unsaid = Verdict.YES, Verdict.NO, Verdict.UNSAID
    assert verdicts(SECONDS) == [yes, yes, yes, unsaid]
    assert verdicts(dict.fromkeys(SECONDS, 10.0)) == [no, no, no, unsaid]


def test_the_table_and_the_json_have_live_and_simulated() -> None:
    study = make_live_study(made_up(SECONDS))
    (table,) = study.parts
    assert "live" in " ".join(table.columns)
    assert "simulated" in " ".join(table.columns)
    row = table.rows[0]
    assert row[:4] == ("the paper's times, programs", "hadoop", "3", "6+3")
    assert row[5] == "10.00"
    said = json.loads(study.json_text())
    assert len(said["live"]["rounds"]) == 3
    assert said["live"]["nodes"][1] == {"cpus": 4, "gpus": 2}


def test_both_ways_of_k_means_give_the_same_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slower = sums_by_differences(3)
    assert slower[:, -1].sum() == 16_384
    np.testing.assert_allclose(slower, sums_by_products(3))
    (tmp_path / "in").write_text("3\n")
    monkeypatch.setattr(sys, "argv", ["kmeans", "gpu", str(tmp_path / "in"), str(tmp_path / "out")])
    main()
    kind, _, *numbers = (tmp_path / "out").read_text().split()
    assert kind == "gpu"
    np.testing.assert_allclose(np.array(list(map(float, numbers))), slower.ravel())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--engine", "ray"), "--engine: found without --live, expected both"),
        (("--live",), "--engine: found '', expected ray or slurm"),
        (("--live", "--engine", "spark"), "--engine: found 'spark', expected ray or slurm"),
        (("--live", "--engine", "slurm", "--scale", "0"), "--scale: found 0, expected more than 0"),
        (("--live", "--engine", "slurm"), "expected to be inside an allocation"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    words: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert status_of(["reproduce", "shirahata", *words, "--quiet"]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


RUN = """
import json, sys
from dovetail_lab.shirahata.live import run_live
found = run_live("slurm", tasks=18, chunks=6, scale=0.003, counts=(1, 3))
print(json.dumps(found.as_dict()))
"""


@slowly
@needs_slurm
@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.timeout(400)
def test_maps_run_on_three_unlike_nodes_of_slurm(tmp_path: Path) -> None:
    """Split, first phase and makespan beside the simulation; K-means has the sums of one process alone."""
    shapes = (
        NodeShape(1, cpus=3, gpus=1),
        NodeShape(1, cpus=4, gpus=2, partition="p2"),
        NodeShape(1, cpus=2, gpus=0, partition="p3"),
    )
    with SlurmCluster(shapes) as cluster:
        cluster.call("scontrol", "create", "PartitionName=every", "Nodes=n0,n1,n2", "State=UP")
        with cluster.allocation("-N3", "-p", "every", "--exclusive", "-t", "30") as inside:
            done = subprocess.run(
                [sys.executable, "-c", RUN],
                cwd=tmp_path, env=dict(inside), capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["nodes"] == [{"cpus": 3, "gpus": 1}, {"cpus": 4, "gpus": 2}, {"cpus": 2, "gpus": 0}]
    (maps,) = found["rounds"]
    assert {(one["tasks"], one["by"]) for one in maps} == {
        (tasks, by) for tasks in (PAPER, REAL) for by in ("programs", "functions")
    }
    for one in maps:
        assert sum(one["split"].values()) == sum(one["simulated_split"].values())
        # Not before the work can be done: so many tasks of these times on so many workers.
        if one["tasks"] == PAPER:
            seconds = {"cpu": 77.4 * 0.003, "gpu": 27.9 * 0.003}
            rate = sum(count / seconds[kind] for kind, count in one["slots"].items())
            assert one["makespan"] >= 0.99 * 18 / rate
            assert one["first_phase"] >= 0.99 * one["simulated_first_phase"]
            assert one["means"]["cpu"] >= 77.4 * 0.003
    hybrid = next(one for one in maps if one["policy"] == "hadoop-gpu2" and one["nodes"] == 3)
    assert hybrid["slots"] == {"cpu": 6, "gpu": 3}
