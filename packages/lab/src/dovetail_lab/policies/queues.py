"""The queues on which policies are compared: one function a kind, from a number to a queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dovetail import Cluster, Job, Workload, load_workload
from dovetail.model import (
    HOST_CPUS,
    App,
    Choice,
    Implementation,
    JobId,
    Request,
    TableTruth,
)
from dovetail.workloads.edit import shuffle_together
from dovetail_lab.mistaken import MistakenModel
from dovetail_lab.published.ravi_multi import MIXES as GANG_MIXES
from dovetail_lab.published.ravi_multi import ravi_multi
from dovetail_lab.published.ravi_single import POOLS, ravi_single

MIXES = ("uniform", "cpu75", "gpu75")
NOISE = 0.3
"""Standard deviation of the logarithm of a wrong prediction over the true time."""
LOAD = 0.9


@dataclass(frozen=True, slots=True)
class Queue:
    """Jobs, where they run, and how well their times are known: truly, with noise, or not at all."""

    workload: Workload
    cluster: Cluster
    knowledge: str = "perfect"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of queue: what it is, in a few words, and how to draw one."""

    about: str
    draw: Callable[[int], Queue]


def noisy_model(workload: Workload, seed: int) -> MistakenModel:
    """Predictions with an error of `NOISE`; two standard deviations either way are their interval."""
    # Streams of their own (the second number) for order, times and noise: more of one changes none of the
    # others.
    rng = _random_generator(seed, 5)
    return MistakenModel(
        workload,
        lambda: rng.normal(0.0, NOISE),
        reach=math.exp(2 * NOISE),
        runs=5,
        source="true time, with noise",
    )


def _random_generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(list(key)))


def _gregg_queue(seed: int) -> Queue:
    cluster = Cluster.parse("1x1cpu+1gpu")
    return Queue(
        shuffle_together(load_workload("published:gregg-table2", cluster), _random_generator(seed, 0)),
        cluster,
        seed=seed,
    )


def _gregg_cold(seed: int) -> Queue:
    queue = _gregg_queue(seed)
    thrice: list[Job] = []
    times: dict[tuple[JobId, str, int], float] = {}
    for job in list(queue.workload.jobs) * 3:
        # Ids must differ, while the app, by which times are learned, stays the same.
        thrice.append(replace(job, id=f"{job.id}.{len(thrice)}", index=len(thrice)))
        for choice in job.choices:
            seconds = queue.workload.truth.seconds(job, choice.implementation, choice.request)
            times[thrice[-1].id, choice.implementation.name, 1] = seconds or 0.0
    workload = shuffle_together(
        Workload("gregg-table2 three times", thrice, TableTruth(times)), _random_generator(seed, 1)
    )
    return Queue(workload, queue.cluster, "learned", seed)


