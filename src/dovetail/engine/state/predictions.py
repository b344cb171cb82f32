"""Predictions as policies see them: cached until the model changes, and remembered for the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dovetail.interfaces import RuntimeModel
from dovetail.model import DeviceClass, Implementation, Job, JobId, Prediction, Request

Question = tuple[Any, ...]
"""A question and its answer: ("predict", job, implementation, nodes, class, prediction or ``None``)
or ("runs", app, implementation, class, count), ("untried", app, implementation, class, yes or no)."""


class PredictsSharing(Protocol):
    """Knows how long jobs take beside others: on classes that name the app beside them."""

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The time beside runs of that app; ``None`` where nothing is known."""
        ...


class Predictions:
    """A `RuntimeModel` in front of another one; keeps the questions since the last `take_questions`."""

    def __init__(self, model: RuntimeModel, *, keep: bool) -> None:
        self.model = model
        self.sharing: PredictsSharing | None = None
        self._version = model.version
        self._keep = keep
        self.cached: dict[JobId, dict[tuple[str, int, DeviceClass], Prediction | None]] = {}
        self._of_apps: dict[tuple[str, str, str, DeviceClass], int] = {}
        self._model_says: Callable[[str, str, DeviceClass], bool] | None = getattr(model, "untried", None)
        self._asked: list[Question] = []

    @property
    def version(self) -> int:
        """The version of the model behind."""
        return self.model.version

    def refresh_cache(self) -> None:
        """Forget the cache if the model has changed; called once an instant."""
        version = self.model.version
        if version != self._version:
            self._version = version
            self.cached.clear()
            self._of_apps.clear()

    def forget_all(self) -> None:
        """Predict everything anew: a journal that begins here has no earlier answer."""
        self.cached.clear()
        self._of_apps.clear()

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The cached prediction, or the model's."""
        of_job = self.cached.get(job.id)
        if of_job is None:
            of_job = self.cached[job.id] = {}
        key = (implementation.name, request.nodes, device)
        if key in of_job:
            return of_job[key]
        source = self.model if self.sharing is None or not device.shared else self.sharing
        found = of_job[key] = source.predict(job, implementation, request, device)
        if self._keep:
            self._asked.append(("predict", job.id, implementation.name, request.nodes, device, found))
        return found

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """The cached number of completed runs, or the model's."""
        return self._of_app("runs", app, implementation, device, self.model.runs)

    def untried(self, app: str, implementation: str, device: DeviceClass) -> bool:
        """Whether an app without prediction is to be tried there: no run has completed.

        A model may decide otherwise by an ``untried`` of its own.
        """
        if self._model_says is not None:
            return bool(self._of_app("untried", app, implementation, device, self._model_says))
        return not self.runs(app, implementation, device)

    def _of_app(
        self, word: str, app: str, implementation: str, device: DeviceClass, question: Callable[..., int]
    ) -> int:
        key = (word, app, implementation, device)
        found = self._of_apps.get(key)
        if found is None:
            found = self._of_apps[key] = question(app, implementation, device)
            if self._keep:
                self._asked.append((*key, found))
        return found

    def bound(
        self, job: Job, implementation: Implementation, request: Request, bound: Callable[..., float]
    ) -> float:
        """What ``bound`` answers, remembered for the journal (infinite is written as ``None``)."""
        found = bound(job, implementation, request)
        if self._keep:
            value = None if found == float("inf") else found
            self._asked.append(("bound", job.id, implementation.name, request.nodes, value))
        return found

    def known_of(self, job: JobId) -> dict[tuple[str, int, DeviceClass], Prediction | None]:
        """What has been predicted for a job since the model last changed."""
        return self.cached.get(job, {})

    def drop_job(self, job: JobId) -> None:
        """Forget a job that has ended."""
        self.cached.pop(job, None)

    def take_questions(self) -> list[Question]:
        """The questions to the model since the last call, for the journal."""
        questions, self._asked = self._asked, []
        return questions
