"""Many short jobs through a queue, in one run: ``service_peers.py [JOBS]``; prints JSON.

``JOBS`` times ``/bin/true`` on two slots: a posix_spawn loop (the limit), ``xargs -P2``, HyperQueue (where
its package is there), ``dovetail run``, and the service (one array; history, ledger and journal on). Peers
take turns, so that a busy machine is busy for all; figures are medians of jobs a second, with the CPU
milliseconds of a job in the service's process and in its supervisor, and the load. What the service's answers
take is in ``test_service.py``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from services import cpu_seconds, serving, submit

from dovetail.client.connection import open_connection

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
ROUNDS = 3
TRUE = "/bin/true"


def spawn_loop(folder: Path) -> float:
    """Two children at a time, nothing else."""
    began = time.monotonic()
    left, running = JOBS, 0
    while left or running:
        while left and running < 2:
            os.posix_spawn(TRUE, [TRUE], {})
            left, running = left - 1, running + 1
        os.wait()
        running -= 1
    return time.monotonic() - began


def xargs(folder: Path) -> float:
    """GNU xargs, two at a time."""
    items = "\n".join(map(str, range(JOBS)))
    began = time.monotonic()
    subprocess.run(["xargs", "-P2", "-n1", TRUE], input=items, text=True, check=True)
    return time.monotonic() - began


def dovetail_run(folder: Path) -> float:
    """A list of commands, start to end."""
    (folder / "commands.txt").write_text(f"{TRUE}\n" * JOBS)
    words = [sys.executable, "-m", "dovetail", "run", "commands.txt", "-q", "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    began = time.monotonic()
    subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def service(folder: Path) -> float:
    """One array, from its submission to its end."""
    with serving(folder, "--cluster", "1x2cpu") as found, open_connection(found.folder.path) as client:
        client.post("/api/v1/wait", {"jobs": submit(client, {"command": [TRUE]})[0], "timeout": 60})
        assert found.process is not None
        processes = {"service": found.process.pid, "supervisor": supervisor_of(found.process.pid)}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        began = time.monotonic()
        client.post("/api/v1/jobs", {"jobs": [{"command": [TRUE], "array": f"0-{JOBS - 1}"}]})
        SUBMITTED.append(time.monotonic() - began)
        while client.post("/api/v1/wait", {"jobs": "2", "timeout": 60})["left"]:
            pass
        took = time.monotonic() - began
        for name, pid in processes.items():
            CPU.setdefault(name, []).append((cpu_seconds(pid) - before[name]) * 1e3 / JOBS)
        return took


def supervisor_of(service: int) -> int:
    """The child that starts the jobs."""
    children = Path(f"/proc/{service}/task/{service}/children").read_text().split()
    return next(int(pid) for pid in children if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes())


def hyperqueue(folder: Path) -> float:
    """Its server and one worker of two CPUs, up before the clock starts; one job with so many tasks."""
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster(str(folder / "hq"), WorkerConfig(cores=2)) as cluster:
        client = cluster.client()
        time.sleep(2.0)
        job = Job(default_workdir=folder)  # where it puts two files for each task
        for _ in range(JOBS):
            job.program([TRUE])
        began = time.monotonic()
        client.wait_for_jobs([client.submit(job)], raise_on_error=True)
        return time.monotonic() - began


SUBMITTED: list[float] = []
CPU: dict[str, list[float]] = {}


def rate_of(peer: Callable[[Path], float]) -> float:
    """Jobs a second, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DOVETAIL_CLAIMS"] = f"{folder}/claims"
        return JOBS / peer(Path(folder))


def main() -> None:
    """Measure and print."""
    peers = {"xargs": xargs, "dovetail run": dovetail_run, "service": service}
    if find_spec("hyperqueue") is not None:
        peers["HyperQueue"] = hyperqueue
    rates: dict[str, list[float]] = {name: [] for name in ("posix_spawn loop", *peers)}
    ratios: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        before = rate_of(spawn_loop)
        rates["posix_spawn loop"].append(before)
        for name, peer in peers.items():
            rate, after = rate_of(peer), rate_of(spawn_loop)
            rates[name].append(rate)
            ratios[name].append(2 * rate / (before + after))
            rates["posix_spawn loop"].append(before := after)
    found: dict[str, object] = {name: round(statistics.median(rate)) for name, rate in rates.items()}
    print(
        json.dumps(
            {
                "jobs": JOBS,
                "jobs/s": found,
                "of the loop": {name: round(statistics.median(some), 3) for name, some in ratios.items()},
                "rounds": {name: [round(one) for one in rate] for name, rate in rates.items()},
                "submitted in s": round(statistics.median(SUBMITTED), 3),
                "CPU ms a job": {name: round(statistics.median(spent), 3) for name, spent in CPU.items()},
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
