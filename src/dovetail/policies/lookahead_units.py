"""Looking ahead with one-node jobs on unlike units: plan all that is known, keep the plan in the FIFOs.

A unit is a node's CPU pool or one device. A plan gives each unit its jobs and their order; it stands in
the units' FIFOs, so nothing is remembered between calls. Heads are started as long as everything goes as
predicted; whatever else happens makes a new plan, of which the one in force is the first candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal, NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.interfaces import Free, View
from dovetail.kernels.assigning import least_makespan, least_total
from dovetail.model import (
    CPU,
    Choice,
    Decision,
    Dequeue,
    Enqueue,
    Intend,
    Job,
    JobId,
    Placed,
    Request,
    Seconds,
    Start,
    Unit,
    Wait,
    bit_indices,
    class_on,
    fits_unit,
    one_node_choices,
)
from dovetail.model.fitting import cpus_on, share_taken, units_taken
from dovetail.policies.parts.backlog import NOWHERE, start_sharers
from dovetail.policies.parts.sharing import REACH, Sharing
from dovetail.policies.parts.trials import nothing_known

Objective = Literal["makespan", "response", "wait", "slowdown"]


KEPT = 1e-3
"""An end within this part of its prediction is no news."""
CAUTION = 8.0
"""An untried class counts as this many times as slow as the best known one, halved with every run."""
LEAST_SLOWDOWN = 10.0
"""Seconds below which a job's slowdown is not counted (bounded slowdown)."""
MOST_LANES = 64


def on_one_unit(job: Job) -> bool:
    """Whether each way to run the job takes one CPU pool, or one device, of one node."""
    return all(
        choice.request.nodes == 1
        and choice.request.gpus <= 1
        and not choice.implementation.kind.startswith(f"{CPU}+")
        for choice in job.choices
    )


def go_on(view: View) -> list[Decision] | None:
    """Start the heads whose turn it is; ``None`` if something is not as the plan in the FIFOs had it."""
    changes, now = view.changes, view.now
    if changes.submitted or changes.otherwise or len(view.queue):
        return None
    # A run that took another time than predicted makes the plan stale.
    if any(not _as_predicted(placed, now) for placed in changes.ended):
        return None
    units, decisions = view.cluster.units, list[Decision]()
    free = view.free() if view.device_queues else None
    sharing = Sharing(view) if _some_share(view) else None
    # Devices before CPU pools: a head on a device may need CPUs of the pool beside it.
    for index in sorted(view.device_queues, key=lambda index: (units[index].device is None, index)):
        occupant = view.occupant(units[index])
        if occupant is not None and _has_overrun(occupant, now):
            return None
        assert free is not None
        decisions += _start_heads(view, units[index], free, sharing)
    return decisions


def _as_predicted(placed: Placed, now: Seconds) -> bool:
    if placed.predicted is None:
        return False
    return abs(now - placed.start_time - placed.predicted) <= KEPT * placed.predicted + 1e-9


def _has_overrun(placed: Placed, now: Seconds) -> bool:
    return placed.predicted is None or now - placed.start_time > (1 + KEPT) * placed.predicted


def _some_share(view: View) -> bool:
    """Whether a job waits that shares devices by what is learned."""
    return any(request.sharing for request in view.queue.requests()) or any(
        choice.request.sharing
        for fifo in view.device_queues.values()
        for job, _ in fifo
        for choice in job.choices
    )


def _start_heads(view: View, unit: Unit, free: Free, sharing: Sharing | None) -> Iterable[Decision]:
    if sharing is not None:
        yield from start_sharers(sharing, free, view.device_queues[unit.index], unit)
        return
    for job, implementation in view.device_queues[unit.index]:
        request = next(c.request for c in one_node_choices(job) if c.implementation is implementation)
        allocation = free.fit_unit(request, unit)
        if allocation is None:
            return
        free.take(allocation)
        yield Start(job.id, implementation.name, allocation)


@dataclass(frozen=True, slots=True)
class Lane:
    """A part of a unit that runs one job at a time; a CPU pool has several where jobs take few CPUs.

    A job that takes a greater share of the unit than ``share`` counts as so much longer.
    """

    unit: int
    share: float


