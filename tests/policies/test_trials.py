"""Policies by predicted times, where nothing is predicted: what is idle and untried is tried."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest

from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.simulation.simulate import simulate
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Result, Workload
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import make_model
from dovetail.testing.builders import workload
from dovetail.testing.invariants import check_schedule

SLOW_GPU, SLOW_CPU = {"cpu": 1.0, "gpu": 10.0}, {"cpu": 3.0, "gpu": 1.0}


@cache
def apps(slow: str) -> Workload:
    """Twelve apps, one job each."""
    times = SLOW_GPU if slow == "gpu" else SLOW_CPU
    return workload([(f"a{i}", times) for i in range(12)])


def run(policy: str, slow: str) -> Result:
    """With an empty history."""
    jobs, model = apps(slow), make_model("learned", MemoryHistory())
    result = simulate(jobs, Cluster.parse("1x1cpu+1gpu"), load_policy(policy).policy, model)
    check_schedule(result, jobs)
    return result


@cache
def by_history(slow: str) -> float:
    """Its makespan: 20 s and 9 s."""
    return run("history", slow).makespan


CHOOSING = (
    *("lookahead", "asjf", "rsa", "rsc", "brr-dynamic", "fms", "fms?score=area", "fms-type", "fms-nodes"),
    *("torque", "torque-plan", "mct", "best-device", "min-min", "max-min", "sufferage", "heteroprio"),
    *("fcfs", "sjf", "easy", "conservative", "rq", "mrq"),
)


@pytest.mark.parametrize(("policy", "slow"), list(itertools.product(CHOOSING, ["gpu", "cpu"])))
def test_with_nothing_predicted_no_policy_is_far_behind_history(policy: str, slow: str) -> None:
    assert run(policy, slow).makespan <= 1.5 * by_history(slow)


@pytest.mark.parametrize("policy", ["asjf", "rsc", "min-min", "best-device", "fms", "torque", "fcfs"])
def test_an_app_is_tried_by_one_job_on_each_class(policy: str) -> None:
    """Four jobs of one app and four idle devices: one of each class begins, what follows knows more."""
    from dovetail.testing.examples import one_node

    times = {"cpu": 4.0, "gpu": 1.0}
    jobs = [("a", times)] * 4
    schedule = repr(one_node(load_policy(policy).policy, "2x1cpu+1gpu", jobs, model="mean"))
    begun = [" ".join(job.split()[1:-3]) for job in schedule.split(", ") if " 0 to " in job]
    assert {kind.partition(" ")[0] for kind in begun} >= {"cpu", "gpu"}


def test_a_replay_tries_the_same(tmp_path: Path) -> None:
    path, cluster = tmp_path / "journal.jsonl", Cluster.parse("1x1cpu+1gpu")
    journal = JournalWriter(path, cluster, policy="asjf")
    history = MemoryHistory()
    simulate(
        apps("gpu"), cluster, load_policy("asjf").policy, make_model("learned", history), observe=history,
        journal=journal,
    )  # fmt: skip
    assert replay(read_journal(path), load_policy("asjf").policy) == 12


def test_under_the_papers_model_policies_are_the_papers() -> None:
    jobs = apps("gpu")
    model = make_model("least-squares", MemoryHistory())
    result = simulate(jobs, Cluster.parse("1x1cpu+1gpu"), load_policy("asjf").policy, model)
    assert result.makespan == 120.0
