"""RSA, RSC, ASJF and both round robins on two nodes, written apart from the engine, on draws of its own.

Resources are CPU0, CPU1, GPU0, GPU1 in order; a job is (seconds on one core, speedup of a GPU, of the CPUs).
`python tests/reference/test_ravi_single.py N` prints the means over N draws that the study quotes as
"reference".
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import pytest

import dovetail
from dovetail.testing.builders import full
from dovetail_lab.published.ravi_single import ravi_single


class Bench(NamedTuple):
    sequential: float
    gpu: float
    cpu: float

    def on(self, kind: str) -> float:
        return self.sequential / (self.cpu if kind == "cpu" else self.gpu)

    @property
    def likes(self) -> str:
        return "cpu" if self.cpu > self.gpu else "gpu"

    @property
    def other(self) -> str:
        return "gpu" if self.likes == "cpu" else "cpu"


LARGE = [
    Bench(7.3, 4.7, 6.8), Bench(33.8, 5.1, 7.8), Bench(8.4, 2.2, 7.6), Bench(2.6, 2.1, 7.2),
    Bench(11.8, 5.6, 4.2), Bench(45.4, 38.4, 7.9), Bench(330.0, 12.1, 7.8), Bench(67.3, 7.8, 6.2),
    Bench(142.0, 9.7, 5.6), Bench(46.6, 12.9, 7.9),
]  # fmt: skip
POOL_B = (
    [Bench(0.1 * b.sequential, 0.63 * b.gpu, b.cpu) for b in LARGE]
    + LARGE
    + [Bench(50 * b.sequential, 1.5 * b.gpu, b.cpu) for b in LARGE]
)
KINDS = ("cpu", "cpu", "gpu", "gpu")


def draw(rng: random.Random, share: float, jobs: int = 24) -> list[Bench]:
    """A mix of pool B, drawn with replacement."""
    count = round(jobs * share)
    chosen = rng.choices([b for b in POOL_B if b.likes == "cpu"], k=count)
    chosen += rng.choices([b for b in POOL_B if b.likes == "gpu"], k=jobs - count)
    rng.shuffle(chosen)
    return chosen


def brr(jobs: Sequence[Bench]) -> float:
    """Job i on resource i mod 4, node by node: CPU0, GPU0, CPU1, GPU1."""
    turns = ("cpu", "gpu", "cpu", "gpu")
    ends = [0.0] * 4
    for i, job in enumerate(jobs):
        ends[i % 4] += job.on(turns[i % 4])
    return max(ends)


def brr_dynamic(jobs: Sequence[Bench]) -> float:
    """Each job in turn on the resource that is free first, the CPUs before the GPUs."""
    ends = [0.0] * 4
    for job in jobs:
        at = ends.index(min(ends))
        ends[at] += job.on(KINDS[at])
    return max(ends)


Take = Callable[[int, float, list[float], dict[str, list[Bench]]], "Bench | None"]


def served(jobs: Sequence[Bench], key: Callable[[Bench], float], take: Take) -> float:
    """Two queues, sorted; at every instant all idle resources are asked, in order, until nothing changes."""
    queues = {kind: sorted((j for j in jobs if j.likes == kind), key=key) for kind in ("cpu", "gpu")}
    ends = [0.0] * 4
    now = 0.0
    while any(queues.values()):
        changed = True
        while changed:
            changed = False
            for r, kind in enumerate(KINDS):
                if ends[r] > now:
                    continue
                job = take(r, now, ends, queues)
                if job is not None:
                    ends[r] = now + job.on(kind)
                    changed = True
        later = [end for end in ends if end > now]
        if not later:
            break
        now = min(later)
    return max(ends)


def by_difference(job: Bench) -> float:
    return -abs(job.gpu - job.cpu)


def aggressive(r: int, now: float, ends: list[float], queues: dict[str, list[Bench]]) -> Bench | None:
    own, other = queues[KINDS[r]], queues["gpu" if KINDS[r] == "cpu" else "cpu"]
    return own.pop(0) if own else other.pop() if other else None


def conservative(r: int, now: float, ends: list[float], queues: dict[str, list[Bench]]) -> Bench | None:
    own = queues[KINDS[r]]
    return own.pop(0) if own else None


def adaptive(r: int, now: float, ends: list[float], queues: dict[str, list[Bench]]) -> Bench | None:
    own, other = queues[KINDS[r]], queues["gpu" if KINDS[r] == "cpu" else "cpu"]
    if own:
        return own.pop(0)
    if not other:
        return None
    penalty, k = min((job.on(job.other) - job.on(job.likes), i) for i, job in enumerate(other))
    wait = min(max(end, now) for end, kind in zip(ends, KINDS, strict=True) if kind != KINDS[r]) - now
    return other.pop(k) if penalty < wait else None


POLICIES: dict[str, Callable[[Sequence[Bench]], float]] = {
    "brr": brr,
    "brr-dynamic": brr_dynamic,
    "rsa": lambda jobs: served(jobs, by_difference, aggressive),
    "rsc": lambda jobs: served(jobs, by_difference, conservative),
    "asjf": lambda jobs: served(jobs, lambda job: job.on(job.likes), adaptive),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("mix", ["uniform", "cpu75", "gpu75"])
def test_completion_times_are_those_of_the_engine(policy: str, mix: str) -> None:
    for seed in range(1, full(100, 12) + 1):
        workload = ravi_single(mix, seed=seed)
        jobs = [Bench(job.sequential or 0.0, job.speedup["gpu"], job.speedup["cpu"]) for job in workload.jobs]
        ours = dovetail.simulate(workload, cluster="2x1cpu+1gpu", policy=policy).makespan
        assert ours == pytest.approx(POLICIES[policy](jobs), rel=1e-9)


def optimum(jobs: Sequence[Bench]) -> float:
    """The least completion time on 2 + 2 resources, to 0.2 %, by CP-SAT."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    unit = max(job.on(job.other) for job in jobs) / 2**24
    ends = model.new_int_var(0, 2**40, "")
    loads: list[list[cp_model.LinearExprT]] = [[] for _ in KINDS]
    for job in jobs:
        row = [model.new_bool_var("") for _ in KINDS]
        model.add_exactly_one(row)
        for load, var, kind in zip(loads, row, KINDS, strict=True):
            load.append(round(job.on(kind) / unit) * var)
    for load in loads:
        model.add(sum(load) <= ends)
    model.minimize(ends)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 2
    solver.parameters.relative_gap_limit = 0.002
    solver.parameters.max_time_in_seconds = 30.0
    solver.solve(model)
    return solver.objective_value * unit


