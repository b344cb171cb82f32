"""What a service answers in with 100,000 jobs queued, how fast an array comes in, and what idling costs.

Each call goes over HTTP on the service's socket, as clients make it. A machine that others use too says
little in seconds, so that what is asserted is generous, and the CPU time of the service's process stands
beside. The figures are printed as JSON (``-s``) and are in the benchmark's ``extra_info``.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from services import Serving, cpu_seconds, serving, submit, wait

from dovetail.client.connection import Connection, open_connection

QUEUED = 100_000
PIECE = 20_000
CALLS = 100
KNOWN = 3
"""Jobs that run first, so that the forecast has all of the queue to simulate that it ever does."""
FIRST = KNOWN + 2
"""Number of the first array."""
MOST_MS = 100.0
"""The aim is 20; what more there is, is for machines that others use too."""
MOST_SECONDS = 5.0
"""For 10,000 jobs as one array, of which the aim is 1."""

Figures = dict[str, dict[str, float]]


def spent(service: Serving) -> float:
    """CPU seconds of the service's process so far."""
    assert service.process is not None
    return cpu_seconds(service.process.pid)


def fill(client: Connection) -> None:
    """A job that holds both cores, and so many behind it, of an app that is known."""
    nap = {"command": ["sleep", "0.1"], "app": "nap"}
    wait(client, submit(client, *[nap] * KNOWN))
    submit(client, {"command": ["sleep", "3600"], "app": "nap", "cpus": "all"})
    for _ in range(QUEUED // PIECE):
        submit(client, {**nap, "array": f"0-{PIECE - 1}"})
    while client.get("/api/v1/info")["jobs"]["waiting"] < QUEUED:
        time.sleep(0.2)
    while client.get("/api/v1/jobs", limit=1)["forecast_age"] is None:
        time.sleep(0.2)


def timed(service: Serving, call: Callable[[], object]) -> dict[str, float]:
    """Milliseconds that so many calls took, one after the other; ``cpu`` is the service's for one."""
    times = []
    before = spent(service)
    for _ in range(CALLS):
        began = time.monotonic()
        call()
        times.append((time.monotonic() - began) * 1e3)
    times.sort()
    return {
        "median": round(statistics.median(times), 2),
        "p99": round(times[round(0.99 * (CALLS - 1))], 2),
        "cpu": round((spent(service) - before) * 1e3 / CALLS, 2),
    }


def answers(service: Serving, client: Connection) -> Figures:
    """What each call takes."""
    elements = itertools.count()
    calls: dict[str, Callable[[], object]] = {
        "submit": lambda: submit(client, {"command": ["/bin/true"]}),
        "cancel one element": lambda: client.post("/api/v1/cancel", {"jobs": f"{FIRST}_{next(elements)}"}),
        "info": lambda: client.get("/api/v1/info"),
        "page of 100": lambda: client.get("/api/v1/jobs", limit=100),
        "last page of 100": lambda: client.get("/api/v1/jobs", limit=100, offset=QUEUED - 200),
        "one job": lambda: client.get(f"/api/v1/jobs/{FIRST + 1}_{next(elements)}"),
    }
    return {name: timed(service, call) for name, call in calls.items()}


def told(benchmark: Any, figures: dict[str, Any]) -> None:
    """Keep and print figures."""
    figures["load"] = round(os.getloadavg()[0], 1)
    benchmark.extra_info.update(figures)
    print(json.dumps(figures))


@pytest.mark.parametrize("policy", ["history", "fcfs"])
def test_answers_while_100_000_jobs_wait(benchmark: Any, tmp_path: Path, policy: str) -> None:
    with (
        serving(tmp_path, "--cluster", "1x2cpu", "--policy", policy) as service,
        open_connection(service.folder.path) as client,
    ):
        fill(client)
        found: Figures = benchmark.pedantic(answers, (service, client), rounds=1)
        page = client.get("/api/v1/jobs", limit=100)
        told(benchmark, {"policy": policy, "ms": found, "forecast_age": page["forecast_age"]})
        assert len(page["jobs"]) == 100
        assert page["total"] == QUEUED + 1
        assert page["forecast_age"] is not None
        assert all(row["predicted_start"] is not None for row in page["jobs"][1:])
        for name, figures in found.items():
            assert figures["median"] < MOST_MS, name


def test_an_array_of_10_000_comes_in(benchmark: Any, tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--cluster", "1x2cpu") as service,
        open_connection(service.folder.path) as client,
    ):
        submit(client, {"command": ["sleep", "3600"], "cpus": "all"})
        times: list[float] = []

        def arrays() -> None:
            for _ in range(5):
                began = time.monotonic()
                ids = submit(client, {"command": ["/bin/true"], "array": "0-9999"})
                times.append(time.monotonic() - began)
                assert len(ids) == 10_000

        before = spent(service)
        benchmark.pedantic(arrays, rounds=1)
        while client.get("/api/v1/info")["jobs"]["waiting"] < 5 * 10_000:
            time.sleep(0.05)
        cpu = (spent(service) - before) / 5
        told(
            benchmark,
            {"seconds": [round(one, 3) for one in times], "cpu seconds until queued": round(cpu, 3)},
        )
        assert statistics.median(times) < MOST_SECONDS


def test_a_service_whose_jobs_wait_uses_no_cpu(benchmark: Any, tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--cluster", "1x2cpu") as service,
        open_connection(service.folder.path) as client,
    ):
        fill(client)
        time.sleep(2.0)
        before = spent(service)
        benchmark.pedantic(time.sleep, (10.0,), rounds=1)
        cpu = spent(service) - before
        told(benchmark, {"cpu seconds in 10": round(cpu, 4)})
        assert cpu < 0.05
