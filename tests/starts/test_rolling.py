"""Futures as they are drawn: what comes in them is what came, and roll-outs take it in the same way."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.kernels.starts import Nodes
from dovetail.starts.rolling import (
    QueuedJob,
    Situation,
    StartDraws,
    lay_out,
    pool_machine,
    roll_out,
    roll_queue,
)
from dovetail.starts.run_times import OF_APPS, WEIGHTS, JobKind, RunTimes

DAY = 86_400.0


def drawn_days(days: int = 9) -> tuple[StartDraws, Situation]:
    """A machine of one node, to which a job comes each hour and runs for half of one."""
    draws = StartDraws()
    kind = JobKind("ann", "app", 1, 3600.0)
    for hour in range(24 * days):
        job = QueuedJob(hour, kind, hour)
        draws.submit(3600.0 * hour, job)
        draws.end(hour, kind, 1800.0)
    now = 3600.0 * (24 * days - 1)
    waiting = [QueuedJob("new", JobKind("bob", "app", 1, 3600.0), 7)]
    empty = Nodes(1, np.empty((0, 3), np.int64), np.empty(0, np.int64))
    return draws, Situation(now, "easy", empty, [], waiting)


def test_arrivals_are_those_of_the_hour_of_other_days() -> None:
    draws, situation = drawn_days()
    futures = draws.draw_futures(situation, 16, seed=3)
    assert futures.lengths.shape == (16, 1)
    for draw in range(16):
        back = (situation.now - futures.origins[draw]) / DAY
        assert back == int(back)
        assert 1 <= back <= 8
        assert draw % 2 or back == 7, "half of them on the same weekday"
        coming = futures.draw_arrivals(draw, 5 * 3600.0)
        assert coming.time.tolist() == [3600.0, 7200.0, 10800.0, 14400.0]
        assert set(coming.length.tolist()) == {1800.0}
        assert coming.nodes.tolist() == [1] * 4


def test_a_stretch_comes_again_after_its_end() -> None:
    draws, situation = drawn_days(2)
    futures = draws.draw_futures(situation, 16)
    (back,) = set((situation.now - futures.origins).tolist())
    assert back == DAY
    coming = futures.draw_arrivals(0, 3 * DAY)
    assert len(coming.time) == 71
    assert coming.time.tolist() == pytest.approx([3600.0 * hour for hour in range(1, 72)])


def test_starts_are_the_roll_out_of_the_futures() -> None:
    draws, situation = drawn_days()
    futures = draws.draw_futures(situation, 100, seed=5)
    found = roll_out(situation, futures.lengths, futures.past, futures.origins)
    assert np.array_equal(found, draws.starts(situation, seed=5))


def test_as_one_pool_a_machine_keeps_its_pace() -> None:
    """Jobs of half a node, on nodes as they are and as a pool: the last of a long line starts as late."""
    chance = np.random.Generator(np.random.PCG64(4))
    kind = JobKind("ann", "app", 8, 3600.0)
    waiting = [QueuedJob(n, kind, n, need=(8, 0, 0)) for n in range(300)]
    running = [QueuedJob(-1, kind, 5, need=(8, 0, 0), spent=10.0, held=(0,))]
    free = np.array([(8, 0, 100), *[(16, 0, 100)] * 7], np.int64)
    nodes = Nodes(0, free, np.ones(8, np.int64))
    situation = Situation(0.0, "easy", nodes, running, waiting)
    lengths = chance.exponential(600.0, (8, 301)).clip(20.0, 3600.0)
    exact = roll_out(situation, lengths)
    pool, past = pool_machine(lay_out(situation, lengths), StartDraws().submissions.recent_past(0.0, {}))
    assert pool.line.width[1:3].tolist() == [62_500] * 2
    assert pool.nodes.idle == 937_500
    assert roll_queue(pool, past)[:, -1] == pytest.approx(exact[:, -1])


def test_where_an_app_is_a_program_another_one_tells_next_to_nothing() -> None:
    """One user, one walltime: short and long programs in turn."""
    short, long = (JobKind("ann", app, 1, 3600.0) for app in ("short", "long"))
    found = {}
    for weights in (WEIGHTS, OF_APPS):
        known = RunTimes(weights)
        for _ in range(20):
            known.end(short, 10.0)
            known.end(long, 1000.0)
        found[weights] = known.draw([short], np.zeros(1), np.array([3]), 200)
    assert np.mean(found[OF_APPS] == 10.0) > 0.95
    assert np.mean(found[WEIGHTS] == 10.0) < 0.8
