"""Multifactor priority and fair shares in simulations: beside formulas, and beside the service's own rule."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.driver.fair_shares import FairShares
from dovetail.driver.priority import Priorities
from dovetail.model import (
    Checkpoints,
    Cluster,
    Conditions,
    Failures,
    JobClass,
    ListedFailure,
    Preemption,
    PriorityRule,
    Result,
    State,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full, rigid
from dovetail.testing.invariants import check_schedule

CLASSES = (JobClass("high", 4.0, users=("h",)), JobClass("low", 1.0, users=("l",)))
USERS = ("a", "b", "h", "l")


def simulated(work: Workload, nodes: int, policy: str, conditions: Conditions) -> Result:
    result = simulate(
        work,
        Cluster.uniform(nodes, 1),
        load_policy(policy).policy,
        PerfectModel(work.truth),
        conditions=conditions,
        options=SimulationOptions(validate=True),
    )
    check_schedule(result, work)
    return result


def drawn_work(rng: random.Random, count: int, most: int) -> Workload:
    rows = []
    for _ in range(count):
        seconds = float(rng.randint(1, 50))
        rows.append((float(rng.randint(0, 80)), rng.randint(1, most), seconds, seconds + rng.choice((0, 9))))
    work = rigid(rows)
    return replace(work, jobs=[replace(job, user=rng.choice(USERS)) for job in work.jobs])


def plain_starts(work: Workload, nodes: int, rule: PriorityRule) -> dict[str, float]:
    """Jobs under fcfs, in order of a sum that is worked out from what each user's stints have used."""
    stints: list[tuple[str, float, float, int]] = []  # user, start, end, nodes
    shares = dict(rule.shares)

    def used(user: str, now: float) -> float:
        """The integral over the stints, each moment counting half as much a half-life later; by eighths."""
        total = 0.0
        for who, start, end, count in stints:
            if who != user or start >= now:
                continue
            steps, stop = 500, min(end, now)
            width = (stop - start) / steps
            middles = (start + (k + 0.5) * width for k in range(steps))
            total += count / nodes * width * sum(2 ** -((now - t) / rule.half_life) for t in middles)
        return total

    def factor(user: str, now: float) -> float:
        known = {who for who, *_ in stints} | set(shares) | {user}
        everything = sum(used(who, now) for who in known)
        if not everything:
            return 1.0
        share = shares.get(user, 1.0) / sum(shares.get(who, 1.0) for who in known)
        return float(2 ** -(used(user, now) / everything / share))

    waiting: dict[str, float] = {}
    jobs = {job.id: job for job in work.jobs}
    todo = sorted(work.jobs, key=lambda job: (job.submit_time, job.index))
    running: list[tuple[float, int]] = []
    starts: dict[str, float] = {}
    following = 0.0

    def priority(id: str, now: float) -> float:
        job = jobs[id]
        rank = {"h": 4.0, "l": 1.0}.get(job.user or "", 0.0)
        size = job.nodes / nodes
        age = -max(job.submit_time, now - rule.max_age) / rule.max_age
        most = max({"h": 4.0, "l": 1.0}.get(one.user or "", 0.0) for one in work.jobs) or 1.0
        parts = (
            rule.age * age,
            rule.fair_share * factor(job.user or "", now),
            rule.size * (size if rule.favor == "large" else 1 - size),
            rule.job_class * rank / most,
        )
        return sum(parts)

    while todo or waiting:
        now = min([job.submit_time for job in todo[:1]] + [end for end, _ in running])
        if running:
            now = min(now, following)
        running = [(end, count) for end, count in running if end > now]
        new = []
        while todo and todo[0].submit_time <= now:
            new.append(todo.pop(0).id)
        for id in new:
            waiting[id] = priority(id, now)
        if now >= following:
            for id in waiting:
                waiting[id] = priority(id, now)
            following = now + rule.every
        for id in sorted(waiting, key=lambda id: (-round(waiting[id]), jobs[id].submit_time, jobs[id].index)):
            job = jobs[id]
            if sum(count for _, count in running) + job.nodes > nodes:
                break
            seconds = work.truth.seconds(job, job.choices[0].implementation, job.choices[0].request)
            assert seconds is not None
            running.append((now + seconds, job.nodes))
            stints.append((job.user or "", now, now + seconds, job.nodes))
            starts[id] = now
            del waiting[id]
    return starts