def _ravi_queue(seed: int, jobs: int = 24) -> Queue:
    pools = list(POOLS)
    # In turns through all pools and mixes, so that few seeds already have each.
    pool, mix = pools[seed % len(pools)], MIXES[seed // len(pools) % len(MIXES)]
    return Queue(ravi_single(mix, jobs, pool, seed), Cluster.parse("2x1cpu+1gpu"), seed=seed)


def submit_online(workload: Workload, units: int, seed: int, load: float = LOAD) -> Workload:
    """The jobs one by one, at random times, at this load of so many units if each ran where it is fastest."""
    truth = workload.truth
    best = [
        min(truth.seconds(job, c.implementation, c.request) or 0.0 for c in job.choices)
        for job in workload.jobs
    ]
    gaps = _random_generator(seed, 9).exponential(float(np.mean(best)) / units / load, len(best))
    # The first job comes at 0, as the makespan counts from there.
    times = np.cumsum(gaps) - gaps[0]
    jobs = [replace(job, submit_time=float(at)) for job, at in zip(workload.jobs, times, strict=True)]
    return replace(workload, jobs=jobs)


def _ravi_online(seed: int) -> Queue:
    queue = _ravi_queue(seed, 120)
    return replace(queue, workload=submit_online(queue.workload, 4, seed))


def _gangs_queue(seed: int) -> Queue:
    mix = list(GANG_MIXES)[seed % len(GANG_MIXES)]
    return Queue(ravi_multi(mix, seed=seed), Cluster.parse("16x8cpu+1gpu"), seed=seed)


def _rigid_queue(seed: int) -> Queue:
    spec = f"synthetic:lublin?jobs=400&nodes=64&load=0.95&seed={seed}"
    cluster = Cluster.parse("64x1cpu")
    return Queue(load_workload(spec, cluster), cluster, seed=seed)


def mixed_queue(seed: int, jobs: int = 40) -> Queue:
    """A third each of one-node jobs on CPU or GPU, of moldable gangs, and of rigid ones; some on one CPU."""
    rng = _random_generator(seed, 3)
    cluster = Cluster.parse("4x4cpu+1gpu")
    made: list[Job] = []
    times: dict[tuple[JobId, str, int], float] = {}
    for i in range(jobs):
        cpu = Implementation("cpu", "cpu", Request(cpus=1) if rng.random() < 0.3 else Request())
        gpu = Implementation("gpu", "gpu", Request(cpus=HOST_CPUS, devices=(("gpu", 1),)))
        seconds = {"cpu": float(rng.integers(5, 90)), "gpu": float(rng.integers(1, 60))}
        forms: tuple[Implementation, ...] = (cpu, gpu)
        sizes: tuple[int, ...] = (1,)
        kind = int(rng.integers(3))
        if kind == 1:
            sizes = (1, 2, 4)
        elif kind == 2:
            forms, sizes = ((cpu, gpu)[int(rng.integers(2))],), (int(rng.integers(1, 5)),)
        choices = tuple(Choice(form, form.request.on(n)) for form in forms for n in sizes)
        # Half of the jobs at once, the others while these run.
        submit = float(rng.choice([0.0, 0.0, 20.0, 60.0]))
        name = f"j{i}"
        made.append(Job(name, App(name, forms), choices, index=i, submit_time=submit, nodes=sizes[-1]))
        for choice in choices:
            n, form = choice.request.nodes, choice.implementation.name
            # Some speedup is lost for each further node, as with real programs.
            times[name, form, n] = seconds[form] / n**0.8
    made.sort(key=lambda job: (job.submit_time, job.index))
    return Queue(Workload("mixture", made, TableTruth(times)), cluster, seed=seed)


KINDS: Mapping[str, Kind] = {
    "gregg": Kind("Table 2 of Gregg 2011 in random order, one CPU and one GPU", _gregg_queue),
    "gregg, noise": Kind(
        "the same, predictions 30 % off", lambda seed: replace(_gregg_queue(seed), knowledge="noise")
    ),
    "gregg, cold": Kind("every job three times, nothing known at first", _gregg_cold),
    "ravi": Kind("24 jobs of Ravi 2012 at once, two nodes with a GPU each, 8 pools, 3 mixes", _ravi_queue),
    "ravi, noise": Kind(
        "the same, predictions 30 % off", lambda seed: replace(_ravi_queue(seed), knowledge="noise")
    ),
    "ravi, online": Kind("120 jobs of these one by one, at load 0.9", _ravi_online),
    "gangs": Kind("32 moldable gangs of Ravi 2012 on 16 nodes, 6 mixes", _gangs_queue),
    "gangs, noise": Kind(
        "the same, predictions 30 % off", lambda seed: replace(_gangs_queue(seed), knowledge="noise")
    ),
    "rigid": Kind("400 rigid jobs (Lublin-Feitelson) on 64 processors at load 0.95", _rigid_queue),
    "mixture": Kind("40 one-node, moldable and rigid jobs on 4 nodes with a GPU each", mixed_queue),
}
