"""The fixed workloads of the simulator's benchmarks."""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from dovetail.model import App, Choice, Cluster, Implementation, Job, Request, Result, TableTruth, Workload

__all__ = ["checksum", "gpu_jobs", "machine", "rigid_jobs"]


def machine(nodes: int) -> Cluster:
    """So many single-CPU nodes."""
    return Cluster.uniform(nodes, 1)


def rigid_jobs(count: int, nodes: int, load: float, seed: int = 1, *, at_once: bool = False) -> Workload:
    """Rigid jobs that offer ``load`` to so many single-CPU nodes; with ``at_once`` all come at time 0.

    Sizes are 2^i up to a quarter of the machine with weights 0.75^i; run times log-normal with median
    1,200 s and sigma 1.3, within 30 s and a day; requested times the run time times U(1, 5), rounded up
    to 5 minutes; arrivals are a Poisson process, stretched so that the load is met exactly.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    powers = np.arange(int(np.log2(nodes // 4)) + 1)
    weights = 0.75**powers
    sizes = 2 ** rng.choice(powers, size=count, p=weights / weights.sum())
    runs = np.clip(rng.lognormal(np.log(1200), 1.3, count), 30, 86400)
    walls = np.ceil(runs * rng.uniform(1, 5, count) / 300) * 300
    submits = np.cumsum(rng.exponential(1.0, count))
    submits *= float((sizes * runs).sum()) / (nodes * load * submits[-1])
    if at_once:
        submits[:] = 0.0
    implementation = Implementation("cpu", "cpu", Request(1, 1))
    app = App("rigid", (implementation,))
    forms = {int(n): (Choice(implementation, Request(int(n), 1)),) for n in np.unique(sizes)}
    rows = zip(submits.tolist(), sizes.tolist(), walls.tolist(), strict=True)
    jobs = [
        Job(str(i), app, forms[size], i, submit, nodes=size, walltime=wall)
        for i, (submit, size, wall) in enumerate(rows)
    ]
    truth = TableTruth(fixed={str(i): run for i, run in enumerate(runs.tolist())})
    return Workload(f"{count} jobs, load {load}", jobs, truth)


def gpu_jobs(count: int, nodes: int, load: float, seed: int = 1) -> Workload:
    """Jobs on 1, 2, 4 or 8 GPUs, 4 % of them gangs of 2 or 4 whole nodes, for nodes of 20 CPUs and 8 GPUs.

    Two CPUs for each GPU; run times, requested times and arrivals as in `rigid_jobs`.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    shapes = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)]
    drawn = rng.choice(len(shapes), size=count, p=[0.55, 0.18, 0.13, 0.10, 0.03, 0.01])
    runs = np.clip(rng.lognormal(np.log(1200), 1.3, count), 30, 86400)
    walls = np.ceil(runs * rng.uniform(1, 5, count) / 300) * 300
    submits = np.cumsum(rng.exponential(1.0, count))
    gpus = np.array([n * g for n, g in shapes])[drawn]
    submits *= float((gpus * runs).sum()) / (8 * nodes * load * submits[-1])
    requests = [Request(n, 2 * g, (("gpu", float(g)),)) for n, g in shapes]
    made = [
        Implementation(f"gpu{n}x{g}", "gpu", request)
        for (n, g), request in zip(shapes, requests, strict=True)
    ]
    app = App("gpu", tuple(made))
    forms = [(Choice(i, request),) for i, request in zip(made, requests, strict=True)]
    jobs = [
        Job(str(i), app, forms[form], i, submit, nodes=shapes[form][0], walltime=wall)
        for i, (submit, form, wall) in enumerate(
            zip(submits.tolist(), drawn.tolist(), walls.tolist(), strict=True)
        )
    ]
    truth = TableTruth(fixed={str(i): run for i, run in enumerate(runs.tolist())})
    return Workload(f"{count} GPU jobs, load {load}", jobs, truth)


def checksum(result: Result) -> str:
    """Sixteen digits of the SHA-256 of all starts and nodes in file order."""
    digest = hashlib.sha256()
    for record in result.records:
        assert record.start is not None
        assert record.allocation is not None
        digest.update(struct.pack("<d", record.start))
        digest.update(b"%x" % record.allocation.mask)
    return digest.hexdigest()[:16]
