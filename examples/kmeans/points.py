"""K-means on files of points in the plane, as in Shirahata 2010: what one task does, on a CPU and on a GPU.

A task assigns the points of a file to the nearest of K centres, and gives for each centre the sums of its
points' coordinates, their number, and the squared distances: a (K, 4) array. Sums of files add up.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dovetail

__all__ = ["assign", "assign_cpu", "assign_gpu", "centres_of", "make_files", "start"]

Array = npt.NDArray[Any]

POINTS = 262_144  # in each file, as in the paper
K = 128
BLOCK = 4096
KERNEL = """
{qualifier} void assign({space} const float *points, {space} const float *centres, {space} int *label,
                        {space} float *distance, const int k)
{{
    const int i = {index};
    const float x = points[2 * i], y = points[2 * i + 1];
    float best = INFINITY;
    int nearest = 0;
    for (int c = 0; c < k; c++) {{
        const float dx = x - centres[2 * c], dy = y - centres[2 * c + 1];
        const float d = dx * dx + dy * dy;
        nearest = d < best ? c : nearest;
        best = d < best ? d : best;
    }}
    label[i] = nearest;
    distance[i] = best;
}}
"""


@dovetail.function(name="kmeans.assign")
def assign(path: str | Path, *, centres: Array) -> Array:
    """The sums of one file: NumPy on a core."""
    return assign_cpu(np.load(path), centres)


@assign.gpu
def _(path: str | Path, *, centres: Array) -> Array:
    """The sums of one file on a GPU, or on an OpenCL device."""
    return assign_gpu(np.load(path), centres)


def assign_cpu(points: Array, centres: Array) -> Array:
    """Nearest centres block by block: |p - c|² = |p|² - 2 p·c + |c|²."""
    labels = np.empty(len(points), dtype=np.int32)
    distance = np.empty(len(points), dtype=np.float32)
    lengths = (centres**2).sum(axis=1)
    for low in range(0, len(points), BLOCK):
        block = points[low : low + BLOCK]
        found = lengths - 2 * (block @ centres.T)
        nearest = found.argmin(axis=1)
        labels[low : low + BLOCK] = nearest
        distance[low : low + BLOCK] = found[np.arange(len(block)), nearest] + (block**2).sum(axis=1)
    return _sums(points, labels, distance, len(centres))


def assign_gpu(points: Array, centres: Array) -> Array:
    """Nearest centres on the worker's device."""
    labels, distance = _device()(np.ascontiguousarray(points, dtype=np.float32), centres.astype(np.float32))
    return _sums(points, labels, distance, len(centres))


def _sums(points: Array, labels: Array, distance: Array, k: int) -> Array:
    columns = (points[:, 0], points[:, 1], None, np.maximum(distance, 0))
    return np.stack([np.bincount(labels, weights=column, minlength=k) for column in columns], axis=1)


@cache
def _device() -> Any:
    """The device of this worker, opened once: CUDA through CuPy where it is installed, else OpenCL."""
    kind, _, number = os.environ.get("DOVETAIL_DEVICE", "gpu:0").partition(":")
    if kind != "opencl":
        try:
            return _cuda()
        except ImportError:
            pass  # no CuPy: an OpenCL device will do
    return _opencl(int(number or 0))


def _cuda() -> Any:
    import cupy

    source = KERNEL.format(
        qualifier='extern "C" __global__', space="", index="blockIdx.x * blockDim.x + threadIdx.x"
    )
    kernel = cupy.RawKernel(source.replace("const int i =", "const long i ="), "assign")

    def run(points: Array, centres: Array) -> tuple[Array, Array]:
        padded = np.zeros((-(-len(points) // 256) * 256, 2), dtype=np.float32)
        padded[: len(points)] = points
        label, distance = cupy.empty(len(padded), np.int32), cupy.empty(len(padded), np.float32)
        arguments = (cupy.asarray(padded), cupy.asarray(centres), label, distance, np.int32(len(centres)))
        kernel((len(padded) // 256,), (256,), arguments)
        return cupy.asnumpy(label)[: len(points)], cupy.asnumpy(distance)[: len(points)]

    return run


def _opencl(number: int) -> Any:
    import pyopencl as cl

    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    context = cl.Context([devices[number % len(devices)]])
    queue = cl.CommandQueue(context)
    source = KERNEL.format(qualifier="__kernel", space="__global", index="get_global_id(0)")
    kernel = cl.Kernel(cl.Program(context, source).build(), "assign")
    read, write = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR, cl.mem_flags.WRITE_ONLY

    def run(points: Array, centres: Array) -> tuple[Array, Array]:
        label, distance = np.empty(len(points), np.int32), np.empty(len(points), np.float32)
        buffers = [cl.Buffer(context, read, hostbuf=array) for array in (points, centres)]
        outputs = [cl.Buffer(context, write, array.nbytes) for array in (label, distance)]
        kernel(queue, (len(points),), None, *buffers, *outputs, np.int32(len(centres)))
        for array, buffer in zip((label, distance), outputs, strict=True):
            cl.enqueue_copy(queue, array, buffer)
        return label, distance

    return run


def centres_of(sums: Array, before: Array) -> Array:
    """The mean of each centre's points; a centre without points stays where it was."""
    count = sums[:, 2:3]
    return np.where(count > 0, sums[:, :2] / np.maximum(count, 1), before).astype(np.float32)


def start(path: str | Path, k: int, seed: int = 1) -> Array:
    """K points of a file as the first centres."""
    points = np.load(path)
    chosen = np.random.Generator(np.random.PCG64(seed)).choice(len(points), k, replace=False)
    return points[chosen].astype(np.float32)


def make_files(folder: Path, files: int, points: int = POINTS, clusters: int = K) -> list[str]:
    """Files of points around as many places as there are clusters; those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    places = np.random.Generator(np.random.PCG64(0)).uniform(-100, 100, (clusters, 2))
    made = []
    for n in range(files):
        path = folder / f"points-{n:04}.npy"
        if not path.exists():
            rng = np.random.Generator(np.random.PCG64([1, n]))
            spread = places[rng.integers(clusters, size=points)] + rng.normal(0, 3, (points, 2))
            np.save(path, spread.astype(np.float32))
        made.append(str(path))
    return made
