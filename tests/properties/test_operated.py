"""Failures, checkpoints, windows: the engine beside a small simulator, and every schedule checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.operated_plain import PlainJob, PlainSimulator, PlainWorld

from dovetail.model import (
    Checkpoints,
    Cluster,
    Conditions,
    Failures,
    ListedFailure,
    Result,
    Seconds,
    State,
    Window,
    Workload,
    bit_indices,
)
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full, rigid
from dovetail.testing.invariants import check_schedule

POLICIES = ("fcfs", "easy", "conservative", "easy?order=saf", "conservative?order=sjf", "sjf", "lookahead")
Row = tuple[Seconds, int, Seconds, Seconds | None]


def drawn_rows(rng: random.Random, count: int, nodes: int, *, exact: bool = False) -> list[Row]:
    rows: list[Row] = []
    for _ in range(count):
        work = float(rng.randint(1, 60))
        rows.append(
            (
                float(rng.randint(0, 150)),
                rng.randint(1, nodes),
                work,
                work if exact else work + rng.choice((0, 0, 5, 40)),
            )
        )
    return rows


def drawn_conditions(rng: random.Random, nodes: int, *, failures: bool = True) -> Conditions:
    """Listed failures that do not overlap on a node, windows of some nodes, checkpoints or none."""
    listed: list[ListedFailure] = []
    for node in range(nodes) if failures else ():
        at = 0.0
        for _ in range(rng.randint(0, 2)):
            at += rng.randint(1, 90)
            repair = float(rng.randint(1, 30))
            listed.append(ListedFailure(node, at, repair))
            at += repair
    windows = []
    for number in range(rng.randint(0, 3)):
        there = tuple(sorted(rng.sample(range(nodes), rng.randint(1, nodes))))
        windows.append(Window(f"w{number}", float(rng.randint(0, 200)), float(rng.randint(1, 50)), there))
    checkpoints = Checkpoints(*rng.choice(((5.0, 1.0, 2.0), (20.0, 3.0, 0.0), (inf, 0.0, 0.0))))
    return Conditions(
        Failures(listed=tuple(sorted(listed, key=lambda one: (one.at, one.node)))) if failures else None,
        checkpoints,
        tuple(windows),
    )


def simulated(
    rows: Sequence[Row], nodes: int, policy: str, conditions: Conditions, **options: object
) -> tuple[Workload, Result]:
    work = rigid(rows)
    result = simulate(
        work,
        Cluster.uniform(nodes, 1),
        load_policy(policy).policy,
        PerfectModel(work.truth),
        conditions=conditions,
        options=SimulationOptions(validate=True, **options),  # type: ignore[arg-type]
    )
    return work, result


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
@given(st.integers(0, 1_000_000))
@settings(max_examples=full(400, 25), deadline=None)
def test_the_engine_equals_the_small_simulator(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 5)
    rows, conditions = drawn_rows(rng, rng.randint(1, 12), nodes), drawn_conditions(rng, nodes)
    work, result = simulated(rows, nodes, policy, conditions)
    check_schedule(result, work)
    checkpoints, failures = conditions.checkpoints, conditions.failures
    assert checkpoints is not None
    assert failures is not None
    world = PlainWorld(
        nodes,
        [(one.node, one.at, one.at + one.repair) for one in failures.listed],
        [(one.nodes, one.start, one.start + one.span) for one in conditions.windows],
        checkpoints.every,
        checkpoints.cost,
        checkpoints.restart,
    )
    jobs = [PlainJob(i, *row[:3], row[3] or 0.0) for i, row in enumerate(rows)]
    PlainSimulator(world, jobs, policy).run()
    for record, job in zip(result.records, jobs, strict=True):
        found = [(s.start, s.end, tuple(bit_indices(s.allocation.mask))) for s in record.earlier]
        assert record.allocation is not None
        assert record.start is not None
        assert record.end is not None
        found.append((record.start, record.end, tuple(bit_indices(record.allocation.mask))))
        assert found == job.stints, f"job {job.name}"


@given(st.integers(0, 1_000_000), st.sampled_from(POLICIES), st.sampled_from(["kill", "run"]))
@settings(max_examples=full(500, 40), deadline=None)
def test_every_policy_keeps_to_the_conditions(seed: int, policy: str, overrun: str) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 6)
    rows = drawn_rows(rng, rng.randint(1, 14), nodes)
    if overrun == "run":  # some run past their walltimes
        rows = [(s, n, t, w and max(1.0, w - rng.choice((0, 0, 10)))) for s, n, t, w in rows]
    work, result = simulated(rows, nodes, policy, drawn_conditions(rng, nodes), overrun=overrun)
    check_schedule(result, work, promises=overrun == "kill")
    assert all(record.state in (State.COMPLETED, State.TIMEOUT) for record in result.records)
