"""Random clusters and workloads of every kind, for tests of what must always hold."""

from __future__ import annotations

import numpy as np

from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    TableTruth,
    Workload,
)

__all__ = ["cluster_of", "workload_of"]


def cluster_of(rng: np.random.Generator) -> Cluster:
    """Single-CPU nodes, whole nodes, or unlike nodes with GPUs of two models and memory."""
    count = int(rng.integers(1, 9))
    shape = rng.integers(3)
    if shape < 2:
        return Cluster.uniform(count, 1 if shape == 0 else 4)
    nodes = []
    for n in range(min(count, 4)):
        models = [str(rng.choice(["T4", "A100"]))] * int(rng.integers(0, 4))
        devices = tuple(Device("gpu", model, local) for local, model in enumerate(models))
        memory = None if rng.random() < 0.5 else int(rng.integers(4, 17))
        nodes.append(Node(f"n{n}", tuple(range(int(rng.integers(1, 9)))), devices, memory))
    return Cluster(tuple(nodes))


def workload_of(rng: np.random.Generator, cluster: Cluster) -> Workload:
    """Jobs with one or two implementations; some larger than the machine; many ties."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for i in range(int(rng.integers(1, 30))):
        nodes = int(rng.integers(1, len(cluster) + 1))
        memory = int(rng.choice([0, 0, 2, 5]))
        requests = {"cpu": Request(nodes, int(rng.choice([-1, 1, 1, 2])), (), memory)}
        if rng.random() < 0.5:
            count = float(rng.choice([0.2, 0.5, 1, 2]))
            models = ("A100",) if rng.random() < 0.2 else ()
            requests["gpu"] = Request(nodes, int(rng.integers(0, 2)), (("gpu", count),), memory, models)
            if rng.random() < 0.5:
                del requests["cpu"]
        implementations = tuple(Implementation(kind, kind, r) for kind, r in requests.items())
        length = 0.0
        for implementation in implementations:
            seconds = float(rng.choice([0, 1, 2, 5, 9, 20, 0.3]))
            length = max(length, seconds)
            table[str(i), implementation.name, nodes] = seconds
        walltime = None if rng.random() < 0.1 else max(0.1, length * float(rng.choice([0.5, 1, 1, 2, 5])))
        app = App(f"app{i}", implementations)
        choices = tuple(Choice(implementation, implementation.request) for implementation in implementations)
        submit = float(rng.integers(0, 40))
        priority = float(rng.integers(0, 3)) if rng.random() < 0.1 else 0
        jobs.append(Job(str(i), app, choices, i, submit, nodes=nodes, walltime=walltime, priority=priority))
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload("random", jobs, TableTruth(table))
