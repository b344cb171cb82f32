"""A Slurm cluster as it stands, from what anyone may read: squeue, scontrol, sacct; nothing is changed.

By which rules it starts jobs is in `dovetail.starts.slurm_rules`.
"""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dovetail.errors import InputError
from dovetail.files.arrays import np
from dovetail.files.tables import Malformed, wall_clock
from dovetail.kernels.starts import AMOUNTS, Nodes
from dovetail.model.hostlist import expand_hostlist
from dovetail.starts.rolling import QueuedJob, Situation, StartDraws
from dovetail.starts.run_times import JobKind
from dovetail.workloads.sacct_rows import (
    count_of,
    gpus_of,
    header_of,
    is_step,
    parse_tres,
    resources_of,
    rows_of,
)
from dovetail.workloads.slurm_accounting import elapsed_of, parse_duration, timelimit_of

SQUEUE = "%i|%u|%P|%T|%D|%C|%m|%b|%l|%M|%V|%S|%Q|%r|%N|%j"
"""The format of squeue (``-o``) whose table is read; its own header names the columns."""
SQUEUE_NEEDS = (
    *(("JOBID",), ("USER",), ("PARTITION",), ("STATE", "ST"), ("NODES",), ("CPUS",)),
    *(("TIME_LIMIT", "TIMELIMIT"), ("NODELIST", "NODELIST(REASON)")),
)
"""The columns without which no start can be foreseen, each by its names."""
SHORT_STATES = {
    "R": "RUNNING",
    "PD": "PENDING",
    "CG": "COMPLETING",
    "CF": "CONFIGURING",
    "S": "SUSPENDED",
    "ST": "STOPPED",
    "SO": "STAGE_OUT",
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED",
    "TO": "TIMEOUT",
}
"""What squeue prints for ``%t``."""
HOLDING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "STAGE_OUT")
"""States of jobs that hold their nodes."""
SACCT = "JobID,JobName,User,Partition,Submit,Start,End,State,ElapsedRaw,TimelimitRaw,NNodes,NCPUS,AllocTRES"
OUT_OF_USE = (
    "DOWN",
    "DRAIN",
    "FAIL",
    "MAINT",
    "NOT_RESPONDING",
    "POWERED_DOWN",
    "REBOOT",
    "UNKNOWN",
    "FUTURE",
)
SACCT_NEEDS = (("JobID", "JobIDRaw"), ("Submit",), ("Start",), ("End",), ("State",))
ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
"""States of jobs that squeue shows for some minutes after their end (``-t all``)."""
HELD_BACK = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser", "JobHeldAdmin")
"""Reasons for which a job waits for something else than its turn."""
MOST_TASKS = 10_000
"""Of an array that stands on one line: behind so many only few others are still foreseen."""
MEBIBYTE = 2**20
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "": 2**20}


class SlurmNode(NamedTuple):
    """A node in use: CPUs, GPUs, bytes, partitions."""

    name: str
    cpus: int
    gpus: int
    memory: int
    partitions: tuple[str, ...]


class SlurmJob(NamedTuple):
    """A job of squeue; times are seconds since the epoch, ``walltime`` seconds or ``None``.

    ``ran`` are the seconds that it has run so far, where that is known.
    """

    id: str
    user: str
    name: str
    partition: str
    state: str
    nodes: int
    cpus: int
    gpus: int
    memory: int
    walltime: float | None
    submitted: float
    start: float | None
    priority: int
    reason: str
    hosts: tuple[str, ...]
    ran: float | None = None

    @property
    def array(self) -> str:
        """The number of its array; its own id where it is in none."""
        return self.id.partition("_")[0]


