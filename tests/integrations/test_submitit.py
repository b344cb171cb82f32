"""submitit's jobs in Dovetail's queue: arrays, tasks, checkpoints, cancellation."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from services import Serving
from waiting import until

submitit = pytest.importorskip("submitit", reason="it is in the environment of `make integrations`")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.usefixtures("around")]


def executor(folder: Path, **parameters: Any) -> Any:
    found = submitit.AutoExecutor(folder, cluster="dovetail")
    found.update_parameters(timeout_min=10, **parameters)
    return found


def test_an_array_keeps_the_order_and_its_logs(tmp_path: Path) -> None:
    def double(number: int) -> int:
        print("doubled", number)
        return 2 * number

    jobs = executor(tmp_path, name="double", mem_gb=1).map_array(double, range(3))
    assert [job.result() for job in jobs] == [0, 2, 4]
    number = jobs[0].job_id.partition("_")[0]
    assert [job.job_id for job in jobs] == [f"{number}_{index}" for index in range(3)]
    assert "doubled 2\n" in jobs[2].stdout()
    assert {job.state for job in jobs} <= {"RUNNING", "COMPLETED"}


def test_tasks_of_a_job_and_what_they_raise(tmp_path: Path) -> None:
    def task() -> int:
        rank: int = submitit.JobEnvironment().global_rank
        if rank == 1:
            raise LookupError("rank 1")
        return rank

    two = executor(tmp_path, tasks_per_node=len(os.sched_getaffinity(0)) and 2)
    job = two.submit(task)
    assert job.task(0).result() == 0
    with pytest.raises(submitit.core.utils.FailedJobError, match="rank 1"):
        job.task(1).result()
    with pytest.raises(ValueError, match="nodes: found 2, expected 1"):
        two.update_parameters(nodes=2)


class Counts(submitit.helpers.Checkpointable):  # type: ignore[misc]
    """Counts until a file is there; a checkpoint keeps how far it has come."""

    def __init__(self, folder: str, start: int = 0) -> None:
        self.folder, self.start = folder, start

    def __call__(self) -> int:
        (Path(self.folder) / f"began-{self.start}").write_text(str(os.getpid()))
        if self.start == 0:
            signal.pause()  # until submitit's signal asks for a checkpoint
        return self.start

    def checkpoint(self) -> Any:
        return submitit.helpers.DelayedSubmission(Counts(self.folder, self.start + 7))


def test_a_preempted_job_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    job = executor(tmp_path / "logs").submit(Counts(str(tmp_path)))
    began = tmp_path / "began-0"
    until(lambda: began.exists() and began.read_text(), "it begins")
    os.kill(int(began.read_text()), submitit.JobEnvironment.USR_SIG and signal.SIGUSR2)
    assert job.result() == 7
    assert (tmp_path / "began-7").read_text() != began.read_text()
    assert "Requeued job" in job.stderr() + job.stdout()


def test_a_limit_that_nears_asks_for_a_checkpoint(tmp_path: Path) -> None:
    """The queue itself sends submitit's signal, so long before the walltime."""
    some = executor(tmp_path / "logs", dovetail_signal_delay_s=45)
    some.update_parameters(timeout_min=1)
    job = some.submit(Counts(str(tmp_path)))
    assert job.result() == 7


def test_cancel(tmp_path: Path) -> None:
    job = executor(tmp_path).submit(signal.pause)
    job.cancel()
    with pytest.raises(submitit.core.utils.UncompletedJobError):
        job.result()
    assert job.state == "CANCELLED"
    assert sys.executable


def test_the_service_starts_anew(around: Serving, tmp_path: Path) -> None:
    job = executor(tmp_path / "logs").submit(Counts(str(tmp_path), 3))
    around.kill()
    around.start().close()
    assert job.result() == 3
