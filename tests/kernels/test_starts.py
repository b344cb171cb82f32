"""Draws and roll-outs: the compiled side against the statement, and what they must come to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled import same
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels import starts
from dovetail.kernels.starts import EASY, FCFS, GREEDY, Ahead, Ends, Kinds, Line, Nodes, Past
from dovetail.native.library import load_library
from dovetail.starts.run_times import WEIGHTS
from dovetail.testing.builders import full

seeds = st.integers(0, 2**32 - 1)
drawn = settings(max_examples=full(1000, 60), deadline=None, derandomize=True)
WALLS = np.array([100.0, 200.0, 600.0, math.inf])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def ahead(draw: np.random.Generator, running: int, jobs: int, nodes: int) -> Ahead:
    """Some jobs wait for a time or for the ends of earlier ones; the machine changes now and then."""
    begin = np.where(draw.random(jobs) < 0.2, np.round(draw.exponential(100, jobs)), 0.0)
    after = [
        draw.integers(0, job, int(draw.integers(1, 3))) if job > running and draw.random() < 0.2 else ints()
        for job in range(jobs)
    ]
    changes = int(draw.integers(0, 4))
    return Ahead(
        begin,
        np.cumsum([0, *map(len, after)]),
        np.concatenate([*after, ints()]),
        np.sort(np.round(draw.exponential(200, changes))),
        draw.integers(0, max(nodes, 1), changes),
        draw.integers(-2, 3, (changes, 3)),
    )


def nothing_ahead(jobs: int) -> Ahead:
    return Ahead(
        np.zeros(jobs), np.zeros(jobs + 1, np.int64), ints(), np.empty(0), ints(), np.empty((0, 3), np.int64)
    )


def situation(seed: int) -> tuple[Kinds, Ends, Nodes, Line, Ahead, Past, np.random.Generator]:
    """A queue on counted or named nodes, with a few ends and submissions of the past."""
    draw = np.random.Generator(np.random.PCG64(seed))
    count, named = int(draw.integers(0, 80)), bool(draw.integers(0, 2))
    user = draw.integers(-1, 4, count)
    last: dict[int, int] = {}
    before = np.full(count, -1)
    for place, one in enumerate(user.tolist()):
        if one >= 0:
            before[place] = last.get(one, -1)
            last[one] = place
    ran = np.round(draw.exponential(100, count))
    ends = Ends(
        user,
        draw.integers(0, 2, count),
        draw.integers(1, 4, count),
        before,
        WALLS[draw.integers(0, 4, count)],
        ran,
    )
    idle, free = 10, np.tile(ints(4, 4, 0), (4 if named else 0, 1)).reshape(-1, 3)
    widths: list[int] = []
    needs: list[list[int]] = []
    held: list[int] = []
    for _ in range(int(draw.integers(0, 6))):
        width, need = int(draw.integers(1, 3)), [int(draw.integers(0, 3)), int(draw.integers(0, 3)), 0]
        fit = [node for node in range(len(free)) if (free[node] >= need).all()][:width]
        if len(fit) < width if named else width > idle:
            continue
        for node in fit:
            free[node] -= need
        held += fit
        idle -= 0 if named else width
        widths.append(width)
        needs.append(need)
    running = len(widths)
    jobs = running + int(draw.integers(1, 90))
    while len(widths) < jobs:
        widths.append(int(draw.integers(1, 4)))
        needs.append([int(draw.integers(0, 4)), int(draw.integers(0, 4)), 0])
    users, wall = draw.integers(-1, 4, jobs), WALLS[draw.integers(0, 4, jobs)]
    spent = np.zeros(jobs)
    spent[:running] = np.minimum(np.round(draw.exponential(80, running)) + 1, wall[:running] - 1)
    newest = np.array([last.get(one, -1) for one in users.tolist()])
    kinds = Kinds(
        users, draw.integers(0, 2, jobs), np.array(widths), newest, wall, spent, np.arange(jobs) + 7
    )
    past_count = int(draw.integers(0, 20))
    drawn_for = np.full(past_count, -1)
    drawn_for[-1:] = draw.integers(0, jobs)
    past = Past(
        np.sort(draw.uniform(-500, 0, past_count)),
        draw.integers(1, 4, past_count),
        WALLS[draw.integers(0, 3, past_count)],
        draw.exponential(100, past_count),
        drawn_for,
        draw.integers(0, 4, (past_count, 3)) * ints(1, 1, 0),
        draw.integers(1, 4, past_count),
    )
    nodes = Nodes(0 if named else idle, free, draw.integers(1, 4, len(free)))
    bound = np.where(np.isfinite(wall), wall, 400.0)
    line = Line(
        int(draw.choice([FCFS, EASY, GREEDY])),
        running,
        kinds.width,
        bound,
        spent,
        np.array(needs, np.int64).reshape(-1, 3),
        draw.integers(1, 4, jobs),
        np.array(held, np.int64),
        np.empty((3, jobs)),
    )
    return kinds, ends, nodes, line, ahead(draw, running, jobs, len(free)), past, draw


@given(seeds)
@drawn
def test_both_sides_draw_and_roll_out_alike(seed: int) -> None:
    kinds, ends, nodes, line, later, past, draw = situation(seed)
    same(starts.draw_lengths, kinds, ends, np.array(WEIGHTS), line.length)
    starts.draw_lengths(kinds, ends, np.array(WEIGHTS), line.length)
    assert (line.length > kinds.spent).all() or (line.length == kinds.wall)[line.length <= kinds.spent].all()
    waiting = len(kinds.user) - line.running
    target = int(draw.integers(-1, waiting))
    found = [np.zeros((len(line.length), waiting)) for _ in range(2)]
    origins = -draw.uniform(1, 500, len(line.length))
    for side, out in zip((starts.roll_starts, starts.roll_starts.plain), found, strict=True):
        side(nodes, line, later, past, origins, 0.0, target, 5000.0, out)
    chosen = slice(None) if target < 0 else target
    assert (found[0][:, chosen] == found[1][:, chosen]).all()


def test_a_job_that_waits_starts_when_the_first_ends_and_is_passed_by_a_short_one() -> None:
    line = Line(
        EASY,
        1,
        ints(1, 2, 1, 1),
        np.array([10.0, 5.0, 10.0, 20.0]),
        np.zeros(4),
        np.zeros((4, 3), np.int64),
        np.ones(4, np.int64),
        ints(),
        np.array([[8.0, 5.0, 7.0, 20.0]]),
    )
    nothing = np.empty(0)
    past = Past(nothing, ints(), nothing, nothing, ints(), np.empty((0, 3), np.int64), ints())
    found = np.empty((1, 3))
    nodes = Nodes(1, np.empty((0, 3), np.int64), ints())
    starts.roll_starts(nodes, line, nothing_ahead(4), past, np.zeros(1), 0.0, -1, 1e6, found)
    assert found.tolist() == [[8.0, 0.0, 13.0]]


def test_who_waits_for_an_end_or_a_moment_keeps_the_place_in_the_line() -> None:
    """One node: the first of those that wait joins after the last one, the second at 30; the node goes."""
    line = Line(
        FCFS,
        1,
        ints(1, 1, 1, 1),
        np.full(4, 10.0),
        np.zeros(4),
        ints(1, 0, 0) * np.ones((4, 1), np.int64),
        np.ones(4, np.int64),
        ints(0),
        np.array([[8.0, 5.0, 7.0, 20.0]]),
    )
    nothing = np.empty(0)
    past = Past(nothing, ints(), nothing, nothing, ints(), np.empty((0, 3), np.int64), ints())
    later = Ahead(
        np.array([0.0, 0.0, 30.0, 0.0]),
        ints(0, 0, 1, 1, 1),
        ints(3),
        np.array([29.0, 50.0]),
        ints(0, 0),
        np.array([[-1, 0, 0], [1, 0, 0]]),
    )
    nodes = Nodes(0, np.array([[0, 0, 0]]), ints(1))
    for side in (starts.roll_starts, starts.roll_starts.plain):
        found = np.empty((1, 3))
        side(nodes, line, later, past, np.zeros(1), 0.0, -1, 1e6, found)
        assert found.tolist() == [[28.0, 50.0, 8.0]]
        waits = later._replace(time=np.array([27.0, 50.0]))
        side(nodes, line, waits, past, np.zeros(1), 0.0, -1, 1e6, found)
        assert found.tolist() == [[50.0, 55.0, 8.0]]


@pytest.mark.skipif(load_library() is None, reason="nothing is compiled here")
def test_chance_is_the_same_on_both_sides() -> None:
    import ctypes

    found = load_library()
    assert found is not None
    compiled = found.dovetail_chance
    compiled.argtypes, compiled.restype = [ctypes.c_int64, ctypes.c_int64], ctypes.c_double
    for one, other in ((0, 0), (-5, 3), (2**40, 99)):
        assert compiled(one, other) == starts.chance(one, other)
