"""Perfect knowledge."""

from __future__ import annotations

from dovetail.model import App, Choice, DeviceClass, Implementation, Job, Request, TableTruth
from dovetail.runtimes import PerfectModel


def test_tells_the_true_time_and_never_changes() -> None:
    request = Request()
    implementation = Implementation("cpu", "cpu", request)
    job = Job("a", App("mm", (implementation,)), (Choice(implementation, request),))
    model = PerfectModel(TableTruth({("a", "cpu", 1): 4.475}))
    device = DeviceClass("cpu")
    found = model.predict(job, implementation, request, device)
    assert found is not None
    assert (found.lower, found.expected, found.upper) == (4.475, 4.475, 4.475)
    assert (found.samples, found.basis) == (1, "true time")
    assert model.predict(job, implementation, request.on(2), device) is None
    assert model.version == 0
    assert model.runs("mm", "cpu", device) == 1
