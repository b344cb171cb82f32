"""The mean over the same inputs."""

from __future__ import annotations

import pytest

from dovetail.history import MemoryHistory
from dovetail.runtimes.mean import MeanModel


def test_knows_the_same_inputs_only(run, ask) -> None:  # type: ignore[no-untyped-def]
    model = MeanModel(MemoryHistory([run(1.0, 8), run(2.0, 8), run(3.0, 8)]))
    found = ask(model, {"n": 8})
    assert (found.expected, found.samples) == (2.0, 3)
    assert found.basis == "mean of 3 runs with the same inputs"
    assert ask(model, {"n": 9}) is None
    assert ask(model, {"n": 8}, nodes=2) is None
    assert ask(model, {"n": 8}, app="fft") is None


def test_interval_is_that_of_one_more_run_of_a_normal(run, ask) -> None:  # type: ignore[no-untyped-def]
    from scipy.special import stdtrit

    model = MeanModel(MemoryHistory([run(t, 8) for t in (4.0, 5.0, 6.0)]))
    found = ask(model, {"n": 8})
    half = stdtrit(2, 0.95) * (1 + 1 / 3) ** 0.5
    assert found.upper == pytest.approx(5 + half)
    assert found.lower == pytest.approx(5 - half)


def test_sees_new_runs_at_once(run, ask) -> None:  # type: ignore[no-untyped-def]
    history = MemoryHistory()
    model = MeanModel(history)
    assert ask(model, {"n": 8}) is None
    for seconds, mean in ((1.0, 1.0), (3.0, 2.0)):
        before = model.version
        history.record(run(seconds, 8))
        assert model.version != before
        assert ask(model, {"n": 8}).expected == mean


def test_all_cpus_of_the_pool_means_those_that_runs_really_held(run, ask) -> None:  # type: ignore[no-untyped-def]
    """Jobs ask for WHOLE_POOL; runs are recorded with the number of CPUs they had."""
    runs = [run(2.0, 8, cpus=4), run(4.0, 8, cpus=4), run(9.0, 8, cpus=16)]
    model = MeanModel(MemoryHistory(runs))
    assert ask(model, {"n": 8}).expected == 3.0
    assert ask(model, {"n": 8}, nodes=2) is None
