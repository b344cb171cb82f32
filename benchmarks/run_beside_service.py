"""How long a `dovetail run` of one job waits beside a service with a long queue, and what that costs it.

Usage: python benchmarks/run_beside_service.py [--queued 300] [--runs 20]. The service has all cores of this
process, and jobs of 0.3 s that only sleep. Runs come one after the other, a second apart. Throughput is the
service's ended jobs a second: for 20 s alone, then while the runs came.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from services import serving

from dovetail.client.connection import Connection, open_connection

ALONE = 20.0
SOON = 5.0
"""Seconds within which a run is to start."""


def top_up(client: Connection, queued: int) -> None:
    """Have about so many jobs wait."""
    missing = queued - client.get("/api/v1/info")["jobs"]["waiting"]
    if missing > queued // 10:
        client.post("/api/v1/jobs", {"jobs": [{"command": ["sleep", "0.3"], "array": f"1-{missing}"}]})


def throughput(client: Connection, during: Callable[[], None]) -> float:
    """Jobs that end in a second while something goes on."""
    before, began = ended(client), time.monotonic()
    during()
    return (ended(client) - before) / (time.monotonic() - began)


def ended(client: Connection) -> int:
    return int(sum(client.get("/api/v1/info")["ended"].values()))


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=300)
    parser.add_argument("--runs", type=int, default=20)
    asked = parser.parse_args()
    waits: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cores = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        (root / "here.toml").write_text(f'[[node]]\nname = "here"\ncores = [{cores}]\n')
        (root / "started.sh").write_text("date +%s.%N > started\n")
        with (
            serving(
                root, "--cluster", str(root / "here.toml"), DOVETAIL_CLAIMS=str(root / "claims")
            ) as service,
            open_connection(service.folder.path) as client,
        ):

            def alone() -> None:
                until = time.monotonic() + ALONE
                while time.monotonic() < until:
                    top_up(client, asked.queued)
                    time.sleep(0.5)

            def beside() -> None:
                for _ in range(asked.runs):
                    top_up(client, asked.queued)
                    began = time.time()
                    words = ("run", "--cluster", "here.toml", "-q", "--", "sh", "started.sh")
                    done = service.dovetail(*words, timeout=120)
                    assert done.returncode == 0, done.stderr
                    waits.append(float((root / "started").read_text()) - began)
                    time.sleep(1.0)

            top_up(client, asked.queued)
            before = throughput(client, alone)
            while_runs = throughput(client, beside)
    waits.sort()
    soon = sum(one < SOON for one in waits)
    print(
        f"{asked.queued} queued: {soon} of {len(waits)} runs start within {SOON:g} s "
        f"(median {statistics.median(waits):.2f} s, most {waits[-1]:.2f} s); the service ends "
        f"{before:.2f} jobs/s alone, {while_runs:.2f} beside them ({while_runs / before:.0%})"
    )


if __name__ == "__main__":
    main()
