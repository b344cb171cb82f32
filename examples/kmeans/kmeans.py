"""K-means to convergence: a map of assignment and partial sums, a reduce to new centres, again and again.

    python examples/kmeans/kmeans.py [--files N] [--workers cpu:1,opencl:1] [--ray-nodes 4]

Workers stay from one round to the next, so that devices are opened and kernels built once.
"""

from __future__ import annotations

import argparse
import operator
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from points import POINTS, Array, K, assign, assign_cpu, centres_of, make_files, start

import dovetail


def default_workers() -> str:
    """A core for NumPy and one for OpenCL on every two; on a machine with CUDA, `gpu` instead."""
    cores = len(os.sched_getaffinity(0))
    return f"cpu:{max(1, cores - 1)},opencl:1"


def cluster(
    files: Sequence[str], k: int, workers: dovetail.Workers, rounds: int, tolerance: float
) -> tuple[Array, list[float]]:
    """Centres, and the mean squared distance after each round."""
    centres = start(files[0], k)
    history: list[float] = []
    for turn in range(1, rounds + 1):
        began = time.perf_counter()
        results = dovetail.map(assign, files, workers=workers, common={"centres": centres}, progress=False)
        sums = results.reduce(operator.add)
        moved = centres_of(sums, centres)
        step = float(np.abs(moved - centres).max())
        centres = moved
        history.append(float(sums[:, 3].sum() / sums[:, 2].sum()))
        summary = results.summary
        shares = ", ".join(f"{kind} {count}" for kind, count in sorted(summary.tasks.items()))
        factor = "" if summary.acceleration is None else f", factor {summary.acceleration:.1f}"
        print(
            f"round {turn:2}: {time.perf_counter() - began:6.2f} s, {shares}{factor}, "
            f"mean squared distance {history[-1]:.4f}, largest step {step:.4f}"
        )
        if step < tolerance:
            break
    return centres, history


def alone(files: Sequence[str], k: int, rounds: int) -> float:
    """The mean squared distance after so many rounds in one process, without Dovetail."""
    centres = start(files[0], k)
    sums = np.zeros((k, 4))
    for _ in range(rounds):
        sums = sum(assign_cpu(np.load(path), centres) for path in files)  # type: ignore[assignment]
        centres = centres_of(sums, centres)
    return float(sums[:, 3].sum() / sums[:, 2].sum())


def main() -> None:
    """Make the data, cluster, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--points", type=int, default=POINTS, help="in each file")
    parser.add_argument("-k", type=int, default=K)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=0.05, help="of the largest step of a centre")
    parser.add_argument("--workers", default=None, help="e.g. cpu:14,gpu:2")
    parser.add_argument("--data", type=Path, default=None, help="folder of the points; kept")
    parser.add_argument("--ray-nodes", type=int, default=0, help="run on a Ray of so many nodes, here")
    parser.add_argument("--check", action="store_true", help="compare with one process")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kmeans-")))
        files = make_files(folder, options.files, options.points, options.k)
        print(f"{len(files)} files of {options.points:,} points, K = {options.k}")
        if options.ray_nodes:
            _start_ray(stack, options.ray_nodes)
            workers = dovetail.Workers(options.workers or "cpu:1", engine="ray")
        else:
            workers = dovetail.Workers(options.workers or default_workers())
        stack.enter_context(workers)
        _, history = cluster(files, options.k, workers, options.rounds, options.tolerance)
        if options.check:
            agree = np.isclose(alone(files, options.k, len(history)), history[-1], rtol=1e-3)
            print("one process agrees" if agree else "one process does not agree")


def _start_ray(stack: ExitStack, nodes: int) -> None:
    """A Ray cluster of so many nodes on this machine: one CPU each, the first one a GPU as well."""
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    made = Cluster(initialize_head=True, head_node_args={**node, "num_gpus": 1, "include_dashboard": False})
    stack.callback(made.shutdown)
    for _ in range(nodes - 1):
        made.add_node(**node)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    stack.callback(ray.shutdown)


if __name__ == "__main__":
    main()
