"""Where a job runs, in words: hostlists of node masks, and the units that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, islice

from dovetail.model import Allocation, Cluster, Node
from dovetail.model.allocation import NARROW
from dovetail.model.hostlist import compress_names
from dovetail.model.masks import bit_runs
from dovetail.model.node import Nodes
from dovetail.report import wording

MOST_SPANS = 100_000
"""So many texts of runs of nodes are kept."""


class Spelling:
    """Hostlists of node masks. Where nodes are named like n0, n1, … runs of bits are spelt directly.

    That is what keeps the JSON form of 100,000 jobs on scattered nodes from taking longer than their
    simulation.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._known: dict[int, str] = {}
        self._spans = SpanTexts()
        stem = cluster.nodes[0].name[:-1] if cluster.nodes else ""
        plain_stem = bool(stem) and not stem[-1].isdigit() and not set("[],") & set(stem)
        numbered = plain_stem and _are_numbered(cluster.nodes, stem)
        self._stem = stem if plain_stem and numbered else None

    @cached_property
    def devices(self) -> tuple[list[str], list[int]]:
        """``node/device`` of every device, node by node, and where each node's begin."""
        nodes = self.cluster.nodes
        names = [f"{node.name}/{device.name}" for node in nodes for device in node.devices]
        return names, [0, *accumulate(len(node.devices) for node in nodes)]

    def __call__(self, mask: int) -> str:
        """The hostlist of the nodes of ``mask``, as `compress_names` gives it."""
        found = self._known.get(mask)
        if found is None:
            held = bit_runs(mask)
            found = self.of_all(held, [len(held)])[0]
            if mask.bit_length() <= NARROW:
                self._known[mask] = found
        return found

    def of_all(self, runs: Iterable[tuple[int, int]], counts: Iterable[int]) -> list[str]:
        """The hostlists of many jobs: of each so many runs, from a node to before another."""
        every, stem, nodes = iter(runs), self._stem, self.cluster.nodes
        if stem is None:
            return [
                compress_names(nodes[n].name for low, high in islice(every, count) for n in range(low, high))
                for count in counts
            ]
        spans = map(self._spans.__getitem__, every)
        joined = (next(spans) if count == 1 else ",".join(islice(spans, count)) for count in counts)
        return [f"{stem}[{text}]" if "-" in text or "," in text else f"{stem}{text}" for text in joined]


class SpanTexts(dict[tuple[int, int], str]):
    """The text of a run of numbers: most occur again and again."""

    def __missing__(self, run: tuple[int, int]) -> str:
        low, high = run
        text = str(low) if high - low == 1 else f"{low}-{high - 1}"
        if len(self) < MOST_SPANS:
            self[run] = text
        return text


def _are_numbered(nodes: Sequence[Node], stem: str) -> bool:
    """Whether the nodes are called STEM0, STEM1, … in their order."""
    if isinstance(nodes, Nodes):
        return nodes.numbered(stem)
    return all(node.name == f"{stem}{i}" for i, node in enumerate(nodes))


def place_of(allocation: Allocation | None, spelt: Spelling) -> str:
    """Where a job runs or ran: ``n0/cpu``, ``n0/2 CPUs``, ``n0/gpu0``; of gangs the nodes; ``-`` if nowhere.

    On this machine alone its name is left out.
    """
    if allocation is None:
        return "-"
    cluster = spelt.cluster
    if allocation.mask & (allocation.mask - 1):
        return spelt(allocation.mask)
    node = cluster.nodes[allocation.first_node]
    devices = [name.removeprefix(f"{node.name}/") for name in allocation.device_names(cluster)]
    cpus = [wording.count_things(part.cpus, "CPU") for part in allocation.parts if part.cpus]
    if any(part.cpus == node.cpus for part in allocation.parts if part.cpus):
        cpus = ["cpu"]
    units = "+".join([*cpus, *devices])
    return cluster.short_name(allocation.first_node, units) if units else node.name
