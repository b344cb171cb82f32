"""By which rules a Slurm cluster starts jobs, as far as its own commands show them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from dovetail.errors import InputError
from dovetail.files.tables import Malformed
from dovetail.starts.slurm import SlurmCluster, SlurmJob
from dovetail.workloads.slurm_accounting import parse_duration

SPRIO = "%i|%u|%Y|%A"
"""The format of sprio (``-o``) whose table is read: job, user, priority, the part of it that age gives."""
BUILTIN = "sched/builtin"
MULTIFACTOR = "priority/multifactor"
OF_BACKFILL = ("bf_window", "bf_max_job_test", "bf_max_job_user", "bf_resolution", "bf_interval")
"""Parameters of sched/backfill that bound what it plans; they are named, not modelled."""


class SlurmPartition(NamedTuple):
    """Limits of a partition; ``None``: there is none. Times are seconds; a higher ``tier`` goes first."""

    name: str
    up: bool
    most_time: float | None
    default_time: float | None
    most_nodes: int | None
    tier: int
    default: bool


class SlurmRules(NamedTuple):
    """What is known of a cluster's rules; empty where it was not read."""

    partitions: Mapping[str, SlurmPartition] = {}
    config: Mapping[str, str] = {}
    ages: Mapping[str, tuple[str, float, float]] = {}
    """User, priority and its part by age, of the jobs that wait."""

    @property
    def policy(self) -> str:
        """The policy of the roll-outs."""
        # sched/builtin starts strictly by priority; every other scheduler backfills.
        return "fcfs" if self.config.get("SchedulerType") == BUILTIN else "easy"

    def tier_of_job(self, job: SlurmJob) -> int:
        """Jobs of a higher tier go before all others."""
        known = [self.partitions[name].tier for name in _partition_names(job) if name in self.partitions]
        return max(known, default=0)

    def is_closed(self, job: SlurmJob) -> bool:
        """Whether all its partitions are down or drained."""
        known = [self.partitions[name] for name in _partition_names(job) if name in self.partitions]
        return bool(known) and not any(one.up for one in known)

    def complete_job(self, job: SlurmJob) -> SlurmJob:
        """With the partition's walltime where it has none, and the priority that it may get.

        A new job has no age: its priority is the median of what others of its user have without theirs, else
        of what all have.
        """
        known = [self.partitions[name] for name in _partition_names(job) if name in self.partitions]
        walltime = job.walltime
        if walltime is None and known:
            walltime = known[0].default_time or known[0].most_time
        # The part by age is taken off: a new job has none yet.
        plain = [(user, priority - age) for user, priority, age in self.ages.values()]
        own = [rest for user, rest in plain if user == job.user] or [rest for _, rest in plain]
        return job._replace(walltime=walltime, priority=int(median(own)) if own else job.priority)

    def refusal_reason(self, job: SlurmJob) -> str:
        """Why no partition of the job takes it; empty where one does."""
        why = ""
        for name in _partition_names(job):
            one = self.partitions.get(name)
            if one is None:
                # Nothing was read of partitions: what is not known refuses nothing.
                if not self.partitions:
                    return ""
                why = why or f"found the partition {name}, expected one of {', '.join(self.partitions)}"
            elif one.most_time is not None and (job.walltime or 0.0) > one.most_time:
                why = (
                    f"found a walltime of {job.walltime:.0f} s, the partition {name} allows "
                    f"{one.most_time:.0f} s"
                )
            elif one.most_nodes is not None and job.nodes > one.most_nodes:
                why = f"found {job.nodes} nodes, the partition {name} allows {one.most_nodes}"
            else:
                return ""
        return why

    def assumption_sentences(self) -> list[str]:
        """What a forecast assumes, by what was read."""
        if self.policy == "fcfs":
            found = ["Jobs go by priority, none before another (sched/builtin)."]
        else:
            found = [
                "Jobs go by priority; a later one goes first if it does not delay the first (sched/backfill "
                "as EASY)."
            ]
        if any(one.tier != 1 for one in self.partitions.values()):
            found.append("Partitions of a higher PriorityTier go first.")
        if self.config.get("PriorityType") == MULTIFACTOR:
            weights = {
                key.removeprefix("PriorityWeight"): value
                for key, value in self.config.items()
                if key.startswith("PriorityWeight") and value not in ("0", "(null)")
            }
            words = ", ".join(f"{name} {value}" for name, value in weights.items()) or "all weights 0"
            found.append(f"Priorities stay as they are now, whatever fair shares become ({words}).")
        else:
            found.append("Priorities stay as they are now.")
        if self.ages:
            found.append("A new job gets its user's priority without age, by sprio.")
        else:
            found.append("A new job goes behind all that wait.")
        scheduler = dict(
            one.partition("=")[::2] for one in self.config.get("SchedulerParameters", "").split(",") if one
        )
        bounds = [f"{name}={scheduler[name]}" for name in OF_BACKFILL if name in scheduler]
        if bounds:
            found.append(f"Backfilling has no bounds, though here it has some ({', '.join(bounds)}).")
        return [
            *found,
            "QOS and association limits, reservations, preemption and licenses are not looked at.",
        ]


