"""Packs of real programs (Aupy 2013), from nothing: measure, plan, run, beside other ways to run the queue.

    python examples/packs/packs.py [--rounds N] [--within SECONDS] [--shrink FACTOR]

Every job first runs once on one core and once on two, so that all times are known. Then the same jobs run as
packs, without packs (`list`), one after another on all cores, and under EASY backfilling.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

import dovetail
from dovetail.model import Job, Workload
from dovetail_lab.packing.registry import Options, solve

HERE = Path(__file__).parent
AFTER = "one after another"
WAYS: Mapping[str, str] = {
    AFTER: "fcfs",
    "easy": "easy",
    "packs": "pack?algorithm=subset-dp",
    "list": "pack?algorithm=list",
}
"""The policy of each way; one after another all jobs take every core."""


def with_choice(workload: Workload, name: str) -> Workload:
    """The jobs with one of their implementations alone."""

    def chosen(job: Job) -> Job:
        return replace(job, choices=tuple(c for c in job.choices if c.implementation.name == name))

    return replace(workload, jobs=[chosen(job) for job in workload.jobs])


def shrunk(workload: Workload, factor: float) -> Workload:
    """Smaller inputs."""

    def smaller(job: Job) -> Job:
        return replace(job, inputs={name: int(float(n) * factor) for name, n in job.inputs.items()})

    return replace(workload, jobs=[smaller(job) for job in workload.jobs])


def show_plan(report: dovetail.Report) -> str:
    """The packs that were planned, with their predicted times."""
    plan = report.result.plan
    assert plan is not None
    packs: dict[int | None, list[str]] = {}
    for item in plan.items:
        packs.setdefault(item.pack, []).append(f"{item.job} ({item.implementation}, {item.duration:.1f} s)")
    lines = [f"  pack {number}: {', '.join(jobs)}" for number, jobs in packs.items()]
    return "\n".join([f"plan: {plan.objective:.1f} s, {plan.status}", *lines])


def main() -> int:
    """Learn, plan, run, compare; returns 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each way, at most")
    parser.add_argument(
        "--within", type=float, default=120.0, metavar="SECONDS", help="no round that would end later begins"
    )
    parser.add_argument("--shrink", type=float, default=1.0, help="factor of the sizes")
    options = parser.parse_args()
    # The jobs name "python": let that be this one, in which Dovetail's apps are installed.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cluster = dovetail.Cluster.parse(str(HERE / "cluster.toml"))
    jobs = shrunk(dovetail.load_workload(HERE / "jobs.toml"), options.shrink)
    began = time.monotonic()
    failed = False
    for algorithm in ("subset-dp", "list"):  # compiled once: no run is to wait for that
        solve(np.array([[2.0, 1.0], [1.0, 1.0]]), 2, algorithm, Options())
    with tempfile.TemporaryDirectory(prefix="dovetail-packs-") as state:
        os.environ["XDG_STATE_HOME"] = state  # start from an empty history
        history = Path(state) / "history.sqlite"
        for name in ("one core", "two cores"):
            report = dovetail.run(with_choice(jobs, name), cluster=cluster, policy="fcfs", history=history)
            failed |= any(record.state != "COMPLETED" for record in report.result.records)
            print(f"learning, {name}: {report.makespan:.1f} s", flush=True)
        found: dict[str, list[float]] = {name: [] for name in WAYS}
        for turn in range(options.rounds):
            round_began = time.monotonic()
            # In the other order every other round: a machine has slow minutes.
            for name in list(WAYS)[:: -1 if turn % 2 else 1]:
                queue = with_choice(jobs, "two cores") if name == AFTER else jobs
                report = dovetail.run(queue, cluster=cluster, policy=WAYS[name], history=history)
                failed |= any(record.state != "COMPLETED" for record in report.result.records)
                found[name].append(report.makespan)
                if name == "packs" and not turn:
                    print(show_plan(report), flush=True)
            now = time.monotonic()
            if turn + 1 < options.rounds and now - began + now - round_began > options.within:
                print(f"no further round: it would end after more than {options.within:g} s", flush=True)
                break
    base = median(found[AFTER])
    print(f"{'':20}{'seconds':>10}{'of one after another':>24}")
    for name, seconds in found.items():
        middle = median(seconds)
        runs = ", ".join(f"{s:.1f}" for s in seconds)
        print(f"{name:20}{middle:>10.1f}{middle / base:>23.0%}   ({runs})")
    print(f"{time.monotonic() - began:.0f} s from an empty history on")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
