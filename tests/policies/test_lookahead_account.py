"""The account of regret: costs of fixed orders are EASY's own, and roll-outs give way where they lose."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dovetail.kernels.backfilling import SLOWDOWN, WAIT
from dovetail.model import Cluster, PastJob, PastStretch, Record, Result, Workload
from dovetail.policies import lookahead_order
from dovetail.policies.easy import Easy
from dovetail.policies.lookahead import Lookahead
from dovetail.policies.lookahead_account import TRIED, Account, settle_account
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload

NODES = 64
CLUSTER = Cluster.parse(f"{NODES}x1cpu")


def busy_log(jobs: int, seed: int) -> Workload:
    """Rigid jobs with walltimes at load 1."""
    return load_workload(f"synthetic:rigid?jobs={jobs}&nodes={NODES}&load=1.0&seed={seed}", CLUSTER)


def simulated(workload: Workload, policy: Easy | Lookahead) -> Result:
    return simulate(workload, CLUSTER, policy, PerfectModel(workload.truth))


def cost(records: list[Record], summed: int) -> float:
    """Waits, or bounded slowdowns."""
    total = 0.0
    for record in records:
        assert record.start is not None
        assert record.end is not None
        wait, ran = record.start - record.job.submit_time, record.end - record.start
        total += wait if summed == WAIT else max(1.0, (wait + ran) / max(ran, 10.0))
    return total


def stretch_of(result: Result, *, until: float = inf, origin: float = -1.0) -> tuple[PastStretch, np.ndarray]:
    """What was done, as it is known at a moment."""
    jobs = []
    for record in result.records:
        assert record.start is not None
        assert record.end is not None
        assert record.job.walltime is not None
        if record.job.submit_time > until or record.end <= origin:
            continue
        started, ended = record.start <= until, record.end <= until
        start = record.start if started else None
        seconds = record.end - record.start if ended else None
        jobs.append(PastJob(record.job, record.job.walltime, start, seconds))
    jobs.sort(key=lambda one: (one.job.submit_time, one.job.index))
    stretch = PastStretch(origin, until, len(jobs), tuple(jobs))
    return stretch, np.array([one.job.nodes for one in jobs], np.int64)


@pytest.mark.parametrize("summed", [WAIT, SLOWDOWN])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_cost_of_each_order_is_what_easy_comes_to_in_it(seed: int, summed: int) -> None:
    workload = busy_log(250, seed)
    stretch, widths = stretch_of(simulated(workload, Easy("largest")))
    account = settle_account(stretch, widths, NODES, summed)
    assert account is not None
    for order in TRIED:
        records = list(simulated(workload, Easy(order)).records)
        assert account.costs[order] == pytest.approx(cost(records, summed)), order
    assert account.done == pytest.approx(account.costs["largest"])
    assert account.costs[account.best] == min(account.costs.values())
    assert max(account.costs.values()) > 1.05 * min(account.costs.values())


@pytest.mark.parametrize("part", [0.3, 0.6])
def test_what_began_earlier_and_what_still_waits_is_counted(part: float) -> None:
    """From any state on: who ran then goes on, who waited then waits; ends are known when they came."""
    workload = busy_log(400, 5)
    result = simulated(workload, Easy("sjf"))
    moments = sorted(job.submit_time for job in workload.jobs)
    origin, until = moments[int(part * 200)], moments[int(part * 400)]
    stretch, widths = stretch_of(result, until=until, origin=origin)
    assert any(one.start is not None and one.start < origin for one in stretch.jobs)
    assert any(one.start is None for one in stretch.jobs)
    account = settle_account(stretch, widths, NODES, WAIT)
    assert account is not None
    assert all(np.isfinite(list(account.costs.values())))
    # What was done is one of the orders: it costs what the account has for it, but for lengths not known yet.
    assert account.done == pytest.approx(account.costs["sjf"], rel=0.25)


def test_roll_outs_give_way_to_what_would_have_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = busy_log(700, 7)
    settled: list[Account | None] = []

    def noted(*stretch: object) -> Account | None:
        settled.append(settle_account(*stretch))  # type: ignore[arg-type]
        return settled[-1]

    monkeypatch.setattr(lookahead_order, "settle_account", noted)
    monkeypatch.setattr(lookahead_order, "LEAST_SUBMISSIONS", 256)
    policy = Lookahead(objective="wait")
    monkeypatch.setattr(lookahead_order, "CLEARLY_WORSE", inf)
    rolled = simulated(workload, policy)
    monkeypatch.setattr(lookahead_order, "CLEARLY_WORSE", 0.0)
    monkeypatch.setattr(lookahead_order, "CLEARLY_BETTER", inf)  # whatever was best: the one that stands
    sturdy = simulated(workload, policy)
    assert len(settled) == 4  # after 256 and 512 submissions, in both
    assert all(account is not None for account in settled)
    for result in (rolled, sturdy):
        check_schedule(result, workload)
        assert result.promises_broken == 0
    first = [job.id for job in workload.jobs[:200]]
    starts = [{record.job.id: record.start for record in result.records} for result in (rolled, sturdy)]
    assert [starts[0][job] for job in first] == [starts[1][job] for job in first]
    assert starts[0] != starts[1]


def test_nothing_tells_before_enough_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a stretch of few submissions shows changes nothing."""
    workload = busy_log(600, 7)
    policy = Lookahead(objective="wait")
    starts = []
    for margin in (0.0, inf):
        monkeypatch.setattr(lookahead_order, "CLEARLY_WORSE", margin)
        starts.append([record.start for record in simulated(workload, policy).records])
    assert starts[0] == starts[1]
