"""A Snakemake executor: its jobs in the queue of a Dovetail service.

    snakemake --executor dovetail --jobs 100

Threads, ``mem_mb``, ``runtime`` (minutes), ``gpu`` and ``gpu_mem_mb`` of a rule are what its job requests. A
job that fails is submitted again by Snakemake (``retries``), with what the rule requests for that attempt.
Rule, wildcards and bytes of input are what run times are learned by.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from dovetail.client.connection import PATIENCE, Connection, open_connection
from dovetail.client.requests import request_context
from dovetail.errors import DovetailError

__all__ = ["Executor", "ExecutorSettings", "common_settings", "rule_features"]

QUESTION = 1.0
"""Seconds of one question for jobs that have ended; so long a shutdown may wait."""
BESIDE = 256_000_000
"""Bytes of each job beside what its rule requests: Snakemake runs in the job, around the rule's command."""
BETWEEN = 0.1
"""Seconds between two questions."""
GPUS = ("gpu", "gpus", "nvidia_gpu")
"""Resources that number the GPUs of a job; the first that there is counts."""
ON = "dovetail_on"
"""The resource that names the kinds of devices on which a rule can run: ``cpu,gpu``."""
LOGS = os.path.join(".snakemake", "dovetail_logs")
LONGEST_WORD = 40
"""Characters of a wildcard that may be a feature of a run time."""


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """Settings of the executor: ``--dovetail-service`` and so on."""

    service: str | None = field(
        default=None,
        metadata={
            "help": "URL or state folder of the service; default: $DOVETAIL_SERVICE, else your own",
            "type": str,
        },
    )
    priority: float | None = field(
        default=None, metadata={"help": "priority of all jobs in the queue, higher first", "type": float}
    )
    partition: str | None = field(default=None, metadata={"help": "partition of all jobs", "type": str})


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):  # type: ignore[misc]
    """Snakemake's jobs as jobs of a service."""

    def __post_init__(self) -> None:
        """Connect; a service is started where none runs. Raises `WorkflowError`."""
        settings = self.workflow.executor_settings or ExecutorSettings()
        try:
            # Two connections: a request that waits for ends would hold up submissions on the same one.
            self._submits = open_connection(settings.service, start=self.logger.info)
            self._submits.get("/api/v1/info")  # an address where nothing answers is no restart
            self._watches = open_connection(settings.service)
        except DovetailError as error:
            raise WorkflowError(str(error)) from error
        # A service that is started anew meanwhile costs no workflow.
        self._submits.be_patient(PATIENCE, self.logger.warning)
        self._watches.be_patient(PATIENCE, self.logger.warning)
        plain = {"priority": settings.priority, "partition": settings.partition}
        self._common = {key: value for key, value in plain.items() if value is not None}
        self.next_seconds_between_status_checks = BETWEEN

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Submit all that are ready by one request. Raises `WorkflowError`."""
        for job in jobs:
            self.run_job_pre(job)
        forms = [self._form(job) for job in jobs]
        try:
            ids = self._submits.post("/api/v1/jobs", {**request_context(), "jobs": forms})["ids"]
        except DovetailError as error:
            raise WorkflowError(f"not submitted: {error}") from error
        for job, form, id in zip(jobs, forms, ids, strict=True):
            log = form["stdout"].replace("%j", id)
            self.logger.info(f"Job {job.jobid} is Dovetail's job {id} (log: {log}).")
            self.report_job_submission(SubmittedJobInfo(job, external_jobid=id, aux={"log": log}))

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit one."""
        self.run_jobs([job])

    def _form(self, job: JobExecutorInterface) -> dict[str, Any]:
        """What a job requests, from its rule's threads and resources."""
        resources = job.resources
        logs = os.path.abspath(os.path.join(LOGS, job.name))
        os.makedirs(logs, exist_ok=True)
        # A percent sign in a name would begin a pattern in `stdout`. More memory after a failure is the
        # rule's own affair, by Snakemake's `attempt`, hence no `retry_memory`.
        form: dict[str, Any] = {
            "script": f"#!/bin/bash\n{self.format_job_exec(job)}\n",  # lines that Snakemake made
            "name": job.name, "app": f"snakemake.{job.name}", "inputs": rule_features(job),
            "cpus": max(1, int(resources.get("_cores", job.threads))),
            "stdout": os.path.join(logs.replace("%", "%%"), "%j.log"), "retry_memory": "no",
            **self._common,
        }  # fmt: skip
        if _is_positive_number(resources.get("mem_mb")):
            form["memory"] = int(resources["mem_mb"]) * 1_000_000 + BESIDE
        if _is_positive_number(resources.get("runtime")):
            form["walltime"] = int(resources["runtime"]) * 60
        kinds = [kind.strip() for kind in str(resources.get(ON, "")).split(",")]
        gpus = next((resources[name] for name in GPUS if _is_positive_number(resources.get(name))), 0)
        if gpus:
            form |= {"gpus": int(gpus), "on": ["gpu"]}
        elif "gpu" in kinds and resources.get("gpu") is None:  # else a scheduler has chosen the CPU
            form |= {"gpus": 1, "on": [kind for kind in ("cpu", "gpu") if kind in kinds]}
        if "gpus" in form and _is_positive_number(resources.get("gpu_mem_mb")):
            form["gpu_memory"] = int(resources["gpu_mem_mb"]) * 1_000_000
        return form

    async def check_active_jobs(
        self, active_jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Wait a moment for jobs to end, and report those that have; the others go on."""
        if not active_jobs:
            return
        ended = await asyncio.to_thread(
            _ended_jobs, self._watches, [one.external_jobid for one in active_jobs]
        )
        for one in active_jobs:
            state = ended.get(one.external_jobid)
            if state is None:
                yield one
            elif state == "COMPLETED":
                self.report_job_success(one)
            else:
                row = await asyncio.to_thread(self._watches.get, f"/api/v1/jobs/{one.external_jobid}")
                why = f"Dovetail's job {one.external_jobid} ended {state}: {row['reason'] or row['detail']}. "
                self.report_job_error(one, msg=why, aux_logs=[one.aux["log"]])

    def cancel_jobs(self, active_jobs: Sequence[SubmittedJobInfo]) -> None:
        """Cancel all that have not ended."""
        ids = [one.external_jobid for one in active_jobs]
        try:
            if ids:
                self._submits.post("/api/v1/cancel", {"jobs": ",".join(ids)})
        except DovetailError as error:
            self.logger.warning(f"not cancelled: {', '.join(ids)}: {error}")


def _ended_jobs(service: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Which of these jobs have ended, and how; waits for the first for a moment."""
    answer = service.post("/api/v1/wait", {"jobs": ",".join(ids), "timeout": QUESTION, "any": True})
    return {one["id"]: one["state"] for one in answer["jobs"]}


def _is_positive_number(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def rule_features(job: JobExecutorInterface) -> dict[str, float | str]:
    """What run times are learned by: bytes of input, and wildcards that are numbers or short words."""
    sizes = [os.path.getsize(str(path)) for path in job.input if os.path.isfile(str(path))]
    found: dict[str, float | str] = {"input_bytes": float(sum(sizes)), "threads": float(job.threads)}
    for name, value in dict(getattr(job, "wildcards_dict", None) or {}).items():
        text = str(value)
        try:
            number = float(text)
        except ValueError:
            if 0 < len(text) <= LONGEST_WORD:
                found[name] = text
        else:
            if math.isfinite(number) and number >= 0:
                found[name] = number
    return found
