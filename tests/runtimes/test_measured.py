"""Predictions of real commands, measured by `benchmarks/prediction/measure.py`, alone and beside others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from statistics import median
from types import ModuleType

import numpy as np
import pytest

from dovetail.testing.builders import full

FOLDER = Path(__file__).parents[2] / "benchmarks" / "prediction"


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judge_of_predictions", FOLDER / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_on_a_calm_machine_unseen_sizes_are_predicted_within_the_floor(judge: ModuleType) -> None:
    """Median error at the fourth run of ten sizes each: below 10 %, and near what two runs differ by."""
    runs = judge.load(FOLDER / "calm.jsonl.gz")
    learned, alone = (
        median(row.error for row in judge.judge(runs, judge.MODELS[name], unseen=True, turns=(4,)))
        for name in ("learned", "run times alone")
    )
    assert judge.floor(runs) <= 0.03
    assert learned <= 0.03
    assert learned <= alone


def test_flags_whose_product_matters_categories_and_pipelines(judge: ModuleType) -> None:
    runs = judge.load(FOLDER / "calm.jsonl.gz")
    rows = judge.judge(runs, judge.MODELS["learned"], unseen=True, turns=(4,))
    for name in ("python:walks.py", "python:solve.py", "gzip+tr+sort+uniq+gzip"):
        found = [row.error for row in rows if row.run.app == name]
        assert len(found) == 10, name
        assert median(found) <= 0.10, name


def test_no_prediction_shouts_after_the_second_run(judge: ModuleType) -> None:
    runs = judge.load(FOLDER / "calm.jsonl.gz")
    rows = judge.judge(runs, judge.MODELS["learned"], unseen=False)
    assert max(row.factor for row in rows if row.before >= 2) <= 5


@pytest.mark.parametrize("name", ["busy-1", "calm", "busy-2"][: full(3, 1)])
def test_no_law_shouts_whatever_runs_beside_it(judge: ModuleType, name: str) -> None:
    """Of CPU time nothing is off by more than five times from an app's third run on, also under load."""
    rows = judge.judge(
        judge.of_cpu_time(judge.load(FOLDER / f"{name}.jsonl.gz")), judge.LearnedModel, unseen=False
    )
    assert len(rows) > 250
    assert max(row.factor for row in rows if row.before >= 2) <= 5


def test_under_load_the_same_inputs_differ_by_more_than_five_times(judge: ModuleType) -> None:
    """So of run times nobody can promise it: the last run of the very same command would be off by more."""
    runs = judge.load(FOLDER / "busy-1.jsonl.gz")
    rows = judge.judge(runs, judge.MODELS["learned"], unseen=False)
    assert max(row.factor for row in rows if row.before >= 2) < judge.swing(runs)
    assert judge.swing(runs) > 5
    assert judge.swing(judge.load(FOLDER / "calm.jsonl.gz")) < 1.5


@pytest.mark.parametrize("seed", range(full(4, 1)))
def test_in_any_order_of_the_first_runs_nobody_shouts(judge: ModuleType, seed: int) -> None:
    """The calm runs, each input once, in another order: within five times from the third run of an app on."""
    drawn = np.random.Generator(np.random.PCG64(seed))
    runs = judge.load(FOLDER / "calm.jsonl.gz")
    order = [runs[i] for i in drawn.permutation(len(runs)).tolist()]
    first = list({(run.app, judge.key_of(run)): run for run in order}.values())
    assert len(first) >= 60
    rows = [row for row in judge.judge(first, judge.MODELS["learned"], unseen=False) if row.before >= 2]
    assert max(row.factor for row in rows) <= 5
    assert median(row.error for row in rows) <= 0.10


@pytest.mark.parametrize("name", ["busy-1", "busy-2"][: full(2, 1)])
def test_under_load_cpu_times_cut_the_error(judge: ModuleType, name: str) -> None:
    """To at most 0.7 of what run times alone give; nine of ten runs stay inside their interval, nearly."""
    runs = judge.load(FOLDER / f"{name}.jsonl.gz")
    rows = {
        model: judge.judge(runs, judge.MODELS[model], unseen=True, turns=(3, 4))
        for model in ("learned", "run times alone")
    }
    learned, alone = (median(row.error for row in rows[model]) for model in rows)
    assert learned <= 0.7 * alone
    assert sum(row.inside for row in rows["learned"]) / len(rows["learned"]) >= 0.8