class UnitTimes:
    """What is predicted or assumed of every job on every unit, in seconds; infinite where it cannot run."""

    def __init__(self, view: View, jobs: Sequence[Job]) -> None:
        self.view = view
        self.jobs = jobs
        units = view.cluster.units
        self.times = np.full((len(jobs), len(units)), inf)
        self.shares = np.ones((len(jobs), len(units)))
        self.picks = np.full((len(jobs), len(units)), -1, np.int64)
        self.assumed = np.zeros((len(jobs), len(units)), np.bool_)
        self._groups: dict[tuple[str, Request], list[tuple[Ints, Floats]]] = {}
        known = [self._known_seconds(job) for job in jobs]
        bests = [min(times.values()) for times in known if times]
        # The median of the best times stands in for apps that never ran.
        self.typical = float(np.median(bests)) if bests else 1.0
        for row, (job, times) in enumerate(zip(jobs, known, strict=True)):
            self._fill_row(row, job, times)

    def _known_seconds(self, job: Job) -> dict[tuple[int, int], Seconds]:
        """Predicted seconds by (choice, group of units)."""
        found: dict[tuple[int, int], Seconds] = {}
        units = self.view.cluster.units
        for c, choice in enumerate(job.choices):
            for g, (indices, _) in enumerate(self._units_for(choice)):
                device = class_on(choice.implementation, units[int(indices[0])])
                prediction = self.view.predict(job, choice.implementation, choice.request, device)
                if prediction is not None:
                    found[c, g] = prediction.expected
        return found

    def _units_for(self, choice: Choice) -> list[tuple[Ints, Floats]]:
        """The units on which a choice could run, those of a class together, and its share of each."""
        key = choice.implementation.kind, choice.request
        if key not in self._groups:
            cluster = self.view.cluster
            by_class: dict[object, list[tuple[int, float]]] = {}
            for unit in cluster.units:
                if fits_unit(cluster, choice.request, unit):
                    place = unit.index, _unit_share(self.view, choice.request, unit)
                    by_class.setdefault(class_on(choice.implementation, unit), []).append(place)
            self._groups[key] = [
                (np.array([unit for unit, _ in places]), np.array([share for _, share in places]))
                for places in by_class.values()
            ]
        return self._groups[key]

    def _fill_row(self, row: int, job: Job, known: dict[tuple[int, int], Seconds]) -> None:
        best = min(known.values(), default=None)
        for c, choice in enumerate(job.choices):
            for g, (indices, shares) in enumerate(self._units_for(choice)):
                seconds = known.get((c, g))
                # The least over the choices: a unit runs a job in the way that is fastest there.
                if seconds is None:
                    seconds = self._assumed_seconds(job, choice, best)
                better = indices[seconds < self.times[row, indices]]
                self.times[row, better] = seconds
                self.picks[row, better] = c
                self.assumed[row, better] = (c, g) not in known
                self.shares[row, indices] = shares

    def _assumed_seconds(self, job: Job, choice: Choice, best: Seconds | None) -> Seconds:
        """Where nothing is known: the typical time, longer on a CPU; else what is known, with caution."""
        if best is None:
            return self.typical * (CAUTION if choice.implementation.kind == CPU else 1.0)
        runtimes, cluster = self.view.runtimes, self.view.cluster
        runs = max(
            runtimes.runs(job.app.name, implementation.name, device)
            for implementation in job.app.implementations
            for device in cluster.device_classes(implementation.kind)
        )
        # Caution halves with each run elsewhere, so that an untried class is tried in the end.
        return best * max(1.0, CAUTION / 2.0 ** min(max(0, runs - 1), 60))

    def pin_trials(self, age: Seconds) -> set[int]:
        """Keep to each idle unit a job of which nothing is known and no other of whose app runs; their rows.

        No job of higher priority, or that has waited too long, is passed over for that.
        """
        view, pinned = self.view, set[int]()
        rank = [(view.now - job.submit_time > age, job.priority) for job in self.jobs]
        first = max(rank)
        rows = [
            row
            for row, job in enumerate(self.jobs)
            if rank[row] == first and len(job.choices) > 1 and nothing_known(view, job)
        ]
        # One trial of an app at a time: a second one would teach nothing new.
        trying = {placed.job.app.name for placed in view.running.values()}
        for unit in sorted(view.cluster.units, key=lambda unit: unit.kind == CPU):
            for row in rows if view.occupant(unit) is None else ():
                app = self.jobs[row].app.name
                if app not in trying and np.isfinite(self.times[row, unit.index]):
                    pinned.add(row)
                    trying.add(app)
                    self.times[row, np.arange(self.times.shape[1]) != unit.index] = inf
                    break
        return pinned

    @cached_property
    def usable_lanes(self) -> list[Lane]:
        """The units that some job could use, as lanes."""
        lanes: list[Lane] = []
        for unit in range(self.times.shape[1]):
            able = np.isfinite(self.times[:, unit])
            if able.any():
                width = float(np.mean(self.shares[able, unit]))
                count = max(1, min(MOST_LANES, int(1 / width + 1e-9)))
                lanes += [Lane(unit, 1.0 / count)] * count
        return lanes

    def ready_times(self) -> Floats:
        """Seconds until each lane is free, given what runs."""
        busy: dict[int, list[tuple[Seconds, float]]] = {}
        for placed in self.view.running.values():
            left = self.left(placed)
            for unit, share in self._held_units(placed):
                busy.setdefault(unit, []).append((left, share))
        ready = np.zeros(len(self.usable_lanes))
        for at, lane in enumerate(self.usable_lanes):
            if at and self.usable_lanes[at - 1].unit == lane.unit:
                continue
            places = range(at, at + round(1 / lane.share))
            for left, share in sorted(busy.get(lane.unit, ()), reverse=True):
                for _ in range(max(1, round(share / lane.share))):  # the lanes that are free first so far
                    place = min(places, key=lambda p: (float(ready[p]), p))
                    ready[place] = max(left, float(ready[place]))
        return ready

    @cached_property
    def _unit_at(self) -> dict[tuple[int, int | None], int]:
        return {(unit.node, unit.device): unit.index for unit in self.view.cluster.units}

    def _held_units(self, placed: Placed) -> Iterable[tuple[int, float]]:
        """The units that a running job uses, and its share of each."""
        for part in placed.allocation.parts:
            for node in bit_indices(part.nodes):
                pool = self._unit_at.get((node, None))
                if part.cpus and pool is not None:
                    yield pool, min(1.0, part.cpus / self.view.cluster.nodes[node].cpus)
                devices = self.view.cluster.nodes[node].devices
                for device in part.devices:
                    share = share_taken(devices[device], part.units, part.gpu_memory)
                    share = 1.0 if placed.allocation.request.sharing else share
                    yield self._unit_at[node, device], max(share, 1e-3)

    def left(self, placed: Placed) -> Seconds:
        """Seconds that a running job is taken to need: as long again as it overran, or as it ran unknown."""
        spent = self.view.now - placed.start_time
        expected = placed.predicted
        if expected is None:
            slow = CAUTION if placed.implementation.kind == CPU else 1.0
            return max(slow * self.typical - spent, spent)
        return max(expected - spent, spent - expected)


