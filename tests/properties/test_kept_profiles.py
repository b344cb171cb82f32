"""What conservative backfilling keeps from question to question, against profiles made anew each time."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.engine.state import profiles
from dovetail.engine.state.profiles import ProfileBook
from dovetail.model import App, Choice, Cluster, Implementation, Job, Request, Result, TableTruth, Workload
from dovetail.native.library import load_library
from dovetail.policies.conservative import Conservative
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule

ALIKE = "8x4cpu"
UNLIKE = "4x4cpu+2gpu"


def random_jobs(rng: np.random.Generator, count: int, cluster: str) -> Workload:
    """A crowd of jobs: many alike, some of no length, some past their walltime, with and without priority."""
    shapes = [Request(n, 4) for n in (1, 1, 2, 3, 5, 8)]
    if cluster == UNLIKE:
        shapes = [
            Request(n, cpus, (("gpu", gpus),)) for n in (1, 2) for cpus in (1, 2) for gpus in (0.5, 1, 2)
        ]
    implementations = [
        Implementation(f"i{i}", "gpu" if r.devices else "cpu", r) for i, r in enumerate(shapes)
    ]
    app = App("a", tuple(implementations))
    submits = np.cumsum(rng.integers(0, 3, count)).tolist()
    jobs, times = [], {}
    for i in range(count):
        implementation = implementations[int(rng.integers(len(shapes)))]
        wall = float(rng.choice([1, 2, 5, 9, 20]))
        run = wall * float(rng.choice([0.125, 0.25, 0.875, 1.0, 1.0, 1.5]))
        if rng.random() < 0.02:
            wall = run = 0.0
        choices = (Choice(implementation, implementation.request),)
        nodes = implementation.request.nodes
        priority = float(rng.integers(2)) if count % 2 else 0.0
        jobs.append(Job(str(i), app, choices, i, submits[i], nodes=nodes, walltime=wall, priority=priority))
        times[str(i)] = run
    return Workload("random", jobs, TableTruth(fixed=times))


def scheduled(w: Workload, cluster: str, policy: Conservative, overrun: str) -> Result:
    options = SimulationOptions(overrun=overrun, validate=True)
    result = simulate(w, Cluster.parse(cluster), policy, PerfectModel(w.truth), options=options)
    check_schedule(result, w)
    return result


@pytest.mark.parametrize("cluster", [ALIKE, UNLIKE])
@pytest.mark.parametrize("order", ["fcfs", "sjf", "saf"])
@pytest.mark.parametrize("overrun", ["kill", "run"])
def test_kept_profiles_give_the_schedules_of_new_ones(
    cluster: str, order: str, overrun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(full(80, 4)):
        rng = np.random.Generator(np.random.PCG64(seed))
        w = random_jobs(rng, int(rng.integers(20, 90)), cluster)
        policy = Conservative(order=order)  # type: ignore[arg-type]
        monkeypatch.setattr(profiles, "load_library", load_library if seed % 3 else lambda: None)
        kept = scheduled(w, cluster, policy, overrun)
        with monkeypatch.context() as patched:
            patched.setattr(ProfileBook, "_is_lasting", lambda self, new: False)
            anew = scheduled(w, cluster, policy, overrun)
        for one, other in zip(kept.records, anew.records, strict=True):
            assert (one.start, one.allocation, one.promised) == (
                other.start,
                other.allocation,
                other.promised,
            )
