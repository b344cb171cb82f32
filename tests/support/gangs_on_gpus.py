"""Gangs that communicate with GPUs, drawn at random, and the two-node scenario whose ends are known."""

from __future__ import annotations

import numpy as np

from dovetail.model import (
    App,
    Choice,
    Cluster,
    Communication,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    TableTruth,
    Workload,
)

TWO_NODES = """
[[job]]
id = "J1"
submit = 0
nodes = 2
cpus = 2
gpus = 2
memory = 8e9
[job.communication]
other = 100.0
gpu_calls = 1e6
gpu_bytes = 1e9

[[job]]
id = "J2"
submit = 1
nodes = 1
cpus = 2
gpus = 2
memory = 8e9
[job.communication]
other = 200.0
gpu_calls = 1e6
gpu_bytes = 1e9

[[job]]
id = "J3"
submit = 50
nodes = 1
cpus = 3
gpus = 3
memory = 8e9
[job.communication]
other = 100.0
gpu_calls = 1e6
gpu_bytes = 1e9
"""


def gang(
    name: str,
    submit: float,
    nodes: int,
    gpus: int,
    communication: Communication,
    *,
    cpus: int = 1,
    memory: int = 0,
    index: int = 0,
) -> Job:
    """A job that asks for this on each of its nodes."""
    implementation = Implementation("gpu", "gpu", Request(1, cpus, (("gpu", float(gpus)),), memory))
    return Job(
        name,
        App("communication", (implementation,)),
        (Choice(implementation, implementation.request.on(nodes)),),
        index=index,
        submit_time=submit,
        nodes=nodes,
        communication=communication,
    )


def random_cluster(rng: np.random.Generator) -> Cluster:
    """Two to six nodes of one to four GPUs; some have other cores, memory and bandwidths."""
    nodes = []
    for i in range(int(rng.integers(2, 7))):
        gpus = tuple(Device("gpu", "", g) for g in range(int(rng.integers(1, 5))))
        cores = tuple(range(int(rng.integers(2, 7))))
        own = bool(rng.random() < 0.3)
        nodes.append(
            Node(
                f"n{i}",
                cores,
                gpus,
                22 * 10**9 if rng.random() < 0.8 else 9 * 10**9,
                network_bandwidth=3e9 if own else None,
                gpu_bandwidth=9e9 if own else None,
            )
        )
    return Cluster(tuple(nodes), "random")


def random_gangs(rng: np.random.Generator, cluster: Cluster) -> Workload:
    """Some to two dozen gangs, many of which do not fit at once; equal submissions are frequent."""
    jobs, submit = [], 0.0
    intense = float(rng.choice([1e4, 1e6, 1e7, 1e8]))
    for i in range(int(rng.integers(2, 25))):
        submit += float(rng.choice([0.0, 1.0, 20.0, 200.0]))
        communication = Communication(
            float(rng.choice([1.0, 30.0, 100.0, 1000.0])),
            float(np.rint(intense * rng.random() * 2)),
            float(rng.choice([0.0, 1e9, 1e10, 1e12])),
            float(rng.choice([0.0, 1e4])),
            float(rng.choice([0.0, 4e9])),
        )
        nodes, gpus = int(rng.integers(1, len(cluster) + 1)), int(rng.integers(1, 4))
        memory, cpus = int(rng.choice([0, 4 * 10**9, 8 * 10**9])), int(rng.integers(1, 4))
        if i == 0:
            nodes = gpus = cpus = 1  # not all are larger than the machine
        jobs.append(gang(f"j{i}", submit, nodes, gpus, communication, cpus=cpus, memory=memory, index=i))
    return Workload("random gangs", jobs, TableTruth())