@given(st.integers(0, 1_000_000))
@settings(max_examples=full(60, 6), deadline=None)
def test_jobs_start_in_the_order_of_the_sum(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 3)
    work = drawn_work(rng, rng.randint(2, 8), nodes)
    rule = PriorityRule(
        age=rng.choice((0.0, 1e7)),
        fair_share=rng.choice((0.0, 1e7)),
        size=rng.choice((0.0, 1e6)),
        job_class=rng.choice((0.0, 3e6)),
        max_age=rng.choice((30.0, 1000.0)),
        half_life=50.0,
        every=rng.choice((7.0, 25.0)),
        favor=rng.choice(("large", "small")),
        shares={"a": 2.0},
    )
    if not rule.weighs:
        return
    conditions = Conditions(classes=CLASSES, priority=rule)
    result = simulated(work, nodes, "fcfs", conditions)
    found = {record.job.id: record.start for record in result.records}
    assert found == plain_starts(work, nodes, rule)


@given(st.integers(0, 1_000_000), st.sampled_from(["fcfs", "easy", "conservative"]), st.booleans())
@settings(max_examples=full(200, 20), deadline=None)
def test_every_schedule_holds(seed: int, policy: str, preempts: bool) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 5)
    rule = PriorityRule(
        age=1000.0, fair_share=5000.0, size=100.0, job_class=500.0, half_life=40.0, every=11.0
    )
    urgent = JobClass("urgent", 9.0, users=("h",), preempts=True)
    conditions = Conditions(
        Failures(listed=(ListedFailure(0, float(rng.randint(1, 60)), 10.0),), most_restarts=10_000),
        Checkpoints(8.0, 1.0),
        preemption=Preemption(rng.choice(("requeue", "suspend"))) if preempts else None,
        classes=(urgent,) if preempts else CLASSES,
        priority=rule,
    )
    work = drawn_work(rng, rng.randint(1, 12), nodes)
    result = simulated(work, nodes, policy, conditions)
    assert all(record.state is State.COMPLETED for record in result.records)


@pytest.mark.parametrize("policy", ["easy", "history"])
def test_without_weights_it_is_the_service_s_own_rule(policy: str) -> None:
    """The same classes with the same figures as `dovetail serve` puts before a policy."""
    rng = random.Random(5)
    work = drawn_work(rng, 40, 1)
    rule = PriorityRule(half_life=60.0, shares={"a": 3.0})
    found = simulated(work, 2, policy, Conditions(priority=rule))
    loaded = load_policy(policy)
    from dovetail.plugins import needs_priorities

    served = simulate(
        work,
        Cluster.uniform(2, 1),
        loaded.policy,
        PerfectModel(work.truth),
        priorities=Priorities(
            priorities=needs_priorities(loaded.policy), shares=FairShares(60.0, {"a": 3.0})
        ),
    )
    assert [record.start for record in found.records] == [record.start for record in served.records]
    plain = simulate(work, Cluster.uniform(2, 1), loaded.policy, PerfectModel(work.truth))
    assert [record.start for record in found.records] != [record.start for record in plain.records]


def test_the_fair_share_factor() -> None:
    shares = FairShares(1e9, {"a": 3.0}, {"a": 75.0, "b": 25.0})
    assert shares.factor("a", 0.0) == pytest.approx(0.5)  # has used just its share
    assert shares.factor("b", 0.0) == pytest.approx(0.5)
    assert shares.factor("c", 0.0) == 1.0
    assert FairShares(10.0).factor("a", 5.0) == 1.0
    assert FairShares(1e9, {}, {"a": 30.0, "b": 10.0}).factor("a", 0.0) == pytest.approx(2**-1.5)