def _unit_share(view: View, request: Request, unit: Unit) -> float:
    """The part of a unit that a request takes; of who may share a device by what is learned all of it."""
    if request.sharing:
        return 1.0
    node = view.cluster.nodes[unit.node]
    if unit.device is not None:
        device = node.devices[unit.device]
        return max(share_taken(device, units_taken(request, device), request.gpu_memory), 1e-3)
    cpus = cpus_on(request, node.cpus, node.host_cpus)
    memory = request.memory / node.memory if node.memory else 0.0
    return min(1.0, max(cpus / node.cpus, memory, 1e-3))


class PlannedJob(NamedTuple):
    """A job's place in a plan: how it runs, its start in seconds from now, and why there."""

    job: Job
    choice: Choice
    start: Seconds
    why: str


Sequences = dict[int, list[PlannedJob]]
"""For each unit its jobs in order."""


def plan_units(view: View, objective: Objective, budget: int, age: Seconds) -> list[Decision]:
    """A new plan for everything that waits, and the decisions that put it in force."""
    jobs, fifo_of = _waiting_jobs(view)
    if not jobs:
        return []
    table = UnitTimes(view, jobs)
    able = np.isfinite(table.times).any(axis=1)
    stranded = [job for job, can in zip(jobs, able, strict=True) if not can]
    decisions: list[Decision] = [Wait(job.id, NOWHERE) for job in stranded]
    decisions += [Dequeue(job.id) for job in stranded if job.id in fifo_of]
    if stranded:
        table = UnitTimes(view, [job for job, can in zip(jobs, able, strict=True) if can])
    if not table.jobs:
        return decisions
    plan = _search_sequences(table, fifo_of, objective, budget, age)
    return decisions + _put_in_force(view, plan, fifo_of)


