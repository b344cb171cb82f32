"""Batch systems as the conformance suite drives them: what each needs to be begun, disturbed and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster import NodeShape, SlurmCluster
from spool_system import SPOOLER, Spool, SpoolSystem

from dovetail.batch.system import BatchSystem
from dovetail.model import Cluster


@dataclass(frozen=True)
class BatchWorld:
    """A batch system that runs, with ``cpus`` for jobs of ``target``, and what its operator may do."""

    system: BatchSystem
    cluster: Cluster
    target: str
    cpus: int
    requeue: Callable[[str], None]
    forget: Callable[[str], None] | None
    keeps_the_impossible: bool = False


@contextmanager
def spooling(folder: Path, cpus: int = 2) -> Iterator[BatchWorld]:
    """The spooler of the tests, with its daemon."""
    folder.mkdir()
    argv = [sys.executable, "-I", "-S", str(SPOOLER), str(folder), "serve", str(cpus)]
    daemon = subprocess.Popen(argv)
    system = SpoolSystem(folder, cpus)
    try:
        yield BatchWorld(
            system,
            Spool(str(folder), cpus).discover(),
            "line",
            cpus,
            lambda id: void(system.call("requeue", id)),
            lambda id: void(system.call("forget", id)),
            keeps_the_impossible=True,
        )
    finally:
        for id in system.look():
            system.call("cancel", id)
        while any(status.end is None for status in system.look().values()):
            assert daemon.poll() is None
        daemon.kill()
        daemon.wait()


@contextmanager
def slurming() -> Iterator[BatchWorld]:
    """A real Slurm of two nodes."""
    from dovetail_slurm.queue import SlurmQueue

    with SlurmCluster((NodeShape(1, cpus=2, gpus=0, partition="cpu"),)) as slurm:
        before = dict(os.environ)
        os.environ.update(slurm.environment)
        try:
            options = SlurmQueue(partitions="cpu", poll=0.3)
            cluster = options.discover()
            system = options.system(cluster)
            yield BatchWorld(
                system, cluster, "cpu", 2, lambda id: void(slurm.call("scontrol", "requeue", id)), None
            )
            slurm.call("scancel", "-u", before.get("USER", "root"), check=False)
            slurm.wait_until_idle()
        finally:
            os.environ.clear()
            os.environ.update(before)


def void(_: object) -> None:
    """Drop what a command printed."""
