"""A submitit executor: its jobs in the queue of a Dovetail service.

    executor = submitit.AutoExecutor("logs", cluster="dovetail")
    executor.update_parameters(timeout_min=60, cpus_per_task=2, gpus_per_node=1)
    jobs = executor.map_array(train, rates)

submitit finds it by its entry points. The service is that of ``$DOVETAIL_SERVICE``, else this account's own,
which is started if none runs. A job that nears its limit gets submitit's signal; where its function can make
a checkpoint, the job is requeued and goes on from there.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from submitit.core import core, job_environment, logger, utils

from dovetail.client.connection import PATIENCE, Connection, open_connection
from dovetail.client.requests import request_context
from dovetail.errors import DovetailError

QUESTION = 20.0
"""Seconds of one question to the service for the end of a job."""
STATES = 500
"""Jobs in one question for their states."""
OPEN = frozenset({"PENDING", "RUNNING", "UNKNOWN"})
TASKS = "dovetail_integrations.submitit_tasks"
"""What starts several tasks of a job."""
OWN = {"array_parallelism", "gpu_memory", "on", "partition", "priority", "retries", "setup", "signal_delay_s"}
"""Parameters beside those that all of submitit's executors have."""


@functools.cache
def connect_service() -> Connection:
    """The service, as this process reaches it. Raises `NoService`."""
    found = open_connection(start=logger.get_logger().info)
    found.be_patient(PATIENCE, logger.get_logger().warning)
    return found


# A forked process needs a connection of its own: on a shared one each would read replies to the other.
os.register_at_fork(after_in_child=connect_service.cache_clear)


class DovetailInfoWatcher(core.InfoWatcher):  # type: ignore[misc]
    """States of all jobs by one request for many of them."""

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """A state of Dovetail's; ``UNKNOWN`` before the first look."""
        return str(self.get_info(job_id, mode).get("State", "UNKNOWN"))

    def update(self) -> None:
        """Look at all jobs that have not ended; what fails is logged, and looked at later."""
        self._num_calls += 1
        left = sorted(self._registered - self._finished)
        try:
            for at in range(0, len(left), STATES):
                chosen = left[at : at + STATES]
                rows = connect_service().get("/api/v1/jobs", jobs=",".join(chosen), limit=STATES)["jobs"]
                self._info_dict.update({row["id"]: {"State": row["state"], **row} for row in rows})
        except DovetailError as error:
            # An error would end the wait for all jobs, while the service may only be restarting.
            logger.get_logger().warning(f"States may be old: {error}")
        self._last_status_check = time.time()
        # From what has just been read: another mode would cost a request for each job.
        self._finished |= {job for job in left if self.get_state(job, "cache") not in OPEN}


class DovetailJob(core.Job[core.R]):  # type: ignore[misc]
    """A job of a Dovetail service."""

    watcher = DovetailInfoWatcher(delay_s=5)

    def wait(self) -> None:
        """Until the job has ended, or its result is there."""
        while not self.done():
            # The service answers as soon as the job has ended, so nothing is polled in between.
            connect_service().post("/api/v1/wait", {"jobs": self.job_id, "timeout": QUESTION})
            self.watcher.get_info(self.job_id, mode="force")

    def cancel(self, check: bool = True) -> None:
        """Cancel the job, or stop it where it runs. With ``check`` raises what the service answers."""
        with suppress(*(() if check else (DovetailError,))):
            connect_service().post("/api/v1/cancel", {"jobs": self.job_id})


class DovetailJobEnvironment(job_environment.JobEnvironment):  # type: ignore[misc]
    """What a submitit function finds around it in a job of Dovetail's."""

    _env: ClassVar[dict[str, str]] = {
        "job_id": "DOVETAIL_JOB", "num_tasks": "SUBMITIT_DOVETAIL_NTASKS",
        "num_nodes": "SUBMITIT_DOVETAIL_NODES", "node": "SUBMITIT_DOVETAIL_NODE",
        "global_rank": "SUBMITIT_DOVETAIL_TASK", "local_rank": "SUBMITIT_DOVETAIL_TASK",
    }  # fmt: skip

    def _requeue(self, countdown: int) -> None:
        connect_service().post("/api/v1/requeue", {"jobs": self.job_id})
        logger.get_logger().info(f"Requeued job {self.job_id} ({countdown} remaining timeouts)")


