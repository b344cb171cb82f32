"""Guest of a Slurm queue: every job is a batch job; Slurm decides when, and on which nodes.

Nothing of ours runs on the cluster but the jobs: no daemon, no open port, no root. What a policy has
submitted goes to sbatch, many jobs of one shape together as one array; one squeue now and then shows what
became of all of them; each job's own start and end are written down on its node
(`dovetail_slurm.queue_task`), in the run folder, which the nodes must see.

Jobs outlive Dovetail. The next one finds them by what was noted before each sbatch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import (
    Allocation,
    Cluster,
    Delayed,
    Ended,
    Job,
    JobId,
    Placed,
    Requeued,
    Seconds,
    Shape,
    State,
    Submit,
    Usage,
    Withdrawn,
)
from dovetail.model.batch_options import (
    of_script,
    options_for,
    value_of,
)
from dovetail.model.command_line import argv
from dovetail.model.templates import device_word
from dovetail.process.environment import THREAD_COUNTS
from dovetail.process.reporting import Reporting
from dovetail.process.spawn_log import uid_of
from dovetail.records import dataclass
from dovetail.workloads.batch.options import head_options
from dovetail_slurm.allocation import poll_seconds
from dovetail_slurm.backlog import Backlog
from dovetail_slurm.batch import (
    HOPELESS,
    BatchStatus,
    JobFacts,
    cluster_of_partitions,
    facts_of,
    look,
    look_again,
    send,
    send_script,
    steered,
    time_options,
)
from dovetail_slurm.commands import SlurmError, call, configuration
from dovetail_slurm.outcomes import (
    AGAIN,
    MISSED,
    RUNS,
    TERMINAL,
    end_of,
    end_of_script,
    script_start,
    start_of,
)
from dovetail_slurm.partitions import (
    SETTINGS,
    Choice,
    Partition,
    UsualQos,
    choose_partitions,
    choose_qos,
    preempting_qos,
    read_member,
    read_partitions,
)
from dovetail_slurm.questions import Questions, has_accounting
from dovetail_slurm.queue_folder import HandedOverStart, QueueFolder
from dovetail_slurm.steps import GANG_TASK

_log = logging.getLogger(__name__)
TASK = Path(__file__).with_name("queue_task.py")
GATHER = 0.05
"""Seconds in which jobs of one shape gather for one array."""
STAYS = 120.0
"""Seconds for which a batch job that Slurm has put back stays there without a further start of its job."""
UNKNOWN = "unknown"
"""Stands for the id of a job that has run, and is unknown to Dovetail."""
CHANGED = ("SLURM_TIME_FORMAT", "LC_ALL")
"""Variables that differ for Slurm's commands; jobs get them as they were."""


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """Hand jobs to Slurm's queue.

    ``partitions`` are those that may be used, with commas (empty: the one that Slurm itself would use, and
    others for jobs that name them); none whose tier preempts others' running jobs, unless ``preempts`` allows
    it. ``features`` are names of node features that distinguish CPUs. ``poll`` is seconds between looks at
    the queue, ``pause`` those between two questions for a start (0: 1 and 0.02 on a cluster of one's own,
    else 15 to 30 and 5). ``mpi`` is srun's ``--mpi`` for gangs, ``srun`` further options for them,
    ``sbatch`` options for all jobs.
    """

    partitions: str = ""
    features: str = ""
    poll: float = 0.0
    pause: float = 0.0
    mpi: str = ""
    srun: str = ""
    sbatch: str = ""
    preempts: bool = False
    policy: ClassVar[str] = "earliest-completion"

    def discover(self) -> Cluster:
        """The nodes that take jobs, with their partitions. Raises `InputError` where we may use none."""
        named, where = _words(self.partitions), "executor slurm-queue"
        found = read_partitions()
        choice = self._choice(found)
        refused = [
            f"partition {name}: {choice.left_out[name]}"
            for name, one in found.items()
            if name in choice.left_out and (name in named or (one.is_default and not named))
        ]
        if refused:
            raise InputError(
                f"found {'; '.join(refused)}; expected one that a guest may use, as partitions=NAME",
                where=where,
            )
        if not choice.open and not named:
            there = ", ".join(choice.closed) or "none"
            raise InputError(
                f"found no default partition, expected partitions=NAME, of those that we may use: {there}",
                where=where,
            )
        if (qos := self.usual_qos()).harm:
            raise InputError(
                f"found no QOS that a guest may use: {qos.harm}; expected another, as sbatch=--qos=NAME, or "
                "preempts=true, which allows that",
                where=where,
            )
        if qos.option:
            _log.info("jobs that name no QOS get %s: the usual one preempts running jobs", qos.option)
        for name, why in choice.left_out.items():
            _log.info("partition %s is left out: %s", name, why)
        cluster = cluster_of_partitions(choice.open, _words(self.features), choice.closed)
        opened = any(not cluster.closed.issuperset(node.partitions) for node in cluster.nodes)
        if not opened:
            what = f"partitions {self.partitions}" if named else f"partition {', '.join(choice.open)}"
            raise InputError(
                f"found no node of {what} that takes jobs, expected one; 'sinfo' shows them", where=where
            )
        return cluster

    def _choice(self, found: Mapping[str, Partition]) -> Choice:
        settings = configuration(SETTINGS)
        member = read_member(settings).with_options(self.sbatch.split(), os.environ)
        return choose_partitions(found, member, settings, _words(self.partitions), preempts=self.preempts)

    def usual_qos(self) -> UsualQos:
        """The QOS of jobs that name none; one that an operator names is taken as it is."""
        named = value_of(self.sbatch.split(), "--qos", "-q") or os.environ.get("SBATCH_QOS", "")
        settings = configuration(SETTINGS)
        try:
            preempting = {} if named or self.preempts else preempting_qos(settings)
        except SlurmError as error:
            _log.warning("which QOS preempt running jobs is not known: %s", error)
            preempting = {}
        return choose_qos(read_member(settings), preempting) if preempting else UsualQos()

    def left_out(self) -> Mapping[str, str]:
        """Partitions into which no job of ours goes, and why; none where Slurm does not answer."""
        try:
            return self._choice(read_partitions()).left_out
        except SlurmError as error:
            _log.warning("why a partition may not be used is not known: %s", error)
            return {}

    def open(self, folder: RunFolder, cluster: Cluster) -> SlurmQueueExecutor:
        """A new run."""
        executor = SlurmQueueExecutor(self, folder, cluster)
        executor.files.create()
        return executor

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[SlurmQueueExecutor, LastAttempts]:
        """Take up a run: its batch jobs are in Slurm's hands, or have ended."""
        executor = SlurmQueueExecutor(self, folder, cluster)
        return executor, executor.take_up()


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A job on its way to sbatch: what is noted of it, and the command of its batch."""

    handed: HandedOverStart
    run: Mapping[str, Any]


_Variables = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """What jobs have in common that may go as one array; of a user's ``script`` only tasks of its own array.

    ``script`` is its file and its arguments, ``time`` what sbatch is given where its walltime is not its own.
    """

    shape: Shape
    implementation: str
    name: str
    tasks: int
    own: _Variables
    cwd: str
    outer: _Variables | None
    script: tuple[str, ...] = ()
    time: tuple[str, ...] = ()


class SlurmQueueExecutor(Reporting):
    """Implements `Executor` and `SubmitsJobs`; use it in one event loop."""

    def __init__(self, options: SlurmQueue, folder: RunFolder, cluster: Cluster) -> None:
        super().__init__(folder, cluster)
        # We may run in a job ourselves: its variables would make sbatch take over its limits.
        self._environ = _outside_of_steps(self._environ)
        self.files = QueueFolder(self.run_dir)
        self._options = options
        wanted = ("SlurmUser", "MaxArraySize", "AccountingStorageType")
        self._settings = configuration(wanted)
        self._questions = Questions(
            self.cluster,
            self._settings,
            options.sbatch.split(),
            options.pause,
            self._happened,
            qos=options.usual_qos().option,
        )
        self._handed: dict[JobId, HandedOverStart] = {}
        self._commands: dict[JobId, tuple[_Key, _Waiting]] = {}  # of those that wait in the queue
        longest = int(self._settings.get("MaxArraySize", "1001")) - 1
        self._backlog: Backlog[_Key, _Waiting] = Backlog(longest)
        self._leaving: list[HandedOverStart] = []  # to be taken out of Slurm's queue together
        self._back: dict[
            JobId, tuple[HandedOverStart, float]
        ] = {}  # put back by Slurm, and until when they stay
        self._told_why: set[JobId] = set()  # jobs of which the engine knows why Slurm has no place for them
        self._silence: tuple[float, str] | None = None  # since when Slurm does not answer, and its last error
        self._sends = asyncio.Event()
        self._looks = asyncio.Event()

    # ------------------------------------------------------------------- taking up

    def take_up(self) -> LastAttempts:
        """The last start of each job that was handed over; the first look shows what became of it.

        Raises `ExecutorError`.
        """
        self.files.create()
        last = {one.job: one for one in self.files.handed()}
        # A batch whose id was never written down is found by its name in the queue.
        by_batch = {found.batch: found.id.partition("_")[0] for found in look().values() if found.batch}
        handed_over: list[tuple[Submit, int]] = []
        for one in last.values():
            self._outputs.paths[one.job] = one.files[0], one.files[1]
            # A claim is a file that the node finds: the job will not run there, whatever Slurm does.
            if self.files.is_claimed(one):  # it was to go another way
                continue
            ran = self.files.run_of(one) is not None
            if not one.batch_id:  # Dovetail ended between sbatch and its answer
                one.batch_id = by_batch.get(one.batch, UNKNOWN if ran else "")
            if (
                one.reported and one.is_back
            ):  # its next start is yet to be decided, and then another batch job
                self._drop_back(one)
            elif ran or (one.batch_id and not one.reported):
                # It ran, or may still run: the first look decides. What was refused is handed over again.
                one.is_back = False
                handed_over.append((one.submit, one.attempt))
                self._handed[one.job] = one
        return LastAttempts(handed_over=handed_over)

    # ------------------------------------------------------------------- the Executor protocol

    async def launch(self, placed: Placed) -> None:
        """Never: Slurm decides where a job runs. Raises `ExecutorError`."""
        raise ExecutorError(f"job {placed.job.id} cannot be put on a node: Slurm decides where it runs")

    async def submit(self, job: Job, decision: Submit, attempt: int) -> None:
        """Have the job handed to sbatch, together with others of its shape."""
        if self._closing:
            raise ExecutorError(f"job {job.id} was submitted after the executor was closed")
        self._attach()
        implementation = job.app.implementation(decision.implementation)
        nowhere = Allocation(decision.request, ())
        try:
            words = argv(Placed(job, implementation, nowhere, 0.0, None, 0.0))
        except InputError as error:
            # Before sbatch: a wrong command ends the job here, and not in a queue hours later.
            now = time.time()
            self._happened(Ended(job.id, State.FAILED, None, str(error), Usage(), now, now))
            return
        # Checked here as well as at submission: a policy may name another partition.
        if decision.target and not self._serves(decision.target):
            now, there = time.time(), ", ".join(self._served())
            reasons = await asyncio.to_thread(self._options.left_out)
            named = [f"{name}: {reasons[name]}" for name in decision.target.split(",") if name in reasons]
            why = f"it names partition {decision.target}, and this guest may use {there}"
            why += f" ({'; '.join(named)})" if named else ""
            self._happened(Ended(job.id, State.FAILED, None, why, Usage(), now, now, ran=False))
            return
        files, chosen = self._outputs.of(job, attempt, self._cwd)
        uid = uid_of(self.run_uid, job.id, attempt)
        cwd, outer = self._surroundings(job)
        command = implementation.command
        tasks, own = (1, ()) if command is None else (command.tasks, command.env)
        own_options = options_for(job.batch_options, implementation)
        shape = Shape(decision.target, decision.request, decision.walltime, own_options)
        key = _Key(shape, decision.implementation, job.name or job.app.name, tasks, own, cwd, outer)
        handed = HandedOverStart(job.id, attempt, uid, "", 0, files, decision, implementation.kind, 1)
        names = {"DOVETAIL_JOB": job.id, "DOVETAIL_UID": uid}
        names["DOVETAIL_DEVICE"] = device_word(implementation.kind)
        script = of_script(own_options)
        if script is not None:
            handed.is_script = True
            number, _, index = job.id.partition("_")
            handed.task = int(index) if index.isdecimal() else -1
            # One call of sbatch for the whole array: each task's own number comes from Slurm.
            if handed.task >= 0:  # sbatch is called once for all of them
                names = {**names, "DOVETAIL_JOB": number, "DOVETAIL_ARRAY_JOB": number}
                del names["DOVETAIL_UID"]
            # A walltime that Dovetail has cut wins over the script's own line.
            cut = time_options(decision.walltime) if decision.walltime != job.walltime else []
            key = replace(key, script=tuple(words), time=tuple(cut))
            slurm = job.launch is not None and job.launch.batch_variables
            run: dict[str, Any] = {"env": names, "files": None if slurm else files}
        else:
            # As a step, so that MPI and the tasks of all nodes are started by Slurm.
            if decision.request.nodes > 1 or tasks > 1:
                words = [*self._srun(decision, tasks), sys.executable, "-I", "-S", str(GANG_TASK), *words]
            run = {"argv": words, "files": files, "chosen": chosen, "env": names}
        self._handed[job.id] = handed
        self._commands[job.id] = key, _Waiting(handed, run)
        if not self._take_up_back(handed):
            self._hand_over(job.id)

    def _served(self) -> Sequence[str]:
        """The partitions that may be used."""
        return list(dict.fromkeys(name for node in self.cluster.nodes for name in node.partitions))

    def _serves(self, target: str) -> bool:
        return set(target.split(",")) <= set(self._served())

    def _hand_over(self, job: JobId) -> None:
        key, waiting = self._commands[job]
        why = self._backlog.add(key, waiting)
        if why:
            self._keep_back([waiting], why)
        self._sends.set()

    def _keep_back(self, waiting: Sequence[_Waiting], why: str) -> None:
        """Slurm has no place for these now; the engine learns it once."""
        for job in [one.handed.job for one in waiting if one.handed.job not in self._told_why]:
            self._told_why.add(job)
            self._happened(Delayed(job, why))

    def check(self, jobs: Iterable[Job]) -> None:
        """Check each set of options with Slurm once. Raises `InputError` for one that no partition takes."""
        self._questions.check(jobs)

    async def inquire(self, shape: Shape) -> None:
        """Have Slurm estimate when such a job would start."""
        self._attach()
        self._questions.put(shape)

    async def stop(self, job: JobId, reason: str) -> None:
        """``scancel`` it; `Ended` follows with the state ``reason``."""
        handed = self._handed.get(job)
        if handed is None or handed.stop:
            return
        if handed.is_back:
            self._leave_back(handed)
            return
        # Set first: an sbatch that is under way sees it and cancels as soon as it has the id.
        handed.stop = reason
        if self._take_back(handed):
            return
        if handed.batch_id == UNKNOWN:
            self.files.fence(handed)
        elif handed.batch_id:
            await self._cancel([handed])

    async def withdraw(self, job: JobId) -> None:
        """Take it out of Slurm's queue, unless it has started; `Withdrawn` follows.

        What counts is who makes the record of its run first, its node or we: ``scancel --state=PENDING``
        would not start that race, but takes all tasks of an array that wait along with the one that it names.
        """
        handed = self._handed.get(job)
        if handed is None or handed.stop or handed.started:
            return
        # Not in Slurm's hands yet: nothing has to be taken out.
        if self._backlog.take_out(lambda one: one.handed is handed):
            self._let_go(handed)
            return
        if handed.batch_id in ("", UNKNOWN) or handed.is_back:
            return
        if handed.is_script:
            await self._withdraw_script(handed)
            return
        # Who writes the file first wins: if the node did, the job has begun.
        if not self.files.claim(handed):
            return
        self._let_go(handed)
        # Gathered: a policy that reconsiders takes out many at once, and scancel takes them all.
        self._leaving.append(handed)
        if len(self._leaving) == 1:
            self._begin_task(self._withdraw_gathered)

    async def _withdraw_script(self, handed: HandedOverStart) -> None:
        """Slurm alone knows whether it has started; a task of an array it would not take out alone."""
        if handed.task >= 0:
            # A task cannot be taken out alone: `--state=PENDING` would end all that wait.
            return
        try:
            await asyncio.to_thread(call, ["scancel", "--state=PENDING", handed.id])
        except SlurmError as error:
            _log.info("job %s could not be taken out of the queue: %s", handed.job, error)
            return
        handed.leaves = True  # where it is cancelled without having begun, that was us
        self._looks.set()

    async def _withdraw_gathered(self) -> None:
        """One scancel for all of them, tasks of arrays among them."""
        await asyncio.sleep(GATHER)
        leaving, self._leaving = self._leaving, []
        try:
            await asyncio.to_thread(call, ["scancel", *(one.id for one in leaving)])
        except SlurmError as error:  # should they start, they find that they are not wanted
            _log.info("not all of %d jobs could be taken out of the queue: %s", len(leaving), error)

    def _let_go(self, handed: HandedOverStart) -> None:
        """A job goes another way."""
        if handed.batch:
            self.files.note_later(t="withdrawn", batch=handed.batch, job=handed.job)
        self._handed.pop(handed.job, None)
        self._commands.pop(handed.job, None)
        self._told_why.discard(handed.job)
        self._happened(Withdrawn(handed.job))

    def _take_back(self, handed: HandedOverStart) -> bool:
        """End a job that waits here, and not in Slurm's queue; whether it did."""
        waits = self._backlog.take_out(lambda one: one.handed is handed)
        if waits:
            self._tell_end(handed, self._stopped(handed))
        return waits

    async def _cancel(self, handed: Sequence[HandedOverStart]) -> None:
        """End them; should Slurm's controller be away, later."""
        try:
            await asyncio.to_thread(call, ["scancel", *(one.id for one in handed)])
        except (SlurmError, OSError) as error:  # also where no process can be begun now
            # Where the controller is away, and no longer: an id that is unknown has ended.
            if not isinstance(error, SlurmError) or error.passing:
                self._begin_task(self._cancel_later, handed)
        self._looks.set()

    async def _cancel_later(self, handed: Sequence[HandedOverStart]) -> None:
        await asyncio.sleep(2.0)
        left = [one for one in handed if self._handed.get(one.job) is one]
        if left:
            await self._cancel(left)

    async def close(self) -> None:
        """Cancel what is left in Slurm's hands, and wait until it has let go."""
        self._closing = True
        for one, _ in list(self._back.values()):
            self._drop_back(one)
        left = [one for one in self._handed.values() if one.batch_id and not one.stop]
        for one in left:
            one.stop = State.CANCELLED.value
        if left:
            await self._cancel(left)
            deadline = time.monotonic() + 60.0
            while self._handed and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
        await self.leave()

    async def leave(self) -> None:
        """Go without the jobs: they stay in Slurm's hands for the next Dovetail."""
        self._closing = True
        await self._end_tasks()
        self.files.tidy()
        self._all_reported()

    def settle(self) -> bool:
        """After `close`: whether everything that was handed over has ended and was reported."""
        return self._closed and not self._handed

    # ------------------------------------------------------------------- what goes on beside

    def _attach(self) -> None:
        if not self._tasks and not self._closing:
            for work in (self._send_all, self._questions.ask_all, self._watch):
                self._begin_task(work)

    @property
    def ends_within(self) -> Seconds:
        """Slurm takes its time: its own grace, and a look at the queue."""
        return self._grace + 60.0

    def trouble(self) -> str:
        """Whether Slurm answers."""
        if self._silence is None:
            return ""
        since, why = self._silence
        return f"Slurm has not answered for {time.monotonic() - since:.0f} s ({why})"

    # ------------------------------------------------------------------- handing over

    async def _send_all(self) -> None:
        """Hand over what has gathered, one batch after the other; what Slurm has no place for, later."""
        while True:
            due = self._backlog.due() - time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sends.wait(), due if due < inf else None)
            # A moment for others of the same shape to come: one array costs Slurm as much as one job.
            await asyncio.sleep(GATHER)
            self._sends.clear()
            while (found := self._backlog.next(time.monotonic())) is not None:
                key, waiting = found
                try:
                    await self._send(key, waiting)
                # Nothing reached Slurm, so it all goes back and is tried again, with the reason shown.
                except (ExecutorError, OSError) as error:  # a full disk, too: nothing was handed over yet
                    self.files.note_later(t="refused", batch=waiting[0].handed.batch)
                    for one in waiting:
                        # It is written anew with the next try, under another name.
                        one.handed.batch = ""
                    kept = self._backlog.refused(key, waiting, time.monotonic(), str(error))
                    self._keep_back(kept, str(error))
                    for handed in [one.handed for one in waiting if one.handed.stop]:
                        self._take_back(handed)
                except Exception as error:  # noqa: BLE001 - whatever it is ends these jobs only
                    _log.exception("%d jobs could not be handed over", len(waiting))
                    why, now = str(error) or type(error).__name__, time.time()
                    for handed in [one.handed for one in waiting]:
                        end = Ended(handed.job, State.FAILED, None, why, Usage(), now, now)
                        self._tell_end(handed, end)
                else:
                    self._backlog.accepted(key)
                    for one in waiting:
                        if one.handed.job in self._told_why:
                            self._told_why.discard(one.handed.job)
                            self._happened(Delayed(one.handed.job, ""))

    async def _send(self, key: _Key, waiting: Sequence[_Waiting]) -> None:
        """Raises `SlurmError` where Slurm has no place for so many jobs."""
        batch = uuid.uuid4().hex[:12]
        options = [*key.time, *self._questions.options_for(key.shape, key.tasks)]
        handed = [one.handed for one in waiting]
        for number, one in enumerate(handed):
            one.batch, one.number, one.count = batch, number, len(handed)
        make = self._script_call if key.script else self._batch_call
        call_sbatch = make(key, waiting, batch, options)
        # Before sbatch is called: after a crash in between the batch is found in the queue.
        self.files.note_batch(batch, handed)
        id = await self._deliver(call_sbatch, handed)
        if not id:
            return
        # What was free is taken now: the next forecast must look again.
        self._questions.nodes.forget()  # what is free there has changed
        self.files.note_later(t="sent", batch=batch, id=id)
        for one in handed:
            one.batch_id = id
        # Stopped while sbatch was under way.
        unwanted = [one for one in handed if one.stop]
        if unwanted:
            await self._cancel(unwanted)
        self._looks.set()

    def _batch_call(
        self, key: _Key, waiting: Sequence[_Waiting], batch: str, options: Sequence[str]
    ) -> Callable[[], str]:
        """How sbatch is called for commands of ours."""
        outer = self._environ if key.outer is None else _outside_of_steps(dict(key.outer))
        cpus = str(self._questions.cpus_of(key.shape, key.tasks))
        path = self.files.write_batch(
            batch,
            {
                "cwd": key.cwd,
                "env": {**dict.fromkeys(THREAD_COUNTS, cpus), **dict(key.own)},
                "restore": {name: outer.get(name) for name in CHANGED},
                "hide_devices": not key.shape.request.devices,
                "runs": [one.run for one in waiting],
            },
        )
        words = [sys.executable, "-I", "-S", str(TASK), str(path)]
        text = f"#!/bin/sh\nexec {shlex.join(words)}\n"
        return partial(
            send,
            options,
            str(self.files.write_script(batch, os.fsencode(text))),
            name=key.name,
            indices=range(len(waiting)) if len(waiting) > 1 else None,
            log=str(self.files.path / f"{batch}.log"),
            environ=steered(outer, os.environ),
        )

    def _script_call(
        self, key: _Key, waiting: Sequence[_Waiting], batch: str, options: Sequence[str]
    ) -> Callable[[], str]:
        """How it is called for a user's script: as it is, with what wins over its own lines.

        One that leaves open whether it may be put back may be; one without lines for sbatch writes where
        Dovetail's jobs do.
        """
        path, *arguments = key.script
        text = _text_of(path)
        outer = self._environ if key.outer is None else _outside_of_steps(dict(key.outer))
        script = of_script(key.shape.options)
        assert script is not None
        first = waiting[0]
        files = first.run["files"]
        if files is not None:
            out, err = (name if first.handed.task < 0 else _of_task(name, first.handed) for name in files)
            options = [f"--output={out}", f"--error={err}", "--open-mode=append", *options]
        words = {one.option.name for one in head_options(text.decode(errors="replace"))}
        # A script that is silent on it may go back into the queue, as our own jobs do.
        if words.isdisjoint(("requeue", "no-requeue")):
            options = ["--requeue", *options]
        # Dovetail has waited for what it depends on already; its numbers mean nothing to Slurm.
        if "dependency" in words:  # which names jobs by our numbers, and is fulfilled when we hand it over
            options = ["--dependency=", *options]
        return partial(
            send_script,
            options,
            str(self.files.write_script(batch, text)),
            arguments,
            name=key.name,
            indices=[one.handed.task for one in waiting] if first.handed.task >= 0 else None,
            folder=key.cwd,
            environ=steered(outer, os.environ) | dict(key.own) | first.run["env"],
            at_once=value_of(script[1], "--array", "-a").partition("%")[2],
            is_held="hold" in words,
        )

    async def _deliver(self, call_sbatch: Callable[[], str], handed: Sequence[HandedOverStart]) -> str:
        """Call sbatch until it has taken the batch, once; its id, or empty where it is refused."""
        batch = handed[0].batch
        while True:
            try:
                return await asyncio.to_thread(call_sbatch)
            except SlurmError as error:
                # A task index above the array limit looks like a full queue, and will never be taken.
                own_index = handed[0].is_script and len(handed) == 1 and "array specification" in str(error)
                if error.no_place and not own_index:
                    raise
                # It may have been taken before the answer was lost: a second call could start it twice.
                if error.passing:
                    known = await self._id_of(batch)
                    if known:
                        return known
                    continue
                self.files.note_later(t="refused", batch=batch)
                now = time.time()
                for one in handed:
                    self._tell_end(one, Ended(one.job, State.FAILED, None, str(error), Usage(), now, now))
                return ""

    async def _id_of(self, batch: str) -> str:
        """The controller went away during the call: whether it has taken the batch, as soon as it answers."""
        while True:
            await asyncio.sleep(2.0)
            try:
                seen = await asyncio.to_thread(look)
            except (SlurmError, OSError):
                continue
            return next((found.id.partition("_")[0] for found in seen.values() if found.batch == batch), "")

    def _srun(self, decision: Submit, tasks: int) -> list[str]:
        mpi = [f"--mpi={self._options.mpi}"] if self._options.mpi else []
        step = ["srun", f"--nodes={decision.request.nodes}", f"--ntasks-per-node={tasks}"]
        return [*step, "--kill-on-bad-exit=1", "--quiet", *mpi, *self._options.srun.split()]

    # ------------------------------------------------------------------- looking

    async def _watch(self) -> None:
        """Look at the queue now and then: sooner after something has happened, later while nothing does."""
        least, most = poll_seconds(self._options.poll, self._settings)
        pause = least
        while True:
            try:
                await asyncio.wait_for(self._looks.wait(), pause)
                # A moment for Slurm to have done what was just ordered.
                await asyncio.sleep(min(0.2, least))  # what was just sent or cancelled is under way
            except TimeoutError:
                pass
            self._looks.clear()
            watched = [one for one in self._handed.values() if one.batch_id]
            if not watched:
                continue
            try:
                seen = await asyncio.to_thread(look)
                gone = [one.id for one in watched if one.id not in seen]
                # squeue forgets jobs soon after their end; scontrol and the accounting know them longer.
                seen |= await asyncio.to_thread(look_again, gone, accounting=has_accounting(self._settings))
                facts = await self._facts_of(watched, seen)
            except SlurmError as error:  # the controller is away: jobs go on without it
                self._silence = self._silence or (time.monotonic(), str(error))
                pause = min(most, 1.5 * pause + 1.0)
                continue
            self._silence = None
            arrays = {id.partition("_")[0] for id in seen}
            changed = [self._look_at(one, seen.get(one.id), arrays, facts.get(one.id)) for one in watched]
            # Put back by Slurm and not wanted again within its time: the place in the queue goes.
            for one in [one for one, until in self._back.values() if until < time.monotonic()]:
                self._drop_back(one)
            pause = least if any(changed) else min(most, 1.2 * pause)

    async def _facts_of(
        self, watched: Iterable[HandedOverStart], seen: Mapping[str, BatchStatus]
    ) -> dict[str, JobFacts]:
        """All that Slurm shows of users' scripts that have begun or ended since the last look."""
        wanted: dict[str, None] = {}
        for one in watched:
            status = seen.get(one.id) if one.is_script else None
            if status is not None and (
                status.state in TERMINAL or (status.state in RUNS and not one.started)
            ):
                wanted[one.batch_id] = None
        found: dict[str, JobFacts] = {}
        for id in wanted:
            try:
                found |= await asyncio.to_thread(facts_of, id, accounting=has_accounting(self._settings))
            except SlurmError as error:
                if error.passing:
                    raise
        return found

    def _look_at(
        self, handed: HandedOverStart, seen: BatchStatus | None, arrays: set[str], facts: JobFacts | None
    ) -> bool:
        """Report what has become of a job since the last look; whether anything has."""
        record = None
        # Files on a shared system are read only where there may be something new.
        if seen is None or seen.state in RUNS or seen.state in TERMINAL:
            record = self.files.run_of(handed) if not handed.is_script else script_start(seen, facts)
        changed = False
        if record is not None and not handed.started:
            handed.started = changed = True
            self._commands.pop(handed.job, None)
            if facts is not None:
                # Linked at the start: users follow the output while the job runs.
                self._link_output(handed, facts)
            self._happened(start_of(self.cluster, handed, seen, record))
        if seen is not None and seen.reason != handed.said:
            handed.said = seen.reason
            self._happened(Delayed(handed.job, f"Slurm: {seen.reason}" if seen.reason else ""))
        if handed.is_back:
            return changed
        back = handed.started and seen is not None and seen.state in AGAIN
        # A restart that we have missed shows in the node's records.
        if not handed.stop and (back or (handed.started and self.files.has_started_again(handed))):
            self._put_back(handed)
            return True
        # Reasons that no wait removes: the user must learn of it.
        if seen is not None and seen.state == "PENDING" and seen.reason in HOPELESS and not handed.stop:
            self._begin_task(self._give_up, handed, seen.reason)
            return True
        if seen is None and record is None:
            return self._is_missing(handed, handed.batch_id in arrays)
        # Taken out by us before it had begun, so it is no end but a withdrawal.
        if handed.leaves and not handed.started and seen is not None and seen.state == "CANCELLED":
            self._let_go(handed)
            return True
        end = (
            end_of_script(handed, seen, facts)
            if handed.is_script
            else end_of(self.files, handed, seen, record)
        )
        if end is not None:
            self._tell_end(handed, end)
            changed = True
        return changed

    async def _give_up(self, handed: HandedOverStart, reason: str) -> None:
        """Slurm has taken a job that it will never start: the end of the job gives the reason."""
        await self._cancel([handed])
        now, why = time.time(), f"Slurm would never start it: {reason}"
        self._tell_end(handed, Ended(handed.job, State.FAILED, None, why, Usage(), now, now))

    def _link_output(self, handed: HandedOverStart, facts: JobFacts) -> None:
        """A user's script chooses its output files: the service's own names lead there."""
        if not facts.stdout or not facts.stdout.startswith("/"):
            return
        found = facts.stdout, facts.stderr or facts.stdout
        if handed.files[0] == found[0]:
            return
        ours = self._outputs.ours(handed.job, handed.attempt)
        for link, target in zip(ours, found, strict=True):
            try:
                os.symlink(target, link)
            except OSError as error:
                _log.info("the output of job %s lies at %s: %s", handed.job, target, error.strerror)
        self._outputs.paths[handed.job] = found

    # ------------------------------------------------------------------- jobs that Slurm puts back

    def _put_back(self, handed: HandedOverStart) -> None:
        """Slurm has put a job that ran into its queue again: it waits anew, as one that was requeued.

        The engine answers with `stop`, and in its time with `submit`, which finds the batch job there.
        """
        handed.is_back = True
        self.files.fence_start(handed)  # where its node was given up, it may run on
        self.files.note(t="back", uid=handed.uid)
        self._happened(Requeued(handed.job))

    def _leave_back(self, handed: HandedOverStart) -> None:
        """This start is over; the batch job stays in Slurm's queue for a while, for the next one."""
        self._back[handed.job] = handed, time.monotonic() + STAYS
        now = time.time()
        why = "Slurm has put it back into its queue"
        self._tell_end(handed, Ended(handed.job, State.CANCELLED, None, why, Usage(), None, now))

    def _take_up_back(self, handed: HandedOverStart) -> bool:
        """Whether this is a further start of a batch job that Slurm has put back."""
        before, _ = self._back.pop(handed.job, (None, 0.0))
        if before is None:
            return False
        one, other = before.submit, handed.submit
        # Another implementation, partition or request needs another batch job.
        same = (one.implementation, one.target, one.request, one.walltime)
        if same != (other.implementation, other.target, other.request, other.walltime):
            self._drop_back(before)
            return False
        handed.batch, handed.number, handed.count = before.batch, before.number, before.count
        handed.batch_id, handed.restarts = before.batch_id, before.restarts + 1
        handed.files = before.files
        self._outputs.paths[handed.job] = before.files[0], before.files[1]
        if not handed.is_script:  # a script chooses its output files when it starts
            self._outputs.link(handed.job, before.attempt, handed.attempt)
        self.files.note_again(handed)
        self._looks.set()
        return True

    def _drop_back(self, handed: HandedOverStart) -> None:
        """The batch job is wanted no more."""
        self._back.pop(handed.job, None)
        # Fenced first: should it start before scancel arrives, it finds that it is not wanted.
        self.files.fence(handed)
        try:
            call(["scancel", handed.id], timeout=10.0)
        except SlurmError as error:  # should it start, it finds that it is not wanted
            _log.warning("job %s stays in Slurm's queue as %s: %s", handed.job, handed.id, error)

    def _is_missing(self, handed: HandedOverStart, array_known: bool) -> bool:
        """Slurm names a job no more that has not run: it was cancelled, or lost with the controller's state.

        Of a waiting task of an array that is cancelled Slurm keeps nothing. What was lost goes to sbatch
        again; should it turn up after all, it finds that it is not wanted.
        """
        handed.missed += 1
        # More than one look, since squeue may miss a job that is changing its state.
        if handed.missed < MISSED:
            return False
        # Slurm keeps no trace of a waiting task of an array that was cancelled.
        if array_known or handed.stop:
            now, state = time.time(), State(handed.stop or State.CANCELLED)
            why = "it was cancelled before it began"
            self._tell_end(handed, Ended(handed.job, state, None, why, Usage(), now, now))
            return True
        self.files.fence(handed)
        if handed.is_script:  # it has no record of its own
            why = "Slurm no longer knows it, so whether it has run, and how that ended, is not known"
            self._tell_end(handed, Ended(handed.job, State.NODE_FAIL, None, why))
        elif handed.job in self._commands:
            handed.batch, handed.batch_id, handed.missed = "", "", 0
            self._hand_over(handed.job)
        else:
            why = "Slurm no longer knows it, and it has never run"
            self._tell_end(handed, Ended(handed.job, State.NODE_FAIL, None, why))
        return True

    def _stopped(self, handed: HandedOverStart) -> Ended:
        now = time.time()
        return Ended(handed.job, State(handed.stop), None, "it was never handed over", Usage(), now, now)

    def _tell_end(self, handed: HandedOverStart, end: Ended) -> None:
        """The engine gets the end once."""
        if self._handed.get(handed.job) is handed:
            del self._handed[handed.job]
        self._commands.pop(handed.job, None)
        self._told_why.discard(handed.job)
        if handed.batch:
            self.files.note_later(t="told", uid=handed.uid)
            self._backlog.freed()
            self._sends.set()
        self._happened(end)


def _text_of(path: str) -> bytes:
    """A script as it was submitted. Raises `ExecutorError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ExecutorError(f"{path}: cannot be read: {error.strerror}") from error


def _of_task(path: str, handed: HandedOverStart) -> str:
    """The output file of one task as the pattern of all."""
    return path.replace(f"_{handed.task}", "_%a")


def _outside_of_steps(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the variables of a Slurm job that we may be in ourselves."""
    kept = ("SLURM_CONF", "SLURM_TIME_FORMAT")
    return {
        name: value
        for name, value in environ.items()
        if name in kept or not name.startswith(("SLURM_", "SLURMD_", "PMI_"))
    }
