"""Looking ahead with gangs that can be run in several ways: their order and their molding, annealed.

At each event all waiting jobs (the first `WINDOW`) with all their ways to run are put into one plan; what it
starts now is started, nothing is promised. The model is that of Ravi 2012, section III.B: each CPU pool and
each device is used by one job at a time and has one time at which it will be free; a pool of which jobs take
parts is divided into lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

from dovetail.files.arrays import Bools, Ints, np
from dovetail.interfaces import Shadow, View
from dovetail.kernels.molding import Aim, Gangs, anneal, where
from dovetail.model import (
    CPU,
    HOST_CPUS,
    Choice,
    Decision,
    Dequeue,
    Intend,
    Job,
    Placed,
    Promise,
    Request,
    Seconds,
    Start,
    bit_indices,
    predicted_seconds,
)
from dovetail.model.fitting import cpus_on
from dovetail.policies.lookahead_units import CAUTION, LEAST_SLOWDOWN, Objective
from dovetail.policies.parts.ready_times import shape_of

WINDOW = 64
"""Waiting jobs that are planned, the others come after them."""
MOST_LANES = 16


class Option(NamedTuple):
    """A way to run a job, and how long that is expected to take."""

    choice: Choice
    seconds: Seconds


def plan_gangs(view: View, objective: Objective, decodes: int, age: Seconds) -> list[Decision]:
    """Plan what waits and start what the plan starts now."""
    bound = [job for fifo in view.device_queues.values() for job, _ in fifo]
    unbound: list[Decision] = [Dequeue(job.id) for job in bound]
    waiting = sorted([*bound, *view.queue], key=lambda job: (job.submit_time, job.index))
    machine = _Machine(view, waiting)
    promise = next(iter(view.reservations.values()), None)
    promised = None if promise is None else promise.job
    ranked = _urgent_first(view, waiting, promised, age)
    jobs = list(islice((job for job in ranked if machine.could_run(job)), WINDOW))
    if not jobs or not machine.any_free():
        return unbound
    # Promised and overdue jobs keep their places in front: the search only orders the rest.
    fixed = sum(job is promised or view.now - job.submit_time > age for job in jobs)
    options = _timed_options(view, jobs, machine)
    gangs = _make_gangs(machine, options)
    aim = _search_aim(objective, options)
    orders, picks = _initial_plans(options, fixed)
    last = _last_plan(view, jobs, options, fixed)
    # The plan in force is the first candidate: without a better one nothing changes.
    orders, picks = np.vstack([last[0], orders]), np.vstack([last[1], picks])
    # A seed from the queue itself: the same queue is planned the same way in a replay.
    seed = len(jobs) * 1_000_003 + jobs[0].index * 7919 + jobs[-1].index
    order, option, _ = anneal(
        machine.ready, machine.last, gangs, aim, orders, gangs.bounds[:-1] + picks, fixed, decodes, seed
    )
    starts, chosen = where(machine.ready, gangs, order, option)
    room = _Room(view, promise)
    decisions = [*room.kept]
    for j in order:
        if starts[j] <= 0.0:
            choice = options[j][option[j] - gangs.bounds[j]].choice
            mask = sum(1 << int(node) for node in chosen[j] if node >= 0)
            decisions += room.start(jobs[j], choice, mask)
    # The plan counts devices and CPUs alone: an idle machine that starts nothing would wait for ever.
    if not decisions and not view.running:  # what the plan does not count, such as memory, is in its way
        decisions += next(filter(None, (room.start(j, c, -1) for j in jobs for c in j.choices)), [])
    intentions = [
        _make_intention(view, jobs[j], options[j][option[j] - gangs.bounds[j]], float(starts[j]))
        for j in order
    ]
    return [*unbound, *intentions, *decisions]


def _urgent_first(view: View, jobs: Sequence[Job], promised: Job | None, age: Seconds) -> list[Job]:
    """Who was promised a start, who has waited too long, by priority; otherwise as they were submitted."""
    return sorted(
        jobs, key=lambda job: (job is not promised, view.now - job.submit_time <= age, -job.priority)
    )


def _last_plan(
    view: View, jobs: Sequence[Job], options: Sequence[Sequence[Option]], fixed: int
) -> tuple[Ints, Ints]:
    """The plan in force, then the new jobs; each as it is meant to run, the new ones the fastest way."""
    places = {job: place for place, job in enumerate(view.intended)}
    order = sorted(range(len(jobs)), key=lambda j: (j >= fixed, places.get(jobs[j].id, len(places)), j))
    picks = [_least_costly(row, lambda o: o.seconds) for row in options]
    for j, job in enumerate(jobs):
        meant = view.intended.get(job.id)
        for k, option in enumerate(options[j]):
            choice = option.choice
            if meant and (choice.implementation.name, choice.request.nodes) == (
                meant.implementation,
                meant.nodes,
            ):
                picks[j] = k
    return np.array(order), np.array(picks)


def _make_intention(view: View, job: Job, option: Option, start: Seconds) -> Intend:
    name, nodes = option.choice.implementation.name, option.choice.request.nodes
    why = f"planned as {name} on {nodes} node{'s' * (nodes > 1)} from {view.now + start:.1f} s on"
    return Intend(job.id, name, nodes, view.now + start, why)


class _Room:
    """What is free now for a plan to start jobs on.

    A promise that can be kept now is kept: its start is in ``kept``. Else nothing starts that delays it.
    """

    def __init__(self, view: View, promise: Promise | None) -> None:
        self.view, self.free = view, view.free()
        self.promised: Job | None = None
        self.kept: list[Start] = []
        self._shadow: Shadow | None = None
        if promise is not None:
            self.promised = promise.job
            allocation = self.free.claim(promise.allocation.request)
            if allocation is None:
                self._shadow = view.shadow(promise.allocation.request, self.free, [])
            else:
                self.kept.append(Start(promise.job.id, promise.implementation.name, allocation))

    def start(self, job: Job, choice: Choice, mask: int) -> list[Start]:
        """Start the job on these nodes if they are free, on others beside a promise; an empty list if not."""
        # The promised job starts by its promise, not by a plan.
        if job is self.promised:
            return []  # it has begun, or cannot yet
        request = choice.request
        if self._shadow is None:
            allocation = self.free.fit(request, within=mask)
            if allocation is not None:
                self.free.take(allocation)
        else:
            bound = self.view.bound(job, choice.implementation, request)
            allocation = self._shadow.backfill(request, self.view.now + bound)
        return [] if allocation is None else [Start(job.id, choice.implementation.name, allocation)]


def _timed_options(view: View, jobs: Sequence[Job], machine: _Machine) -> list[list[Option]]:
    """Every way to run each job here; where nothing is known, it counts as slow as caution demands."""
    known = [
        [(c, predicted_seconds(view, job, c)) for c in job.choices if machine.able_nodes(c.request).any()]
        for job in jobs
    ]
    bests = [min((s for _, s in row if s is not None), default=inf) for row in known]
    finite = [best for best in bests if best < inf]
    typical = float(np.median(finite)) if finite else 1.0

    def assumed_seconds(choice: Choice, best: Seconds) -> Seconds:
        if best < inf:
            return CAUTION * best
        return typical * (CAUTION if choice.implementation.kind == CPU else 1.0)

    return [
        [Option(c, assumed_seconds(c, best) if seconds is None else seconds) for c, seconds in row]
        for row, best in zip(known, bests, strict=True)
    ]


def _search_aim(objective: Objective, options: Sequence[Sequence[Option]]) -> Aim:
    n = len(options)
    if objective == "makespan":
        return Aim(np.full(n, 0.15 / n), own=1.0, stretch=1.0, level=0.05)
    if objective == "slowdown":
        best = np.array([min(option.seconds for option in row) for row in options])
        weight = 1.0 / np.maximum(best, LEAST_SLOWDOWN)
        return Aim(weight / weight.sum(), own=1.0, stretch=0.05, level=0.05)
    return Aim(np.full(n, 1.0 / n), own=0.0 if objective == "wait" else 1.0, stretch=0.05, level=0.05)


def _initial_plans(options: Sequence[Sequence[Option]], fixed: int) -> tuple[Ints, Ints]:
    """Plans to begin with: three orders by two ways to choose; the first ``fixed`` jobs stay in front."""
    n = len(options)
    fastest = np.array([_least_costly(row, lambda o: o.seconds) for row in options])
    thrifty = np.array(
        [_least_costly(row, lambda o: o.seconds * _count_units(o.choice.request)) for row in options]
    )
    seconds = np.array([row[k].seconds for row, k in zip(options, fastest, strict=True)])
    nodes = np.array([row[k].choice.request.nodes for row, k in zip(options, fastest, strict=True)])
    front, back = np.arange(fixed), np.arange(fixed, n)
    orders = [
        back[np.lexsort((seconds[back], nodes[back]))],  # grouped and sorted, as FMS does
        back[np.argsort(-seconds[back], kind="stable")],
        back[np.argsort(seconds[back], kind="stable")],
        back,
    ]
    rows = [(np.concatenate([front, order]), pick) for order in orders for pick in (fastest, thrifty)]
    return np.array([order for order, _ in rows]), np.array([pick for _, pick in rows])


def _least_costly(row: Sequence[Option], cost: Callable[[Option], float]) -> int:
    return min(range(len(row)), key=lambda k: cost(row[k]))


def _count_units(request: Request) -> float:
    """Pools and devices that a gang holds."""
    return request.nodes * ((request.cpus not in (0, HOST_CPUS)) + request.gpus)


class _Machine:
    """When each lane of each pool, and each device, will be free, in seconds from now."""

    def __init__(self, view: View, waiting: Sequence[Job]) -> None:
        self.view = view
        nodes = view.cluster.nodes
        self.lanes = _count_lanes(view, waiting)
        devices = max((len(node.devices) for node in nodes), default=0)
        self.there = np.array([n not in view.cluster.gone for n in range(len(nodes))])
        self.pools = np.array([[node.cpus > 0] * self.lanes for node in nodes])
        held = np.arange(devices) < np.array([[len(node.devices)] for node in nodes])
        self.ready = np.where(np.hstack([self.pools, held]) & self.there[:, None], 0.0, inf)
        for placed in sorted(view.running.values(), key=self._remaining_seconds):
            self._hold_running(placed)
        finite = self.ready[np.isfinite(self.ready)]
        self.last = float(finite.max()) if len(finite) else 0.0

    def _remaining_seconds(self, placed: Placed) -> Seconds:
        spent = self.view.now - placed.start_time
        expected = spent * 2 if placed.predicted is None else placed.predicted
        return max(expected - spent, spent - expected, 1e-9)  # it holds what it has at this instant

    def _hold_running(self, placed: Placed) -> None:
        left = self._remaining_seconds(placed)
        for part in placed.allocation.parts:
            for n in bit_indices(part.nodes):
                if n in self.view.cluster.gone:
                    continue
                if part.cpus:
                    wanted = self.lanes_of(part.cpus, n)
                    first = np.argsort(self.ready[n, : self.lanes], kind="stable")[:wanted]
                    self.ready[n, first] = np.maximum(self.ready[n, first], left)
                for d in part.devices:
                    self.ready[n, self.lanes + d] = max(self.ready[n, self.lanes + d], left)

    def lanes_of(self, cpus: int, node: int) -> int:
        """Lanes that so many CPUs of a node are."""
        return min(self.lanes, -(-cpus * self.lanes // max(1, self.view.cluster.nodes[node].cpus)))

    def able_nodes(self, request: Request) -> Bools:
        """The nodes that could give one node's share if nothing ran."""
        able: Bools = shape_of(self.view.cluster, request.on(1)).able & self.there
        return able

    def allowed_columns(self, request: Request) -> Bools:
        """The columns of each node that may serve the request."""
        allowed: Bools = np.hstack([self.pools, shape_of(self.view.cluster, request.on(1)).eligible[:, 1:]])
        return allowed

    def could_run(self, job: Job) -> bool:
        """Whether enough nodes are there for one of the job's choices."""
        return any(int(self.able_nodes(c.request).sum()) >= c.request.nodes for c in job.choices)

    def any_free(self) -> bool:
        """Whether some lane or device is free now."""
        return bool((self.ready <= 0.0).any())


