"""A worker that fails where another succeeds is suspended, and what failed on it is done elsewhere."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import map_functions as mf
import pytest
from waiting import until

import dovetail
from dovetail.errors import DovetailWarning, InputError, ItemError, MapError
from dovetail.mapping.health import IN_A_ROW, MOST_TRIES

pytestmark = [
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.filterwarnings("ignore::dovetail.errors.DovetailWarning"),
]

BOTH = "cpu:1,gpu:1"
LIMIT = 2 * IN_A_ROW + 2


def tries_file() -> str:
    """An empty file, in which workers count."""
    os.makedirs(os.environ["XDG_STATE_HOME"], exist_ok=True)
    handle, path = tempfile.mkstemp(dir=os.environ["XDG_STATE_HOME"])
    os.close(handle)
    return path


def broken(how: str, good: int = 0) -> dovetail.mapping.function.Function:
    """A function whose GPU version does ``good`` items and then only fails.

    The CPU version waits until that has failed so often that its worker can be judged: else, on a busy
    machine, the one would have done all before the other is there.
    """
    tries = tries_file()
    enough = good + (IN_A_ROW if how == "raises" else 1)

    def on_cpu(x: int) -> int:
        deadline = time.monotonic() + 60
        while os.stat(tries).st_size < enough and time.monotonic() < deadline:
            time.sleep(0.002)
        return 2 * x

    done = [0]

    def on_gpu(x: int) -> int:
        done[0] += 1
        with open(tries, "a") as file:
            file.write(".")
        if done[0] <= good:
            return 2 * x
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "leaves":
            os._exit(7)
        elif how == "hangs":
            time.sleep(1000)
        raise RuntimeError("no CUDA device")

    made = dovetail.function(on_cpu)
    made.gpu(on_gpu)
    return made


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(
    ("how", "good"), [("raises", 0), ("raises", 21), ("dies", 0), ("dies", 21), ("leaves", 0)]
)
def test_a_gpu_that_fails_loses_no_item(how: str, good: int, retries: int) -> None:
    results = dovetail.map(
        broken(how, good), range(100), workers=BOTH, retries=retries, errors="return", history=False,
        duplicate=False,  # else a copy may be done before it is heard that the device's worker is lost
    )  # fmt: skip
    assert sorted(results) == [2 * x for x in range(100)]
    summary = results.summary
    if how == "raises" or not good:  # a process in a lost one's place does as many again
        assert summary.tasks["cpu"] >= 100 - good
    assert 1 <= summary.failed_on["gpu"] <= LIMIT
    assert set(summary.failed_on) == {"gpu"}
    assert set(summary.suspended) <= {"gpu"}
    if how == "raises":
        assert 0 < summary.suspended["gpu"] <= summary.seconds


@pytest.mark.parametrize("batch", [1, 25, None])
def test_of_a_batch_no_more_is_tried_than_shows_that_the_worker_is_broken(batch: int | None) -> None:
    results = dovetail.map(broken("raises", 40), range(400), workers=BOTH, batch=batch, history=False)
    assert sorted(results) == [2 * x for x in range(400)]
    assert results.summary.failed_on["gpu"] <= LIMIT


def test_it_is_said_once_which_worker_is_suspended_and_why() -> None:
    with pytest.warns(DovetailWarning, match="gpu 0 worker is suspended.*no CUDA device") as said:
        assert len(list(dovetail.map(broken("raises"), range(60), workers=BOTH, history=False))) == 60
    assert len(said) == 1


def test_results_are_reduced_whatever_the_gpu_does() -> None:
    results = dovetail.map(broken("raises", 10), range(300), workers=BOTH, history=False)
    assert results.reduce(lambda a, b: a + b) == sum(range(0, 600, 2))


def test_a_suspended_worker_is_tried_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is there again after its tenth call; the pauses are short here."""
    monkeypatch.setattr("dovetail.mapping.health.FIRST_PAUSE", 0.05)
    calls, done = tmp_path / "calls", [0]

    @dovetail.function
    def work(x: int) -> str:
        done[0] += 1
        # Else all is done before it is broken, or, after a few items, before it is tried again.
        enough = IN_A_ROW if done[0] < 20 else IN_A_ROW + 2
        until(lambda: calls.exists() and calls.stat().st_size >= enough)
        time.sleep(0.01)
        return "cpu"

    @work.gpu
    def _(x: int) -> str:
        with calls.open("a") as file:
            file.write("x")
        if calls.stat().st_size <= IN_A_ROW + 1:
            raise RuntimeError("not yet")
        time.sleep(0.002)
        return "gpu"

    results = dovetail.map(work, range(300), workers=BOTH, history=False, batch=1)
    kinds = list(results)
    assert len(kinds) == 300
    assert kinds.count("gpu") > 50
    assert results.summary.failed_on == {"gpu": IN_A_ROW + 1}
    assert 0.05 <= results.summary.suspended["gpu"] < results.summary.seconds


