"""What becomes of the queue if every job takes as long as predicted: a simulation from where things stand.

``python -m dovetail.forecasts.queue FOLDER`` is a process beside the service, so that neither waits for the
other. It reads one line of JSON a question and answers with one. It looks at the ledger itself, read-only.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.client.folder import ServiceFolder
from dovetail.driver.admission import GPU_HOURS, HELD
from dovetail.driver.priority import Priorities
from dovetail.engine.capacity.occupancy import Occupancy
from dovetail.engine.capacity.sizing import as_it_started
from dovetail.engine.journal.codec import decode_app, decode_job
from dovetail.engine.state.suspensions import Suspensions
from dovetail.errors import DovetailError
from dovetail.forecasts.guests import GuestQueue, fastest_choice, open_guest_queue
from dovetail.forecasts.intervals import Span, StartIntervals
from dovetail.forecasts.long_queue import LONG, ForeseenRun, Hold, IdlePlaces, roll_out_queue
from dovetail.forecasts.sooner import other_requests
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import RuntimeModel
from dovetail.local.claims import Holder, units_of_cluster
from dovetail.model import (
    EMPTY,
    Adopted,
    Allocation,
    Choice,
    Cluster,
    Dependency,
    Ended,
    Event,
    Job,
    JobId,
    Rejected,
    Reserved,
    Seconds,
    State,
    Submitted,
    TableTruth,
    Workload,
)
from dovetail.model.job import TURN
from dovetail.plugins import LoadedPolicy, load_policy, needs_priorities
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.follow_plan import FollowPlan
from dovetail.policies.lookahead import Lookahead
from dovetail.records import dataclass
from dovetail.running.folder import RunSettings, read_about
from dovetail.running.ledger import Entry
from dovetail.running.neighbours import foreign_job, place_of
from dovetail.runtimes.registry import make_model
from dovetail.service.archive import Archive, KnownRows
from dovetail.service.elsewhere import Elsewhere
from dovetail.service.gpu_hours import HoursBook
from dovetail.service.reservations import ReservationBook
from dovetail.service.usage import Usage
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.starts.comparing import starts_sooner

MOST = 20_000
"""Jobs that are simulated; those behind them get no forecast."""
SOON = 1e-6
"""When what waits comes in: what runs must be known by then."""
OVERDUE = 0.1
"""Of its time so far a job is given that has run for longer than predicted."""
STEADY = 50
"""Expected times are kept until there is one run more for so many."""


@dataclass(frozen=True, slots=True)
class PredictedTimes:
    """Predicted (start, end) by job, seconds since the epoch, as of ``at``.

    It is not known how long ``unknown`` of them take, and their end is ``None``. Those that wait count as
    the median of the others, those that run as if to end soon: starts behind them rest on that. ``left_out``
    counts jobs without a forecast: held back by their users, too far behind, or of no run time at all.
    """

    at: Seconds
    jobs: Mapping[JobId, tuple[Seconds, Seconds | None]]
    left_out: int
    unknown: int
    spans: Mapping[JobId, Span] = EMPTY
    """Between when and when, where that is known."""
    draws: Mapping[JobId, list[float]] = EMPTY
    """Seconds until jobs start that are not submitted, roll-out by roll-out."""
    lasts: Seconds | None = None
    """For how long it holds though nothing happens in the service; ``None``: until something does."""


def predict_queue(
    folder: Path,
    policy: str | None = None,
    cluster: str | None = None,
    intervals: StartIntervals | None = None,
    also: Sequence[Job] = (),
    memory: QueueMemory | None = None,
    instead: Job | None = None,
) -> PredictedTimes:
    """When the jobs that have not ended will start and end, under this policy and on this cluster.

    ``also`` are jobs that are not submitted: as if they were now, behind all others of their priority.
    ``instead`` is a waiting job as it is not: as if its owner had requested that, at its place in the queue.
    ``memory`` is that of earlier calls: only what has changed since is looked at again. Defaults are the
    service's own. On another cluster, or under another policy, what runs goes on where it
    is. Raises `InputError`, `PolicyError`.
    """
    about = read_about(folder)
    machine = about.cluster if cluster is None else Cluster.parse(cluster)
    loaded = load_policy(policy or about.policy)
    archive = Archive(folder / "ledger.db", lambda: machine)
    with closing(archive):
        now = time.time()
        # Twice as many as are simulated, since some of them run and others are held.
        memory = memory or QueueMemory()
        condition = "state IN ('PENDING', 'RUNNING') ORDER BY seq LIMIT ?"
        entries = archive.ask_here(condition, (2 * MOST,), memory.rows)
        otherwise = policy is not None or cluster is not None
        if intervals is not None:
            guest = memory.guest_queue(folder, about, about.cluster)
            if guest is not None and not otherwise:
                return _predict_guests(
                    guest, archive, entries, also, intervals, memory, machine, now, instead
                )
            if guest is not None:  # a batch system's policy and machine are not ours to change
                intervals = None
        entries += _as_if_submitted(also, entries, now)
        if instead is not None:
            entries = [
                entry._replace(job=instead) if entry.job.id == instead.id else entry for entry in entries
            ]
        runs, standing = _foresee_queue(
            folder,
            about,
            loaded,
            machine,
            entries,
            now,
            memory,
            local=about.executor == "local" and cluster is None,
        )
        jobs = dict(standing.running)
        for run in runs.values():
            if run.start is not None and run.end is not None:
                known = standing.expected.knows_duration(run)
                jobs[run.job.id] = now + run.start, now + run.end if known else None
        spans: Mapping[JobId, Span] = {}
        if intervals is not None:
            tested = {job.id for job in (*also, *filter(None, [instead]))}
            # Another cluster has none of the nodes that were drained here.
            drained = set() if cluster else set(ServiceFolder(folder).drained_nodes())
            spans = intervals.start_spans(
                archive,
                entries,
                runs,
                machine,
                now,
                tested,
                drained,
                rolled_as(loaded.policy),
                standing.foreign,
                standing.reserved,
                remember=not otherwise,
            )
            # Roll-outs know no limits of hours: a job that waits for one is shown as a point.
            limited = {entry.job.id for entry in entries if entry.held == GPU_HOURS}
            spans = {job: span for job, span in spans.items() if job not in limited}
    unknown = sum(end is None for _, end in jobs.values())
    # Those that fit nowhere.
    rejected = len(standing.waiting.jobs) - len(runs)
    draws = {} if intervals is None else intervals.tested_draws
    return PredictedTimes(now, jobs, standing.left_out + rejected, unknown, spans, draws)


def _predict_guests(
    guest: GuestQueue,
    archive: Archive,
    entries: Sequence[Entry],
    also: Sequence[Job],
    intervals: StartIntervals,
    memory: QueueMemory,
    machine: Cluster,
    now: Seconds,
    instead: Job | None,
) -> PredictedTimes:
    """The same where a batch system starts the jobs: by its whole queue, others' jobs among them.

    Points are medians, since no simulation of our own jobs alone shows when others leave room. Raises
    `DovetailError` where jobs are tested and the batch system does not answer.
    """
    jobs: dict[JobId, tuple[Seconds, Seconds | None]] = {}
    for entry in entries:
        if entry.state is State.RUNNING and entry.started is not None:
            end = entry.started + (entry.predicted or 0.0)
            jobs[entry.job.id] = entry.started, end if end > now else None
    unknown = sum(end is None for _, end in jobs.values())
    memory.begin_round()
    tested = [
        (job, fastest_choice(job, lambda job, choice: memory.expected_seconds(job, choice, machine)))
        for job in (*also, *filter(None, [instead]))
    ]
    ended = list(intervals.read_ended(archive, now))
    sight = (
        guest.test(now, ended, tested, None if instead is None else instead.id)
        if tested
        else guest.look(now, ended)
    )
    spans: Mapping[JobId, Span] = {}
    if sight is not None:
        spans, points = intervals.guest_spans(archive, entries, sight, now, {job.id for job, _ in tested})
        jobs |= points
    left_out = len(entries) + len(also) - len(jobs)
    return PredictedTimes(now, jobs, left_out, unknown, spans, intervals.tested_draws, guest.lasts)


def rolled_as(policy: object) -> str:
    """The policy of the roll-outs that is most like this one.

    Those that promise starts are taken as EASY, those that never let a job go before another as FCFS; all
    others start whatever fits.
    """
    if isinstance(policy, Fcfs):
        return "fcfs" if policy.skip == 0 else "greedy"
    return "easy" if isinstance(policy, Easy | Conservative | Lookahead) else "greedy"


def _as_if_submitted(jobs: Sequence[Job], entries: Sequence[Entry], now: Seconds) -> list[Entry]:
    """Jobs that are in no ledger, as it would have them."""
    last = max((entry.seq for entry in entries), default=0)
    return [
        Entry(last + place, job, State.PENDING, "", 0, None, None, "", (), now, None, None, None, None, "")
        for place, job in enumerate(jobs, 1)
    ]


def _foresee_queue(
    folder: Path,
    about: RunSettings,
    loaded: LoadedPolicy,
    machine: Cluster,
    entries: list[Entry],
    now: Seconds,
    memory: QueueMemory,
    *,
    local: bool,
) -> tuple[Mapping[JobId, ForeseenRun], _Standing]:
    """How the queue stands, and how its jobs will run."""
    model = memory.predict_with(about.model, about.history)
    elsewhere = Elsewhere(about.uid, machine, local=local)
    paused = Suspensions(paused=frozenset(ServiceFolder(folder).paused_kinds()))
    kept = ReservationBook(ServiceFolder(folder)).event(machine, now)
    standing = _current_standing(entries, machine, memory, now, elsewhere.list_holders(), paused, kept)
    shares = Usage.read_kept(ServiceFolder(folder).usage_path, now)
    hours = HoursBook.read_kept(ServiceFolder(folder).gpu_hours_path, now)
    plain = not kept.reservations and shares is None and hours is None
    if plain and len(standing.waiting.jobs) >= LONG:
        found = roll_out_queue(
            standing.waiting.jobs,
            loaded.policy,
            memory.idle_places(machine),
            standing.waiting.truth,
            [*standing.holds, *standing.foreign],
            about.default_walltime,
        )
        if found is not None:
            return found, standing
    result = simulate(
        standing.waiting,
        machine,
        loaded.policy,
        model,
        options=SimulationOptions(
            overrun=about.overrun,
            default_walltime=about.default_walltime or "actual",
            placement=getattr(loaded.policy, "placement", "pack"),
            policy_name=loaded.name,
            seed=about.seed,
        ),
        follow=FollowPlan(),
        incidents=[(0.0, kept), *standing.incidents] if kept.reservations else standing.incidents,
        priorities=Priorities(
            priorities=needs_priorities(loaded.policy),
            shares=shares,
        ),
        hours=hours,
    )
    waiting = {job.id for job in standing.waiting.jobs}
    runs = {
        record.job.id: ForeseenRun(
            record.job, record.implementation, record.allocation, record.start, record.end
        )
        for record in result.records
        if record.job.id in waiting
    }
    return runs, standing


@dataclass(frozen=True, slots=True)
class _Standing:
    """Jobs that wait, with the times that are expected; what runs, as incidents; how many are left out."""

    waiting: Workload
    incidents: list[tuple[Seconds, Event]]
    running: Mapping[JobId, tuple[Seconds, Seconds | None]]
    expected: _Expected
    left_out: int
    holds: Sequence[Hold]
    foreign: Sequence[Hold]
    reserved: Reserved


def _current_standing(
    entries: list[Entry],
    cluster: Cluster,
    memory: QueueMemory,
    now: Seconds,
    others: Sequence[Holder],
    paused: Suspensions,
    reserved: Reserved,
) -> _Standing:
    alive = {entry.job.id for entry in entries}
    expected = _Expected(cluster, memory)
    begun: list[tuple[Seconds, Event]] = []
    ends: list[tuple[Seconds, Event]] = []
    running: dict[JobId, tuple[Seconds, Seconds | None]] = {}
    jobs: list[Job] = []
    left_out: set[JobId] = set()
    holds: list[Hold] = []
    foreign: list[Hold] = []
    held = Occupancy(cluster, "pack")
    for entry in entries:
        depends = tuple(one for one in entry.job.depends if one.job in alive)
        soon = max(SOON, (entry.job.begin or 0.0) - now)
        job = memory.as_now(entry, soon, depends)
        place, started = entry.allocation, entry.started
        if place is not None and not place.mask >> len(cluster):
            try:
                held.reserve_allocation(place)
            except ValueError:  # it was given the place of one that is about to end, and has not begun
                place = None
        if entry.state is State.RUNNING and place is not None and started is not None:
            assert entry.implementation is not None
            if place.mask >> len(cluster):  # on a cluster that has fewer nodes it is not in the way
                alive.discard(job.id)
                continue
            spent = now - started
            left = 0.0 if entry.predicted is None else entry.predicted - spent
            adopted = Adopted(job.id, entry.implementation, place, -spent, entry.attempt, entry.predicted)
            job = as_it_started(job, place.request)
            begun += [(0.0, Submitted(replace(job, submit_time=0.0, depends=()))), (0.0, adopted)]
            ends.append((max(left, OVERDUE * spent, 2 * SOON), Ended(job.id, State.COMPLETED)))
            bound = ends[-1][0] if entry.job.walltime is None else max(entry.job.walltime - spent, 0.0)
            holds.append(Hold(place, ends[-1][0], bound))
            running[job.id] = started, now + left if left > 0 else None
        elif (
            entry.held == HELD
            or len(jobs) >= MOST
            or any(one.job in left_out for one in depends)
            or not (choices := [one for one in job.choices if not paused.paused_for(one.implementation.kind)])
        ):
            left_out.add(job.id)
        else:
            if len(choices) < len(job.choices):
                job = replace(job, choices=tuple(choices))
            jobs.append(job)
            expected.add(job)
    for job, place, holder in _held_by(others, cluster):
        try:
            held.reserve_allocation(place)
        except ValueError:  # a job of ours has it by now
            continue
        spent = 0.0 if holder.began is None else max(0.0, now - holder.began)
        left = 0.0 if holder.until is None else holder.until - now
        adopted = Adopted(job.id, job.choices[0].implementation.name, place, -spent)
        begun += [(0.0, Submitted(job)), (0.0, adopted)]
        ends.append((max(left, OVERDUE * spent, 2 * SOON), Ended(job.id, State.COMPLETED)))
        foreign.append(Hold(place, ends[-1][0], ends[-1][0]))
        running[holder.label] = now - spent, holder.until
    if any(TURN in job.options for job in jobs):
        jobs.sort(key=lambda job: job.options.get(TURN, job.index))
        jobs = [replace(job, index=at) for at, job in enumerate(jobs)]
    ends.sort(key=lambda end: end[0])
    jobs.sort(key=lambda job: job.submit_time)
    memory.forget_others(entries)
    # Others may wait for those that run, which are no jobs of this workload.
    known = [Rejected(event.job, "runs") for _, event in ends if isinstance(event, Ended)]
    waiting = Workload("the queue", jobs, expected.truth(), known)
    return _Standing(waiting, begun + ends, running, expected, len(left_out), holds, foreign, reserved)


def _held_by(others: Sequence[Holder], cluster: Cluster) -> Iterator[tuple[Job, Allocation, Holder]]:
    """What other Dovetails hold of this machine, as jobs that run."""
    units = units_of_cluster(cluster)
    for holder in others:
        places = sorted({place_of(unit, cluster, units) for unit in holder.units & units.keys()})
        for number, place in enumerate(places):
            job, allocation = foreign_job(f"{holder.label} {number}", cluster, place, holder, 0.0)
            yield job, allocation, holder


class QueueMemory:
    """What stays from one question to the next: jobs as they were read, and the times that are expected."""

    def __init__(self) -> None:
        self.rows: KnownRows = {}
        self._jobs: dict[int, tuple[Entry, Job]] = {}
        self._source: tuple[str, Path | str] | None = None
        self._history: SqliteHistory | None = None
        self._model: RuntimeModel | None = None
        self._answers: dict[tuple[str, str], _Answers] = {}
        self._places: IdlePlaces | None = None
        self._guest: tuple[str, GuestQueue | None] | None = None

    def guest_queue(self, folder: Path, about: RunSettings, cluster: Cluster) -> GuestQueue | None:
        """The queue of the batch system that starts the jobs; ``None`` where they start here."""
        self.predict_with(about.model, about.history)
        if self._guest is None or self._guest[0] != about.executor:
            self._guest = about.executor, open_guest_queue(folder, about.executor, cluster)
        return self._guest[1]

    def idle_places(self, cluster: Cluster) -> IdlePlaces:
        """What idle nodes of the cluster give to requests."""
        if self._places is None or tuple(self._places.cluster.nodes) != tuple(cluster.nodes):
            self._places = IdlePlaces(cluster)
        return self._places

    def predict_with(self, model: str, path: Path | str) -> RuntimeModel:
        """The model over a history, which stays open."""
        if self._model is None or self._source != (model, path):
            self.close()
            self._history = SqliteHistory(path)
            self._model, self._source = make_model(model, self._history), (model, path)
        return self._model

    def close(self) -> None:
        """Close the history, and forget what it was good for."""
        if self._history is not None:
            self._history.close()
        self._history = self._model = None
        self._answers.clear()

    def as_now(self, entry: Entry, soon: Seconds, depends: tuple[Dependency, ...]) -> Job:
        """The job as one of the queue: it comes in so many seconds."""
        known = self._jobs.get(entry.seq)
        if known is not None and known[0] is entry:
            job = known[1]
            if job.submit_time == soon and job.depends == depends:
                return job
        job = replace(entry.job, submit_time=soon, index=entry.seq, depends=depends, begin=None)
        self._jobs[entry.seq] = entry, job
        return job

    def forget_others(self, entries: Sequence[Entry]) -> None:
        """Keep only these."""
        if len(self._jobs) > 2 * len(entries) + MOST:
            alive = {entry.seq for entry in entries}
            self._jobs = {seq: known for seq, known in self._jobs.items() if seq in alive}

    def expected_seconds(self, job: Job, choice: Choice, cluster: Cluster) -> Seconds | None:
        """What the model expects, kept until the app has run a little more often.

        One run more or less changes little where there were a hundred, and each would ask for all jobs of
        the app anew.
        """
        assert self._model is not None
        assert self._history is not None
        one, request = choice.implementation, choice.request
        answers = self._answers.get((job.app.name, one.name))
        if answers is None or not answers.holds:
            stamp = self._history.app_stamp(job.app.name)
            devices = cluster.device_classes(one.kind)
            runs = sum(self._history.count(job.app.name, one.name, device) for device in devices)
            if answers is None or (answers.stamp != stamp and runs * STEADY >= answers.runs * (STEADY + 1)):
                answers = self._answers[job.app.name, one.name] = _Answers(stamp, runs, {}, {})
            answers.holds = True
        # A job that is still the same object as in the last round needs no key made of its inputs.
        same = answers.of_jobs.get(job.id)
        if same is not None and same[0] is job and same[1] is choice:
            return same[2]
        key = (request, job.walltime, tuple(sorted(job.inputs.items(), key=lambda pair: pair[0])))
        if key not in answers.seconds:
            found = [
                prediction.expected
                for device in cluster.device_classes(one.kind)
                if (prediction := self._model.predict(job, one, request, device)) is not None
            ]
            answers.seconds[key] = min(found) if found else None
        if len(answers.of_jobs) > 2 * MOST:
            answers.of_jobs.clear()
        seconds = answers.seconds[key]
        answers.of_jobs[job.id] = job, choice, seconds
        return seconds

    def begin_round(self) -> None:
        """A new question: what has run since then counts."""
        for answers in self._answers.values():
            answers.holds = False


@dataclass(slots=True)
class _Answers:
    """Of an implementation of an app: seconds by what was requested, as of its so many runs."""

    stamp: Hashable
    runs: int
    seconds: dict[tuple[Any, ...], Seconds | None]
    of_jobs: dict[JobId, tuple[Job, Choice, Seconds | None]]
    """The same by job, as of the last round."""
    holds: bool = False


class _Expected:
    """The times that a model expects of jobs; of unknown ones the middle of the known."""

    def __init__(self, cluster: Cluster, memory: QueueMemory) -> None:
        self._cluster, self._memory = cluster, memory
        self._table: dict[tuple[JobId, str, int], Seconds | None] = {}
        memory.begin_round()

    def add(self, job: Job) -> None:
        for choice in job.choices:
            seconds = self._memory.expected_seconds(job, choice, self._cluster)
            if seconds is not None and job.walltime is not None:
                seconds = min(seconds, job.walltime)
            self._table[job.id, choice.implementation.name, choice.request.nodes] = seconds

    def knows_duration(self, run: ForeseenRun) -> bool:
        """Whether it is known how long the job takes as what, and on as many nodes as, it ran."""
        name, place = run.implementation, run.allocation
        assert name is not None
        assert place is not None
        return self._table[run.job.id, name.name, place.request.nodes] is not None

    def truth(self) -> TableTruth:
        known = [seconds for seconds in self._table.values() if seconds is not None]
        middle = median(known) if known else None
        filled = {key: middle if seconds is None else seconds for key, seconds in self._table.items()}
        return TableTruth({key: seconds for key, seconds in filled.items() if seconds is not None})


def foresee_others(
    folder: Path, id: JobId, intervals: StartIntervals | None, memory: QueueMemory | None
) -> dict[str, Any]:
    """When a waiting job starts as it is, and with one thing requested otherwise, over the same futures."""
    about = read_about(folder)
    with closing(Archive(folder / "ledger.db", lambda: about.cluster)) as archive:
        found = archive.ask_here("id = ? AND state = 'PENDING'", (id,))
    if not found:
        return {"error": f"found no job {id} that waits", "status": 2}
    job = found[0].job
    rows: list[dict[str, Any]] = []
    plain: list[float] = []
    try:
        for change, one in [(None, job), *other_requests(job, about.cluster)]:
            seen = predict_queue(folder, intervals=intervals, memory=memory, instead=one)
            start, end = seen.jobs.get(id, (None, None))
            draws = seen.draws.get(id, [])
            row = {"change": change, "start": start, "end": end, "span": seen.spans.get(id), "at": seen.at}
            if change is None:
                plain = draws
            # Without an interval of its own nothing can be compared with it.
            if change is None or (draws and plain):
                row |= {"sooner": starts_sooner(draws, plain), "later": starts_sooner(plain, draws)}
                rows.append(row)
            if not plain:
                break
    except DovetailError as error:
        return {"error": str(error), "status": error.exit_status}
    return {"rows": rows}


def answer_question(
    folder: Path,
    question: Mapping[str, Any],
    intervals: StartIntervals | None = None,
    memory: QueueMemory | None = None,
) -> dict[str, Any]:
    """The answer to one question, or why there is none."""
    if "sooner" in question:
        return foresee_others(folder, question["sooner"], intervals, memory)
    policy, cluster = question.get("policy"), question.get("cluster")
    also = [decode_job(one["job"], decode_app(one["name"], one["app"])) for one in question.get("jobs", ())]
    try:
        found = predict_queue(folder, policy, cluster, intervals, also, memory)
    except DovetailError as error:
        return {"error": str(error), "status": error.exit_status}
    known = {"at": found.at, "jobs": found.jobs, "left_out": found.left_out, "unknown": found.unknown}
    return {**known, "spans": found.spans, "draws": found.draws, "lasts": found.lasts}


def main() -> None:
    """Answer until the service closes the pipe."""
    os.nice(10)
    folder = Path(sys.argv[1])
    intervals, memory = StartIntervals(folder), QueueMemory()
    for line in sys.stdin:
        found = json.dumps(answer_question(folder, json.loads(line), intervals, memory)).encode() + b"\n"
        try:
            while found:
                found = found[os.write(1, found) :]
        except BrokenPipeError:  # the service was killed meanwhile: this process ends with it
            return
        gc.collect()


if __name__ == "__main__":
    main()
