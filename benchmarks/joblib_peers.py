"""scikit-learn on joblib's own backend and on Dovetail's, in turns; and three programs at once.

    build/integrations/bin/python benchmarks/joblib_peers.py [ROUNDS]

Wall and CPU seconds (workers included) of a GridSearchCV of 60 fits, of a RandomForestClassifier and of 60
calls with one array of 80 MB; the ratio of each pair. Then three programs with that search start at once: how
many of their workers were runnable, on average; in which part of the looks they were more than cores; when
the last program ended. Processes that only start are among them. Claims are of a folder of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LOOK = 0.02
"""Seconds between looks at the workers."""
AT_ONCE = 3
BACKENDS = ("loky", "dovetail")
SEARCH, FOREST, ARRAY = "search", "forest", "array"


def run_search() -> None:
    """Sixty fits of a fifth of a second."""
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    data, target = make_classification(1500, 30, random_state=1)
    grid = {"C": [0.1, 0.3, 1.0, 3.0], "gamma": [0.01, 0.03, 0.1]}
    GridSearchCV(SVC(), grid, cv=5, n_jobs=-1).fit(data, target)


def run_forest() -> None:
    """A forest of two hundred trees; a backend that is named overrides the threads that it prefers."""
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier

    data, target = make_classification(4000, 30, random_state=1)
    RandomForestClassifier(200, n_jobs=-1, random_state=1).fit(data, target).predict(data)


def run_array() -> None:
    """Sixty calls with the same array."""
    import joblib
    import numpy as np

    array = np.ones(10_000_000)
    joblib.Parallel(n_jobs=-1)(joblib.delayed(np.sum)(array) for _ in range(60))


WORKS: dict[str, Callable[[], None]] = {SEARCH: run_search, FOREST: run_forest, ARRAY: run_array}


def start_program(work: str, backend: str) -> subprocess.Popen[bytes]:
    """A program of its own with one of the works."""
    return subprocess.Popen([sys.executable, __file__, "--work", work, backend])


def time_program(work: str, backend: str) -> tuple[float, float]:
    """Wall and CPU seconds, from the program's start to its end, with its workers."""
    before, began = os.times(), time.perf_counter()
    assert start_program(work, backend).wait() == 0
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu


def runnable_workers(roots: Sequence[int]) -> int:
    """Processes below these that run, or could; the programs themselves, which wait, are left out."""
    parents: dict[int, int] = {}
    running: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(parent)
            if state == "R":
                running.add(int(entry.name))

    def is_below(pid: int) -> bool:
        while (pid := parents.get(pid, 0)) > 1:
            if pid in roots:
                return True
        return False

    return sum(is_below(pid) for pid in running)


def time_at_once(backend: str) -> tuple[float, float, float]:
    """Seconds until the last of the programs ended; runnable workers while any was: their mean, and in which
    part of the looks there were more than cores.
    """
    began = time.perf_counter()
    programs = [start_program(SEARCH, backend) for _ in range(AT_ONCE)]
    counts: list[int] = []
    while any(program.poll() is None for program in programs):
        counts.append(runnable_workers([program.pid for program in programs]))
        time.sleep(LOOK)
    assert all(program.returncode == 0 for program in programs)
    seen = [count for count in counts if count] or [0]
    cores = len(os.sched_getaffinity(0))
    above = statistics.mean(count > cores for count in seen)
    return time.perf_counter() - began, statistics.mean(seen), above


def main(arguments: Sequence[str]) -> None:
    """Print everything."""
    rounds = int(arguments[0]) if arguments else 3
    os.environ["DOVETAIL_CLAIMS"] = tempfile.mkdtemp()
    for name, value in (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1")):
        os.environ[name] = value
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores", flush=True)
    for work in WORKS:
        ratios: list[tuple[float, float]] = []
        for number in range(rounds):
            # In turns, and each first in every other round.
            order = BACKENDS if number % 2 else BACKENDS[::-1]
            found = {backend: time_program(work, backend) for backend in order}
            ratio = tuple(
                ours / theirs for ours, theirs in zip(found["dovetail"], found["loky"], strict=True)
            )
            ratios.append((ratio[0], ratio[1]))
            shown = "; ".join(f"{name} {wall:.1f} s, {cpu:.1f} s CPU" for name, (wall, cpu) in found.items())
            print(f"{work}: {shown}; ratios {ratio[0]:.2f} and {ratio[1]:.2f}", flush=True)
        wall, cpu = (statistics.median(column) for column in zip(*ratios, strict=True))
        print(f"{work}: median ratios {wall:.2f} and {cpu:.2f}", flush=True)
    for number in range(max(1, rounds // 2)):
        for backend in BACKENDS:
            seconds, mean, above = time_at_once(backend)
            print(
                f"{AT_ONCE} programs at once {number + 1}, {backend}: the last ended after {seconds:.1f} s; "
                f"{mean:.2f} workers runnable, more than cores in {above:.0%} of the looks",
                flush=True,
            )


def run_work(work: str, backend: str) -> None:
    """The work of a program that was started for it."""
    import joblib

    import dovetail_integrations.joblib  # noqa: F401 - it registers itself

    options: dict[str, Any] = {"n_jobs": -1}
    with joblib.parallel_config(backend, **options):
        WORKS[work]()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        run_work(*sys.argv[2:4])
    else:
        main(sys.argv[1:])
