"""Questions to Slurm beforehand: whether it takes a job's options, and when such a job would start.

The question is ``sbatch --test-only``, of which a controller that others use too is spared all but a few.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dovetail.errors import InputError
from dovetail.model import Cluster, Foreseen, Job, Node, Shape, TimeUsed
from dovetail.model.batch_options import of_script, options_for, partition_of, value_of
from dovetail_slurm.allocation import poll_seconds
from dovetail_slurm.batch import (
    Line,
    cpus_of_task,
    foreseen,
    goes_to,
    job_options,
    room,
    times_used,
)
from dovetail_slurm.commands import NodeTable, SlurmError

_log = logging.getLogger(__name__)
OWN_PAUSE, SHARED_PAUSE = 0.02, 5.0
"""Seconds between two questions (``sbatch --test-only``), on one's own cluster and on one that others use."""
ACCOUNTING = 3600.0
"""Seconds for which it holds how much jobs use of their walltimes."""


def has_accounting(settings: Mapping[str, str]) -> bool:
    """Whether the cluster keeps what jobs have used (slurmdbd)."""
    return settings.get("AccountingStorageType", "").endswith("slurmdbd")


class Questions:
    """Sends one question after the other, ``pause`` seconds apart (0: by whose cluster it is).

    ``sbatch`` are options for all jobs. ``nodes`` is Slurm's table of its nodes.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Mapping[str, str],
        sbatch: Sequence[str],
        pause: float,
        answered: Callable[[Foreseen], None],
        *,
        qos: str = "",
    ) -> None:
        self._qos = qos
        self._cluster, self._sbatch, self._pause, self._answered = cluster, sbatch, pause, answered
        shortest = poll_seconds(0.0, settings)[0]
        self._is_own = shortest <= 1.0
        self.nodes = NodeTable(shortest)
        self._accounting = has_accounting(settings)
        self._used: Mapping[Line, TimeUsed] = {}
        self._used_until = 0.0
        self._questions: deque[Shape] = deque()
        self._asks = asyncio.Event()

    def check(self, jobs: Iterable[Job]) -> None:
        """Check each set of options with Slurm once. Raises `InputError` for one that no partition takes."""
        partitions = list(dict.fromkeys(name for node in self._cluster.nodes for name in node.partitions))
        usual = [name for name in partitions if name not in self._cluster.closed]
        asked_for = {(job.batch_options, job.app): job for job in jobs if job.batch_options or self._sbatch}
        different = {
            options_for(one.batch_options, choice.implementation): one.id
            for one in asked_for.values()
            for choice in one.choices
        }
        for options, job in different.items():
            named = partition_of(options)
            unknown = [name for name in named.split(",") if named and name not in partitions]
            where = f"job {job}: slurm"
            if unknown:
                there = ", ".join(partitions)
                raise InputError(f"found --partition={unknown[0]}, expected one of: {there}", where=where)
            words = [*self._sbatch, *options]
            refused = self._refused(words, named.split(",") if named else usual) if words else None
            if refused is not None:
                raise InputError(
                    f"found {shlex.join(words)}, expected options that Slurm takes: {refused}", where=where
                )

    @staticmethod
    def _refused(words: Sequence[str], partitions: Sequence[str]) -> SlurmError | None:
        """Slurm's refusal of a job with these options, if it takes none in any of the partitions."""
        refused = None
        for name in partitions:
            try:
                foreseen([f"--partition={name}", *words])
            except SlurmError as error:
                if error.passing or error.no_place:
                    return None
                refused = error
            else:
                return None
        return refused

    def put(self, shape: Shape) -> None:
        """Have Slurm estimate when such a job would start."""
        self._questions.append(shape)
        self._asks.set()

    async def ask_all(self) -> None:
        """One question after the other, with a pause; the controller may be away."""
        pause = self._pause or (OWN_PAUSE if self._is_own else SHARED_PAUSE)
        while True:
            await self._asks.wait()
            while self._questions:
                shape = self._questions[0]
                try:
                    answer = await asyncio.to_thread(self._answer, shape)
                except SlurmError as error:
                    if error.passing or error.no_place:
                        await asyncio.sleep(5.0)
                        continue
                    answer = Foreseen(shape, None, why=str(error))
                self._questions.popleft()
                self._answered(answer)
                await asyncio.sleep(pause)
            self._asks.clear()

    def _answer(self, shape: Shape) -> Foreseen:
        """Slurm's answer. Raises `SlurmError`. Blocks.

        Of a job that may go to several partitions it foresees the start in one of them, which need not be the
        first: so each is a question of its own.
        """
        options = self._question(shape)
        wait, free = max(0.0, foreseen(options) - time.time()), 0
        for name in shape.target.split(","):
            one = replace(shape, target=name)
            its = self._question(one)
            try:
                its_wait = wait if one == shape else max(0.0, foreseen(its) - time.time())
            except SlurmError as error:
                if error.passing or error.no_place:
                    raise
                continue  # not this one, but another
            wait = min(wait, its_wait)
            free += room(one, self.cpus_of(one), self.nodes.facts().values()) if its_wait < 1.0 else 0
        return Foreseen(shape, wait, free, used=self._time_used(shape))

    def options_for(self, shape: Shape, tasks: int = 1) -> list[str]:
        """What sbatch is given for such a job. Its own word on partitions is the last, also over ours."""
        *options, partition = job_options(shape, self._nodes_of(shape), tasks)
        script = of_script(shape.options)
        own = [*(script[0] if script else ()), *options, *self._sbatch]
        usual = [self._qos] if self._qos and not value_of(own, "--qos", "-q") else []
        return [*usual, *options, *self._sbatch, partition]

    def _question(self, shape: Shape) -> list[str]:
        """The same for a question: a batch script's own lines are not read then, so they come first."""
        script = of_script(shape.options)
        return [*(script[0] if script else ()), *self.options_for(shape)]

    def _nodes_of(self, shape: Shape) -> list[Node]:
        return [node for node in self._cluster.nodes if goes_to(shape, node.partitions)]

    def cpus_of(self, shape: Shape, tasks: int = 1) -> int:
        """CPUs of each task of such a job."""
        return cpus_of_task(shape, self._nodes_of(shape), tasks)

    def _time_used(self, shape: Shape) -> TimeUsed | None:
        """What jobs there use of their walltimes, by the accounting of the last days. Blocks."""
        if self._accounting and time.monotonic() >= self._used_until:
            self._used_until = time.monotonic() + ACCOUNTING
            try:
                self._used = times_used()
            except SlurmError as error:
                _log.info("the accounting has no run times of jobs: %s", error)
        devices = bool(shape.request.devices)
        found = [self._used.get((target, devices)) for target in shape.target.split(",")]
        return max(filter(None, found), key=lambda used: used.jobs, default=None)
