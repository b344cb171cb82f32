"""Whether an allocation is what a job's choice requests."""

from __future__ import annotations

from collections import Counter

from dovetail.model import FRACTION_UNITS, WHOLE_POOL, Allocation, Choice, Cluster, Request, bit_indices
from dovetail.model.fitting import units_taken


def gang_fault(cluster: Cluster, choice: Choice, allocation: Allocation) -> str | None:
    """What is wrong if it does not give on every node what the request needs; ``None`` if it does.

    A node may have devices lent by other nodes (`Donor`): whole ones, of a kind and model that the request
    allows, and never more in all than it needs.
    """
    request, parts = choice.request, allocation.parts
    if len(parts) == 1:
        mask, cpus, devices, _, memory, _ = parts[0]
        nodes = together = mask.bit_count()
        if (nodes, cpus, memory) == (request.nodes, request.cpus, request.memory) and not (
            devices or request.devices or allocation.donors
        ):
            return None  # mostly: the loop below would find nothing either
    else:
        nodes = sum(part.nodes.bit_count() for part in parts)
        together = allocation.mask.bit_count()
    if nodes != request.nodes or together != nodes:
        return f"is given {nodes} nodes and needs {request.nodes}"
    for mask, cpus, devices, _, memory, gpu_memory in parts:
        if memory != request.memory:
            return f"is given {memory} bytes and needs {request.memory}"
        expected = request.cpus
        if expected < 0:
            first = cluster.nodes[(mask & -mask).bit_length() - 1]
            expected = first.cpus if expected == WHOLE_POOL else first.host_cpus
        if cpus != expected:
            return f"is given {cpus} CPUs and needs {expected}"
        if (devices or request.devices) and not allocation.donors:
            wanted = sum(max(1, int(count)) for _, count in request.devices)
            if len(devices) != wanted or len(set(devices)) != wanted:
                return f"is given {len(devices)} devices and needs {wanted}"
            fault = (
                _share_fault(cluster, request, allocation, mask)
                if request.gpu_memory or gpu_memory or request.sharing
                else None
            )
            if fault is not None:
                return fault
    return _lent_fault(cluster, request, allocation) if allocation.donors else None


def _share_fault(cluster: Cluster, request: Request, allocation: Allocation, mask: int) -> str | None:
    """The same of what is taken of each device, where the request or the allocation names its memory."""
    first = (mask & -mask).bit_length() - 1
    part = allocation.part_on(first)
    assert part is not None
    if part.gpu_memory != request.gpu_memory:
        return f"is given {part.gpu_memory} bytes of each device and needs {request.gpu_memory}"
    for n in bit_indices(mask):
        devices = cluster.nodes[n].devices
        if any(not 0 <= d < len(devices) for d in part.devices):
            return "is given a device that does not exist"
        for d in part.devices:
            wanted = units_taken(request, devices[d])
            if part.units != wanted:
                return f"is given {part.units} units of {devices[d].name} and needs {wanted}"
    return None


def _lent_fault(cluster: Cluster, request: Request, allocation: Allocation) -> str | None:
    """The same of an allocation with borrowed devices, node by node."""
    wanted = Counter({kind: int(count) for kind, count in request.devices})
    if any(count < 1 for _, count in request.devices):
        return "borrows a device and requests a share of one"
    lent: dict[int, list[tuple[int, int]]] = {}
    for donor in allocation.donors:
        if donor.donor == donor.client:
            return "borrows a device of its own node"
        if not 0 <= donor.donor < len(cluster):
            return "borrows a device of a node that does not exist"
        lent.setdefault(donor.client, []).append((donor.donor, donor.device))
    if not lent.keys() <= set(bit_indices(allocation.mask)):
        return "borrows a device for a node that it does not use"
    for part in allocation.parts:
        for n in bit_indices(part.nodes):
            held = [(n, device) for device in part.devices] + lent.get(n, [])
            if any(not 0 <= d < len(cluster.nodes[node].devices) for node, d in held):
                return "is given a device that does not exist"
            devices = [cluster.nodes[node].devices[device] for node, device in held]
            if Counter(device.kind for device in devices) != wanted or len(set(held)) != len(held):
                total = sum(wanted.values())
                return f"is given {len(held)} devices on {cluster.nodes[n].name} and needs {total}"
            if request.models and any(device.model not in request.models for device in devices):
                return "is given a device model that it does not allow"
            if part.devices and part.units != FRACTION_UNITS:
                return "is given a share of a device beside borrowed ones"
    return None
