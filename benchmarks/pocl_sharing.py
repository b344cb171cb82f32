"""Whether ``gpus = "auto"`` is right on a real device: OpenCL programs that share one core's PoCL device.

    python benchmarks/pocl_sharing.py [--jobs 40] [--learn 30] [--rounds 3] [--out FOLDER] [--only PART]

Four programs run kernels on the device and wait between them, each in its own measure. First every pair is
measured, one after the other and together (``pairs``); then so many jobs of all four are run by ``auto`` with
an empty history (``learned``: for each pair, what it decides then, beside what was measured); then other jobs
run exclusively, always shared, and by ``auto`` with what was learned (``makespans``, each from a copy of that
history). Prints one JSON line for each part. On a machine that others use, run it as
``nice -n -15 python …`` (as root): then the others take little of the core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from dovetail.history.slowdowns import Slowdowns
from dovetail.history.sqlite import SqliteHistory
from dovetail.model import DeviceClass
from dovetail.policies.parts.sharing import GAIN, pays_off, run_together

APPS: Mapping[str, tuple[float, int]] = {
    "products": (0.0, 700),
    "training": (1.5, 440),
    "loading": (4.0, 240),
    "serving": (10.0, 130),
}
"""Of each program the milliseconds that it waits between two kernels, and how many kernels it runs."""
KERNEL_MS = 2.0
"""CPU time of a kernel, roughly, on a core of this decade."""
PROGRAM = """
import sys, time
import numpy as np
import pyopencl as cl
wait, kernels = float(sys.argv[1]) / 1e3, int(sys.argv[2])
device = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU)][0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
work = cl.Program(context, '''
__kernel void work(__global float *x) {
    int i = get_global_id(0);
    float a = x[i];
    for (int k = 0; k < 300; k++) a = a * 0.999f + 0.001f;
    x[i] = a;
}''').build().work
x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * SIZE)
cl.enqueue_fill_buffer(queue, x, np.float32(1), 0, 4 * SIZE)
for _ in range(kernels):
    work(queue, (SIZE,), None, x).wait()
    if wait:
        time.sleep(wait)
