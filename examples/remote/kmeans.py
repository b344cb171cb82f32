"""K-means on a device that can be anywhere: ``python kmeans.py --points 262144 --clusters 128 --rounds 20``.

The program asks for an array namespace and writes Lloyd's iteration by the array API standard. Where it
computes is said by the environment (``DOVETAIL_DEVICE_ADDRESSES``) or by ``--device``; with ``--then`` it
moves there half-way. It prints one line of JSON. The sizes are those of Shirahata 2010: points of two
dimensions.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import dovetail_remote

BLOCK = 16_384
"""Points whose distances are held at once."""


def kmeans(xp: Any, points: Any, centroids: Any) -> tuple[Any, Any]:
    """One iteration: new centroids, and how far each has moved. Memory O(BLOCK x clusters)."""
    clusters = centroids.shape[0]
    names = xp.reshape(xp.arange(clusters), (1, clusters))
    sums, counts = xp.zeros_like(centroids), xp.zeros((clusters,), dtype=points.dtype, device=points.device)
    norms = xp.sum(centroids**2, axis=1)
    for begin in range(0, points.shape[0], BLOCK):
        block = points[begin : begin + BLOCK, :]
        distances = norms - 2 * xp.matmul(block, xp.matrix_transpose(centroids))  # but for the points' norms
        nearest = xp.reshape(xp.argmin(distances, axis=1), (-1, 1))
        member = xp.astype(xp.equal(nearest, names), points.dtype)
        sums = sums + xp.matmul(xp.matrix_transpose(member), block)
        counts = counts + xp.sum(member, axis=0)
    filled = xp.reshape(xp.maximum(counts, xp.ones_like(counts)), (clusters, 1))
    fresh = xp.where(xp.reshape(counts, (clusters, 1)) > 0, sums / filled, centroids)
    return fresh, xp.max(xp.abs(fresh - centroids))


def main() -> None:
    """Make points, iterate, print."""
    parser = argparse.ArgumentParser(description="K-means on a device that can be anywhere.")
    parser.add_argument("--points", type=int, default=262_144)
    parser.add_argument("--clusters", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--device", metavar="ADDRESS", help="default: what the environment says, else NumPy here"
    )
    parser.add_argument("--then", metavar="ADDRESS", help="move there half-way")
    options = parser.parse_args()
    xp = dovetail_remote.namespace(*[options.device] if options.device else [])
    host = np.random.Generator(np.random.PCG64(options.seed)).random((options.points, 2))
    begin = time.perf_counter()
    points = xp.asarray(host)
    centroids = points[: options.clusters, :] + 0.0
    moved = xp.asarray(0.0)
    for number in range(options.rounds):
        if options.then and number == options.rounds // 2:
            xp.device.migrate(options.then)
        centroids, moved = kmeans(xp, points, centroids)
    result = {"device": str(xp.device), "moved": float(moved), "checksum": float(xp.sum(centroids))}
    print(json.dumps({**result, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
