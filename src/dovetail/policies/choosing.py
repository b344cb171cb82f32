"""Which of its implementations a job takes: the one predicted to be fastest."""

from __future__ import annotations

from math import inf

from dovetail.interfaces import View
from dovetail.model import Choice, Job, Seconds

__all__ = ["fastest"]


def fastest(view: View, job: Job) -> Choice:
    """The job's choice with the least predicted time; ties, and no predictions: the first.

    Of a moldable job only the node count that was asked for counts. An implementation that can run on
    several device classes is as fast as on the best of them; which nodes it gets is left to placement.
    """
    choices = job.choices
    if len(choices) == 1:
        return choices[0]
    candidates = job.asked or choices
    best, least = candidates[0], inf
    for choice in candidates:
        seconds = _predicted(view, job, choice)
        if seconds < least:
            best, least = choice, seconds
    return best


def _predicted(view: View, job: Job, choice: Choice) -> Seconds:
    known = [
        view.predict(job, choice.implementation, choice.request, device)
        for device in view.cluster.device_classes(choice.implementation.kind)
        if not choice.request.models or device.model in choice.request.models
    ]
    return min((prediction.expected for prediction in known if prediction is not None), default=inf)