def read_nodes(text: str, where: str) -> list[SlurmNode]:
    """The nodes of ``scontrol show nodes`` that may run jobs. Raises `InputError`."""
    found = []
    # One block a node; scontrol breaks a node over several lines, unless called with -o.
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        if not block.startswith("NodeName="):
            continue
        fields = dict(re.findall(r"(\w+)=(\S*)", block))
        # A compound state such as IDLE+DRAIN or DOWN*: any part that forbids new jobs takes the node out.
        state = fields.get("State", "")
        if any(word in state for word in OUT_OF_USE):
            continue
        try:
            gpus = int(parse_tres(fields.get("CfgTRES", "")).get("gres/gpu", 0))
            cpus, memory = int(fields["CPUTot"]), int(fields.get("RealMemory", "0")) * MEBIBYTE
        except (KeyError, ValueError, Malformed) as error:
            name = fields.get("NodeName", "?")
            raise InputError(
                f"node {name}: found no CPUTot, RealMemory or CfgTRES that can be read", where=where
            ) from error
        # CfgTRES counts GPUs only where AccountingStorageTRES has gres/gpu; Gres is set in any case.
        gpus = gpus or _parse_gpus(fields.get("Gres", ""))
        partitions = tuple(filter(None, fields.get("Partitions", "").split(",")))
        found.append(SlurmNode(fields["NodeName"], cpus, gpus, memory, partitions))
    if not found:
        raise InputError("found no node in use, expected the text of 'scontrol show nodes'", where=where)
    return found


def _parse_gpus(gres: str) -> int:
    """GPUs in ``gpu:a100:4(S:0-1),…`` or ``gres/gpu:2``."""
    counts = re.findall(r"gpu(?:[:=][A-Za-z_][\w.-]*)?[:=](\d+)", gres)
    # "gpu" without a number is one, as in Slurm.
    return sum(map(int, counts)) or int("gpu" in gres)


def _parse_memory(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)[nc]?", text.strip())
    return int(float(match[1]) * UNITS[match[2]]) if match else 0


def _parse_when(row: Mapping[str, str], column: str) -> float | None:
    if row.get(column, "") in ("", "N/A", "Unknown", "None"):
        return None
    return wall_clock(row, column)


def _parse_walltime(text: str) -> float | None:
    if text in ("", "UNLIMITED", "NOT_SET", "INVALID", "Partition_Limit"):
        return None
    return parse_duration(text)


def read_squeue(text: str, where: str) -> list[SlurmJob]:
    """The jobs of ``squeue -o`` with the format `SQUEUE`, each task of an array. Raises `InputError`."""
    found = []
    for number, row in _read_table(text, where, f"squeue -a -r -t all -o '{SQUEUE}'", SQUEUE_NEEDS, "NAME"):
        try:
            job = _parse_job(row)
            found += [job._replace(id=id) for id in _ids_of_tasks(job.id)]
        except (KeyError, ValueError, Malformed) as error:
            raise InputError(
                f"found a line that cannot be read: {error}", where=f"{where}: line {number}"
            ) from error
    return found


