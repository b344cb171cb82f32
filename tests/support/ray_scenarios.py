"""Maps on a Ray cluster of several nodes on this machine, in a process of their own; prints JSON.

Every cluster has a token and a home of its own, given by the environment. One map after the other: all
nodes, a reduce, failing items, data that lies on nodes, a node killed at work, a node that joins.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import sys
import time
import warnings
from typing import Any

import map_functions as mf
import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import dovetail

STORE = 100_000_000
NODE = {"num_cpus": 1, "object_store_memory": STORE}


def where(x: Any) -> tuple[str, str, Any]:
    """The node and the process of this worker."""
    time.sleep(0.05)
    return ray.get_runtime_context().get_node_id(), os.environ["DOVETAIL_DEVICE"], x


def held(array: Any) -> tuple[str, int]:
    """The node of this worker, and what is in the array."""
    time.sleep(0.05)
    return ray.get_runtime_context().get_node_id(), int(array[0])


@ray.remote
def made(i: int) -> Any:
    """A large object, made on some node."""
    return np.full(500_000, i)


def all_nodes(workers: dovetail.Workers) -> dict[str, Any]:
    """Which nodes take part, which devices there are, whether all results come, in order."""
    found = list(dovetail.map(where, range(60), workers=workers, ordered=True, history=False, batch=1))
    return {
        "nodes": len({node for node, *_ in found}),
        "devices": sorted({device.split(":")[0] for _, device, _ in found}),
        "ordered": [x for *_, x in found] == list(range(60)),
    }


def failures(workers: dovetail.Workers) -> dict[str, Any]:
    """Items that fail in every way."""
    items = [0, "raise", 2, "exit", 4, "leave", 6, "lock", 8, "hang", 10]
    found = list(
        dovetail.map(
            mf.bad, items, workers=workers, errors="return", timeout=2.0, ordered=True, history=False
        )
    )
    return {
        "good": [x for x in found if isinstance(x, int)],
        "bad": [str(x) for x in found if isinstance(x, dovetail.ItemError)],
    }


def locality(workers: dovetail.Workers) -> dict[str, Any]:
    """Objects made on the nodes in turn; how many are worked on where they lie."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    homes = [nodes[i % len(nodes)] for i in range(40)]
    refs = [
        made.options(scheduling_strategy=NodeAffinitySchedulingStrategy(home, soft=True), num_cpus=0).remote(
            i
        )
        for i, home in enumerate(homes)
    ]
    ray.wait(refs, num_returns=len(refs), fetch_local=False)
    found = list(dovetail.map(held, refs, workers=workers, history=False, batch=1))
    return {
        "values": sorted(i for _, i in found) == list(range(40)),
        "at_home": sum(node == homes[i] for node, i in found),
    }


def killed_node(workers: dovetail.Workers, cluster: Cluster, victim: Any) -> dict[str, Any]:
    """A node dies in the middle of a map."""
    began = time.monotonic()
    results = dovetail.map(where, range(150), workers=workers, history=False, batch=1)
    found = [next(results) for _ in range(20)]
    cluster.remove_node(victim, allow_graceful=False)
    found += list(results)
    return {
        "once_each": sorted(x for *_, x in found) == list(range(150)),
        "lost": results.summary.lost_workers,
        "seconds": time.monotonic() - began,
    }


def joining_node(workers: dovetail.Workers, cluster: Cluster) -> dict[str, Any]:
    """A node joins in the middle of a map."""
    before: set[str] = set()
    results = dovetail.map(where, itertools.count(), workers=workers, history=False, batch=1)
    for n, (node, *_) in enumerate(results):
        if n < 20:
            before.add(node)
        elif n == 20:
            cluster.add_node(**NODE)
        elif node not in before:
            return {"before": len(before), "used": True}
        elif n == 5000:
            break
    return {"before": len(before), "used": False}


def main() -> None:
    """All of it, on so many nodes as the first argument says."""
    count = int(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    others = [cluster.add_node(**NODE, num_gpus=1 if i == 0 else 0) for i in range(count - 1)]
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        found: dict[str, Any] = {}
        with dovetail.Workers("cpu:1", engine="ray") as workers:
            found["all_nodes"] = all_nodes(workers)
            total = dovetail.map(mf.plain, range(20_000), workers=workers, history=False).reduce(operator.add)
            found["reduce"] = total == sum(range(20_000))
            found["failures"] = failures(workers)
            found["locality"] = locality(workers)
            found["killed_node"] = killed_node(workers, cluster, others[-1])
            found["joining_node"] = joining_node(workers, cluster)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            summary = dovetail.map(
                mf.slowly, [0.2] * 20, engine="ray", workers="cpu:1,gpu:1", history=False, batch=1
            )
            found["kinds"] = sorted(set(summary))
        found["said"] = [str(one.message) for one in said]
        try:
            list(dovetail.map(mf.double, range(5), engine="ray", workers="cpu:1,opencl:1", history=False))
        except dovetail.InputError as error:
            found["refused"] = str(error)
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
