"""The history at a million runs: recording, predicting, file size. Each benchmark asserts its result.

``DOVETAIL_BENCH_RUNS`` sets another number of runs (default 1,000,000; loading takes half a minute).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dovetail.history import SqliteHistory
from dovetail.model import DeviceClass, Run, State, Usage
from dovetail.runtimes import make_model
from dovetail.runtimes.base import Query

RUNS = int(os.environ.get("DOVETAIL_BENCH_RUNS", "1000000"))
CLASSES = (DeviceClass("cpu", "AMD EPYC 7B13"), DeviceClass("opencl", "pocl"))
REQUESTS = ((1, 1, 0.0), (1, 0, 1.0))


def made_runs(count: int, sizes: int) -> Iterator[Run]:
    """Sixteen apps on two devices, 20 seconds between runs, 10 % noise, all fields of Table 1."""
    rng = np.random.Generator(np.random.PCG64(1))
    for start in range(0, count, 10_000):
        size = rng.integers(1, sizes + 1, 10_000).tolist()
        noise = np.exp(0.1 * rng.standard_normal(10_000)).tolist()
        for i, n, factor in zip(range(start, min(count, start + 10_000)), size, noise, strict=False):
            device = i % 2
            yield Run(
                f"app{i // 2 % 16}",
                CLASSES[device].kind,
                CLASSES[device],
                *REQUESTS[device],
                {"n": float(n)},
                1e-3 * n * factor,
                State.COMPLETED,
                None,
                Usage(1e-3 * n, 100_000_000 + i),
                1.7e9 + 20.0 * i,
                f"{i // 16:032x}/job-{i % 16}",
                f"job-{i % 16}",
                "user",
            )


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteHistory]:
    path = tmp_path_factory.mktemp("history") / "history.sqlite"
    with SqliteHistory(path) as found:
        assert found.record_many(made_runs(RUNS, 1000)) == RUNS
        yield found


def query(n: float, app: str = "app3") -> Query:
    return Query(app, "cpu", CLASSES[0], REQUESTS[0], (("n", n),))


def test_recording_a_run(benchmark, history: SqliteHistory) -> None:
    """The target is 2 ms."""
    runs = itertools.count()

    def record() -> bool:
        i = next(runs)
        return history.record(
            Run("app3", "cpu", CLASSES[0], *REQUESTS[0], {"n": float(i % 50)}, 0.1, uid=f"new-{i}")
        )

    assert benchmark.pedantic(record, rounds=500)
    assert benchmark.stats["median"] < 0.002


@pytest.mark.parametrize("model", ["learned", "least-squares", "mean"])
def test_predicting_each_time_another_size(benchmark, history: SqliteHistory, model: str) -> None:
    """The target is 1 ms. Nothing is cached for these inputs; the app was asked for before."""
    found = make_model(model, history)
    found.ask(query(500.0))
    sizes = itertools.count(1001 if model != "mean" else 1)
    answer = benchmark.pedantic(lambda: found.ask(query(float(next(sizes)))), rounds=500)
    assert answer is not None
    n = 1001 + 499 if model != "mean" else 500
    assert answer.expected == pytest.approx(1e-3 * n, rel=0.15)
    assert benchmark.stats["median"] < 0.001


def test_predicting_the_same_again(benchmark, history: SqliteHistory) -> None:
    """What a policy's loop sees."""
    found = make_model("learned", history)
    expected = found.ask(query(321.0))
    assert benchmark(found.ask, query(321.0)) == expected
    assert benchmark.stats["median"] < 0.0001


def test_first_prediction_of_an_app(benchmark, history: SqliteHistory) -> None:
    """Reads 512 averages and 256 runs, and fits: once per app and process."""

    def first() -> object:
        with SqliteHistory(history.path) as other:
            return make_model("learned", other).ask(query(1500.0))

    assert benchmark.pedantic(first, rounds=10) is not None


def test_predicting_after_each_new_run(benchmark, history: SqliteHistory) -> None:
    """Recording and predicting in turn, as live."""
    found = make_model("learned", history)
    found.ask(query(700.0))
    runs = itertools.count()

    def both() -> object:
        i = next(runs)
        uid = f"turn-{i}"
        history.record(Run("app3", "cpu", CLASSES[0], *REQUESTS[0], {"n": 700.0}, 0.7, uid=uid))
        return found.ask(query(700.0))

    answer = benchmark.pedantic(both, rounds=200)
    assert answer.expected == pytest.approx(0.7, rel=0.1)  # type: ignore[attr-defined]


def test_asking_the_version(benchmark, history: SqliteHistory) -> None:
    assert benchmark(lambda: history.version) >= 1


def test_size_vacuum_and_export(benchmark, history: SqliteHistory, tmp_path: Path) -> None:
    """The target is 200 MB at a million runs."""
    history.vacuum_file()
    size = history.path.stat().st_size
    benchmark.extra_info["MB"] = size / 1e6
    print(f"\n{RUNS:,} runs: {size / 1e6:.1f} MB, {size / RUNS:.0f} bytes a run")
    assert size < 200 * RUNS + 200_000
    total = benchmark.pedantic(lambda: sum(1 for _ in history.all_runs("app3")), rounds=1)
    assert total >= RUNS // 16


def test_size_when_no_input_comes_twice(benchmark, tmp_path: Path) -> None:
    """The worst case: every run is a key of its own. At a tenth of the runs, the same bytes a run."""
    count = RUNS // 10
    runs = [
        Run(r.app, r.implementation, r.device_class, r.nodes, r.cpus, r.gpus, {"n": float(i)}, r.seconds,
            usage=r.usage, when=r.when, uid=r.uid, job=r.job, user=r.user)
        for i, r in enumerate(made_runs(count, 1000))
    ]  # fmt: skip
    with SqliteHistory(tmp_path / "distinct.sqlite") as found:
        assert benchmark.pedantic(found.record_many, args=(runs,), rounds=1) == count
        found.vacuum_file()
        size = found.path.stat().st_size
    print(f"\nall inputs distinct: {size / count:.0f} bytes a run")
    assert size < 200 * count + 200_000
