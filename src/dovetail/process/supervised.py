"""What executors have in common whose jobs supervisors start, on this machine or on others."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import RunFolder
from dovetail.model import EMPTY, Cluster, Ended, Job, JobId, Placed, Recipients, State, Usage
from dovetail.model.command_line import command_words
from dovetail.model.job import ARRAY_INDEX
from dovetail.process.device_memory import PATTERN
from dovetail.process.environment import UNSET, child_environment, described_devices, host_cores
from dovetail.process.job_variables import filled_variables
from dovetail.process.link import Link
from dovetail.process.recovery import describe_place
from dovetail.process.reporting import Reporting
from dovetail.process.spawn_log import end_event, uid_of
from dovetail.process.successors import DroppedSuccessors


class SupervisedExecutor(Reporting):
    """Requests to supervisors, and the events that come back; implements most of `Executor`.

    Use it in one event loop; it listens from its first launch or question for events on. A job is run
    once: its uid names the run for ever, so that recording it twice changes nothing.
    """

    def __init__(self, folder: RunFolder, cluster: Cluster) -> None:
        super().__init__(folder, cluster)
        self.epoch = time.time() - time.monotonic()
        self._endless = folder.endless
        self._running: dict[JobId, tuple[Link, str]] = {}  # and the uid of the attempt
        self._never = (
            DroppedSuccessors()
        )  # jobs that could not be requested, though others were to follow them

    # ------------------------------------------------------------------- what differs

    @abstractmethod
    def _link_of(self, placed: Placed) -> Link | None:
        """The supervisor that is to start the job; ``None`` where its node is lost, which ends the job."""

    @abstractmethod
    def _launch_request(self, link: Link, placed: Placed, words: list[str]) -> dict[str, Any]:
        """The rest of the request: ``setup``, which the link has sent, and ``argv``."""

    @abstractmethod
    async def _dismiss_supervisors(self) -> None:
        """Stop what still runs and let the supervisors go."""

    # ------------------------------------------------------------------- the Executor protocol

    async def launch(self, placed: Placed) -> None:
        """Start the job; a job that cannot be started ends as FAILED, with a sentence in ``detail``.

        One send on a socket; returns before the process exists. Raises `ExecutorError` after `close`.
        """
        self._launch_job(placed, ())

    def _launch_job(self, placed: Placed, after: Sequence[JobId]) -> None:
        if self._closing:
            raise ExecutorError(f"job {placed.job.id} was launched after the executor was closed")
        self._attach_to_loop()
        job, attempt = placed.job, placed.attempt
        if job.id in self._running:
            raise ExecutorError(f"job {job.id} is running already")
        try:
            words = command_words(placed)
        except InputError as error:
            now = time.monotonic() + self.epoch
            never = Ended(job.id, State.FAILED, None, str(error), Usage(), now, now, attempt, ran=False)
            self._report_event(never)
            return
        link = self._link_of(placed)
        if link is None:
            return
        order = self._launch_request(link, placed, words)
        node = self.cluster.nodes[placed.allocation.first_node].name
        files, chosen = self._outputs.of(job, attempt, self._cwd, node)
        uid = uid_of(self.run_uid, job.id, attempt)
        before = [
            self._running[one][1] for one in self._never.replacements_of(after, self._running.__contains__)
        ]
        self._running[job.id] = link, uid
        self._never.restore_job(job.id)
        link.launch(
            {
                "t": "intent",
                "uid": uid,
                "job": job.id,
                "attempt": attempt,
                "files": files,
                "chosen": chosen,
                "inputs": dict(job.inputs),
                "walltime": job.walltime,
                "user": job.user,
                **order,
                **limit_of(placed),
                **(self._on_devices(placed) if placed.allocation.parts[0].devices else {}),
                **self._of_this_job(placed),
                **self._files_of(job, node),
                **({"after": before} if before else {"sent": time.monotonic()} if job.walltime else {}),
            }
        )

    def _files_of(self, job: Job, node: str) -> dict[str, Any]:
        """What this job reads, and whether it adds to the files that it writes."""
        launch = job.launch
        if launch is None:
            return {}
        read = launch.input(job, self._cwd, node)
        found: dict[str, Any] = {} if read is None else {"stdin": read}
        return {**found, "append": True} if launch.append else found

    def _batch_variables(self, placed: Placed) -> dict[str, str]:
        """What the batch script of a job expects of its environment."""
        return filled_variables(placed, self.cluster)

    def _of_this_job(self, placed: Placed) -> dict[str, Any]:
        """What this job alone gets beside its setup: variables."""
        job = placed.job
        own: dict[str, str] = {}
        if self._endless:
            number, underscore, index = job.id.partition("_")
        else:
            underscore, index = "_" * (ARRAY_INDEX in job.options), str(job.options.get(ARRAY_INDEX, ""))
            number = job.id.removesuffix(f"_{index}")
        if underscore:
            own |= {"DOVETAIL_ARRAY_JOB": number, "DOVETAIL_ARRAY_INDEX": index}
        if job.launch is not None and job.launch.batch_variables:
            own |= {"SLURM_JOB_ID": number, "SLURM_JOB_NAME": job.name or job.app.name}
            own |= {"SLURM_SUBMIT_DIR": job.launch.folder or self._cwd}
            if underscore:
                own |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index}
        own |= self._batch_variables(placed)
        outer = os.environ.get("SLURM_JOB_ID")
        # Inside an allocation Slurm's commands go by its own number.
        if outer is not None:
            own |= {name: outer for name in ("SLURM_JOB_ID", "SLURM_JOBID") if name in own}
        return {"vars": own} if own else {}

    def _on_devices(self, placed: Placed) -> dict[str, Any]:
        """What helps to see that a job's device had too little memory (`process.device_memory`)."""
        command = placed.implementation.command
        own = {} if command is None else dict(command.env)
        _, outer = self._job_surroundings(placed.job)
        pattern = {**(self._environ if outer is None else dict(outer)), **own}.get(PATTERN, "")
        return {"on": described_devices(placed, self.cluster), **({"oom": pattern} if pattern else {})}

    async def stop(self, job: JobId, reason: str) -> None:
        """TERM to the job's group, KILL after the grace; `Ended` follows with the state ``reason``.

        A job that had ended by itself keeps the state in which it did; an unknown job is ignored.
        """
        found = self._running.get(job)
        if found is not None:
            link, uid = found
            link.stop(uid, reason, self._grace)

    async def signal(self, job: JobId, number: int, *, to: Recipients = "all") -> None:
        """Send these of the job's processes a signal; an unknown job is ignored."""
        found = self._running.get(job)
        if found is not None:
            link, uid = found
            request = {"t": "signal", "uid": uid, "number": number}
            link.send_line({**request, "to": to} if to != "all" else request)

    async def close(self) -> None:
        """Stop what still runs (state CANCELLED) and wait for it. May be called again."""
        if not self._closing:
            self._closing = True
            await self._dismiss_supervisors()
            self._all_reported()

    # ------------------------------------------------------------------- beside the protocol

    def _setup_number(self, link: Link, placed: Placed, cores: list[int], **environ: str) -> int:
        """Number of what this job shares with others of its implementation on its place.

        ``environ`` are variables beyond those that every job gets.
        """
        allocation, (folder, outer) = placed.allocation, self._job_surroundings(placed.job)
        launch = placed.job.launch
        umask, limits = (None, None) if launch is None else (launch.umask, launch.limits)
        place = (placed.implementation, allocation.parts, tuple(sorted(allocation.cores.items())))

        def make_setup() -> dict[str, Any]:
            # A job that brought an environment along gets all of it, and nothing of the supervisor's.
            whole = self._environ if outer is None else dict(outer)
            around = {**whole, **self._seen_by(placed)}
            return {
                "env": {**child_environment(placed, self.cluster, cores, around), **environ},
                "outer": None if outer is None else link.environment_number(outer),
                "unset": UNSET,
                # A job without cores of its own, and without devices that are near some: any.
                "cores": cores or host_cores(placed, self.cluster),
                "cwd": folder,
                **({} if umask is None else {"umask": umask}),
                **({} if limits is None else {"limits": dict(limits)}),
                "grace": self._grace,
                "run": describe_place(placed, self.cluster),
            }

        return link.setup_number((*place, folder, outer, umask, limits), make_setup)

    def _seen_by(self, placed: Placed) -> Mapping[str, str]:
        """Variables that differ on the job's node from those here."""
        return EMPTY

    def _handle_end(self, request: dict[str, Any], end: Mapping[str, Any]) -> None:
        """A supervisor reports that a job has ended."""
        self._runs_no_more(request)
        self._report_event(end_event(request, end))

    def _runs_no_more(self, request: dict[str, Any]) -> JobId:
        """A job runs no more, or never did."""
        job: JobId = request["job"]
        del self._running[job]
        self._never.forget_job(job)
        return job


def limit_of(placed: Placed) -> dict[str, int]:
    """The memory beyond which a job is ended: what it reserves, where that is a limit."""
    job, memory = placed.job, placed.allocation.request.memory
    given = job.launch is not None and job.launch.memory is not None
    is_limit = given or placed.implementation.name in job.sizing.auto
    return {"memory": memory} if is_limit and memory else {}
