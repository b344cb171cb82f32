"""Guest of another scheduler: a job goes the way on which it runs fastest, unless another surely ends first.

Not from a paper: the rule of minimum completion time (Maheswaran et al. 1999, section 3.2), where the run
time is what was learned and the start is what the outside scheduler foresees. That is so far off where a job
has to wait (decision 080) that it only counts within bounds; a place that is free now is certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, log
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import (
    Choice,
    Decision,
    Inquire,
    Job,
    JobId,
    Prediction,
    Preempt,
    Seconds,
    Shape,
    Submit,
    TimeUsed,
    Wait,
)
from dovetail.model.batch_options import constraint_of, options_for, partition_of
from dovetail.policies.parts.outside_waits import Delay
from dovetail.policies.parts.partitions import classes_in, partitions_for

MINUTE = 60.0
"""Outside schedulers count walltimes in minutes."""
UNTRIED, ENDS_FIRST = "tried for the first time", "ends first"
FASTEST = "runs fastest, and no other way surely ends sooner"
"""Why a job goes its way."""
NEAR = 1.2
"""A way is as good as the fastest if a job runs at most so many times as long: predictions are no better."""
LEAST = 2.0
"""Seconds by which another way must be sooner, if a job is to lose its place for it."""
PART = 0.05
"""Of a job's wait so far, after which its other ways are queried again: little of what that gains."""
SHORT = 1.0
"""Seconds of waiting below which nothing is learned."""
RECENT = 16
"""Starts from which it is learned how long jobs wait in truth."""

_Line = tuple[str, bool]
"""A partition, and whether jobs there hold devices."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a job: as that, there, from ``start`` on, four times of five within ``bounds``.

    ``slots`` such jobs can run there at once; ``prediction`` is ``None`` where nothing is known.
    """

    choice: Choice
    shape: Shape
    slots: int
    prediction: Prediction | None
    start: Seconds = inf
    bounds: tuple[Seconds, Seconds] = (inf, inf)  # of the start
    learned: bool = False  # whether they rest on anything
    turns: int = 0  # of such jobs that were handed over and come before

    @property
    def end(self) -> Seconds:
        """When the job is predicted to end so."""
        return self.start + self.run

    @property
    def run(self) -> Seconds:
        """How long it is predicted to run so."""
        return inf if self.prediction is None else self.prediction.expected

    @property
    def competing_line(self) -> _Line:
        """What it competes in: the jobs of a partition with devices, or those without."""
        return self.shape.target, bool(self.shape.request.devices)

    def goes_as(self, submitted: Submit) -> bool:
        """Whether a job was handed over so."""
        shape = self.shape
        ours = self.choice.implementation.name, shape.target, shape.request
        return ours == (submitted.implementation, submitted.target, submitted.request)

    def words(self, now: Seconds) -> str:
        """Both numbers, for people."""
        nodes = "" if self.choice.request.nodes == 1 else f" on {self.choice.request.nodes} nodes"
        where = f"{self.choice.implementation.name}{nodes} in {self.shape.target}"
        wait = f"starts in {max(0.0, self.start - now):.3g} s"
        if self.learned and self.bounds[1] > now:
            low, high = (max(0.0, bound - now) for bound in self.bounds)
            wait += f" ({low:.3g} to {high:.3g})"
        if self.prediction is None:
            return f"{where}: {wait}, never ran there"
        seconds = self.prediction.expected
        return f"{where}: {wait}, takes {seconds:.3g} s, ends in {self.end - now:.3g} s"


