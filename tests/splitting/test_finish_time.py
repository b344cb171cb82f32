from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.splitting.finish_time import fluid_finish, least_finish, optimal_makespan, whole_tasks

NODES = (1, 2, 4, 8, 16, 32, 64)
OPTIMA = {  # an independent program's: CPU 77.4 s, GPU 27.9 s, and an acceleration of 8.44
    77.4 / 27.9: (15867.0, 7972.2, 3989.7, 2012.4, 1006.2, 541.8, 306.9),
    8.44: (10060.2, None, None, 1265.5, None, 321.0, 165.1),
}


@pytest.mark.parametrize("alpha", OPTIMA)
def test_the_optima_of_the_paper(alpha: float) -> None:
    for nodes, expected in zip(NODES, OPTIMA[alpha], strict=True):
        if expected is not None:
            slots = [(14 * nodes, 77.4), (2 * nodes, 77.4 / alpha)]
            assert optimal_makespan(4000, slots) == pytest.approx(expected, abs=0.05)


times = st.sampled_from([0.001, 0.1, 0.3, 1.0, 2.5, 7.0, 100.0])
moments = st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0, 2.9, 40.0]), max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(moments, times), min_size=1), st.integers(0, 60))
def test_it_is_the_nth_moment_at_which_a_task_can_end(
    kinds: dict[str, tuple[list[float], float]], tasks: int
) -> None:
    ready = {kind: np.array(free) for kind, (free, _) in kinds.items()}
    seconds = {kind: time for kind, (_, time) in kinds.items()}
    if not any(len(free) for free, _ in kinds.values()):
        with pytest.raises(ValueError, match="no slots"):
            least_finish(ready, seconds, tasks)
        return
    every = sorted(r + (j + 1) * t for free, t in kinds.values() for r in free for j in range(tasks))
    expected = every[tasks - 1] if tasks else min(min(free) for free, _ in kinds.values() if free)
    assert least_finish(ready, seconds, tasks) == pytest.approx(expected, rel=1e-9)
    assert fluid_finish(ready, seconds, tasks) <= expected * (1 + 1e-9)


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 2), times), min_size=1, max_size=2))
def test_the_optimum_is_that_of_all_ways_to_give_tasks_out(
    tasks: int, slots: list[tuple[int, float]]
) -> None:
    every = [time for count, time in slots for _ in range(count)]
    if not every:
        with pytest.raises(ValueError, match="no slots"):
            optimal_makespan(tasks, slots)
        return
    ways = itertools.product(range(tasks + 1), repeat=len(every))
    best = min(max(np.multiply(counts, every)) for counts in ways if sum(counts) == tasks)
    assert optimal_makespan(tasks, slots) == pytest.approx(best)


def test_no_tasks_take_no_time() -> None:
    assert optimal_makespan(0, [(1, 1.0)]) == 0.0


def test_rounding_loses_no_task() -> None:
    assert 0.3 / 0.1 < 3
    assert whole_tasks(0.3, 0.1) == 3
    assert whole_tasks(-1.0, 0.1) == 0


def test_a_clock_far_from_zero_changes_nothing() -> None:
    now = 1.7e9
    ready = {"cpu": np.full(2, now), "gpu": np.full(1, now)}
    found = least_finish(ready, {"cpu": 3e-6, "gpu": 1e-6}, 1_000_000)
    assert found - now == pytest.approx(optimal_makespan(1_000_000, [(2, 3e-6), (1, 1e-6)]), rel=1e-4)
