"""What every history does, in memory and in SQLite alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.history import MemoryHistory, SqliteHistory
from dovetail.history.base import canonical_inputs, inputs_from_text, inputs_text
from dovetail.model import DeviceClass, Run, State, Usage
from dovetail.testing.builders import full

CPU = DeviceClass("cpu", "epyc")
GPU = DeviceClass("gpu", "T4")
AnyHistory = MemoryHistory | SqliteHistory


def run(seconds: float = 1.0, n: float | str = 8, device: DeviceClass = CPU, **more: object) -> Run:
    fields: dict[str, object] = {
        "app": "mm",
        "implementation": device.kind,
        "device_class": device,
        "nodes": 1,
        "cpus": -1,
        "gpus": 0.0,
        "inputs": {"n": n},
        "seconds": seconds,
    }
    return Run(**(fields | more))  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "sqlite", "overlay"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyHistory]:
    if request.param == "memory":
        yield MemoryHistory()
        return
    with SqliteHistory(tmp_path / "history.sqlite") as database:
        yield database if request.param == "sqlite" else MemoryHistory(base=database)


def test_counts_completed_runs_by_app_implementation_and_class(history: AnyHistory) -> None:
    for _ in range(3):
        history.record(run())
    history.record(run(device=GPU))
    history.record(run(state=State.FAILED))
    assert history.count("mm", "cpu", CPU) == 3
    assert history.count("mm", "gpu", GPU) == 1
    assert history.count("mm", "cpu", DeviceClass("cpu", "other")) == 0
    assert history.count("fft", "cpu", CPU) == 0


def test_a_uid_is_recorded_once(history: AnyHistory) -> None:
    assert history.record(run(2.0, uid="a"))
    version, stamp = history.version, history.app_stamp("mm")
    assert not history.record(run(9.0, n=99, uid="a"))
    assert (history.version, history.app_stamp("mm")) == (version, stamp)
    assert [r.seconds for r in history.runs("mm")] == [2.0]
    assert len(history.list_aggregates("mm", "cpu", CPU)) == 1
    assert history.record(run(uid=""))
    assert history.record(run(uid=""))


def test_version_and_stamp_grow_with_every_change(history: AnyHistory) -> None:
    seen = [history.version]
    stamps = [history.app_stamp("mm")]
    other = history.app_stamp("fft")
    for _ in range(3):
        history.record(run())
        seen.append(history.version)
        stamps.append(history.app_stamp("mm"))
    assert seen == sorted(set(seen))
    assert len(set(stamps)) == 4
    assert history.app_stamp("fft") == other


def test_runs_come_back_as_recorded_oldest_first(history: AnyHistory) -> None:
    usage = Usage(1.5, 4096, 10.0, 0.1, 20.0, 0.2)
    late = run(when=20.0, uid="x", job="j", user="u", usage=usage, walltime=60.0, first_on_device=True)
    early = run(when=10.0, inputs={"kind": "dense", "n": 7.5})
    history.record(late)
    history.record(early)
    assert list(history.runs("mm")) == [early, late]
    assert list(history.runs("mm", "gpu")) == []
    assert list(history.runs("mm", "cpu", GPU)) == []


def test_failed_runs_enter_no_average(history: AnyHistory) -> None:
    history.record(run(2.0))
    history.record(run(100.0, state=State.TIMEOUT))
    (aggregate,) = history.list_aggregates("mm", "cpu", CPU)
    assert (aggregate.count, aggregate.mean, aggregate.failed) == (1, 2.0, 1)
    assert len(history.runs("mm")) == 1
    (group,) = history.list_groups("mm")
    assert (group.completed, group.failed) == (1, 1)


def test_transfers_are_averaged_over_the_runs_that_told_them(history: AnyHistory) -> None:
    history.record(run(usage=Usage(sent=4.0, sent_time=0.1, received=8.0, received_time=0.2)))
    history.record(run(usage=Usage(sent=6.0, sent_time=0.3, received=10.0, received_time=0.4)))
    history.record(run(usage=Usage(cpu_time=1.0)))
    (a,) = history.list_aggregates("mm", "cpu", CPU)
    assert (a.count, a.transfers) == (3, 2)
    assert (a.sent, a.received) == (5.0, 9.0)
    assert (a.sent_time, a.received_time) == pytest.approx((0.2, 0.3))


def test_keys_keep_requests_and_inputs_apart(history: AnyHistory) -> None:
    history.record(run(1.0, inputs={"b": 1, "a": "x"}))
    history.record(run(3.0, inputs={"a": "x", "b": 1.0}))
    history.record(run(5.0, inputs={"a": "y", "b": 1}))
    history.record(run(7.0, inputs={"a": "x", "b": 1}, nodes=2))
    means = [a.mean for a in history.list_aggregates("mm", "cpu", CPU)]
    assert means == [2.0, 5.0, 7.0]
    assert [a.mean for a in history.list_aggregates("mm", "cpu", CPU, 2)] == [5.0, 7.0]
    key = canonical_inputs({"a": "x", "b": 1})
    found = history.find_aggregate("mm", "cpu", CPU, (2, -1, 0.0), key)
    assert found is not None
    assert found.mean == 7.0
    assert history.find_aggregate("mm", "cpu", CPU, (3, -1, 0.0), key) is None
    assert history.find_aggregate("mm", "cpu", GPU, (2, -1, 0.0), key) is None


def test_recent_gives_the_last_runs_oldest_first(history: AnyHistory) -> None:
    for i in range(10):
        history.record(run(float(i), n=i % 2, nodes=1 + i % 2))
    assert [r.seconds for r in history.recent("mm", "cpu", CPU, 3)] == [7.0, 8.0, 9.0]
    assert history.recent("mm", "cpu", CPU, 0) == []
    assert len(history.recent("mm", "cpu", CPU, 100)) == 10


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_times_that_make_no_sense_are_refused(history: AnyHistory, seconds: float) -> None:
    with pytest.raises(InputError, match="expected a finite number"):
        history.record(run(seconds))
    assert history.count("mm", "cpu", CPU) == 0


def test_an_overlay_shows_its_base_and_leaves_it_alone(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as base:
        base.record(run(1.0, when=1.0, uid="a"))
        over = MemoryHistory(base=base)
        over.record(run(3.0, when=2.0))
        over.record(run(9.0, n=16, when=3.0))
        assert [r.seconds for r in over.runs("mm")] == [1.0, 3.0, 9.0]
        assert [r.seconds for r in over.recent("mm", "cpu", CPU, 2)] == [3.0, 9.0]
        assert [(a.count, a.mean) for a in over.list_aggregates("mm", "cpu", CPU)] == [(2, 2.0), (1, 9.0)]
        merged = over.find_aggregate("mm", "cpu", CPU, (1, -1, 0.0), canonical_inputs({"n": 8}))
        assert merged is not None
        assert (merged.count, merged.m2, merged.minimum, merged.maximum) == (2, 2.0, 1.0, 3.0)
        assert over.count("mm", "cpu", CPU) == 3
        assert [g.completed for g in over.list_groups()] == [3]
        assert base.count("mm", "cpu", CPU) == 1
        before = over.version
        base.record(run(uid="b"))
        assert over.version > before


values = st.floats(1e-6, 1e6, allow_nan=False)


@settings(deadline=None, derandomize=True, max_examples=full(60, 20))
@given(st.lists(values, min_size=1, max_size=40), st.integers(0, 40))
def test_running_figures_equal_those_of_all_runs_at_once(times: list[float], cut: int) -> None:
    """Welford's update and the merge of two halves against the plain definitions."""
    halves = MemoryHistory(run(t) for t in times[:cut]), MemoryHistory(run(t) for t in times[cut:])
    parts = [h.list_aggregates("mm", "cpu", CPU) for h in halves]
    found = [a[0] for a in parts if a]
    whole = found[0] if len(found) == 1 else found[0].merge_with(found[1])
    mean = math.fsum(times) / len(times)
    assert whole.count == len(times)
    assert whole.mean == pytest.approx(mean)
    assert whole.m2 == pytest.approx(math.fsum((t - mean) ** 2 for t in times), rel=1e-6, abs=1e-6 * mean**2)
    assert (whole.minimum, whole.maximum) == (min(times), max(times))


words = st.text(max_size=8)
inputs = st.dictionaries(
    words, st.one_of(words, st.floats(allow_nan=False, allow_infinity=False)), max_size=4
)


@settings(deadline=None, derandomize=True, max_examples=full(100, 25))
@given(inputs)
def test_inputs_survive_the_database(given_inputs: dict[str, float | str]) -> None:
    key = canonical_inputs(given_inputs)
    assert inputs_from_text(inputs_text(key)) == key
