"""How well models predict inputs that they have not seen: one key is held out at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.history import MemoryHistory
from dovetail.history.base import MeasuredHistory, canonical_inputs, request_key
from dovetail.model import DeviceClass, Run
from dovetail.records import dataclass
from dovetail.runtimes.base import MAX_RUNS, Query
from dovetail.runtimes.registry import make_model


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors of a model on runs of held-out inputs of one app, implementation and class.

    ``errors`` are |predicted - actual| / actual, a run each; ``covered`` is the share of these runs inside
    their 90 % interval; ``unpredicted`` counts runs for which the model had no prediction.
    """

    model: str
    implementation: str
    device: DeviceClass
    keys: int
    errors: Sequence[float]
    covered: float
    unpredicted: int

    @property
    def median_error(self) -> float:
        """Median absolute error; NaN without predictions."""
        return float(np.median(self.errors)) if self.errors else math.nan

    @property
    def mean(self) -> float:
        """Mean absolute error; NaN without predictions."""
        return float(np.mean(self.errors)) if self.errors else math.nan


def held_out(
    history: MeasuredHistory,
    app: str,
    models: Iterable[str],
    places: Iterable[tuple[str, DeviceClass]],
    *,
    limit: int = 40,
) -> list[HeldOut]:
    """Predict each input from all others, on up to ``limit`` inputs per place, evenly chosen by age.

    Runs flagged as cold are trained on, never judged. Cost: ``limit`` fits a model and place.
    """
    found: list[HeldOut] = []
    for implementation, device in places:
        runs = list(history.recent(app, implementation, device, MAX_RUNS))
        keys = list(dict.fromkeys((request_key(run), canonical_inputs(run.inputs)) for run in runs))
        if len(keys) < 2:
            continue
        chosen = [keys[int(i)] for i in np.unique(np.linspace(0, len(keys) - 1, min(limit, len(keys))))]
        found.extend(_judge_model(name, app, implementation, device, runs, chosen) for name in models)
    return found


def _judge_model(
    name: str,
    app: str,
    implementation: str,
    device: DeviceClass,
    runs: Sequence[Run],
    keys: Sequence[tuple[tuple[int, int, float], tuple[tuple[str, float | str], ...]]],
) -> HeldOut:
    errors: list[float] = []
    covered = unpredicted = 0
    for request, inputs in keys:
        out = [r for r in runs if request_key(r) == request and canonical_inputs(r.inputs) == inputs]
        rest = [r for r in runs if not (request_key(r) == request and canonical_inputs(r.inputs) == inputs)]
        model = make_model(name, MemoryHistory(rest))
        answer = model.ask(Query(app, implementation, device, request, inputs, out[0].walltime))
        for run in out:
            if run.first_on_device or run.seconds <= 0:
                continue
            if answer is None:
                unpredicted += 1
                continue
            errors.append(abs(answer.expected - run.seconds) / run.seconds)
            covered += answer.lower <= run.seconds <= answer.upper
    share = covered / len(errors) if errors else math.nan
    return HeldOut(name, implementation, device, len(keys), errors, share, unpredicted)
