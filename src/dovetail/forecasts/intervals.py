"""Between when and when jobs start and end: roll-outs of the queue, corrected by what became of earlier ones.

Made in the process beside the service, from the ledger. The first forecast of each job is remembered in
``starts.json`` until it has started, so the service measures how many of its intervals hold.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.errors import InputError
from dovetail.files.arrays import Bools, Floats, np
from dovetail.files.writing import replace_file
from dovetail.forecasts.guests import GuestSight
from dovetail.forecasts.long_queue import ForeseenRun, Hold, idle_nodes, need_of, partition_bits
from dovetail.model import FRACTION_UNITS, Allocation, Cluster, Job, JobId, Reserved, Seconds
from dovetail.running.ledger import Entry
from dovetail.service.archive import Archive
from dovetail.starts.calibration import (
    CONFIDENCE,
    LEAST_SPREAD,
    MINUTE,
    Calibration,
    log_wait,
    wait_of,
)
from dovetail.starts.rolling import (
    DAY,
    HORIZON,
    LOOK_BACK,
    Change,
    QueuedJob,
    Situation,
    StartDraws,
    draws_for,
    lay_out,
    plan_starts,
    pool_machine,
    roll_out,
    roll_queue,
    waits_as_logs,
)
from dovetail.starts.run_times import OF_APPS, JobKind, RunTimes

log = logging.getLogger(__name__)

REMEMBERED = 5000
"""Ended jobs that are looked at, the last ones."""
ENOUGH = 5
"""Ended jobs without which there is no interval."""
MOST = 1000
"""Waiting jobs that are rolled out node by node, the first ones; for those behind nodes are a pool."""
OUTCOMES = 2000
"""Outcomes that are kept for `dovetail model starts`."""
FILE = "starts.json"
NOTHING_RESERVED = Reserved()


class Span(NamedTuple):
    """Seconds since the epoch; ``None``: not known. A start has none once the job runs."""

    start_low: Seconds | None
    start_high: Seconds | None
    end_low: Seconds | None
    end_high: Seconds | None


class _Waits(NamedTuple):
    """How long until something, for all that wait: seconds; medians and spreads on the log scale."""

    median: Floats
    spread: Floats
    low: Floats
    high: Floats

    @staticmethod
    def correct(quantiles: Floats, corrections: Floats) -> _Waits:
        """From the 5 %, 50 % and 95 % quantiles of roll-outs; all arrays have a column for each job."""
        first, median, last = quantiles
        spread = np.hypot((last - first) / 3.29, LEAST_SPREAD)  # as `spread_of`
        low, high = np.maximum(np.exp(median + corrections * spread) - MINUTE, 0.0)  # as `wait_of`
        return _Waits(median, spread, low, high)

    def points(self) -> Floats:
        """The medians in seconds, within the intervals."""
        found: Floats = np.clip(np.exp(self.median) - MINUTE, self.low, np.maximum(self.low, self.high))
        return found


class StartIntervals:
    """What has ended, and the forecasts so far; kept from one question to the next."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._calibration = Calibration()
        self._ended: dict[JobId, Entry] = {}
        self._until = 0.0
        self._foretold: dict[JobId, tuple[Seconds, Seconds]] = {}
        """Of those that wait: the median start and the plan's, at the first forecast."""
        self._outcomes: list[list[float]] = []
        self._standing = _Standing()
        self.tested_draws: dict[JobId, list[float]] = {}
        """Of the last question: seconds until jobs start that are not submitted, roll-out by roll-out."""
        self._load_calibration()

    def _load_calibration(self) -> None:
        if not self._file.exists():
            return
        try:
            kept = json.loads(self._file.read_text())
            self._calibration.restore_state(kept["calibration"])
            self._outcomes = kept["outcomes"]
            self._foretold = {job: (middle, plan) for job, (middle, plan) in kept["foretold"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Damage costs accuracy for a while, not the forecast itself: calibration learns anew.
            log.warning("%s is damaged, and calibration begins anew: %s", self._file, error)
            self._calibration, self._outcomes, self._foretold = Calibration(), [], {}

    def start_spans(
        self,
        archive: Archive,
        entries: Sequence[Entry],
        runs: Mapping[JobId, ForeseenRun],
        cluster: Cluster,
        now: Seconds,
        tested: AbstractSet[JobId] = frozenset(),
        drained: AbstractSet[str] = frozenset(),
        policy: str = "easy",
        foreign: Sequence[Hold] = (),
        reserved: Reserved = NOTHING_RESERVED,
        *,
        remember: bool = True,
    ) -> dict[JobId, Span]:
        """Intervals of what runs, and of what waits for its turn, its time or the ends of others.

        ``tested`` are not submitted: nothing is remembered of them. On ``drained`` nodes nothing starts.
        ``policy`` is one of `dovetail.starts.rolling.POLICIES`. ``foreign`` is what others hold of the
        machine, ``reserved`` what is kept for some, in seconds from now.
        ``runs`` are those that waiting jobs are expected to be, whose starts the intervals hold too. Of
        forecasts under another policy, or on another machine, nothing is to ``remember``.
        """
        self._take_in(archive, entries, now)
        self.tested_draws = {}
        # Fewer ended jobs than this show nothing of run times or arrivals.
        if len(self._ended) < ENOUGH:
            return {}
        standing = self._standing.current_situation(entries, runs, cluster, now, frozenset(drained), reserved)
        changes = [*_reserved_changes(reserved), *_foreign_changes(foreign)]
        situation = standing._replace(policy=policy, changes=changes)
        starts, lengths = _roll_out(self._make_draws(entries), situation)
        found: dict[JobId, Span] = {}
        # What runs has no start to foretell, only an end; the time already spent is taken off.
        for place, queued in enumerate(situation.running):
            ends = np.quantile(lengths[:, place] - queued.spent, (0.05, 0.95))
            found[str(queued.key)] = Span(None, None, now + float(ends[0]), now + float(ends[1]))
        # A job waits from the moment on at which it may begin: what lies before is no wait, and known.
        gates = np.array([queued.begin for queued in situation.waiting], float)
        waits = np.where(starts < HORIZON, np.maximum(starts - gates, 0.0), HORIZON)
        start, end, possible = self._correct_waits(waits, lengths, now)
        jobs = [str(queued.key) for queued in situation.waiting]
        # The plan's own start is held by the interval, so a table never shows a start outside of it.
        simulated = np.maximum(np.array([runs[job].start or 0.0 for job in jobs], float) - gates, 0.0)
        over = np.maximum(np.array([runs[job].end or 0.0 for job in jobs], float) - gates, 0.0)
        bounds = (
            *(np.minimum(start.low, simulated), np.maximum(start.high, simulated)),
            *(np.minimum(end.low, over), np.maximum(end.high, over)),
        )
        rows = (now + gates + np.array(bounds)).T.tolist()
        found |= {
            job: Span(*row) for job, row, able in zip(jobs, rows, possible.tolist(), strict=True) if able
        }
        for place in np.flatnonzero(possible[:MOST]).tolist() if remember else ():
            # Before its moment a job does not wait: there is nothing to judge.
            if jobs[place] not in tested and gates[place] <= 0.0:
                self._foretell(jobs[place], now, start, place, float(simulated[place]))
        self._keep_draws(tested, jobs, possible, starts)
        self._save_calibration()
        return found

    def guest_spans(
        self,
        archive: Archive,
        entries: Sequence[Entry],
        sight: GuestSight,
        now: Seconds,
        tested: AbstractSet[JobId] = frozenset(),
    ) -> tuple[dict[JobId, Span], dict[JobId, tuple[Seconds, Seconds | None]]]:
        """Intervals, and the medians of starts and ends, of those that wait in a batch system's queue.

        Of its other jobs nothing is remembered. What runs has an interval of its end.
        """
        self._take_in(archive, entries, now)
        self.tested_draws = {}
        if sight.known < ENOUGH:
            return {}, {}
        situation, own = sight.situation, sight.own
        starts, lengths = _roll_out(sight.draws, situation)
        spans: dict[JobId, Span] = {}
        points: dict[JobId, tuple[Seconds, Seconds | None]] = {}
        for place, queued in enumerate(situation.running):
            if (job := own.get(str(queued.key))) is not None:
                ends = np.quantile(lengths[:, place] - queued.spent, (0.05, 0.95))
                spans[job] = Span(None, None, now + float(ends[0]), now + float(ends[1]))
        start, end, possible = self._correct_waits(starts, lengths, now)
        jobs = [own.get(str(queued.key), "") for queued in situation.waiting]
        rows = (now + np.array([start.low, start.high, end.low, end.high])).T.tolist()
        middles = (now + np.array([start.points(), end.points()])).T.tolist()
        plan: Floats | None = None
        for place in np.flatnonzero(possible).tolist():
            if not (job := jobs[place]):
                continue
            spans[job] = Span(*rows[place])
            points[job] = middles[place][0], middles[place][1]
            if place < MOST and job not in tested and job not in self._foretold:
                plan = plan_starts(situation) if plan is None else plan
                self._foretell(job, now, start, place, min(float(plan[place]), HORIZON))
        self._keep_draws(tested, jobs, possible, starts)
        self._save_calibration()
        return spans, points

    def _correct_waits(self, starts: Floats, lengths: Floats, now: Seconds) -> tuple[_Waits, _Waits, Bools]:
        """The waits for starts and for ends, and which jobs start at all.

        Where most roll-outs never start a job, as on nodes that are drained, no interval would be honest.
        """
        running = len(lengths[0]) - len(starts[0])
        # On a log scale, as waits spread over orders of magnitude.
        quantiles = np.quantile(waits_as_logs(starts), (0.05, 0.5, 0.95), axis=0)
        late = np.quantile(waits_as_logs(starts + lengths[:, running:]), (0.05, 0.5, 0.95), axis=0)
        corrections = self._calibration.line_corrections(now, quantiles[1])
        possible = quantiles[1] < waits_as_logs(np.array([HORIZON]))[0]
        return _Waits.correct(quantiles, corrections), _Waits.correct(late, corrections), possible

    def _keep_draws(
        self, tested: AbstractSet[JobId], jobs: Sequence[JobId], possible: Bools, starts: Floats
    ) -> None:
        """Of tested jobs the starts, roll-out by roll-out, so that they can be compared."""
        for place, job in enumerate(jobs) if tested else ():
            if job in tested and possible[place]:
                self.tested_draws[job] = np.minimum(starts[:, place], HORIZON).tolist()

    def _foretell(self, job: JobId, now: Seconds, waits: _Waits, place: int, plan: Seconds) -> None:
        """Only the first forecast of a job counts as a promise to be judged; later ones know more."""
        if job not in self._foretold:
            median = float(waits.median[place])
            self._calibration.make_forecast(job, now, median, float(waits.spread[place]))
            self._foretold[job] = (now + wait_of(median), now + plan)

    def _take_in(self, archive: Archive, entries: Sequence[Entry], now: Seconds) -> None:
        """Take in what has ended, and what has started that was foretold."""
        self.read_ended(archive, now)
        open_now = {entry.job.id: entry for entry in entries}
        for key in self._calibration.waiting_keys:
            found = open_now.get(str(key)) or self._ended.get(str(key))
            if found is None:
                found = archive.query_thread.submit(archive.job, str(key)).result()
            # Cancelled before it began: its wait has no outcome to learn from.
            if found is None or (found.started is None and found.ended is not None):
                self._calibration.drop_forecast(key)
                self._foretold.pop(str(key), None)
            elif found.started is not None:
                self._note_outcome(str(key), found.started)

    def read_ended(self, archive: Archive, now: Seconds) -> Collection[Entry]:
        """The last jobs of the service that have ended, by their ends. O(those that are new)."""
        # A day more than is looked back on, since ends may have been recorded late.
        since = max(self._until, now - (LOOK_BACK + 1) * DAY)
        ended = archive.ask_here("ended >= ? ORDER BY ended DESC, seq DESC LIMIT ?", (since, REMEMBERED))
        for entry in reversed(ended):
            if entry.job.id not in self._ended and entry.ended is not None:
                self._ended[entry.job.id] = entry
                self._until = max(self._until, entry.ended)
        # Ordered by their ends: the oldest go first.
        for job in list(self._ended)[:-REMEMBERED]:
            del self._ended[job]
        return self._ended.values()

    def _note_outcome(self, job: JobId, started: Seconds) -> None:
        """It has started: an outcome."""
        made = self._calibration.start(job, started)
        middle, plan = self._foretold.pop(job, (started, started))
        for one in made:
            inside = one.low - 1e-9 <= log_wait(started - one.made_at) <= one.high + 1e-9
            self._outcomes.append([started, float(inside), abs(middle - started), abs(plan - started)])
        self._outcomes = self._outcomes[-OUTCOMES:]

    def _make_draws(self, entries: Sequence[Entry]) -> StartDraws:
        draws = StartDraws(RunTimes(OF_APPS))
        known = [*self._ended.values(), *(entry for entry in entries if entry.job.id not in self._ended)]
        for entry in sorted(known, key=lambda entry: entry.submitted):
            if entry.allocation is not None:  # what it takes is known only of those that ran
                draws.submit(entry.submitted, _make_queued_job(entry, entry.allocation))
        for entry in self._ended.values():
            if entry.started is None or entry.ended is None or entry.allocation is None:
                continue
            queued = _make_queued_job(entry, entry.allocation)
            draws.end(queued.key, queued.kind, max(entry.ended - entry.started, 0.0))
        return draws

    def _save_calibration(self) -> None:
        kept = {
            "calibration": self._calibration.as_dict(),
            "outcomes": self._outcomes,
            "foretold": self._foretold,
        }
        try:
            replace_file(self._file, json.dumps(kept))
        except OSError as error:  # the next round tries again
            log.warning("the outcomes of forecasts are not kept: %s", error)


def _roll_out(draws: StartDraws, situation: Situation) -> tuple[Floats, Floats]:
    """Seconds until jobs start, and how long each runs in all; far behind the machine counts as one pool."""
    if len(situation.waiting) <= MOST:
        return draws.roll(situation)
    futures = draws.draw_futures(situation, draws_for(len(situation.waiting)))
    pool, past = pool_machine(lay_out(situation, futures.lengths), futures.past)
    starts = roll_queue(pool, past, futures.origins)
    running, near = len(situation.running), _places_near(situation)
    columns = [*range(running), *(running + place for place in near)]
    # Whose length a submission that comes again takes: as a place among those that are rolled out.
    place_of = np.full(len(futures.lengths[0]) + 1, -1)
    place_of[columns] = np.arange(len(columns))
    ahead = situation._replace(waiting=[situation.waiting[place] for place in near])
    again = futures.past._replace(job=place_of[futures.past.job])
    starts[:, near] = roll_out(ahead, futures.lengths[:, columns], again, futures.origins)
    return starts, futures.lengths


def _places_near(situation: Situation) -> list[int]:
    """Places of the first ones that wait, without those that wait for others behind them."""
    found: list[int] = []
    there = {job.key for job in situation.running}
    for place, job in enumerate(situation.waiting[:MOST]):
        if there.issuperset(job.after):
            there.add(job.key)
            found.append(place)
    return found


def _make_queued_job(entry: Entry, place: Allocation) -> QueuedJob:
    """A job of the ledger, with what it takes where it runs or would run."""
    job, part = entry.job, place.parts[0]
    width = place.request.nodes * max(len(part.devices), part.cpus, 1)
    kind = JobKind(job.user, job.app.name, width, job.walltime)
    return QueuedJob(job.id, kind, zlib.crc32(str(job.id).encode()), place.request.nodes, need=need_of(place))


def _reserved_changes(reserved: Reserved) -> Iterator[Change]:
    """What reservations take of nodes, and give back."""
    for one in reserved.reservations:
        for node, count in Counter(node for node, _ in one.devices).items():
            yield Change(max(one.start, 0.0), node, (0, -count * FRACTION_UNITS, 0))
            yield Change(max(one.end, 0.0), node, (0, count * FRACTION_UNITS, 0))


def _foreign_changes(foreign: Sequence[Hold]) -> Iterator[Change]:
    """What others hold of nodes, and give back."""
    for hold in foreign:
        cpus, devices, memory = need_of(hold.allocation)
        for node in hold.allocation.nodes:
            yield Change(0.0, node, (-cpus, -devices, -memory))
            yield Change(hold.left, node, (cpus, devices, memory))


class _Standing:
    """The queue as roll-outs take it; who has not changed since the last question is not looked at again."""

    def __init__(self) -> None:
        self._known: dict[JobId, tuple[Entry, Allocation | None, QueuedJob]] = {}

    def current_situation(
        self,
        entries: Sequence[Entry],
        runs: Mapping[JobId, ForeseenRun],
        cluster: Cluster,
        now: Seconds,
        drained: AbstractSet[str],
        reserved: Reserved,
    ) -> Situation:
        """What runs, and what waits, by priority and then by submission. O(jobs)."""
        nodes, bit = idle_nodes(cluster, frozenset(drained)), partition_bits(cluster)
        empty = nodes.free.copy()
        fits: dict[tuple[Any, ...], bool] = {}
        # Devices that are kept for a job's user are free for it, and for no other one: roll-outs have no
        # such devices.
        favoured = {user for one in reserved.reservations for user in one.users}
        running, waiting = [], []
        begun: dict[JobId, Seconds] = {}
        alive = {entry.job.id for entry in entries}
        known, self._known = self._known, {}
        there: set[JobId] = set()
        for entry in entries:
            job, place = entry.job, entry.allocation
            if entry.started is not None:
                if place is None or place.mask >> len(cluster):
                    continue
                queued = _make_queued_job(entry, place)
                nodes.free[place.nodes] -= np.array(queued.need, np.int64)
                spent = max(now - entry.started, 1e-9)
                running.append(queued._replace(spent=spent, held=tuple(place.nodes)))
                begun[job.id] = entry.started
                there.add(job.id)
                continue
            run = runs.get(job.id)
            if run is None or run.allocation is None or run.start is None or job.user in favoured:
                continue
            same = known.get(job.id)
            # By identity, as what is read anew of the ledger may be anything.
            if same is None or same[0] is not entry or same[1] is not run.allocation:
                queued = _make_queued_job(entry, run.allocation)
                queued = queued._replace(group=bit.get(run.allocation.request.partition, 1))
            else:
                queued = same[2]
            self._known[job.id] = entry, run.allocation, queued
            shape = queued.need, queued.group, queued.nodes
            if shape not in fits:
                able = (empty >= np.array(queued.need)).all(axis=1) & (nodes.group & queued.group != 0)
                fits[shape] = int(able.sum()) >= queued.nodes
            # It would wait beyond the end of every roll-out.
            if not fits[shape]:
                continue
            if job.depends or job.begin is not None:
                gates = _gates_of(job, alive, there, begun, now)
                if gates is None:
                    continue
                queued = queued._replace(begin=gates[0], after=gates[1])
            there.add(job.id)
            waiting.append((-job.priority, entry.seq, queued))
        waiting.sort(key=lambda one: one[:2])
        return Situation(now, "easy", nodes, running, [queued for *_, queued in waiting])


def _gates_of(
    job: Job,
    alive: AbstractSet[JobId],
    there: AbstractSet[JobId],
    begun: Mapping[JobId, Seconds],
    now: Seconds,
) -> tuple[Seconds, tuple[JobId, ...]] | None:
    """In how many seconds and after whose ends a job may start; ``None`` where that is not foreseen."""
    begin = 0.0 if job.begin is None else max(job.begin - now, 0.0)
    after = []
    for one in job.depends:
        if one.job not in alive:  # it has ended, and what it ended as was good enough
            continue
        if one.alternative or one.job not in there:
            return None
        if one.kind in ("afterok", "afterany"):
            after.append(one.job)
        elif one.kind == "after" and one.job in begun:
            begin = max(begin, begun[one.job] + one.delay - now)
        else:
            return None
    return begin, tuple(after)


def kept_outcomes(path: Path) -> list[list[float]]:
    """What became of forecasts; raises `InputError` where the file is damaged."""
    if not path.exists():
        return []
    try:
        found: list[list[float]] = json.loads(path.read_text())["outcomes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"found no outcomes of forecasts: {error}", where=str(path)) from error
    return found


def coverage_by_week(outcomes: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Of each week in which jobs started: how many intervals held, and the median errors in seconds."""
    from statistics import median

    weeks: dict[int, list[Sequence[float]]] = {}
    for outcome in outcomes:
        weeks.setdefault(int(outcome[0] // (7 * DAY)), []).append(outcome)
    return [
        {
            "week": week * 7 * DAY,
            "forecasts": len(found),
            "coverage": sum(one[1] for one in found) / len(found),
            "median_abs_error": {
                "ours": median(one[2] for one in found),
                "plan": median(one[3] for one in found),
            },
            "confidence": CONFIDENCE,
        }
        for week, found in sorted(weeks.items())
    ]
