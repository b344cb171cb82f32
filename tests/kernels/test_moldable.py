"""The compiled kernels of moldable scheduling against their specifications."""

from __future__ import annotations

import numpy as np
from compiled import same
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels import gangs
from dovetail.policies import fms
from dovetail.policies.fms import Shapes, Table
from dovetail.testing.builders import full


class Instance:
    """A random cluster in the middle of its work: nodes with up to two devices, four shapes, a few jobs."""

    def __init__(self, seed: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        self.nodes = int(rng.integers(1, 9))
        devices = int(rng.integers(0, 3))
        self.ready = rng.integers(0, 12, (self.nodes, 1 + devices)) / 4.0
        self.ready[rng.random(self.ready.shape) < 0.1] = np.inf  # not every node has everything
        present = np.isfinite(self.ready)
        self.pool = np.array([True, True, False, False])
        self.count = np.array([0, min(1, devices), min(1, devices), devices], np.int64)
        self.eligible = np.repeat(present[None], 4, axis=0)
        self.eligible[:, :, 0] = False
        self.able = np.ones((4, self.nodes), np.bool_)
        for s in range(4):
            if self.pool[s]:
                self.able[s] &= present[:, 0]
            self.able[s] &= self.eligible[s].sum(axis=1) >= self.count[s]
        if not devices:
            self.pool[:] = True
        self.rng = rng

    def options(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Some (shape, nodes) and their seconds; most can be placed."""
        count = int(self.rng.integers(0 if most > 9 else 1, most + 1))
        rows = [
            (int(self.rng.integers(0, 4)), int(self.rng.integers(1, self.nodes + 1))) for _ in range(count)
        ]
        seconds = self.rng.integers(1, 9, count) / 2.0
        return np.array(rows, np.int64).reshape(count, 2), seconds


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=full(3000, 300), deadline=None, derandomize=True)
@given(seed=seeds, packed=st.booleans(), shape=st.integers(0, 3), wanted=st.integers(1, 9))
def test_place(seed: int, packed: bool, shape: int, wanted: int) -> None:
    i = Instance(seed)
    chosen, keys, at = np.zeros(i.nodes, np.int64), np.zeros(i.nodes), np.zeros(i.nodes)
    about = (1, int(i.pool[shape]), int(i.count[shape]), i.eligible[shape], i.able[shape])
    start = same(gangs.compiled_place, i.ready, *about, min(wanted, i.nodes), packed, chosen, keys, at)
    if start < np.inf:  # what it then holds can be held
        before = i.ready.copy()
        gangs.occupy(i.ready, *about[:4], chosen, min(wanted, i.nodes), start, start + 2.5)
        assert (i.ready != before).sum() == min(wanted, i.nodes) * (about[1] + about[2])


@settings(max_examples=full(1000, 60), deadline=None, derandomize=True)
@given(seed=seeds, roll_out=st.booleans(), alone=st.booleans())
def test_the_rule_of_fms_and_its_kernel_choose_alike(seed: int, roll_out: bool, alone: bool) -> None:
    i = Instance(seed)
    first, second = i.options(9), i.options(9)
    if alone:
        second = np.empty((0, 2), np.int64), np.empty(0)
    tables = Table(*first), Table(*second), Table(*i.options(12))
    shapes = Shapes(i.pool, i.count, i.eligible, i.able)
    same(fms._best_pair, i.ready, 1.0, shapes, *tables, roll_out, np.empty(3, np.int64))
