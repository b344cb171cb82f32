"""What goes wrong in a worker: a clear error that names the item, and the other items unharmed."""

from __future__ import annotations

import operator
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import map_functions as mf
import numpy as np
import pytest
from descendants import below, descendants, named_memory
from waiting import until

import dovetail
from dovetail.errors import InputError, ItemError, MapError
from dovetail.testing.processes import is_running

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

KILLED = 100 if os.environ.get("DOVETAIL_TEST_FULL") else 8


@pytest.fixture(scope="module")
def two() -> Iterator[dovetail.Workers]:
    """Two CPU workers that stay, and may take 400 MB each."""
    with dovetail.Workers("cpu:2", memory=400_000_000) as workers:
        yield workers


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [
        ("raise", "ValueError", "ValueError: this one is bad"),
        ("exit", "SystemExit", "the function called exit (3)"),
        ("leave", "SystemExit", "its worker left with exit status 5"),
        ("crash", "WorkerLost", "its worker was killed by SIGSEGV"),
        ("lock", "TypeError", "the result, of type lock, cannot be sent back"),
        ("hang", "TimeoutError", "still running after 2 s"),
        ("memory", "MemoryError", "MemoryError"),
    ],
)
@pytest.mark.parametrize("batch", [1, 8])
def test_a_bad_item_is_named_and_the_others_are_unharmed(
    two: dovetail.Workers, item: str, kind: str, message: str, batch: int
) -> None:
    items: list[Any] = [*range(11), item, *range(12, 24)]
    results = dovetail.map(
        mf.bad, items, workers=two, errors="return", timeout=2 if item == "hang" else None, batch=batch,
        history=False, ordered=True,
    )  # fmt: skip
    found = list(results)
    error = found.pop(11)
    assert found == [*range(11), *range(12, 24)]
    assert isinstance(error, ItemError)
    assert str(error).startswith(f"item 11 ('{item}'): ")
    assert message in str(error)
    assert (error.item, error.index, error.kind) == (item, 11, kind)
    assert results.summary.failed == [{"index": 11, "reason": str(error)}]
    assert results.summary.items == 23


def test_the_error_carries_the_exception_and_the_workers_traceback(two: dovetail.Workers) -> None:
    with pytest.raises(ItemError) as caught:
        list(dovetail.map(mf.bad, ["raise"], workers=two))
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.args == ("this one is bad",)
    assert "map_functions.py" in caught.value.worker_traceback
    assert "in bad" in caught.value.worker_traceback
    assert "running.py" not in caught.value.worker_traceback  # ours is no help
    assert caught.value.__notes__ == [f"In the worker:\n{caught.value.worker_traceback.rstrip()}"]


@pytest.mark.parametrize("item", ["hang", "crash"])
def test_of_a_lost_worker_python_says_where_it_was(two: dovetail.Workers, item: str) -> None:
    with pytest.raises(ItemError) as caught:
        list(dovetail.map(mf.bad, [item], workers=two, timeout=0.3))
    assert "in bad" in caught.value.worker_traceback


def test_by_default_an_error_is_raised_and_the_map_can_go_on(two: dovetail.Workers) -> None:
    with dovetail.map(mf.bad, [0, 1, "raise", 3, 4], workers=two, ordered=True, history=False) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ItemError, match="item 2"):
            next(results)
        assert list(results) == [3, 4]


def test_errors_can_be_skipped(two: dovetail.Workers) -> None:
    items = [0, "raise", 2, "exit", 4]
    assert sorted(dovetail.map(mf.bad, items, workers=two, errors="skip")) == [0, 2, 4]
    found = dovetail.map(mf.bad, items, workers=two, errors="skip").reduce(operator.add)
    assert found == 6
    with pytest.raises(ItemError, match=r"item [13]"):
        dovetail.map(mf.bad, items, workers=two).reduce(operator.add)
    with pytest.raises(InputError, match="errors: found 'return'"):
        dovetail.map(mf.bad, items, workers=two, errors="return").reduce(operator.add)


def test_an_item_is_run_again_as_often_as_it_may(two: dovetail.Workers, tmp_path: Path) -> None:
    def sometimes(path: Path) -> int:
        tries = len(path.read_text()) if path.exists() else 0
        path.write_text("x" * (tries + 1))
        if tries < 2:
            raise OSError("not yet")
        return tries

    results = dovetail.map(sometimes, [tmp_path / "a"], workers=two, retries=2)
    assert list(results) == [2]
    assert results.summary.retried == 2
    with pytest.raises(ItemError, match=r"not yet.*after 2 attempts"):
        list(dovetail.map(sometimes, [tmp_path / "b"], workers=two, retries=1))


def test_an_item_that_cannot_be_sent_is_named(two: dovetail.Workers) -> None:
    items = [1, 2, threading.Lock(), 4]
    found = list(dovetail.map(mf.plain, items, workers=two, errors="return", ordered=True))
    assert [found[0], found[1], found[3]] == [1, 2, 4]
    assert isinstance(found[2], ItemError)
    assert "cannot pickle '_thread.lock' object" in str(found[2])


@pytest.mark.parametrize("batch", [None, 4])
def test_where_nothing_can_be_sent_the_map_ends(two: dovetail.Workers, batch: int | None) -> None:
    items = [threading.Lock() for _ in range(4)]
    assert list(dovetail.map(mf.plain, items, workers=two, errors="skip", batch=batch)) == []


