"""The compiled roll-out of EASY against the engine: the same queue, the same order, the same waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels.backfilling import (
    LAST_END,
    LEAST,
    OWN,
    PRIOR,
    SLOWDOWN,
    WAIT,
    Jobs,
    expected,
    futures,
    roll_outs,
    worth_keeping,
)
from dovetail.plugins import load_policy
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full, rigid_workload

NODES = 8
NONE = np.empty(0, np.int64)
NO_TIME = np.empty(0)

rows = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, NODES), st.integers(1, 40), st.integers(1, 3), st.integers(0, 9)
    ),
    min_size=1,
    max_size=25,
)


def rolled_out(jobs: Jobs, rank: np.ndarray, head: int, summed: int, enough: float = np.inf) -> float:
    """The score of one order in one future."""
    one = jobs._replace(running_long=jobs.running_long[None], long=jobs.long[None])
    scores = np.empty(1)
    roll_outs(one, rank[None], head, summed, enough, scores)
    return float(scores[0])


def score(
    jobs: list[tuple[float, int, float, float]], rank: np.ndarray, summed: int, enough: float = np.inf
) -> float:
    """A roll-out on an empty machine of (submit, nodes, run time, walltime), by submission."""
    submit, width, long, wall = (np.array(column) for column in zip(*jobs, strict=True))
    known = int((submit <= 0).sum())
    found = Jobs(
        NODES, NONE, NO_TIME, NO_TIME, width, wall.astype(float), long.astype(float), submit.astype(float),
        known,
    )  # fmt: skip
    return rolled_out(found, rank, -1, summed, enough)


@given(rows, st.sampled_from(["fcfs", "sjf", "largest"]))
@settings(max_examples=full(1000, 100), deadline=None, derandomize=True)
def test_it_is_easy_as_the_engine_runs_it(drawn: list[tuple[int, int, int, int, int]], order: str) -> None:
    jobs = sorted(
        [(float(s), n, float(t), float(t * k + more)) for s, n, t, k, more in drawn], key=lambda job: job[0]
    )
    first = jobs[0][0]
    jobs = [(submit - first, n, t, wall) for submit, n, t, wall in jobs]
    w, cluster = rigid_workload(jobs, NODES)
    result = simulate(w, cluster, load_policy(f"easy?order={order}").policy, TrueTimesModel(w.truth))
    records = sorted(result.records, key=lambda record: record.job.index)
    waits = [(r.start or 0.0) - r.job.submit_time for r in records]
    keys = {
        "fcfs": np.zeros(len(jobs)),
        "sjf": np.array([job[3] for job in jobs]),
        "largest": np.array([-job[1] for job in jobs]),
    }
    rank = np.empty(len(jobs), np.int64)
    rank[np.argsort(keys[order], kind="stable")] = np.arange(len(jobs))
    assert score(jobs, rank, WAIT) == pytest.approx(sum(waits))
    slow = [max(1.0, (wait + t) / max(t, 10.0)) for wait, (_, _, t, _) in zip(waits, jobs, strict=True)]
    assert score(jobs, rank, SLOWDOWN) == pytest.approx(sum(slow))
    last = score(jobs, rank, LAST_END)
    assert last == pytest.approx(result.makespan + 1e-3 * np.mean(waits))


def test_a_promised_head_stays_in_front() -> None:
    # Four nodes are busy until 10 s; the promised job needs all eight, the narrow one would delay it.
    def waits(head: int) -> float:
        jobs = Jobs(
            4, np.array([4]), np.array([10.0]), np.array([10.0]), np.array([4, 8]), np.array([50.0, 5.0]),
            np.array([50.0, 5.0]), np.zeros(2), 2,
        )  # fmt: skip
        return rolled_out(jobs, np.array([0, 1]), head, WAIT)

    assert waits(-1) == pytest.approx(50.0)
    assert waits(1) == pytest.approx(10.0 + 15.0)


def test_it_stops_once_the_score_is_too_high() -> None:
    jobs = [(0.0, NODES, 10.0, 10.0)] * 5
    assert score(jobs, np.arange(5), WAIT) == pytest.approx(100.0)
    assert score(jobs, np.arange(5), WAIT, enough=50.0) == np.inf


def lengths(
    walls: list[float], past: list[tuple[int, float, float]], users: list[int], harmonic: bool = False
) -> list[float]:
    """What is expected of jobs of these users after past runs of (user, walltime, length)."""
    ran = np.array(past, np.float64).reshape(-1, 3)
    whose = ran[:, 0].astype(np.int64)
    found = expected(np.array(users), np.array(walls), whose, ran[:, 1].copy(), ran[:, 2].copy())
    return list(found[harmonic])


def test_where_nothing_ran_jobs_are_expected_to_run_to_their_walltimes() -> None:
    assert lengths([100.0, 5.0], [], [0, 1]) == [100.0, LEAST]


def test_an_unknown_user_is_expected_to_be_the_average_one() -> None:
    past = [(0, 100.0, 100.0), (0, 100.0, 50.0)]
    assert lengths([1000.0], past, [1]) == pytest.approx([750.0])
    assert lengths([1000.0], past, [1], harmonic=True) == pytest.approx([1000.0 / ((1 + 2) / 2)])


def test_a_users_own_last_runs_tell_most() -> None:
    past = [(0, 1000.0, 1000.0)] * 20 + [(1, 1000.0, 100.0)] * OWN
    average = (20 + OWN * 0.1) / (20 + OWN)
    own = (PRIOR * average + OWN * 0.1) / (PRIOR + OWN)
    assert lengths([1000.0, 1000.0], past, [1, 0])[0] == pytest.approx(1000 * own)
    older = [(1, 1000.0, 1000.0)] * 5  # runs before the last eight tell something of the average user only
    more = (25 + OWN * 0.1) / (25 + OWN)
    again = (PRIOR * more + OWN * 0.1) / (PRIOR + OWN)
    assert lengths([1000.0], older + past, [1])[0] == pytest.approx(1000 * again)


def test_runs_of_about_the_same_walltime_tell_more() -> None:
    past = [(0, 100.0, 100.0), (0, 10_000.0, 1000.0)]
    short, long = lengths([100.0, 10_000.0], past, [0, 0])
    assert short / 100.0 > 0.55 > long / 10_000.0


@given(rows, st.booleans())
@settings(max_examples=full(1000, 100), deadline=None, derandomize=True)
def test_expected_lengths_are_positive_and_at_most_walltimes(
    drawn: list[tuple[int, int, int, int, int]], harmonic: bool
) -> None:
    past = [(s % 3, float(t * k + more), float(t)) for s, _, t, k, more in drawn]
    walls = [float(1 + s * k) for s, _, _, k, _ in drawn]
    found = lengths(walls, past, [n % 4 for _, n, _, _, _ in drawn], harmonic)
    for wall, length in zip(walls, found, strict=True):
        assert 0 < length <= max(wall, LEAST) * (1 + 1e-12)


def parts_in_futures(spent: float, past: list[tuple[int, float, float]], count: int = 16) -> list[float]:
    """What parts of a walltime of 1,000 s user 1's job may take, which has run for so long."""
    ran = np.array(past, np.float64).reshape(-1, 3)
    one = np.ones(1, np.int64)
    found = futures(
        count, one, one, np.array([1000.0]), np.array([spent]), ran[:, 0].astype(np.int64), ran[:, 1].copy(),
        ran[:, 2].copy(),
    )  # fmt: skip
    return sorted(found[:, 0] / 1000)


