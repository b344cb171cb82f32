"""lookahead with one-node jobs on unlike units: near the optimum, replayable, nobody starves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import InputError
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Result, TableTruth, Workload
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full, workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.edit import shuffle_together
from dovetail.workloads.load import load_workload
from dovetail_lab.published.ravi_single import ravi_single

ONE, TWO = Cluster.parse("1x1cpu+1gpu"), Cluster.parse("2x1cpu+1gpu")


def run(w: Workload, policy: str = "lookahead", cluster: Cluster = ONE) -> Result:
    result = simulate(w, cluster, load_policy(policy).policy, TrueTimesModel(w.truth))
    check_schedule(result, w)
    return result


def mean_response(result: Result) -> float:
    return float(np.mean([r.end - r.job.submit_time for r in result.records if r.end is not None]))


def test_greggs_table_is_done_in_the_optimal_time_whatever_its_order() -> None:
    plain = load_workload("published:gregg-table2", ONE)
    optimum = dovetail.simulate(plain, cluster=ONE, policy="optimal").makespan
    for seed in range(full(200, 5)):
        w = shuffle_together(plain, np.random.Generator(np.random.PCG64(seed)))
        assert run(w).makespan <= 1.001 * optimum


@given(st.integers(1, 1000), st.sampled_from(["A", "D", "G"]), st.sampled_from(["uniform", "cpu75", "gpu75"]))
@settings(max_examples=full(100, 8), deadline=None, derandomize=True)
def test_no_fixed_policy_ends_ravis_mixes_much_sooner(seed: int, pool: str, mix: str) -> None:
    w = ravi_single(mix, 24, pool, seed)
    fixed = min(run(w, policy, TWO).makespan for policy in ("sufferage", "max-min", "rsa", "heteroprio"))
    assert run(w, cluster=TWO).makespan <= 1.0005 * fixed


def test_objective_response_lets_short_jobs_go_first() -> None:
    w = ravi_single("uniform", 24, "B", 3)
    response = mean_response(run(w, "lookahead?objective=response", TWO))
    assert response < mean_response(run(w, "lookahead", TWO))
    assert response <= 1.001 * mean_response(run(w, "min-min", TWO))


def test_objective_slowdown_is_better_at_it_than_the_others() -> None:
    def slowdown(objective: str) -> float:
        found = run(w, f"lookahead?objective={objective}", TWO)
        best = {
            job.id: min(w.truth.seconds(job, c.implementation, c.request) or 0 for c in job.choices)
            for job in w.jobs
        }
        return float(np.mean([(r.end or 0.0) / max(10.0, best[r.job.id]) for r in found.records]))

    w = ravi_single("uniform", 24, "B", 5)
    assert slowdown("slowdown") <= min(slowdown("response"), slowdown("makespan"))


def test_jobs_of_one_cpu_share_the_pool() -> None:
    w = narrow_jobs(8, cpus=1, seconds=10.0)
    assert run(w, cluster=Cluster.parse("1x4cpu")).makespan == pytest.approx(20.0)


def narrow_jobs(count: int, cpus: int, seconds: float) -> Workload:
    """``count`` jobs of ``cpus`` CPUs each."""
    w = workload([(f"j{i}", {"cpu": seconds}) for i in range(count)])
    jobs = []
    for job in w.jobs:
        implementation = dataclasses.replace(
            job.app.implementations[0], request=dataclasses.replace(job.choices[0].request, cpus=cpus)
        )
        app = dataclasses.replace(job.app, implementations=(implementation,))
        choice = dataclasses.replace(
            job.choices[0], implementation=implementation, request=implementation.request
        )
        jobs.append(dataclasses.replace(job, app=app, choices=(choice,)))
    return dataclasses.replace(w, jobs=jobs)


def test_whoever_waits_longer_than_the_age_limit_goes_first() -> None:
    # A long job, and a short one every second: the machine is never idle.
    rows = [("long", {"cpu": 50.0}, 0.5), *((f"s{i}", {"cpu": 1.0}, float(i)) for i in range(200))]
    w = workload(rows)
    cluster = Cluster.parse("1x1cpu")

    def start_of_long(policy: str) -> float:
        return next(r.start for r in run(w, policy, cluster).records if r.job.id == "long") or 0.0

    assert start_of_long("lookahead?objective=response") >= 199
    assert start_of_long("lookahead?objective=response&age=20") == pytest.approx(21.0, abs=1.0)


def test_what_is_to_come_changes_nothing_before() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    rows = [
        (f"j{i}", {"cpu": float(rng.integers(5, 60)), "gpu": float(rng.integers(1, 60))}, float(10 * i))
        for i in range(20)
    ]
    later = [*rows[:10], *((name, {"cpu": 1.0, "gpu": 99.0}, at) for name, _, at in rows[10:])]
    first, second = run(workload(rows)), run(workload(later))
    before = [
        {
            r.job.id: (r.start, r.implementation and r.implementation.name)
            for r in result.records
            if r.start is not None and r.start < 100.0
        }
        for result in (first, second)
    ]
    assert before[0] == before[1]


def test_from_an_empty_history_it_is_no_worse_than_history_in_the_mean() -> None:
    plain = repeated(load_workload("published:gregg-table2", ONE), 3)
    ratios = []
    for seed in range(full(40, 8)):
        w = shuffle_together(plain, np.random.Generator(np.random.PCG64(seed)))
        ratios.append(cold(w, "lookahead") / cold(w, "history"))
    assert np.mean(ratios) <= 1.0


def cold(w: Workload, policy: str) -> float:
    """The makespan from an empty history, in which every run is recorded."""
    history = MemoryHistory()
    result = simulate(w, ONE, load_policy(policy).policy, make_model("learned", history), observe=history)
    check_schedule(result, w)
    return result.makespan


def repeated(w: Workload, times: int) -> Workload:
    """Every job so many times."""
    jobs, table = [], {}
    for job in [job for _ in range(times) for job in w.jobs]:
        jobs.append(dataclasses.replace(job, id=f"{job.id}.{len(jobs)}", index=len(jobs)))
        for c in job.choices:
            table[jobs[-1].id, c.implementation.name, 1] = (
                w.truth.seconds(job, c.implementation, c.request) or 0.0
            )
    return Workload("repeated", jobs, TableTruth(table))


def test_options_that_make_no_sense_are_refused() -> None:
    for option in ("budget=0", "age=0", "objective=speed"):
        with pytest.raises(InputError, match=option.partition("=")[0]):
            load_policy(f"lookahead?{option}")
