"""Policies by predicted times, where nothing is predicted: what is idle and untried is tried."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Result, TableTruth, Workload
from dovetail.plugins import list_policies, load_policy
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import full, timed
from dovetail.testing.invariants import check_schedule

PLACED_BY_NAME = {
    "cpu-only": "on the CPU, whatever that takes",
    "gpu-only": "on a device, whatever that takes",
    "brr": "each on the next unit in turn, whatever that takes",
}
ELSEWHERE = {
    "earliest-completion": "hands jobs to a scheduler outside, and places none itself",
    "follow-plan": "does what a plan says",
    "optimal": "a plan needs times",
    "pack": "a plan needs times",
}
PROMISES = ("fms", "fms-type", "torque-plan")
"""What they have promised stays where it was promised when more jobs of an app come to be known."""
OPTIONS = ("fms?devices=each", "easy?order=sjf")
CHOOSING = (*sorted({p.name for p in list_policies()} - {*PLACED_BY_NAME, *ELSEWHERE, "history"}), *OPTIONS)

TIMES = [(1.0, 10.0), (10.0, 1.0), (1.0, 3.0), (3.0, 1.0), (1.5, 1.0), (10.0, 100.0), (100.0, 10.0)]
CLUSTERS = ["1x1cpu+1gpu", "2x1cpu+1gpu", "1x1cpu+2gpu"]


class Case(NamedTuple):
    """Twelve apps of which nothing is known."""

    times: tuple[float, float]
    """Seconds on the CPU and on a GPU."""
    cluster: str = "1x1cpu+1gpu"
    jobs: int = 1
    """Of each app."""
    every: float = 0.0
    """Seconds between submissions, in parts of the shorter time; 0: all at once."""
    records: bool = True
    """Whether runs are recorded."""


REDUCED = [
    *(Case(times) for times in TIMES),
    *(Case(times, cluster) for times in TIMES[:2] for cluster in CLUSTERS[1:3]),
    *(Case(times, jobs=4) for times in TIMES[:2]),
    *(Case(times, jobs=4, records=False) for times in TIMES[:2]),
    *(Case(times, every=0.5) for times in TIMES[:2]),
]
ALL = [*REDUCED, *(Case(*one) for one in itertools.product(TIMES, CLUSTERS, [1, 4], [0.0, 0.5]))]


TIES = {case for case in ALL if case.times[1] == 10 * case.times[0] and case[1:4] == (CLUSTERS[2], 1, 0.5)}
"""The last job meets an idle CPU and an idle GPU at one moment, while the other GPU is busy: `history` takes
the first in device order, the CPU; the others take the GPU, as it does itself where all are idle."""


@cache
def apps(case: Case) -> Workload:
    """The jobs, app by app in turn."""
    cpu, gpu = case.times
    times = {"cpu": cpu, "gpu": gpu}
    kinds = [timed(f"a{i}", times)[0].app for i in range(12)]
    jobs, table = [], {}
    for index in range(12 * case.jobs):
        at = index * case.every * min(cpu, gpu)
        job, told = timed(f"job-{index}", times, submit=at, index=index, app=kinds[index % 12])
        jobs.append(job)
        table.update(told)
    return Workload("unknown apps", jobs, TableTruth(table))


def run(policy: str, case: Case, model: str = "learned") -> Result:
    """From an empty history."""
    jobs, history = apps(case), MemoryHistory()
    result = simulate(
        jobs,
        Cluster.parse(case.cluster),
        load_policy(policy).policy,
        make_model(model, history),
        observe=history if case.records else None,
    )
    check_schedule(result, jobs)
    return result


@cache
def by_history(case: Case) -> float:
    """Its makespan: 20 s and 11 s for ten seconds against one."""
    return run("history", case).makespan


@pytest.mark.parametrize("policy", CHOOSING)
def test_with_nothing_predicted_no_policy_is_far_behind_history(policy: str) -> None:
    behind = {case: run(policy, case).makespan / by_history(case) for case in full(ALL, REDUCED)}
    most = {
        case: 2.0 if case in TIES or (policy.partition("?")[0] in PROMISES and case.jobs > 1) else 1.5
        for case in behind
    }
    assert {case: ratio for case, ratio in behind.items() if ratio > most[case]} == {}


@pytest.mark.parametrize("policy", PLACED_BY_NAME)
def test_policies_that_place_by_name_are_far_behind_it_and_must_be_named(policy: str) -> None:
    assert max(run(policy, case).makespan / by_history(case) for case in REDUCED[:2]) > 1.5


@pytest.mark.parametrize("policy", ["asjf", "rsc", "min-min", "best-device", "fms", "torque", "fcfs"])
def test_an_app_is_tried_by_one_job_on_each_class(policy: str) -> None:
    """Four jobs of one app and four idle devices: one of each class begins, what follows knows more."""
    from dovetail.testing.examples import one_node

    times = {"cpu": 4.0, "gpu": 1.0}
    jobs = [("a", times)] * 4
    schedule = repr(one_node(load_policy(policy).policy, "2x1cpu+1gpu", jobs, model="mean"))
    begun = [" ".join(job.split()[1:-3]) for job in schedule.split(", ") if " 0 to " in job]
    assert {kind.partition(" ")[0] for kind in begun} >= {"cpu", "gpu"}


@pytest.mark.parametrize("name", ["asjf", "easy", "rq-backfill", "history-guarded", "lookahead", "min-min"])
def test_a_replay_tries_the_same(name: str, tmp_path: Path) -> None:
    path, cluster = tmp_path / "journal.jsonl", Cluster.parse("1x1cpu+1gpu")
    journal = JournalWriter(path, cluster, policy=name)
    history = MemoryHistory()
    model = make_model("learned", history)
    policy = load_policy(name).policy
    jobs = apps(Case((1.0, 10.0), jobs=2))
    simulate(jobs, cluster, policy, model, observe=history, journal=journal)
    assert replay(read_journal(path), policy) >= 24


def test_under_the_papers_model_policies_are_the_papers() -> None:
    case = Case((1.0, 10.0), records=False)
    for policy in ("asjf", "rq-backfill", "history-guarded"):
        assert run(policy, case, "least-squares").makespan in (12.0, 120.0), policy  # all on one device
