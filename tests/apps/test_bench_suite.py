"""Sizes, measurements, Table 2 of a machine, and accuracy on the stored measurements."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from opencl_kernels import need_opencl

from dovetail.errors import InputError
from dovetail.history.sqlite import SqliteHistory
from dovetail.local.discovery import Cores, FoundDevice, Inventory
from dovetail.model import Cluster
from dovetail.runtimes.registry import make_model
from dovetail_lab.apps.bench.accuracy import compare_models, predict_run
from dovetail_lab.apps.bench.measured import MeasuredRun, read_measurements, to_history, write_measurements
from dovetail_lab.apps.bench.speeds import Change, fastest_changes, speed_table
from dovetail_lab.apps.bench.suite import (
    Point,
    app_names,
    measure_suite,
    size_points,
    sizes_table,
    suite_workload,
    two_devices,
)
from dovetail_lab.apps.registry import APPS
from dovetail_lab.gregg.predictions import prediction_bars, stored_measurements


def test_the_table_of_sizes_has_sizes_to_learn_from_and_unseen_ones_inside_and_outside() -> None:
    found = sizes_table()
    for name, spec in APPS.items():
        train = [p.n for p in found if p.app == name and p.role == "train"]
        unseen = [p.n for p in found if p.app == name and p.role == "unseen"]
        assert len(train) >= 5
        assert len(unseen) >= 5
        assert not set(train) & set(unseen)
        assert any(min(train) < n < max(train) for n in unseen)
        assert any(n < min(train) for n in unseen)
        assert any(n > max(train) for n in unseen)
        assert {spec.sizes.small, spec.sizes.medium, spec.sizes.large} & set(train)
        assert all(0 < n <= spec.largest_size for n in train + unseen)


def test_stored_measurements_cover_the_table_on_both_devices() -> None:
    measured = stored_measurements()
    wanted = {(p.app, p.role, p.n, device) for p in sizes_table() for device in ("cpu", "opencl")}
    assert {(m.app, m.role, m.n, m.device) for m in measured} >= wanted
    assert all(m.seconds > 0 for m in measured)
    assert len(prediction_bars(measured)) == 32


def test_learned_predicts_unseen_sizes_and_its_interval_is_honest() -> None:
    found = {a.model: a for a in compare_models(stored_measurements(), ("least-squares", "learned"))}
    learned, paper = found["learned"], found["least-squares"]
    assert learned.median_error <= 0.10
    assert learned.median_error <= 0.5 * paper.median_error
    assert 0.80 <= learned.coverage <= 0.97


def test_measurements_survive_a_file(tmp_path: Path) -> None:
    measured = [
        MeasuredRun("fft", "cpu", "train", 1024, 0.5, 0.25, 0.0),
        MeasuredRun("fft", "opencl", "x", 9, 1, 2, 3),
    ]
    path = tmp_path / "runs.csv"
    write_measurements(measured, path)
    assert read_measurements(path.read_text(), str(path)) == measured
    with pytest.raises(InputError, match="cannot be written"):
        write_measurements(measured, tmp_path / "no" / "folder.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app,n\n", "found the columns"),
        ("app,device,role,n,seconds,cpu_seconds,transfer_seconds\nfft,cpu,x,many,1,1,1\n", "line 2"),
        ("app,device,role,n,seconds,cpu_seconds,transfer_seconds\nfft,cpu,x,1\n", "line 2"),
    ],
)
def test_bad_measurements_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_measurements(text, "runs.csv")


def test_apps_and_sizes_by_name() -> None:
    assert app_names(None) == list(APPS)
    assert app_names("fft, matmul,fft") == ["fft", "matmul"]
    assert size_points(["fft"], ["small", "77"]) == [
        Point("fft", "small", APPS["fft"].sizes.small), Point("fft", "77", 77),
    ]  # fmt: skip
    with pytest.raises(InputError, match="found 'ftt'"):
        app_names("ftt")
    for size in ("huge", "0", "-3", "9" * 12):
        with pytest.raises(InputError, match="--sizes"):
            size_points(["fft"], [size])


def test_a_job_for_each_size_class_and_repetition() -> None:
    w = suite_workload([Point("fft", "small", 64)], Cluster.parse("1x1cpu+2gpu"), 3)
    assert [(j.id, [c.implementation.kind for c in j.choices]) for j in w.jobs] == [
        (f"fft-64-{kind}-{turn}", [kind]) for turn in (1, 2, 3) for kind in ("cpu", "gpu")
    ]
    command = w.jobs[0].app.implementations[0].command
    assert command is not None
    assert command.argv[1:] == ("-m", "dovetail.apps", "fft", "--device", "{device}", "--n", "{n}")


def test_every_repetition_has_its_own_random_order() -> None:
    sizes = [Point("fft", str(n), n) for n in range(1, 21)]
    w = suite_workload(sizes, Cluster.parse("1x1cpu"), 2, np.random.Generator(np.random.PCG64(1)))
    first, second = ([int(j.inputs["n"]) for j in w.jobs if j.id.endswith(f"-{turn}")] for turn in (1, 2))
    assert sorted(first) == sorted(second) == list(range(1, 21))
    assert first != second


def test_runs_are_measured_one_at_a_time(tmp_path: Path) -> None:
    """A run beside another one, on the other device, would measure both."""
    need_opencl()
    if len(two_devices().classes) < 2:
        pytest.skip("needs a second device: a GPU, or PoCL and two cores")
    found = [Point("reduction", "small", 1000), Point("scan", "small", 1000)]
    done, undone = measure_suite(
        found, two_devices(), repeat=2, history=tmp_path / "h.sqlite", run_dir=tmp_path
    )
    assert len(done) == 8
    assert not undone
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        runs = [run for app in ("reduction", "scan") for run in history.runs(app)]
    ends = sorted((run.when, run.when - run.seconds) for run in runs)
    assert len({run.device_class for run in runs}) == 2
    assert all(start >= end for (end, _), (_, start) in pairwise(ends))


def test_two_classes_of_a_kind_are_measured_apart(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[[node]]\nname = "a"\ncpus = 1\n'
        'devices = [{ kind = "gpu", model = "T4" }, { kind = "gpu", model = "A100" }]\n'
    )
    w = suite_workload([Point("fft", "small", 64)], Cluster.parse(str(path)), 1)
    assert [(j.id, j.choices[0].request.models) for j in w.jobs] == [
        ("fft-64-cpu-1", ()), ("fft-64-gpu:T4-1", ("T4",)), ("fft-64-gpu:A100-1", ("A100",)),
    ]  # fmt: skip


def test_devices_by_default() -> None:
    pocl = FoundDevice("opencl", "opencl", "pocl", 0, used=False, note="a CPU device")
    two = two_devices(Inventory(Cores((3, 5, 7), 8, "cpu", 0), (pocl,)))
    assert [(u.kind, u.name) for u in two.units] == [("cpu", "here/cpu"), ("opencl", "here/opencl0")]
    assert two.nodes[0].cores == (3,)
    assert two.nodes[0].devices[0].cores == (5,)
    assert two_devices(Inventory(Cores((3,), 8, "cpu", 0), (pocl,))).total_devices == 0
    assert two_devices(Inventory(Cores((3, 5), 8, "cpu", 0), ())).nodes[0].cores == (3, 5)
    gpu = FoundDevice("nvidia", "gpu", "T4", 0)
    assert two_devices(Inventory(Cores((3, 5), 8, "cpu", 0), (pocl, gpu))).units[1].kind == "gpu"


def made_up(app: str = "fft") -> list[MeasuredRun]:
    """The CPU takes n / 100 s, the device 1 s + n / 400: they are equal at n = 400 / 3."""
    return [
        m
        for n in (10, 50, 100, 200, 400)
        for m in (
            MeasuredRun(app, "cpu", str(n), n, n / 100, 0.0, 0.0),
            MeasuredRun(app, "opencl", str(n), n, 1 + n / 400, 0.0, 0.25),
        )
        for _ in range(2)
    ]


def test_table_2_of_a_machine() -> None:
    rows = speed_table(made_up())
    assert [row.n for row in rows] == [10, 50, 100, 200, 400]
    last = rows[-1]
    assert last.best_device.device == "opencl"
    assert last.speedup_on("opencl") == pytest.approx(2.0)
    assert [d.runs for d in last.devices] == [2, 2]
    assert last.devices[1].transfer_share == pytest.approx(0.125)
    assert rows[0].speedup_on("gpu") is None


def test_where_the_preferred_device_changes() -> None:
    first, second = fastest_changes(made_up(), model="least-squares")["fft"]
    assert first == Change(10, "cpu")
    assert second.device == "opencl"
    assert second.n == pytest.approx(400 / 3, abs=1.01)
    alone = [m for m in made_up() if m.device == "cpu"]
    assert fastest_changes(alone) == {"fft": [Change(10, "cpu")]}
    assert fastest_changes([]) == {}


@pytest.mark.parametrize("runs", [2, 3, 6])
def test_a_few_runs_of_one_size_promise_no_more_than_they_know(runs: int) -> None:
    """The next run of the same size lies in the interval in most cases, though only a few have been seen."""
    measured = stored_measurements()
    rng = np.random.Generator(np.random.PCG64(5))
    held: list[bool] = []
    for place in dict.fromkeys((m.app, m.device) for m in measured):
        own = [m for m in measured if (m.app, m.device) == place]
        for n in rng.choice(sorted({m.n for m in own}), 3, replace=False).tolist():
            same = [m for m in own if m.n == n]
            first = int(rng.integers(len(same) - runs))
            answer = predict_run(
                make_model("learned", to_history(same[first : first + runs])), same[first + runs]
            )
            assert answer is not None
            held.append(answer.lower <= same[first + runs].seconds <= answer.upper)
    assert sum(held) / len(held) >= 0.8