def test_bad_items_suspend_nobody() -> None:
    """Six bad neighbours fail on both kinds: that is theirs, not a worker's."""
    results = dovetail.map(mf.bad_everywhere, range(60), workers=BOTH, errors="return", history=False)
    found = list(results)
    failed = [error for error in found if isinstance(error, ItemError)]
    assert sorted(error.index for error in failed) == [20, 21, 22, 23, 24, 25]
    assert len(found) == 60
    assert results.summary.suspended == {}
    assert results.summary.failed_on == {"cpu": 6, "gpu": 6}


def test_an_item_that_fails_everywhere_has_the_last_error_of_each_kind() -> None:
    with pytest.raises(ItemError) as caught:
        list(dovetail.map(mf.bad_everywhere, [1, 2, 20], workers=BOTH, history=False))
    said = str(caught.value)
    assert "cpu: ValueError: not on a core" in said
    assert "gpu: RuntimeError: not on a device" in said
    assert caught.value.attempts == 2


def test_retries_count_when_every_kind_has_failed() -> None:
    results = dovetail.map(mf.bad_everywhere, [20], workers=BOTH, retries=2, errors="return", history=False)
    (error,) = results
    assert error.attempts == 4  # once on each kind, and twice more
    assert sum(results.summary.failed_on.values()) == 4


def test_where_nothing_succeeds_the_map_ends_early_and_says_why() -> None:
    tries = Path(tries_file())

    @dovetail.function
    def work(x: int) -> int:
        until(lambda: tries.stat().st_size)  # on a busy machine the other worker may come late
        raise ValueError("no such file")

    @work.gpu
    def _(x: int) -> int:
        tries.write_text("x")
        raise RuntimeError("no CUDA device")

    results = dovetail.map(work, range(1000), workers=BOTH, errors="skip", history=False)
    with pytest.raises(MapError, match="nothing has succeeded") as caught:
        list(results)
    assert "cpu: ValueError: no such file" in str(caught.value)
    assert "gpu: RuntimeError: no CUDA device" in str(caught.value)
    assert sum(results.summary.failed_on.values()) < 60


def test_a_slow_first_success_is_waited_for() -> None:
    """Many quick failures on one worker end nothing while another is at its first item."""

    def work(x: int) -> int:
        if x == 0:
            time.sleep(0.5)
            return x
        raise ValueError("bad")

    results = dovetail.map(work, range(100), workers="cpu:2", errors="skip", batch=1, history=False)
    assert list(results) == [0]
    assert len(results.summary.failed) == 99


def test_a_version_that_cannot_be_loaded_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __call__(self, x: int) -> int:
            return x

        def __reduce__(self) -> Any:
            return __import__, ("no_such_gpu_library",)

    made = dovetail.function(mf.plain)
    made.gpu(Refuses())
    results = dovetail.map(made, range(50), workers=BOTH, history=False)
    assert sorted(results) == list(range(50))
    assert results.summary.tasks == {"cpu": 50}
    assert results.summary.suspended["gpu"] > 0


def test_checks_end_where_one_kind_only_fails() -> None:
    results = dovetail.map(broken("raises"), range(60), workers=BOTH, verify=1.0, history=False)
    assert sorted(results) == [2 * x for x in range(60)]
    assert results.summary.failed_on["gpu"] <= LIMIT


def test_one_broken_worker_of_a_kind_is_suspended_alone() -> None:
    """Of two GPU workers one fails; its items are done by the other, by the retries that they have."""

    tries = tries_file()

    @dovetail.function
    def work(x: int) -> int:
        raise AssertionError("not asked for")

    @work.gpu
    def _(x: int) -> int:
        if os.environ["DOVETAIL_WORKER"] == "gpu:1":
            with open(tries, "a") as file:
                file.write(".")
            raise RuntimeError("no CUDA device")
        deadline = time.monotonic() + 60
        while not os.stat(tries).st_size and time.monotonic() < deadline:
            time.sleep(0.002)
        return x

    results = dovetail.map(work, range(100), workers="gpu:2", retries=1, errors="return", history=False)
    assert sorted(results) == list(range(100))
    assert results.summary.failed_on["gpu"] <= LIMIT
    assert MOST_TRIES == LIMIT


# -- no device, no worker ------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPUs."""
    monkeypatch.setattr("dovetail.mapping.places.devices_here", lambda kind: ())


def test_without_a_device_there_is_no_worker_and_one_sentence(no_gpu: None) -> None:
    with pytest.warns(
        DovetailWarning, match="this machine has no gpu device: the map has no gpu worker"
    ) as said:
        found = set(dovetail.map(mf.device, range(20), history=False))
    assert len(said) == 1
    assert {(device.partition(":")[0], visible) for device, visible, *_ in found} == {
        ("cpu", os.environ.get("CUDA_VISIBLE_DEVICES"))
    }


def test_a_function_for_devices_only_is_refused_where_there_is_none(no_gpu: None) -> None:
    only = dovetail.mapping.function.Function(mf.plain, "gpu")
    with pytest.raises(InputError, match="workers: found no gpu device on this machine, expected one"):
        list(dovetail.map(only, range(5), history=False))


def test_a_worker_asked_for_by_name_is_the_persons_own_word(no_gpu: None) -> None:
    (found,) = dovetail.map(mf.device, [1], workers="gpu:1", history=False)
    assert found[0] == "gpu:0"