class Unreadable:
    """Can be pickled, but not read again here."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _refuse, (os.getpid(),)


def _refuse(pid: int) -> Unreadable:
    if pid != os.getpid():
        raise RuntimeError("only where it was made")
    return Unreadable()


def test_a_result_that_cannot_be_read_is_named(two: dovetail.Workers) -> None:
    found = list(
        dovetail.map(
            lambda x: Unreadable() if x == 5 else x, range(9), workers=two, errors="return", ordered=True
        )
    )
    error = found.pop(5)
    assert found == [0, 1, 2, 3, 4, 6, 7, 8]
    assert "the result cannot be read: only where it was made" in str(error)


def test_what_cannot_be_combined_ends_the_map(two: dovetail.Workers) -> None:
    for batch in (1, 10):  # here, and in the worker
        with pytest.raises(MapError, match="results cannot be combined: TypeError: unsupported operand"):
            dovetail.map(mf.plain, [1, "a"] * 20, workers=two, batch=batch).reduce(operator.add)


def test_a_function_that_workers_cannot_load_ends_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        "import os\nif 'DOVETAIL_WORKER' in os.environ: raise ImportError('no such driver')\ndef f(x): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]

    before = descendants()
    with pytest.raises(MapError, match="a cpu worker cannot run the function: ImportError: no such driver"):
        list(dovetail.map(only_here.f, [1], workers="cpu:1"))
    nothing_is_left(before)


def test_a_function_that_ends_its_worker_when_loaded_ends_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os\nif os.environ.get('DOVETAIL_WORKER'): os._exit(7)\ndef f(x): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import deadly  # type: ignore[import-not-found]

    with pytest.raises(MapError, match="left with exit status 7 before it was ready"):
        list(dovetail.map(deadly.f, [1], workers="cpu:1"))


def test_arrays_are_named_by_their_shape() -> None:
    with pytest.raises(ItemError, match=r"item 0 \(ndarray of shape \(3, 2\)\): LinAlgError"):
        list(dovetail.map(np.linalg.cholesky, [np.ones((3, 2))], workers="cpu:1", history=False))


# -- killed workers ------------------------------------------------------------------------------------


def nothing_is_left(before: set[int]) -> None:
    until(lambda: not descendants(but=before), "a process is left")


@pytest.mark.timeout(KILLED * 25)
def test_workers_killed_at_random_lose_no_result_and_give_none_twice() -> None:
    chance = random.Random(1)
    before = descendants()
    lost = 0
    with dovetail.Workers("cpu:2") as workers:
        for turn in range(KILLED):
            results = dovetail.map(
                mf.slow_plain, range(60), workers=workers, ordered=turn % 2 == 0, history=False,
                batch=(None, 1, 7)[turn % 3],
            )  # fmt: skip
            found = [next(results)]
            time.sleep(chance.uniform(0, 0.1))
            victim = chance.choice(until(lambda: below(b"mapping.worker", but=before), "no worker runs"))
            with suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(victim, signal.SIGKILL)
            found += list(results)
            assert sorted(found) == list(range(60))
            lost += results.summary.lost_workers
    assert lost > 0  # most were killed at work
    nothing_is_left(before)


def test_the_supervisor_killed_is_replaced(two: dovetail.Workers) -> None:
    before = descendants()
    results = dovetail.map(mf.slow_plain, range(100), workers="cpu:2", history=False, ordered=True)
    found = [next(results)]
    (supervisor,) = below(b"mapping/supervisor.py", but=before)
    os.kill(supervisor, signal.SIGKILL)
    found += list(results)
    assert found == list(range(100))
    nothing_is_left(before)


NAP = f"321.{os.getpid()}"
SCRIPT = f"""
import os, subprocess, sys, time
import dovetail, numpy as np

def f(x):
    subprocess.Popen(["sleep", "{NAP}"])                              # in the worker's session
    subprocess.Popen(["sleep", "{NAP}"], start_new_session=True)      # and out of it
    time.sleep(0.2)
    return np.zeros(1_000_037)

print(os.getpid(), flush=True)
try:
    for i, result in enumerate(dovetail.map(f, range(100000), workers="cpu:2", history=False)):
        if i == 1:
            print("running", flush=True)
finally:
    print("over", flush=True)
"""


def sleepers() -> list[int]:
    """What the script's workers have started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == b"\0".join((b"sleep", NAP.encode(), b"")):
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [pid for pid in found if is_running(pid)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_dovetail_ends_no_worker_and_no_shared_memory_is_left(
    how: signal.Signals, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(process.pid)
    assert process.stdout.readline() == "running\n"
    assert sleepers()
    process.send_signal(how)
    try:
        _, complaint = process.communicate(timeout=100)
    finally:
        process.kill()
    if how is signal.SIGINT:
        assert "KeyboardInterrupt" in complaint
    until(lambda: not sleepers() and not _session_of_worker(process.pid), "a process is left")
    until(lambda: not named_memory(8 * 1_000_037), "shared memory is left")


def _session_of_worker(dovetail: int) -> list[int]:
    """Keepers and workers that name this Dovetail."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(b"mapping/supervisor.py" in word for word in words) and str(dovetail).encode() in words:
            found.append(int(folder.name))
    return found
