"""`dovetail.Executor` on this machine: what `concurrent.futures` promises, and what workers do beside."""

from __future__ import annotations

import asyncio
import gc
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Future,
    as_completed,
    wait,
)
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import executor_functions as ef
import numpy as np
import pytest
from waiting import until

import dovetail
from dovetail.errors import InputError
from dovetail.local.claims import list_holders
from dovetail.pools.pool import WorkerLost

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
LONG = 100.0


@pytest.fixture(scope="module")
def two() -> Iterator[dovetail.Executor]:
    """Two workers."""
    with dovetail.Executor(2, local=True) as executor:
        yield executor


def test_a_program_that_forks_at_once_holds_nothing_up() -> None:
    with dovetail.Executor(1, local=True) as executor:
        # A child has all descriptors of a process that another thread is just starting.
        child = os.fork()
        if not child:
            time.sleep(LONG)
            os._exit(0)
        try:
            assert executor.submit(pow, 2, 8).result(LONG / 2) == 256
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


# -- what concurrent.futures promises ----------------------------------------------------------------------


def test_submit(two: dovetail.Executor) -> None:
    assert isinstance(two, FuturesExecutor)
    assert two.submit(pow, 2, 8).result(LONG) == 256
    assert two.submit(ef.square, number=3).result(LONG) == 9
    assert two.submit(dict, fn=1, self=2, name="x").result(LONG) == {"fn": 1, "self": 2, "name": "x"}
    assert two.submit(partial(pow, 2), 3).result(LONG) == 8
    assert two.submit([3, 1, 2].index, 2).result(LONG) == 2
    assert two.submit(eval, "__import__('sys').argv").result(LONG) == sys.argv
    error = ef.end_of(two.submit(3))  # type: ignore[call-overload]
    assert (type(error), str(error)) == (TypeError, "found 3, expected a function")


def test_map(two: dovetail.Executor) -> None:
    for size in (1, 3, 100):
        assert list(two.map(pow, range(10), range(10), chunksize=size)) == [n**n for n in range(10)]
    assert list(two.map(ef.square, [])) == []
    with pytest.raises(ValueError, match="chunksize"):
        two.map(ef.square, [1], chunksize=0)
    results = two.map(divmod, [1, 1, 1], [2, 0, 2])
    assert next(results) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_times_out(two: dovetail.Executor, tmp_path: Path) -> None:
    results = two.map(ef.wait_for, [str(tmp_path), str(tmp_path / "late")], timeout=0.5)
    with pytest.raises(TimeoutError):
        list(results)
    (tmp_path / "late").touch()


def test_wait_and_as_completed(two: dovetail.Executor, tmp_path: Path) -> None:
    late = two.submit(ef.wait_for, str(tmp_path / "late"))
    soon, bad = two.submit(ef.square, 2), two.submit(ef.fail, "no")
    done, rest = wait([late, soon], LONG, return_when=FIRST_COMPLETED)
    assert (done, rest) == ({soon}, {late})
    done, rest = wait([late, bad], LONG, return_when=FIRST_EXCEPTION)
    assert (done, rest) == ({bad}, {late})
    assert late.running()
    with pytest.raises(TimeoutError):
        late.result(0.01)
    order = as_completed([late, soon], LONG)
    assert next(order) is soon
    called: list[Any] = []
    late.add_done_callback(called.append)
    (tmp_path / "late").touch()
    assert next(order) is late
    assert wait([late, soon, bad], LONG, return_when=ALL_COMPLETED).not_done == set()
    assert called == [late]


def test_asyncio(two: dovetail.Executor) -> None:
    async def main() -> tuple[list[int], int]:
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(*(asyncio.wrap_future(two.submit(ef.square, n)) for n in range(5)))
        return found, await loop.run_in_executor(two, ef.square, 7)

    assert asyncio.run(main()) == ([0, 1, 4, 9, 16], 49)