@dataclass(frozen=True)
class EarliestCompletion:
    """Hand each job over, in order, as what it runs fastest, to where it starts first as that.

    It goes another way where a place is free in which it ends before it is expected to on the first, or whose
    end is sooner even where both waits turn out as their bounds least favour it. Jobs that keep to their
    fastest way are given free places before those that would leave theirs.

    The start is the outside scheduler's own estimate, which is queried again when it is ``fresh`` seconds
    old, as long as jobs wait; what was handed over since is added. A way that was never tried is tried once.
    ``only`` restricts jobs to the implementations of that kind, where they have one (the static choice that
    others make).

    What is foreseen assumes that all that runs takes its whole walltime. How long jobs wait in truth, as a
    part of that, is learned for each partition, with and without devices, with bounds: from what jobs there
    used of their walltimes, where the accounting can be read, and from the starts of this run's jobs (one
    that waits longer already counts as well). Of jobs that came together the shorter go first.

    Of jobs that could go several ways ``few`` wait in the outside queue for each partition and kind, beside
    those that find room and as many as end there within ``lead`` seconds; the others are kept back, and
    decided anew. (Where others use the cluster, a job that is kept back loses its place to theirs: few is
    not very few.) One that waits outside is taken back where a place is free in which it ends sooner than
    expected on its own way, by ``margin`` of what is left and by `LEAST` seconds, those first that gain most.
    That is looked at when something happens, and else as soon as the answers are ``fresh`` seconds old, or a
    `PART` of the wait of the last such job: after hours of waiting a query every few seconds gains nothing.
    ``passive`` does none of this: every job is handed over at once, in order, to where it ends first by what
    is foreseen, and left there.

    With ``cut`` a restartable job of whose way ``samples`` runs are known gets the upper end of its
    prediction as its walltime, so that it can be backfilled; ended by that, it goes again with its own.
    """

    fresh: float = 5.0
    only: str = ""
    cut: bool = False
    samples: int = 20
    passive: bool = False
    few: int = 50
    lead: float = 5.0
    margin: float = 0.2
    paper: ClassVar[str] = "Maheswaran et al. 1999, section 3.2, with foreseen starts"
    traits: ClassVar[Traits] = Traits(submits=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Query what is unknown or outdated; hand over the jobs of which all is known."""
        if not len(view.queue) and (self.passive or not view.outside.submitted):
            return
        here = _Round(self, view)
        if self.passive:
            for job in view.queue:
                yield from here.place_job(job)
            return
        order = here.in_order()
        made = {job.id: list(here.place_job(job, leaves=False)) for job in order}
        for job in order:
            if not made[job.id]:
                made[job.id] = list(here.place_job(job))
        yield from in_turns([decision for job in order for decision in made[job.id]])
        if not here.keeps_back:  # else who is kept back goes first where there is room
            yield from here.reconsider_submitted()


@dataclass(slots=True)
class _Load:
    """What went somewhere since an answer: its share of the place, and the run times that are known."""

    share: float = 0.0
    seconds: Seconds = 0.0
    known: int = 0

    def add(self, slots: int, expected: Seconds | None) -> None:
        self.share += 1.0 / slots
        if expected is not None:
            self.seconds += expected
            self.known += 1

    def count_turns(self, slots: int, room: int) -> int:
        """How many turns of ``slots`` jobs one more has to wait for: the first ``room`` find free nodes."""
        beyond = self.share * slots - room + 1e-9
        if beyond < 0:
            return 0
        return int(beyond / slots) + (1 if room else 0)

    @property
    def mean(self) -> Seconds:
        return self.seconds / self.known if self.known else 0.0


@dataclass(slots=True)
class _Round:
    """One look at the queue; what it hands over itself counts for the jobs behind. O(jobs x ways)."""

    policy: EarliestCompletion
    view: View
    trying: set[tuple[str, str]] = field(default_factory=set)
    queried: set[Shape] = field(default_factory=set)
    loads: dict[tuple[str, bool, Seconds], _Load] = field(default_factory=dict)
    pending: Counter[_Line] = field(default_factory=Counter)
    waiting: Counter[_Line] = field(init=False)  # those of them that were there before
    keeps_back: bool = False
    runs: Counter[_Line] = field(default_factory=Counter)
    delays: dict[_Line, Delay] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is on its way for the first time."""
        # Jobs on their way count as trials too: a second untried job would learn nothing more.
        for job, submitted in self.view.outside.submitted.items():
            self.trying.add((self.view.job(job).app.name, submitted.implementation))
            self.pending[submitted.target, bool(submitted.request.devices)] += 1
        self.waiting = self.pending.copy()
        for placed in self.view.running.values():
            self.trying.add((placed.job.app.name, placed.implementation.name))
            first = self.view.cluster.nodes[placed.allocation.first_node]
            self.runs.update((target, bool(placed.allocation.request.devices)) for target in first.partitions)

    def in_order(self) -> list[Job]:
        """The queue's order; of jobs that came together the shorter ones first, which shortens the mean.

        That is the order of the batch heuristic min-min (Maheswaran et al. 1999, section 3.3), for a wait
        that is the same for all. What is not known comes first: it is to be tried.
        """
        groups: dict[tuple[float, str | None, Seconds], int] = {}
        # Short ones first only among jobs that came together: users must not gain by splitting a submission.
        ranks: dict[JobId, tuple[int, Seconds]] = {}
        for job in self.view.queue:
            together = job.priority, job.user, job.submit_time
            rank = groups.setdefault(together, len(groups))
            ends = [way.prediction.expected for way in self._iterate_ways(job) if way.prediction is not None]
            ranks[job.id] = rank, min(ends, default=0.0)
        return sorted(self.view.queue, key=lambda job: ranks[job.id])

    def place_job(self, job: Job, *, leaves: bool = True) -> Iterator[Decision]:
        """Hand the job over, or query its ways, or give the reason for which it waits.

        Nothing where it would leave its fastest way, and is not to (``leaves``).
        """
        ways = list(self._iterate_ways(job))
        if not ways:
            yield self._submit_unplaceable(job)
            return
        yield from self._inquire_shapes(way.shape for way in ways)
        if any(self._is_missing(way.shape) for way in ways):
            yield Wait(job.id, "the cluster's scheduler has not answered yet when it would start")
            return
        open_ways = [self._with_forecast_start(way) for way in ways]
        # Ways that would never start are left out, unless there are no others.
        open_ways = [way for way in open_ways if way.start < inf]
        if not open_ways:
            outlooks = [self.view.outside.outlook(way.shape) for way in ways]
            why = next((o.why for o in outlooks if o is not None and o.why), "it would never start")
            # It goes there all the same, which ends it with the reason; or it is taken, and waits there.
            shape, name = ways[0].shape, ways[0].choice.implementation.name
            why = f"refused by the cluster's scheduler: {why}"
            yield Submit(job.id, name, shape.request, shape.target, shape.walltime, why)
            return
        best, why = self._choose_best(job, open_ways)
        # A job that is kept at home for now is looked at again when its own way has room.
        if not leaves and why == ENDS_FIRST and best.run > NEAR * min(way.run for way in open_ways):
            return
        self.trying.add((job.app.name, best.choice.implementation.name))
        # Counted before the decision: the next job must see this one in line, wherever it is kept.
        self._count_placement(best)  # those behind see it, also if it is kept back
        decision = self._submit_job(job, best, why, open_ways)
        # With a single way there is nothing to reconsider later, so it goes at once.
        if self.policy.passive or len({way.choice for way in open_ways}) == 1 or why == UNTRIED:
            yield decision
        elif self._has_room(best):
            self.pending[best.competing_line] += 1
            yield decision
        else:
            self.keeps_back = True
            where = f"{best.choice.implementation.name} in {best.shape.target}"
            text = f"kept back, best now as {where}: enough jobs wait there"
            yield Wait(job.id, text, self.view.now + self.policy.fresh)

    def _submit_unplaceable(self, job: Job) -> Decision:
        """No partition can run it, as far as can be seen here: the outside scheduler's answer ends it."""
        choice, closed = job.choices[0], self.view.cluster.closed
        requested = (
            partition_of(options_for(job.batch_options, choice.implementation)) or choice.request.partition
        )
        there = dict.fromkeys(name for group in self.view.cluster.groups for name in group.node.partitions)
        usual = [name for name in there if name not in closed]
        why = "no partition has nodes that can run it"
        # Nodes that are gone may come back with a partition that fits.
        if self.view.cluster.gone or not (requested or usual):
            return Wait(job.id, why)
        name, target = choice.implementation.name, requested or usual[0]
        return Submit(job.id, name, choice.request, target, job.walltime, why)

    def _count_placement(self, best: Way) -> None:
        """One more goes there."""
        expected = None if best.prediction is None else best.prediction.expected
        for (target, devices, _), load in self.loads.items():
            if (target, devices) == best.competing_line:
                load.add(best.slots, expected)

    def _submit_job(self, job: Job, best: Way, why: str, ways: Sequence[Way]) -> Submit:
        shape, name = best.shape, best.choice.implementation.name
        others = "; ".join(way.words(self.view.now) for way in ways if way is not best)
        reason = f"{why}: {best.words(self.view.now)}" + (f"; against {others}" if others else "")
        outlook = self.view.outside.outlook(shape)
        foreseen = None
        # A start that rests on our own jobs ahead of it is no forecast of the cluster's.
        if outlook is not None and outlook.start is not None and not best.turns:
            foreseen = max(0.0, outlook.start - self.view.now)
        return Submit(job.id, name, shape.request, shape.target, shape.walltime, reason, foreseen)

    # ------------------------------------------------------------- late, and not for good

    def _has_room(self, way: Way) -> bool:
        """Whether fewer jobs wait there than keep the place fed until the policy's next call."""
        line = way.competing_line
        outlook = self.view.outside.outlook(way.shape)
        room = 0 if outlook is None else outlook.room
        seconds = way.prediction.expected if way.prediction is not None else self.policy.lead
        fed = self.policy.lead / max(seconds, 1e-3)  # short jobs leave the queue before we look again
        running = sum(self.runs[name, line[1]] for name in line[0].split(","))
        # Short jobs end while we wait for the next answer: that many more keep the place busy.
        ends = (way.slots if fed > 1.0 else running) * fed
        return self.pending[line] < max(self.policy.few, room) + ceil(ends)

    def reconsider_submitted(self) -> Iterator[Decision]:
        """Take back what would end sooner in a place that is free now; what gains most comes first."""
        gains: list[tuple[Seconds, JobId, Submit]] = []
        looked_at: list[JobId] = []
        for id, submitted in self.view.outside.submitted.items():
            job = self.view.job(id)
            # Just handed over: its first forecast has not come yet.
            new = (
                submitted.foreseen is None and self.view.now - self.view.outside.since(id) < self.policy.lead
            )
            if len(job.choices) < 2 or new:
                continue
            yield from self._inquire_shapes(way.shape for way in self._iterate_ways(job))
            looked_at.append(id)
            found = self._find_better_place(job, submitted)
            if found is not None:
                gains.append((found[0], id, submitted))
        # Most gain first: places are few, and each one that is taken changes the next gain.
        for _, id, submitted in sorted(gains, key=lambda one: -one[0]):
            found = self._find_better_place(self.view.job(id), submitted)  # others may have taken the place
            if found is not None:
                self._count_placement(found[1])
                self.pending[found[1].competing_line] += 1
                yield Preempt(id, f"ends sooner another way: {found[1].words(self.view.now)}")
        if looked_at and not self.queried:  # an answer is an event
            yield self._look_again(looked_at[-1])

    def _look_again(self, last: JobId) -> Wait:
        """When, with what keeps the job waiting left in the words of the cluster's scheduler."""
        outside = self.view.outside
        outlooks = map(outside.outlook, (way.shape for way in self._iterate_ways(self.view.job(last))))
        requested = min(outlook.asked_at for outlook in outlooks if outlook is not None)
        pause = max(self.policy.fresh, PART * (self.view.now - outside.since(last)))
        return Wait(last, "", requested + pause)

    def _find_better_place(self, job: Job, submitted: Submit) -> tuple[Seconds, Way] | None:
        """A free place that is worth the one that a job has outside, and how much sooner it ends there."""
        # A job's own place is compared as it is, not as a newcomer's: giving it up loses its wait.
        outside, now = self.view.outside, self.view.now
        ways = [way for way in map(self._with_forecast_start, self._iterate_ways(job)) if way.end < inf]
        mine = next((way for way in ways if way.goes_as(submitted)), None)
        others = [way for way in ways if not way.goes_as(submitted) and self._is_free(way)]
        if mine is None or not others or self._is_missing(mine.shape):
            return None
        start = mine.start
        if submitted.foreseen is not None:  # its place is at least as good as that of one that comes now
            share = self.learned_delay(mine.competing_line, None).expected
            start = min(start, outside.since(job.id) + share * submitted.foreseen)
        end = max(now, start) + mine.run
        best = min(others, key=lambda way: way.end)
        gain = end - best.end
        return (gain, best) if gain > max(LEAST, self.policy.margin * (end - now)) else None

    def _is_free(self, way: Way) -> bool:
        """Whether a job would start so at once: nothing less is worth a place in a queue."""
        outlook = self.view.outside.outlook(way.shape)
        ours = self.waiting[way.competing_line]  # come before it
        return outlook is not None and outlook.room > ours and not way.turns and way.end < inf

    def learned_delay(self, line: _Line, used: TimeUsed | None) -> Delay:
        """How long jobs wait there as a part of what was foreseen; the first call gives ``used``.

        Jobs that wait longer than that already count with what they have waited.
        """
        known = self.delays.get(line)
        if known is None:
            outside, now = self.view.outside, self.view.now
            logs = [
                log(max(one.waited, SHORT) / one.foreseen)
                for one in outside.begun()
                if (one.target, bool(one.request.devices)) == line and one.foreseen > SHORT
                # Only the most recent starts: the cluster's load changes over days.
            ][-RECENT:]
            expected = log(Delay.learn_delay(logs, used).expected)
            for id, submitted in outside.submitted.items():
                foreseen = submitted.foreseen
                if foreseen is None or foreseen <= SHORT:
                    continue
                waited = log(max(now - outside.since(id), SHORT) / foreseen)
                if (submitted.target, bool(submitted.request.devices)) == line and waited > expected:
                    # Jobs that have waited longer than expected count before they start, else a jam shows
                    # late.
                    logs.append(waited)
            known = self.delays[line] = Delay.learn_delay(logs, used)
        return known

    # ---------------------------------------------------------------------------------- the ways of a job

    def _iterate_ways(self, job: Job) -> Iterator[Way]:
        """Every choice, in all partitions that can run it; in each of them where Slurm refuses that."""
        static = [c for c in job.choices if c.implementation.kind == self.policy.only]
        for choice in static or job.choices:
            options = options_for(job.batch_options, choice.implementation)
            requested, feature = partition_of(options) or choice.request.partition, self._model_of(options)
            closed = self.view.cluster.closed
            able = [
                (target, slots)
                for target, slots in partitions_for(self.view.cluster, choice.request, feature)
                if (target in requested.split(",") if requested else target not in closed)
            ]
            ways = [self._make_way(job, choice, target, slots, options, feature) for target, slots in able]
            if len(able) > 1 and not self.policy.passive:
                # All partitions together, as Slurm allows: the job starts in whichever has room first.
                names, slots = ",".join(target for target, _ in able), sum(slots for _, slots in able)
                together = self._make_way(job, choice, names, slots, options, feature)
                outlook = self.view.outside.outlook(together.shape)
                ways = [together] if outlook is None or outlook.start is not None else ways
            yield from ways

    def _make_way(
        self, job: Job, choice: Choice, target: str, slots: int, options: Sequence[str], feature: str
    ) -> Way:
        """One way; with several partitions in ``target`` the job starts in whichever is first."""
        prediction = self._slowest_prediction(job, choice, target, feature)
        limit = self._choose_walltime(job, prediction)
        return Way(choice, Shape(target, choice.request, limit, tuple(options)), slots, prediction)

    def _model_of(self, options: Sequence[str]) -> str:
        """The CPU model that ``--constraint`` names, if nodes have that feature as their model."""
        feature = constraint_of(options)
        return feature if any(feature == g.node.cpu_model for g in self.view.cluster.groups) else ""

    def _slowest_prediction(self, job: Job, choice: Choice, target: str, model: str) -> Prediction | None:
        """Of the device classes of the partition the slowest: which of them it will be is not known here."""
        classes = classes_in(self.view.cluster, choice, target, model)
        found = [self.view.predict(job, choice.implementation, choice.request, one) for one in classes]
        known = [prediction for prediction in found if prediction is not None]
        return max(known, key=lambda prediction: prediction.expected, default=None)

    def _choose_walltime(self, job: Job, prediction: Prediction | None) -> Seconds | None:
        """The user's, or with ``cut`` the upper end of the prediction in whole minutes where it is less."""
        own = job.walltime
        if not self.policy.cut or not job.app.restartable or self.view.outside.was_cut_short(job.id):
            return own
        if prediction is None or prediction.samples < self.policy.samples or prediction.upper == inf:
            return own
        learned = ceil(max(prediction.upper, prediction.expected) / MINUTE) * MINUTE
        return learned if own is None else min(own, learned)

    # ------------------------------------------------------------------------------------ when they start

    def _inquire_shapes(self, shapes: Iterable[Shape]) -> Iterator[Decision]:
        """Query those of which nothing is known, or no more; each once."""
        for shape in shapes:
            if shape not in self.queried and self._is_missing(shape):
                self.queried.add(shape)
                yield Inquire(shape)

    def _is_missing(self, shape: Shape) -> bool:
        outlook = self.view.outside.outlook(shape)
        return outlook is None or self.view.now >= outlook.asked_at + self.policy.fresh

    def _with_forecast_start(self, way: Way) -> Way:
        """The way with its start: the outside scheduler's answer, put off by what was handed over since."""
        outlook = self.view.outside.outlook(way.shape)
        if outlook is None or outlook.start is None:
            return way
        load = self._competing_load(way.shape, outlook.asked_at)
        turns = load.count_turns(way.slots, outlook.room)
        start = max(self.view.now, outlook.start)
        bounds, learned = (start, start), False
        if not self.policy.passive:
            requested, foreseen = outlook.asked_at, outlook.start - outlook.asked_at
            delay = self.learned_delay(way.competing_line, outlook.used)
            start = max(self.view.now, requested + delay.expected * foreseen)
            low, high = (requested + part * foreseen + load.mean * turns for part in (delay.low, delay.high))
            bounds, learned = (low, high), delay.seen > 0
        return replace(way, start=start + load.mean * turns, bounds=bounds, learned=learned, turns=turns)

    def _competing_load(self, shape: Shape, since: Seconds) -> _Load:
        """What competes with such jobs: jobs on devices with each other, and those without."""
        devices = bool(shape.request.devices)
        key = (shape.target, devices, since)
        load = self.loads.get(key)
        if load is None:
            load = self.loads[key] = _Load()
            for sent in self.view.outside.handed_over(shape.target, since):
                places = dict(partitions_for(self.view.cluster, sent.request))
                slots = sum(places.get(name, 0) for name in shape.target.split(",")) or 1
                if bool(sent.request.devices) == devices:
                    load.add(slots, sent.expected)
        return load

    # ---------------------------------------------------------------------------------------- the decision

    def _choose_best(self, job: Job, ways: Sequence[Way]) -> tuple[Way, str]:
        """What was never tried first, once; then the earliest end, ties the shorter run; and why."""
        untried = [
            way
            for way in ways
            if not self._was_tried(job, way)
            and (job.app.name, way.choice.implementation.name) not in self.trying
        ]
        if untried and len({way.choice for way in ways}) > 1:
            return min(untried, key=_by_start), UNTRIED
        known = [way for way in ways if way.prediction is not None]
        if known:
            first = min(known, key=lambda way: (way.end, way.run))
            if self.policy.passive:
                return first, ENDS_FIRST
            best = self._choose_surest(known)
            return best, ENDS_FIRST if best.end == first.end else FASTEST
        return min(ways, key=_by_start), "nothing is known of its run times, starts first"

    def _choose_surest(self, ways: Sequence[Way]) -> Way:
        """The fastest, unless another surely ends before it; among nearly as fast ones the earlier end."""
        shortest = min(way.run for way in ways)
        best = min((way for way in ways if way.run <= NEAR * shortest), key=lambda way: (way.end, way.run))
        for way in sorted(ways, key=lambda way: way.end):
            if self._is_free(way):
                sooner = way.end < best.end
            else:
                sooner = way.bounds[1] + way.run < best.bounds[0] + best.run
            best = way if sooner else best
        return best

    def _was_tried(self, job: Job, way: Way) -> bool:
        name, runs = way.choice.implementation.name, self.view.runtimes.runs
        classes = classes_in(self.view.cluster, way.choice, way.shape.target)
        return any(runs(job.app.name, name, device) for device in classes)


def in_turns(decisions: Sequence[Decision]) -> list[Decision]:
    """The lines side by side, each in its order: the jobs of one do not wait behind all those of another.

    In Slurm a job that does not fit keeps back what comes behind it in its partition, for devices or not.
    """
    lines = [(d.target, bool(d.request.devices)) if isinstance(d, Submit) else None for d in decisions]
    counts, seen = Counter(lines), Counter[tuple[str, bool] | None]()
    places: list[float] = []
    for line in lines:
        places.append(seen[line] / counts[line])
        seen[line] += 1
    return [decisions[n] for n in sorted(range(len(decisions)), key=places.__getitem__)]


def _by_start(way: Way) -> tuple[Seconds, int, bool]:
    """Earlier starts first; of equal ones those on devices (as Gregg 2011, section 5.2, has it)."""
    return way.start, way.turns, not way.shape.request.devices
