"""The search for plans of gangs against all plans there are, on small instances, by a plain decoder."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from dovetail.kernels.molding import Aim, Gangs, anneal, where
from dovetail.testing.builders import full

Option = tuple[int, int, int, float]
"""Lanes of the pool, devices, nodes, seconds."""


class Instance:
    """Jobs with options on nodes with lanes and devices, in the arrays of the kernel."""

    def __init__(self, seed: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        self.nodes, self.lanes = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        self.ready = rng.integers(0, 10, (self.nodes, self.lanes + 1)).astype(float)
        self.jobs: list[list[Option]] = []
        for _ in range(int(rng.integers(1, 5))):
            self.jobs.append([])
            for _ in range(int(rng.integers(1, 4))):
                pool, count = [(self.lanes, 0), (1, 0), (0, 1), (1, 1)][int(rng.integers(4))]
                wide = int(rng.integers(1, self.nodes + 1))
                self.jobs[-1].append((pool, count, wide, float(rng.integers(1, 20))))
        rows = [option for options in self.jobs for option in options]
        self.bounds = np.cumsum([0, *(len(options) for options in self.jobs)])
        asked = (
            np.arange(len(rows)),
            np.array([wide for _, _, wide, _ in rows]),
            np.array([seconds for _, _, _, seconds in rows]),
        )
        shapes = (
            np.array([pool for pool, _, _, _ in rows]),
            np.array([count for _, count, _, _ in rows]),
            np.ones((len(rows), *self.ready.shape), np.bool_),
            np.ones((len(rows), self.nodes), np.bool_),
        )
        self.gangs = Gangs(self.lanes, *asked, self.bounds, *shapes)

    def ends(self, order: tuple[int, ...], picks: tuple[int, ...]) -> np.ndarray:
        """The end of each job: each takes the nodes that give it the earliest start, the busiest of those."""
        state, ends = self.ready.copy(), np.zeros(len(self.jobs))
        for j in order:
            pool, count, wide, seconds = self.jobs[j][picks[j]]
            at = []
            for row in state:
                lanes, devices = sorted(row[: self.lanes]), sorted(row[self.lanes :])
                at.append(max(lanes[pool - 1] if pool else 0.0, devices[count - 1] if count else 0.0))
            start = sorted(at)[wide - 1]

            def columns(n: int, start: float = start, pool: int = pool, count: int = count) -> list[int]:
                free = [c for c in range(len(state[n])) if state[n, c] <= start]
                return [c for c in free if c < self.lanes][:pool] + [c for c in free if c >= self.lanes][
                    :count
                ]

            def busy(n: int) -> float:
                left = [state[n, c] for c in range(len(state[n])) if c not in columns(n)]
                return sum(left) if left else at[n]  # noqa: B023

            able = [n for n in range(self.nodes) if at[n] <= start]
            for n in sorted(able, key=lambda n: (-busy(n), n))[:wide]:
                state[n, columns(n)] = start + seconds
            ends[j] = start + seconds
        return ends

    def score(self, order: tuple[int, ...], picks: tuple[int, ...]) -> float:
        """The last end, and a fifth of the mean end."""
        ends = self.ends(order, picks)
        return float(max(ends.max(), self.ready.max()) + 0.2 * ends.mean())

    def plans(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        orders = permutations(range(len(self.jobs)))
        return list(product(orders, product(*(range(len(options)) for options in self.jobs))))


@pytest.mark.parametrize("seed", range(full(150, 25)))
def test_the_plan_found_is_the_best_there_is(seed: int) -> None:
    case = Instance(seed)
    n = len(case.jobs)
    weight = np.full(n, 0.2 / n)
    start = np.arange(n)[None, :]
    order, option, score = anneal(
        case.ready, case.ready.max(), case.gangs, Aim(weight, 1.0, 1.0, 0.0), start,
        case.bounds[:-1][None, :].copy(), 0, 4000, 1,
    )  # fmt: skip
    picks = tuple((option - case.bounds[:-1]).tolist())
    assert score == pytest.approx(case.score(tuple(order.tolist()), picks))
    assert score <= min(case.score(*plan) for plan in case.plans()) * 1.001


@pytest.mark.parametrize("seed", range(full(150, 25)))
def test_where_says_the_same_as_a_plain_decoder(seed: int) -> None:
    case = Instance(seed)
    n = len(case.jobs)
    picks = tuple(seed % len(options) for options in case.jobs)
    option = case.bounds[:-1] + np.array(picks)
    starts, chosen = where(case.ready, case.gangs, np.arange(n), option)
    seconds = np.array([case.jobs[j][picks[j]][3] for j in range(n)])
    assert (starts + seconds).tolist() == pytest.approx(case.ends(tuple(range(n)), picks).tolist())
    for j in range(n):
        assert len(set(chosen[j][chosen[j] >= 0].tolist())) == case.jobs[j][picks[j]][2]


def test_the_jobs_in_front_stay_there() -> None:
    case = next(case for case in map(Instance, range(99)) if len(case.jobs) == 4)
    n = len(case.jobs)
    order, _, _ = anneal(
        case.ready, 0.0, case.gangs, Aim(np.ones(n), 1.0, 0.0, 0.0), np.arange(n)[None, ::-1].copy(),
        case.bounds[:-1][None, :].copy(), 1, 500, 3,
    )  # fmt: skip
    assert order[0] == n - 1
