"""Why a machine could never run a request: what it lacks, in a few words for people."""

from __future__ import annotations

from dovetail.model import HOST_CPUS, WHOLE_POOL, Choice, Cluster, Node, Request

__all__ = ["lacking"]


def lacking(choices: tuple[Choice, ...], cluster: Cluster) -> str:
    """What the machine lacks for each of the choices, none of which fits. O(shapes of nodes) a choice."""
    nodes = [group.node for group in cluster.groups]
    found = dict.fromkeys(_lack(choice.request, nodes, cluster) for choice in choices)
    return "; ".join(found)


def _lack(request: Request, nodes: list[Node], cluster: Cluster) -> str:
    """The first thing of which no node has enough, else that too few nodes have all of it."""
    for kind, count in request.devices:
        most = max((sum(d.kind == kind for d in node.devices) for node in nodes), default=0)
        if not most:
            return f"needs a device of kind {kind}, and there is none"
        if count > most:
            return f"asks for {count:g} {kind} on a node, and no node has more than {most}"
    if request.models and not any(d.model in request.models for node in nodes for d in node.devices):
        return f"needs a device of model {' or '.join(request.models)}, and there is none"
    cpus = max((node.cpus for node in nodes), default=0)
    if request.cpus in (WHOLE_POOL, HOST_CPUS):
        if not cpus and not request.devices:
            return "needs a CPU, and there is none"
    elif request.cpus > cpus:
        asked = "1 CPU" if request.cpus == 1 else f"{request.cpus} CPUs"
        return f"asks for {asked} on a node, and no node has more than {cpus}"
    memory = [node.memory for node in nodes]
    if all(size is not None and size < request.memory for size in memory):
        most_memory = max((size or 0 for size in memory), default=0)
        asked, there = _size(request.memory), _size(most_memory)
        return f"asks for {asked} of memory on a node, and no node has more than {there}"
    if request.nodes > len(cluster.nodes):
        return f"asks for {request.nodes} nodes, and there are {len(cluster.nodes)}"
    return "larger than the machine: too few nodes have all that it asks for at once"


def _size(count: float) -> str:
    """Bytes in the unit in which they read well.

    >>> _size(34_359_738_368), _size(512)
    ('34.4 GB', '512 bytes')
    """
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count:g} bytes"
