"""Maps with real workers: results, order, memory, what workers find, what is learned."""

from __future__ import annotations

import asyncio
import gc
import operator
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import map_functions as mf
import numpy as np
import pytest
from descendants import descendants
from opencl_kernels import need_opencl
from waiting import until

import dovetail
from dovetail.errors import InputError, MapError
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.places import Place, ThisMachine
from dovetail.mapping.wire import Connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def two() -> Iterator[dovetail.Workers]:
    """Two CPU workers that stay."""
    with dovetail.Workers("cpu:2") as workers:
        yield workers


@pytest.fixture(scope="module")
def both() -> Iterator[dovetail.Workers]:
    """One worker of each kind."""
    with dovetail.Workers("cpu:1,gpu:1") as workers:
        yield workers


def test_every_item_gives_one_result(both: dovetail.Workers) -> None:
    found = list(dovetail.map(mf.double, range(1000), workers=both))
    assert sorted(found) == [2 * i for i in range(1000)]


def test_order_on_request(both: dovetail.Workers) -> None:
    found = list(dovetail.map(mf.double, range(5000), workers=both, ordered=True))
    assert found == [2 * i for i in range(5000)]


def test_no_items_no_results(two: dovetail.Workers) -> None:
    assert list(dovetail.map(mf.plain, [], workers=two)) == []
    assert dovetail.map(mf.words, iter(()), workers=two).reduce_by_key(operator.add) == {}
    with pytest.raises(InputError, match="no item that gave a result"):
        dovetail.map(mf.plain, (), workers=two).reduce(operator.add)


@pytest.mark.parametrize(
    "items", [[1, 2, 3], (1, 2, 3), {1: "a", 2: "b", 3: "c"}, {1, 2, 3}, np.array([1, 2, 3])]
)
def test_items_may_be_any_iterable(two: dovetail.Workers, items: Any) -> None:
    assert sorted(dovetail.map(mf.plain, items, workers=two)) == [1, 2, 3]


def test_rows_of_an_array_are_items(two: dovetail.Workers) -> None:
    array = np.arange(20_000.0).reshape(4, 5000)
    found = list(dovetail.map(np.sum, array, workers=two, ordered=True))
    assert found == [row.sum() for row in array]


def test_large_arrays_travel_both_ways_and_stay_what_they_are(two: dovetail.Workers) -> None:
    arrays = [np.full(2_000_000, i, dtype=np.float32) for i in range(6)]
    for i, array in enumerate(dovetail.map(mf.double, arrays, workers=two, ordered=True)):
        assert array.dtype == np.float32
        assert (array == 2 * i).all()
        array[:] = 0  # the result is the user's
    assert all((array == i).all() for i, array in enumerate(arrays))


def test_a_generator_is_read_only_as_far_as_needed(two: dovetail.Workers) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    with dovetail.map(mf.plain, items(), workers=two, batch=1, ordered=True) as results:
        first = [next(results) for _ in range(10)]
        time.sleep(0.3)
    assert first == list(range(1, 11))
    assert read < 400  # what waits is bounded


def test_a_slow_generator_holds_nobody_up(two: dovetail.Workers) -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        waiting.wait(20)
        yield 3

    waiting = threading.Event()
    results = dovetail.map(mf.plain, items(), workers=two)
    assert {next(results), next(results)} == {1, 2}
    waiting.set()
    assert list(results) == [3]


def test_what_a_generator_raises_is_raised(two: dovetail.Workers) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more tapes")

    results = dovetail.map(mf.plain, items(), workers=two)
    assert next(results) == 1
    with pytest.raises(OSError, match="no more tapes"):
        next(results)


def test_common_arguments_come_with_every_call(two: dovetail.Workers) -> None:
    def scaled(x: int, *, factor: int, offset: Any) -> int:
        return int(x * factor + offset.sum())

    found = dovetail.map(
        scaled, range(50), workers=two, common={"factor": 3, "offset": np.ones(2)}, ordered=True
    )
    assert list(found) == [3 * i + 2 for i in range(50)]


def test_reduce_keeps_the_order(both: dovetail.Workers) -> None:
    assert dovetail.map(mf.double, range(10_000), workers=both).reduce(operator.add) == 2 * sum(range(10_000))
    texts = [f"{i}," for i in range(300)]
    assert dovetail.map(mf.plain, texts, workers="cpu:2").reduce(operator.add) == "".join(texts)


def test_sums_of_floats_are_the_same_in_every_run(two: dovetail.Workers) -> None:
    values = list(np.random.Generator(np.random.PCG64(1)).standard_normal(20_000) * 1e8)
    found = {dovetail.map(mf.plain, values, workers=two).reduce(operator.add) for _ in range(4)}
    assert len(found) == 1


