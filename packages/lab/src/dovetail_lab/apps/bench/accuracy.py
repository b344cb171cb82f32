"""How well runtime models predict sizes that they have not seen, on measured runs of the sixteen apps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from dovetail.history.base import canonical_inputs, request_key
from dovetail.model import Prediction
from dovetail.runtimes.base import HistoryModel, Query
from dovetail.runtimes.registry import make_model
from dovetail_lab.apps.bench.measured import MeasuredRun, run_of, to_history

MODELS = ("least-squares", "power", "learned")


@dataclass(frozen=True, slots=True)
class JudgedPrediction:
    """One run at an unseen size and its prediction by a model that has seen the training sizes."""

    run: MeasuredRun
    prediction: Prediction | None

    @property
    def error(self) -> float:
        """|predicted - actual| / actual; infinite without a prediction."""
        if self.prediction is None:
            return math.inf
        return abs(self.prediction.expected - self.run.seconds) / self.run.seconds

    @property
    def is_covered(self) -> bool:
        """Whether the actual time lies in the 90 % interval."""
        found = self.prediction
        return found is not None and found.lower <= self.run.seconds <= found.upper


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A model over all apps and devices.

    ``median_error`` and ``p90_error`` are over the unseen sizes (of each app and device) and compare the
    prediction with the median of the size's runs: how one run differs from the next is no error of a model.
    ``run_error`` is the median over single runs, with that; ``coverage`` the share of runs in the interval.
    """

    model: str
    sizes: int
    runs: int
    median_error: float
    p90_error: float
    run_error: float
    coverage: float


def predict_run(model: HistoryModel, run: MeasuredRun) -> Prediction | None:
    """The model's prediction of such a run."""
    as_run = run_of(run)
    return model.ask(
        Query(
            as_run.app,
            as_run.implementation,
            as_run.device_class,
            request_key(as_run),
            canonical_inputs(as_run.inputs),
        )
    )


def judge_model(measured: Sequence[MeasuredRun], model: str) -> list[JudgedPrediction]:
    """Learn from the runs with the role ``train``, in their order; predict those with the role ``unseen``."""
    made = make_model(model, to_history(m for m in measured if m.role == "train"))
    return [
        JudgedPrediction(m, predict_run(made, m)) for m in measured if m.role == "unseen" and m.seconds > 0
    ]


def compare_models(measured: Sequence[MeasuredRun], models: Iterable[str] = MODELS) -> list[Accuracy]:
    """Every model on the same runs. What it cannot predict counts as infinitely wrong, and not covered."""
    return [_summarize_model(name, judge_model(measured, name)) for name in models]


def _summarize_model(model: str, rows: Sequence[JudgedPrediction]) -> Accuracy:
    if not rows:
        return Accuracy(model, 0, 0, math.nan, math.nan, math.nan, math.nan)
    sizes: dict[tuple[str, str, int], list[JudgedPrediction]] = {}
    for row in rows:
        sizes.setdefault((row.run.app, row.run.device, row.run.n), []).append(row)
    # One error for each size: ten runs of one size must not count ten times.
    errors = []
    for own in sizes.values():
        actual, predicted = median(row.run.seconds for row in own), own[0].prediction
        errors.append(math.inf if predicted is None else abs(predicted.expected - actual) / actual)
    return Accuracy(
        model,
        len(sizes),
        len(rows),
        median(errors),
        float(np.quantile(errors, 0.9, method="higher")),
        median(row.error for row in rows),
        sum(row.is_covered for row in rows) / len(rows),
    )
