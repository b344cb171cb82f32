from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import simulate
from dovetail.model import Cluster, Record, Result, Span, State, masks
from dovetail.model.masks import bit_runs
from dovetail.report import usage
from dovetail.report.columns import Columns, StepFunction, columns_of
from dovetail.report.energy import use_of
from dovetail.report.gantt.lanes import make_lanes
from dovetail.report.metrics import final_metrics
from dovetail.report.perfetto import trace_events
from dovetail.report.usage import busy_seconds
from dovetail.testing.builders import full

jobs = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(0, 10),
        st.integers(1, 2**5 - 1),
        st.integers(0, 2),
        st.lists(st.integers(0, 1), unique=True, max_size=2),
    ),
    max_size=12,
)


@settings(deadline=None, max_examples=full(150, 37))
@given(jobs=jobs, whole=st.booleans(), chunk=st.sampled_from([1, 7, 10_000]))
def test_busy_seconds_agree_with_counting_second_by_second(
    jobs: list[tuple[int, int, int, int, list[int]]], whole: bool, chunk: int
) -> None:
    """Jobs overlap freely here (also on one unit), which must count once."""
    from dovetail.model import FRACTION_UNITS, Allocation, App, Choice, Implementation, Job, Part, Request

    cluster = Cluster.uniform(5, 2, 2)
    how = Implementation("cpu", "cpu", Request())
    app = App("a", (how,))
    records, taken = [], set()
    busy = np.zeros(len(cluster.units))
    for i, (start, length, mask, cpus, devices) in enumerate(jobs):
        cpus = cpus and (2 if whole else 1)
        seconds = range(start, start + length)
        units = [u for n in range(5) if mask >> n & 1 for u in _held(cluster, n, cpus, devices)]
        cells = {(u, s) for u in units for s in seconds}
        if whole and cells & taken:
            continue  # whole units are never shared
        for u, _ in cells - taken:
            busy[u] += 1
        taken |= cells
        part = Part(mask, cpus, tuple(devices), FRACTION_UNITS if whole else FRACTION_UNITS // 2)
        job = Job(str(i), app, (Choice(how, how.request),), i)
        allocation = Allocation(how.request, (part,))
        records.append(Record(job, State.COMPLETED, how, allocation, float(start), float(start + length)))
    columns = Columns.of(Result("p", "w", cluster, records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(usage, "CHUNK", chunk)
        assert busy_seconds(columns) == pytest.approx(busy)


def _held(cluster: Cluster, node: int, cpus: int, devices: list[int]) -> list[int]:
    return [
        u.index
        for u in cluster.units
        if u.node == node and (cpus > 0 if u.device is None else u.device in devices)
    ]


@pytest.mark.parametrize("mask", [0, 1, 0b1011, (1 << 200) - 1, 1 << 4095 | 1 << 99 | 5, (1 << 4096) - 2])
@pytest.mark.parametrize("wide", [0, 10_000])
def test_runs_of_a_mask(mask: int, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "WIDE", wide)
    monkeypatch.setattr(masks, "MANY", 1)
    found = [i for low, high in bit_runs(mask) for i in range(low, high)]
    assert found == [i for i in range(mask.bit_length()) if mask >> i & 1]
    assert all(high < low for (_, high), (low, _) in pairwise(bit_runs(mask)))


def test_busy_seconds_do_not_depend_on_where_a_part_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulate("synthetic:rigid?jobs=200&nodes=16&load=1.0", cluster="16x1cpu", policy="easy")
    columns = Columns.of(found.result), columns_of(found.result)
    assert columns[1].stretches.nodes is not None
    whole = busy_seconds(columns[1])
    monkeypatch.setattr(usage, "RUNS", 7)
    assert busy_seconds(columns[1]).tolist() == whole.tolist()
    assert busy_seconds(columns[0]) == pytest.approx(whole)  # record by record


def test_steps() -> None:
    step = StepFunction.of(np.array([0.0, 2.0]), np.array([4.0, np.inf]), np.array([1.0, 2.0]))
    assert step.times.tolist() == [0, 2, 4]
    assert step.values.tolist() == [1, 3, 2]
    assert 4 * step.mean(np.array([1.0, 5.0]))[0] == 1 + 6 + 2
    assert step.mean(np.array([-2.0, 0.0, 4.0, 6.0])).tolist() == [0, 2, 2]
    assert StepFunction.of(np.array([]), np.array([])).mean(np.array([0.0, 1.0])).tolist() == [0]


def test_series(make_record: Callable[..., Record], make_result: Callable[..., Result]) -> None:
    records = [
        make_record("a", submit=0, start=0, end=10, cpus=2),
        make_record("b", submit=1, start=10, end=12, cpus=1, devices=(0,)),
        make_record("c", submit=2, start=None, end=5, state=State.CANCELLED),
        make_record("d", submit=3, start=None, end=None, state=State.PENDING),
    ]
    columns = Columns.of(make_result(records))
    assert columns.cpus_in_use.values.tolist() == [2, 1, 0]
    assert 20 * columns.devices_in_use.mean(np.array([0.0, 20.0]))[0] == 2
    waiting = columns.jobs_waiting
    assert dict(zip(waiting.times.tolist(), waiting.values.tolist(), strict=True)) == {
        0: 0,
        1: 1,
        2: 2,
        3: 3,
        5: 2,
        10: 1,
    }


@settings(deadline=None, max_examples=full(60, 20))
@given(jobs=jobs)
def test_shares_in_use_agree_with_steps(jobs: list[tuple[int, int, int, int, list[int]]]) -> None:
    from dovetail.model import Allocation, App, Choice, Implementation, Job, Part, Request
    from dovetail.report.usage import share_in_use

    cluster = Cluster.uniform(5, 50)
    how = Implementation("cpu", "cpu", Request())
    app = App("a", (how,))
    records = [
        Record(
            Job(str(i), app, (Choice(how, how.request),), i),
            State.COMPLETED,
            how,
            Allocation(how.request, (Part(mask, cpus),)),
            float(start),
            float(start + length),
        )
        for i, (start, length, mask, cpus, _) in enumerate(jobs)
    ]
    columns = Columns.of(Result("p", "w", cluster, records))
    groups = np.array([0, 0, 1, -1, 1])
    edges = np.linspace(0, 30, 8)
    found = share_in_use(columns, groups, edges)
    members = [0b00011, 0b10100]
    for g in range(found.shape[0]):
        held = [(m & members[g]).bit_count() * c for _, _, m, c, _ in jobs]
        steps = StepFunction.of(columns.start, columns.end, np.array(held, float))
        assert found[g] == pytest.approx(steps.mean(edges) / 100, abs=1e-9)


def test_what_a_job_held_before_it_moved_or_began_again_counts(
    make_record: Callable[..., Record], make_result: Callable[..., Result]
) -> None:
    """Two CPUs of n0 for an attempt that failed, then one of n1, then one of n0."""
    last = make_record("a", start=10, end=20, nodes=[0], cpus=1)
    failed = make_record("a", start=0, end=4, nodes=[0], cpus=2)
    moved = make_record("a", start=10, end=14, nodes=[1], cpus=1)
    assert last.implementation is not None
    assert failed.allocation is not None
    assert moved.allocation is not None
    last.since = 14.0
    last.earlier = (
        Span(0.0, 4.0, failed.allocation, last.implementation, State.FAILED),
        Span(10.0, 14.0, moved.allocation, last.implementation),
    )
    result = make_result([last], Cluster.uniform(2, 2))
    columns = Columns.of(result)
    assert final_metrics(result)["utilisation"] == (2 * 4 + 1 * 4 + 1 * 6) / (4 * 20)
    assert busy_seconds(columns).tolist() == [10.0, 4.0]
    assert columns.cpus_in_use.values.tolist() == [2, 0, 1, 1, 0]
    assert use_of(result).busy == 18.0
    bars = [(bar.start, bar.end, bar.failed) for bars in make_lanes(result).bars for bar in bars]
    assert bars == [(0.0, 4.0, True), (14.0, 20.0, False), (10.0, 14.0, False)]
    slices = [e for e in trace_events(result) if e["ph"] == "X"]
    assert [(e["pid"], e["dur"] / 1e6, e["args"]["state"]) for e in slices] == [
        (1, 4.0, "FAILED"),
        (2, 4.0, "moved"),
        (1, 6.0, "COMPLETED"),
    ]