def _read_table(
    text: str, where: str, command: str, needs: Sequence[tuple[str, ...]], name_column: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """The lines of a table that Slurm printed, with their numbers.

    Columns come in any order, with any character between them; each of ``needs`` is there under one of its
    names, and gets the first. Raises `InputError`.
    """
    lines = text.splitlines()
    header = header_of(next((line for line in lines if line.strip()), ""))[0]
    missing = [names[0] for names in needs if not set(names) & set(header)]
    if missing:
        raise InputError(
            f"found no column {', '.join(missing)}, expected the table of {command}", where=where
        )
    for row in rows_of(lines, where, (), name_column):
        if isinstance(row, tuple):
            line, error = row
            raise InputError(f"found a line that cannot be read: {error}", where=f"{where}: line {line}")
        cells = dict(row.cells)
        for names in needs:
            cells.setdefault(names[0], next(cells[name] for name in names if name in cells))
        yield row.line, cells


def _ids_of_tasks(id: str) -> list[str]:
    """The ids behind ``12_[3-5,9%2]``, as squeue without ``-r`` prints tasks that wait; others stay alone.

    Of more tasks than it has room for squeue prints the first ones, and dots. Those after `MOST_TASKS` are
    left out.
    """
    if not id.endswith("]"):
        return [id]
    tasks = re.sub(r"(%\d+)?\]$|,?\.\.\.", "", id.partition("[")[2])
    stem, found = id.partition("[")[0], list[str]()
    for part in filter(None, tasks.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None:
            raise ValueError(f"{id!r} names no tasks")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step < 1:
            raise ValueError(f"{id!r} names no tasks")
        found += [f"{stem}{task}" for task in range(first, last + 1, step)[: MOST_TASKS - len(found)]]
    return found


def _parse_job(row: Mapping[str, str]) -> SlurmJob:
    state = SHORT_STATES.get(row["STATE"], row["STATE"])
    # %R prints the nodes of a job that holds some, and in brackets why another one waits.
    shown = row["NODELIST"]
    reason = row.get("REASON") or (shown.strip("()") if shown.startswith("(") else "")
    hosts = tuple(expand_hostlist(shown)) if state in HOLDING and not shown.startswith("(") and shown else ()
    return SlurmJob(
        row["JOBID"],
        row["USER"],
        row.get("NAME", ""),
        row["PARTITION"],
        state,
        max(_parse_least(row, "NODES"), 1),
        _parse_least(row, "CPUS"),
        _parse_gpus(row.get("TRES_PER_NODE", "")) if "gpu" in row.get("TRES_PER_NODE", "") else 0,
        _parse_memory(row.get("MIN_MEMORY", "")),
        _parse_walltime(row["TIME_LIMIT"]),
        _parse_when(row, "SUBMIT_TIME") or 0.0,
        _parse_when(row, "START_TIME"),
        int(float(row.get("PRIORITY", "0") or 0)),
        reason,
        hosts,
        None if row.get("TIME", "") in ("", "INVALID") else parse_duration(row["TIME"]),
    )


def _parse_least(row: Mapping[str, str], column: str) -> int:
    """A count such as ``2``, ``1K``, or the least of ``2-4``, which a job that waits may have."""
    return int(count_of(row[column].partition("-")[0], column))


class SlurmCluster:
    """Nodes as numbers: what each has, and which partitions it is in."""

    def __init__(self, nodes: Iterable[SlurmNode]) -> None:
        self.nodes = list(nodes)
        self.place = {node.name: place for place, node in enumerate(self.nodes)}
        # One bit a partition in an int64; beyond 62 the sign would be touched. Nodes of further partitions
        # are in none, and jobs for them may use any.
        names = sorted({name for node in self.nodes for name in node.partitions})[:62]
        self._bit = {name: 1 << place for place, name in enumerate(names)}
        self._groups = [self.group(",".join(node.partitions)) for node in self.nodes]
        self._fits: dict[tuple[int, tuple[int, int, int], int], bool] = {}

    def group(self, partitions: str) -> int:
        """The bits of the partitions of a job, ``a,b``; all nodes where none is known."""
        # Several partitions mean any of them; an unknown one must not bar a job from everything.
        return sum({self._bit.get(name.strip("*"), 0) for name in partitions.split(",")}) or -1 & (2**62 - 1)

    def queued(self, job: SlurmJob, now: float) -> QueuedJob:
        """The job as roll-outs know it."""
        # squeue counts CPUs over all nodes; the share of a node is rounded up, so that a job never fits too
        # early.
        each = max(1, -(-job.cpus // job.nodes))
        need = (each, job.gpus, job.memory)
        kind = JobKind(job.user, job.name, job.nodes * max(job.gpus, each), job.walltime)
        running = bool(job.hosts)
        held = tuple(self.place[host] for host in job.hosts if host in self.place)
        # 0 would mean that it waits; a job that has just begun has run for next to nothing.
        so_far = job.ran or 0.0 if job.start is None else now - job.start
        spent = max(so_far, 1e-9) if running else 0.0
        # Nodes that are draining were left out, so a running job may hold fewer here than it has.
        count = len(held) if running else job.nodes
        # The id decides the draws: the same job draws the same lengths in the next forecast, which thus moves
        # only where something has happened.
        seed = zlib.crc32(job.id.encode())
        return QueuedJob(job.id, kind, seed, count, spent, need, self.group(job.partition), held)

    def fits_empty(self, job: SlurmJob) -> bool:
        """Whether the cluster could run it, empty. O(nodes) for the first job of a shape."""
        queued = self.queued(job, 0.0)
        shape = queued.group, queued.need, job.nodes
        if shape not in self._fits:
            able = [
                node
                for node, group in zip(self.nodes, self._groups, strict=True)
                if group & queued.group
                and node.cpus >= queued.need[0]
                and node.gpus >= queued.need[1]
                and (not node.memory or node.memory >= queued.need[2])
            ]
            self._fits[shape] = len(able) >= job.nodes
        return self._fits[shape]

    def current_situation(
        self,
        jobs: Iterable[SlurmJob],
        now: float,
        policy: str = "easy",
        tier: Callable[[SlurmJob], int] = lambda _: 0,
        closed: Callable[[SlurmJob], bool] = lambda _: False,
    ) -> tuple[Situation, list[str]]:
        """What is free, runs and waits for its turn; ids of those that wait for something else.

        Those of a higher ``tier`` go first; those for which the cluster is ``closed`` do not go.
        """
        # Slurm reports no memory where it is not consumed: then there is always enough.
        free = np.array([(node.cpus, node.gpus, node.memory or 2**60) for node in self.nodes], np.int64)
        groups = np.array(self._groups, np.int64)
        running, waiting, unknown = [], [], []
        for job in jobs:
            queued = self.queued(job, now)
            if queued.held:
                free[list(queued.held)] -= np.array(queued.need, np.int64)
                running.append(queued)
            elif job.state == "PENDING":
                # Such a job starts when something happens that a roll-out does not know: no start is
                # foretold.
                if job.reason in HELD_BACK or closed(job) or not self.fits_empty(job):
                    unknown.append(job.id)
                else:
                    waiting.append((-tier(job), -job.priority, job.submitted, job.id, queued))
        # Highest tier, then priority, then age, as Slurm's backfill walks its queue; the id makes the order
        # total.
        waiting.sort(key=lambda one: one[:4])
        nodes = Nodes(0, free.reshape(-1, AMOUNTS), groups)
        return Situation(now, policy, nodes, running, [queued for *_, queued in waiting]), unknown


class EndedJob(NamedTuple):
    """A job of the accounting."""

    job: SlurmJob
    end: float
    ran: float


def ended_jobs(jobs: Iterable[SlurmJob]) -> list[EndedJob]:
    """Those that squeue still shows after their end (``-t all``), and that have run."""
    return [
        EndedJob(job, job.start + job.ran, job.ran)
        for job in jobs
        if job.state in ENDED
        and job.start is not None
        and job.ran is not None
        # Cancelled while it waited it shows nothing; others may have run for less than a second.
        and (job.ran > 0 or job.state != "CANCELLED")
    ]


def read_accounting(text: str, where: str) -> list[EndedJob]:
    """Jobs that have ended, of ``sacct -a -X --parsable2`` with the columns `SACCT`. Raises `InputError`."""
    found = []
    for number, row in _read_table(
        text, where, f"sacct -a -X --parsable2 --format {SACCT}", SACCT_NEEDS, "JobName"
    ):
        try:
            start, end = _parse_when(row, "Start"), _parse_when(row, "End")
            if start is None or is_step(row) or row["State"] in ("RUNNING", "PENDING"):
                continue
            elapsed = "Elapsed" in row or "ElapsedRaw" in row
            ran = elapsed_of(row) if elapsed else None if end is None else end - start
            if ran is None:
                continue
            # Cancelled while it waited: it shows nothing of run times.
            if ran <= 0 and row["State"].startswith("CANCELLED"):
                continue
            nodes = max(1, int(count_of(row.get("NNodes") or row.get("AllocNodes") or "1", "NNodes")))
            tres, _ = resources_of(row, nodes)
            nodes = max(nodes, int(tres.get("node", 1)))
            held = row.get("NCPUS") or row.get("AllocCPUS")
            cpus = int(count_of(held, "NCPUS") if held else tres.get("cpu", 1))
            gpus = -(-int(gpus_of(tres)) // nodes)
            memory = int(tres.get("mem", 0) // nodes)
            submitted = _parse_when(row, "Submit") or start
            walltime = timelimit_of(row)
        except (KeyError, ValueError, Malformed) as error:
            raise InputError(
                f"found a line that cannot be read: {error}", where=f"{where}: line {number}"
            ) from error
        job = SlurmJob(
            row["JobID"],
            row.get("User", ""),
            row.get("JobName", ""),
            row.get("Partition", ""),
            row["State"],
            nodes,
            cpus,
            gpus,
            memory,
            walltime,
            submitted,
            start,
            0,
            "",
            (),
        )
        found.append(EndedJob(job, start + ran if end is None else end, ran))
    return found


def draws_of(
    cluster: SlurmCluster, ended: Iterable[EndedJob], jobs: Iterable[SlurmJob], now: float
) -> StartDraws:
    """Run times of the past, and all submissions in their order."""
    draws = StartDraws()
    # By their ends: run times weigh by how recent they are.
    known = sorted(ended, key=lambda one: one.end)
    seen = {one.job.id for one in known}
    # A job may be in both tables if it ended between the two commands.
    every = [one.job for one in known] + [job for job in jobs if job.id not in seen]
    for job in sorted(every, key=lambda job: job.submitted):
        # What no node could run would wait for ever in every roll-out.
        if job.submitted <= now and cluster.fits_empty(job):
            draws.submit(job.submitted, cluster.queued(job._replace(hosts=()), now))
    for one in known:
        draws.end(one.job.id, cluster.queued(one.job, now).kind, max(one.ran, 0.0))
    return draws


def job_of_sbatch(line: str, user: str, now: float, partition: str) -> SlurmJob:
    """What ``sbatch -N 2 -t 1:00:00 …`` would submit. Raises `InputError` for an option that is not known."""
    words = shlex.split(line)
    words = words[1:] if words[:1] == ["sbatch"] else words
    names = {
        "-N": "nodes",
        "--nodes": "nodes",
        "-n": "tasks",
        "--ntasks": "tasks",
        "-c": "cpus",
        "--cpus-per-task": "cpus",
        "-t": "time",
        "--time": "time",
        "-p": "partition",
        "--partition": "partition",
        "--mem": "memory",
        "--gres": "gres",
        "--gpus-per-node": "gpus",
        "-G": "gpus",
        "--gpus": "gpus",
        "-J": "name",
        "--job-name": "name",
        "--ntasks-per-node": "per_node",
    }
    found: dict[str, str] = {}
    script = "sbatch"
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            script = word
            break  # its arguments follow
        name, equals, value = word.partition("=")
        if not word.startswith("--") and len(word) > 2:
            name, equals, value = word[:2], "=", word[2:]
        if name not in names:
            raise InputError(
                f"found the option {name}, expected one of {', '.join(sorted(names))}", where="--if"
            )
        found[names[name]] = value if equals else (words.pop(0) if words else "")
    try:
        nodes = int(found.get("nodes", "1").split("-")[0])
        # As in sbatch: without --ntasks there is one task a node.
        tasks = int(found.get("tasks", 0)) or nodes * int(found.get("per_node", 1))
        cpus = max(tasks, nodes) * int(found.get("cpus", 1))
        gpus = (
            _parse_gpus(found["gres"])
            if "gpu" in found.get("gres", "")
            else int(found.get("gpus", "0").split(":")[-1])
        )
        wall = _parse_walltime(found.get("time", ""))
    except (ValueError, Malformed) as error:
        raise InputError(f"found {line!r}: {error}", where="--if") from error
    name = found.get("name", script)
    part = found.get("partition", partition)
    memory = _parse_memory(found.get("memory", ""))
    return SlurmJob(
        *("this", user, name, part, "PENDING", nodes, cpus, gpus, memory, wall, now, None, 0, "", ())
    )


def job_alternatives(job: SlurmJob, cluster: SlurmCluster) -> list[tuple[str, SlurmJob]]:
    """What its owner could request instead: less time, another partition, less memory, fewer nodes."""
    found: list[tuple[str, SlurmJob]] = []
    if job.walltime:
        # What costs its owner least comes first.
        parts = (2, 4)
        found += [(f"walltime / {part}", job._replace(walltime=job.walltime / part)) for part in parts]
    every = sorted({name for node in cluster.nodes for name in node.partitions})
    found += [(f"partition {name}", job._replace(partition=name)) for name in every if name != job.partition]
    if job.memory:
        found.append(("memory / 2", job._replace(memory=job.memory // 2)))
    if job.nodes > 1:
        fewer = job._replace(nodes=-(-job.nodes // 2), cpus=-(-job.cpus // 2))
        found.append((f"{fewer.nodes} nodes", fewer))
    return [(words, one) for words, one in found if cluster.fits_empty(one)]
