"""lookahead as a whole: whatever the jobs, a journal of it replays to the letter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.engine.journal.journal import read_journal, replay
from dovetail.model import Cluster, Workload
from dovetail.plugins import load_policy
from dovetail.testing.builders import rigid, workload
from dovetail_lab.published.ravi_multi import ravi_multi


def one_node() -> Workload:
    rng = np.random.Generator(np.random.PCG64(5))
    return workload(
        [
            (
                f"j{i}",
                {"cpu": float(rng.integers(1, 50)), "gpu": float(rng.integers(1, 50))},
                float(7 * (i // 3)),
            )
            for i in range(20)
        ]
    )


def gangs() -> Workload:
    rng = np.random.Generator(np.random.PCG64(6))
    rows = [
        (float(rng.integers(0, 90)), int(rng.integers(1, 5)), float(rng.integers(1, 60)), 90.0)
        for _ in range(20)
    ]
    return rigid(rows)


CASES = {
    "one-node": (one_node, "1x1cpu+1gpu"),
    "moldable": (lambda: ravi_multi("50sr50lr", jobs=12, seed=2), "16x8cpu+1gpu"),
    "rigid": (gangs, "4x1cpu"),
}


@pytest.mark.parametrize("objective", ["makespan", "response", "wait", "slowdown"])
@pytest.mark.parametrize("case", CASES)
def test_a_journal_replays_to_the_letter(case: str, objective: str, tmp_path: Path) -> None:
    make, shape = CASES[case]
    w, path = make(), tmp_path / "j.jsonl"
    spec = f"lookahead?objective={objective}&budget=200"
    dovetail.simulate(w, cluster=Cluster.parse(shape), policy=spec, journal=path)
    assert replay(read_journal(path), load_policy(spec).policy) > len(w.jobs)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["wait", "slowdown"])
def test_each_objective_is_the_best_at_its_own_figure(objective: str) -> None:
    w, cluster = one_node(), Cluster.parse("1x1cpu+1gpu")
    own = {"wait": "mean_wait", "slowdown": "mean_bounded_slowdown"}[objective]

    def figure(asked: str) -> float:
        report = dovetail.simulate(w, cluster=cluster, policy=f"lookahead?objective={asked}")
        return float(report.metrics[own] or 0.0)

    assert figure(objective) <= 1.05 * figure("makespan")
