"""Whether an allocation is what a job's choice asks for."""

from __future__ import annotations

from dovetail.model import Allocation, Choice, Cluster

__all__ = ["gang_fault"]


def gang_fault(cluster: Cluster, choice: Choice, allocation: Allocation) -> str | None:
    """What is wrong if it does not give on every node what the request asks for; ``None`` if it does."""
    request, parts = choice.request, allocation.parts
    if len(parts) == 1:
        nodes = together = parts[0].nodes.bit_count()
    else:
        nodes = sum(part.nodes.bit_count() for part in parts)
        together = allocation.mask.bit_count()
    if nodes != request.nodes or together != nodes:
        return f"is given {nodes} nodes and asks for {request.nodes}"
    local = not allocation.donors
    for part in parts:
        if part.memory != request.memory:
            return f"is given {part.memory} bytes and asks for {request.memory}"
        if request.cpus >= 0 and part.cpus != request.cpus:
            return f"is given {part.cpus} CPUs and asks for {request.cpus}"
        if request.cpus < 0:
            first = cluster.nodes[(part.nodes & -part.nodes).bit_length() - 1]
            expected = first.cpus if request.cpus == -1 else first.host_cpus
            if part.cpus != expected:
                return f"is given {part.cpus} CPUs and asks for {expected}"
        if local and (request.devices or part.devices):
            wanted = sum(max(1, int(count)) for _, count in request.devices)
            if len(part.devices) != wanted or len(set(part.devices)) != wanted:
                return f"is given {len(part.devices)} devices and asks for {wanted}"
    return None
