from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import Cluster, Record, Result
from dovetail.report.gantt.lanes import (
    OTHER,
    PALETTE,
    AppColours,
    Labels,
    make_density,
    make_lanes,
    round_ticks,
    span_of,
    tick_text,
)
from dovetail.report.metrics import final_metrics
from dovetail.testing.builders import full

Make = Callable[..., Record]
Build = Callable[..., Result]


def test_jobs_that_share_a_pool_lie_above_each_other(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=10, cpus=1),
        make_record("b", start=0, end=4, cpus=2),
        make_record("c", start=2, end=6, cpus=1),
        make_record("d", start=4, end=6, cpus=2, devices=(0,), share=0.5),
    ]
    made = make_lanes(make_result(records, Cluster.uniform(1, 4, 1)))
    assert made.names == ("n0/cpu", "n0/gpu0")
    assert [(b.record.job.id, b.shares, b.row) for b in made.bars[0]] == [
        ("a", ((0, 0.25),), 0),
        ("b", ((0.25, 0.75),), 1),
        ("c", ((0.75, 1.0),), 2),
        ("d", ((0.25, 0.75),), 1),
    ]
    assert [(b.record.job.id, b.shares) for b in made.bars[1]] == [("d", ((0, 0.5),))]
    assert (made.rows(0), made.rows(1)) == (3, 1)
    result = make_result(records, Cluster.uniform(1, 4, 1))
    assert made.used == pytest.approx(
        (final_metrics(result)["utilisation"], final_metrics(result)["gpu_utilisation"])
    )


def test_schedules_side_by_side_have_one_axis(make_record: Make, make_result: Build) -> None:
    early = make_result([make_record("a", submit=1, start=2, end=5)])
    late = make_result([make_record("a", submit=1, start=8, end=20)])
    assert span_of([early, late]) == (1, 20)
    assert (make_lanes(early, span_of([early, late])).last, make_lanes(early).last) == (20, 5)
    assert span_of([make_result([])]) == (0, 0)


def test_a_job_on_scattered_cpus_is_two_bars(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=2, cpus=1),
        make_record("b", start=0, end=9, cpus=1),
        make_record("c", start=0, end=2, cpus=1),
        make_record("d", start=2, end=4, cpus=2),
    ]
    bars = make_lanes(make_result(records, Cluster.uniform(1, 3))).bars[0]
    assert [bar.shares for bar in bars if bar.record.job.id == "d"] == [((0, 1 / 3), (2 / 3, 1))]


def test_a_label_keeps_what_tells_jobs_apart(make_record: Make) -> None:
    ids = [f"python:sim/protein_{name}_seed{n}.py" for name in ("alpha", "beta") for n in (10, 11)]
    records = [make_record(id, app="python:sim") for id in ids]
    labels = Labels(records)
    for room in (40, 30, 16, 12):
        names = [labels.fitting_label(record, room) for record in records]
        assert len(set(names)) == 4, (room, names)
        assert max(map(len, names)) <= room
    assert labels.fitting_label(records[1], 16) == "alpha_seed11"
    assert labels.fitting_label(records[1], 8) == "…_seed11"
    assert labels.fitting_label(records[1], 3) == ""
    lone = Labels([make_record("postprocess-the-results", app="post")])
    assert lone.fitting_label(make_record("postprocess-the-results", app="post"), 9) == "…-results"
    same = Labels([make_record("train", app="t"), make_record("train-2", app="t")])
    assert [same.fitting_label(make_record(id, app="t"), 5) for id in ("train", "train-2")] == ["train", "2"]


@settings(deadline=None, max_examples=full(60, 20))
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=25),
)
def test_bars_never_overlap(lengths: list[tuple[int, int]]) -> None:
    """Jobs packed first fit by CPU count, as an engine would; their areas must be disjoint."""
    from dovetail.model import Allocation, App, Choice, Implementation, Job, Part, Request, State

    how = Implementation("cpu", "cpu", Request())
    app = App("a", (how,))
    free = [0.0] * 4
    records = []
    for i, (length, cpus) in enumerate(lengths):
        free.sort()
        start = free[cpus - 1]
        free[:cpus] = [start + length] * cpus
        job = Job(str(i), app, (Choice(how, how.request),), i)
        allocation = Allocation(how.request, (Part(1, cpus),))
        records.append(Record(job, State.COMPLETED, how, allocation, start, start + length))
    made = make_lanes(Result("p", "w", Cluster.uniform(1, 4), records)).bars[0]
    bars = [(bar.start, bar.end, low, high) for bar in made for low, high in bar.shares]
    area = sum((end - start) * (high - low) * 4 for start, end, low, high in bars)
    assert area == pytest.approx(sum(length * cpus for length, cpus in lengths))
    for i, a in enumerate(bars):
        for b in bars[:i]:
            apart = a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]
            assert apart, (a, b)
    for i, one in enumerate(made):
        others = [other for other in made[:i] if other.row == one.row]
        assert all(one.end <= other.start or other.end <= one.start for other in others)


def test_density_groups_neighbours_of_one_kind(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=10, cpus=2, nodes=range(50)),
        make_record("b", start=0, end=5, cpus=0, devices=(0,), nodes=range(100)),
    ]
    chart = make_density(make_result(records, Cluster.uniform(100, 4, 1)), 8, 2)
    assert chart.names == (
        "n[0-24] cpu",
        "n[25-49] cpu",
        "n[50-74] cpu",
        "n[75-99] cpu",
        "n[0-24] gpu",
        "n[25-49] gpu",
        "n[50-74] gpu",
        "n[75-99] gpu",
    )
    assert chart.share.tolist() == [[0.5, 0.5]] * 2 + [[0, 0]] * 2 + [[1, 0]] * 4
    assert chart.edges.tolist() == [0, 5, 10]


def test_colours_by_app_or_by_user(make_record: Make) -> None:
    apps = AppColours([make_record("a", app="x"), make_record("b", app="y")])
    assert apps.legend_entries() == [("x", PALETTE[0]), ("y", PALETTE[1])]
    users = AppColours([make_record("a", app="x", user="u1"), make_record("b", app="x", user="u2")])
    assert users.by == "user"
    assert users.legend_entries() == [("u1", PALETTE[0]), ("u2", PALETTE[1])]
    many = [make_record(str(i), app=str(i)) for i in range(20)]
    assert AppColours(many).legend_entries()[-1] == ("4 others", OTHER)
    assert AppColours(many).of(many[-1]) == OTHER


@pytest.mark.parametrize(
    ("last", "texts"),
    [
        (4.2, ["0", "1 s", "2 s", "3 s", "4 s"]),
        (0.03, ["0", "10 ms", "20 ms", "30 ms"]),
        (0.0001, ["0", "20 µs", "40 µs", "60 µs", "80 µs", "100 µs"]),
        (240, ["0", "1 min", "2 min", "3 min", "4 min"]),
        (90, ["0", "20 s", "40 s", "60 s", "80 s"]),
        (5 * 3600, ["0", "1 h", "2 h", "3 h", "4 h", "5 h"]),
        (2 * 3600, ["0", "0.5 h", "1 h", "1.5 h", "2 h"]),
        (30 * 86400, ["0", "10 d", "20 d", "30 d"]),
    ],
)
def test_round_times_on_the_axis(last: float, texts: list[str]) -> None:
    at = round_ticks(0, last, 5)
    assert [tick_text(t, at[1] - at[0]) for t in at] == texts


def test_an_axis_without_length() -> None:
    assert round_ticks(3, 3, 5) == [3]
