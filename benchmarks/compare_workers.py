"""What two workers make of `compare`: wall time and CPU of one and of two, in turns.

Usage: python benchmarks/compare_workers.py [--jobs 8000] [--rounds 5] [--policy easy,conservative].
Ten replicates of rigid jobs on 256 nodes of one CPU. Wall times say something only on a machine that does
nothing else; CPU seconds (of all processes) show what workers cost in addition.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from test_whole_command import COMMAND, write_log

from dovetail.process.channel import become_subreaper


def measure(log: Path, policies: str, workers: int) -> tuple[float, float]:
    """Wall time of one command, and CPU seconds of all its processes."""
    options = ("--cluster", "256x1cpu", "--policy", policies, "--workers", str(workers), "--quiet")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    since = time.monotonic()
    argv = [sys.executable, "-c", COMMAND, "compare", str(log), *options]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - since
    with suppress(ChildProcessError):  # workers, which end behind the command
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Rounds in turns, and their medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policy", default="easy,conservative")
    given = parser.parse_args()
    become_subreaper()
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "jobs.swf", given.jobs, 256)
        found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for _ in range(given.rounds):
            for workers, rows in found.items():
                rows.append(measure(log, given.policy, workers))
    walls, cpus = (
        {n: statistics.median(row[at] for row in rows) for n, rows in found.items()} for at in range(2)
    )
    for n in found:
        print(f"{n} worker{'s' if n > 1 else ''}: {walls[n]:.2f} s of wall time, {cpus[n]:.2f} of CPU")
    print(f"{walls[1] / walls[2]:.2f} times as fast for {cpus[2] / cpus[1]:.2f} of the CPU")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
