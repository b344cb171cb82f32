"""The single-node policies of Ravi 2012 for real: this machine's two devices, beside static placement.

    python examples/single-node/run.py [--rounds N] [--out FOLDER]

Every program first runs once on each of the two devices, so that all times are known; then the queue really
runs under each policy, in the same shuffled orders.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import dovetail
from dovetail.report.report import Comparison

HERE = Path(__file__).parent
JOBS = HERE / "jobs.toml"
POLICIES = ("rsa", "asjf", "heteroprio", "best-device")


def main() -> int:
    """Learn, run, compare; returns 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each policy")
    parser.add_argument("--out", type=Path, help="folder of the report")
    options = parser.parse_args()
    # The jobs say "python": let that be this one, in which Dovetail's apps are installed.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cluster = dovetail.Cluster.parse(str(HERE / "cluster.toml"))
    with tempfile.TemporaryDirectory(prefix="dovetail-single-node-") as state:
        os.environ["XDG_STATE_HOME"] = state  # start from an empty history
        history = Path(state) / "history.sqlite"
        for policy in ("cpu-only", "gpu-only"):
            report = dovetail.run(JOBS, cluster=cluster, history=history, policy=policy)
            print(f"learning, {policy}: {report.makespan:.1f} s", flush=True)
        results = []
        for seed in range(1, options.rounds + 1):
            for policy in POLICIES:
                report = dovetail.run(JOBS, cluster=cluster, history=history, policy=policy, seed=seed)
                results.append(report.result)
                print(f"round {seed}, {policy}: {report.makespan:.1f} s", flush=True)
    results.sort(key=lambda result: POLICIES.index(result.policy))
    comparison = Comparison(results)
    print(comparison)
    for policy in POLICIES[:-1]:
        found = comparison.paired(policy, "best-device")
        print(f"{policy} takes {1 - (found.ratio or 1):.0%} less than best-device")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        comparison.html(options.out / "index.html")
        comparison[0].gantt(options.out / "rsa.svg")
    failed = any(record.state != "COMPLETED" for result in results for record in result.records)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