def means(draws: int, *, exact: bool) -> None:
    """Print what the study quotes, with standard errors; ``exact`` divides by the optimum."""
    rng = random.Random(20120501)
    per_mix: dict[str, list[dict[str, float]]] = {}
    for mix, share in (("uniform", 0.5), ("cpu75", 0.75), ("gpu75", 0.25)):
        for _ in range(draws):
            jobs = draw(rng, share)
            found = {name: policy(jobs) for name, policy in POLICIES.items()}
            if exact:
                best = optimum(jobs)
                found = {name: seconds / best for name, seconds in found.items()}
            per_mix.setdefault(mix, []).append(found)
    if exact:
        for name in POLICIES:
            row = [fmean(f[name] for f in found) for found in per_mix.values()]
            print(name, *(f"{mean:.3f}" for mean in row), f"all {fmean(row):.3f}")
    ours = ("rsa", "rsc", "asjf")
    triples = list(zip(*per_mix.values(), strict=True))
    figures: dict[str, list[float]] = {
        name: [fmean(f[name] / fmean(f[o] for o in ours) for f in same) for same in triples]
        for name in ("brr", "brr-dynamic")
    }
    if exact:
        figures["ours"] = [fmean(fmean(f[o] for o in ours) for f in same) for same in triples]
        figures["best of each draw"] = [fmean(min(f[o] for o in ours) for f in same) for same in triples]
    for name, values in figures.items():
        print(f"{name}: {fmean(values):.3f}, standard error {stdev(values) / sqrt(len(values)):.3f}")


if __name__ == "__main__":
    means(int(sys.argv[1]), exact=len(sys.argv) > 2)
