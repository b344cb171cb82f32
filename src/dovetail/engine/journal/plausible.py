"""Whether what a journal holds can have happened: jobs before their ends, places that the cluster has.

The types of all fields are right already (`dovetail.engine.journal.checked`); this is about what they mean.
What only the engine can find (a job that ends twice, a core that is given out twice) is found when it is
replayed.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from dovetail.engine.journal.checked import check_fields
from dovetail.model import (
    HOST_CPUS,
    Adopted,
    Allocation,
    Cluster,
    Decision,
    DeviceClass,
    Ended,
    Enqueue,
    Event,
    Inquire,
    Intend,
    Job,
    JobId,
    KeptOff,
    Migrate,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Planned,
    Prediction,
    Renew,
    Request,
    Reservation,
    Reserve,
    Reserved,
    Seconds,
    Sized,
    Start,
    Started,
    Submit,
    Submitted,
    Updated,
)
from dovetail.model.node import Nodes
from dovetail.model.reservation import NODE_BITS

MOST_NODES = 1_000_000
MOST_CPUS = 1_000_000
MOST_RESERVATIONS = 63
"""Reservations of one moment: each has a bit of what a job stays off."""
LATEST: Seconds = 1e15
_QUESTIONS: dict[Any, tuple[type, ...]] = {
    "predict": (str, str, int, DeviceClass),
    "runs": (str, str, DeviceClass),
    "untried": (str, str, DeviceClass),
    "bound": (str, str, int),
}
"""What a question to the model consists of, by its kind."""


def check_nodes(cluster: Cluster) -> Cluster:
    """The same cluster. Raises `ValueError` where it is none."""
    if not cluster.nodes:
        raise ValueError("a cluster without nodes")
    large = isinstance(cluster.nodes, Nodes)  # like nodes are one object there
    for node in [group.node for group in cluster.groups] if large else cluster.nodes:
        check_fields(node)
        if len(set(node.cores)) < len(node.cores) or min(node.cores, default=0) < 0 or node.host_cpus < 0:
            raise ValueError(f"cores of node {node.name!r:.60} that no machine has")
        if len({device.name for device in node.devices}) < len(node.devices):
            raise ValueError(f"a device of node {node.name!r:.60} twice")
        sizes = (device.memory for device in node.devices)
        for number in (node.memory, node.network_bandwidth, node.gpu_bandwidth, *sizes):
            if number is not None and number <= 0:
                raise ValueError(f"a node {node.name!r:.60} with {number:g}")
    names: set[str] = set()
    for node in cluster.nodes:
        if node.name in names:
            raise ValueError(f"the node {node.name!r:.60} twice")
        names.add(node.name)
    return cluster


class Plausible:
    """Follows a journal instant by instant; every method raises `ValueError` with what was found."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = list(cluster.nodes)
        self._jobs: dict[JobId, Job] = {}
        self._now = -LATEST

    def check_moment(self, now: Any) -> Seconds:
        """Instants follow each other."""
        # Types first: a bool is a number to Python, and NaN compares as false everywhere.
        if type(now) not in (int, float) or not self._now <= now <= LATEST:
            raise ValueError(f"the moment {now!r:.60}, expected one from {self._now:g} s on")
        self._now = now
        return float(now)

    def check_event(self, event: Event) -> Event:
        """What happens is about jobs and nodes that there are."""
        check_fields(event)
        if isinstance(event, Submitted):
            self._check_submission(event.job)
        elif isinstance(event, Started | Adopted):
            job = self._known_job(event.job)
            if isinstance(event, Adopted):
                self._check_implementation(job, event.implementation)
                if event.attempt < 1:
                    raise ValueError(f"attempt {event.attempt}")
            if event.allocation is not None:
                self._check_allocation(event.allocation)
        elif isinstance(event, Sized):
            choices = self._known_job(event.job).choices  # of which some may have been dropped since
            wrong = not 0 < len(event.memory) <= len(choices) or min(event.memory) < 0
            wrong = wrong or min(event.kills, event.gpu_kills) < 0
            if wrong or (event.gpu and len(event.gpu) != len(event.memory)):
                raise ValueError(f"sizes of job {event.job!r:.60} that fit none of its choices")
        elif isinstance(event, KeptOff):
            self._known_job(event.job)
            if not 0 <= event.avoids < 1 << NODE_BITS + MOST_RESERVATIONS:
                raise ValueError(f"reservations {event.avoids!r:.60} of job {event.job!r:.60}")
        elif isinstance(event, Reserved):
            for one in event.reservations:
                self._reservation(one)
        elif isinstance(event, Updated):
            self._check_update(event)
        elif isinstance(event, Ended):
            self._known_job(event.job)
            if (event.available or 0) < 0:
                raise ValueError(f"{event.available!r:.60} bytes left to job {event.job!r:.60}")
        elif isinstance(event, NodeJoined) and event.new is not None:
            check_nodes(Cluster((event.new,)))
            # Names must differ, since a place is written by number and read by name.
            if event.node != len(self._nodes) or any(event.new.name == node.name for node in self._nodes):
                raise ValueError(f"a new node {event.node}, expected number {len(self._nodes)}")
            self._nodes.append(event.new)
        elif isinstance(event, NodeLost | NodeDrained | NodeJoined):
            if not 0 <= event.node < len(self._nodes):
                raise ValueError(f"node {event.node} of {len(self._nodes)}")
        elif isinstance(event, Planned):
            for item in event.plan.items:
                self._check_request(item.request)
                self._check_implementation(self._known_job(item.job), item.implementation)
                self._check_device_unit(item.unit)
        return event

    def _reservation(self, one: Reservation) -> None:
        """Its devices are there, and it has an end."""
        if not (0 <= one.bit < MOST_RESERVATIONS and one.start < one.end):
            raise ValueError(f"a reservation {one.id!r:.60} that cannot be")
        if not all(0 <= node < len(self._nodes) for node in one.nodes):
            raise ValueError(f"a reservation {one.id!r:.60} of no node")
        for place in one.devices:
            if not 0 <= place[0] < len(self._nodes):
                raise ValueError(f"a reservation {one.id!r:.60} of no node")
            if not 0 <= place[1] < len(self._nodes[place[0]].devices):
                raise ValueError(f"a reservation {one.id!r:.60} of no device")

    def check_decision(self, decision: Decision) -> Decision:
        """What was decided is about jobs and places that there are."""
        check_fields(decision)
        if isinstance(decision, Inquire):
            return decision
        if isinstance(decision, Renew):
            for promise in decision.promises:
                self.check_decision(promise)
            return decision
        job = self._known_job(decision.job)
        if isinstance(decision, Start | Reserve | Migrate):
            self._check_allocation(decision.allocation)
        if isinstance(decision, Start | Reserve | Enqueue | Submit | Intend):
            self._check_implementation(job, decision.implementation)
        if isinstance(decision, Enqueue):
            self._check_device_unit(decision.unit)
        if isinstance(decision, Submit):
            self._check_request(decision.request)
        return decision

    def check_question(self, asked: tuple[Any, ...]) -> tuple[Any, ...]:
        """A question to the model, with an answer that a model can give."""
        kind, *question, answer = asked
        # By exact type: a subclass would be a value that a replay could not write again.
        if tuple(map(type, question)) != _QUESTIONS.get(kind):
            raise ValueError(f"the question {asked[:-1]!r:.60}")
        device = question[-1]
        if isinstance(device, DeviceClass) and not (type(device.kind) is type(device.model) is str):
            raise ValueError(f"the device class {tuple(device)!r:.60}")
        if kind not in ("runs", "untried"):
            self._known_job(question[0])
        if isinstance(answer, Prediction):
            numbers = (answer.expected, answer.upper, answer.lower)
            if not set(map(type, numbers)) <= {int, float} or type(answer.samples) is not int:
                raise ValueError(f"the answer {answer!r:.60}")
            if type(answer.basis) is not str:
                raise ValueError(f"the basis {answer.basis!r:.60}")
            upper = answer.upper
            if not 0 <= answer.expected <= LATEST or not upper >= 0 or answer.samples < 0:
                raise ValueError("a prediction that is no time")
        # Beyond LATEST sums of times would lose whole seconds in floating point.
        elif answer is not None and (type(answer) not in (int, float, bool) or not 0 <= answer <= LATEST):
            raise ValueError(f"the answer {answer!r:.60}")
        right = {
            "predict": answer is None or isinstance(answer, Prediction),
            "runs": type(answer) is int,
            "untried": type(answer) is bool,
            "bound": type(answer) is not bool and not isinstance(answer, Prediction),
        }
        if not right[kind]:
            raise ValueError(f"the answer {answer!r:.60}")
        return asked

    # ------------------------------------------------------------------- parts

    def _check_submission(self, job: Job) -> None:
        if job.id in self._jobs:
            raise ValueError(f"job {job.id!r:.60} submitted twice")
        if not job.choices:
            raise ValueError(f"job {job.id!r:.60} without any choice")
        for choice in job.choices:
            self._check_request(choice.request)
        for implementation in job.app.implementations:
            self._check_request(implementation.request)
        check_fields(job.app)
        at_least: dict[str, tuple[float | None, float]] = {
            "nodes": (job.nodes, 1),
            "retries": (job.retries, 0),
            "walltime": (job.walltime, 0),
            "sequential": (job.sequential, 0),
            "index": (job.index, 0),
        }
        for name, (number, least) in at_least.items():
            if number is not None and not least <= number <= LATEST:
                raise ValueError(f"job {job.id!r:.60} whose {name} is {number:g}")
        if abs(job.submit_time) > LATEST:
            raise ValueError(f"job {job.id!r:.60} submitted at {job.submit_time:g} s")
        if any(value <= 0 for value in job.speedup.values()):
            raise ValueError(f"job {job.id!r:.60} whose speedup is not positive")
        if job.communication is not None:
            numbers = [getattr(job.communication, name) for name in type(job.communication).__slots__]
            if any(not 0 <= number <= LATEST * 1e6 for number in numbers):
                raise ValueError(f"job {job.id!r:.60} whose communication is less than nothing")
        self._jobs[job.id] = job

    def _check_update(self, event: Updated) -> None:
        self._known_job(event.job)
        if event.into.id != event.job:
            raise ValueError(f"job {event.job!r:.60} that becomes {event.into.id!r:.60}")
        del self._jobs[event.job]
        self._check_submission(event.into)

    def _known_job(self, name: JobId) -> Job:
        if name not in self._jobs:
            raise ValueError(f"job {name!r:.60}, which was not submitted")
        return self._jobs[name]

    @staticmethod
    def _check_implementation(job: Job, name: str) -> None:
        if all(implementation.name != name for implementation in job.app.implementations):
            raise ValueError(
                f"implementation {name!r:.60} of job {job.id!r:.60}, which has none of that name"
            )

    def _check_device_unit(self, unit: int | None) -> None:
        if unit is not None and not 0 <= unit < sum(1 + len(node.devices) for node in self._nodes):
            raise ValueError(f"device {unit}, which the cluster does not have")

    @staticmethod
    def _check_request(request: Request) -> None:
        check_fields(request)
        counts = (request.cpus, request.memory)
        if (
            not 1 <= request.nodes <= MOST_NODES
            or counts[0] < HOST_CPUS
            or counts[0] > MOST_CPUS
            or min(counts[1], request.gpu_memory, request.gpu_least) < 0
        ):
            raise ValueError("a request that no node could meet")
        for _, share in request.devices:
            if not (isfinite(share) and 0 < share <= MOST_CPUS) or (share > 1 and share != int(share)):
                raise ValueError(f"a request for {share:g} devices")

    def _check_allocation(self, allocation: Allocation) -> None:
        self._check_request(allocation.request)
        taken = 0
        for part in allocation.parts:
            check_fields(part)
            # A node in two parts would be counted twice.
            if part.nodes >> len(self._nodes) or part.nodes & taken:
                raise ValueError("an allocation on nodes that the cluster does not have")
            taken |= part.nodes
            if min(part.cpus, part.memory, part.gpu_memory, part.units) < 0 or not (
                part.units or part.gpu_memory
            ):
                raise ValueError("an allocation of less than nothing")
            nodes = (
                [node for n, node in enumerate(self._nodes) if part.nodes >> n & 1] if part.devices else []
            )
            if any(not 0 <= device < len(node.devices) for node in nodes for device in part.devices):
                raise ValueError("an allocation of devices that the cluster does not have")
        for n, cores in allocation.cores.items():
            if not 0 <= n < len(self._nodes) or not set(cores) <= set(self._nodes[n].cores):
                raise ValueError("an allocation of cores that the cluster does not have")
        for donor in allocation.donors:
            if not (0 <= donor.client < len(self._nodes) and 0 <= donor.donor < len(self._nodes)):
                raise ValueError("a borrowed device of a node that the cluster does not have")
            if not 0 <= donor.device < len(self._nodes[donor.donor].devices):
                raise ValueError("a borrowed device that its node does not have")
