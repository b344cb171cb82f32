"""How much GPU capacity jobs leave that no job can use: jobs placed in order, none ever leaving.

The measure is that of Weng, Yang, Yu, Wang, Tang, Yang, Zhang 2023 (Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX ATC), section 3: what is free on a
node's GPUs is a fragment for a job if the node cannot run the job, for want of CPUs, memory, GPUs or of
their model; and if it can, then what is free on those GPUs that have less left than the job takes of one.
The fragmentation of a node is the mean over a typical mix of jobs, that of a cluster the sum over nodes.

The mix here are the jobs themselves that request GPUs, each counting once. (With jobs that request none
in the mix, as in the paper, every free GPU would be a fragment to their share.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import cycle
from typing import TypeAlias

from dovetail.engine.capacity.free import FreeCapacity, Layout, NodeState, Placement
from dovetail.errors import InputError
from dovetail.model import FRACTION_UNITS, Cluster, Job, Node, Request, Workload
from dovetail.model.fitting import cpus_on, suits_request, units_taken, whole_devices
from dovetail.records import dataclass
from dovetail.workloads.resources import asked_request

STEP = 0.1
"""How often the waste is looked at, as a share of the cluster's GPUs requested."""


@dataclass(frozen=True, slots=True)
class Waste:
    """GPUs of a cluster, shares counted as such.

    ``free`` is what no job holds; ``fragments`` the part of it that the typical job cannot use (the
    expectation over the mix); ``lost`` the part that no job of the mix can use.
    """

    free: float
    fragments: float
    lost: float


@dataclass(frozen=True, slots=True)
class FragmentationPoint:
    """What was wasted when jobs requesting so many GPUs had arrived."""

    asked: float
    placed: float
    waste: Waste


@dataclass(frozen=True)
class Packing:
    """What came of placing jobs by one rule.

    ``jobs`` arrived, ``placed`` of them found room, the others were passed over. ``asked`` and ``held``
    are GPUs. ``first_refused`` is what had been requested when the first job that requests GPUs found no
    room, ``None`` if all did.
    """

    placement: Placement
    gpus: int
    jobs: int
    placed: int
    asked: float
    held: float
    first_refused: float | None
    waste: Waste
    marks: Sequence[FragmentationPoint] = field(default=())


def fill_cluster(
    workload: Workload, cluster: Cluster, placement: Placement = "pack", *, demand: float | None = None
) -> Packing:
    """Place the jobs in order of submission, passing over those that find no room; none departs.

    With ``demand`` the jobs are gone through again and again, until those that came have requested that
    many times the cluster's GPUs; without, once. Raises `InputError` where the cluster has no GPUs, or no
    job requests any. O(jobs × distinct states of nodes).
    """
    mix = typical_mix(workload.jobs)
    gpus = cluster.total_devices
    if not gpus or not mix:
        what = "jobs that request GPUs" if gpus else "a cluster with GPUs"
        raise InputError(f"found none to pack, expected {what}", where=workload.name)
    free = FreeCapacity(Layout(cluster, placement))
    count = placed = 0
    requested = held = 0.0
    refused: float | None = None
    marks: list[FragmentationPoint] = []
    known: Known = {}
    for request in _iterate_arrivals(workload.jobs, demand):
        if demand is not None and requested >= demand * gpus:
            break
        # Counted before it is placed: what is requested is the axis of the curve, placed or not.
        wanted = request.nodes * request.gpus
        count, requested = count + 1, requested + wanted
        found = free.fit(request)
        if found is not None:
            free.take(found)
            placed, held = placed + 1, held + wanted
        # The first refusal of a job with GPUs: one without may be refused for want of CPUs.
        elif wanted and refused is None:
            refused = requested
        if requested >= (len(marks) + 1) * STEP * gpus:
            marks.append(FragmentationPoint(requested, held, measure_waste(free, cluster, mix, known)))
    return Packing(
        placement,
        gpus,
        count,
        placed,
        requested,
        held,
        refused,
        measure_waste(free, cluster, mix, known),
        marks,
    )


def _iterate_arrivals(jobs: Sequence[Job], demand: float | None) -> Iterator[Request]:
    return (asked_request(job) for job in (jobs if demand is None else cycle(jobs)))


def typical_mix(jobs: Sequence[Job]) -> dict[Request, float]:
    """The mix: each request for GPUs, with its share of the jobs that request GPUs."""
    counts = Counter(request for job in jobs if (request := asked_request(job)).devices)
    total = counts.total()
    return {request: number / total for request, number in counts.items()}


Known: TypeAlias = dict[NodeState, tuple[float, int]]
"""Units of a node in this state that the typical job cannot use, and those that no job can use."""


def measure_waste(
    free: FreeCapacity, cluster: Cluster, mix: Mapping[Request, float], known: Known | None = None
) -> Waste:
    """What is free, and what of it is of no use. O(distinct states × requests of the mix).

    ``known`` remembers states from call to call, with the same cluster and mix.
    """
    known = {} if known is None else known
    total = fragments = lost = 0.0
    for state, mask in free.iterate_state_masks():
        units = sum(state.devices)
        if not units or not mask:
            continue
        nodes = mask.bit_count()
        node = cluster.nodes[(mask & -mask).bit_length() - 1]
        # Nodes in one state waste the same, and a cluster has few states: each is looked at once.
        if state not in known:
            unusable = [_fragment_units(state, node, request) for request in mix]
            expected = sum(share * u for share, u in zip(mix.values(), unusable, strict=True))
            known[state] = expected, min(unusable)
        total += nodes * units
        fragments += nodes * known[state][0]
        lost += nodes * known[state][1]
    return Waste(total / FRACTION_UNITS, fragments / FRACTION_UNITS, lost / FRACTION_UNITS)


def _fragment_units(state: NodeState, node: Node, request: Request) -> int:
    """Units of the node's free devices that a job with this request cannot use (Weng 2023, section 3)."""
    everything = sum(state.devices)
    # Without CPUs or memory its free devices are all of no use (section 3 of the paper).
    cpus = cpus_on(request, node.cpus, node.host_cpus)
    if cpus > state.cpus or (node.memory is not None and request.memory > state.memory):
        return everything
    usable = 0
    for kind, count in request.devices:
        left = [
            units
            for units, device in zip(state.devices, node.devices, strict=True)
            if units >= units_taken(request, device) and suits_request(device, kind, request)
        ]
        if len(left) < whole_devices(count):
            return everything
        usable += sum(left)
    return everything - usable
