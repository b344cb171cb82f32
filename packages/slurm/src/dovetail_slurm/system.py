"""Slurm as a batch system: its commands behind `dovetail.batch`, for jobs that wait in its queue."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from dovetail.batch.system import BatchJob, BatchStatus, JobFacts, Phase, TaskVariables, UserScript
from dovetail.errors import InputError
from dovetail.model import Cluster, Foreseen, Job, Node, Request, Seconds, Shape, TimeUsed
from dovetail.model.batch_options import of_script, options_for, partition_of, value_of
from dovetail.workloads.batch.options import head_options
from dovetail_slurm.allocation import poll_seconds
from dovetail_slurm.batch import (
    OF_SEVERAL,
    Line,
    count_fitting,
    cpus_of_task,
    exceeds_alone,
    facts_of,
    goes_to,
    job_options,
    look_again,
    predict_start,
    query_jobs,
    send_batch,
    send_script,
    steer_environment,
    time_options,
    times_used,
)
from dovetail_slurm.commands import NodeTable, SlurmError, read_configuration, run_command
from dovetail_slurm.steps import GANG_TASK

_log = logging.getLogger(__name__)
OWN_PAUSE, SHARED_PAUSE = 0.02, 5.0
"""Seconds between two questions (``sbatch --test-only``), on one's own cluster and on one that others use."""
ACCOUNTING = 3600.0
"""Seconds for which it holds how much jobs use of their walltimes."""
CHECKED = 3
"""Jobs kept by a limit of several jobs that are looked at more closely with each look at the queue."""
CANCEL_PATIENCE = 20.0
"""Seconds in which ``scancel`` answers."""
OF_STEPS = ("SLURM_", "SLURMD_", "PMI_")
KEPT = ("SLURM_CONF", "SLURM_TIME_FORMAT")


