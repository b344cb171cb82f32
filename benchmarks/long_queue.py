"""What a service's requests cost in CPU time beside a long queue; its restart; its memory.

Usage: python benchmarks/long_queue.py [--queued 100000] [--calls 20] [--drained] [--different].
Milliseconds of CPU of the service's process for each call, one after the other; seconds for a start after
kill -9, and until it answers. What waits are ten arrays, or as many commands of which no two are the same.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from services import Serving, cpu_seconds, submit

from dovetail.client.connection import Connection

PIECE = 20_000


def spent(service: Serving) -> float:
    """CPU seconds of the service's process so far."""
    assert service.process is not None
    return cpu_seconds(service.process.pid)


def megabytes(service: Serving) -> int:
    """Memory of the service's process."""
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1000


def quiet(service: Serving) -> None:
    """Wait until the service has nothing to do."""
    before = -1.0
    while spent(service) > before + 0.02:
        before = spent(service)
        time.sleep(1.0)


def fill(client: Connection, queued: int, different: bool) -> None:
    """Submit what waits, as jobs 2 and up."""
    if different:
        for first in range(0, queued, PIECE):
            numbers = range(first, min(first + PIECE, queued))
            submit(
                client, *({"command": ["true", str(n), "--seed", str(n * 7)], "name": "nap"} for n in numbers)
            )
    else:
        for _ in range(10):
            submit(client, {"command": ["true"], "name": "nap", "array": f"1-{queued // 10}"})
    while client.get("/api/v1/jobs", limit=1)["total"] <= queued // 10 * 10:
        time.sleep(0.05)


def calls(client: Connection, queued: int, different: bool) -> dict[str, Callable[[], object]]:
    """What is asked, by its name."""
    elements = itertools.count(1)
    far = queued - 200
    of = "" if different else "2_"

    def page(**query: object) -> Callable[[], object]:
        return lambda: client.get("/api/v1/jobs", **query)

    user = client.get("/api/v1/jobs", limit=1)["jobs"][0]["user"]
    return {
        "submit": lambda: submit(client, {"command": ["true"], "name": "one"}),
        "cancel": lambda: client.post("/api/v1/cancel", {"jobs": f"{of}{queued // 10 - next(elements)}"}),
        "hold": lambda: client.post("/api/v1/hold", {"jobs": f"{of}{queued // 10 - 100 - next(elements)}"}),
        "page": page(),
        "page offset": page(offset=far),
        "page user": page(user=user),
        "page user offset": page(user=user, offset=far),
        "page name": page(name="nap"),
        "page name offset": page(name="nap", offset=far),
        "page user name": page(user=user, name="nap", offset=far),
        "page state": page(state="PENDING", offset=far),
        "page running": page(state="RUNNING"),
        "page nobody": page(user="nobody"),
        "page of jobs": page(jobs="2", limit=100),
        "job": lambda: client.get(f"/api/v1/jobs/{of}5"),
        "info": lambda: client.get("/api/v1/info"),
    }


def main() -> None:
    """Measure, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=100_000)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--drained", action="store_true")
    parser.add_argument("--different", action="store_true")
    asked = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        service = Serving(Path(name), "--cluster", "1x2cpu", "--grace", "0", DOVETAIL_CLAIMS=f"{name}/claims")
        try:
            with service.start() as client:
                submit(client, {"command": ["sleep", "3600"], "name": "nap", "cpus": "all"})
                if asked.drained:
                    client.post("/api/v1/nodes/n0/drain")
                before = spent(service)
                fill(client, asked.queued, asked.different)
                quiet(service)
                found["CPU s to take in"] = round(spent(service) - before, 2)
                for what, call in calls(client, asked.queued, asked.different).items():
                    call()
                    before = spent(service)
                    for _ in range(asked.calls):
                        call()
                    found[what] = round((spent(service) - before) / asked.calls * 1e3, 2)
            found["megabytes"] = megabytes(service)
            service.kill()
            began = time.monotonic()
            with service.start() as client:
                found["answers after s"] = round(time.monotonic() - began, 2)
                found["CPU s to the answer"] = round(spent(service), 2)
                while client.get("/api/v1/jobs", limit=1)["total"] < asked.queued:
                    time.sleep(0.1)
                quiet(service)
                found["CPU s to restart"] = round(spent(service), 2)
                client.post("/api/v1/cancel", {"jobs": "1"})  # it sleeps, and its supervisor with it
            found["megabytes after"] = megabytes(service)
        finally:
            service.kill()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