def test_each_run_that_was_seen_has_its_share_of_the_futures() -> None:
    own = [(1, 100.0, float(p)) for p in range(20, 100, 10)]
    found = parts_in_futures(0.0, own)  # eight own runs, and two of all users
    for part in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        assert sum(abs(one - part) < 1e-9 for one in found) >= 1
    assert parts_in_futures(0.0, []) == [1.0] * 16
    assert parts_in_futures(0.0, [(0, 100.0, 50.0)]) == [0.5] * 16


def test_what_a_running_job_has_outlived_counts_no_more() -> None:
    own = [(1, 100.0, float(p)) for p in range(20, 100, 10)]
    assert min(parts_in_futures(650.0, own)) == pytest.approx(0.7)
    assert parts_in_futures(950.0, own) == pytest.approx([1.425] * 16)  # all: half as long again


def kept(
    width: int,
    long: float,
    second: float,
    free: int,
    running: list[tuple[float, int]],
    coming: list[tuple[int, float]],
    rate: float,
) -> bool:
    """Whether this job waits for the first of the running (end, width), with (width, length) to come."""
    ends, widths = [np.array(column) for column in zip(*sorted(running), strict=True)]
    wide, lengths = [np.array(column) for column in zip(*coming, strict=True)]
    return worth_keeping(
        width, long, second, free, ends.astype(float), widths, wide, lengths.astype(float), rate
    )