def test_exceptions_come_with_the_workers_traceback(two: dovetail.Executor) -> None:
    class Own(Exception):  # noqa: N818 - of this function alone
        pass

    def own() -> None:
        raise Own("by value")

    error = ef.end_of(two.submit(own))
    assert type(error) is Own
    error = ef.end_of(two.submit(ef.fail, "gone"))
    assert isinstance(error, LookupError)
    assert error.args == ("gone",)
    (note,) = error.__notes__
    assert note.startswith("In the worker:\nTraceback")
    assert "raise LookupError(text)" in note
    assert "run_call" not in note
    error = ef.end_of(two.submit(ef.fail_oddly))
    assert isinstance(error, RuntimeError)
    assert "Odd: 1 and 2 (the exception itself cannot be sent back" in str(error)
    error = ef.end_of(two.submit(ef.leave, 3))
    assert isinstance(error, SystemExit)
    assert error.code == 3


def test_what_cannot_travel_fails_alone(two: dovetail.Executor) -> None:
    good = [two.submit(ef.square, n) for n in range(20)]
    for future in (two.submit(ef.unpicklable), two.submit(ef.square, threading.Lock())):  # type: ignore[arg-type]
        assert isinstance(ef.end_of(future), TypeError)
    error = ef.end_of(two.submit(ef.unreadable))
    assert isinstance(error, ValueError)
    assert "cannot be read" in error.__notes__[0]
    assert isinstance(ef.end_of(two.submit(ef.square, ef.Unreadable())), ValueError)  # type: ignore[arg-type]
    assert [future.result(LONG) for future in good] == [n * n for n in range(20)]


def test_cancel(two: dovetail.Executor, tmp_path: Path) -> None:
    held = [two.submit(ef.wait_for, str(tmp_path / "late")) for _ in range(2)]
    until(lambda: all(future.running() for future in held))
    waiting = [two.submit(ef.square, n) for n in range(9)]
    assert all(future.cancel() for future in waiting[::2])
    assert not held[0].cancel()
    (tmp_path / "late").touch()
    assert [future.result(LONG) for future in waiting[1::2]] == [1, 9, 25, 49]
    with pytest.raises(CancelledError):
        waiting[0].result()
    assert set(as_completed(waiting, LONG)) == set(waiting)


