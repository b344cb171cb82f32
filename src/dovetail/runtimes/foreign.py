"""A runtime model that is a user's own: its predictions are checked before any policy plans with them."""

from __future__ import annotations

import math

from dovetail.errors import InputError
from dovetail.history.base import canonical_inputs
from dovetail.interfaces import History, RuntimeModel
from dovetail.model import (
    CPU,
    App,
    Choice,
    DeviceClass,
    Implementation,
    Job,
    Prediction,
    Request,
)
from dovetail.runtimes.base import HistoryModel, Query


class ForeignModel(HistoryModel):
    """A model from a file or a plugin, behind the face of those that are built in.

    Raises `InputError`, which names the model, for an answer that is no `Prediction`, or whose seconds are
    not finite, not above 0, or outside of their own interval.
    """

    def __init__(self, name: str, model: RuntimeModel, history: History) -> None:
        super().__init__(history)
        self._name = name
        self._model = model

    @property
    def version(self) -> int:
        """The model's version."""
        return self._model.version

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """The model's count."""
        return self._model.runs(app, implementation, device)

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The model's prediction, checked."""
        return self._check_prediction(self._model.predict(job, implementation, request, device), job.id)

    def make_prediction(self, query: Query) -> Prediction | None:
        """The same for plain names: the prediction of a job that is made up of them."""
        nodes, cpus, gpus = query.request
        kind = query.device.kind
        devices = ((kind.removeprefix("cpu+"), gpus),) if kind != CPU and gpus else ()
        request = Request(nodes, cpus, devices)
        implementation = Implementation(query.implementation, kind, request)
        job = Job(
            query.app,
            App(query.app, (implementation,)),
            (Choice(implementation, request),),
            inputs=dict(canonical_inputs(dict(query.inputs))),
            nodes=nodes,
            walltime=query.walltime,
        )
        return self.predict(job, implementation, request, query.device)

    def _check_prediction(self, found: object, job: str) -> Prediction | None:
        if found is None:
            return None
        if not isinstance(found, Prediction):
            raise InputError(
                f"predicted {type(found).__name__} for job {job}, expected a Prediction or None",
                where=f"model {self._name}",
            )
        expected, lower, upper = found.expected, found.lower, found.upper
        # Written so that NaN fails: it compares false with everything.
        if not (0 < expected < math.inf and 0 <= lower <= expected <= upper):
            raise InputError(
                f"predicted {expected!r} s for job {job}, between {lower!r} and {upper!r}, "
                "expected finite seconds above 0 within their interval",
                where=f"model {self._name}",
            )
        return found
