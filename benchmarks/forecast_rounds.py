"""What a forecast of a long queue costs: ``forecast_rounds.py [JOBS] [ROUNDS] [--profile]``; prints JSON.

``JOBS`` waiting jobs of 20 apps, no two commands alike, behind one that runs, under EASY. CPU seconds of the
first round and of later ones, before each of which a job was submitted; memory; and how long a look at the
queue takes (the service answers from the last round), in milliseconds of wall time.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from services import serving, submit, wait

from dovetail.client.connection import open_connection
from dovetail.forecasts.intervals import StartIntervals
from dovetail.forecasts.queue import QueueMemory, answer_question

NUMBERS = [int(word) for word in sys.argv[1:] if word.isdecimal()]
JOBS = NUMBERS[0] if NUMBERS else 10_000
ROUNDS = NUMBERS[1] if len(NUMBERS) > 1 else 7
APPS, PIECE = 20, 2_500


def nap(number: int) -> dict[str, object]:
    """A job of one of the apps."""
    return {
        "command": ["sleep", "0.01"],
        "app": f"nap-{number % APPS}",
        "name": f"n{number}",
        "walltime": 600,
        "cpus": 1,
    }


def waiting(number: int) -> dict[str, object]:
    """One whose command no other has."""
    return {**nap(number), "command": ["true", str(number), "--seed", str(number * 7)]}


def memory_in_megabytes() -> int:
    """Of this process, which is the one beside the service."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) // 1000


def main() -> None:
    """Fill a service, forecast its queue here, print."""
    found: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory() as root,
        serving(
            Path(root), "--cluster", "1x2cpu", "--policy", "easy", DOVETAIL_CLAIMS=f"{root}/claims"
        ) as here,
        open_connection(here.folder.path) as service,
    ):
        wait(service, submit(service, *[nap(number) for number in range(2 * APPS)]))
        submit(service, {"command": ["sleep", "3600"], "app": "long", "cpus": "all", "walltime": 7200})
        for first in range(0, JOBS, PIECE):
            submit(service, *[waiting(number) for number in range(first, min(first + PIECE, JOBS))])
        looks = []
        for _ in range(15):
            began = time.perf_counter()
            service.get("/api/v1/jobs", limit=100)
            looks.append(1e3 * (time.perf_counter() - began))
        intervals, memory = StartIntervals(here.folder.path), QueueMemory()
        profile = cProfile.Profile()
        rounds = []
        for number in range(ROUNDS + 1):
            if "--profile" in sys.argv and number == 1:
                profile.enable()
            began = time.process_time()
            answer = answer_question(here.folder.path, {}, intervals, memory)
            json.dumps(answer)
            rounds.append(round(time.process_time() - began, 3))
            if "--profile" in sys.argv and number == ROUNDS:
                profile.disable()
            submit(service, waiting(JOBS + number))
        found = {
            "jobs": JOBS,
            "with intervals": len(answer["spans"]),
            "CPU s of the first round": rounds[0],
            "CPU s of later rounds": rounds[1:],
            "median": statistics.median(rounds[1:]),
            "megabytes": memory_in_megabytes(),
            "look, ms, median": round(statistics.median(looks), 1),
            "load": round(os.getloadavg()[0], 1),
        }
        service.post("/api/v1/cancel", {"jobs": "all"})
    print(json.dumps(found, indent=1))
    if "--profile" in sys.argv:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
