"""The heat equation on a square plate by Jacobi's method, over as many nodes as MPI gives (strips of rows).

    python heat.py --size 1024 --steps 200 --device cpu|opencl

Prints the mean temperature of the plate, which does not depend on the number of nodes or on the device.
"""

from __future__ import annotations

import argparse

import numpy as np
from gang import Strip, kernel_of
from mpi4py import MPI

SOURCE = """
__kernel void jacobi(__global const float *old, __global float *new, const int width) {
    int i = (get_global_id(1) + 1) * width + get_global_id(0) + 1;
    new[i] = 0.25f * (old[i - 1] + old[i + 1] + old[i - width] + old[i + width]);
}
"""


def on_cpu(plate: np.ndarray, fresh: np.ndarray) -> None:
    """One step over the inner points."""
    total = plate[1:-1, :-2] + plate[1:-1, 2:]
    total += plate[:-2, 1:-1]
    total += plate[2:, 1:-1]
    np.multiply(total, np.float32(0.25), out=fresh[1:-1, 1:-1])


def on_opencl():
    """The same as a kernel; the rows that neighbours need come back after each step."""
    cl, queue, kernel = kernel_of(SOURCE, "jacobi")
    buffers: dict[int, object] = {}

    def step(plate: np.ndarray, fresh: np.ndarray) -> None:
        for array in (plate, fresh):
            if id(array) not in buffers:
                flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
                buffers[id(array)] = cl.Buffer(queue.context, flags, hostbuf=array)
        old, new = buffers[id(plate)], buffers[id(fresh)]
        cl.enqueue_copy(queue, old, plate)
        rows, width = plate.shape
        kernel(queue, (width - 2, rows - 2), None, old, new, np.int32(width))
        inside = np.empty_like(fresh)
        cl.enqueue_copy(queue, inside, new).wait()
        fresh[1:-1, 1:-1] = inside[1:-1, 1:-1]

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=["cpu", "opencl"])
    asked = parser.parse_args()
    world = MPI.COMM_WORLD
    strip = Strip(asked.size, world)
    plate = np.zeros((strip.rows + 2, asked.size + 2), np.float32)
    if strip.first == 0:
        plate[0] = 100.0  # the upper edge is hot
    fresh = plate.copy()
    step = on_cpu if asked.device == "cpu" else on_opencl()
    for _ in range(asked.steps):
        strip.exchange(plate)
        fresh[0], fresh[-1] = plate[0], plate[-1]
        step(plate, fresh)
        plate, fresh = fresh, plate
    total = world.allreduce(float(plate[1:-1, 1:-1].sum(dtype=np.float64)))
    if world.rank == 0:
        print(f"mean temperature {total / asked.size**2:.4f}")


if __name__ == "__main__":
    main()
