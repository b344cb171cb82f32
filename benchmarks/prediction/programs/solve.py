"""One problem size, three methods: a categorical flag."""

from __future__ import annotations

import argparse

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--method", choices=["direct", "iterative", "spectrum"], required=True)
parser.add_argument("--n", type=int, required=True)
arguments = parser.parse_args()
numbers = np.random.default_rng(2)
n = arguments.n
matrix = numbers.standard_normal((n, n)) + n * np.eye(n)
right = numbers.standard_normal(n)
if arguments.method == "direct":
    found = np.linalg.solve(matrix, right)
elif arguments.method == "iterative":
    found = np.zeros(n)
    for _ in range(40):
        found = found + (right - matrix @ found) / n
else:
    found = np.linalg.eigvalsh(matrix + matrix.T)
print(float(found.sum()))
