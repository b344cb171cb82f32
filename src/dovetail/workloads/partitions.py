"""Partitions of a cluster: which nodes belong to which, given beside a cluster that lists none."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dovetail.errors import DovetailWarning, InputError
from dovetail.files.sentences import is_name, show_value, suggest_closest
from dovetail.model import Cluster
from dovetail.model.hostlist import expand_hostlist

MOST_NAMED = 5


def with_partitions(cluster: Cluster, texts: Sequence[str]) -> Cluster:
    """The cluster with nodes in partitions, given as ``NAME=HOSTLIST``; a node may be in several.

    The cluster's own partitions stay. Raises `InputError` for a node that is not there. O(nodes named).

    >>> found = with_partitions(Cluster.uniform(3, 8), ["cpu=n[0-1]", "all=n[0-2]"])
    >>> [node.partitions for node in found.nodes]
    [('cpu', 'all'), ('cpu', 'all'), ('all',)]
    """
    if not texts:
        return cluster
    of_node: dict[str, list[str]] = {node.name: list(node.partitions) for node in cluster.nodes}
    for text in texts:
        name, equals, hosts = text.partition("=")
        if not equals or not is_name(name):
            raise InputError(
                f"found {show_value(text)}, expected NAME=NODES, e.g. cpu=n[0-3]", where="--partition"
            )
        try:
            nodes = expand_hostlist(hosts)
        except InputError as error:
            raise InputError(str(error), where=f"--partition {name}") from None
        for node in nodes:
            if node not in of_node:
                raise InputError(
                    f"found {node!r}, which is no node of {cluster.label or 'the cluster'}"
                    f"{suggest_closest(node, list(of_node))}",
                    where=f"--partition {name}",
                )
            of_node[node].append(name)
    nodes_now = tuple(
        replace(node, partitions=tuple(dict.fromkeys(of_node[node.name]))) for node in cluster.nodes
    )
    return Cluster(nodes_now, cluster.label)


def warn_of_unmapped(where: str, queues: Iterable[str | None], cluster: Cluster | None) -> None:
    """Warn, with a `DovetailWarning`, that jobs of several partitions may run on any node.

    A log of one partition names no nodes; without a cluster there is nothing to map to.
    """
    names = sorted({queue for queue in queues if queue})
    if cluster is None or len(names) < 2:
        return
    known = {partition for node in cluster.nodes for partition in node.partitions}
    unmapped = [name for name in names if name not in known]
    if unmapped:
        listed = ", ".join(unmapped[:MOST_NAMED]) + (", …" if len(unmapped) > MOST_NAMED else "")
        warnings.warn(
            f"{where}: no node belongs to the partitions {listed}: their jobs run on any node "
            "(--partition cpu=n[0-3] assigns them)",
            DovetailWarning,
            stacklevel=2,
        )
