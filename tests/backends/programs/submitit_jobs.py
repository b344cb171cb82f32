"""What a user of submitit does, on a cluster: submit, map, fail, be interrupted, go on from a checkpoint."""

import os
import sys
import time
from pathlib import Path

import submitit


def add(a, b):
    return a + b


def fail():
    raise ValueError("no good")


def task():
    environment = submitit.JobEnvironment()
    return environment.global_rank, environment.num_tasks


class Counting(submitit.helpers.Checkpointable):
    """Counts in a file; begins anew where it was interrupted."""

    def __call__(self, most, path):
        for _ in range(most):
            found = int(path.read_text()) if path.exists() else 0
            if found >= most:
                break
            time.sleep(0.2)
            path.write_text(str(found + 1))
        return int(path.read_text()), os.environ.get("SLURM_RESTART_COUNT", "0")


def state_after(job):
    """The state of a job that has ended; its result is there before its process has."""
    deadline = time.monotonic() + 60
    while (state := job.get_info(mode="force")["State"]) == "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.2)
    return state


def main(folder: Path) -> None:
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=100)
    executor.update_parameters(timeout_min=5, slurm_job_name="sub", slurm_array_parallelism=2)
    job = executor.submit(add, 1, 2)
    assert job.result() == 3, job
    assert state_after(job) == "COMPLETED", job.get_info()

    jobs = executor.map_array(add, range(5), range(5))
    assert {one.job_id.partition("_")[0] for one in jobs} == {jobs[0].job_id.partition("_")[0]}
    assert [one.result() for one in jobs] == [0, 2, 4, 6, 8]

    job = executor.submit(fail)
    assert "no good" in str(job.exception()), job.exception()

    executor.update_parameters(tasks_per_node=2)
    assert executor.submit(task).results() == [(0, 2), (1, 2)]
    executor.update_parameters(tasks_per_node=1)

    job = executor.submit(time.sleep, 600)
    while job.get_info(mode="force").get("State") != "RUNNING":
        time.sleep(0.2)
    job.cancel()
    while not job.get_info(mode="force").get("State", "").startswith("CANCELLED"):
        time.sleep(0.2)

    counts = folder / "count"
    job = executor.submit(Counting(), 25, counts)
    while not counts.exists():
        time.sleep(0.1)
    job._interrupt(timeout=False)  # SIGTERM, then USR2, by scancel
    assert job.result() == (25, "1"), job.result()

    # The limit comes near: USR2 is sent before it, the job puts itself back into the queue, and goes on.
    counts = folder / "limited"
    executor.update_parameters(timeout_min=1, slurm_signal_delay_s=55)
    job = executor.submit(Counting(), 60, counts)
    count, restarts = (
        job.result()
    )  # each start has the same few seconds; how far it comes is the machine's affair
    assert count == 60, job.result()
    assert int(restarts) >= 1, job.result()
    print("all well")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
