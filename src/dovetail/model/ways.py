"""The ways to run a job, and the times predicted for them.

A way is one of the job's choices (an implementation on a number of nodes) with its predicted seconds. A
choice that can run on several device classes takes as long as on the best of them; which nodes it gets is
left to placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple, Protocol

from dovetail.model.cluster import Cluster
from dovetail.model.device_classes import classes_for
from dovetail.model.job import Choice, Implementation, Job, Request, Seconds
from dovetail.model.node import DeviceClass
from dovetail.model.record import Prediction

__all__ = [
    "Foresight",
    "Way",
    "fastest_choice",
    "one_node_choices",
    "predicted_seconds",
    "predicted_way",
    "seconds_on",
    "way_with_given_times",
]


class Foresight(Protocol):
    """Predictions for jobs on one cluster: a `View` is one."""

    @property
    def cluster(self) -> Cluster:
        """Where the job is to run."""
        ...

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The prediction, or ``None`` where nothing is known."""
        ...


class ModelOn(NamedTuple):
    """A model's predictions for one cluster, where there is no view."""

    cluster: Cluster
    predict: Callable[[Job, Implementation, Request, DeviceClass], Prediction | None]


class Way(NamedTuple):
    """A choice and its predicted seconds; ``None`` where nothing is known."""

    choice: Choice
    seconds: Seconds | None

    @property
    def least_seconds(self) -> Seconds:
        """The seconds, 0 where nothing is known: what is unknown is worth a try."""
        return self.seconds or 0.0


def considered_predictions(
    foresight: Foresight, job: Job, choice: Choice
) -> Iterator[tuple[DeviceClass, Prediction | None]]:
    """Every device class on which the choice can run, with what is predicted there."""
    for device in classes_for(foresight.cluster, choice):
        yield device, foresight.predict(job, choice.implementation, choice.request, device)


def known_predictions(foresight: Foresight, job: Job, choice: Choice) -> list[Prediction]:
    """The predictions for a choice, class by class, where there are any."""
    return [found for _, found in considered_predictions(foresight, job, choice) if found is not None]


def predicted_seconds(foresight: Foresight, job: Job, choice: Choice) -> Seconds | None:
    """Predicted seconds of a choice on its best class; ``None`` where nothing is known."""
    return min((found.expected for found in known_predictions(foresight, job, choice)), default=None)


def predicted_way(foresight: Foresight, job: Job, choice: Choice) -> Way:
    """The choice with its predicted seconds."""
    return Way(choice, predicted_seconds(foresight, job, choice))


def seconds_on(foresight: Foresight, job: Job, choice: Choice, device: DeviceClass) -> Seconds | None:
    """Predicted seconds on one class, else the job's own data: SQ over its speedup (Ravi 2012)."""
    found = foresight.predict(job, choice.implementation, choice.request, device)
    if found is not None:
        return found.expected
    # Given by the user, for apps that never ran: SQ and speedups are the paper's inputs.
    speedup = job.speedup.get(choice.implementation.name)
    return None if job.sequential is None or not speedup else job.sequential / speedup


def way_with_given_times(foresight: Foresight, job: Job, choice: Choice) -> Way:
    """The choice with its seconds on its best class; the job's own data counts where nothing is predicted."""
    classes = classes_for(foresight.cluster, choice)
    known = (seconds_on(foresight, job, choice, device) for device in classes)
    return Way(choice, min((seconds for seconds in known if seconds is not None), default=None))


def fastest_choice(foresight: Foresight, job: Job, choices: Iterable[Choice] | None = None) -> Choice:
    """The choice with the least predicted time; ties, and no predictions at all: the first.

    Of a moldable job only the requested node count counts, unless ``choices`` are given.
    """
    if choices is None:
        if len(job.choices) == 1:
            return job.choices[0]
        choices = job.asked or job.choices
    best, least = None, inf
    for choice in choices:
        seconds = predicted_seconds(foresight, job, choice)
        # Without any prediction the first choice stays, in file order.
        if best is None or (seconds is not None and seconds < least):
            best, least = choice, inf if seconds is None else seconds
    assert best is not None, "every job has a choice"
    return best


def one_node_choices(job: Job) -> list[Choice]:
    """The job's choices on one node, in file order."""
    return [choice for choice in job.choices if choice.request.nodes == 1]
