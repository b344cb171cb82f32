"""Walltimes as predictions."""

from __future__ import annotations

from made_up_apps import CPU, run

from dovetail.history import MemoryHistory
from dovetail.model import App, Choice, Implementation, Job, Request
from dovetail.runtimes.user_estimate import UserEstimateModel


def test_the_walltime_is_the_prediction() -> None:
    model = UserEstimateModel(MemoryHistory([run(5.0, {})]))
    request = Request()
    implementation = Implementation("cpu", "cpu", request)
    choices = (Choice(implementation, request),)
    app = App("mm", (implementation,))
    found = model.predict(Job("a", app, choices, walltime=60.0), implementation, request, CPU)
    assert found is not None
    assert (found.lower, found.expected, found.upper, found.samples) == (0.0, 60.0, 60.0, 0)
    assert model.predict(Job("b", app, choices), implementation, request, CPU) is None
    assert model.runs("mm", "cpu", CPU) == 1
