"""An operator reads a night's log: what became of each job must be in it, over retries and restarts."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from services import serving, submit, wait

from dovetail.client.connection import Connection, open_connection
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

JOBS = full(600, 32)
LINE = re.compile(r"^\S+ (DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+: (.*)$")
JOB = r"job (\d+(?:_\d+)?)"


@dataclass
class Life:
    """What the lines of a log give away of one job."""

    submitted: bool = False
    starts: list[tuple[int, str, str]] = field(default_factory=list)
    """Attempt, implementation, nodes."""
    repeated: list[tuple[int, str]] = field(default_factory=list)
    """Attempt, and the state in which it ended."""
    ended: list[str] = field(default_factory=list)


def _lives_of(log: str) -> dict[str, Life]:
    """Each job's life, from the sentences at INFO alone."""
    lives: dict[str, Life] = defaultdict(Life)
    earlier: set[str] = set()
    """Jobs with a start in the time of a service before this one."""
    for line in log.splitlines():
        found = LINE.match(line)
        if found is None or found[1] != "INFO":
            continue
        text = found[2]
        if one := re.match(JOB + " submitted by", text):
            lives[one[1]].submitted = True
        elif one := re.match(r"(\d+) jobs, (\d+)_(\d+) to \2_(\d+), submitted by", text):
            tasks = range(int(one[3]), int(one[4]) + 1)
            assert len(tasks) == int(one[1])
            for task in tasks:
                lives[f"{one[2]}_{task}"].submitted = True
        elif one := re.match(r"(\d+) jobs, (\d+) to (\d+), submitted by", text):
            jobs = range(int(one[2]), int(one[3]) + 1)
            assert len(jobs) == int(one[1])
            for job in jobs:
                lives[str(job)].submitted = True
        elif one := re.match(JOB + r" starts as (\S+) on (.+) \(attempt (\d+)\)", text):
            starts = lives[one[1]].starts
            # What was to start as another job ends has not begun when its service ends before that.
            if one[1] in earlier and starts[-1][0] == int(one[4]):
                starts.pop()
            earlier.discard(one[1])
            starts.append((int(one[4]), one[2], one[3]))
        elif one := re.match(JOB + r" waits again: its start is taken back", text):
            lives[one[1]].starts.pop()
            earlier.discard(one[1])
        elif text.startswith("service started"):
            earlier = {job for job, life in lives.items() if life.starts}
        elif one := re.match(JOB + r" waits again(?: with more memory)?: attempt (\d+) ended as (\w+)", text):
            lives[one[1]].repeated.append((int(one[2]), one[3]))
        elif one := re.match(JOB + r" ended: (\w+)", text):
            lives[one[1]].ended.append(one[2])
    return lives


def _keep_busy(service: Connection, draw: random.Random, jobs: list[str]) -> None:
    """Submit one of the things that people submit, or do one of the things that they do to jobs."""
    commands: list[dict[str, Any]] = [
        {"command": ["true"], "cpus": 1},
        {"command": ["sleep", "0.1"], "cpus": 2},
        {"command": ["false"], "cpus": 1, "retries": 2},
        {"command": ["sh", "-c", "exit 3"], "cpus": 1},
        {"command": ["sleep", "60"], "cpus": 1, "walltime": 0.3},
        {"command": ["true"], "cpus": 1, "array": "0-3"},
        {"command": ["/no/such/program"], "cpus": 1},
        {"command": ["sleep", "0.02"], "cpus": 1, "nice": 3},
    ]
    deed = draw.random()
    if deed < 0.8 or not jobs:
        jobs += submit(service, draw.choice(commands))
    elif deed < 0.85:
        jobs += submit(service, {"command": ["true"], "cpus": 1, "depends": [f"afterok:{draw.choice(jobs)}"]})
    else:
        verb = draw.choice(["cancel", "requeue", "hold", "release"])
        service.post(f"/api/v1/{verb}", {"jobs": draw.choice(jobs)})


def test_the_log_of_a_busy_service_holds_the_life_of_each_job(tmp_path: Path) -> None:
    """With restarts in the middle; then the lives are compared with what the service has on record."""
    draw = random.Random(20)
    jobs: list[str] = []
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        for part in range(4):
            with open_connection(here.folder.path) as service:
                while len(jobs) < JOBS * (part + 1) // 4:
                    _keep_busy(service, draw, jobs)
            if part < 3:
                here.end()  # what runs goes on
                here.start().close()
        with open_connection(here.folder.path) as service:
            jobs += (unwanted := submit(service, {"command": ["sleep", "60"], "cpus": 1}))
            service.post("/api/v1/cancel", {"jobs": unwanted[0]})
            service.post("/api/v1/release", {"jobs": ",".join(jobs)})
            states = wait(service, jobs)
            shown = {job: service.get(f"/api/v1/jobs/{job}") for job in jobs}
        log = here.folder.log.read_text()
    lives = _lives_of(log)
    assert set(lives) >= set(jobs)
    for job in jobs:
        life, record = lives[job], shown[job]
        assert life.submitted, job
        assert life.ended[-1:] == [states[job]], (job, life)
        if record["start"] is not None:
            assert life.starts, job
            attempt, implementation, nodes = life.starts[-1]
            assert (attempt, implementation) == (record["attempts"], record["implementation"]), job
            assert nodes == record["nodes"], job
        numbers = [attempt for attempt, _, _ in life.starts]
        assert numbers == sorted(set(numbers)), (job, life)
    assert {state for life in lives.values() for _, state in life.repeated} >= {"FAILED"}
    assert {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"} <= set(states.values())
