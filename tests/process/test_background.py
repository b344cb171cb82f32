"""What goes on beside a run starts again, or ends the run with a sentence; an interrupt always ends it."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dovetail.batch import backlog
from dovetail.batch.executor import BatchExecutor
from dovetail.batch.system import BatchJob, BatchSystem, TaskVariables
from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import (
    CLOSES_WITHIN,
    ENDS_WITHIN,
    LEAVES_WITHIN,
    LOOKS,
    MOST_BEYOND,
    STILL,
    LiveRun,
)
from dovetail.engine.state.core import no_bound
from dovetail.errors import ExecutorError
from dovetail.interfaces import RunFolder
from dovetail.model import Cluster, Ended, Event, Placed, Started, Submit
from dovetail.plugins import load_policy
from dovetail.process import background, notes
from dovetail.process.background import FRUITLESS, keep_going
from dovetail.process.reporting import Reporting
from dovetail.testing.builders import TrueTimesModel, workload
from dovetail.testing.processes import placed
from dovetail.testing.virtual_time import run_virtual

FULL = OSError(errno.ENOSPC, "No space left on device")


def watched(work: Callable[[], Any]) -> tuple[list[Exception], float]:
    """The errors that end the run, and how long it took."""

    async def main() -> tuple[list[Exception], float]:
        failed: list[Exception] = []
        await keep_going(work, "a task", failed.append)
        return failed, asyncio.get_running_loop().time()

    return run_virtual(main())


def test_what_the_machine_refuses_for_now_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    left = [FULL] * 20

    async def work() -> None:
        if left:
            raise left.pop()

    failed, took = watched(work)
    assert not failed
    assert took < 20 * background.MOST
    assert "a task was cut short: No space left on device; it goes on in 1 s" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_error_of_ours_that_comes_back_ends_the_run_with_a_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        raise RuntimeError("what nobody has foreseen")

    (failed,), _ = watched(work)
    assert str(failed) == (
        f"a task ended {FRUITLESS} times by an error in Dovetail: RuntimeError('what nobody has foreseen')"
    )
    assert caplog.text.count("Traceback") == FRUITLESS


class Beside(Reporting):
    """An executor whose task fails."""

    def _attach_to_loop(self) -> None:
        if not self._tasks:
            self._begin_task(self._watch)

    async def _watch(self) -> None:
        raise RuntimeError("what nobody has foreseen")

    async def launch(self, placed: Placed) -> None:
        self._attach_to_loop()

    async def stop(self, job: str, reason: str) -> None: ...

    async def close(self) -> None:
        await self._end_tasks()
        self._all_reported()


def live_of(executor: Any, *, stays: bool = False) -> LiveRun:
    made = workload([("a", {"cpu": 5.0})])
    driver = Driver(
        Cluster.uniform(1, 1),
        load_policy("fcfs").policy,
        TrueTimesModel(made.truth),
        bound=no_bound,
        options=DriverOptions(),
    )
    return LiveRun(driver, executor, made.jobs, stays=stays)


def test_a_run_ends_where_its_executor_cannot_go_on(tmp_path: Path) -> None:
    live = live_of(Beside(RunFolder(tmp_path), Cluster.uniform(1, 1)))
    with pytest.raises(ExecutorError, match=r"a task of the executor \(watch\) ended 5 times by an error"):
        run_virtual(live.run())


class Stuck:
    """An executor that does not let go at one place."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.closed = False

    async def _stick(self, place: str) -> None:
        if self.place == place:
            await asyncio.Event().wait()

    async def launch(self, placed: Placed) -> None:
        await self._stick("launch")

    async def stop(self, job: str, reason: str) -> None:
        await self._stick("stop")

    async def events(self) -> AsyncIterator[Event]:
        yield Started("a")
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self._stick("close")
        self.closed = True


