from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dovetail.errors import InputError
from dovetail.packing.synthetic import set_1_like, set_2
from dovetail.reproduce.aupy import FIGURES, HEURISTICS, PAPER_MILLISECONDS, SETS, approx_steps, run


def test_the_study(tmp_path: Path) -> None:
    console = Console(record=True, width=100, file=(tmp_path / "shown.txt").open("w"))
    found = run(seeds=2, out=tmp_path / "aupy", console=console)
    console.file.close()
    shown = (tmp_path / "shown.txt").read_text()
    assert "Table 1" in shown
    assert "Not reproduced" in shown
    assert len(found.points) == 7 * (5 + 8 + 5) + 5
    assert len(found.timings) == 7 * 3
    for name in FIGURES:
        assert (tmp_path / "aupy" / f"{name}.svg").stat().st_size > 0
    assert len(json.loads((tmp_path / "aupy" / "aupy.json").read_text())["claims"]) == len(found.claims)
    for k in SETS["I-like"][1]:
        optimum = found.at("I-like", k, "subset-dp").relative_cost
        assert all(found.at("I-like", k, name).relative_cost >= optimum - 1e-12 for name in HEURISTICS)
    # The claims that the structure of the profiles decides, whatever the seed.
    verdicts = {
        claim.statement.split(":")[0] + claim.statement[-12:]: claim.verdict for claim in found.claims
    }
    assert set(verdicts.values()) <= {"yes", "in part", "no"}
    assert found.at("II", 16, "pack-by-pack-9").relative_cost < 0.2
    assert found.at("III", 32, "pack-by-pack-9").relative_cost < 0.1


def test_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    run(seeds=1, as_json=True)
    assert json.loads(capsys.readouterr().out)["seeds"] == 1


def test_pack_approx_takes_fewer_steps_on_the_second_set() -> None:
    first = [approx_steps(set_1_like(np.random.default_rng(seed))) for seed in range(5)]
    second = [approx_steps(set_2(np.random.default_rng(seed))) for seed in range(5)]
    assert max(second) <= 5 < np.mean(first)
    assert approx_steps(np.array([[60, 32, 24, 20], [48, 30, 22, 18]], dtype=float)) > 2
    assert set(PAPER_MILLISECONDS) == set(HEURISTICS)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 seeds"):
        run(seeds=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run(seeds=1, out=tmp_path / "file")
