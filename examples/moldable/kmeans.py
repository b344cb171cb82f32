"""k-means by Lloyd's method, over as many nodes as MPI gives (each holds a part of the points).

    python kmeans.py --points 200000 --clusters 16 --rounds 10 --device cpu|opencl

Prints the sum of squared distances, which does not depend on the number of nodes or on the device.
"""

from __future__ import annotations

import argparse

import numpy as np
from gang import Strip, kernel_of
from mpi4py import MPI

DIMENSIONS = 8
SOURCE = """
__kernel void nearest(__global const float *points, __global const float *centres, __global int *found,
                      const int clusters) {
    int i = get_global_id(0);
    float least = INFINITY;
    for (int c = 0; c < clusters; c++) {
        float sum = 0.0f;
        for (int d = 0; d < 8; d++) {
            float away = points[i * 8 + d] - centres[c * 8 + d];
            sum += away * away;
        }
        if (sum < least) { least = sum; found[i] = c; }
    }
}
"""


def on_cpu(points: np.ndarray):
    """The nearest centre of each point."""
    squares = (points**2).sum(axis=1)[:, None]
    return lambda centres: np.argmin(squares - 2 * points @ centres.T + (centres**2).sum(axis=1), axis=1)


def on_opencl(points: np.ndarray):
    """The same as a kernel; the points stay on the device."""
    cl, queue, kernel = kernel_of(SOURCE, "nearest")
    read = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    on_device = cl.Buffer(queue.context, read, hostbuf=points)
    found = np.empty(len(points), np.int32)
    result = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, found.nbytes)

    def nearest(centres: np.ndarray) -> np.ndarray:
        given = cl.Buffer(queue.context, read, hostbuf=np.ascontiguousarray(centres))
        kernel(queue, (len(points),), None, on_device, given, result, np.int32(len(centres)))
        cl.enqueue_copy(queue, found, result).wait()
        return found

    return nearest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cpu", choices=["cpu", "opencl"])
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    strip = Strip(asked.points, world)
    everything = np.random.Generator(np.random.PCG64(1)).random((asked.points, DIMENSIONS), np.float32)
    points = np.ascontiguousarray(everything[strip.first : strip.first + strip.rows])
    centres = everything[: asked.clusters].copy()
    nearest = on_cpu(points) if asked.device == "cpu" else on_opencl(points)
    for _ in range(asked.rounds):
        found = nearest(centres)
        sums = np.stack([np.bincount(found, points[:, d], asked.clusters) for d in range(DIMENSIONS)], axis=1)
        counts = np.bincount(found, minlength=asked.clusters).astype(float)
        sums, counts = world.allreduce(sums), world.allreduce(counts)
        kept = counts > 0
        centres[kept] = (sums[kept] / counts[kept, None]).astype(np.float32)
    cost = world.allreduce(float(((points - centres[nearest(centres)]) ** 2).sum(dtype=np.float64)))
    if world.rank == 0:
        print(f"sum of squares {cost:.1f}")


if __name__ == "__main__":
    main()
