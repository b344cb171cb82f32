"""How long jobs take beside a run of another app on one device, by what runs of such pairs took."""

from __future__ import annotations

from dovetail.history.base import MeasuredHistory
from dovetail.history.slowdowns import Slowdowns
from dovetail.interfaces import LearnsSharing, RuntimeModel
from dovetail.model import BESIDE, DeviceClass, Implementation, Job, Prediction, Request


class SharingModel:
    """Predicts run times on classes ``MODEL beside APP``: those alone, as many times as long as is known.

    ``history`` ``None``: nothing is known.
    """

    def __init__(self, history: MeasuredHistory | None, model: RuntimeModel) -> None:
        self._slowdowns = None if history is None else Slowdowns(history)
        self._model = model

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """Its time alone, as many times as long as runs of the pair took; ``None`` where none is known."""
        model, _, app = device.model.partition(BESIDE)
        if self._slowdowns is None:
            return None
        found = self._slowdowns.of(job.app.name, implementation.name, device)
        alone = self._model.predict(job, implementation, request, DeviceClass(device.kind, model))
        if alone is None or found is None:
            return None
        factor, count = found
        runs = {0: "by other pairs", 1: "1 run"}.get(count, f"{count} runs")
        seconds, basis = alone.expected * factor, f"{factor:.2f} times as long beside {app}, {runs}"
        return Prediction(seconds, alone.upper * factor, count, basis)


class RatedSharing:
    """The same of a simulation that knows what sharing costs: by its rate model."""

    def __init__(self, rates: LearnsSharing, model: RuntimeModel) -> None:
        self._rates, self._model = rates, model

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """Its time alone times the factor of the rate model; ``None`` where that is not known."""
        model = device.model.partition(BESIDE)[0]
        alone = self._model.predict(job, implementation, request, DeviceClass(device.kind, model))
        factor = self._rates.slowdown(job.app.name, implementation.name, device)
        if alone is None:
            return None
        return Prediction(alone.expected * factor, alone.upper * factor, 1, f"{factor:.2f} times as long")