def _partition_names(job: SlurmJob) -> list[str]:
    # sinfo marks the default partition with a star, which people copy.
    return [name.strip("*") for name in job.partition.split(",") if name]


def _parse_limit(text: str | None) -> float | None:
    return None if text in (None, "", "NONE", "UNLIMITED", "INFINITE", "(null)") else parse_duration(text)


def read_partitions(text: str, where: str) -> dict[str, SlurmPartition]:
    """The partitions of ``scontrol show partition``. Raises `InputError`."""
    found = {}
    for block in re.split(r"(?m)^(?=PartitionName=)", text):
        if not block.startswith("PartitionName="):
            continue
        fields = dict(re.findall(r"(\w+)=(\S*)", block))
        name = fields["PartitionName"]
        try:
            nodes = _parse_limit(fields.get("MaxNodes")) and int(fields["MaxNodes"])
            found[name] = SlurmPartition(
                name,
                fields.get("State", "UP") == "UP",
                _parse_limit(fields.get("MaxTime")),
                _parse_limit(fields.get("DefaultTime")),
                None if nodes is None else int(nodes),
                int(fields.get("PriorityTier", "1")),
                fields.get("Default") == "YES",
            )
        except (ValueError, Malformed) as error:
            raise InputError(
                f"partition {name}: found a limit that cannot be read: {error}", where=where
            ) from error
    if not found:
        raise InputError("found no partition, expected the text of 'scontrol show partition'", where=where)
    return found


def read_config(text: str, where: str) -> dict[str, str]:
    """The settings of ``scontrol show config``. Raises `InputError`."""
    found = {
        key.strip(): value.strip()
        for key, equals, value in (line.partition(" = ") for line in text.splitlines())
        if equals
    }
    if not found:
        raise InputError("found no 'Name = value', expected the text of 'scontrol show config'", where=where)
    return found


def read_sprio(text: str, where: str) -> dict[str, tuple[str, float, float]]:
    """User, priority and its part by age, of the table of ``sprio -o`` with `SPRIO`. Raises `InputError`."""
    found = {}
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines[1:], 2):
        cells = [cell.strip() for cell in line.split("|")]
        try:
            job, user, priority, age = cells
            found[job] = user, float(priority), float(age)
        except ValueError as error:
            raise InputError(
                f"found {line[:80]!r}, expected a line of sprio -o '{SPRIO}'", where=f"{where}: line {number}"
            ) from error
    return found


def default_partition(rules: SlurmRules, cluster: SlurmCluster) -> str:
    """The partition of a job that names none: the default one, else all."""
    chosen = [one.name for one in rules.partitions.values() if one.default]
    names = chosen or sorted({name for node in cluster.nodes for name in node.partitions})
    return ",".join(names)


def allowed_jobs(rules: SlurmRules, jobs: Sequence[tuple[str, SlurmJob]]) -> list[tuple[str, SlurmJob]]:
    """Those that a partition takes."""
    return [(words, job) for words, job in jobs if not rules.refusal_reason(job) and not rules.is_closed(job)]
