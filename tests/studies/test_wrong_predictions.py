"""`dovetail reproduce wrong-predictions`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.testing.builders import full
from dovetail.workloads.load import load_workload
from dovetail_lab import wrong_predictions
from dovetail_lab.wrong_predictions import FACTORS, Row, wrong_model

TABLE_2 = "published:gregg-table2"


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, float], Row]:
    found = wrong_predictions.factor_rows(names=("history", "best-device", "gpu-only"), seeds=full(200, 12))
    return {(row.policy, row.factor): row for row in found}


def test_right_predictions_give_the_known_makespans(rows: dict[tuple[str, float], Row]) -> None:
    assert rows["gpu-only", 1.0].mean == pytest.approx(4.2276)
    assert rows["best-device", 1.0].mean == pytest.approx(4.0540)
    assert rows["history", 1.0].relative == pytest.approx(3.039 / 4.2276, rel=0.05)


def test_gpu_only_needs_no_predictions(rows: dict[tuple[str, float], Row]) -> None:
    for factor in FACTORS:
        assert rows["gpu-only", factor].mean == pytest.approx(4.2276)
        assert rows["gpu-only", factor].worse == 0


def test_small_errors_cost_little_and_large_ones_much(rows: dict[tuple[str, float], Row]) -> None:
    history = [rows["history", factor].relative for factor in FACTORS]
    assert history[FACTORS.index(1.5)] < 1.1 * history[0]
    assert history[-1] > 1.2 * history[0]
    assert rows["history", 10.0].worse > rows["history", 1.5].worse


def test_errors_are_log_uniform_seeded_and_bounded() -> None:
    w = load_workload(TABLE_2, Cluster.parse("1x1cpu+1gpu"))

    def errors(seed: int) -> list[float]:
        model = wrong_model(w, 3.0, np.random.Generator(np.random.PCG64(seed)))
        found = []
        for job in w.jobs:
            for choice in job.choices:
                true = w.truth.seconds(job, choice.implementation, choice.request)
                kind = Cluster.parse("1x1cpu+1gpu").device_classes(choice.implementation.kind)[0]
                said = model.predict(job, choice.implementation, choice.request, kind)
                assert said is not None
                assert true is not None
                found.append(said.expected / true)
        return found

    assert errors(1) == errors(1)
    assert errors(1) != errors(2)
    logs = [math.log(e) / math.log(3) for seed in range(20) for e in errors(seed)]
    assert -1 <= min(logs) < -0.9
    assert 0.9 < max(logs) <= 1
    assert abs(np.mean(logs)) < 0.1


def test_the_same_seeds_in_several_processes() -> None:
    one = wrong_predictions.factor_rows(names=("history",), factors=(2.0,), seeds=25)
    assert wrong_predictions.factor_rows(names=("history",), factors=(2.0,), seeds=25, workers=2) == one


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found 0 seeds"):
        wrong_predictions.factor_rows(seeds=0)
    with pytest.raises(InputError, match=r"found the factor 0[.]5"):
        wrong_predictions.factor_rows(factors=(0.5,))
    path = tmp_path / "jobs.toml"
    path.write_text('[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\n[[job]]\napp = "a"\n')
    with pytest.raises(InputError, match="does not give the true times"):
        wrong_predictions.factor_rows(str(path))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong_predictions.command(
        seeds=2, names="history,gpu-only", workers=1, as_json=True, out=tmp_path / "out"
    )
    said = json.loads(capsys.readouterr().out)
    assert [(row["policy"], row["factor"]) for row in said["rows"]] == [
        (policy, factor) for policy in ("history", "gpu-only") for factor in FACTORS
    ]
    assert (tmp_path / "out" / "wrong-predictions.svg").read_text().startswith("<?xml")
    wrong_predictions.command(seeds=2, workers=1, quiet=True)
    assert "predictions off by up to" in capsys.readouterr().out
