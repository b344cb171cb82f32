"""The user's last two runs."""

from __future__ import annotations

from made_up_apps import CPU, run

from dovetail.history import MemoryHistory
from dovetail.model import App, Choice, Implementation, Job, Prediction, Request
from dovetail.runtimes.last_two import LastTwoModel


def predict(model: LastTwoModel, user: str | None, walltime: float | None = None) -> Prediction | None:
    request = Request()
    implementation = Implementation("cpu", "cpu", request)
    choices = (Choice(implementation, request),)
    job = Job("j", App("mm", (implementation,)), choices, user=user, walltime=walltime)
    return model.predict(job, implementation, request, CPU)


def test_the_users_own_runs_win_over_others() -> None:
    history = MemoryHistory()
    model = LastTwoModel(history)
    assert predict(model, "ann") is None
    for seconds, user in ((1.0, "ann"), (2.0, "ann"), (4.0, "ann"), (100.0, "bob"), (200.0, "bob")):
        history.record(run(seconds, {"n": seconds}, user=user))
    found = predict(model, "ann")
    assert found is not None
    assert (found.expected, found.samples, found.basis) == (3.0, 2, "the user's last two runs")
    assert found.lower < 2.0 < 4.0 < found.upper
    other = predict(model, "cid")
    assert other is not None
    assert (other.expected, other.basis) == (150.0, "anybody's last two runs")


def test_one_run_is_enough_and_the_walltime_cuts() -> None:
    model = LastTwoModel(MemoryHistory([run(50.0, {}, user="ann")]))
    found = predict(model, "ann", walltime=30.0)
    assert found is not None
    assert found.expected == 30.0
    assert found.samples == 1
    assert found.basis == "the user's last run, cut to the walltime"
    assert found.lower <= 30.0 <= found.upper
