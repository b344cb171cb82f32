"""Priorities and fair shares before any policy: the higher one never starts later, usage is forgotten."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.fair_shares import FairShares
from dovetail.driver.priority import NICE, WINDOW, Priorities
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.phases import Phase
from dovetail.interfaces import traits_of
from dovetail.model import (
    EMPTY,
    Allocation,
    Cluster,
    Ended,
    Event,
    Held,
    Job,
    Part,
    Placed,
    Record,
    Released,
    Result,
    Submitted,
    Throttle,
    Workload,
)
from dovetail.plugins import list_policies, load_policy, needs_priorities
from dovetail.policies.follow_plan import FollowPlan
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, workload
from dovetail.testing.invariants import check_schedule

MACHINE = Cluster.parse("1x2cpu+1gpu")
BOTH = {"cpu": 4.0, "gpu": 2.0}


def jobs_of(*rows: tuple[float, float, str]) -> Workload:
    """Equal jobs: submit time, priority, user."""
    plain = workload([(f"j{n}", BOTH) for n in range(len(rows))])
    jobs = [
        replace(job, submit_time=at, priority=priority, user=user)
        for job, (at, priority, user) in zip(plain.jobs, rows, strict=True)
    ]
    return replace(plain, jobs=sorted(jobs, key=lambda job: job.submit_time))


def simulated(
    jobs: Workload,
    policy: str,
    *,
    priorities: Priorities | None = None,
    journal: JournalWriter | None = None,
    cluster: Cluster = MACHINE,
) -> Result:
    loaded = load_policy(policy)
    priorities = priorities or Priorities(priorities=needs_priorities(loaded.policy))
    result = simulate(
        jobs,
        cluster,
        loaded.policy,
        TrueTimesModel(jobs.truth),
        options=SimulationOptions(validate=True, placement=getattr(loaded.policy, "placement", "pack")),
        follow=FollowPlan(),
        journal=journal,
        priorities=priorities,
    )
    check_schedule(result, jobs)
    return result


def every_policy() -> list[str]:
    """All but those that decide no start by themselves: one hands jobs over, one follows another's plan.

    `pack` plans jobs that are all there from the beginning, and refuses these.
    """
    names = {info.name for info in list_policies()} - {"follow-plan", "pack"}
    return sorted(name for name in names if not traits_of(load_policy(name).policy).submits)


@pytest.mark.parametrize("policy", every_policy())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0.0, 1.0, 5.0])), min_size=2, max_size=7
    )
)
def test_of_equal_jobs_the_higher_one_never_starts_later(
    policy: str, rows: list[tuple[float, float]]
) -> None:
    found = simulated(jobs_of(*((at, priority, "u") for at, priority in rows)), policy)
    starts = [(r.job.submit_time, -r.job.priority, r.start) for r in found.records]
    assert all(start is not None for _, _, start in starts)
    for at, priority, start in starts:
        for other_at, other, later in starts:
            if at == other_at and priority < other:
                assert start is not None
                assert later is not None
                assert start <= later


def test_without_turns_such_a_policy_does_not_look_at_priorities() -> None:
    """What the test above would find: the jobs are such that it can fail."""
    jobs = jobs_of(*((0.0, 0.0, "u"),) * 4, (0.0, 5.0, "u"))
    plain = simulate(jobs, MACHINE, load_policy("history").policy, TrueTimesModel(jobs.truth))
    first, ranked = plain.records[-1].start, simulated(jobs, "history").records[-1].start
    assert first is not None
    assert ranked == 0.0 < first


def test_jobs_that_could_not_run_in_the_same_place_do_not_wait_for_each_other() -> None:
    jobs = workload([("a", {"gpu": 9.0}), ("b", {"gpu": 9.0}), ("c", {"cpu": 1.0})])
    urgent = [replace(job, priority=5.0) if job.app.name != "c" else job for job in jobs.jobs]
    found = simulated(replace(jobs, jobs=urgent), "history")
    assert [record.start for record in found.records] == [0.0, 9.0, 0.0]


def nice_jobs(*rows: tuple[float, float, int, str]) -> Workload:
    """Equal jobs: submit time, priority, nice value, user."""
    plain = jobs_of(*((at, priority, user) for at, priority, _, user in rows))
    by_id = {f"j{n}": nice for n, (_, _, nice, _) in enumerate(rows)}
    jobs = [replace(job, options={NICE: by_id[job.id]} if by_id[job.id] else EMPTY) for job in plain.jobs]
    return replace(plain, jobs=jobs)


def test_a_nice_job_goes_behind_those_of_its_user_alone() -> None:
    rows = [(0, 0, 0, "u"), (0, 0, 5, "u"), (0, 0, 5, "v"), (0, 0, 1, "u"), (0, 0, 0, "u"), (0, 0, 0, "w")]
    for policy in ("fcfs", "easy", "history"):
        found = simulated(nice_jobs(*rows), policy, cluster=Cluster.parse("1x1cpu"))
        started = [r.job.id for r in sorted(found.records, key=lambda r: r.start or 0.0)]
        assert [id for id in started if id in ("j0", "j1", "j3", "j4")] == ["j0", "j4", "j3", "j1"]
        plain = simulated(
            nice_jobs(*((*row[:2], 0, row[3]) for row in rows)), policy, cluster=Cluster.parse("1x1cpu")
        )
        order = [r.job.id for r in sorted(plain.records, key=lambda r: r.start or 0.0)]
        assert started.index("j2") <= order.index("j2")  # of another user: no later than before


def test_a_nice_job_of_higher_priority_still_goes_first() -> None:
    rows = [(0, 0, 0, "u"), (1, 0, 0, "u"), (1, 3, 9, "u")]
    found = simulated(nice_jobs(*rows), "history", cluster=Cluster.parse("1x1cpu"))
    started = [r.job.id for r in sorted(found.records, key=lambda r: r.start or 0.0)]
    assert started == ["j0", "j2", "j1"]


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.sampled_from((0.0, 1.0, 5.0)), st.sampled_from((0, 1)), st.sampled_from((0, 1, 7)),
            st.sampled_from("uv"),
        ),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_of_equal_jobs_of_a_user_the_less_nice_one_never_starts_later(
    rows: list[tuple[float, float, int, str]],
) -> None:
    found = simulated(nice_jobs(*rows), "history", cluster=Cluster.parse("1x1cpu"))
    assert all(record.start is not None for record in found.records)
    for one in found.records:
        for other in found.records:
            same = (one.job.user, one.job.priority) == (other.job.user, other.job.priority)
            less = one.job.options.get(NICE, 0) < other.job.options.get(NICE, 0)
            if same and less and one.job.submit_time <= other.job.submit_time:
                assert (one.start or 0) <= (other.start or 0)


def test_the_moves_are_in_the_journal_and_a_replay_makes_the_same_decisions(tmp_path: Path) -> None:
    loaded, path = load_policy("history"), tmp_path / "journal.jsonl"
    writer = JournalWriter(path, MACHINE, policy=loaded.policy_label, placement="pack")
    priorities = Priorities(priorities=True, shares=FairShares(60.0))
    jobs = jobs_of(*((float(n), float(n % 3), "ab"[n % 2]) for n in range(12)))
    simulated(jobs, "history", journal=writer, priorities=priorities)
    writer.close()
    journal = read_journal(path)
    moves = {type(event) for batch in journal.batches for event in batch.events}
    assert {Held, Released} <= moves
    decided = sum(len(batch.decisions) for batch in journal.batches)
    assert replay(journal, load_policy("history").policy) == decided >= 12


def test_many_that_were_held_back_come_in_by_windows() -> None:
    priorities, records = Priorities(priorities=True), dict[str, Record]()
    plain = workload([(f"j{n}", {"cpu": 1.0}) for n in range(WINDOW * 4)])

    def submitted(*jobs: Job) -> list[Event]:
        records.update((job.id, Record(job)) for job in jobs)
        return priorities.in_turn([Submitted(job) for job in jobs], 0.0, records)

    assert submitted(*plain.jobs) == [Submitted(job) for job in plain.jobs], "one rank: all come in at once"
    urgent = replace(plain.jobs[0], id="urgent", priority=1.0)
    held = [event for event in submitted(urgent) if isinstance(event, Held)]
    assert [event.job for event in held] == [job.id for job in plain.jobs]
    priorities.left("urgent")
    assert priorities.due
    back = priorities.in_turn([], 1.0, records)
    assert back == [Released(job.id) for job in plain.jobs[:WINDOW]]
    assert not priorities.due


# --------------------------------------------------------------------------------------- fair shares


def placed(job: str, user: str, cpus: int) -> Placed:
    one = replace(workload([("a", {"cpu": 1.0})]).jobs[0], id=job, user=user)
    choice = one.choices[0]
    return Placed(one, choice.implementation, Allocation(choice.request, (Part(1, cpus),)), 0.0, 1.0, 1.0)


def test_usage_halves_after_a_half_life() -> None:
    shares = FairShares(100.0, used={"a": 8.0})
    assert shares.used("a", 100.0) == pytest.approx(4.0)
    assert shares.used("a", 300.0) == pytest.approx(1.0)
    assert shares.used("b", 300.0) == 0.0


def test_what_runs_is_charged_as_it_goes() -> None:
    """Half of the machine for a second is half a second; for ever, it is what the half-life keeps of it."""
    machine, shares = Cluster.parse("1x4cpu"), FairShares(1000.0)
    shares.started(placed("1", "a", 2), machine, 0.0)
    assert shares.used("a", 1.0) == pytest.approx(0.5, rel=1e-3)
    assert shares.used("a", 1e6) == pytest.approx(0.5 * 1000.0 / log(2))
    shares.ended("1", 1e6)
    before = shares.used("a", 1e6)
    assert shares.used("a", 1e6 + 1000.0) == pytest.approx(before / 2)


def test_a_share_counts_for_so_many_users() -> None:
    shares = FairShares(100.0, {"a": 4.0}, {"a": 8.0, "b": 3.0})
    assert (shares.standing("a", 0.0), shares.standing("b", 0.0)) == (2.0, 3.0)


@pytest.mark.parametrize("policy", ["history", "easy", "brr", "fcfs", "min-min"])
def test_who_used_much_waits_behind_who_used_little(policy: str) -> None:
    jobs = jobs_of(*((0.0, 0.0, "much"),) * 6, *((0.0, 0.0, "little"),) * 6)
    loaded = load_policy(policy)
    shares = FairShares(1e6, used={"much": 1000.0})
    priorities = Priorities(priorities=needs_priorities(loaded.policy), shares=shares)
    found = simulated(jobs, policy, priorities=priorities)
    starts: dict[str | None, list[float]] = {"much": [], "little": []}
    for record in found.records:
        assert record.start is not None
        starts[record.job.user].append(record.start)
    assert max(starts["little"]) <= min(starts["much"])


def test_who_is_requeued_and_let_through_his_throttle_at_one_instant_is_not_left_behind() -> None:
    made = workload([("a", {"cpu": 5.0}), ("b", {"cpu": 5.0})])
    a, b = (replace(job, throttles=(Throttle("few", 1),)) for job in made.jobs)
    driver = Driver(
        Cluster.uniform(1, 1),
        load_policy("fcfs").policy,
        TrueTimesModel(made.truth),
        bound=no_bound,
        options=DriverOptions(),
    )
    driver.order_by_priority(Priorities(priorities=False), 0.0)
    driver.submit(a)
    driver.process_instant(0.0)
    driver.queue_events(Ended("a"))
    driver.process_instant(1.0)
    driver.draining = True
    driver.submit(b)
    driver.process_instant(2.0)
    driver.draining = False
    driver.requeue("a")
    driver.hold("b")
    driver.process_instant(3.0)
    assert driver.engine.phase_of("a") is Phase.RUNNING
