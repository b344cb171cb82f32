"""Batch jobs of Slurm: submits one with sbatch, foresees its start, and reads its state from squeue."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log
from statistics import pstdev

from dovetail.batch.system import BatchStatus, JobFacts, Phase
from dovetail.files.tables import Malformed
from dovetail.model import HOST_CPUS, WHOLE_POOL, Cluster, Node, Request, Seconds, Shape, State, TimeUsed
from dovetail.model.batch_options import of_script
from dovetail.workloads.sacct_rows import parse_tres
from dovetail_slurm.commands import (
    MEBIBYTE,
    NodeFacts,
    SlurmError,
    cpu_model,
    devices_of,
    node_facts,
    parse_fields,
    parse_moment,
    read_rows,
    run_command,
)

_START = re.compile(r"to start at (\S+) using")
_FORMAT = "%i|%T|%N|%S|%r|%o"
_BATCH = re.compile(r"/queue/([0-9a-f]{12})\.sh(?: |$)")
"""What Slurm calls a batch of ours: the file that was handed over, whatever the job's name is."""
ORDINARY = frozenset({"None", "Priority", "Resources", "Dependency", "BeginTime", "Cleaning", "N/A", ""})
"""Why jobs wait in a queue where all is well."""
HOPELESS = frozenset(
    {
        *("BadConstraints", "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed"),
        *("PartitionTimeLimit", "PartitionNodeLimit", "DependencyNeverSatisfied"),
    }
)
"""Why jobs wait that will never start, though Slurm has taken them."""
OF_ONE_JOB = re.compile(r"(?:Assoc|QOS)(?:Max\w+Per(?:Job|Node)(?:Limit)?|Min\w+)")
"""Limits of an association or a QOS that a job exceeds by itself: it never starts either."""
OF_SEVERAL = re.compile(r"QOS(?:Max(?!Jobs)\w+Per(?:User|Account)(?:Limit)?|Grp(?!Jobs|Submit)\w+)")
"""Limits of a QOS on what several jobs hold together: one that exceeds it alone never starts."""


TERMINAL = {
    "CANCELLED": State.CANCELLED,
    "DEADLINE": State.CANCELLED,
    "REVOKED": State.CANCELLED,
    "TIMEOUT": State.TIMEOUT,
    "NODE_FAIL": State.NODE_FAIL,
    "BOOT_FAIL": State.NODE_FAIL,
    "PREEMPTED": State.NODE_FAIL,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "FAILED": State.FAILED,
    "COMPLETED": State.COMPLETED,
}
"""How a job has ended."""
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
"""States of jobs in the queue, those that Slurm has put back there among them."""


def status_of(
    id: str, word: str, nodes: str, start: str, *, batch: str = "", reason: str = ""
) -> BatchStatus:
    """A job as squeue or sacct print it."""
    end = TERMINAL.get(word)
    if end is not None:
        phase = Phase.ENDED
    elif word in WAITS:
        phase = Phase.WAITING
    else:
        phase = Phase.ENDING if word == "COMPLETING" else Phase.RUNNING
    waits = word == "PENDING"
    why = reason if waits and reason not in ORDINARY else ""
    hopeless = waits and (reason in HOPELESS or OF_ONE_JOB.fullmatch(reason) is not None)
    return BatchStatus(id, phase, word, nodes, parse_moment(start), batch, why, end, hopeless)


def cluster_of_partitions(
    partitions: Sequence[str], features: Sequence[str], closed: Sequence[str] = ()
) -> Cluster:
    """The nodes that take jobs, of these partitions; into the ``closed`` only jobs go that name them.

    Raises `SlurmError`.
    """
    nodes: list[Node] = []
    for fact in node_facts():
        own = tuple(name for name in fact.partitions if name in partitions or name in closed)
        if own and fact.takes_jobs:
            cores, devices = tuple(range(fact.cpus)), devices_of(fact.gres)
            model = cpu_model(fact, features)
            nodes.append(Node(fact.name, cores, devices, fact.memory, 0, model, own))
    return Cluster(tuple(nodes), "Slurm queue", closed=frozenset(closed))


