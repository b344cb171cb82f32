"""Guest of a batch system: every job is a batch job; the system decides when, and on which nodes.

Nothing of ours runs on the cluster but the jobs: no daemon, no open port, no root. What a policy has
submitted is handed over, many jobs of one shape together as one array (`dovetail.batch.sender`); one look at
the queue now and then shows what became of all of them; each job's own start and end are written down on its
node (`dovetail.batch.task`), in the run folder, which the nodes must see.

Jobs outlive Dovetail. The next one finds them by what was noted before each submission.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dovetail.batch.folder import HandedOverStart, QueueFolder
from dovetail.batch.outcomes import MISSED, end_of, end_of_script, start_of, start_of_script
from dovetail.batch.questions import Questions
from dovetail.batch.sender import GATHER, BatchKey, BatchSender, Waiting, end_unsent
from dovetail.batch.system import BatchError, BatchStatus, BatchSystem, JobFacts, Phase
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
    Shape,
    State,
    Submit,
    Usage,
    Withdrawn,
)
from dovetail.model.batch_options import of_script, options_for
from dovetail.model.command_line import command_words
from dovetail.model.templates import device_word
from dovetail.process.reporting import Reporting
from dovetail.process.spawn_log import uid_of

_log = logging.getLogger(__name__)
STAYS = 120.0
"""Seconds for which a batch job that was put back stays in the queue without a further start of its job."""
UNKNOWN = "unknown"
"""Stands for the id of a job that has run, whose id no answer ever brought."""
CANCEL_AGAIN = 2.0
"""Seconds until a cancel that the batch system did not take is tried again."""
FRESH = 3.0
"""Seconds for which an answer of the batch system counts when a run is to end, and which a look may take."""
LETS_GO = 60.0
"""Seconds in which the batch system ends what `BatchExecutor.close` cancels."""


class BatchExecutor(Reporting):
    """Implements `Executor`, `SubmitsJobs` and `TakesBack` over a `BatchSystem`; use it in one event loop."""

    def __init__(self, system: BatchSystem, folder: RunFolder, cluster: Cluster) -> None:
        super().__init__(folder, cluster)
        self.system = system
        # This process may be in a batch job itself, whose variables would limit the new ones.
        self._environ = system.clean_environment(self._environ)
        self.files = QueueFolder(self.run_dir)
        self._questions = Questions(system, self._report_event)
        self._sender = BatchSender(
            system,
            self.files,
            self._environ,
            happened=self._report_event,
            ended=self._report_end,
            sent=self._note_sent,
        )
        self._handed: dict[JobId, HandedOverStart] = {}
        self._leaving: list[HandedOverStart] = []  # to be taken out of the queue together
        # What the system has put back, and until when it stays there without a further start of its job.
        self._back: dict[JobId, tuple[HandedOverStart, float]] = {}
        self._silence: tuple[float, str] | None = None  # since when the system does not answer, and its error
        self._looks = asyncio.Event()
        self._looked = self._wanted = 0.0  # when the system answered last, and when that was wished for

    # ------------------------------------------------------------------- taking up

    def take_up(self) -> LastAttempts:
        """The last start of each job that was handed over; the first look shows what became of it.

        Raises `ExecutorError`.
        """
        self.files.create()
        last = {one.job: one for one in self.files.handed()}
        by_batch = {
            found.batch: self.system.id_of_batch(found.id)
            for found in self.system.look().values()
            if found.batch
        }
        handed_over: list[tuple[Submit, int]] = []
        for one in last.values():
            self._outputs.paths[one.job] = one.files[0], one.files[1]
            # A claim is a file that the node finds: the job will not run there, whatever the system does.
            if self.files.is_claimed(one):
                continue
            ran = self.files.run_of(one) is not None
            if not one.batch_id:  # Dovetail ended between the submission and its answer
                one.batch_id = by_batch.get(one.batch, UNKNOWN if ran else "")
            if one.reported and one.is_back:
                # Its next start is yet to be decided, and will be another batch job.
                self._drop_back(one)
            # It ran, or may still run: the first look decides. What was refused is handed over again.
            elif ran or (one.batch_id and not one.reported):
                one.is_back = False
                handed_over.append((one.submit, one.attempt))
                self._handed[one.job] = one
        return LastAttempts(handed_over=handed_over)

    # ------------------------------------------------------------------- the Executor protocol

    async def launch(self, placed: Placed) -> None:
        """Raises `ExecutorError`: the batch system chooses the nodes."""
        title = self.system.title
        raise ExecutorError(f"job {placed.job.id} cannot be put on a node: {title} decides where it runs")

    async def submit(self, job: Job, decision: Submit, attempt: int) -> None:
        """Put the job in line for the batch system, together with others of its shape."""
        if self._closing:
            raise ExecutorError(f"job {job.id} was submitted after the executor was closed")
        self._attach_to_loop()
        # Before the hand-over: a wrong command ends the job here, and not in a queue hours later.
        refused = await self._find_refusal(job, decision)
        if refused is not None:
            self._report_event(refused)
            return
        key, waiting = self._prepare(job, decision, attempt)
        self._handed[job.id] = waiting.handed
        if self._take_up_back(waiting.handed):
            self._sender.remember(key, waiting)
        else:
            self._sender.add(key, waiting)

    async def _find_refusal(self, job: Job, decision: Submit) -> Ended | None:
        """The end of a job that cannot be handed over at all."""
        now = time.time()
        try:
            self._words(job, decision)
        except InputError as error:
            return Ended(job.id, State.FAILED, None, str(error), Usage(), now, now)
        if not decision.target or self._serves(decision.target):
            return None
        reasons = await asyncio.to_thread(self.system.explain_closed)
        named = [f"{name}: {reasons[name]}" for name in decision.target.split(",") if name in reasons]
        there = ", ".join(self._served())
        why = f"it names partition {decision.target}, and this guest may use {there}"
        why += f" ({'; '.join(named)})" if named else ""
        return Ended(job.id, State.FAILED, None, why, Usage(), now, now, ran=False)

    @staticmethod
    def _words(job: Job, decision: Submit) -> list[str]:
        """Raises `InputError` where the command cannot be made."""
        implementation = job.app.implementation(decision.implementation)
        return command_words(Placed(job, implementation, Allocation(decision.request, ()), 0.0, None, 0.0))

    def _prepare(self, job: Job, decision: Submit, attempt: int) -> tuple[BatchKey, Waiting]:
        """What is handed over of a job, and with which others it may go."""
        implementation, words = job.app.implementation(decision.implementation), self._words(job, decision)
        files, chosen = self._outputs.of(job, attempt, self._cwd)
        uid = uid_of(self.run_uid, job.id, attempt)
        cwd, outer = self._job_surroundings(job)
        command = implementation.command
        tasks, own = (1, ()) if command is None else (command.tasks, command.env)
        options = options_for(job.batch_options, implementation)
        handed = HandedOverStart(job.id, attempt, uid, "", 0, files, decision, implementation.kind, 1)
        names = {"DOVETAIL_JOB": job.id, "DOVETAIL_UID": uid}
        names["DOVETAIL_DEVICE"] = device_word(implementation.kind)
        script: tuple[str, ...] = ()
        cut = None
        if of_script(options) is not None:
            handed.is_script = True
            number, _, index = job.id.partition("_")
            handed.task = int(index) if index.isdecimal() else -1
            if handed.task >= 0:  # one submission is made for all of them, with one environment
                names = {**names, "DOVETAIL_JOB": number, "DOVETAIL_ARRAY_JOB": number}
                del names["DOVETAIL_UID"]
            script = tuple(words)
            cut = decision.walltime if decision.walltime != job.walltime else None
            chooses = job.launch is not None and job.launch.batch_variables
            run: Mapping[str, Any] = {"env": names, "files": None if chooses else files}
        else:
            if decision.request.nodes > 1 or tasks > 1:
                # Through the system, so that MPI and the tasks of all nodes are started by it.
                words = self.system.run_tasks(decision.request, tasks, words)
            run = {"argv": words, "files": files, "chosen": chosen, "env": names}
        shape = Shape(decision.target, decision.request, decision.walltime, options)
        key = BatchKey(
            shape, decision.implementation, job.name or job.app.name, tasks, own, cwd, outer, script, cut
        )
        return key, Waiting(handed, run)

    def _served(self) -> Sequence[str]:
        """The partitions that may be used."""
        return list(dict.fromkeys(name for node in self.cluster.nodes for name in node.partitions))

    def _serves(self, target: str) -> bool:
        return set(target.split(",")) <= set(self._served())

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise `InputError` for a job whose own options the batch system does not take."""
        self.system.check(jobs)

    async def inquire(self, shape: Shape) -> None:
        """Find out when such a job would start; `Foreseen` follows."""
        self._attach_to_loop()
        self._questions.put(shape)

    async def stop(self, job: JobId, reason: str) -> None:
        """Cancel it; `Ended` follows with the state ``reason``."""
        handed = self._handed.get(job)
        if handed is None or handed.stop:
            return
        if handed.is_back:
            self._leave_back(handed)
            return
        # Set first: a submission that is under way sees it and cancels as soon as it has the id.
        handed.stop = reason
        if self._sender.take_out(handed):
            self._report_end(handed, end_unsent(handed))
        elif handed.batch_id == UNKNOWN:
            self.files.fence(handed)
        elif handed.batch_id:
            await self._cancel([handed])

    async def withdraw(self, job: JobId) -> None:
        """Take it out of the queue, unless it has started; `Withdrawn` follows.

        What counts is who makes the record of its run first, its node or this process. A cancel of waiting
        jobs alone would not begin that race, but Slurm's takes all tasks of an array that wait along with the
        one that it names.
        """
        handed = self._handed.get(job)
        if handed is None or handed.stop or handed.started:
            return
        if self._sender.take_out(handed):
            self._let_go(handed)
            return
        if handed.batch_id in ("", UNKNOWN) or handed.is_back:
            return
        if handed.is_script:
            await self._withdraw_script(handed)
            return
        # The first to write the file wins: if the node did, the job has begun.
        if not self.files.claim(handed):
            return
        self._let_go(handed)
        self._leaving.append(handed)
        if len(self._leaving) == 1:
            self._begin_task(self._withdraw_gathered)

    async def _withdraw_script(self, handed: HandedOverStart) -> None:
        """The system alone knows whether a script has started; a task of an array does not leave alone."""
        if handed.task >= 0:
            return
        try:
            await asyncio.to_thread(self.system.cancel_waiting, self._id(handed))
        except BatchError as error:
            _log.info("job %s could not be taken out of the queue: %s", handed.job, error)
            return
        handed.leaves = True  # where it is cancelled without having begun, that was this call
        self._looks.set()

    async def _withdraw_gathered(self) -> None:
        """One cancel for all of them, tasks of arrays among them."""
        await asyncio.sleep(GATHER)
        leaving, self._leaving = self._leaving, []
        try:
            await asyncio.to_thread(self.system.cancel, [self._id(one) for one in leaving])
        except BatchError as error:  # should they start, they find that they are not wanted
            _log.info("not all of %d jobs could be taken out of the queue: %s", len(leaving), error)

    def _let_go(self, handed: HandedOverStart) -> None:
        """A job goes another way."""
        if handed.batch:
            self.files.note_later(t="withdrawn", batch=handed.batch, job=handed.job)
        self._handed.pop(handed.job, None)
        self._sender.forget(handed)
        self._report_event(Withdrawn(handed.job))

    async def _cancel(self, handed: Sequence[HandedOverStart]) -> None:
        """End them; should the batch system be away, later."""
        try:
            await asyncio.to_thread(self.system.cancel, [self._id(one) for one in handed])
        except (BatchError, OSError) as error:  # also where no process can be begun now
            if not isinstance(error, BatchError) or error.passing:
                self._begin_task(self._cancel_later, handed)
        else:
            for one in handed:
                one.is_ending = True
        self._looks.set()

    async def _cancel_later(self, handed: Sequence[HandedOverStart]) -> None:
        await asyncio.sleep(CANCEL_AGAIN)
        left = [one for one in handed if self._handed.get(one.job) is one]
        if left:
            await self._cancel(left)

    async def close(self) -> None:
        """Cancel what is left in the system's hands, and wait until it has let go."""
        self._closing = True
        for one, _ in list(self._back.values()):
            self._drop_back(one)
        left = [one for one in self._handed.values() if one.batch_id and not one.stop]
        for one in left:
            one.stop = State.CANCELLED.value
        if left:
            await self._cancel(left)
            deadline = time.monotonic() + LETS_GO
            while self._handed and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
        await self.leave()

    async def leave(self) -> None:
        """Go without the jobs: they stay in the system's hands for the next Dovetail."""
        self._closing = True
        await self._end_tasks()
        self.files.tidy()
        self._all_reported()

    def settle(self) -> bool:
        """After `close`: whether everything that was handed over has ended, and the engine knows."""
        return self._closed and not self._handed

    def are_ending(self) -> bool:
        """Whether the batch system has taken the cancel of all that was stopped, and answers."""
        now = time.monotonic()
        if self._silence is not None or not all(one.is_ending for one in self._handed.values() if one.stop):
            return False
        if now - self._looked < FRESH:
            return True
        if self._wanted <= self._looked:
            self._wanted = now
            self._looks.set()
        return now - self._wanted < FRESH

    def trouble(self) -> str:
        """Since when the batch system does not answer; empty while it does."""
        if self._silence is None:
            return ""
        since, why = self._silence
        return f"{self.system.title} has not answered for {time.monotonic() - since:.0f} s ({why})"

    def _attach_to_loop(self) -> None:
        if not self._tasks and not self._closing:
            for work in (self._sender.send_all, self._questions.put_all, self._watch):
                self._begin_task(work)

    def _note_sent(self, handed: Sequence[HandedOverStart]) -> None:
        """A batch has its id; what was stopped on the way there ends."""
        unwanted = [one for one in handed if one.stop]
        if unwanted:
            self._begin_task(self._cancel, unwanted)
        self._looks.set()

    def _id(self, handed: HandedOverStart) -> str:
        """The id of a job, or of its task of an array; empty where it has none yet."""
        if not handed.batch_id or handed.index is None:
            return handed.batch_id
        return self.system.id_of_task(handed.batch_id, handed.index)

    # ------------------------------------------------------------------- looking

    async def _watch(self) -> None:
        """Look at the queue now and then: sooner after something has happened, later while nothing does."""
        least, most = self.system.looks
        pause = least
        while True:
            try:
                await asyncio.wait_for(self._looks.wait(), pause)
                await asyncio.sleep(min(0.2, least))  # what was just sent or cancelled is under way
            except TimeoutError:
                pass
            self._looks.clear()
            watched = [one for one in self._handed.values() if one.batch_id]
            if not watched:
                continue
            try:
                seen = dict(await asyncio.to_thread(self.system.look))
                gone = [id for one in watched if (id := self._id(one)) not in seen]
                seen |= await asyncio.to_thread(self.system.look_again, gone)
                facts = await self._describe(watched, seen)
            except BatchError as error:  # the system is away: jobs go on without it
                if self._silence is None:
                    _log.warning("%s does not answer: %s", self.system.title, error)
                    self._silence = time.monotonic(), str(error)
                pause = min(most, 1.5 * pause + 1.0)
                continue
            self._looked = time.monotonic()
            if self._silence is not None:
                _log.info("%s answers again", self.system.title)
                self._silence = None
            batches = {self.system.id_of_batch(id) for id in seen}
            changed = [
                self._look_at(one, seen.get(id), batches, facts.get(id))
                for one, id in [(one, self._id(one)) for one in watched]
            ]
            # Put back and not wanted again within its time: the place in the queue goes.
            for one in [one for one, until in self._back.values() if until < time.monotonic()]:
                self._drop_back(one)
            pause = least if any(changed) else min(most, 1.2 * pause)

    async def _describe(
        self, watched: Iterable[HandedOverStart], seen: Mapping[str, BatchStatus]
    ) -> dict[str, JobFacts]:
        """All that the system keeps of users' scripts that have begun or ended since the last look."""
        wanted: dict[str, None] = {}
        for one in watched:
            status = seen.get(self._id(one)) if one.is_script else None
            if status is not None and (
                status.end is not None or (status.phase is not Phase.WAITING and not one.started)
            ):
                wanted[one.batch_id] = None
        found: dict[str, JobFacts] = {}
        for id in wanted:
            try:
                found |= await asyncio.to_thread(self.system.describe_jobs, id)
            except BatchError as error:
                if error.passing:
                    raise
        return found

    def _look_at(
        self, handed: HandedOverStart, seen: BatchStatus | None, batches: set[str], facts: JobFacts | None
    ) -> bool:
        """Report what has become of a job since the last look; whether anything has."""
        record = None
        # Files on a shared system are read only where there may be something new.
        if seen is None or seen.phase is not Phase.WAITING:
            record = self.files.run_of(handed) if not handed.is_script else start_of_script(seen, facts)
        changed = False
        if record is not None and not handed.started:
            handed.started = changed = True
            self._sender.forget_command(handed.job)
            if facts is not None:  # at the start: users follow the output while the job runs
                self._link_output(handed, facts)
            self._report_event(start_of(self.cluster, handed, seen, record))
        if seen is not None and seen.reason != handed.reason:
            handed.reason = seen.reason
            self._report_event(
                Delayed(handed.job, f"{self.system.title}: {seen.reason}" if seen.reason else "")
            )
        if handed.is_back:
            return changed
        back = handed.started and seen is not None and seen.phase is Phase.WAITING
        # A restart that no look has seen shows in the node's records.
        if not handed.stop and (back or (handed.started and self.files.has_started_again(handed))):
            self._put_back(handed)
            return True
        if seen is not None and seen.is_hopeless and not handed.stop:
            self._begin_task(self._give_up, handed, seen.reason)
            return True
        if seen is None and record is None:
            return self._is_missing(handed, handed.batch_id in batches)
        if handed.leaves and not handed.started and seen is not None and seen.end is State.CANCELLED:
            self._let_go(handed)
            return True
        title = self.system.title
        end = (
            end_of_script(title, handed, seen, facts)
            if handed.is_script
            else end_of(title, self.files, handed, seen, record)
        )
        if end is not None:
            self._report_end(handed, end)
            changed = True
        return changed

    async def _give_up(self, handed: HandedOverStart, reason: str) -> None:
        """The system has taken a job that it will never start: the end of the job gives the reason."""
        now, why = time.time(), f"{self.system.title} would never start it: {reason}"
        _log.warning("job %s is given up: %s", handed.job, why)
        # Reported before the cancel, which a look would else take for the reason of the end.
        self._report_end(handed, Ended(handed.job, State.FAILED, None, why, Usage(), now, now))
        await self._cancel([handed])

    def _link_output(self, handed: HandedOverStart, facts: JobFacts) -> None:
        """A user's script chooses its output files: the service's own names lead there."""
        if not facts.stdout or not facts.stdout.startswith("/"):
            return
        found = facts.stdout, facts.stderr or facts.stdout
        if handed.files[0] == found[0]:
            return
        ours = self._outputs.own_paths(handed.job, handed.attempt)
        for link, target in zip(ours, found, strict=True):
            try:
                os.symlink(target, link)
            except OSError as error:
                _log.info("the output of job %s lies at %s: %s", handed.job, target, error.strerror)
        self._outputs.paths[handed.job] = found

    # ------------------------------------------------------------------- jobs that are put back

    def _put_back(self, handed: HandedOverStart) -> None:
        """The system has put a job that ran into its queue again: it waits anew, as one that was requeued.

        The engine answers with `stop`, and in its time with `submit`, which finds the batch job there.
        """
        _log.warning("job %s was put back into the queue of %s", handed.job, self.system.title)
        handed.is_back = True
        self.files.fence_start(handed)  # where its node was given up, it may run on
        self.files.note(t="back", uid=handed.uid)
        self._report_event(Requeued(handed.job))

    def _leave_back(self, handed: HandedOverStart) -> None:
        """This start is over; the batch job stays in the queue for a while, for the next one."""
        self._back[handed.job] = handed, time.monotonic() + STAYS
        now = time.time()
        why = f"{self.system.title} has put it back into its queue"
        self._report_end(handed, Ended(handed.job, State.CANCELLED, None, why, Usage(), None, now))

    def _take_up_back(self, handed: HandedOverStart) -> bool:
        """Whether this is a further start of a batch job that was put back."""
        before, _ = self._back.pop(handed.job, (None, 0.0))
        if before is None:
            return False
        one, other = before.submit, handed.submit
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
        # Fenced first: should it start before the cancel arrives, it finds that it is not wanted.
        self.files.fence(handed)
        id = self._id(handed)
        try:
            self.system.cancel([id])
        except BatchError as error:  # should it start, it finds that it is not wanted
            _log.warning(
                "job %s stays in the queue of %s as %s: %s", handed.job, self.system.title, id, error
            )

    def _is_missing(self, handed: HandedOverStart, batch_known: bool) -> bool:
        """The system names a job no more that has not run: it was cancelled, or lost with the system's state.

        Of a waiting task of an array that is cancelled Slurm keeps nothing. What was lost is handed over
        again; should it turn up after all, it finds that it is not wanted.
        """
        # More than one look: a queue may miss a job that is changing its state.
        handed.missed += 1
        if handed.missed < MISSED:
            return False
        title = self.system.title
        if batch_known or handed.stop:
            now, state = time.time(), State(handed.stop or State.CANCELLED)
            why = "it was cancelled before it began"
            self._report_end(handed, Ended(handed.job, state, None, why, Usage(), now, now))
            return True
        self.files.fence(handed)
        if handed.is_script:  # it has no record of its own
            why = f"{title} no longer knows it, so whether it has run, and how that ended, is not known"
            self._report_end(handed, Ended(handed.job, State.NODE_FAIL, None, why))
            return True
        lost = handed.batch, handed.batch_id
        handed.batch, handed.batch_id, handed.missed = "", "", 0
        if not self._sender.send_again(handed.job):
            handed.batch, handed.batch_id = lost
            why = f"{title} no longer knows it, and it has never run"
            self._report_end(handed, Ended(handed.job, State.NODE_FAIL, None, why))
        return True

    def _report_end(self, handed: HandedOverStart, end: Ended) -> None:
        """The engine gets each end once."""
        if self._handed.get(handed.job) is handed:
            del self._handed[handed.job]
        self._sender.forget(handed)
        if handed.batch:
            self.files.note_later(t="told", uid=handed.uid)
            self._sender.free_place()
        self._report_event(end)
