"""A real Ray cluster of several nodes on this host, in a process of its own; driven by lines.

Prints its address, then obeys ``kill N``, ``add`` and ``stop`` on standard input, saying ``done`` after each.
"""

from __future__ import annotations

import sys
from typing import Any

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 2, "object_store_memory": 80_000_000}


def main() -> None:
    """As many nodes as the first argument says; every other one has two GPUs."""
    cluster: Any = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    nodes = [cluster.head_node]
    nodes += [cluster.add_node(**NODE, num_gpus=2 if i % 2 else 0) for i in range(1, int(sys.argv[1]))]
    try:
        print(cluster.address, flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "kill":
                cluster.remove_node(nodes[int(rest[0])], allow_graceful=False)
            elif word == "add":
                nodes.append(cluster.add_node(**NODE))
            elif word == "stop":
                break
            print("done", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