def _waiting_jobs(view: View) -> tuple[list[Job], dict[JobId, int]]:
    """All waiting jobs by submission (time, then file order), and the unit of those in a FIFO."""
    bound = {job.id: unit for unit, fifo in view.device_queues.items() for job, _ in fifo}
    jobs = [job for fifo in view.device_queues.values() for job, _ in fifo]
    jobs = sorted([*jobs, *view.queue], key=lambda job: (job.submit_time, job.index))
    return jobs, bound


def _search_sequences(
    table: UnitTimes, fifo_of: dict[JobId, int], objective: Objective, budget: int, age: Seconds
) -> Sequences:
    view, jobs, trials, lanes = table.view, table.jobs, table.pin_trials(age), table.usable_lanes
    units = np.array([lane.unit for lane in lanes])
    share = np.array([lane.share for lane in lanes])
    times = np.ascontiguousarray(table.times[:, units] * np.maximum(1.0, table.shares[:, units] / share))
    ready = table.ready_times()
    classes = {unit.index: unit.device_class for unit in view.cluster.units}
    numbers = {device: n for n, device in enumerate(dict.fromkeys(classes.values()))}
    kinds = np.array([numbers[classes[lane.unit]] for lane in lanes])
    seed = len(jobs) * 1_000_003 + jobs[0].index * 7919 + jobs[-1].index
    before = _as_it_is(table, units, ready, times, fifo_of)
    best = times.min(axis=1)
    weight = 1.0 / np.maximum(best, LEAST_SLOWDOWN) if objective == "slowdown" else np.ones(len(jobs))
    if objective == "makespan":
        assigned, _, _ = least_makespan(times, ready, kinds, before, budget, seed)
    else:
        own = 0.0 if objective == "wait" else 1.0
        assigned = least_total(times, ready, weight, own, kinds, before, budget, seed)

    def turn_key(row: int) -> tuple[bool, float, bool, bool, float]:
        """Who has waited too long goes first, then priority, then longest or shortest first.

        What is tried for the first time goes before, the shortest first: all later plans know more.
        """
        seconds = float(times[row, assigned[row]])
        overdue = view.now - jobs[row].submit_time > age
        known = not table.assumed[row, units[assigned[row]]]
        own_turn = -seconds if known and objective == "makespan" else seconds / float(weight[row])
        return not overdue, -jobs[row].priority, row not in trials, known, 0.0 if overdue else own_turn

    plan: Sequences = {}
    at = ready.copy()
    end_of_plan = ready + np.bincount(assigned, times[np.arange(len(jobs)), assigned], len(lanes))
    for row in sorted(range(len(jobs)), key=turn_key):
        lane = int(assigned[row])
        unit = lanes[lane].unit
        start, end = float(at[lane]), float(at[lane] + times[row, lane])
        elsewhere = np.where(units == unit, inf, end_of_plan + times[row])
        why = _explain_plan(view, unit, start, end, units[elsewhere.argmin()], float(elsewhere.min()))
        choice = jobs[row].choices[int(table.picks[row, unit])]
        plan.setdefault(unit, []).append(PlannedJob(jobs[row], choice, start, why))
        at[lane] = end
    for turns in plan.values():
        turns.sort(key=lambda turn: turn.start)  # lanes of one unit into one line; a stable sort
    return plan


