"""Whether a cluster could ever run a request: what a reader rejects is larger than the machine."""

from __future__ import annotations

from collections import Counter

from dovetail.model import CPU, WHOLE_POOL, Cluster, Node, Request, fits_node

__all__ = ["Fitting"]


class Fitting:
    """How many nodes of a cluster, all idle, could give one node's share of a request.

    Without a cluster everything fits. ``partitions`` are those that its nodes name. Nodes are grouped by
    their shape, so a request costs O(shapes) once and O(1) after that.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        shapes: Counter[tuple[object, ...]] = Counter()
        example: dict[tuple[object, ...], Node] = {}
        for group in cluster.groups if cluster is not None else ():
            node = group.node
            shape = (len(node.cores), node.devices, node.memory, node.host_cpus, node.partitions)
            shapes[shape] += group.count
            example.setdefault(shape, node)
        self._shapes = [(example[shape], count) for shape, count in shapes.items()]
        self._known: dict[Request, str | None] = {}
        self._unlimited = cluster is None
        self.partitions = frozenset(p for node, _ in self._shapes for p in node.partitions)
        self._models = {d.model for node, _ in self._shapes for d in node.devices if d.model}

    def models(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The device models asked for; none where the cluster does not name its models at all."""
        return wanted if self._unlimited or self._models else ()

    def count(self, request: Request) -> int:
        """Number of nodes that could give one node's share."""
        return sum(count for node, count in self._shapes if fits_node(request, node))

    def refusal(self, request: Request) -> str | None:
        """Why the request can never run here, in a few words; ``None`` if it can."""
        if self._unlimited:
            return None
        if request not in self._known:
            fitting = self.count(request)
            self._known[request] = (
                None
                if fitting >= request.nodes
                else f"asks for {_words(request)}; the machine has {fitting} such"
            )
        return self._known[request]


def _words(request: Request) -> str:
    share = []
    if request.cpus == WHOLE_POOL:
        share.append("all CPUs")
    elif request.cpus > 0:
        share.append(f"{request.cpus} {CPU}")
    share += [f"{count:g} {kind}" for kind, count in request.devices]
    if request.models:
        share.append("model " + " or ".join(request.models))
    if request.memory:
        share.append(f"{request.memory} bytes")
    nodes = "1 node" if request.nodes == 1 else f"{request.nodes} nodes"
    if request.partition:
        nodes += f" of {request.partition}"
    return f"{nodes} with {' and '.join(share) or 'nothing'}"
