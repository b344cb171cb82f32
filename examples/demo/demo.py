"""The demo: learn six programs on two unlike devices from nothing, then beat every static placement.

    python examples/demo/demo.py [--out FOLDER] [--rounds N]

The machine's first two cores become two devices: ``cpu`` (NumPy and SciPy on one core) and ``opencl``
(PoCL on the other). Every run is real: processes, pinned to their core, measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import dovetail
from dovetail.report import Comparison, tables

HERE = Path(__file__).parent
JOBS = HERE / "jobs.toml"
STATIC = ("best-device", "cpu-only", "gpu-only")


def two_devices() -> dovetail.Cluster:
    """The cluster file's two devices, on the first two cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("demo: this machine lets us use one core only; the demo needs two")
    text = (HERE / "cluster.toml").read_text()
    text = text.replace("cores = [0]", f"cores = [{cores[0]}]").replace(
        "cores = [1]", f"cores = [{cores[1]}]"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.toml"
        path.write_text(text)
        return replace(dovetail.Cluster.parse(str(path)), label="two cores")


def main() -> int:
    """Learn, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("dovetail-out/demo"), help="folder of the report")
    parser.add_argument("--rounds", type=int, default=3, help="training runs")
    parser.add_argument("--orders", type=int, default=2, help="orders in which the policies are compared")
    options = parser.parse_args()
    # The jobs say "python": let that be this one, in which Dovetail's apps are installed.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory(prefix="dovetail-demo-") as state:
        os.environ["XDG_STATE_HOME"] = state  # the demo starts from an empty history
        return demo(Path(state) / "history.sqlite", options.out, options.rounds, options.orders)


def demo(history: Path, out: Path, rounds: int, orders: int) -> int:
    """The demo proper."""
    cluster = two_devices()
    console = tables.console()
    jobs = dovetail.load_workload(JOBS)
    print(f"{len(jobs.jobs)} jobs: six programs, three sizes each.")
    print("Two devices: NumPy on one core, OpenCL (PoCL) on another.")
    print("Dovetail knows nothing about them yet.\n")
    print("1. Learning: the queue as it comes, then in other orders")
    for turn in range(1, rounds + 1):
        report = dovetail.run(JOBS, cluster=cluster, history=history, seed=None if turn == 1 else turn)
        error = report.metrics["prediction_error_median"]
        known = "nothing was predicted" if error is None else f"predictions were off by {error:.0%} (median)"
        print(f"   run {turn}: {report.makespan:5.1f} s, {known}")
    seeds = range(rounds + 1, rounds + 1 + orders)
    print(f"\n2. The same queue in {orders} new orders, really run under four policies")
    results = []
    for policy in ("history", *STATIC):
        for seed in seeds:
            report = dovetail.run(JOBS, cluster=cluster, history=history, policy=policy, seed=seed)
            results.append(report.result)
        spans = [result.makespan for result in results[-orders:]]
        print(f"   {policy:12} " + ", ".join(f"{span:5.1f} s" for span in spans))
    best = Comparison(results)
    print("\n3. What came out in the first of these orders, under history and beside the others\n")
    print(best[0].gantt(width=console.width))
    first = [result for result in results if result.seed == seeds[0]]  # of two orders no interval says much
    print(Comparison(first))
    out.mkdir(parents=True, exist_ok=True)
    best.html(out / "index.html")
    best[0].gantt(out / "history.svg")
    mean = {p: fmean(r.makespan for r in results if r.policy == p) for p in ("history", *STATIC)}
    learned, static = mean["history"], min(mean[policy] for policy in STATIC)
    if learned < static:
        print("\nhistory gave jobs to their slower device wherever they ended sooner there:")
        less = 1 - learned / static
        many = "" if orders == 1 else f" on average over the {orders} orders"
        print(
            f"{learned:.1f} s{many}, against {static:.1f} s for the best static placement, {less:.0%} less."
        )
    else:
        print(f"\nThis time a static placement was as good: {static:.1f} s, against {learned:.1f} s.")
        print("Was the machine busy with something else? Other work on these two cores spoils the times.")
    print(f"Report: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