def _explain_plan(view: View, unit: int, start: Seconds, end: Seconds, other: int, elsewhere: Seconds) -> str:
    """What the plan expects for a job, and what its best alternative would mean."""
    units = view.cluster.units
    plans = f"planned on {units[unit].name} from {view.now + start:.1f} s on"
    if elsewhere == inf:
        return plans
    verdict = "later" if elsewhere >= end else "sooner, and others later"
    return f"{plans}; at the end of {units[other].name} it would end {abs(elsewhere - end):.3g} s {verdict}"


def _as_it_is(table: UnitTimes, units: Ints, ready: Floats, times: Floats, fifo_of: dict[JobId, int]) -> Ints:
    """The plan in force with the new jobs where they end first; empty if there is none."""
    if not fifo_of:
        return np.empty(0, np.int64)
    at = ready.copy()
    assigned = np.empty(len(table.jobs), np.int64)
    rows = sorted(range(len(table.jobs)), key=lambda row: table.jobs[row].id not in fifo_of)
    for row in rows:
        unit = fifo_of.get(table.jobs[row].id)
        lanes = np.arange(len(units)) if unit is None else np.flatnonzero(units == unit)
        ends = at[lanes] + times[row, lanes] if len(lanes) else np.array([inf])
        if not np.isfinite(ends).any():  # it cannot stay there
            lanes = np.arange(len(units))
            ends = at + times[row]
        assigned[row] = lanes[int(np.argmin(ends))]
        at[assigned[row]] += times[row, assigned[row]]
    return assigned


def _pair_partners(sharing: Sharing, view: View, plan: Sequences) -> None:
    """Put the partner of who is on a device, or will be first, before others that come later there."""
    trial = sharing.copy()
    for index, row in plan.items():
        unit = view.cluster.units[index]
        if unit.device is None or not row:
            continue
        first = 0
        if trial.is_empty(unit):
            trial.note_start(row[0].job, row[0].choice, unit)
            first = 1
        for at in range(first, min(len(row), first + REACH)):
            turn = row[at]
            if turn.choice.request.sharing and trial.may_join(turn.job, turn.choice, unit, within=at > first):
                trial.note_start(turn.job, turn.choice, unit)
                row.insert(first, row.pop(at))
                break


def _put_in_force(view: View, plan: Sequences, fifo_of: dict[JobId, int]) -> list[Decision]:
    """Dequeue what moved, start what fits now, enqueue the rest; devices before the CPU pools beside them."""
    sharing = Sharing(view) if _some_share(view) else None
    if sharing is not None:
        _pair_partners(sharing, view, plan)
    kept: dict[int, int] = {}
    decisions: list[Decision] = []
    for unit, fifo in view.device_queues.items():
        row = plan.get(unit, [])
        same = 0
        while same < min(len(fifo), len(row)) and fifo[same][0] is row[same].job:
            if fifo[same][1] is not row[same].choice.implementation:
                break
            same += 1
        kept[unit] = same
        decisions += [Dequeue(job.id) for job, _ in fifo[same:]]
    free = view.free()
    units = view.cluster.units
    starts: list[Decision] = []
    binds: list[Decision] = []
    meant: list[PlannedJob] = []
    for index in sorted(plan, key=lambda index: (units[index].device is None, index)):
        row = plan[index]
        begun = 0
        for turn in row:
            allocation = free.fit_unit(turn.choice.request, units[index])
            if allocation is None:
                break
            if sharing is not None:
                if turn.choice.request.sharing and not sharing.may_join(turn.job, turn.choice, units[index]):
                    break
                sharing.note_start(turn.job, turn.choice, units[index])
            free.take(allocation)
            starts.append(Start(turn.job.id, turn.choice.implementation.name, allocation))
            begun += 1
        meant += row[kept.get(index, 0) :]
        waiting = row[max(begun, kept.get(index, 0)) :]
        binds += [Enqueue(turn.job.id, turn.choice.implementation.name, index) for turn in waiting]
    plans = [Intend(t.job.id, t.choice.implementation.name, 1, view.now + t.start, t.why) for t in meant]
    return [*decisions, *plans, *starts, *binds]
