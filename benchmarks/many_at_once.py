"""How long a service answers nothing when many jobs change at once: a long cancel, an end on which many wait.

Usage: python benchmarks/many_at_once.py [--jobs 100000]. Of each: CPU seconds of the service's process, its
longest instant, and how long `queue` waited for an answer meanwhile (median, longest), all in seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from long_queue import quiet, spent
from services import Serving, submit

from dovetail.client.connection import Connection, open_connection


def measured(service: Serving, act: Callable[[Connection], None]) -> dict[str, float]:
    """What ``act`` costs, and what `queue` waits meanwhile."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with open_connection(service.folder.path) as client:
            while not over.is_set():
                began = time.monotonic()
                client.get("/api/v1/jobs", limit=20)
                waits.append(time.monotonic() - began)
                time.sleep(0.02)

    quiet(service)
    before = spent(service)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with open_connection(service.folder.path) as client:
            act(client)
    finally:
        over.set()
        asking.join()
    with open_connection(service.folder.path) as client:
        longest = client.get("/api/v1/info").get("longest_instant", float("nan"))
    return {
        "cpu": spent(service) - before,
        "longest instant": longest,
        "queue, median": statistics.median(waits),
        "queue, longest": max(waits),
    }


def shown(what: str, found: dict[str, float]) -> None:
    """One line."""
    print(f"{what:<28}" + ", ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)


def main() -> None:
    """Both, each on a service of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    count = parser.parse_args().jobs

    def cancel(client: Connection) -> None:
        client.post("/api/v1/cancel", {"jobs": "2"})

    def release(client: Connection) -> None:
        client.post("/api/v1/cancel", {"jobs": "1"})
        while client.get("/api/v1/info")["jobs"]["held"]:
            time.sleep(0.1)

    for what, depends, act in (("a cancel", [], cancel), ("an end that many wait for", ["any:1"], release)):
        with tempfile.TemporaryDirectory() as root:
            service = Serving(Path(root), "--cluster", "1x1cpu")
            try:
                with service.start() as client:
                    submit(client, {"command": ["sleep", "100000"]})
                    depends = [f"after{one}" for one in depends]
                    submit(client, {"command": ["true"], "array": f"1-{count}", "depends": depends})
                    while client.get("/api/v1/jobs", limit=1)["total"] <= count:
                        time.sleep(0.2)
                shown(f"{what}, {count:,} jobs", measured(service, act))
            finally:
                service.stop()


if __name__ == "__main__":
    main()
