"""Slurm's queue as a whole, as any user may read it: what intervals of a guest's starts rest on."""

from __future__ import annotations

import getpass
import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from dovetail.model import Seconds
from dovetail.starts import slurm as tables
from dovetail.starts.outside import OwnJob, QueueSight
from dovetail.starts.rolling import StartDraws
from dovetail.starts.slurm_rules import (
    SPRIO,
    SlurmRules,
    read_config,
    read_partitions,
    read_sprio,
)
from dovetail_slurm.allocation import poll_seconds
from dovetail_slurm.commands import SlurmError, read_configuration, run_command

_log = logging.getLogger(__name__)
SELDOM: Seconds = 600.0
"""Between two looks at the accounting, and at the cluster's rules."""
BEFORE = "now-7days"
"""Since when the first look at the accounting takes jobs in."""
MOST_ENDED = 20_000
"""Ended jobs that are kept, the last ones."""
STAYS: Seconds = 300.0
"""How long squeue shows a job after its end, where the configuration does not show it."""
OVERLAP: Seconds = 3600.0
"""What two looks at the accounting share: ends are recorded late."""


class SlurmWatch:
    """Implements `OutsideQueue`. ``poll`` is seconds between two looks at the queue (0: by whose it is).

    Jobs that have ended are those of ``sacct``; where a cluster keeps no accounting, those that squeue still
    shows and those of our own.
    """

    def __init__(self, poll: Seconds = 0.0) -> None:
        settings = read_configuration(("SlurmUser", "MinJobAge"))
        self.lasts = poll_seconds(poll, settings)[0]
        stays = settings.get("MinJobAge", "").partition(" ")[0]
        self._stays = float(stays) if stays.isdecimal() else STAYS
        self._rules = SlurmRules()
        self._ended: dict[str, tables.EndedJob] = {}
        self._has_accounting = False
        self._seldom_at: Seconds | None = None
        self._looked: list[Seconds] = []
        self._cluster = tables.SlurmCluster(())
        self._jobs: list[tables.SlurmJob] = []
        self._drawn: tuple[tuple[Seconds, Seconds | None, int], StartDraws] | None = None

    def task_id(self, id: str, index: int | None) -> str:
        """``4711_3``."""
        return id if index is None else f"{id}_{index}"

    def look(
        self,
        now: Seconds,
        ran: Sequence[OwnJob] = (),
        tested: Mapping[str, OwnJob] | None = None,
        replaced: str = "",
    ) -> QueueSight:
        """One squeue and one scontrol, unless the last ones still hold. Raises `DovetailError`."""
        if not self._looked or not 0 <= now - self._looked[-1] < self.lasts:
            self._read_queue(now)
        if self._seldom_at is None or not 0 <= now - self._seldom_at < SELDOM:
            self._read_seldom(now)
        user = getpass.getuser()
        known = [*self._ended.values(), *self._not_shown(ran, user)]
        version = self._looked[-1], self._seldom_at, len(known)
        if self._drawn is None or self._drawn[0] != version:
            self._drawn = version, tables.draws_of(self._cluster, known, self._jobs, now)
        new = {name: self._as_submitted(name, job, user, now) for name, job in (tested or {}).items()}
        old = next((job for job in self._jobs if job.id == replaced and job.state == "PENDING"), None)
        others = self._jobs
        if old is not None:
            # Slurm leaves a job its age and its priority when its request is changed.
            new = {
                name: job._replace(priority=old.priority, submitted=old.submitted, reason=old.reason)
                for name, job in new.items()
            }
            others = [job for job in self._jobs if job is not old]
        situation, unknown = self._cluster.current_situation(
            [*others, *new.values()], now, self._rules.policy, self._rules.tier_of_job, self._is_closed
        )
        possible = new.keys() - set(unknown)
        rules = self._rules.assumption_sentences()
        return QueueSight(
            situation, self._drawn[1], len(known), [name if name in possible else "" for name in new], rules
        )

    def _is_closed(self, job: tables.SlurmJob) -> bool:
        return self._rules.is_closed(job) or bool(self._rules.refusal_reason(job))

    def _read_queue(self, now: Seconds) -> None:
        queue = _read("squeue", "-a", "-r", "-t", "all", "-o", tables.SQUEUE)
        nodes = tables.read_nodes(_read("scontrol", "show", "nodes"), "scontrol")
        jobs = tables.read_squeue(queue, "squeue")
        if nodes != self._cluster.nodes:
            self._cluster = tables.SlurmCluster(nodes)
        self._jobs = jobs
        self._looked = [*self._looked[-1000:], now]
        if not self._has_accounting:
            self._keep(tables.ended_jobs(jobs))

    def _keep(self, ended: Sequence[tables.EndedJob]) -> None:
        for one in ended:
            self._ended.pop(one.job.id, None)  # one that went back into the queue has a later end
            self._ended[one.job.id] = one
        for id in sorted(self._ended, key=lambda id: self._ended[id].end)[:-MOST_ENDED]:
            del self._ended[id]

    def _read_seldom(self, now: Seconds) -> None:
        """The accounting and the rules; what a cluster does not show is gone without."""
        since = BEFORE
        if self._has_accounting and self._seldom_at is not None:
            since = f"now-{int(now - self._seldom_at + OVERLAP)}seconds"
        self._seldom_at = now
        columns = ("-a", "-X", "--parsable2", "-S", since, "--format", tables.SACCT)
        try:
            self._keep(tables.read_accounting(_read("sacct", *columns), "sacct"))
            self._has_accounting = True
        except SlurmError as error:
            _log.info("run times are those that squeue shows, and our own: %s", error)
        partitions, config = _try("scontrol", "show", "partition"), _try("scontrol", "show", "config")
        priorities = _try("sprio", "-o", SPRIO)
        self._rules = SlurmRules(
            read_partitions(partitions, "scontrol") if partitions else {},
            read_config(config, "scontrol") if config else {},
            read_sprio(priorities, "sprio") if priorities else {},
        )

    def _not_shown(self, ran: Sequence[OwnJob], user: str) -> list[tables.EndedJob]:
        """Ended jobs of ours that no look at the queue has found, where there is no accounting."""
        if self._has_accounting:
            return []
        found = []
        for number, one in enumerate(ran):
            if one.started is None or one.ended is None:
                continue
            after = bisect_left(self._looked, one.ended)
            if after < len(self._looked) and self._looked[after] < one.ended + self._stays:
                continue
            job = _slurm_job(f"own {number}", one, user, "COMPLETED")._replace(start=one.started)
            found.append(tables.EndedJob(job, one.ended, one.ended - one.started))
        return found

    def _as_submitted(self, name: str, job: OwnJob, user: str, now: Seconds) -> tables.SlurmJob:
        # Without sprio its priority stays 0: it goes behind all that wait.
        return self._rules.complete_job(_slurm_job(name, job._replace(submitted=now), user, "PENDING"))


def _slurm_job(id: str, job: OwnJob, user: str, state: str) -> tables.SlurmJob:
    request = job.request
    gpus = sum(max(1, int(count)) for kind, count in request.devices if kind == "gpu")
    return tables.SlurmJob(
        id,
        user,
        job.name,
        job.target,
        state,
        request.nodes,
        request.nodes * max(job.cpus, 1),
        gpus,
        request.memory,
        job.walltime,
        job.submitted,
        None,
        0,
        "",
        (),
    )


def _read(*words: str) -> str:
    """What one of Slurm's commands prints. Raises `SlurmError`."""
    return run_command(words, plain=True)[0]


def _try(*words: str) -> str:
    try:
        return _read(*words)
    except SlurmError as error:
        _log.info("forecasts do without %s: %s", " ".join(words), error)
        return ""
