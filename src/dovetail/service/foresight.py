"""What becomes of the queue if every job takes as long as predicted: a simulation from where things stand.

``python -m dovetail.service.foresight FOLDER`` is a process beside the service, so that neither waits for the
other. It reads one line of JSON a question and answers with one. It looks at the ledger itself, read-only.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.engine.capacity.occupancy import Occupancy
from dovetail.engine.capacity.sizing import as_it_started
from dovetail.engine.driver.admission import GPU_HOURS, HELD
from dovetail.engine.driver.priority import Priorities
from dovetail.engine.journal.codec import decode_app, decode_job
from dovetail.engine.simulation.simulate import SimulationOptions, simulate
from dovetail.engine.state.suspensions import Suspensions
from dovetail.errors import DovetailError
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import RuntimeModel
from dovetail.local.claims import Holder, units_of_cluster
from dovetail.model import (
    EMPTY,
    Adopted,
    Allocation,
    Cluster,
    Ended,
    Event,
    Job,
    JobId,
    Record,
    Rejected,
    Result,
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
from dovetail.service.archive import Archive
from dovetail.service.elsewhere import Elsewhere
from dovetail.service.folder import ServiceFolder
from dovetail.service.gpu_hours import HoursBook
from dovetail.service.intervals import Span, StartIntervals
from dovetail.service.reservations import ReservationBook
from dovetail.service.usage import Usage

MOST = 20_000
"""Jobs that are simulated; those behind them get no forecast."""
SOON = 1e-6
"""When what waits comes in: what runs must be known by then."""
OVERDUE = 0.1
"""Of its time so far a job is given that has run for longer than predicted."""


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


def predict_queue(
    folder: Path,
    policy: str | None = None,
    cluster: str | None = None,
    intervals: StartIntervals | None = None,
    also: Sequence[Job] = (),
) -> PredictedTimes:
    """When the jobs that have not ended will start and end, under this policy and on this cluster.

    ``also`` are jobs that are not submitted: as if they were now, behind all others of their priority.
    Defaults are the service's own. On another cluster, or under another policy, what runs goes on where it
    is. Raises `InputError`, `PolicyError`.
    """
    about = read_about(folder)
    machine = about.cluster if cluster is None else Cluster.parse(cluster)
    loaded = load_policy(policy or about.policy)
    archive = Archive(folder / "ledger.db", lambda: machine)
    with closing(archive):
        now = time.time()
        # Twice as many as are simulated, since some of them run and others are held.
        entries = archive.ask_here("state IN ('PENDING', 'RUNNING') ORDER BY seq LIMIT ?", (2 * MOST,))
        entries += _as_if_submitted(also, entries, now)
        result, standing = _simulate_queue(
            folder,
            about,
            loaded,
            machine,
            entries,
            now,
            local=about.executor == "local" and cluster is None,
        )
        jobs = dict(standing.running)
        for record in result.records:
            if record.start is not None and record.end is not None:
                known = standing.expected.knows_duration(record)
                jobs[record.job.id] = now + record.start, now + record.end if known else None
        spans: Mapping[JobId, Span] = {}
        # The roll-outs know no reservations: where there is one, the points alone are shown.
        reserved = bool(ReservationBook(ServiceFolder(folder)).open(now))
        if intervals is not None and not reserved:
            records = {record.job.id: record for record in result.records}
            tested = {job.id for job in also}
            # Another cluster has none of the nodes that were drained here.
            drained = set() if cluster else set(ServiceFolder(folder).drained_nodes())
            like = rolled_as(loaded.policy)
            spans = intervals.start_spans(archive, entries, records, machine, now, tested, drained, like)
            # Nor do they know limits of hours: a job that waits for one is shown as a point.
            limited = {entry.job.id for entry in entries if entry.held == GPU_HOURS}
            spans = {job: span for job, span in spans.items() if job not in limited}
    unknown = sum(end is None for _, end in jobs.values())
    rejected = len(result.rejected) - len(standing.waiting.rejected)
    draws = {} if intervals is None or reserved else intervals.tested_draws
    return PredictedTimes(now, jobs, standing.left_out + rejected, unknown, spans, draws)


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


def _simulate_queue(
    folder: Path,
    about: RunSettings,
    loaded: LoadedPolicy,
    machine: Cluster,
    entries: list[Entry],
    now: Seconds,
    *,
    local: bool,
) -> tuple[Result, _Standing]:
    """The queue simulated, and how it stands."""
    with SqliteHistory(about.history) as history:
        model = make_model(about.model, history)
        elsewhere = Elsewhere(about.uid, machine, local=local)
        paused = Suspensions(paused=frozenset(ServiceFolder(folder).paused_kinds()))
        kept = ReservationBook(ServiceFolder(folder)).event(machine, now)
        standing = _current_standing(entries, machine, model, now, elsewhere.list_holders(), paused)
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
                shares=Usage.read_kept(ServiceFolder(folder).usage_path, now),
            ),
            hours=HoursBook.read_kept(ServiceFolder(folder).gpu_hours_path, now),
        )
    return result, standing


@dataclass(frozen=True, slots=True)
class _Standing:
    """Jobs that wait, with the times that are expected; what runs, as incidents; how many are left out."""

    waiting: Workload
    incidents: list[tuple[Seconds, Event]]
    running: Mapping[JobId, tuple[Seconds, Seconds | None]]
    expected: _Expected
    left_out: int


def _current_standing(
    entries: list[Entry],
    cluster: Cluster,
    model: RuntimeModel,
    now: Seconds,
    others: Sequence[Holder],
    paused: Suspensions,
) -> _Standing:
    alive = {entry.job.id for entry in entries}
    expected = _Expected(cluster, model)
    begun: list[tuple[Seconds, Event]] = []
    ends: list[tuple[Seconds, Event]] = []
    running: dict[JobId, tuple[Seconds, Seconds | None]] = {}
    jobs: list[Job] = []
    left_out: set[JobId] = set()
    held = Occupancy(cluster, "pack")
    for entry in entries:
        depends = tuple(one for one in entry.job.depends if one.job in alive)
        soon = max(SOON, (entry.job.begin or 0.0) - now)
        job = replace(entry.job, submit_time=soon, index=entry.seq, depends=depends, begin=None)
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
        running[holder.label] = now - spent, holder.until
    if any(TURN in job.options for job in jobs):
        jobs.sort(key=lambda job: job.options.get(TURN, job.index))
        jobs = [replace(job, index=at) for at, job in enumerate(jobs)]
    ends.sort(key=lambda end: end[0])
    jobs.sort(key=lambda job: job.submit_time)
    # Others may wait for those that run, which are no jobs of this workload.
    known = [Rejected(event.job, "runs") for _, event in ends if isinstance(event, Ended)]
    waiting = Workload("the queue", jobs, expected.truth(), known)
    return _Standing(waiting, begun + ends, running, expected, len(left_out))


def _held_by(others: Sequence[Holder], cluster: Cluster) -> Iterator[tuple[Job, Allocation, Holder]]:
    """What other Dovetails hold of this machine, as jobs that run."""
    units = units_of_cluster(cluster)
    for holder in others:
        places = sorted({place_of(unit, cluster, units) for unit in holder.units & units.keys()})
        for number, place in enumerate(places):
            job, allocation = foreign_job(f"{holder.label} {number}", cluster, place, holder, 0.0)
            yield job, allocation, holder


class _Expected:
    """The times that a model expects of jobs; of unknown ones the middle of the known."""

    def __init__(self, cluster: Cluster, model: RuntimeModel) -> None:
        self._cluster, self._model = cluster, model
        self._known: dict[tuple[Any, ...], Seconds | None] = {}
        self._table: dict[tuple[JobId, str, int], Seconds | None] = {}

    def add(self, job: Job) -> None:
        inputs = tuple(sorted(job.inputs.items(), key=lambda pair: pair[0]))
        for choice in job.choices:
            one, request = choice.implementation, choice.request
            key = (id(job.app), one.name, request.nodes, inputs)
            if key not in self._known:
                found = [
                    prediction.expected
                    for device in self._cluster.device_classes(one.kind)
                    if (prediction := self._model.predict(job, one, request, device)) is not None
                ]
                self._known[key] = min(found) if found else None
            seconds = self._known[key]
            if seconds is not None and job.walltime is not None:
                seconds = min(seconds, job.walltime)
            self._table[job.id, one.name, request.nodes] = seconds

    def knows_duration(self, record: Record) -> bool:
        """Whether it is known how long the job takes as what, and on as many nodes as, it ran."""
        name, place = record.implementation, record.allocation
        assert name is not None
        assert place is not None
        return self._table[record.job.id, name.name, place.request.nodes] is not None

    def truth(self) -> TableTruth:
        known = [seconds for seconds in self._table.values() if seconds is not None]
        middle = median(known) if known else None
        filled = {key: middle if seconds is None else seconds for key, seconds in self._table.items()}
        return TableTruth({key: seconds for key, seconds in filled.items() if seconds is not None})


def answer_question(
    folder: Path, question: Mapping[str, Any], intervals: StartIntervals | None = None
) -> dict[str, Any]:
    """The answer to one question, or why there is none; only the queue as it is has intervals."""
    policy, cluster = question.get("policy"), question.get("cluster")
    also = [decode_job(one["job"], decode_app(one["name"], one["app"])) for one in question.get("jobs", ())]
    try:
        found = predict_queue(folder, policy, cluster, None if policy or cluster else intervals, also)
    except DovetailError as error:
        return {"error": str(error), "status": error.exit_status}
    known = {"at": found.at, "jobs": found.jobs, "left_out": found.left_out, "unknown": found.unknown}
    return known if policy or cluster else {**known, "spans": found.spans, "draws": found.draws}


def main() -> None:
    """Answer until the service closes the pipe."""
    os.nice(10)
    folder = Path(sys.argv[1])
    intervals = StartIntervals(folder)
    for line in sys.stdin:
        found = json.dumps(answer_question(folder, json.loads(line), intervals)).encode() + b"\n"
        try:
            while found:
                found = found[os.write(1, found) :]
        except BrokenPipeError:  # the service was killed meanwhile: this process ends with it
            return
        gc.collect()


if __name__ == "__main__":
    main()
