"""Every kernel's compiled side against its specification, on arrays drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import same
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels import assigning, backfilling, molding
from dovetail.native.library import Kernel, kernel
from dovetail.testing.builders import full

seeds = st.integers(0, 2**32 - 1)
drawn = settings(max_examples=full(2000, 60), deadline=None, derandomize=True)


def chance(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def times(draw: np.random.Generator, shape: int | tuple[int, ...], most: float = 100.0) -> np.ndarray:
    """Seconds, half of them whole: ties are what orders are about."""
    found = draw.uniform(1.0, most, shape)
    return np.where(draw.random(shape) < 0.5, np.rint(found), found)


@given(seeds)
@drawn
def test_roll_outs(seed: int) -> None:
    draw = chance(seed)
    running, known, coming, nodes = (int(draw.integers(0, most)) for most in (6, 12, 6, 9))
    nodes += 1
    width = draw.integers(1, nodes + 1, known + coming)
    wall = times(draw, known + coming)
    submit = np.concatenate((-times(draw, known), np.sort(times(draw, coming))))
    ranks = np.array([draw.permutation(known + coming) for _ in range(4)])
    head = int(draw.integers(-1, known)) if known else -1
    bounds = np.sort(times(draw, running))
    summed = int(draw.integers(0, 3))
    enough = float(draw.choice([np.inf, 10.0, 100.0, 1000.0]))
    idle, running_width = int(draw.integers(0, nodes + 1)), draw.integers(1, nodes + 1, running)
    running_long = np.minimum(bounds, times(draw, (3, running)))
    longs = np.minimum(wall, times(draw, (3, known + coming)))
    jobs = backfilling.Jobs(idle, running_width, running_long, bounds, width, wall, longs, submit, known)
    same(backfilling.roll_outs, jobs, ranks, head, summed, enough, np.empty(4))


@given(seeds)
@drawn
def test_what_is_expected_of_jobs_and_whether_room_is_kept(seed: int) -> None:
    draw = chance(seed)
    jobs, runs = int(draw.integers(1, 9)), int(draw.integers(0, 40))
    users, past_users = draw.integers(0, 4, jobs), draw.integers(0, 4, runs)
    walls, past_walls = times(draw, jobs, 1e4), times(draw, runs, 1e4)
    past = np.minimum(past_walls, times(draw, runs, 1e4))
    same(
        backfilling._expected, users, walls, past_users, past_walls, past, np.zeros(jobs), np.zeros(jobs)
    )  # fmt: skip
    spent = np.where(draw.random(jobs) < 0.5, 0.0, draw.uniform(0, 1.2, jobs) * walls)
    numbers, found = draw.integers(0, 2**40, jobs), np.zeros((8, jobs))
    same(backfilling._futures, numbers, users, walls, spent, past_users, past_walls, past, found)
    ends = np.sort(times(draw, jobs))
    widths, kinds = draw.integers(1, 9, jobs), draw.integers(1, 9, jobs)
    same(
        backfilling.worth_keeping, int(draw.integers(1, 9)), float(times(draw, 1)[0]),
        float(draw.uniform(0, 0.1)), int(draw.integers(0, 12)), ends, widths, kinds, times(draw, jobs), 0.01,
    )  # fmt: skip


def test_another_kind_of_array_is_refused() -> None:
    short = np.ones(3, np.int32)
    with pytest.raises(TypeError, match="worth_keeping: expected a contiguous array of int64"):
        backfilling.worth_keeping(1, 1.0, 1.0, 1, np.ones(3), short, short, np.ones(3), 1.0)
    with pytest.raises(TypeError, match="contiguous"):
        backfilling.worth_keeping(
            1, 1.0, 1.0, 1, np.ones(6)[::2], np.ones(3, np.int64), np.ones(3, np.int64), np.ones(3), 1.0
        )


def test_without_the_library_the_specification_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.native.library.load_library", lambda: None)
    alone: Kernel[..., bool] = kernel(backfilling.worth_keeping.plain)
    ones = np.ones(1, np.int64)
    assert alone(1, 1.0, 1.0, 1, np.ones(1), ones, ones, np.ones(1), 1.0) == backfilling.worth_keeping(
        1, 1.0, 1.0, 1, np.ones(1), ones, ones, np.ones(1), 1.0
    )


@given(seeds)
@drawn
def test_plans_of_one_node_jobs(seed: int) -> None:
    draw = chance(seed)
    jobs, machines = int(draw.integers(1, 12)), int(draw.integers(1, 10))
    spans = times(draw, (jobs, machines), 40.0)
    spans[draw.random(spans.shape) < 0.2] = np.inf
    spans[np.arange(jobs), draw.integers(0, machines, jobs)] = times(draw, jobs, 40.0)
    ready = np.where(draw.random(machines) < 0.5, 0.0, times(draw, machines))
    kinds = draw.integers(0, 3, machines)
    before = np.empty(0, np.int64)
    if draw.random() < 0.5:
        before = np.array([int(draw.choice(np.flatnonzero(row < np.inf))) for row in spans])
    budget, number = int(draw.integers(0, 600)), int(draw.integers(0, 10**9))
    same(assigning.makespan_bound, spans, ready)
    best, bound = np.zeros(jobs, np.int64), np.zeros(1)
    same(assigning._least_makespan, spans, ready, kinds, before, budget, number, best, bound)
    weight, own = times(draw, jobs) / 10, float(draw.integers(0, 2))
    same(assigning._least_total, spans, ready, weight, own, kinds, before, budget // 10, number, best)


@given(seeds)
@drawn
def test_plans_of_gangs(seed: int) -> None:
    draw = chance(seed)
    nodes, lanes, devices = (int(draw.integers(low, 4)) for low in (1, 1, 0))
    ready = times(draw, (nodes, lanes + devices), 9.0)
    ready[draw.random(ready.shape) < 0.1] = np.inf
    jobs = int(draw.integers(1, 6))
    bounds = np.cumsum([0, *draw.integers(1, 4, jobs)])
    options, shapes = int(bounds[-1]), 4
    asked = draw.integers(0, shapes, options), draw.integers(1, nodes + 1, options), times(draw, options, 9.0)
    pool, count = draw.integers(0, lanes + 1, shapes), draw.integers(0, devices + 1, shapes)
    pool[(pool == 0) & (count == 0)] = 1
    eligible = draw.random((shapes, nodes, lanes + devices)) < 0.9
    able = draw.random((shapes, nodes)) < 0.9
    plans = np.stack([draw.permutation(jobs) for _ in range(3)])
    picks = np.stack([draw.integers(bounds[:-1], bounds[1:]) for _ in range(3)])
    fixed = int(draw.integers(0, jobs))
    order, option = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    gangs = molding.Gangs(lanes, *asked, bounds, pool, count, eligible, able)
    aim = molding.Aim(times(draw, jobs), float(draw.integers(0, 2)), float(draw.integers(0, 2)), 0.05)
    same(
        molding._anneal, ready, 1.0, gangs, aim, plans, picks, fixed, int(draw.integers(0, 60)),
        int(draw.integers(0, 10**9)), order, option,
    )  # fmt: skip
    starts, chosen = np.full(jobs, np.inf), np.full((jobs, nodes), -1)
    same(molding._where, ready, gangs, order, option, starts, chosen)