"""
SIZE = 4096


def command_of(folder: Path, app: str) -> list[str]:
    """The command line of a program."""
    wait, kernels = APPS[app]
    return [sys.executable, str(folder / "program.py"), str(wait), str(kernels)]


def timed_together(folder: Path, apps: Sequence[str], core: int) -> list[float]:
    """Seconds until each of these programs has ended, started at once on one core."""

    def pin() -> None:
        os.sched_setaffinity(0, {core})

    environ = {**os.environ, "POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1", "POCL_DEVICES": "pthread"}
    began = time.monotonic()
    running = {
        n: subprocess.Popen(command_of(folder, app), preexec_fn=pin, env=environ)
        for n, app in enumerate(apps)
    }
    ends: dict[int, float] = {}
    while len(ends) < len(running):
        for n, process in running.items():
            if n not in ends and process.poll() is not None:
                if process.returncode:
                    raise RuntimeError(f"{apps[n]} ended with status {process.returncode}")
                ends[n] = time.monotonic() - began
        time.sleep(0.002)
    return [ends[n] for n in range(len(apps))]


def measured_pairs(folder: Path, rounds: int, core: int) -> dict[str, Any]:
    """Medians of seconds: each program alone, and each pair until both have ended, in turns."""
    alone: dict[str, list[float]] = {app: [] for app in APPS}
    pairs: dict[str, list[float]] = {}
    for _ in range(rounds):
        for app in APPS:
            alone[app] += timed_together(folder, [app], core)
        for pair in combinations_with_replacement(APPS, 2):
            pairs.setdefault("/".join(pair), []).append(max(timed_together(folder, pair, core)))
    return {
        "alone": {app: statistics.median(found) for app, found in alone.items()},
        "together": {pair: statistics.median(found) for pair, found in pairs.items()},
        "spread": max((max(found) - min(found)) / min(found) for found in (*alone.values(), *pairs.values())),
    }


def write_jobs(folder: Path, gpus: str, count: int, seed: int) -> Path:
    """So many jobs of the programs, in a random order, as many of each."""
    lines: list[str] = []
    for app in APPS:
        lines += ["[[app]]", f'name = "{app}"', "[[app.implementation]]", 'name = "opencl"']
        lines += [f"gpus = {gpus}", f"command = {json.dumps(command_of(folder, app))}"]
    names = [list(APPS)[index % len(APPS)] for index in range(count)]
    random.Random(seed).shuffle(names)
    for name in names:
        lines += ["[[job]]", f'app = "{name}"']
    path = folder / "jobs.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(folder: Path, gpus: str, count: int, seed: int, history: Path, core: int) -> Mapping[str, Any]:
    """The report of a run of such jobs. Raises `RuntimeError` where a job fails."""
    others = sorted(os.sched_getaffinity(0) - {core}) or [core]
    device = f'{{ kind = "opencl", model = "pocl", cores = [{core}], count = 1 }}'
    cluster = folder / "cluster.toml"
    cluster.write_text(f'[[node]]\nname = "box"\ncores = {others[:1]}\ndevices = [{device}]\n')
    command = [sys.executable, "-m", "dovetail", "run", str(write_jobs(folder, gpus, count, seed))]
    command += ["--cluster", str(cluster), "--history", str(history), "--json", "--quiet"]
    environ = {
        **os.environ,
        "DOVETAIL_CLAIMS": str(folder / "claims"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=folder)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def decisions(history: Path, truth: Mapping[str, Any]) -> dict[str, Any]:
    """Of each pair whether it is to share by what is known, and what that costs by what was measured.

    Right is what costs at most the ``GAIN`` that a decision takes for none; ``alike`` counts pairs of which
    the sign is right, however close both are.
    """
    device = DeviceClass("opencl", "pocl")
    rows: dict[str, dict[str, Any]] = {}
    with SqliteHistory(history) as store:
        known = Slowdowns(store)
        for pair, together in truth["together"].items():
            one, other = pair.split("/")
            costs = [known.of(app, "opencl", device.beside(by)) for app, by in ((one, other), (other, one))]
            first, second = (truth["alone"][app] for app in (one, other))
            shares = False
            if costs[0] is not None and costs[1] is not None:
                ends = run_together(first, costs[0][0], second, costs[1][0])
                shares = pays_off(first, second, ends)
            chosen = together if shares else first + second
            rows[pair] = {
                "measured": round(together / (first + second), 3),
                "known": [None if cost is None else (round(cost[0], 2), cost[1]) for cost in costs],
                "shares": shares,
                "costs": round(chosen / min(together, first + second), 3),
            }
    alike = sum(row["shares"] == (row["measured"] <= 1 - GAIN) for row in rows.values())
    right = sum(row["costs"] <= 1 + GAIN for row in rows.values())
    return {"pairs": rows, "right": right, "alike": alike, "of": len(rows)}


def main() -> None:
    """All parts, or one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--learn", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turns", type=int, default=1, help="turns of the three ways to run the jobs")
    parser.add_argument("--out", type=Path, help="where measurements and histories stay; default: nowhere")
    parser.add_argument("--only", choices=("pairs", "learned", "makespans"))
    given = parser.parse_args()
    folder = (given.out or Path(mkdtemp(prefix="pocl-sharing-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(PROGRAM.replace("SIZE", str(SIZE)))
    timed_together(folder, ["serving"], given.core)  # what is compiled once is compiled now
    kept, learned = folder / "pairs.json", folder / "learned.db"
    if given.only in (None, "pairs"):
        kept.write_text(json.dumps(measured_pairs(folder, given.rounds, given.core)))
        print(json.dumps({"part": "pairs", **json.loads(kept.read_text())}), flush=True)
    if given.only in (None, "learned"):
        learned.unlink(missing_ok=True)
        run(folder, '"auto"', given.learn, given.seed, learned, given.core)
        found = decisions(learned, json.loads(kept.read_text()))
        print(json.dumps({"part": "learned", "runs": given.learn, **found}), flush=True)
    if given.only in (None, "makespans"):
        spans: dict[str, list[float]] = {"exclusive": [], "always": [], "auto": []}
        for turn in range(given.turns):
            for name, gpus in (("exclusive", "1"), ("always", "0.5"), ("auto", '"auto"')):
                history = folder / f"{name}.db"
                shutil.copy(learned, history)
                seed = given.seed + 1000 + turn
                spans[name].append(run(folder, gpus, given.jobs, seed, history, given.core)["makespan"])
        means = {name: statistics.fmean(found) for name, found in spans.items()}
        ratio = means["auto"] / min(means["exclusive"], means["always"])
        print(json.dumps({"part": "makespans", "jobs": given.jobs, **spans, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
