"""A task of K-means, two ways: what two kinds of worker run where there is no GPU.

As a program: ``python -m dovetail_lab.shirahata.kmeans cpu|gpu FILE OUT``; FILE has the chunk's number.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
POINTS, CENTRES, DIMENSIONS = 16_384, 64, 8
BLOCK = 256


def chunk_of(seed: int) -> Floats:
    """The points of a task."""
    return np.random.Generator(np.random.PCG64(seed)).random((POINTS, DIMENSIONS))


def starting_centres() -> Floats:
    """The centres of the round."""
    return np.random.Generator(np.random.PCG64(0)).random((CENTRES, DIMENSIONS))


def sums_by_differences(seed: int) -> Floats:
    """Sums and counts of the points nearest to each centre, from all differences: the slower way."""
    points, centres = chunk_of(seed), starting_centres()
    labels = [
        ((points[low : low + BLOCK, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        for low in range(0, POINTS, BLOCK)
    ]
    return _sums(points, np.concatenate(labels))


def sums_by_products(seed: int) -> Floats:
    """The same from a matrix product: the faster way."""
    points, centres = chunk_of(seed), starting_centres()
    return _sums(points, ((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1))


def _sums(points: Floats, labels: npt.NDArray[np.intp]) -> Floats:
    columns = [np.bincount(labels, weights=column, minlength=CENTRES) for column in points.T]
    return np.stack([*columns, np.bincount(labels, minlength=CENTRES).astype(float)], axis=1)


def main() -> None:
    """One task, as a program: its kind, the moment of its end and its sums."""
    kind, source, out = sys.argv[1:]
    run = {"cpu": sums_by_differences, "gpu": sums_by_products}[kind]
    sums = run(int(Path(source).read_text(encoding="ascii")))
    words = [kind, repr(time.time()), *map(repr, sums.ravel().tolist())]
    Path(out).write_text(" ".join(words), encoding="ascii")


if __name__ == "__main__":
    main()
