"""How long each verb takes beside 20 pollers and 5 submitters, with a long queue on a drained node.

Usage: python benchmarks/busy_clients.py [--queued 100000] [--seconds 60]. Each client is a process: pollers
ask in turn for pages, counts and jobs, four times a second; submitters submit, hold, release and cancel.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing as mp
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from services import Serving, submit

from dovetail.client.connection import open_connection

POLLERS, SUBMITTERS = 20, 5
Timed = list[tuple[str, float]]


def poll(folder: Path, seconds: float, seed: int, queued: int) -> Timed:
    """What somebody who looks asks for."""
    drawn, found = random.Random(seed), Timed()
    with open_connection(folder) as client:
        asked = (
            ("page", lambda: client.get("/api/v1/jobs", offset=drawn.randrange(queued))),
            ("page by name", lambda: client.get("/api/v1/jobs", name="nap", offset=drawn.randrange(queued))),
            ("info", lambda: client.get("/api/v1/info")),
            ("job", lambda: client.get(f"/api/v1/jobs/1_{drawn.randrange(1, queued // 10)}")),
            ("ended", lambda: client.get("/api/v1/ended")),
        )
        until = time.monotonic() + seconds
        for verb, call in itertools.cycle(asked):
            if time.monotonic() > until:
                return found
            began = time.monotonic()
            call()
            found.append((verb, time.monotonic() - began))
            time.sleep(drawn.uniform(0.0, 0.5))
    raise AssertionError


def change(folder: Path, seconds: float, seed: int, queued: int) -> Timed:
    """What somebody who works asks for."""
    drawn, found = random.Random(seed), Timed()
    until = time.monotonic() + seconds
    with open_connection(folder) as client:
        while time.monotonic() < until:
            job = ""
            for verb in ("submit", "hold", "release", "cancel"):
                began = time.monotonic()
                if verb == "submit":
                    (job,) = submit(client, {"command": ["true"], "name": "one"})
                else:
                    client.post(f"/api/v1/{verb}", {"jobs": job})
                found.append((verb, time.monotonic() - began))
                time.sleep(drawn.uniform(0.0, 0.5))
    return found


def main() -> None:
    """Measure, and print a line for each verb."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        service = Serving(Path(name), "--cluster", "1x2cpu", DOVETAIL_CLAIMS=f"{name}/claims")
        with service.start() as client:
            client.post("/api/v1/nodes/n0/drain")
            for _ in range(10):
                submit(client, {"command": ["true"], "name": "nap", "array": f"1-{asked.queued // 10}"})
            while client.get("/api/v1/jobs", limit=1)["total"] < asked.queued:
                time.sleep(0.1)
        kinds = [poll] * POLLERS + [change] * SUBMITTERS
        with mp.get_context("spawn").Pool(len(kinds)) as pool:
            given = [
                pool.apply_async(kind, (service.folder.path, asked.seconds, n, asked.queued))
                for n, kind in enumerate(kinds)
            ]
            times: dict[str, list[float]] = defaultdict(list)
            for one in given:
                for verb, took in one.get(asked.seconds + 120):
                    times[verb].append(took)
        service.kill()
    print(f"load {os.getloadavg()[0]:.1f}")
    for verb, each in sorted(times.items()):
        each.sort()
        middle, late = each[len(each) // 2], each[int(len(each) * 0.99)]
        print(f"{verb:13} {len(each):5} calls  median {middle * 1e3:6.1f} ms  p99 {late * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
