"""Where an earlier Dovetail was cut short: which jobs wait, which run on, how some have ended meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.driver.admission import HELD
from dovetail.driver.driver import Driver
from dovetail.engine.capacity.sizing import as_it_started
from dovetail.interfaces import LastAttempts, RunningAttempt
from dovetail.model import (
    Adopted,
    Ended,
    Job,
    JobId,
    Record,
    Seconds,
    Started,
    State,
    Submit,
    Submitted,
    Woken,
)
from dovetail.records import dataclass
from dovetail.running.ledger import Entry, Ledger

MOST_NAMED = 20
"""Jobs, or spans of them, that are named in a sentence."""


@dataclass(frozen=True, slots=True)
class AdoptedJob:
    """A job that runs already, how often it failed before, and its user's wish."""

    job: Job
    adopted: Adopted
    failures: int
    wish: str | None = None


@dataclass(frozen=True, slots=True)
class Outside:
    """A job in the hands of an outside scheduler, and where it last ran, as far as known."""

    submitted: Submitted
    submit: Submit
    started: Started | None


@dataclass(frozen=True, slots=True)
class BeyondLedger:
    """What an executor's record has and the ledger has not: some of that was lost.

    ``unknown`` jobs are not in the ledger at all; ``behind`` (with the number of the last start) have been
    started after what it knows; ``running`` are those of both that still run.
    """

    unknown: Sequence[JobId]
    behind: Mapping[JobId, int]
    running: Sequence[RunningAttempt]

    def __bool__(self) -> bool:
        return bool(self.unknown or self.behind)

    def __str__(self) -> str:
        found = []
        if self.unknown:
            found.append(f"{_describe_jobs(self.unknown)} on record only there")
        if self.behind:
            found.append(
                f"{_describe_jobs(list(self.behind))} started after what the ledger knows (those "
                f"that wait in it "
                "start once more)"
            )
        ended = f"; of these {len(self.running)} still ran, which is ended" if self.running else ""
        return f"knows more than the ledger: {', '.join(found)}{ended}"


def _describe_jobs(jobs: Sequence[JobId]) -> str:
    """A number of jobs, and which they are: ``3 jobs (3-5)``."""
    numbers = sorted(int(job) for job in jobs if job.isdecimal())
    named = [job for job in jobs if not job.isdecimal()]
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{first}" if first == last else f"{first}-{last}" for first, last in spans] + named
    some = ", ".join(words[:MOST_NAMED]) + (" …" if len(words) > MOST_NAMED else "")
    return f"1 job ({some})" if len(jobs) == 1 else f"{len(jobs):,} jobs ({some})"


def beyond_ledger(ledger: Ledger, left: LastAttempts, forgotten: int = 0) -> BeyondLedger:
    """What was started by the executor's record, beside the ledger, which is written before each start.

    Of numbers up to ``forgotten`` the ledger has dropped what ended long ago.
    """
    last = {end.job: end.attempt for end in (*left.unknown, *left.ended) if end.attempt is not None}
    last |= {one.job: one.attempt for one in left.running}
    known = ledger.attempts(last)
    # The ledger is written before each start: one that it lacks was lost from it.
    behind = {job: attempt for job, attempt in last.items() if known.get(job, attempt) < attempt}
    runs = {one.job for one in left.running}
    unknown = [job for job in last if job not in known and (job in runs or not _is_old(job, forgotten))]
    lost = {*unknown, *behind}
    return BeyondLedger(unknown, behind, [one for one in left.running if one.job in lost])


def _is_old(job: JobId, forgotten: int) -> bool:
    number = job.partition("_")[0]
    return number.isdecimal() and int(number) <= forgotten