def job_options(shape: Shape, nodes: Sequence[Node], tasks: int = 1) -> list[str]:
    """What sbatch is given for such a job, the user's own words last; ``nodes`` are its partition's.

    Partitions are those of the shape: a word of the user's may name others, into which the job is not to go.
    """
    script = of_script(shape.options)
    if script is not None:
        # A script carries its own request; only what must win is added.
        return script_overrides(shape)
    request = shape.request
    options = [f"--nodes={request.nodes}", f"--ntasks-per-node={tasks}"]
    options.append(f"--cpus-per-task={cpus_of_task(shape, nodes, tasks)}")
    options += _device_options(request)
    # Rounded up: Slurm counts in MiB, and less would end the job too early.
    if request.memory:
        options.append(f"--mem={ceil(request.memory / MEBIBYTE)}M")
    options += time_options(shape.walltime)
    # The user's own words after ours, so that they win, but for the partition, which was decided.
    return [*options, *shape.options, f"--partition={shape.target}"]


def cpus_of_task(shape: Shape, nodes: Sequence[Node], tasks: int = 1) -> int:
    """CPUs of each task of such a job; Slurm gives every one at least one."""
    return max(1, _cpus_per_node(shape.request, nodes) // tasks)


def script_overrides(shape: Shape) -> list[str]:
    """What sbatch is given beside a batch script: what wins over its own lines, and its partition."""
    script = of_script(shape.options)
    assert script is not None
    # Elements go as they are handed over, so their indices are set by the call.
    return [*(word for word in script[1] if not is_array(word)), f"--partition={shape.target}"]


def is_array(word: str) -> bool:
    """Whether an option names the tasks of an array: those that go together are known when they go."""
    return word.startswith(("--array=", "-a"))


def _device_options(request: Request) -> list[str]:
    devices = [(kind, ceil(count)) for kind, count in request.devices]
    if not devices:
        return []
    # With several allowed models Slurm's gres can name none.
    model = f"{request.models[0]}:" if len(request.models) == 1 else ""
    return ["--gres=" + ",".join(f"{kind}:{model}{count}" for kind, count in devices)]


def time_options(walltime: Seconds | None) -> list[str]:
    """A walltime as sbatch takes it."""
    if walltime is None:
        return []
    minutes, seconds = divmod(max(1, ceil(walltime)), 60)
    return [f"--time={minutes}:{seconds:02d}"]


def _cpus_per_node(request: Request, nodes: Sequence[Node]) -> int:
    """CPUs on each node; all of them are those of the smallest node that can run the job."""
    # The smallest able node, so that the request fits on every node of the partition.
    if request.cpus >= 0:
        return request.cpus
    able = [node for node in nodes if _holds_request(node, request)]
    if request.cpus == HOST_CPUS:
        return min((node.host_cpus for node in able), default=1)
    assert request.cpus == WHOLE_POOL
    return min((node.cpus for node in able), default=1)


def _holds_request(node: Node, request: Request) -> bool:
    held = [(device.kind, device.model) for device in node.devices]
    return all(
        sum(kind == wanted and (not request.models or model in request.models) for kind, model in held)
        >= ceil(count)
        for wanted, count in request.devices
    )


STEERING = (
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_CLUSTERS",
    "SLURM_JWT",
    "SBATCH_CLUSTERS",
    "SBATCH_TEST_ONLY",
    "MUNGE_SOCKET",
)
"""Variables that choose the cluster of Slurm's commands: not for a submitter to choose."""


def steer_environment(environ: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job, with which sbatch reaches the cluster that we are a guest of."""
    # The job's own values would send it to another cluster than the one that was chosen.
    found = {name: value for name, value in environ.items() if name not in STEERING}
    return found | {name: ours[name] for name in STEERING if name in ours}


def send_batch(
    options: Sequence[str],
    script: str,
    *,
    name: str,
    indices: Sequence[int] | None,
    log: str,
    environ: Mapping[str, str],
) -> str:
    """Hand a batch job of ours over, with ``indices`` as an array; returns its id. Raises `SlurmError`.

    It goes back into the queue where Slurm preempts it, or its node goes down.
    """
    argv = [
        *("sbatch", "--parsable", "--requeue", "--export=ALL", f"--job-name={name}"),
        *(f"--output={log}", "--open-mode=append", "--chdir=/", *_array_option(indices), *options, script),
    ]
    output, _ = run_command(argv, environ=environ)
    return output.strip().partition(";")[0]


def send_script(
    options: Sequence[str],
    script: str,
    arguments: Sequence[str],
    *,
    name: str,
    indices: Sequence[int] | None,
    folder: str,
    environ: Mapping[str, str],
    at_once: str,
    is_held: bool,
) -> str:
    """Hand a user's batch script over as it is, from ``folder``; returns its id. Raises `SlurmError`.

    Of an array so many tasks run ``at_once`` (empty: all). One with an option to be held (``is_held``) has
    been held already, by the service.
    """
    argv = [
        *("sbatch", "--parsable", f"--job-name={name}", *_array_option(indices, at_once), *options),
        *(script, *arguments),
    ]
    output, _ = run_command(argv, environ=environ, folder=folder, plain=True)
    id = output.strip().partition(";")[0]
    # Held until everything is in place: the release is ours, since the service held it before.
    if is_held:
        run_command(["scontrol", "release", id])
    return id


def _array_option(indices: Sequence[int] | None, at_once: str = "") -> list[str]:
    """An array of these indices: ``0-3,7%2``."""
    if indices is None:
        return []
    parts: list[list[int]] = []
    for index in indices:
        if parts and parts[-1][1] + 1 == index:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return [
        "--array=" + ",".join(f"{a}-{b}" if b > a else str(a) for a, b in parts) + (at_once and f"%{at_once}")
    ]


def predict_start(options: Sequence[str]) -> Seconds:
    """When such a job would start, in seconds since the epoch. Raises `SlurmError`."""
    argv = ["sbatch", "--test-only", "--job-name=dovetail-asks", *options]
    output, errors = run_command(argv, stdin="#!/bin/sh\ntrue\n")
    match = _START.search(errors + output)
    start = None if match is None else parse_moment(match[1])
    if start is None:
        raise SlurmError(f"sbatch --test-only: unknown answer: {(errors + output).strip()[:200]!r}")
    return start


def query_jobs() -> dict[str, BatchStatus]:
    """All batch jobs of this user that Slurm has not forgotten, by id, each task of an array by its own.

    One squeue for all of them. Raises `SlurmError`.
    """
    ours = ("squeue", "-h", "-r", "-t", "all", "-u", str(os.getuid()), "-o", _FORMAT)
    found: dict[str, BatchStatus] = {}
    for id, state, nodes, start, reason, command in read_rows(ours, 6):
        match = _BATCH.search(command)
        batch = match[1] if match else ""
        found[id] = status_of(id, state, nodes, start, batch=batch, reason=reason)
    return found


def exceeds_alone(id: str) -> bool:
    """Whether a job requests more than its QOS lets all jobs of a user, an account or everybody hold.

    Raises `SlurmError`.
    """
    about = parse_fields(run_command(["scontrol", "-o", "show", "job", id])[0])
    columns = "format=MaxTRESPU,MaxTRESPA,GrpTRES"
    rows = read_rows(["sacctmgr", "-nP", "show", "qos", about.get("QOS", ""), columns], 3)
    try:
        wanted = parse_tres(about.get("ReqTRES") or about.get("TRES", ""))
        limits = [most for row in rows for text in row for most in parse_tres(text).items()]
    except Malformed as error:
        raise SlurmError(f"what job {id} requests, or its QOS allows, cannot be read: {error}") from None
    return any(wanted.get(name, 0.0) > most for name, most in limits)


def look_again(ids: Iterable[str], *, accounting: bool) -> dict[str, BatchStatus]:
    """What is known of jobs that squeue names no more: from the accounting, where there is one."""
    wanted = set(ids)
    if not wanted or not accounting:
        return {}
    jobs = ",".join(sorted({id.partition("_")[0] for id in wanted}))
    known = ("sacct", "-n", "-X", "-P", "-j", jobs, "-o", "JobID,State,NodeList,Start")
    found: dict[str, BatchStatus] = {}
    for id, state, nodes, start in read_rows(known, 4):
        if id in wanted:
            nodes = "" if nodes.startswith("None") else nodes
            found[id] = status_of(id, state.split()[0], nodes, start)
    return found


def facts_of(job: str, *, accounting: bool) -> dict[str, JobFacts]:
    """A job at length, of an array each task that has started, by id. Raises `SlurmError`.

    Slurm itself forgets a job some minutes after its end; the accounting knows its exit status then.
    """
    try:
        output, _ = run_command(["scontrol", "show", "job", job])
    except SlurmError as error:
        if error.passing or not accounting:
            raise
        return _accounted_facts(job)
    return dict(_parse_job_facts(block) for block in output.split("\n\n") if "JobId=" in block)


def _parse_job_facts(block: str) -> tuple[str, JobFacts]:
    about: dict[str, str] = {}
    for line in block.splitlines():
        name, _, value = line.strip().partition("=")
        if name in ("StdOut", "StdErr", "Command", "WorkDir", "Comment"):  # which may have blanks inside
            about[name] = value
        else:
            about |= parse_fields(line)
    array, task = about.get("ArrayJobId"), about.get("ArrayTaskId")
    id = about["JobId"] if array is None else f"{array}_{task}"
    return id, JobFacts(
        about.get("JobState", ""),
        _exit_code(about.get("ExitCode", "0:0")),
        parse_moment(about.get("StartTime", "")),
        parse_moment(about.get("EndTime", "")),
        about.get("StdOut", ""),
        about.get("StdErr", ""),
        int(about.get("Restarts", 0)),
    )


def _accounted_facts(job: str) -> dict[str, JobFacts]:
    columns = "JobID,State,ExitCode,Start,End"
    known = read_rows(["sacct", "-n", "-X", "-P", "-j", job, "-o", columns], 5)
    return {
        id: JobFacts(state.split()[0], _exit_code(status), parse_moment(start), parse_moment(end), "", "")
        for id, state, status, start, end in known
    }


def _exit_code(text: str) -> int:
    """``1:0`` is the status 1, ``0:9`` is an end by signal 9."""
    status, _, signal = text.partition(":")
    return -int(signal) if signal.isdecimal() and int(signal) else int(status or 0)


def goes_to(shape: Shape, partitions: Iterable[str]) -> bool:
    """Whether such a job may run on a node of these partitions."""
    return not set(shape.target.split(",")).isdisjoint(partitions)


def count_fitting(shape: Shape, cpus: int, nodes: Iterable[NodeFacts]) -> int:
    """How many such jobs, of so many CPUs a node, find what they need free now on these ``nodes``."""
    usable = [node for node in nodes if node.takes_jobs and goes_to(shape, node.partitions)]
    return sum(_times_fitting(node, cpus, shape.request) for node in usable) // shape.request.nodes


def _times_fitting(node: NodeFacts, cpus: int, request: Request) -> int:
    """How often the request fits into what is free of a node."""
    fits = [(node.cpus - node.used_cpus) // cpus]
    if request.memory:
        counted = ceil(request.memory / MEBIBYTE) * MEBIBYTE
        fits.append((node.memory - node.used_memory) // counted)
    for kind, count in request.devices:
        held = sum(n for k, _, n in node.gres if k == kind)
        fits.append((held - node.used_gres.get(kind, 0)) // ceil(count))
    return max(0, min(fits))


NO_LIMIT = 365 * 24 * 60
"""Minutes that Slurm notes for a job without a time limit on a partition without one: no user's estimate."""
Line = tuple[str, bool]
"""A partition, and whether jobs there hold devices."""


def times_used(days: int = 2) -> dict[Line, TimeUsed]:
    """What jobs of the last days used of their walltimes, as far as the accounting lets us see them.

    Jobs without a walltime count for nothing.

    Raises `SlurmError` where there is none.
    """
    columns = "Partition,State,ElapsedRaw,TimelimitRaw,AllocTRES"
    period = ("-S", f"now-{days}days", "-E", "now")
    everybody = ("sacct", "-a", "-n", "-X", "-P", *period, "-o", columns)
    found: dict[Line, list[tuple[float, float]]] = {}
    for partition, state, elapsed, limit, given in read_rows(everybody, 5, timeout=20.0):
        if state not in ("COMPLETED", "FAILED", "TIMEOUT") or not limit.isdecimal() or not int(elapsed):
            continue
        if 0 < int(limit) < NO_LIMIT:
            found.setdefault((partition, "gres/" in given), []).append((float(elapsed), 60.0 * int(limit)))
    return {
        line: TimeUsed(
            min(1.0, sum(elapsed for elapsed, _ in jobs) / sum(limit for _, limit in jobs)),
            pstdev(log(elapsed / limit) for elapsed, limit in jobs),
            len(jobs),
        )
        for line, jobs in found.items()
    }