def test_room_is_kept_for_jobs_that_would_wait_for_long() -> None:
    # The job takes the last part for 1,000 s; an end is 100 s away. One job of 10 s would come until then and
    # wait 50 s for it in the mean, which is 5 of slowdown; keeping room costs the long one 0.1 and 0.01.
    assert kept(1, 1000.0, 0.001, 1, [(100.0, 1)], [(1, 10.0)], 0.01)
    assert not kept(1, 1000.0, 0.001, 1, [(100.0, 1)], [(1, 10.0)], 0.0001)  # one comes in three hours
    assert not kept(1, 1000.0, 0.06, 1, [(100.0, 1)], [(1, 10.0)], 0.01)  # many wait behind it
    assert not kept(1, 1000.0, 0.001, 2, [(100.0, 1)], [(1, 10.0)], 0.01)  # there is room for both
    assert not kept(1, 1000.0, 0.001, 1, [(100.0, 1)], [(2, 10.0)], 0.01)  # it would not fit either way
    assert not kept(1, 1000.0, 0.001, 1, [(100.0, 1)], [(1, 1000.0)], 0.01)  # it is no shorter itself
    assert not kept(1, 5.0, 0.2, 1, [(100.0, 1)], [(1, 10.0)], 0.01)  # soon over: nobody waits for long
    assert not worth_keeping(1, 1000.0, 0.001, 1, NO_TIME, NONE, np.ones(1, np.int64), np.ones(1) * 10, 9.0)


@given(
    st.integers(1, 8), st.integers(1, 400), st.floats(1e-4, 1e-2), st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 4)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 300)), min_size=1, max_size=5),
)  # fmt: skip
@settings(max_examples=full(1000, 100), deadline=None, derandomize=True)
def test_room_is_kept_where_moments_tried_one_by_one_say_so(
    width: int, long: int, second: float, beside: int, running: list[tuple[int, int]],
    coming: list[tuple[int, int]],
) -> None:  # fmt: skip
    free, rate, soon = width + beside, 0.02, min(end for end, _ in running)
    moments = (np.arange(2000) + 0.5) / 2000 * soon
    gain = 0.0
    for wide, length in coming:
        if beside < wide <= free:
            ends = sorted([*running, (long, width)])
            room = beside + np.cumsum([held for _, held in ends])
            until = ends[int(np.argmax(room >= wide))][0]
            waits = until - moments[moments < until]
            gain += max(0.0, (waits / max(length, LEAST) - length * second).sum() * soon / 2000 * rate)
    if abs(gain - soon * second) > 0.02 * soon * second:  # else it is as good as even
        ends = [(float(end), held) for end, held in running]
        assert kept(width, float(long), second, free, ends, coming, rate) == (gain > soon * second)  # type: ignore[arg-type]