def _count_lanes(view: View, waiting: Sequence[Job]) -> int:
    """Into how many lanes pools are divided: as many of the narrowest requests as fit the smallest pool."""
    requests = {choice.request for job in waiting for choice in job.choices}
    requests |= {placed.allocation.request for placed in view.running.values()}
    partial = [request.cpus for request in requests if request.cpus > 0]
    pools = [node.cpus for node in view.cluster.nodes if node.cpus]
    if not partial or not pools:
        return 1
    return max(1, min(MOST_LANES, min(pools) // min(partial)))


def _make_gangs(machine: _Machine, options: Sequence[Sequence[Option]]) -> Gangs:
    """Options and shapes as arrays."""
    numbers: dict[Request, int] = {}
    rows = [option for row in options for option in row]
    shape = [numbers.setdefault(o.choice.request.on(1), len(numbers)) for o in rows]
    some = machine.view.cluster.nodes[0]
    pool = [
        machine.lanes_of(cpus_on(request, some.cpus, some.host_cpus), 0) if some.cpus else 0
        for request in numbers
    ]
    return Gangs(
        machine.lanes,
        np.array(shape),
        np.array([o.choice.request.nodes for o in rows]),
        np.array([o.seconds for o in rows], np.float64),
        np.cumsum([0, *(len(row) for row in options)]),
        np.array(pool),
        np.array([shape_of(machine.view.cluster, request).count for request in numbers]),
        np.stack([machine.allowed_columns(request) for request in numbers]),
        np.stack([machine.able_nodes(request) for request in numbers]),
    )