def test_shutdown(tmp_path: Path) -> None:
    executor = dovetail.Executor(1, local=True)
    held = executor.submit(ef.wait_for, str(tmp_path / "late"))
    until(held.running)
    rest = [executor.submit(ef.square, n) for n in range(5)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(ef.square, 1)
    assert not held.done()
    executor.shutdown(wait=False, cancel_futures=True)
    assert wait(rest, LONG).not_done == set()
    assert all(future.cancelled() for future in rest)
    (tmp_path / "late").touch()
    executor.shutdown()
    assert held.done()
    executor.shutdown()


def test_it_ends_with_its_last_reference_and_with_the_program() -> None:
    executor = dovetail.Executor(1, local=True)
    future, thread = executor.submit(ef.square, 4), executor._pool.thread
    gone = weakref.ref(executor)
    del executor
    gc.collect()
    assert gone() is None
    assert future.result(LONG) == 16
    thread.join(LONG)
    assert not thread.is_alive()
    program = (
        "import dovetail\n"
        "def twice(n): return 2 * n\n"
        "executor = dovetail.Executor(1, local=True)\n"
        "executor.submit(twice, 4).add_done_callback(lambda future: print(future.result()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.stderr, done.returncode) == ("8\n", "", 0)


INTERRUPTED = """
import dovetail, os, signal, sys, threading, time
def tick():
    open(sys.argv[2], "w").close()
    time.sleep(1000)
def interrupt():
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
executor = dovetail.Executor(1, local=True)
futures = [executor.submit(tick) for _ in range(3)]
if sys.argv[1] == "with":
    with executor:
        futures[0].result()
futures[0].result()
"""


@pytest.mark.parametrize("how", ["with", "without"])
def test_ctrl_c_ends_a_program_and_its_calls(how: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", INTERRUPTED, how, str(tmp_path / "began")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.stderr.count("Traceback") == 1


def test_no_cycles_keep_results(two: dovetail.Executor) -> None:
    class Big:
        pass

    future = two.submit(Big)
    kept = weakref.ref(future.result(LONG))
    future = two.submit(ef.square, 1)
    future.result(LONG)
    until(lambda: kept() is None or gc.collect() < 0, "a result is kept")


# -- workers ------------------------------------------------------------------------------------------------


def test_a_killed_worker_costs_the_call_that_ran(tmp_path: Path) -> None:
    mark = tmp_path / "attempts"
    with dovetail.Executor(1, local=True) as executor:
        list(executor.map(ef.square, range(200)))  # they are known to be short
        before = [executor.submit(ef.square, n) for n in range(50)]
        killed = executor.submit(ef.die, str(mark))
        after = [executor.submit(ef.square, n) for n in range(50)]
        error = ef.end_of(killed)
        assert isinstance(error, WorkerLost)
        assert isinstance(error, BrokenProcessPool)
        assert "SIGKILL" in str(error)
        assert [future.result(LONG) for future in (*before, *after)] == [n * n for n in range(50)] * 2
        assert mark.read_text() == "x", "it was not made again"


def test_a_worker_that_is_killed_between_calls_costs_none() -> None:
    with dovetail.Executor(1, local=True) as executor:
        worker = executor.submit(os.getpid).result(LONG)
        os.kill(worker, signal.SIGSTOP)  # what is sent now it does not begin
        futures = [executor.submit(ef.square, n) for n in range(5)]
        until(futures[0].running)
        os.kill(worker, signal.SIGKILL)
        assert [future.result(LONG) for future in futures] == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_of_calls(seed: int, tmp_path: Path) -> None:
    """Whatever calls do, each future ends as its own call does, and no call is made twice."""
    chance = random.Random(seed)
    with dovetail.Executor(3, local=True) as executor:
        given: list[tuple[str, int, Future[Any]]] = []
        for n in range(300):
            what = chance.choices(["square", "fail", "die", "lock", "cancel"], [60, 20, 1, 5, 14])[0]
            future: Future[Any]
            if what == "fail":
                future = executor.submit(ef.fail, str(n))
            elif what == "die":
                future = executor.submit(ef.die, str(tmp_path / str(n)))
            elif what == "lock":
                future = executor.submit(ef.unpicklable)
            else:
                future = executor.submit(ef.square, n)
                if what == "cancel":
                    future.cancel()
            given.append((what, n, future))
        assert wait([future for *_, future in given], LONG).not_done == set()
    lost = 0
    for what, n, future in given:
        error = None if future.cancelled() else future.exception()
        if what != "die" and isinstance(error, WorkerLost):
            lost += 1  # it was made together with one that was killed, and its result is lost
        elif what in ("square", "cancel"):
            assert future.cancelled() or future.result() == n * n
        else:
            kind = {"fail": LookupError, "die": WorkerLost, "lock": TypeError}[what]
            assert isinstance(error, kind)
    kills = [path for path in tmp_path.iterdir() if path.read_text() == "x"]
    assert len(kills) == sum(what == "die" for what, *_ in given)
    assert lost == 0, "batches are of one function, and that one kills"


def test_initializer() -> None:
    with dovetail.Executor(2, local=True, initializer=ef.prepare, initargs=("word",)) as executor:
        found = dict(future.result(LONG) for future in [executor.submit(ef.prepared) for _ in range(20)])
        assert set(map(tuple, found.values())) == {("word",)}
    with dovetail.Executor(1, local=True, initializer=ef.fail, initargs=("broken",)) as executor:
        futures = [executor.submit(ef.square, n) for n in range(3)]
        for future in futures:
            error = ef.end_of(future)
            assert isinstance(error, BrokenExecutor)
            assert "LookupError: broken" in str(error)
        with pytest.raises(BrokenExecutor, match="broken"):
            executor.submit(ef.square, 1)
    scope: dict[str, Any] = {"__name__": "__main__", "state": None}
    exec("def begin(word):\n global state\n state = word\ndef use(n): return n * state", scope)
    with dovetail.Executor(1, local=True, initializer=scope["begin"], initargs=("ab",)) as executor:
        assert executor.submit(scope["use"], 2).result(LONG) == "abab"
        assert executor.submit(partial(scope["use"], 3)).result(LONG) == "ababab"
    with pytest.raises(TypeError):
        dovetail.Executor(1, local=True, initializer=3)  # type: ignore[arg-type]


def test_large_arrays_are_read_only_there(two: dovetail.Executor) -> None:
    array = np.arange(1 << 16, dtype=float)
    total, writeable, double = two.submit(ef.total, array).result(LONG)
    assert (total, writeable) == (array.sum(), False)
    assert np.array_equal(double, 2 * array)
    double[0] = 1.0  # a result is one's own


def test_what_a_manager_of_multiprocessing_shares(two: dovetail.Executor) -> None:
    with multiprocessing.get_context("spawn").Manager() as manager:
        queue = manager.Queue()
        two.submit(queue.put, "through").result(LONG)
        two.submit(lambda there: there.put("again"), queue).result(LONG)
        assert (queue.get(), queue.get()) == ("through", "again")


def test_functions_by_value_are_as_they_are_now(two: dovetail.Executor) -> None:
    """A pickle that is kept must not hide what has changed since."""
    factor, table = 2, [1]
    scope: dict[str, Any] = {"FACTOR": 3, "__name__": "__main__"}
    exec("def scaled(n): return helper(n) * FACTOR\ndef helper(n): return n", scope)

    def here(n: int) -> tuple[int, list[int]]:
        return n * factor, table

    assert two.submit(here, 2).result(LONG) == (4, [1])
    factor = 5
    table.append(2)
    assert two.submit(here, 2).result(LONG) == (10, [1, 2])
    assert two.submit(scope["scaled"], 2).result(LONG) == 6
    scope["FACTOR"] = 7
    assert two.submit(scope["scaled"], 2).result(LONG) == 14
    exec("def helper(n): return -n", scope)
    assert two.submit(scope["scaled"], 2).result(LONG) == -14
    exec("import functools\n@functools.lru_cache(3)\ndef helper(n): return 2 * n", scope)
    assert two.submit(scope["scaled"], 2).result(LONG) == 28


def test_many_short_calls_from_many_threads(two: dovetail.Executor) -> None:
    found: dict[int, list[int]] = {}

    def burst(me: int) -> None:
        futures = [two.submit(ef.square, n) for n in range(me, me + 500)]
        found[me] = [future.result(LONG) for future in futures]

    threads = [threading.Thread(target=burst, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {me: [n * n for n in range(me, me + 500)] for me in range(4)}


def test_calls_that_wait_for_each_other_run_at_once(two: dovetail.Executor, tmp_path: Path) -> None:
    list(two.map(ef.square, range(100)))
    assert list(two.map(ef.meet, itertools.repeat(str(tmp_path)), range(2), [2, 2])) == [0, 1]


def worker_pids(executor: dovetail.Executor) -> list[int]:
    """The processes that an executor's supervisor has started."""
    supervisor = executor._pool._crew._supervisor.pid  # type: ignore[attr-defined]
    return [int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]


@pytest.fixture
def four() -> Iterator[dovetail.Executor]:
    """Four workers, on whichever cores; calls of `short_or_long` are known to be short there."""
    with dovetail.Executor(4, local=True) as executor:
        none = itertools.repeat("")
        list(executor.map(ef.short_or_long, none, none, range(200), itertools.repeat(0)))
        yield executor


def test_short_calls_that_wait_for_each_other_do_not_wait_behind_each_other(
    four: dovetail.Executor, tmp_path: Path
) -> None:
    """They travel together, and those behind one that waits go to other workers."""
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir()
        before = [four.submit(ef.short_or_long, "", "", n, 0) for n in range(50)]
        waiting = [four.submit(ef.short_or_long, "", str(folder), n, 4) for n in range(4)]
        after = [four.submit(ef.short_or_long, "", "", n, 0) for n in range(50)]
        assert [future.result(LONG) for future in (*before, *waiting, *after)] == [
            *range(50), *range(4), *range(50)
        ]  # fmt: skip


def test_calls_behind_one_that_never_ends_are_made(four: dovetail.Executor, tmp_path: Path) -> None:
    futures = [four.submit(ef.short_or_long, "", str(tmp_path), n, 2 * (n == 5)) for n in range(100)]
    rest = [future.result(LONG) for n, future in enumerate(futures) if n != 5]
    assert rest == [n for n in range(100) if n != 5]
    assert not futures[5].done()
    (tmp_path / "other").touch()
    assert futures[5].result(LONG) == 5


@pytest.mark.parametrize("seed", [1, 2])
def test_calls_taken_back_are_made_once_under_kills(
    seed: int, four: dovetail.Executor, tmp_path: Path
) -> None:
    """Long and short ones at random, and workers that are killed at random: none is lost, none made twice."""
    chance = random.Random(seed)
    met = tmp_path / "met"
    met.mkdir()
    long = chance.sample(range(200), 3)
    futures = [
        four.submit(ef.short_or_long, str(tmp_path / str(n)), str(met), n, 4 * (n in long))
        for n in range(200)
    ]
    for share in (150, 100, 50):
        until(lambda share=share: sum(not future.done() for future in futures) <= share)
        with suppress(ProcessLookupError):
            os.kill(chance.choice(worker_pids(four)), signal.SIGKILL)
    until(lambda: all(future.done() for n, future in enumerate(futures) if n not in long))
    for n in range(4):
        (met / f"go-{n}").touch()
    for n, future in enumerate(futures):
        made = (tmp_path / str(n)).read_text() if (tmp_path / str(n)).exists() else ""
        error = future.exception(LONG)
        assert isinstance(error, WorkerLost) or (future.result(), made) == (n, "x"), (n, error, made)
        assert len(made) <= 1, (n, made)


def test_ctrl_c_while_a_call_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it has gone, or after it has: the worker goes on with the next calls."""
    with dovetail.Executor(1, local=True) as executor:
        assert executor.submit(ef.square, 2).result(LONG) == 4
        crew, ours = executor._pool._crew, threading.current_thread()
        send = crew.send_calls
        for sent in (False, True, True, False):
            pressed: list[bool] = []

            def interrupted(
                *args: Any, sent: bool = sent, pressed: list[bool] = pressed, **more: Any
            ) -> None:
                # Only a thread that submits is interrupted; where the worker is free it sends.
                if threading.current_thread() is ours:
                    pressed.append(True)
                if sent or not pressed:
                    send(*args, **more)
                if pressed:
                    monkeypatch.undo()
                    raise KeyboardInterrupt

            monkeypatch.setattr(crew, "send_calls", interrupted)
            with suppress(KeyboardInterrupt):
                while not pressed:
                    executor.submit(ef.square, 3).result(LONG)
            assert pressed
            assert [executor.submit(ef.square, n).result(LONG) for n in range(5)] == [0, 1, 4, 9, 16]


def held_by_us() -> set[str]:
    return {unit for one in list_holders() if one.pid == os.getpid() for unit in one.units}


def test_idle_workers_give_their_cores_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path))
    with dovetail.Executor(1, local=True, env={"COLOUR": "green"}) as executor:
        assert not held_by_us(), "nothing is held before there is a call"
        first = executor.submit(os.getpid).result(LONG)
        (colour, threads), cores = executor.submit(ef.around, "COLOUR", "OMP_NUM_THREADS").result(LONG)
        assert (colour, threads, len(cores)) == ("green", "1", 1)
        until(lambda: not held_by_us(), "its cores are free again")
        assert executor.submit(os.getpid).result(LONG) == first, "the same process comes again"
        assert held_by_us()
    assert not held_by_us()


def test_others_are_waited_for_and_not_overrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs: no core of the one is used by the other, and the second goes on when the first ends."""
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path / "claims"))
    program = (
        "import sys, executor_functions as ef, dovetail\n"
        "with dovetail.Executor(local=True) as executor:\n"
        "    count = len(ef.around()[1])\n"
        "    list(executor.map(ef.meet, [sys.argv[1]] * count, range(count), [count + 1] * count))\n"
    )
    folder = tmp_path / "met"
    folder.mkdir()
    support = Path(ef.__file__).parent
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], env={**os.environ, "PYTHONPATH": str(support)}
    )
    try:
        cores = len(os.sched_getaffinity(0))
        until(lambda: len(list(folder.iterdir())) == cores, "the other has all cores")
        with dovetail.Executor(local=True) as executor:
            future = executor.submit(ef.square, 3)
            time.sleep(0.6)
            assert not future.done()
            (folder / "go").touch()
            assert future.result(LONG) == 9
    finally:
        (folder / "go").touch()
        assert other.wait(LONG) == 0


# -- nesting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "wide"), [(1, 3), (2, 2), (4, 2)])
def test_executors_within_executors_never_wait_for_each_other(depth: int, wide: int) -> None:
    cores = len(os.sched_getaffinity(0))
    with dovetail.Executor(cores, local=True) as executor:
        futures = [executor.submit(ef.nest, depth, wide, {}) for _ in range(cores + 1)]
        assert [future.result(LONG) for future in futures] == [wide**depth] * (cores + 1)


def test_workers_that_share_a_core_have_executors_of_their_own() -> None:
    many = 2 * len(os.sched_getaffinity(0))
    with dovetail.Executor(many, local=True) as executor:
        assert list(executor.map(ef.nest, [1] * many, [2] * many, [{"local": True}] * many)) == [2] * many


def test_a_joblib_pool_within_a_worker(two: dovetail.Executor) -> None:
    pytest.importorskip("joblib")
    futures = [two.submit(ef.nest_in_joblib, [1, 2, 3]) for _ in range(3)]
    assert [future.result(LONG) for future in futures] == [[1, 4, 9]] * 3


# -- kinds, options -----------------------------------------------------------------------------------------


def test_functions_with_variants_go_to_workers_of_each_kind() -> None:
    with dovetail.Executor("cpu:1,gpu:1", local=True) as executor:
        assert set(executor.map(ef.kind, range(40))) == {"cpu", "gpu"}
        assert executor.submit(ef.square, 3).result(LONG) == 9
    with dovetail.Executor("gpu:1", local=True) as executor:
        assert executor.submit(ef.kind, 0).result(LONG) == "gpu"
        assert executor.submit(ef.square, 3).result(LONG) == 9


def test_what_is_wrong_is_a_sentence() -> None:
    for options, sentence in (
        ({"cpus": 0}, "cpus: found 0"),
        ({"cpus": 4000}, "cpus: found 4000"),
        ({"gpus": 2}, "gpus: found 2"),
        ({"memory": "much"}, "memory: found"),
        ({"service": "x"}, "service: found 'x'"),
        ({"variants": []}, "variants: found"),
        ({"variants": ["tpu"]}, "variants: found tpu"),
    ):
        with pytest.raises(InputError, match=sentence):
            dovetail.Executor(local=True, **options)  # type: ignore[arg-type]
    for workers in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="workers"):
            dovetail.Executor(workers, local=True)  # type: ignore[arg-type]


def test_memory_is_a_limit_of_each_call() -> None:
    with dovetail.Executor(1, local=True, memory="1GB") as executor:
        assert isinstance(ef.end_of(executor.submit(bytearray, 3 << 30)), MemoryError)
        assert executor.submit(ef.square, 3).result(LONG) == 9
