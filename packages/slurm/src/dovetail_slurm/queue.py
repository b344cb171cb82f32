"""Guest of a Slurm queue: which nodes, partitions and QOS jobs may use, and the options of the executor.

What is the same for every batch system is in `dovetail.batch`; what Slurm's commands do and print for it, in
`dovetail_slurm.system`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dovetail.batch.executor import BatchExecutor
from dovetail.errors import InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import Cluster
from dovetail.model.batch_options import value_of
from dovetail.records import dataclass
from dovetail_slurm.batch import cluster_of_partitions
from dovetail_slurm.commands import SlurmError, read_configuration, run_command
from dovetail_slurm.partitions import (
    SETTINGS,
    Choice,
    Partition,
    UsualQos,
    choose_partitions,
    choose_qos,
    preempting_qos,
    read_member,
    read_partitions,
)
from dovetail_slurm.system import SlurmSystem
from dovetail_slurm.watch import SlurmWatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """Hand jobs to Slurm's queue.

    ``partitions`` are those that may be used, with commas (empty: the one that Slurm itself would use, and
    others for jobs that name them); none whose tier preempts others' running jobs, unless ``preempts`` allows
    it. ``features`` are names of node features that distinguish CPUs. ``poll`` is seconds between looks at
    the queue, ``pause`` those between two questions for a start (0: 1 and 0.02 on a cluster of one's own,
    else 15 to 30 and 5). ``mpi`` is srun's ``--mpi`` for gangs, ``srun`` further options for them,
    ``sbatch`` options for all jobs.
    """

    partitions: str = ""
    features: str = ""
    poll: float = 0.0
    pause: float = 0.0
    mpi: str = ""
    srun: str = ""
    sbatch: str = ""
    preempts: bool = False
    policy: ClassVar[str] = "earliest-completion"

    @staticmethod
    def read_table(words: Sequence[str]) -> str:
        """What one of Slurm's commands prints, with times as it prints them. Raises `SlurmError`."""
        return run_command(words, plain=True)[0]

    def watch_queue(self, cluster: Cluster) -> SlurmWatch:
        """The queue in which jobs wait, those of others too."""
        return SlurmWatch(self.poll)

    def discover(self) -> Cluster:
        """The nodes that take jobs, with their partitions. Raises `InputError` where we may use none."""
        named, where = _split_words(self.partitions), "executor slurm-queue"
        found = read_partitions()
        choice = self._choose_partitions(found)
        refused = [
            f"partition {name}: {choice.left_out[name]}"
            for name, one in found.items()
            if name in choice.left_out and (name in named or (one.is_default and not named))
        ]
        if refused:
            raise InputError(
                f"found {'; '.join(refused)}; expected one that a guest may use, as partitions=NAME",
                where=where,
            )
        if not choice.open and not named:
            there = ", ".join(choice.closed) or "none"
            raise InputError(
                f"found no default partition, expected partitions=NAME, of those that we may use: {there}",
                where=where,
            )
        if (qos := self.usual_qos()).harm:
            raise InputError(
                f"found no QOS that a guest may use: {qos.harm}; expected another, as sbatch=--qos=NAME, or "
                "preempts=true, which allows that",
                where=where,
            )
        if qos.option:
            _log.info("jobs that name no QOS get %s: the usual one preempts running jobs", qos.option)
        for name, why in choice.left_out.items():
            _log.info("partition %s is left out: %s", name, why)
        cluster = cluster_of_partitions(choice.open, _split_words(self.features), choice.closed)
        opened = any(not cluster.closed.issuperset(node.partitions) for node in cluster.nodes)
        if not opened:
            what = f"partitions {self.partitions}" if named else f"partition {', '.join(choice.open)}"
            raise InputError(
                f"found no node of {what} that takes jobs, expected one; 'sinfo' shows them", where=where
            )
        return cluster

    def _choose_partitions(self, found: Mapping[str, Partition]) -> Choice:
        settings = read_configuration(SETTINGS)
        member = read_member(settings).with_options(self.sbatch.split(), os.environ)
        return choose_partitions(
            found, member, settings, _split_words(self.partitions), preempts=self.preempts
        )

    def usual_qos(self) -> UsualQos:
        """The QOS of jobs that name none; one that an operator names is taken as it is."""
        named = value_of(self.sbatch.split(), "--qos", "-q") or os.environ.get("SBATCH_QOS", "")
        settings = read_configuration(SETTINGS)
        try:
            preempting = {} if named or self.preempts else preempting_qos(settings)
        except SlurmError as error:
            _log.warning("which QOS preempt running jobs is not known: %s", error)
            preempting = {}
        return choose_qos(read_member(settings), preempting) if preempting else UsualQos()

    def left_out(self) -> Mapping[str, str]:
        """Partitions into which no job of ours goes, and why; none where Slurm does not answer."""
        try:
            return self._choose_partitions(read_partitions()).left_out
        except SlurmError as error:
            _log.warning("why a partition may not be used is not known: %s", error)
            return {}

    def open(self, folder: RunFolder, cluster: Cluster) -> BatchExecutor:
        """A new run."""
        executor = BatchExecutor(self.system(cluster), folder, cluster)
        executor.files.create()
        return executor

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[BatchExecutor, LastAttempts]:
        """Take up a run: its batch jobs are in Slurm's hands, or have ended."""
        executor = BatchExecutor(self.system(cluster), folder, cluster)
        return executor, executor.take_up()

    def system(self, cluster: Cluster) -> SlurmSystem:
        """Slurm as its guest of ``cluster`` sees it."""
        return SlurmSystem(
            cluster,
            qos=self.usual_qos().option,
            poll=self.poll,
            pause=self.pause,
            mpi=self.mpi,
            srun=self.srun.split(),
            sbatch=self.sbatch.split(),
            left_out=self.left_out,
        )


def _split_words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]
