"""A second batch system behind the seam: the spooler beside, in as many lines as a real one would need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dovetail.batch.executor import BatchExecutor
from dovetail.batch.system import BatchError, BatchJob, BatchStatus, JobFacts, Phase, TaskVariables
from dovetail.errors import InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import Cluster, Foreseen, Job, Node, Request, Shape, State

SPOOLER = Path(__file__).with_name("spooler.py")
PHASES = {"Q": Phase.WAITING, "R": Phase.RUNNING, "F": Phase.ENDED, "X": Phase.ENDED}


class SpoolSystem:
    """Implements `BatchSystem` over the commands of the spooler in ``folder``, which has so many ``cpus``."""

    title = "Spool"
    variables = TaskVariables(restarts="SPOOL_RESTARTS", node="SPOOL_HOST", nodes="SPOOL_HOST")
    changed = ()
    longest_array = 1
    looks = (0.05, 0.2)
    pause = 0.01

    def __init__(self, folder: Path, cpus: int) -> None:
        self.folder, self._cpus = folder, cpus

    def call(self, command: str, *words: str, environ: Mapping[str, str] | None = None) -> str:
        """What a command prints. Raises `BatchError`."""
        argv = [sys.executable, "-I", "-S", str(SPOOLER), str(self.folder), command, *words]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
            raise BatchError(f"spooler {command}: {lines[-1]}")
        return done.stdout

    def submit(self, job: BatchJob) -> str:
        script = job.script
        words = [f"--cpus={self.cpus_of(job.shape, job.tasks)}"]
        if script is None:
            words += [f"--log={job.log}", "--folder=/", str(job.path)]
            return self.call("submit", *words, environ=job.environ).strip()
        out = script.outputs[0] if script.outputs else str(job.log)
        words += [f"--log={out}", f"--folder={script.folder}", str(job.path), *script.arguments]
        return self.call("submit", *words, environ={**job.environ, **script.variables}).strip()

    def look(self) -> dict[str, BatchStatus]:
        found: dict[str, BatchStatus] = {}
        for line in self.call("list").splitlines():
            id, word, status, host, start, _, why, script = line.split("|", 7)
            end = None
            if word in "FX":
                end = State.CANCELLED if word == "X" else State.FAILED if int(status) else State.COMPLETED
            batch = Path(script).stem if Path(script).parent.name == "queue" else ""
            began = float(start) if start else None
            hopeless = word == "Q" and bool(why)
            found[id] = BatchStatus(id, PHASES[word], word, host, began, batch, why, end, hopeless)
        return found

    def look_again(self, ids: Collection[str]) -> dict[str, BatchStatus]:
        return {}

    def describe_jobs(self, id: str) -> dict[str, JobFacts]:
        for line in self.call("list").splitlines():
            one, word, status, _, start, end, *_ = line.split("|", 7)
            if one == id:
                times = [float(text) if text else None for text in (start, end)]
                return {id: JobFacts(word, int(status or 0), *times, stdout="", stderr="")}
        return {}

    def cancel(self, ids: Sequence[str]) -> None:
        self.call("cancel", *ids)

    def cancel_waiting(self, id: str) -> None:
        if self.look()[id].phase is Phase.WAITING:
            self.cancel([id])

    def id_of_task(self, id: str, index: int) -> str:
        raise AssertionError(f"there are no arrays here, so no task {index} of {id}")

    def id_of_batch(self, id: str) -> str:
        return id

    def cpus_of(self, shape: Shape, tasks: int) -> int:
        return max(1, shape.request.cpus) if shape.request.cpus >= 0 else self._cpus

    def run_tasks(self, request: Request, tasks: int, words: Sequence[str]) -> list[str]:
        raise BatchError("the spooler has one node")

    def clean_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in environ.items() if not name.startswith("SPOOL_")}

    def check(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job.batch_options:
                raise InputError("found options for a batch system, expected none", where=f"job {job.id}")

    def foresee(self, shape: Shape) -> Foreseen:
        waits = any(status.phase is Phase.WAITING for status in self.look().values())
        return Foreseen(shape, 1.0 if waits else 0.0)

    def explain_closed(self) -> Mapping[str, str]:
        return {}


@dataclass(frozen=True)
class Spool:
    """The executor's options: where the spooler is, and how many CPUs it has."""

    folder: str
    cpus: int = 2
    policy: ClassVar[str] = "earliest-completion"

    def discover(self) -> Cluster:
        return Cluster((Node("spool", tuple(range(self.cpus)), partitions=("line",)),), "spool")

    def open(self, folder: RunFolder, cluster: Cluster) -> BatchExecutor:
        executor = BatchExecutor(SpoolSystem(Path(self.folder), self.cpus), folder, cluster)
        executor.files.create()
        return executor

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[BatchExecutor, LastAttempts]:
        executor = BatchExecutor(SpoolSystem(Path(self.folder), self.cpus), folder, cluster)
        return executor, executor.take_up()
