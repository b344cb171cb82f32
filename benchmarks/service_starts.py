"""How many intervals of a live service hold: ``service_starts.py [JOBS [SCALE]]``; prints JSON.

A day in minutes: jobs of two users and three habits come at random to two slots, busier in the middle; a look
each second. Of each job that waits the first forecast counts, as ``dovetail model starts`` has it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from services import serving, submit, wait

from dovetail.client.connection import open_connection

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 150
SCALE = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
HABITS = {"prepare": 0.6 * SCALE, "train": 4.0 * SCALE, "score": 1.5 * SCALE}
"""Jobs by app: median seconds."""
SPREAD, LOAD, LOOK = 0.5, 0.95, 1.0


def main() -> None:
    """Submit, look, wait; what the service has measured of itself."""
    chance = random.Random(3)
    mean = sum(HABITS.values()) / len(HABITS) * 1.13
    with (
        tempfile.TemporaryDirectory() as root,
        serving(Path(root), "--cluster", "1x2cpu", "--policy", "easy") as here,
        open_connection(here.folder.path) as service,
    ):
        first = [job(name, 0.3) for name in HABITS]
        wait(service, submit(service, *first, *first))
        ids: list[str] = []
        looked, due = 0.0, time.monotonic()
        while len(ids) < JOBS:
            if time.monotonic() >= due:
                name = chance.choice(list(HABITS))
                ids += submit(service, job(name, HABITS[name] * chance.lognormvariate(0.0, SPREAD)))
                busy = 1.3 if JOBS // 3 < len(ids) < 2 * JOBS // 3 else 0.85
                due += chance.expovariate(2 * LOAD * busy / mean)
            if time.monotonic() >= looked + LOOK:
                service.get("/api/v1/jobs", limit=1000, patience=5)
                looked = time.monotonic()
            time.sleep(0.05)
        while service.get("/api/v1/jobs", limit=1, patience=5)["total"]:
            time.sleep(LOOK)
        service.get("/api/v1/jobs", limit=1, patience=5)
        print(
            json.dumps(
                {
                    "jobs": JOBS,
                    "weeks": json.loads(
                        here.dovetail("model", "starts", "--service", str(here.folder.path), "--json").stdout
                    ),
                }
            )
        )


def job(name: str, seconds: float) -> dict[str, object]:
    """One that sleeps so long, for at most a minute times the scale."""
    return {"command": ["sleep", f"{seconds:.2f}"], "app": name, "cpus": 1, "walltime": 60 * SCALE}


if __name__ == "__main__":
    main()
