"""Random walks: walkers x steps is the work, neither flag alone says how much."""

from __future__ import annotations

import argparse

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--walkers", type=int, required=True)
parser.add_argument("--steps", type=int, required=True)
arguments = parser.parse_args()
numbers = np.random.default_rng(1)
farthest = 0.0
for _ in range(arguments.walkers):
    walk = np.cumsum(numbers.standard_normal(arguments.steps))
    farthest = max(farthest, float(np.abs(walk).max()))
print(farthest)
