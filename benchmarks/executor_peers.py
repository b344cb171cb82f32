"""What a call costs: `dovetail.Executor` and `ProcessPoolExecutor` in turns; `Client.submit` of a command.

    DOVETAIL_CLAIMS=$(mktemp -d) python benchmarks/executor_peers.py [ROUNDS]

CPU seconds of this process and wall time of 10,000 short calls in a burst; the median wall time of one at a
time; CPU milliseconds of a client for each of 100 commands in a burst, to their ends. On a busy machine the
ratios of a round are what to read. A folder of claims of its own keeps other programs' cores out of it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from multiprocessing import get_context

import dovetail
from dovetail.errors import DovetailError

CALLS, SINGLE, COMMANDS = 10_000, 200, 100


def add_one(x: int) -> int:
    """The call."""
    return x + 1


def time_burst(executor: Executor) -> tuple[float, float]:
    """CPU of this process, and wall time, in seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    futures = [executor.submit(add_one, i) for i in range(CALLS)]
    wait(futures)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert sum(future.result() for future in futures) == CALLS * (CALLS + 1) // 2
    return cpu, wall


def time_single(executor: Executor) -> float:
    """The median of one call at a time, in milliseconds."""
    found = []
    for i in range(SINGLE):
        began = time.perf_counter()
        executor.submit(add_one, i).result()
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e3


def compare_executors(rounds: int) -> None:
    """In turns, on two workers each that are up."""
    # Forked processes would have the other pool's descriptors; and our workers are started anew, too.
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as theirs,
        dovetail.Executor(2, local=True) as ours,
    ):
        for executor in (theirs, ours):
            list(executor.map(add_one, range(500)))
        for number in range(rounds):
            (their_cpu, their_wall), (our_cpu, our_wall) = time_burst(theirs), time_burst(ours)
            print(
                f"burst {number + 1}: ProcessPoolExecutor {their_cpu:.2f} s CPU, {their_wall:.2f} s; "
                f"Executor {our_cpu:.2f} s CPU, {our_wall:.2f} s; "
                f"ratios {our_cpu / their_cpu:.2f} and {our_wall / their_wall:.2f}"
            )
            print(f"one at a time {number + 1}: {time_single(theirs):.3f} ms and {time_single(ours):.3f} ms")


def time_commands(client: dovetail.Client) -> float:
    """CPU milliseconds of this process for each command, from the submission to its end."""
    began = time.process_time()
    futures = [client.submit(["true"], walltime="1h") for _ in range(COMMANDS)]
    for future in futures:
        future.result()
    return (time.process_time() - began) / COMMANDS * 1e3


def with_service(measure: Callable[[dovetail.Client], None]) -> None:
    """Measure with a service of its own."""
    folder = tempfile.mkdtemp()
    words = [sys.executable, "-m", "dovetail", "serve", "--folder", folder, "--cluster", "1x2cpu"]
    service = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                client = dovetail.Client(folder)
                break
            except DovetailError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        with client:
            client.submit(["true"]).result()
            measure(client)
    finally:
        service.terminate()
        service.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print everything."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    compare_executors(rounds)

    def print_commands(client: dovetail.Client) -> None:
        for number in range(rounds):
            print(f"command {number + 1}: {time_commands(client):.2f} ms CPU of the client")

    with_service(print_commands)


if __name__ == "__main__":
    main()
