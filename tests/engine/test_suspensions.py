"""An implementation that fails at once where another completes takes no more jobs for a while."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.suspensions import IN_A_ROW
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Ended, Record, State, TableTruth
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import make_model
from dovetail.testing.builders import timed
from dovetail.testing.virtual_time import run_virtual


class Broken(FakeExecutor):
    """Jobs on a GPU fail a second after their start, until ``mended``."""

    mended = float("inf")

    async def launch(self, placed: Any) -> None:
        """Fail, or run."""
        if placed.implementation.kind == "gpu" and placed.start_time < self.mended:
            self._started += 1
            self._jobs[placed.job.id] = self._started, placed.attempt, placed.start_time + 1
            end = Ended(placed.job.id, State.FAILED, 1, "no driver", attempt=placed.attempt)
            self._at(placed.start_time + 1, self._started, end)
            return
        await super().launch(placed)


def drive(
    count: int, policy: str, *, shape: str = "1x1cpu+1gpu", mended: float = float("inf"), retries: int = 0,
    journal: Any = None, cpu: float | None = 20.0,
) -> tuple[list[Record], Driver]:  # fmt: skip
    """So many jobs of one app: 20 s on the CPU, 10 s on the GPU if it works."""
    times = {"cpu": 20.0, "gpu": 10.0}
    app = timed("a", times)[0].app
    known = times if cpu else {"gpu": 10.0}  # what is not known fails at once
    made = [timed(f"a{i}", known, index=i, app=app, retries=retries) for i in range(count)]
    truth = TableTruth({key: seconds for _, table in made for key, seconds in table.items()})
    jobs = [job for job, _ in made]

    async def main() -> Driver:
        model = make_model("mean", MemoryHistory())
        driver = Driver(
            Cluster.parse(shape), load_policy(policy).policy, model, bound=no_bound, journal=journal,
            options=DriverOptions(enforce=True),
        )  # fmt: skip
        executor = Broken(truth)
        executor.mended = mended
        await LiveRun(driver, executor, jobs).run()
        driver.engine.validate_books()
        return driver

    driver = run_virtual(main())
    return list(driver.engine.records.values()), driver


@pytest.mark.parametrize(
    "policy", ["history", "history-guarded", "rsa", "mct", "fcfs", "easy", "min-min", "lookahead"]
)
def test_a_queue_does_not_run_empty_through_a_broken_gpu(policy: str) -> None:
    records, _ = drive(40, policy)
    failed = [record for record in records if record.state is State.FAILED]
    done = [record for record in records if record.state is State.COMPLETED]
    assert len(failed) + len(done) == 40
    assert all(record.implementation.kind == "cpu" for record in done if record.implementation)
    assert len(failed) <= IN_A_ROW + 4
    starts = sorted(record.start for record in failed if record.start is not None)
    trials = starts[IN_A_ROW - 1 :]
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(trials))


def test_an_app_that_fails_everywhere_suspends_nothing_for_long() -> None:
    """No evidence against the GPU: all jobs fail, one after the other, and nothing waits."""
    records, driver = drive(20, "history", cpu=None)
    assert all(record.state is State.FAILED for record in records)
    assert max(record.end for record in records if record.end is not None) < 60
    assert driver.engine.held == {}


def test_pauses_double_and_one_job_is_tried() -> None:
    """Two GPUs, both broken: one trial at a time; every job comes back by its retries, on the CPU at last."""
    records, driver = drive(60, "history", shape="1x1cpu+2gpu", retries=20)
    assert all(record.state is State.COMPLETED for record in records)
    tries = sorted(span.start for record in records for span in record.earlier if span.state is State.FAILED)
    trials = tries[-3:]
    gaps = [later - earlier for earlier, later in itertools.pairwise(trials)]
    assert gaps[1] == pytest.approx(2 * gaps[0], abs=25)
    assert driver.engine.suspensions.active == 1


def test_a_gpu_that_works_again_is_used_again() -> None:
    records, driver = drive(60, "history", mended=100.0)
    on_gpu = [
        r
        for r in records
        if r.state is State.COMPLETED and r.implementation and r.implementation.kind == "gpu"
    ]
    assert len(on_gpu) > 15
    assert driver.engine.suspensions.active == 0
    assert driver.engine.suspensions.narrowed == {}


def test_a_replay_decides_the_same(tmp_path: Path) -> None:
    for policy in ("history", "lookahead"):
        path = tmp_path / f"{policy}.jsonl"
        writer = JournalWriter(path, Cluster.parse("1x1cpu+1gpu"), policy=policy)
        drive(40, policy, mended=200.0, journal=writer, retries=3)
        assert replay(read_journal(path), load_policy(policy).policy) > 0