def test_reduce_by_key(two: dovetail.Workers) -> None:
    texts = ["to be or not to be", "that is the question", "to do"] * 100
    counts = dovetail.map(mf.words, texts, workers=two).reduce_by_key(operator.add)
    assert counts["to"] == 300
    assert counts["be"] == 200
    assert counts["question"] == 100


def test_tiny_items_are_batched_by_themselves(two: dovetail.Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    send = Connection.send_message
    monkeypatch.setattr(Connection, "send_message", lambda *given: sent.append(given[1][0]) or send(*given))
    results = dovetail.map(mf.plain, range(100_000), workers=two, history=False)
    assert sum(results) == sum(range(100_000))
    assert len(sent) < 2000  # one by one it is a message for each


def test_a_map_is_used_once(two: dovetail.Workers) -> None:
    results = dovetail.map(mf.plain, [1], workers=two)
    assert list(results) == [1]
    assert list(results) == []
    with pytest.raises(InputError, match="has begun already"):
        results.reduce(operator.add)


def test_workers_of_another_map_are_refused(two: dovetail.Workers) -> None:
    with dovetail.map(mf.plain, iter(int, 1), workers=two) as first:
        next(first)
        with pytest.raises(InputError, match="used by another map"):
            list(dovetail.map(mf.plain, [1], workers=two))
    assert list(dovetail.map(mf.plain, [1], workers=two)) == [1]


# -- workers -------------------------------------------------------------------------------------------


def who_meets(folder: Path, workers: str, count: int) -> set[tuple[str, str | None, tuple[int, ...], int]]:
    """What so many workers find around them, each of which does an item at least."""
    common = {"folder": folder / "met", "count": count}
    (folder / "met").mkdir()
    return set(dovetail.map(mf.met, range(60), workers=workers, common=common, history=False, batch=1))


def test_workers_are_bound_to_their_cores_and_devices(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    found = who_meets(tmp_path, "cpu:2,gpu:2", 4)
    by_device = {device: (visible, pinned) for device, visible, pinned, _ in found}
    assert set(by_device) == {"cpu:0", "cpu:1", "gpu:0", "gpu:1"}
    for i in range(2):
        assert by_device[f"cpu:{i}"] == ("", (cores[i % len(cores)],))
        assert by_device[f"gpu:{i}"] == (str(i), (cores[(2 + i) % len(cores)],))
    assert len({pid for *_, pid in found}) == 4  # started once


def test_kept_workers_are_the_same_processes(both: dovetail.Workers) -> None:
    runs = [{pid for *_, pid in dovetail.map(mf.device, range(20), workers=both, batch=1)} for _ in range(3)]
    assert len(set.union(*runs)) <= 2


class Counted(ThisMachine):
    """Units that remember what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Place] = []
        self.given: list[Place] = []

    def take(self, wanted: Any, before: Any = ()) -> Any:
        self.held = list(super().take(wanted, before))
        return self.held

    def give(self, place: Place) -> None:
        super().give(place)
        self.held.remove(place)
        self.given.append(place)


def test_units_are_held_while_used_and_given_back_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three workers has a long item; of the others one stays to help, the other is let go."""
    units, over = Counted(), tmp_path / "over"

    def item(long: bool) -> None:
        until(lambda: over.exists() or not long)

    monkeypatch.setattr("dovetail.mapping.hiring.ThisMachine", lambda: units)
    results = dovetail.map(
        item, [True, False, False], workers="cpu:3", history=False, batch=1, duplicate=False
    )
    assert [next(results), next(results)] == [None, None]
    waits = threading.Thread(target=lambda: (until(lambda: units.given), time.sleep(0.5), over.touch()))
    waits.start()
    early: list[Place] = []
    for _ in results:
        early = list(units.given)
    waits.join()
    assert len(early) == 1
    assert units.held == []
    assert sorted(place.name for place in units.given) == ["cpu 0", "cpu 1", "cpu 2"]


def test_nothing_is_left_when_a_map_ends_or_is_left() -> None:
    before = descendants()
    list(dovetail.map(mf.plain, range(100), workers="cpu:2"))
    until(lambda: not descendants(but=before))
    for _ in dovetail.map(mf.plain, iter(int, 1), workers="cpu:2"):
        break
    gc.collect()
    until(lambda: not descendants(but=before))
    results = dovetail.map(mf.plain, iter(int, 1), workers="cpu:2")
    next(results)
    until(lambda: len(descendants(but=before)) == 3, "not a supervisor and two workers")
    results.close()
    until(lambda: not descendants(but=before))


def test_an_error_that_leaves_the_loop_leaves_no_worker() -> None:
    before = descendants()

    def loop() -> None:
        for _ in dovetail.map(mf.plain, iter(int, 1), workers="cpu:2"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    gc.collect()
    until(lambda: not descendants(but=before))


def test_opencl_devices_are_asked_for_by_name(tmp_path: Path) -> None:
    need_opencl()
    found = who_meets(tmp_path, "cpu:1,opencl:1", 2)
    assert {device for device, *_ in found} == {"cpu:0", "opencl:0"}


# -- the split -----------------------------------------------------------------------------------------


def test_the_fast_kind_does_more_and_both_end_together() -> None:
    with dovetail.Workers("cpu:1,gpu:1") as workers:
        list(dovetail.map(mf.slowly, [0.01] * 20, workers=workers, history=False, batch=1))  # both are there
        results = dovetail.map(mf.slowly, [0.2] * 50, workers=workers, history=False, batch=1)
        counts = Counter(results)
    summary = results.summary
    assert summary.tasks == counts
    assert summary.acceleration is not None
    assert counts["gpu"] / 50 == pytest.approx(summary.acceleration / (1 + summary.acceleration), abs=0.15)
    assert summary.acceleration > 1.5  # 4 on an idle machine
    assert summary.overhead_per_task is not None
    assert summary.overhead_per_task > 0


def test_the_slow_kind_leaves_the_last_items_alone() -> None:
    """Two kinds, known from earlier maps; one item goes to the fast kind, whoever is ready first."""
    for _ in range(10):  # on a busy machine the fast kind may come too late to show what it can do
        first = dovetail.map(mf.slowly, [0.1] * 20, workers="cpu:1,gpu:1", batch=1)
        list(first)
        if first.summary.tasks.get("gpu", 0) > 2:
            break
    for _ in range(3):
        assert list(dovetail.map(mf.slowly, [0.1], workers="cpu:1,gpu:1", batch=1)) == ["gpu"]


def test_a_straggler_is_run_a_second_time_on_the_fast_kind(tmp_path: Path) -> None:
    """Greedy gives the CPU an item that it would never end: the copy on the GPU is ready first."""
    begun, over = tmp_path / "begun", tmp_path / "over"

    @dovetail.function
    def item(x: float) -> str:
        begun.touch()
        until(over.exists)
        return "cpu"

    @item.gpu
    def _(x: float) -> str:
        until(begun.exists)
        return "gpu"

    results = dovetail.map(
        item, range(7), workers="cpu:1,gpu:1", rule="greedy", history=False, cost=[1, 1, 1, 1, 1, 20, 20],
        batch=1,
    )  # fmt: skip
    found = list(results)
    over.touch()
    assert found == ["gpu"] * 7
    assert results.summary.duplicated == 1
    assert results.summary.tasks == {"gpu": 7}


def test_the_largest_items_go_first_where_their_cost_is_known() -> None:
    seconds = [0.02, 0.3, 0.05, 0.2, 0.1]

    def item(x: float) -> float:
        time.sleep(x)
        return x

    found = list(dovetail.map(item, seconds, workers="cpu:1", cost=lambda x: x, history=False, batch=1))
    assert found == sorted(seconds, reverse=True)


@pytest.mark.parametrize("cost", [[1.0], [1.0, -1.0], [1.0, float("nan")], lambda _: 0])
def test_costs_that_make_no_sense_are_refused(two: dovetail.Workers, cost: Any) -> None:
    with pytest.raises(InputError, match="cost: found"):
        list(dovetail.map(mf.plain, [1, 2], workers=two, cost=cost))


# -- learning ------------------------------------------------------------------------------------------


def test_a_map_leaves_one_run_for_each_kind_in_the_history(state: Path) -> None:
    began = time.monotonic()
    list(dovetail.map(mf.slowly, [0.2] * 20, workers="cpu:1,gpu:1", batch=1, rule="greedy"))
    took = time.monotonic() - began
    with SqliteHistory(state / "dovetail" / "history.sqlite") as history:
        runs = {run.implementation: run for run in history.runs("map_functions.slowly")}
        assert len(history.runs("map_functions.slowly")) == 2
    assert 0.2 <= runs["cpu"].seconds < took
    assert 0.05 <= runs["gpu"].seconds < runs["cpu"].seconds
    assert (runs["cpu"].nodes, runs["cpu"].cpus, runs["cpu"].gpus, runs["gpu"].gpus) == (1, 1, 0.0, 1.0)
    assert runs["cpu"].device_class.kind == "cpu"


def test_the_second_map_begins_with_the_split_that_the_first_has_learned() -> None:
    """Without knowledge the CPU takes one of two items; with it, none: it would end last."""

    @dovetail.function(name="learned")
    def item(seconds: float) -> str:
        time.sleep(seconds)
        return "cpu"

    # So many that the CPU runs more than one, also if it starts late: a worker's first teaches nothing.
    item.gpu(lambda seconds: time.sleep(seconds / 20) or "gpu")
    first = list(dovetail.map(item, [1.0] * 120, workers="cpu:1,gpu:1", batch=1, duplicate=False))
    assert first.count("cpu") > 1
    assert "gpu" in first
    second = dovetail.map(item, [1.0] * 2, workers="cpu:1,gpu:1", batch=1, duplicate=False)
    assert list(second) == ["gpu", "gpu"]


def test_sizes_of_items_are_learned_and_predicted() -> None:
    """Arrays of two sizes; the time goes with the size. Then a large one goes first by itself."""

    def work(array: Any) -> int:
        time.sleep(array.nbytes / 4e6)
        return int(array.nbytes)

    sizes = [100_000, 400_000] * 6
    made = dovetail.function(name="by-size")(work)
    first = list(dovetail.map(made, [np.zeros(n // 8) for n in sizes], workers="cpu:1", batch=1))
    assert first == sizes
    second = list(dovetail.map(made, [np.zeros(n // 8) for n in sizes], workers="cpu:1", batch=1))
    assert second == sorted(sizes, reverse=True)


def test_nothing_is_kept_where_nothing_shall_be(state: Path) -> None:
    list(dovetail.map(mf.slowly, [0.01] * 4, workers="cpu:1", history=False))
    assert not (state / "dovetail").exists()


# -- checks --------------------------------------------------------------------------------------------


def test_kinds_that_agree_pass_the_check() -> None:
    results = dovetail.map(mf.clever, [1.0, 2.0, 4.0], workers="cpu:1,gpu:1", verify=1.0)
    assert len(list(results)) == 3
    assert results.summary.compared == 3


def test_kinds_that_disagree_do_not() -> None:
    with pytest.raises(MapError, match=r"item 2: the results of cpu and gpu differ: 3\.0 and 4\.0"):
        list(dovetail.map(mf.clever, [1.0, 2.0, 3.0], workers="cpu:1,gpu:1", verify=1.0))
    found = dovetail.map(
        mf.clever, [3.0], workers="cpu:1,gpu:1", verify=1.0, agree=lambda a, b: abs(a - b) <= 1
    )
    assert len(list(found)) == 1


def test_a_check_needs_two_kinds(two: dovetail.Workers) -> None:
    with pytest.raises(InputError, match="workers of one kind"):
        list(dovetail.map(mf.plain, [1], workers=two, verify=0.5))


# -- where it is used ----------------------------------------------------------------------------------


def test_under_asyncio_the_loop_goes_on(two: dovetail.Workers) -> None:
    async def main() -> tuple[list[int], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        found = [x async for x in dovetail.map(mf.slow_plain, range(100), workers=two, batch=1)]
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(main())
    assert sorted(found) == list(range(100))
    assert ticks > 5


def test_functions_and_classes_of_a_script_and_of_a_notebook() -> None:
    """As in a notebook: no file, an event loop that runs, everything in __main__."""
    code = """
import asyncio, dovetail
from dataclasses import dataclass

@dataclass
class Point:
    x: int

offset = 10

@dovetail.function
def moved(point):
    return Point(point.x + offset)

@moved.gpu
def _(point):
    return Point(point.x + offset)

async def cell():
    found = list(dovetail.map(moved, map(Point, range(40)), workers="cpu:1,gpu:1", ordered=True))
    assert found == [Point(x + 10) for x in range(40)], found
    print("ok", isinstance(found[0], Point))

asyncio.run(cell())
"""
    done = subprocess.run([sys.executable, "-"], input=code, text=True, capture_output=True, check=False)
    assert done.stdout.split() == ["ok", "True"], done.stderr


def test_what_makes_no_sense_is_refused_at_once() -> None:
    for options, message in (
        ({"rule": "best"}, "rule: found 'best', expected one of greedy, shares, finish-time"),
        ({"errors": "ignore"}, "errors: found 'ignore'"),
        ({"retries": -1}, "retries: found -1"),
        ({"timeout": 0}, "timeout: found 0"),
        ({"batch": 0}, "batch: found 0"),
        ({"verify": 2}, "verify: found 2"),
        ({"workers": "gpu"}, "workers: map_functions.plain has no implementation for gpu"),
        ({"workers": "cpu:two"}, "workers: found 'cpu:two'"),
        ({"engine": "spark"}, "engine: found 'spark', expected one of local, ray, slurm"),
        ({"address": "here:1"}, "address: found 'here:1'"),
    ):
        with pytest.raises(InputError, match=message.replace(".", "[.]")):
            list(dovetail.map(mf.plain, [1], **options))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="items: found 5, expected an iterable"):
        dovetail.map(mf.plain, 5)  # type: ignore[arg-type]
