"""What it costs to look at the devices of a box while jobs run there: CPU time by look, and of a core.

    python benchmarks/device_sampling.py [--devices 8] [--looks 300]

The library is the tests' stand-in of NVIDIA's, so that the driver's own time is left out; all else is as in a
service: the process that queries the library, what it answers, whose processes they are, peak and use of each
job. On each device is a job, and a process that is not ours on every second one. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from gpu_box import GB, GpuBox

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.state.core import no_bound
from dovetail.history.memory import MemoryHistory
from dovetail.local.device_watch import DeviceWatch
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    Started,
)
from dovetail.plugins import load_policy
from dovetail.running.device_guard import SAMPLES, DeviceGuard, WatchedDevice
from dovetail.runtimes.registry import make_model


def spent_by(pid: int) -> float:
    """CPU seconds of a process that lives, so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def busy_driver(cluster: Cluster) -> Driver:
    """A driver with a job on each device."""
    driver = Driver(
        cluster,
        load_policy("fcfs").policy,
        make_model("mean", MemoryHistory()),
        bound=no_bound,
        options=DriverOptions(),
    )
    way = Implementation("gpu", "gpu", Request(1, 0, (("gpu", 1.0),)))
    app = App("train", (way,))
    for n in range(cluster.total_devices):
        driver.submit(Job(str(n), app, (Choice(way, way.request),), index=n))
    driver.process_instant(0.0)
    driver.queue_events(*(Started(str(n)) for n in range(cluster.total_devices)))
    driver.process_instant(0.0)
    assert len(driver.engine.running) == cluster.total_devices
    return driver


def main() -> None:
    """The cost of so many looks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--looks", type=int, default=300)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        box = GpuBox(Path(folder))
        jobs = [subprocess.Popen(["sleep", "1000"]) for _ in range(given.devices)]
        try:
            uuids = [box.add(40 * GB) for _ in range(given.devices)]
            for n, (uuid, job) in enumerate(zip(uuids, jobs, strict=True)):
                box.occupy(uuid, job.pid, 6 * GB)
                if n % 2:
                    box.occupy(uuid, os.getppid(), 2 * GB)
            os.environ.update({**box.environment, "NVML_STILL": "1"})
            numbers = {job.pid: str(n) for n, job in enumerate(jobs)}
            print(json.dumps(measured(uuids, numbers, given.looks)))
        finally:
            for job in jobs:
                job.kill()
                job.wait()


def measured(uuids: list[str], jobs: dict[int, str], looks: int) -> dict[str, float]:
    """Milliseconds of CPU time by look, here and in the process that queries, and parts of a core."""
    devices = tuple(Device("gpu", "A100", n, memory=40 * GB) for n in range(len(uuids)))
    driver = busy_driver(Cluster((Node("box", (0,), devices),)))
    watched = {
        (0, device.name): WatchedDevice((0, device.name), "nvidia", uuid, device.memory)
        for device, uuid in zip(devices, uuids, strict=True)
    }
    watch = DeviceWatch("nvidia")
    guard = DeviceGuard("avoid", lambda pid: (pid in jobs, jobs.get(pid, "")), {"nvidia": watch}, watched)
    clock = [0.0]
    guard.clock = lambda: clock[0]
    try:
        while watch.take_snapshot(30.0) is None:
            time.sleep(0.1)
        guard.observe_instant(driver, 0.0)
        process = watch._process
        assert process is not None
        began, there = time.process_time(), spent_by(process.pid)
        for n in range(1, looks + 1):
            clock[0] = time.monotonic() + 10.0 * n  # each look is of its own
            guard.observe_instant(driver, 10.0 * n)
        here, there = time.process_time() - began, spent_by(process.pid) - there
        usage = guard.measured_usage("0", 1)
        assert usage is not None
        assert usage.gpu_memory == 6 * GB, "the looks have seen what the jobs hold"
    finally:
        watch.close()
    each = (here + there) / looks
    (_, first), (_, second), (_, later) = SAMPLES
    return {
        "devices": len(uuids),
        "looks": looks,
        "ms_here": round(1e3 * here / looks, 3),
        "ms_there": round(1e3 * there / looks, 3),
        "percent_of_core_first_seconds": round(100 * each / first, 3),
        "percent_of_core_first_minute": round(100 * each / second, 3),
        "percent_of_core_later": round(100 * each / later, 3),
    }


if __name__ == "__main__":
    main()
