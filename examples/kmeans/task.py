"""One task of K-means as a program, the paper's own form: ``task.py cpu|gpu CENTRES POINTS SUMS``."""

from __future__ import annotations

import sys

import numpy as np
from points import assign_cpu, assign_gpu


def main() -> None:
    """Read points and centres, write the sums."""
    kind, centres, points, sums = sys.argv[1:]
    run = {"cpu": assign_cpu, "gpu": assign_gpu}[kind]
    np.save(sums, run(np.load(points), np.load(centres)))


if __name__ == "__main__":
    main()
