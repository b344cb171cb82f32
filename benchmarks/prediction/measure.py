"""Runs six families of ordinary commands through Dovetail, again and again, and keeps what was measured.

    python benchmarks/prediction/measure.py calm.jsonl.gz
    python benchmarks/prediction/measure.py busy.jsonl.gz --busy

Each pass runs ten sizes of each family once, in a random order, on one core, as `dovetail run` would, so that
a history builds up as a user's does. ``--busy`` keeps other processes at work beside them: up to three at
a time, for a few seconds each, on the same core. `judge.py` says how well the models predict what came next.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dovetail import run
from dovetail.history import SqliteHistory
from dovetail.history.exchange import as_dict
from dovetail.model import Cluster, Node

PROGRAMS = Path(__file__).parent / "programs"
PASSES = 4
SIZES = 10


def prepare(folder: Path) -> list[str]:
    """Files to work on, and the commands: ten sizes of each family."""
    rng = np.random.Generator(np.random.PCG64(7))
    words = [f"w{i:x}" for i in rng.integers(0, 50_000, 4_000)]
    python = sys.executable
    lines: list[str] = []

    def text(name: str, size: int) -> Path:
        path = folder / name
        drawn = rng.integers(0, len(words), size // 5 + 10).tolist()
        path.write_text(" ".join(words[i] for i in drawn)[:size])
        return path

    def numbers(name: str, count: int) -> Path:
        path = folder / name
        path.write_text("\n".join(map(str, rng.integers(0, 10**9, count).tolist())) + "\n")
        return path

    for i, share in enumerate(np.geomspace(1, 16, SIZES)):
        plain = text(f"gzip-{i}", int(1.0e6 * share))
        lines.append(f"sh -c 'gzip -9 -c {plain} > /dev/null'")
        lines.append(f"xz -T1 -6 -k -c {text(f'xz-{i}', int(0.25e6 * share))}")
        lines.append(f"sort -n -o /dev/null {numbers(f'sort-{i}', int(60_000 * share))}")
        packed = folder / f"stages-{i}.gz"
        with gzip.open(packed, "wb") as out:
            out.write(text(f"stages-{i}", int(0.6e6 * share)).read_bytes())
        lines.append(f'sh -c \'gzip -dc {packed} | tr " " "\\n" | sort | uniq -c | gzip -1 > /dev/null\'')
    for _ in range(SIZES):
        walkers, steps = (int(x) for x in np.exp(rng.uniform(np.log([60, 3_000]), np.log([1_000, 60_000]))))
        lines.append(f"{python} {PROGRAMS}/walks.py --walkers {walkers} --steps {steps}")
    methods = {"direct": (600, 3200), "iterative": (800, 4000), "spectrum": (300, 1500)}
    for i in range(SIZES):
        method = list(methods)[i % len(methods)]
        n = int(np.exp(rng.uniform(*np.log(methods[method]))))
        lines.append(f"{python} {PROGRAMS}/solve.py --method {method} --n {n}")
    blocks = np.geomspace(2, 30, SIZES).astype(int)
    return lines + [f"{python} {PROGRAMS}/fetch.py --blocks {count}" for count in blocks]


@contextlib.contextmanager
def others(core: int, seed: int) -> Iterator[None]:
    """Processes that come and go on the same core."""
    stop = threading.Event()
    drawn = random.Random(seed)
    burn = (
        "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "while os.getppid() == int(sys.argv[2]):\n for _ in range(10**6): pass"
    )

    def keep() -> None:
        while not stop.is_set():
            mine = [
                subprocess.Popen([sys.executable, "-c", burn, str(core), str(os.getpid())])
                for _ in range(drawn.choice([0, 0, 1, 1, 2, 3]))
            ]
            stop.wait(drawn.uniform(2, 12))
            for process in mine:
                process.kill()
                process.wait()

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    cluster = Cluster((Node("here", (core,)),))
    drawn = random.Random(arguments.seed)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        lines = prepare(folder)
        history = folder / "history.sqlite"
        if arguments.busy:
            stack.enter_context(others(core, arguments.seed))
        for turn in range(arguments.passes):
            drawn.shuffle(lines)
            (folder / "commands.txt").write_text("\n".join(lines) + "\n")
            since = time.monotonic()
            run(folder / "commands.txt", cluster=cluster, policy="fcfs", history=history,
                run_dir=folder / f"run-{turn}")  # fmt: skip
            print(f"pass {turn + 1} of {arguments.passes}: {time.monotonic() - since:.0f} s", file=sys.stderr)
        with SqliteHistory(history) as store, gzip.open(arguments.out, "wt", encoding="utf-8") as out:
            for row in map(as_dict, store.all_runs()):
                kept = {
                    name: value for name, value in row.items() if name not in ("uid", "job", "peak_memory")
                }
                out.write(json.dumps(kept, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