class SlurmSystem:
    """Implements `BatchSystem` for the guest of ``cluster``.

    ``qos`` is the option for jobs that name no QOS, ``sbatch`` options for all jobs, ``srun`` and ``mpi``
    those of gangs. ``poll`` and ``pause`` are seconds, 0 for those that suit whose cluster it is.
    ``left_out`` finds which partitions a guest may not use, and why.
    """

    title = "Slurm"
    variables = TaskVariables(
        index="SLURM_ARRAY_TASK_ID",
        restarts="SLURM_RESTART_COUNT",
        node="SLURMD_NODENAME",
        nodes="SLURM_JOB_NODELIST",
    )
    changed = ("SLURM_TIME_FORMAT", "LC_ALL")

    def __init__(
        self,
        cluster: Cluster,
        *,
        qos: str = "",
        poll: Seconds = 0.0,
        pause: Seconds = 0.0,
        mpi: str = "",
        srun: Sequence[str] = (),
        sbatch: Sequence[str] = (),
        left_out: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._cluster, self._qos, self._mpi = cluster, qos, mpi
        self._srun, self._sbatch, self._left_out = srun, sbatch, left_out
        settings = read_configuration(("SlurmUser", "MaxArraySize", "AccountingStorageType"))
        self.longest_array = int(settings.get("MaxArraySize", "1001")) - 1
        self.looks = poll_seconds(poll, settings)
        shortest = poll_seconds(0.0, settings)[0]
        self.pause = pause or (OWN_PAUSE if shortest <= 1.0 else SHARED_PAUSE)
        self._nodes = NodeTable(shortest)
        self._accounting = settings.get("AccountingStorageType", "").endswith("slurmdbd")
        self._used: Mapping[Line, TimeUsed] = {}
        self._used_until = 0.0
        self._exceeds_alone: dict[str, bool] = {}

    # ------------------------------------------------------------------- handing over

    def submit(self, job: BatchJob) -> str:
        """Call ``sbatch``. Raises `SlurmError`."""
        options = self.options_for(job.shape, job.tasks)
        environ = steer_environment(job.environ, os.environ)
        if job.script is None:
            path, log = str(job.path), str(job.log)
            id = send_batch(options, path, name=job.name, indices=job.indices, log=log, environ=environ)
        else:
            id = self._submit_script(job, job.script, options, environ)
        self._nodes.forget_facts()  # what is free there has changed
        return id

    def _submit_script(
        self, job: BatchJob, script: UserScript, options: Sequence[str], environ: Mapping[str, str]
    ) -> str:
        """A user's script as it is, with what wins over its own lines.

        One that does not choose whether it may be put back into the queue may be.
        """
        options = [*(time_options(script.walltime) if script.walltime is not None else ()), *options]
        if script.outputs is not None:
            out, err = script.outputs
            options = [f"--output={out}", f"--error={err}", "--open-mode=append", *options]
        words = {one.option.name for one in head_options(script.text)}
        # A script that is silent on it may go back into the queue, as our own jobs do.
        if words.isdisjoint(("requeue", "no-requeue")):
            options = ["--requeue", *options]
        if "dependency" in words:  # which names jobs by our numbers, and is fulfilled before the hand-over
            options = ["--dependency=", *options]
        own = of_script(job.shape.options)
        assert own is not None
        try:
            return send_script(
                options,
                str(job.path),
                script.arguments,
                name=job.name,
                indices=job.indices,
                folder=script.folder,
                environ={**environ, **script.variables},
                at_once=value_of(own[1], "--array", "-a").partition("%")[2],
                is_held="hold" in words,
            )
        except SlurmError as error:
            # One task cannot be halved: what Slurm refuses of its number it refuses for good.
            if job.indices is not None and len(job.indices) == 1 and "array specification" in str(error):
                raise SlurmError(str(error), passing=error.passing) from error
            raise

    def options_for(self, shape: Shape, tasks: int = 1) -> list[str]:
        """Options of sbatch for such a job. Its own word on partitions is the last, also over ours."""
        *options, partition = job_options(shape, self._nodes_of(shape), tasks)
        script = of_script(shape.options)
        own = [*(script[0] if script else ()), *options, *self._sbatch]
        usual = [self._qos] if self._qos and not value_of(own, "--qos", "-q") else []
        return [*usual, *options, *self._sbatch, partition]

    def run_tasks(self, request: Request, tasks: int, words: Sequence[str]) -> list[str]:
        """A step of ``srun`` over all nodes of the job."""
        mpi = [f"--mpi={self._mpi}"] if self._mpi else []
        step = ["srun", f"--nodes={request.nodes}", f"--ntasks-per-node={tasks}"]
        inner = [sys.executable, "-I", "-S", str(GANG_TASK), *words]
        return [*step, "--kill-on-bad-exit=1", "--quiet", *mpi, *self._srun, *inner]

    def clean_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Without what describes a Slurm job that this process may be in itself."""
        return {
            name: value for name, value in environ.items() if name in KEPT or not name.startswith(OF_STEPS)
        }

    # ------------------------------------------------------------------- looking and ending

    def look(self) -> Mapping[str, BatchStatus]:
        """One ``squeue`` for all jobs. Raises `SlurmError`."""
        found = query_jobs()
        for id, one in found.items():
            if self._exceeds_alone.get(id):
                found[id] = replace(one, is_hopeless=one.phase is Phase.WAITING)
        self._check_limits(found)
        return found

    def _check_limits(self, found: Mapping[str, BatchStatus]) -> None:
        """Find out of some jobs that a limit keeps whether it does so for ever; the next look has it."""
        kept = [id for id, one in found.items() if OF_SEVERAL.fullmatch(one.reason)]
        self._exceeds_alone = {id: self._exceeds_alone[id] for id in kept if id in self._exceeds_alone}
        # A few at a time: each costs two commands, and a long queue may wait for one limit.
        for id in [id for id in kept if id not in self._exceeds_alone][:CHECKED]:
            try:
                self._exceeds_alone[id] = exceeds_alone(id)
            except SlurmError as error:
                _log.info("whether job %s ever starts is not known: %s", id, error)
                self._exceeds_alone[id] = False

    def look_again(self, ids: Collection[str]) -> Mapping[str, BatchStatus]:
        """The accounting's word, where there is one. Raises `SlurmError`."""
        return look_again(ids, accounting=self._accounting)

    def describe_jobs(self, id: str) -> Mapping[str, JobFacts]:
        """A batch by ``scontrol``, or by the accounting. Raises `SlurmError`."""
        return facts_of(id, accounting=self._accounting)

    def cancel(self, ids: Sequence[str]) -> None:
        """One ``scancel`` for all of them. Raises `SlurmError`."""
        run_command(["scancel", *ids], timeout=CANCEL_PATIENCE)

    def cancel_waiting(self, id: str) -> None:
        """End a job that waits. Raises `SlurmError`."""
        run_command(["scancel", "--state=PENDING", id])

    def id_of_task(self, id: str, index: int) -> str:
        """``4711_3``."""
        return f"{id}_{index}"

    def id_of_batch(self, id: str) -> str:
        """``4711`` of ``4711_3``."""
        return id.partition("_")[0]

    # ------------------------------------------------------------------- questions

    def check(self, jobs: Iterable[Job]) -> None:
        """Try each set of options once. Raises `InputError` for one that no partition takes."""
        partitions = list(dict.fromkeys(name for node in self._cluster.nodes for name in node.partitions))
        usual = [name for name in partitions if name not in self._cluster.closed]
        choosing = {(job.batch_options, job.app): job for job in jobs if job.batch_options or self._sbatch}
        different = {
            options_for(one.batch_options, choice.implementation): one.id
            for one in choosing.values()
            for choice in one.choices
        }
        for options, job in different.items():
            named = partition_of(options)
            unknown = [name for name in named.split(",") if named and name not in partitions]
            where = f"job {job}: slurm"
            if unknown:
                there = ", ".join(partitions)
                raise InputError(f"found --partition={unknown[0]}, expected one of: {there}", where=where)
            words = [*self._sbatch, *options]
            refused = _find_refusal(words, named.split(",") if named else usual) if words else None
            if refused is not None:
                raise InputError(
                    f"found {shlex.join(words)}, expected options that Slurm takes: {refused}", where=where
                )

    def foresee(self, shape: Shape) -> Foreseen:
        """When such a job would start. Raises `SlurmError`.

        Of a job that may go to several partitions Slurm foresees the start in one of them, which need not be
        the first: each is tried.
        """
        options = self._question(shape)
        wait, free = max(0.0, predict_start(options) - time.time()), 0
        for name in shape.target.split(","):
            one = replace(shape, target=name)
            its = self._question(one)
            try:
                its_wait = wait if one == shape else max(0.0, predict_start(its) - time.time())
            except SlurmError as error:
                if error.passing or error.no_place:
                    raise
                continue  # not this one, but another
            wait = min(wait, its_wait)
            free += (
                count_fitting(one, self.cpus_of(one), self._nodes.node_facts().values())
                if its_wait < 1.0
                else 0
            )
        return Foreseen(shape, wait, free, used=self._time_used(shape))

    def _question(self, shape: Shape) -> list[str]:
        """A batch script's own lines are not read for a question, so they come first."""
        script = of_script(shape.options)
        return [*(script[0] if script else ()), *self.options_for(shape)]

    def explain_closed(self) -> Mapping[str, str]:
        """Partitions into which a guest may not put jobs, and why."""
        return self._left_out()

    def cpus_of(self, shape: Shape, tasks: int = 1) -> int:
        """CPUs of each task of such a job."""
        return cpus_of_task(shape, self._nodes_of(shape), tasks)

    def _nodes_of(self, shape: Shape) -> list[Node]:
        return [node for node in self._cluster.nodes if goes_to(shape, node.partitions)]

    def _time_used(self, shape: Shape) -> TimeUsed | None:
        """What jobs there use of their walltimes, by the accounting of the last days."""
        if self._accounting and time.monotonic() >= self._used_until:
            self._used_until = time.monotonic() + ACCOUNTING
            try:
                self._used = times_used()
            except SlurmError as error:
                _log.info("the accounting does not show how long jobs run: %s", error)
        devices = bool(shape.request.devices)
        found = [self._used.get((target, devices)) for target in shape.target.split(",")]
        return max(filter(None, found), key=lambda used: used.jobs, default=None)


def _find_refusal(words: Sequence[str], partitions: Sequence[str]) -> SlurmError | None:
    """Slurm's refusal of a job with these options, if it takes none in any of the partitions."""
    refused = None
    for name in partitions:
        try:
            predict_start([f"--partition={name}", *words])
        except SlurmError as error:
            if error.passing or error.no_place:
                return None
            refused = error
        else:
            return None
    return refused
