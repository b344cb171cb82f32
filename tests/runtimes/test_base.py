"""What learned models share: the newest runs by key, carried forward."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.history.memory import MemoryHistory
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import DeviceClass, Run
from dovetail.runtimes.base import Query, RecentRuns, key_of
from dovetail.runtimes.registry import make_model

CPU = DeviceClass("cpu", "x")


def run(seconds: float, n: int | None = None, **more: object) -> Run:
    inputs = {} if n is None else {"n": float(n)}
    return Run("a", "cpu", CPU, 1, 1, 0.0, inputs, seconds, **more)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3), st.booleans()), max_size=60),
    st.integers(1, 12),
    st.data(),
)
@settings(deadline=None)
def test_recent_runs_carried_forward_are_those_looked_at_anew(
    rows: list[tuple[float, int, bool]], window: int, data: st.DataObject
) -> None:
    runs = [run(seconds, n, first_on_device=cold) for seconds, n, cold in rows]
    recent = RecentRuns()
    end = 0
    while end < len(runs):
        end = min(len(runs), end + data.draw(st.integers(1, 15)))
        if data.draw(st.booleans()):  # as after reading the database again: equal, not the same
            runs = [run(*row[:2], first_on_device=row[2]) for row in rows]
        recent.update(runs[max(0, end - window) : end])
        warm, cold = defaultdict(list), defaultdict(list)
        for one in runs[max(0, end - window) : end]:
            (cold if one.first_on_device else warm)[key_of(one)].append(math.log(max(one.seconds, 1e-9)))
        assert set(recent.by_key) == set(warm) | set(cold)
        for key, times in recent.by_key.items():
            assert np.array_equal(times.warm.values(), warm[key])
            assert np.array_equal(times.cold.values(), cold[key])


def test_a_model_that_learned_run_by_run_says_what_a_new_one_says() -> None:
    """Where a job has no sizes no law is fitted again: the same comes out."""
    rng = np.random.Generator(np.random.PCG64(1))
    history = MemoryHistory()
    model = make_model("learned", history)
    query = Query("a", "cpu", CPU, (1, 1, 0.0), ())
    for seconds in np.exp(0.3 * rng.standard_normal(29)).tolist():
        history.record(run(seconds))
        assert model.ask(query) == make_model("learned", history).ask(query)


def test_after_its_version_was_asked_a_model_sees_what_others_recorded(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as ours, SqliteHistory(tmp_path / "h.sqlite") as theirs:
        model = make_model("mean", ours)
        query = Query("a", "cpu", CPU, (1, 1, 0.0), ())
        before = model.version
        assert model.ask(query) is None
        theirs.record(run(3.0))
        assert model.version > before
        assert model.runs("a", "cpu", CPU) == 1
        found = model.ask(query)
        assert found is not None
        assert found.expected == 3.0