class DovetailExecutor(core.PicklingExecutor):  # type: ignore[misc]
    """Jobs of functions in the queue of a service; several submitted together are an array."""

    job_class = DovetailJob

    def __init__(
        self, folder: str | Path, max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb)
        self.python = [sys.executable] if python is None else shlex.split(python)

    affinity = classmethod(lambda cls: 0)  # it is there for those who name it
    _valid_parameters = classmethod(lambda cls: set(OWN))

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if kwargs.get("nodes", 1) != 1:
            raise ValueError(f"nodes: found {kwargs['nodes']}, expected 1: tasks run on one node")
        super()._internal_update_parameters(**kwargs)

    def _num_tasks(self) -> int:
        return max(1, int(self.parameters.get("tasks_per_node", 1)))

    def _internal_process_submissions(self, delayed_submissions: Sequence[Any]) -> list[core.Job[Any]]:
        """Submit them, several as one array; each pickle has its place as soon as its job has an id."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.set_timeout(self.parameters.get("timeout_min", 5), self.max_num_timeout)
            delayed.dump(pickles[-1])
        size, many = pickles[0].stat().st_size / 1024**3, len(pickles)
        # Before anything is submitted: later, jobs would be left without their functions.
        if size * many > self.max_pickle_size_gb:
            for path in pickles:
                path.unlink()
            raise RuntimeError(f"max_pickle_size_gb={self.max_pickle_size_gb}: found {many} x {size:.2f} GB")
        form = self._form(delayed_submissions[0], many)
        ids = connect_service().post("/api/v1/jobs", {**request_context(), "jobs": [form]})["ids"]
        tasks = list(range(self._num_tasks()))
        jobs = [DovetailJob(folder=self.folder, job_id=id, tasks=tasks) for id in ids]
        for job, path in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(path, "submitted_pickle")
        return jobs

    def _form(self, delayed: utils.DelayedSubmission, many: int) -> Mapping[str, Any]:
        """The fields of a job, from submitit's parameters."""
        given, tasks = self.parameters, self._num_tasks()
        call = [*self.python, "-u", "-m", "submitit.core._submit", str(self.folder)]
        if tasks > 1:
            call = [*self.python, "-m", TASKS, str(self.folder), str(tasks), *call]
        if given.get("setup"):  # lines of a shell that the user wrote
            call = ["bash", "-c", "\n".join(["set -e", *given["setup"], f"exec {shlex.join(call)}"])]
        paths, seconds = utils.JobPaths(self.folder), given.get("timeout_min", 5) * 60
        # The usual 90 s would come at once in a job of a minute.
        notice = min(given.get("signal_delay_s", 90), seconds / 2)
        function = getattr(delayed.function, "__qualname__", type(delayed.function).__qualname__)
        form = {
            "command": call, "name": given.get("name", "submitit"), "app": f"submitit.{function}",
            "cpus": tasks * given.get("cpus_per_task", 1), "walltime": seconds, "restartable": True,
            "signal": f"{DovetailJobEnvironment.USR_SIG}@{max(1, round(notice))}", "append": True,
            # The job's own log is that of task 0; further tasks open theirs.
            "stdout": str(paths.stdout).replace("%t", "0"),
            "env": {"SUBMITIT_EXECUTOR": DovetailExecutor.name(), "SUBMITIT_DOVETAIL_NTASKS": str(tasks)},
        }  # fmt: skip
        if not given.get("stderr_to_stdout"):
            form["stderr"] = str(paths.stderr).replace("%t", "0")
        form |= {"memory": int(given["mem_gb"] * 1024**3)} if given.get("mem_gb") else {}
        form |= {"gpus": given["gpus_per_node"], "on": ["gpu"]} if given.get("gpus_per_node") else {}
        if many > 1:
            form["array"] = f"0-{many - 1}%{given.get('array_parallelism', many)}"
        plain = ("partition", "priority", "retries", "on", "gpu_memory")
        return form | {key: given[key] for key in plain if given.get(key) is not None}

    def _unused(self, *_: object) -> Any:
        raise NotImplementedError("jobs are submitted as data")

    _make_submission_file_text = _make_submission_command = _get_job_id_from_submission_command = _unused
