"""The demo: learn six programs on two unlike devices from nothing, then beat every static placement.

    python examples/demo/demo.py [--full] [--out FOLDER]

The machine's first two cores become two devices: ``cpu`` (NumPy and SciPy on one core) and ``opencl``
(PoCL on the other; where PoCL runs no kernel ``numpy``, the programs' array-API source). Every run is real:
processes, pinned to their core, measured. Ends with 1 if a job failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TypeVar

import dovetail
from dovetail.cli.live_progress import LiveProgress
from dovetail.local.discovery import take_inventory
from dovetail.report import tables
from dovetail.report.report import Comparison
from dovetail.report.run_summary import failure_lines

T = TypeVar("T")
HERE = Path(__file__).parent
JOBS = HERE / "jobs.toml"
STATIC = ("best-device", "cpu-only", "gpu-only")
OPENCL, ARRAYS = "opencl", "numpy"


def second_device() -> tuple[str, str]:
    """What the second device is, and, where it is not OpenCL, why."""
    found = take_inventory(120.0, (OPENCL,))
    if any(device.model == "pocl" and not device.broken for device in found.devices):
        return OPENCL, ""
    why = [device.note for device in found.devices if device.note] + [one.reason for one in found.missing]
    return ARRAYS, "; ".join(why) or "there is no PoCL"


def two_devices(second: str) -> dovetail.Cluster:
    """The cluster file's two devices, on the first two cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("demo: this machine lets us use one core only; the demo needs two")
    text = (HERE / "cluster.toml").read_text()
    text = text.replace("cores = [0]", f"cores = [{cores[0]}]").replace(
        "cores = [1]", f"cores = [{cores[1]}]"
    )
    if second != OPENCL:
        text = text.replace('kind = "opencl", model = "pocl"', f'kind = "{second}"')
    return replace(
        parsed("cluster.toml", text, lambda path: dovetail.Cluster.parse(str(path))), label="two cores"
    )


def jobs_for(second: str) -> dovetail.Workload:
    """The job file's jobs, for this second device."""
    text = JOBS.read_text().replace('on = ["cpu", "opencl"]', f'on = ["cpu", "{second}"]')
    return parsed(JOBS.name, text, dovetail.load_workload)


def parsed(name: str, text: str, read: Callable[[Path], T]) -> T:
    """What a file of this name with this text is read as."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        return read(path)


def main() -> int:
    """Learn, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("dovetail-out/demo"), help="folder of the report")
    parser.add_argument(
        "--full", action="store_true", help="all sizes, three rounds, four policies, two orders"
    )
    parser.add_argument("--rounds", type=int, help="training runs")
    parser.add_argument("--orders", type=int, help="orders in which the policies are compared")
    options = parser.parse_args()
    # The jobs say "python": let that be this one, in which Dovetail's apps are installed.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    rounds = options.rounds or (3 if options.full else 1)
    orders = options.orders or (2 if options.full else 1)
    with tempfile.TemporaryDirectory(prefix="dovetail-demo-") as state:
        os.environ["XDG_STATE_HOME"] = state  # the demo starts from an empty history
        return demo(Path(state) / "history.sqlite", options.out, rounds, orders, full=options.full)


def demo(history: Path, out: Path, rounds: int, orders: int, *, full: bool) -> int:
    """The demo proper."""
    second, why = second_device()
    cluster, jobs = two_devices(second), jobs_for(second)
    static = STATIC if full else STATIC[:1]
    if not full:  # the two smaller sizes of each program
        of_app = {job.app.name: [one for one in jobs.jobs if one.app is job.app] for job in jobs.jobs}
        jobs = replace(jobs, jobs=[one for sizes in of_app.values() for one in sizes[:2]])
    print(f"{len(jobs.jobs)} jobs: six programs, {3 if full else 2} sizes each.")
    if why:
        print(f"OpenCL does not work here: {why}")
        print("Two devices without it: NumPy and SciPy on one core, the array API on another.")
    else:
        print("Two devices: NumPy on one core, OpenCL (PoCL) on another.")
    print("Dovetail knows nothing about them yet.\n")

    failed: list[str] = []

    def run(policy: str, seed: int | None) -> dovetail.Report:
        with LiveProgress() as progress:  # a table while it lasts, or a line for each job
            report = dovetail.run(
                jobs, cluster=cluster, history=history, policy=policy, seed=seed, changed=progress.changed
            )
        failed.extend(
            line if line[0] == " " else f"{policy}: {line}" for line in failure_lines(report.result)
        )
        return report

    print("1. Learning: the queue as it comes" + (", then in other orders" if rounds > 1 else ""), flush=True)
    for turn in range(1, rounds + 1):
        report = run("history", None if turn == 1 else turn)
        error = report.metrics["prediction_error_median"]
        known = "nothing was predicted" if error is None else f"predictions were off by {error:.0%} (median)"
        print(f"   run {turn}: {report.makespan:5.1f} s, {known}", flush=True)
    seeds = range(rounds + 1, rounds + 1 + orders)
    new = "a new order" if orders == 1 else f"{orders} new orders"
    print(f"\n2. The same queue in {new}, really run under {1 + len(static)} policies", flush=True)
    results = []
    for policy in ("history", *static):
        results += [run(policy, seed).result for seed in seeds]
        spans = [result.makespan for result in results[-orders:]]
        print(f"   {policy:12} " + ", ".join(f"{span:5.1f} s" for span in spans), flush=True)
    best = Comparison(results)
    console = tables.make_console()
    print("\n3. What came out in the first of these orders, under history and beside the others\n")
    print(best[0].gantt(width=console.width))
    first = [result for result in results if result.seed == seeds[0]]  # of two orders no interval says much
    print(Comparison(first))
    print("ANL: how much longer a job ran than on the best of its devices, in the mean (Ravi 2012).")
    print("MIT: how long the device that had least to do was idle (Ravi 2012).")
    out.mkdir(parents=True, exist_ok=True)
    best.html(out / "index.html")
    best[0].gantt(out / "history.svg")
    mean = {p: fmean(r.makespan for r in results if r.policy == p) for p in ("history", *static)}
    if failed:
        print("\nSome jobs failed, so that the times above compare nothing:", flush=True)
        print("\n".join(failed), file=sys.stderr)
    else:
        _conclude(mean["history"], min(mean[policy] for policy in static), orders)
    print(f"Report: {out / 'index.html'}\n")
    print("Now your own: write commands into a file, one a line, {device} where a device is named, and")
    print("    dovetail run commands.txt --on cpu,gpu     # 'dovetail devices' says what is here")
    print("    dovetail explain                           # why each went where it did")
    print("    dovetail compare last --policy history,best-device,cpu-only")
    if not full:
        print("More orders and policies, in two and a half minutes: make demo FULL=1")
    return 1 if failed else 0


def _conclude(learned: float, static: float, orders: int) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
