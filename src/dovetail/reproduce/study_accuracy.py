"""How well runtime models predict sizes that they have not seen, on measured runs of the sixteen apps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.history.base import canonical_inputs, request_key
from dovetail.model import Prediction
from dovetail.reproduce.study_suite import Measured, run_of, to_history
from dovetail.runtimes.base import HistoryModel, Query
from dovetail.runtimes.registry import make_model

__all__ = ["MODELS", "Accuracy", "Judged", "accuracy", "ask", "judged"]

MODELS = ("least-squares", "power", "learned")


@dataclass(frozen=True, slots=True)
class Judged:
    """One run at an unseen size and what a model that has seen the training sizes says of it."""

    run: Measured
    prediction: Prediction | None

    @property
    def error(self) -> float:
        """|predicted - actual| / actual; infinite without a prediction."""
        if self.prediction is None:
            return math.inf
        return abs(self.prediction.expected - self.run.seconds) / self.run.seconds

    @property
    def covered(self) -> bool:
        """Whether the actual time lies in the 90 % interval."""
        found = self.prediction
        return found is not None and found.lower <= self.run.seconds <= found.upper


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A model over all apps and devices: median and 90th percentile of the absolute error, coverage."""

    model: str
    runs: int
    median_error: float
    p90_error: float
    coverage: float


def ask(model: HistoryModel, run: Measured) -> Prediction | None:
    """What the model says of such a run."""
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


def judged(measured: Sequence[Measured], model: str) -> list[Judged]:
    """Learn from the runs with the role ``train``, in their order; predict those with the role ``unseen``."""
    made = make_model(model, to_history(m for m in measured if m.role == "train"))
    return [Judged(m, ask(made, m)) for m in measured if m.role == "unseen" and m.seconds > 0]


def accuracy(measured: Sequence[Measured], models: Iterable[str] = MODELS) -> list[Accuracy]:
    """Every model on the same runs. Runs that it cannot predict count as infinitely wrong, not covered."""
    found: list[Accuracy] = []
    for name in models:
        rows = judged(measured, name)
        errors = np.array([row.error for row in rows])
        if not len(errors):
            found.append(Accuracy(name, 0, math.nan, math.nan, math.nan))
            continue
        covered = sum(row.covered for row in rows) / len(rows)
        found.append(
            Accuracy(
                name,
                len(rows),
                float(np.median(errors)),
                float(np.quantile(errors, 0.9, method="higher")),
                covered,
            )
        )
    return found
