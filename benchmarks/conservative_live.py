"""What an event costs beside a long queue under `conservative`, where every waiting job holds a promise.

Usage: python benchmarks/conservative_live.py [--queued 1000,4000,20000] [--events 5] [--nodes 10000].
Walltimes are 60 to 1,060 s. Without `--nodes` a service of this machine with two CPUs, jobs of one or two:
milliseconds of CPU of its process for each cancellation and submission. With it a driver and its journal, no
executor, on so many nodes of one CPU, jobs of 1 to 4,096 nodes: also for each early end.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from services import Serving, cpu_seconds, submit

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.journal.journal import JournalWriter
from dovetail.engine.state.core import no_bound
from dovetail.model import App, Choice, Cluster, Ended, Implementation, Job, Request, State, TableTruth
from dovetail.policies.conservative import Conservative
from dovetail.testing.builders import TrueTimesModel

PIECE = 1_000


def measure_service(queued: int, events: int) -> dict[str, object]:
    """Milliseconds of the service's CPU time for each call."""
    chance = random.Random(1)

    def job() -> dict[str, object]:
        cpus = chance.choice([1, 1, 2])
        return {"command": ["true"], "name": "nap", "cpus": cpus, "walltime": chance.randint(60, 1060)}

    with tempfile.TemporaryDirectory() as name:
        options = ("--cluster", "1x2cpu", "--grace", "0", "--policy", "conservative")
        service = Serving(Path(name), *options, DOVETAIL_CLAIMS=f"{name}/claims")
        try:
            with service.start() as client:
                assert service.process is not None
                pid = service.process.pid

                def spend(call: Callable[[], object]) -> float:
                    before = cpu_seconds(pid)
                    call()
                    quiet = -1.0
                    while cpu_seconds(pid) > quiet + 0.005:  # what the answer does not wait for counts too
                        quiet = cpu_seconds(pid)
                        time.sleep(0.25)
                    return round((cpu_seconds(pid) - before) * 1e3, 1)

                submit(client, {"command": ["sleep", "3600"], "name": "nap", "cpus": 2, "walltime": 3600})
                found: dict[str, object] = {"waiting": queued}

                def fill() -> None:
                    for first in range(0, queued, PIECE):
                        submit(client, *(job() for _ in range(min(PIECE, queued - first))))

                found["CPU s to take in"] = round(spend(fill) / 1e3, 2)
                found["idle ms"] = spend(lambda: None)
                found["submit ms"] = [spend(lambda: submit(client, job())) for _ in range(events)]
                found["cancel ms"] = [
                    spend(lambda id=str(n): client.post("/api/v1/cancel", {"jobs": id}))  # type: ignore[misc]
                    for n in (queued * (e + 1) // (events + 1) for e in range(events))
                ]
                client.post("/api/v1/cancel", {"jobs": "1"})  # it sleeps, and its supervisor with it
                return found
        finally:
            service.kill()


def make_jobs(chance: random.Random) -> Iterator[Job]:
    """Jobs of 1 to 4,096 nodes, as many of each power of two."""
    apps: dict[int, tuple[App, tuple[Choice, ...]]] = {}
    n = 0
    while True:
        nodes = int(2 ** chance.uniform(0, 12))
        if nodes not in apps:
            request = Request(nodes, 1)
            way = Implementation("cpu", "cpu", request)
            apps[nodes] = App(f"of {nodes}", (way,)), (Choice(way, request),)
        app, choices = apps[nodes]
        yield Job(str(n), app, choices, n, nodes=nodes, walltime=float(chance.randint(60, 1060)))
        n += 1


def measure_driver(nodes: int, queued: int, events: int) -> dict[str, object]:
    """Milliseconds of CPU time for each event."""
    jobs, cluster = make_jobs(random.Random(1)), Cluster.uniform(nodes, 1)
    with tempfile.TemporaryDirectory() as name:
        driver = Driver(
            cluster,
            Conservative(),
            TrueTimesModel(TableTruth({})),
            bound=no_bound,
            journal=JournalWriter(Path(name) / "journal", cluster, policy="conservative"),
            options=DriverOptions(survives=True, keep_considered=True),
        )
        now = 0.0

        def instant() -> float:
            nonlocal now
            now += 1.0
            before = time.process_time()
            driver.process_instant(now)
            driver.write_last_instant()
            return round((time.process_time() - before) * 1e3, 1)

        filled = 0.0
        while len(driver.engine.queue) < queued:
            for _ in range(queued - len(driver.engine.queue)):
                driver.submit(next(jobs))
            filled = instant()
        waiting = [job.id for job in driver.engine.queue]
        found: dict[str, list[float]] = {"submit ms": [], "cancel ms": [], "early end ms": []}
        for event in range(events):
            driver.submit(next(jobs))
            found["submit ms"].append(instant())
            driver.cancel(waiting[len(waiting) * (event + 1) // (events + 1)])
            found["cancel ms"].append(instant())
            driver.queue_events(Ended(next(iter(driver.engine.running)), State.COMPLETED))
            found["early end ms"].append(instant())
        return {"waiting": queued, "nodes": nodes, "last fill ms": filled, **found}


def main() -> None:
    """Measure, and print a JSON object for each length of the queue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", default="1000,4000,20000")
    parser.add_argument("--events", type=int, default=5)
    parser.add_argument("--nodes", type=int)
    chosen = parser.parse_args()
    for queued in map(int, chosen.queued.split(",")):
        if chosen.nodes is None:
            found = measure_service(queued, chosen.events)
        else:
            found = measure_driver(chosen.nodes, queued, chosen.events)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