@pytest.mark.parametrize("place", ["nowhere", "launch", "stop", "close"])
@pytest.mark.parametrize(("presses", "apart"), [(1, 1.0), (2, 1.0), (2, 0.0)])
def test_an_interrupt_ends_a_run_whatever_is_stuck(place: str, presses: int, apart: float) -> None:
    """A second Ctrl-C ends the grace, of what is stuck as well; one that comes twice at once is one."""
    executor = Stuck(place)
    live = live_of(executor)
    waits = STILL if presses * apart > 1.0 else ENDS_WITHIN

    async def main() -> float:
        task = asyncio.create_task(live.run())
        await asyncio.sleep(10.0)
        for _ in range(presses):
            live.handle_interrupt_key()
            await asyncio.sleep(apart)
        with pytest.raises(ExecutorError, match=rf"1 jobs \(a\) did not end within {waits:.0f} s of"):
            await task
        return asyncio.get_running_loop().time()

    took = run_virtual(main()) - 10.0
    assert took <= waits + (presses - 1) * apart + CLOSES_WITHIN
    assert executor.closed is (place != "close")


class Slow(Stuck):
    """One whose job takes a while to end; that it will, is known for so long."""

    def __init__(self, known: float) -> None:
        super().__init__("stop")
        self.known = known

    def are_ending(self) -> bool:
        return asyncio.get_running_loop().time() < self.known


@pytest.mark.parametrize(("known", "until"), [(25.0, 25.0), (1000.0, 10.0 + ENDS_WITHIN + MOST_BEYOND)])
def test_what_is_known_to_be_ending_has_more_time(known: float, until: float) -> None:
    live = live_of(Slow(known))

    async def main() -> float:
        task = asyncio.create_task(live.run())
        await asyncio.sleep(10.0)
        live.handle_interrupt_key()
        with pytest.raises(ExecutorError, match="did not end within"):
            await task
        return asyncio.get_running_loop().time()

    assert until <= run_virtual(main()) <= until + LOOKS


def test_a_service_ends_though_an_order_does_not_come_back() -> None:
    live = live_of(Stuck("launch"), stays=True)

    async def main() -> float:
        task = asyncio.create_task(live.run())
        await asyncio.sleep(10.0)
        live.leave()
        with pytest.raises(ExecutorError, match="the service ends without"):
            await task
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 10.0 + LEAVES_WITHIN


def test_a_disk_that_is_full_for_a_while_keeps_no_guest_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty jobs to a batch system; each kind of write fails some times before it goes well."""
    sent: dict[str, int] = {}

    def submit(job: BatchJob) -> str:
        sent[str(len(sent) + 1)] = 1 if job.indices is None else len(job.indices)
        return str(len(sent))

    system = SimpleNamespace(
        title="Batch",
        variables=TaskVariables(),
        changed=(),
        longest_array=1000,
        looks=(1.0, 1.0),
        pause=0.0,
        submit=submit,
        look=dict,
        look_again=lambda gone: {},
        cpus_of=lambda shape, tasks: 1,
        clean_environment=dict,
    )
    refusals = {"handed.jsonl": 25, ".json": 12}
    write = notes.private_file

    def private_file(path: Any, flags: int) -> int:
        for ending, left in refusals.items():
            if str(path).endswith(ending) and left:
                refusals[ending] -= 1
                raise FULL
        return write(path, flags)

    monkeypatch.setattr(notes, "private_file", private_file)
    monkeypatch.setattr(backlog, "FIRST", 0.01)
    monkeypatch.setattr(backlog, "MOST", 0.02)
    node = replace(Cluster.uniform(1, 1).nodes[0], partitions=("all",))
    executor = BatchExecutor(cast(BatchSystem, system), RunFolder(tmp_path), Cluster((node,)))
    executor.files.create()
    heard: list[Event] = []

    async def idle() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(executor, "_watch", idle)

    async def main() -> None:
        executor.listen(heard.append)
        for n in range(40):
            one = placed(f"j{n}", "true")
            request = one.allocation.request
            await executor.submit(one.job, Submit(one.job.id, "cpu", request, "all"), 1)
        deadline = time.monotonic() + 60
        while sum(sent.values()) < 40 or executor.files._owed:
            assert time.monotonic() < deadline, (sent, refusals, heard)
            if sum(sent.values()) == 40:
                executor.files.note_later(t="told", uid="none")
            await asyncio.sleep(0.02)
        await executor.leave()

    asyncio.run(main())
    assert sum(sent.values()) == 40, "none twice"
    assert not [event for event in heard if isinstance(event, Ended)]
    known = executor.files.handed()
    assert {one.job for one in known} == {f"j{n}" for n in range(40)}
    assert all(one.batch_id for one in known), "the next Dovetail finds every one"
