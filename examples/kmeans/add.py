"""The reduce of K-means as a program: ``add.py SUMS… TOTAL``."""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    """Add all files up."""
    *parts, total = sys.argv[1:]
    np.save(total, sum(np.load(part) for part in parts))


if __name__ == "__main__":
    main()
