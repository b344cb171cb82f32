"""What a decision of `fms` costs with 32, 320 and 3,200 jobs queued on 16 and 256 nodes.

One decision is one call of ``decide``: the first, on an empty cluster, places pairs until no device is
free; those after it, at the next ends, place one pair or none, but sort the whole queue again.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from dovetail.driver.prepare import prepare_workload
from dovetail.engine.state.core import Engine
from dovetail.model import Cluster, Ended, Submitted
from dovetail.policies.fms import Fms
from dovetail.runtimes.perfect import PerfectModel
from dovetail_lab.published.ravi_multi import ravi_multi

LATER = 5


def decisions(queued: int, nodes: int, score: str) -> tuple[float, list[float], int]:
    """Seconds of the first decision, of a few after it, and how many jobs run after the first."""
    cluster = Cluster.uniform(nodes, 8, 1)
    work = prepare_workload(ravi_multi(jobs=queued, batch=queued), cluster, need_truth=True)
    policy = Fms(score)  # type: ignore[arg-type]
    engine = Engine(cluster, policy, PerfectModel(work.truth), timer=time.perf_counter)
    engine.handle_events(0.0, [Submitted(job) for job in work.jobs])
    running = len(engine.running)
    for _ in range(LATER):
        ends = {id: placed.start_time + (placed.predicted or 0.0) for id, placed in engine.running.items()}
        if not ends:
            break
        now = min(ends.values())
        engine.handle_events(now, [Ended(id) for id, end in ends.items() if end == now])
    first, *later = engine.decision_seconds
    return first, later, running


@pytest.mark.parametrize("score", ["area", "rollout"])
@pytest.mark.parametrize("nodes", [16, 256])
@pytest.mark.parametrize("queued", [32, 320, 3200])
def test_decisions(benchmark: Any, queued: int, nodes: int, score: str) -> None:
    Fms()  # compiles the kernels, or loads them
    first, later, running = benchmark.pedantic(decisions, (queued, nodes, score), rounds=1, iterations=1)
    benchmark.extra_info |= {"first_s": round(first, 4), "later_s": [round(t, 4) for t in later]}
    print(
        f"\n  {score}, {queued} queued, {nodes} nodes: first {first:.3f} s, later {max(later):.3f} s at most"
    )
    assert running > 0
    if score == "area":
        assert max(first, *later) < 1.0