def sorted_out(
    ledger: Ledger, left: LastAttempts, epoch: Seconds
) -> tuple[list[Submitted], list[AdoptedJob], list[Ended], list[Outside]]:
    """Which jobs wait, which are adopted, how some of these have ended already, and which are elsewhere."""
    elsewhere = {submit.job: (submit, attempt) for submit, attempt in left.handed_over}
    outside: list[Outside] = []
    runs = {still.job: still for still in left.running}
    over = {end.job: end for end in (*left.ended, *left.unknown)}
    waiting: list[Submitted] = []
    adopted: list[AdoptedJob] = []
    ends: list[Ended] = []
    for entry in [*ledger.open_entries(), *ledger.interrupted_entries()]:
        still = runs.get(entry.job.id)
        job = entry.job
        # The ledger's own epoch is another.
        if job.submit_time != entry.submitted - epoch:
            job = replace(job, submit_time=entry.submitted - epoch)
        had = entry.allocation
        if entry.state is State.RUNNING and had is not None:
            job = as_it_started(job, had.request)
        end = over.get(job.id)
        before = entry.attempt - (entry.state is State.RUNNING)
        submit, attempt = elsewhere.get(job.id, (None, 0))
        if submit is not None and attempt == before + 1:
            known = Submitted(job, "", before, entry.failures)
            outside.append(Outside(known, submit, _as_it_started(entry, epoch)))
            continue
        if entry.state is State.PENDING and entry.wish == "cancel":
            ledger.cancel(entry, epoch)
            continue
        if entry.state is State.RUNNING and end is not None and end.attempt == entry.attempt:
            ends.append(end)
        elif entry.state is not State.RUNNING or still is None or still.attempt != entry.attempt:
            if entry.state is not State.PENDING:
                ledger.wait_again(entry)
            held = HELD if entry.held == HELD else ""
            waiting.append(Submitted(job, held, max(0, before), entry.failures))
            continue
        assert entry.allocation is not None
        assert entry.implementation is not None
        assert entry.started is not None
        began = entry.started if still is None else still.since  # a walltime counts from it
        start = min(0.0, began - epoch)
        event = Adopted(job.id, entry.implementation, entry.allocation, start, entry.attempt)
        adopted.append(AdoptedJob(job, event, entry.failures, entry.wish))
    order = {end.job: number for number, end in enumerate((*left.ended, *left.unknown))}
    ends.sort(key=lambda end: order[end.job])
    return waiting, adopted, ends, outside


def _as_it_started(entry: Entry, epoch: Seconds) -> Started | None:
    """Where a job runs that an outside scheduler has started, as far as that was reported."""
    if entry.state is not State.RUNNING or entry.started is None:
        return None
    return Started(entry.job.id, entry.allocation, at=entry.started - epoch)


def enter_adopted(driver: Driver, adopted: Sequence[AdoptedJob], ends: Sequence[Ended]) -> None:
    """Enter what runs, before the policy is called.

    What has ended meanwhile comes first, one after the other: jobs may have followed each other in one place.
    """
    still = {found.job.id: found for found in adopted}
    driver.draining = True
    for end in ends:
        found = still.pop(end.job)
        _enter_adopted(driver, found)
        _restore_wish(driver, found)
        driver.queue_events(end)
        driver.carry_over(driver.process_instant(0.0))
        driver.write_last_instant()
    _enter_adopted(driver, *still.values())
    driver.draining = False
    for found in still.values():
        _restore_wish(driver, found)
    if ends:
        # The policy has not seen that they ended.
        driver.queue_events(Woken())


def _enter_adopted(driver: Driver, *adopted: AdoptedJob) -> None:
    for found in adopted:
        driver.adopt_job(found.job, found.adopted, failures=found.failures)
    driver.carry_over(driver.process_instant(0.0))
    driver.write_last_instant()


def _restore_wish(driver: Driver, found: AdoptedJob) -> None:
    """Carry out the user's wish for the job that came while it ran, and is not done yet."""
    if found.wish == "cancel":
        driver.cancel(found.job.id, "cancelled")
    elif found.wish == "requeue":
        driver.requeue(found.job.id)


def enter_outside(driver: Driver, outside: Sequence[Outside]) -> None:
    """Enter what is in the hands of an outside scheduler, before the policy is called."""
    if not outside:
        return
    driver.queue_events(*(one.submitted for one in outside))
    driver.draining = True
    driver.process_instant(0.0)
    driver.write_last_instant()
    driver.impose_decisions(0.0, [one.submit for one in outside])
    driver.queue_events(*(one.started for one in outside if one.started is not None))
    driver.process_instant(0.0)
    driver.write_last_instant()
    driver.draining = False


def by_submission(job: Job) -> tuple[Seconds, int]:
    """The order of a queue: by submit time, then by place in the file."""
    return job.submit_time, job.index


def record_of(entry: Entry, epoch: Seconds) -> Record:
    """What became of a job under an earlier Dovetail, in this one's time."""
    job = replace(entry.job, submit_time=entry.submitted - epoch)
    started = None if entry.started is None else entry.started - epoch
    return Record(
        job,
        entry.state,
        None if entry.implementation is None else job.app.implementation(entry.implementation),
        entry.allocation,
        started,
        None if entry.ended is None else entry.ended - epoch,
        exit_code=entry.exit_code,
        detail=entry.detail,
        attempts=entry.attempt,
    )
