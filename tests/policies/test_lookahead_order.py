"""lookahead with rigid jobs: EASY's promises, an order that pays, an age limit, what is remembered."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import orjson
import pytest

import dovetail
from dovetail.engine.checkpoint import checkpoint
from dovetail.engine.codec import Codec
from dovetail.engine.core import Engine
from dovetail.engine.simulate import simulate
from dovetail.model import Arrival, Cluster, Recalled, Request, Result, Submitted, Workload
from dovetail.plugins import load_policy
from dovetail.testing.builders import Knowing, full, rigid, rigid_workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload

TRACES = Path(__file__).resolve().parents[2] / ".." / "shared" / "traces"
KTH = TRACES / "kth-sp2-1996-2.1-cln.first8000.swf.gz"


def run(w: Workload, policy: str, cluster: Cluster) -> Result:
    result = simulate(w, cluster, load_policy(policy).policy, Knowing(w.truth))
    check_schedule(result, w)
    return result


def crowd(seed: int, count: int = 60, nodes: int = 8) -> tuple[Workload, Cluster]:
    """Rigid jobs that come faster than they can be run."""
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = []
    for _ in range(count):
        seconds = float(rng.integers(1, 200))
        wall = seconds * float(rng.integers(1, 4))
        rows.append((float(rng.integers(0, 1000)), int(rng.integers(1, nodes + 1)), seconds, wall))
    return rigid_workload(rows, nodes)


@pytest.mark.parametrize("objective", ["makespan", "response", "wait", "slowdown"])
@pytest.mark.parametrize("seed", range(full(40, 4)))
def test_no_promise_is_broken(objective: str, seed: int) -> None:
    w, cluster = crowd(seed)
    result = run(w, f"lookahead?objective={objective}", cluster)
    for record in result.records:
        if record.promised is not None:
            assert record.start is not None
            assert record.start <= record.promised


def mean_wait(result: Result) -> float:
    return float(np.mean([(r.start or 0.0) - r.job.submit_time for r in result.records]))


def test_objective_wait_waits_less_than_fixed_orders_in_the_mean() -> None:
    ratios = []
    for seed in range(full(60, 12)):
        w, cluster = crowd(seed)
        ratios.append(
            mean_wait(run(w, "lookahead?objective=wait", cluster)) / mean_wait(run(w, "easy", cluster))
        )
    assert np.mean(ratios) < 0.85


def test_who_has_waited_too_long_becomes_the_head() -> None:
    # One wide job, and narrow ones without end that fit beside each other.
    rows = [(1.0, 4, 10.0, 10.0), *((float(i), 2, 2.0, 2.0) for i in range(300))]
    w, cluster = rigid(rows), Cluster.parse("4x1cpu")

    def start(policy: str) -> float:
        return next(r.start for r in run(w, policy, cluster).records if r.job.id == "0") or 0.0

    assert start("lookahead?objective=wait&age=50") <= 60.0


def test_what_is_remembered_survives_a_checkpoint() -> None:
    policy = load_policy("lookahead?objective=slowdown").policy
    w, cluster = crowd(1, count=10)
    engine = Engine(cluster, policy, Knowing(w.truth))  # type: ignore[arg-type]
    engine.handle(0.0, [Submitted(job) for job in w.jobs[:5]])
    assert len(engine.lately.arrivals) == 5
    kept = checkpoint(engine, 0.0)
    assert kept is not None
    other = Engine(cluster, policy, Knowing(w.truth))  # type: ignore[arg-type]
    other.handle(0.0, [*kept.jobs, *kept.nodes], ask=False)
    assert list(other.lately.arrivals) == list(engine.lately.arrivals)
    recalled = Recalled((0.5, 1.0), (Arrival(3.0, Request(2, 1), 60.0),))
    codec = Codec()
    assert codec.event_from(orjson.loads(orjson.dumps(codec.event(recalled)))) == recalled


def test_a_policy_that_does_not_look_back_remembers_nothing() -> None:
    w, cluster = crowd(2, count=10)
    engine = Engine(cluster, load_policy("easy").policy, Knowing(w.truth))  # type: ignore[arg-type]
    engine.handle(0.0, [Submitted(job) for job in w.jobs])
    assert not engine.lately.arrivals


@pytest.mark.skipif(not KTH.exists(), reason="the sample traces are not here")
def test_on_a_real_trace_it_is_near_the_best_order_chosen_afterwards() -> None:
    cluster = Cluster.parse("100x1cpu")
    w = load_workload(str(KTH), cluster)
    w = dataclasses.replace(w, jobs=w.jobs[: full(8000, 4000)])  # the first thousands alone are few waits

    def slowdown(policy: str) -> float:
        return float(
            dovetail.simulate(w, cluster=cluster, policy=policy).metrics["mean_bounded_slowdown"] or 0.0
        )

    fixed = {order: slowdown(f"easy?order={order}") for order in ("fcfs", "sjf", "f1", "saf", "sqrtsaf")}
    assert slowdown("lookahead?objective=slowdown") <= 1.15 * min(fixed.values())
