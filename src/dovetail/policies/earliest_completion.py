"""Guest of another scheduler: each job goes the way on which it is predicted to end first.

Not from a paper: the rule of minimum completion time (Maheswaran et al. 1999, section 3.2), where the start
is what the outside scheduler foresees and the run time is what was learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Choice,
    Cluster,
    Decision,
    DeviceClass,
    Inquire,
    Job,
    Node,
    Prediction,
    Request,
    Seconds,
    Shape,
    Submit,
    Wait,
)
from dovetail.model.batch_options import partition_of

__all__ = ["EarliestCompletion"]

MINUTE = 60.0
"""Outside schedulers count walltimes in minutes."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a job: as that, there, from ``start`` on.

    ``slots`` such jobs can run there at once; ``prediction`` is ``None`` where nothing is known.
    """

    choice: Choice
    shape: Shape
    slots: int
    prediction: Prediction | None
    start: Seconds = inf
    turns: int = 0  # of such jobs that were handed over and come before

    @property
    def end(self) -> Seconds:
        """When the job is predicted to end so."""
        return inf if self.prediction is None else self.start + self.prediction.expected

    def words(self, now: Seconds) -> str:
        """Both numbers, for people."""
        nodes = "" if self.choice.request.nodes == 1 else f" on {self.choice.request.nodes} nodes"
        where = f"{self.choice.implementation.name}{nodes} in {self.shape.target}"
        wait = f"starts in {max(0.0, self.start - now):.3g} s"
        if self.prediction is None:
            return f"{where}: {wait}, never ran there"
        seconds = self.prediction.expected
        return f"{where}: {wait}, takes {seconds:.3g} s, ends in {self.end - now:.3g} s"


@dataclass(frozen=True)
class EarliestCompletion:
    """Hand each job over, in order, as what and to where it is predicted to end first.

    The start is the outside scheduler's own estimate, which is asked for again when it is ``fresh`` seconds
    old; what was handed over since is added. A way that was never tried is tried once. ``only`` restricts
    jobs to the implementations of that kind, where they have one (the static choice that others make).
    With ``cut`` a restartable job of whose way ``samples`` runs are known asks for the upper end of its
    prediction as its walltime, so that it can be backfilled; ended by that, it goes again with its own.
    """

    fresh: float = 60.0
    only: str = ""
    cut: bool = False
    samples: int = 20
    paper: ClassVar[str] = "Maheswaran et al. 1999, section 3.2, with foreseen starts"
    submits: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Ask what is not known, or no more; hand over the jobs of which all is known."""
        if not len(view.queue):
            return
        here = _Round(self, view)
        for job in view.queue:
            yield from here.place(job)


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

    def turns(self, slots: int, room: int) -> int:
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
    asked: set[Shape] = field(default_factory=set)
    loads: dict[tuple[str, bool, Seconds], _Load] = field(default_factory=dict)
    places: dict[Request, Sequence[tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is on its way for the first time."""
        for job, submitted in self.view.outside.submitted.items():
            self.trying.add((self.view.job(job).app.name, submitted.implementation))
        for placed in self.view.running.values():
            self.trying.add((placed.job.app.name, placed.implementation.name))

    def place(self, job: Job) -> Iterator[Decision]:
        """Hand the job over, or ask, or say what it waits for."""
        ways = list(self._ways(job))
        if not ways:
            yield Wait(job.id, self._nowhere(job))
            return
        missing = [way.shape for way in ways if self._is_missing(way.shape)]
        for shape in missing:
            if shape not in self.asked:
                self.asked.add(shape)
                yield Inquire(shape)
        if missing:
            yield Wait(job.id, "the cluster's scheduler is asked when it would start")
            return
        open_ways = [self._foreseen(way) for way in ways]
        open_ways = [way for way in open_ways if way.start < inf]
        if not open_ways:
            said = [self.view.outside.outlook(way.shape) for way in ways]
            why = next((o.why for o in said if o is not None and o.why), "it would never start")
            yield Wait(
                job.id, f"refused by the cluster's scheduler: {why}", self.view.now + self.policy.fresh
            )
            return
        yield self._hand_over(job, open_ways)

    def _nowhere(self, job: Job) -> str:
        """Why no partition can run it: the one that it asks for may not be there."""
        asked = partition_of(job.slurm)
        there = list(
            dict.fromkeys(name for group in self.view.cluster.groups for name in group.node.partitions)
        )
        if asked and not set(asked.split(",")) & set(there):
            return f"it asks for partition {asked}, and there are {', '.join(there)}"
        return "no partition has nodes that can run it"

    def _hand_over(self, job: Job, ways: Sequence[Way]) -> Submit:
        best, why = self._best(job, ways)
        shape, name = best.shape, best.choice.implementation.name
        expected = None if best.prediction is None else best.prediction.expected
        self.trying.add((job.app.name, name))
        for (target, devices, _), load in self.loads.items():
            if (target, devices) == (shape.target, bool(shape.request.devices)):
                load.add(best.slots, expected)
        others = "; ".join(way.words(self.view.now) for way in ways if way is not best)
        reason = f"{why}: {best.words(self.view.now)}" + (f"; against {others}" if others else "")
        return Submit(job.id, name, shape.request, shape.target, shape.walltime, reason)

    # ---------------------------------------------------------------------------------- the ways of a job

    def _ways(self, job: Job) -> Iterator[Way]:
        """Every choice in every partition that can run it."""
        static = [c for c in job.choices if c.implementation.kind == self.policy.only]
        asked = partition_of(job.slurm)
        for choice in static or job.choices:
            for target, slots in self._places(choice.request):
                if not asked or target in asked.split(","):
                    prediction = self._prediction(job, choice, target)
                    limit = self._walltime(job, prediction)
                    yield Way(choice, Shape(target, choice.request, limit, job.slurm), slots, prediction)

    def _places(self, request: Request) -> Sequence[tuple[str, int]]:
        known = self.places.get(request)
        if known is None:
            known = self.places[request] = places_for(self.view.cluster, request)
        return known

    def _prediction(self, job: Job, choice: Choice, target: str) -> Prediction | None:
        """Of the device classes of the partition the slowest: which of them it will be is not ours to say."""
        classes = classes_in(self.view.cluster, choice, target)
        found = [self.view.predict(job, choice.implementation, choice.request, one) for one in classes]
        known = [prediction for prediction in found if prediction is not None]
        return max(known, key=lambda prediction: prediction.expected, default=None)

    def _walltime(self, job: Job, prediction: Prediction | None) -> Seconds | None:
        """The user's, or with ``cut`` the upper end of the prediction in whole minutes where it is less."""
        own = job.walltime
        if not self.policy.cut or not job.app.restartable or self.view.outside.was_cut_short(job.id):
            return own
        if prediction is None or prediction.samples < self.policy.samples or prediction.upper == inf:
            return own
        learned = ceil(max(prediction.upper, prediction.expected) / MINUTE) * MINUTE
        return learned if own is None else min(own, learned)

    # ------------------------------------------------------------------------------------ when they start

    def _is_missing(self, shape: Shape) -> bool:
        outlook = self.view.outside.outlook(shape)
        return outlook is None or self.view.now - outlook.asked_at > self.policy.fresh

    def _foreseen(self, way: Way) -> Way:
        """The way with its start: the outside scheduler's answer, put off by what was handed over since."""
        outlook = self.view.outside.outlook(way.shape)
        if outlook is None or outlook.start is None:
            return way
        load = self._load(way.shape, outlook.asked_at)
        turns = load.turns(way.slots, outlook.room)
        return replace(way, start=max(self.view.now, outlook.start) + load.mean * turns, turns=turns)

    def _load(self, shape: Shape, since: Seconds) -> _Load:
        """What competes with such jobs: jobs on devices with each other, and those without."""
        devices = bool(shape.request.devices)
        key = (shape.target, devices, since)
        load = self.loads.get(key)
        if load is None:
            load = self.loads[key] = _Load()
            for sent in self.view.outside.handed_over(shape.target, since):
                slots = dict(self._places(sent.request)).get(shape.target, 1)
                if bool(sent.request.devices) == devices:
                    load.add(slots, sent.expected)
        return load

    # ---------------------------------------------------------------------------------------- the decision

    def _best(self, job: Job, ways: Sequence[Way]) -> tuple[Way, str]:
        """What was never tried first, once; then the earliest end, ties the shorter run; and why."""
        untried = [
            way
            for way in ways
            if not self._was_tried(job, way)
            and (job.app.name, way.choice.implementation.name) not in self.trying
        ]
        if untried and len({way.choice for way in ways}) > 1:
            return min(untried, key=_by_start), "tried for the first time"
        known = [way for way in ways if way.prediction is not None]
        if known:
            return min(known, key=lambda way: (way.end, way.end - way.start)), "ends first"
        return min(ways, key=_by_start), "nothing is known of its run times, starts first"

    def _was_tried(self, job: Job, way: Way) -> bool:
        name, runs = way.choice.implementation.name, self.view.runtimes.runs
        classes = classes_in(self.view.cluster, way.choice, way.shape.target)
        return any(runs(job.app.name, name, device) for device in classes)


def _by_start(way: Way) -> tuple[Seconds, int, bool]:
    """Earlier starts first; of equal ones those on devices (as Gregg 2011, section 5.2, has it)."""
    return way.start, way.turns, not way.shape.request.devices


def places_for(cluster: Cluster, request: Request) -> Sequence[tuple[str, int]]:
    """Partitions with nodes enough for such a job, and how many of them fit there at once. O(nodes)."""
    nodes: dict[str, int] = {}
    jobs: dict[str, int] = {}
    for index, node in enumerate(cluster.nodes):
        fitting = 0 if index in cluster.gone else _times(node, request)
        for partition in node.partitions if fitting else ():
            nodes[partition] = nodes.get(partition, 0) + 1
            jobs[partition] = jobs.get(partition, 0) + fitting
    return [
        (partition, max(1, jobs[partition] // request.nodes))
        for partition, count in nodes.items()
        if count >= request.nodes and request.partition in ("", partition)
    ]


def _times(node: Node, request: Request) -> int:
    """How many such jobs fit on an empty node. Outside schedulers give every job a CPU at least."""
    wanted = {WHOLE_POOL: node.cpus, HOST_CPUS: node.host_cpus}.get(request.cpus, request.cpus)
    fits = [node.cpus // max(1, wanted)]
    if request.memory and node.memory is not None:
        fits.append(node.memory // request.memory)
    for kind, count in request.devices:
        held = sum(
            device.kind == kind and (not request.models or device.model in request.models)
            for device in node.devices
        )
        fits.append(held // max(1, ceil(count)))
    return min(fits)


def classes_in(cluster: Cluster, choice: Choice, target: str) -> Sequence[DeviceClass]:
    """The device classes of a partition on which a choice may run."""
    kind, models = choice.implementation.kind, choice.request.models
    found: dict[DeviceClass, None] = {}
    for group in cluster.groups:
        device = group.node.device_class(kind) if target in group.node.partitions else None
        if device is not None and (not models or device.model in models):
            found[device] = None
    return list(found)
