"""Placing gangs on borrowed GPUs, and taking their work home (Markthub 2015, sections 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Cluster, Donor, JobId, Migrate, Part, Placed, Request, bit_indices
from dovetail.model.fitting import cpus_on

Gpus = dict[int, tuple[int, ...]]
"""Node-local indices of GPUs by node."""


def can_borrow(request: Request) -> bool:
    """Whether a request can be met with borrowed devices: whole ones, of one kind."""
    return len(request.devices) == 1 and request.devices[0][1] >= 1


def _free_gpus(free: Free, request: Request) -> Gpus:
    kind = request.devices[0][0]
    return {n: gpus for mask, gpus in free.devices(kind, request.models) for n in bit_indices(mask)}


def borrow_devices(free: Free, cluster: Cluster, request: Request, *, local: int = 0) -> Allocation | None:
    """Where the gang starts with as few borrowed GPUs as possible; ``None`` if it cannot (RQ, section 2.1).

    Nodes with the most local GPUs first, then those with fewest free ones, then lowest index; donors are all
    GPUs that are left, also on the chosen nodes, from nodes with fewest of them first. Every process has at
    least ``local`` local GPUs. O(nodes · log nodes).
    """
    if not can_borrow(request):
        return None
    wanted, gpus = int(request.devices[0][1]), _free_gpus(free, request)
    # Any device can serve any node of the gang, so their sum rules most gangs out before nodes are looked at.
    if sum(map(len, gpus.values())) < request.nodes * wanted:
        return None
    # CPUs and memory a node must have itself; devices can come from elsewhere.
    roomy = free.nodes(Request(1, request.cpus, (), request.memory))
    fit = [(n, len(gpus.get(n, ()))) for n in bit_indices(roomy)]
    fit = sorted(
        ((n, count) for n, count in fit if min(count, wanted) >= local),
        key=lambda room: (-min(room[1], wanted), room[1], room[0]),
    )[: request.nodes]
    if len(fit) < request.nodes:
        return None
    own: Gpus = {n: gpus.get(n, ())[:wanted] for n, _ in fit}
    missing = [n for n, _ in fit for _ in range(wanted - len(own[n]))]
    left = {n: found[len(own.get(n, ())) :] for n, found in gpus.items()}
    lent = [(n, gpu) for n in sorted(left, key=lambda n: (len(left[n]), n)) for gpu in left[n]]
    if len(lent) < len(missing):
        return None
    donors = tuple(Donor(client, n, gpu) for client, (n, gpu) in zip(missing, lent, strict=False))
    return _gang_allocation(cluster, request, own, donors)


def _gang_allocation(cluster: Cluster, request: Request, own: Gpus, donors: tuple[Donor, ...]) -> Allocation:
    """An allocation of these nodes with their own GPUs; nodes that give the same together."""
    shares: dict[tuple[int, tuple[int, ...]], int] = {}
    for n, gpus in own.items():
        node = cluster.nodes[n]
        cpus = cpus_on(request, node.cpus, node.host_cpus)
        shares[cpus, gpus] = shares.get((cpus, gpus), 0) | 1 << n
    parts = tuple(Part(mask, cpus, gpus, memory=request.memory) for (cpus, gpus), mask in shares.items())
    return Allocation(request, parts, donors=donors)


def going_home(
    view: View,
    free: Free,
    *,
    held: bool = False,
    pays: Callable[[Placed], bool] | None = None,
    keeps: Callable[[Placed, Allocation, Allocation], bool] | None = None,
) -> Iterator[Migrate]:
    """Every borrowed GPU whose job has a free local one by now, in order of the jobs' starts (MRQ, 3.2).

    What a migration frees may be where another job's work wants to go: until nothing changes any more. With
    ``held`` nothing is free before the work has moved. Jobs that cannot move, and those that it does not pay,
    stay where they are, and a move from one place to another that does not keep what was promised is left
    out. ``free`` is as free as the decisions leave it. O(rounds · borrowed GPUs).
    """
    borrowing: dict[JobId, Allocation] = {
        job: placed.allocation
        for job, placed in view.running.items()
        if placed.allocation.donors
        and job not in view.moving
        and job not in view.staying
        and (pays is None or pays(placed))
    }
    moved = bool(borrowing)
    while moved:
        moved = False
        for job, allocation in list(borrowing.items()):
            home = _move_home(view.cluster, free, allocation)
            if home is None or (keeps is not None and not keeps(view.running[job], allocation, home)):
                continue
            free.give(allocation)
            free.take(home)
            if held:
                free.take(_given_back(allocation, home))
            yield Migrate(job, home, held)
            moved = not held
            if home.donors:
                borrowing[job] = home
            else:
                del borrowing[job]


def _move_home(cluster: Cluster, free: Free, allocation: Allocation) -> Allocation | None:
    """The same gang with as much at home as is free there; ``None`` where nothing is."""
    request = allocation.request
    idle = _free_gpus(free, request)
    own: Gpus = {n: part.devices for part in allocation.parts for n in bit_indices(part.nodes)}
    staying: list[Donor] = []
    for donor in allocation.donors:
        at_home = [gpu for gpu in idle.get(donor.client, ()) if gpu not in own[donor.client]]
        if at_home:
            own[donor.client] = tuple(sorted((*own[donor.client], at_home[0])))
        else:
            staying.append(donor)
    if len(staying) == len(allocation.donors):
        return None
    return _gang_allocation(cluster, request, own, tuple(staying))


def _given_back(before: Allocation, after: Allocation) -> Allocation:
    """The borrowed GPUs that a move gives back, and that are held until it is over."""
    kept = {(donor.donor, donor.device) for donor in after.donors}
    lent = tuple(donor for donor in before.donors if (donor.donor, donor.device) not in kept)
    return Allocation(before.request, (), donors=lent)
