"""What a call costs: `dovetail.Executor` and `ProcessPoolExecutor` in turns; `Client.submit` of a command.

    DOVETAIL_CLAIMS=$(mktemp -d) python benchmarks/executor_peers.py [ROUNDS] [--fill docs/benchmarks.md]

10,000 short calls in a burst: CPU of this process and wall time. One call at a time: the median wall time,
CPU of this process and of the workers, how often their threads gave way. 100 commands in a burst, to their
ends: CPU of the client for each. Prints a table, a column a round; ``--fill`` writes it into the page,
between its marks. On a busy machine the ratios of a round are what to read. A folder of claims of its own
keeps other programs' cores out of it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from datetime import date
from multiprocessing import get_context
from pathlib import Path

import dovetail
from dovetail.errors import DovetailError

CALLS, SINGLE, COMMANDS = 10_000, 1000, 100
BEGIN, END = "<!-- executor_peers -->\n", "<!-- /executor_peers -->"
Figures = dict[str, list[str]]


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


def cpu_seconds(processes: Iterable[int]) -> float:
    """CPU of all threads of these processes."""
    tasks = [task for process in processes for task in Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def voluntary_switches(processes: Iterable[int]) -> int:
    """How often threads of these processes gave way, to wait for something."""
    tasks = [task for process in processes for task in Path(f"/proc/{process}/task").iterdir()]
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def time_single(executor: Executor) -> tuple[float, float, float, float]:
    """One call at a time: milliseconds (median), us of CPU here and in workers, switches of threads."""
    workers = {executor.submit(os.getpid).result() for _ in range(20)}
    own, everyone = [os.getpid()], [os.getpid(), *workers]
    before = cpu_seconds(own), cpu_seconds(workers), voluntary_switches(everyone)
    found = []
    for i in range(SINGLE):
        began = time.perf_counter()
        executor.submit(add_one, i).result()
        found.append(time.perf_counter() - began)
    after = cpu_seconds(own), cpu_seconds(workers), voluntary_switches(everyone)
    here, there, switches = ((b - a) / SINGLE for a, b in zip(before, after, strict=True))
    return statistics.median(found) * 1e3, here * 1e6, there * 1e6, switches


def compare_executors(rounds: int, rows: Figures) -> None:
    """In turns, on two workers each that are up."""

    def note(what: str, theirs: float, ours: float, form: str) -> None:
        rows.setdefault(f"{what}: `ProcessPoolExecutor`", []).append(format(theirs, form))
        rows.setdefault(f"{what}: `dovetail.Executor`", []).append(format(ours, form))

    # Forked processes would have the other pool's descriptors; and our workers are started anew, too.
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as theirs,
        dovetail.Executor(2, local=True) as ours,
    ):
        for executor in (theirs, ours):
            list(executor.map(add_one, range(500)))
        for _ in range(rounds):
            singles = "ms (median)", "CPU of the client, us", "CPU of the workers, us", "switches"
            for what, a, b in zip(singles, time_single(theirs), time_single(ours), strict=True):
                note(f"one at a time, {what}", a, b, ".2f" if "ms" in what else ".0f")
            for what, a, b in zip(("CPU", "wall time"), time_burst(theirs), time_burst(ours), strict=True):
                note(f"burst of {CALLS:,}, {what}, s", a, b, ".2f")


def time_commands(client: dovetail.Client) -> float:
    """CPU milliseconds of this process for each command, from the submission to its end."""
    began = time.process_time()
    futures = [client.submit(["true"], walltime="1h") for _ in range(COMMANDS)]
    for future in futures:
        future.result()
    return (time.process_time() - began) / COMMANDS * 1e3


def measure_commands(rounds: int, rows: Figures) -> None:
    """With a service of its own."""
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
            what = f"`Client.submit` of {COMMANDS} commands, CPU of the client for each, ms"
            rows[what] = [f"{time_commands(client):.2f}" for _ in range(rounds)]
    finally:
        service.terminate()
        service.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print everything, and fill it in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    parser.add_argument("--fill", type=Path, metavar="PAGE")
    options = parser.parse_args()
    rows: Figures = {}
    load = os.getloadavg()[0]
    compare_executors(options.rounds, rows)
    measure_commands(options.rounds, rows)
    python = ".".join(map(str, sys.version_info[:2]))
    lines = [
        f"{date.today()}, {os.cpu_count()} cores, Python {python}, load {load:.1f} before it began:",
        "",
        "| | " + " | ".join(f"round {number + 1}" for number in range(options.rounds)) + " |",
        "| --- |" + " ---: |" * options.rounds,
        *(f"| {what} | {' | '.join(found)} |" for what, found in rows.items()),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.fill is not None:
        page = options.fill.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        options.fill.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
