"""A real Ray cluster of several nodes on this host, in a process of its own; driven by lines.

Prints its address, then obeys ``kill N``, ``drain N``, ``add`` and ``stop`` on standard input, each with
``done:`` and the id of the node.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
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
            if word == "stop":
                break
            if word == "add":
                nodes.append(cluster.add_node(**NODE))
            node = nodes[int(rest[0])] if rest else nodes[-1]
            if word == "kill":
                cluster.remove_node(node, allow_graceful=False)
            elif word == "drain":
                drain(cluster.address, node.node_id)
            print(f"done:{node.node_id}", flush=True)
    finally:
        cluster.shutdown()


def drain(address: str, node: str) -> None:
    """As an administrator does."""
    command = [str(Path(sys.executable).with_name("ray")), "drain-node", "--address", address]
    command += ["--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "test"]
    subprocess.run([*command, "--deadline-remaining-seconds", "600"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
