"""Clusters and jobs for tests with real processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from dovetail.interfaces import RunFolder
from dovetail.local.executor import LocalExecutor
from dovetail.model import (
    Allocation,
    App,
    Cluster,
    Command,
    Device,
    Ended,
    Implementation,
    Job,
    Node,
    Part,
    Placed,
    Request,
)

# In a container, or under taskset, these are not all cores of the machine.
CORES = tuple(sorted(os.sched_getaffinity(0)))


def cpu_cluster() -> Cluster:
    """One core of this machine."""
    return Cluster((Node("n0", CORES[:1]),))


def placed(
    name: str,
    *argv: str,
    env: dict[str, str] | None = None,
    inputs: dict[str, float | str] | None = None,
    command: bool = True,
) -> Placed:
    """A job on the CPU pool of `cpu_cluster`."""
    what = Command(argv, tuple((env or {}).items())) if command else None
    implementation = Implementation("cpu", "cpu", Request(), what)
    job = Job(name, App("app", (implementation,)), (), inputs=inputs or {})
    return Placed(job, implementation, Allocation(Request(), (Part(1, 1),)), 0.0, None, float("inf"))


def on_device(
    name: str, cluster: Cluster, kind: str, devices: tuple[int, ...], *argv: str, cpus: int = 0
) -> Placed:
    """A job on devices of the first node, with ``cpus`` of its pool (its lowest cores)."""
    request = Request(cpus=cpus, devices=((kind, float(len(devices))),))
    implementation = Implementation(kind, kind, request, Command(argv))
    job = Job(name, App("app", (implementation,)), ())
    cores = {0: cluster.nodes[0].cores[:cpus]} if cpus else {}
    allocation = Allocation(request, (Part(1, cpus, devices),), cores)
    return Placed(job, implementation, allocation, 0.0, None, float("inf"))


def device(kind: str, model: str = "", local: int = 0, cores: tuple[int, ...] = ()) -> Device:
    """A device."""
    return Device(kind, model, local, cores)


async def ends(executor: LocalExecutor, count: int) -> dict[str, Ended]:
    """The next ``count`` ends by job."""
    found: dict[str, Ended] = {}
    # With no job to wait for the stream of events would never end.
    if count:
        async for event in executor.events():
            assert isinstance(event, Ended)
            found[event.job] = event
            if len(found) == count:
                break
    return found


def run_all(
    tmp_path: Path,
    jobs: list[Placed],
    *,
    cluster: Cluster | None = None,
    meanwhile: Callable[[LocalExecutor], Awaitable[None]] | None = None,
    grace: float = 5.0,
    cwd: Path | None = None,
) -> dict[str, Ended]:
    """Launch jobs all at once in ``tmp_path/run``, wait for their ends, close."""
    folder = RunFolder(tmp_path / "run", cwd=os.fspath(cwd or ""), grace=grace)

    async def main() -> dict[str, Ended]:
        executor = LocalExecutor(folder, cluster or cpu_cluster())
        try:
            for job in jobs:
                await executor.launch(job)
            if meanwhile is not None:
                await meanwhile(executor)
            return await asyncio.wait_for(ends(executor, len(jobs)), 200)
        finally:
            await executor.close()
            assert executor.settle()

    return asyncio.run(main())


async def wait_until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait for something that must happen."""
    # Far longer than needed: machines that run tests are busy.
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("what was waited for did not happen")


def is_running(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        # The command's name stands in brackets and may hold brackets and blanks itself, so the state is what
        # follows the last bracket.
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # a program's name need not be UTF-8
        return stat.rsplit(b")", 1)[1].split()[0] not in b"ZX"
    except FileNotFoundError:
        return False
