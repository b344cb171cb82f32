"""Slurm's commands: how they are called, what they print, and what their complaints mean.

Only commands that every user has; their plain output, which has kept its form for ten years and more
(JSON needs plugins that many clusters lack). Times are queried in seconds since the epoch.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from dovetail.batch.system import BatchError
from dovetail.errors import InputError
from dovetail.model import Cluster, Device, Node, Seconds
from dovetail.model.hostlist import expand_hostlist
from dovetail.records import dataclass

TIMEOUT = 60.0
MEBIBYTE = 1 << 20
UNKNOWN = ("", "Unknown", "N/A", "None", "(null)", "NONE")
SHARES = ("mps", "shard")
"""Generic resources that are parts of others."""

_GROUP = re.compile(r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+)(?: GRES=(\S*))?")
_GRES = re.compile(r"(?P<kind>[A-Za-z_]\w*)(?::(?P<model>[A-Za-z_][\w.-]*))?:(?P<count>\d+)(?:\([^)]*\))?")
_USED_GRES = re.compile(r"(?:^|,)gres/(\w+)=(\d+)")
_HINTS = (
    (
        "ccounting storage is disabled",
        "this cluster keeps no accounting (slurmdbd): a file that sacct printed elsewhere can be given",
    ),
    ("nable to contact slurm controller", "the controller does not answer; try again when it is back"),
    ("nvalid account", "name an account that you may use, e.g. slurm = ['--account=NAME'] in the job file"),
    ("nvalid partition", "'sinfo' lists the partitions that there are"),
    ("nvalid qos", "'sacctmgr show assoc user=$USER format=qos' lists those that you may use"),
    ("onfiguration is not available", "no node of that partition has what the job needs"),
    ("equested time limit is invalid", "the walltime is above the partition's limit ('sinfo -o %P,%l')"),
    ("xceeds partition time limit", "the walltime is above the partition's limit ('sinfo -o %P,%l')"),
    ("memory specification can not be satisfied", "no node of that partition has so much memory"),
    ("nvalid job id", "the job is gone, or belongs to another cluster"),
    ("ob violates accounting", "a limit of the account or QOS is reached; wait, or use another"),
    ("nvalid feature", "'sinfo -o %f' lists the features that --constraint can name"),
    ("ob has been revoked", "the allocation has ended; begin another one"),
    ("already completing or completed", "the allocation has ended; begin another one"),
    ("xpired", "the allocation has ended; begin another one"),
)
_PASSING = (
    "nable to contact slurm controller",
    "ocket timed out",
    "emporarily unable",
    "onnection refused",
    "onnection timed out",
    "lurmctld communication",
    "ommunication connection failure",
    "xisting connection",
    "o response from controller",
    "nvalid authentication credential",  # munged is just starting again
    "uthentication error",
)


_NO_PLACE = re.compile(
    r"Submit\w*Limit|emporarily unable to accept job|Resource temporarily unavailable|MaxArraySize"
    r"|job array specification"
)
"""Slurm's message where a job, or so large an array, may come in later (or in parts)."""
_NUMBER = re.compile(r"\d+(?:;\S*)?\n")
_SLEEPS = "emporarily unable to accept job"
"""sbatch tries again for two minutes by itself, which is for its caller to do."""


class SlurmError(BatchError):
    """A command of Slurm failed."""


def run_command(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    stdin: str | None = None,
    folder: str | None = None,
    plain: bool = False,
) -> tuple[str, str]:
    """Standard output and error of a command that worked. Raises `SlurmError` with its output and a hint.

    Times come in seconds, whatever the user has set; with ``plain`` the environment stays as it is, since a
    job gets it. The program is found on the PATH of this process, not on that of ``environ``.
    """
    env = dict(os.environ if environ is None else environ)
    # One form for all versions and sites: seconds since the epoch, and messages in English.
    if not plain:
        env |= {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
    if folder is not None and not os.path.isdir(folder):
        raise SlurmError(f"{argv[0]}: the working folder {folder!r} cannot be entered")
    try:
        process = subprocess.Popen(
            argv,
            # Looked up here: the job's PATH may lead to our own shims, which would call us again.
            executable=shutil.which(argv[0]) or argv[0],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"{argv[0]} was not found in PATH: Slurm's commands are needed, on a machine of its cluster"
        ) from None
    except OSError as error:
        raise SlurmError(f"{argv[0]} cannot be started: {error.strerror}") from error
    with process:
        output, errors, ended = _await_output(process, argv[0], stdin, timeout)
    if ended and process.returncode:
        raise explain_refusal(argv[0], errors or output or f"it ended with status {process.returncode}")
    return output, errors


def read_rows(argv: Sequence[str], columns: int, *, timeout: float = TIMEOUT) -> list[list[str]]:
    """What a command prints, line by line: its columns, between which it puts ``|``; the last may have more.

    Raises `SlurmError`.
    """
    return [line.split("|", columns - 1) for line in run_command(argv, timeout=timeout)[0].splitlines()]


def _await_output(
    process: subprocess.Popen[str], program: str, stdin: str | None, timeout: float
) -> tuple[str, str, bool]:
    """Its output and errors until it ends, and whether it has. Raises `SlurmError` where it does not answer.

    One that has given a job's number and goes on waits for the job's end (``sbatch --wait``).
    """
    deadline = time.monotonic() + timeout
    given = stdin
    try:
        while True:
            try:
                patience = min(1.0, max(0.0, deadline - time.monotonic()))
                return *process.communicate(given, timeout=patience), True
            except subprocess.TimeoutExpired as error:
                given = None  # it has its input, and takes none a second time
                words = (error.stderr or b"").decode("utf-8", "replace")
                output = (error.stdout or b"").decode("utf-8", "replace")
                # With --wait it goes on until the job's end: the number is all that is needed.
                if program == "sbatch" and _NUMBER.fullmatch(output):
                    return output, words, False
                # It retries by itself for a minute: our callers have a queue of their own to wait in.
                if _SLEEPS in words:
                    raise explain_refusal(program, words) from None
                if time.monotonic() >= deadline:
                    late = f"{program} has not answered within {timeout:g} s"
                    raise SlurmError(late, passing=True) from None
    finally:
        if process.poll() is None:
            process.kill()


def explain_refusal(program: str, output: str) -> SlurmError:
    """A command's message in a sentence, with what to do about it."""
    lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
    relevant = [line for line in lines if "error" in line] or lines or ["it gave no reason"]
    # "sbatch: error: Batch job submission failed: Invalid account …": the last part is the reason.
    text = re.sub(rf"^{re.escape(program)}: (?:(?:error|fatal): )?", "", relevant[-1]).rstrip(".")
    hint = next((hint for words, hint in _HINTS if words in text), "")
    no_place = _NO_PLACE.search(output) is not None
    # Of several lines the one with the limit names which it is.
    if no_place:
        named = next((line for line in lines if "Limit" in line), "")
        text, hint = (named.rpartition("error: ")[2] or text), "it comes in when there is a place"
    passing = not no_place and any(words in text for words in _PASSING)
    return SlurmError(
        f"{program}: {text}" + (f": {hint}" if hint else ""), passing=passing, no_place=no_place
    )


def parse_fields(line: str) -> dict[str, str]:
    """``A=1 B=2 …`` as scontrol prints it on one line; of a name that comes twice the first."""
    # The first of two: scontrol repeats some names for parts of a job.
    found: dict[str, str] = {}
    for word in line.split():
        name, equals, value = word.partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def parse_moment(text: str) -> Seconds | None:
    """A time as Slurm prints it, in seconds since the epoch; ``None`` where it has none."""
    return float(text) if text.isdecimal() else None


def read_configuration(names: Iterable[str]) -> dict[str, str]:
    """Some of the cluster's settings (``scontrol show config``), by name."""
    wanted = set(names)
    found: dict[str, str] = {}
    for line in run_command(["scontrol", "show", "config"])[0].splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() in wanted:
            found[name.strip()] = value.strip()
    return found


# ----------------------------------------------------------------------------------------------- nodes


Gres = tuple[str, str, int]
"""Generic resources of one sort: kind, model, count."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Slurm's facts of a node; memory is bytes. What begins with ``used`` is in use now."""

    name: str
    address: str
    cpus: int
    memory: int
    gres: tuple[Gres, ...]
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    state: str
    used_cpus: int
    used_memory: int
    used_gres: Mapping[str, int]

    @property
    def is_down(self) -> bool:
        """Whether Slurm has given the node up."""
        return any(word in self.state for word in ("DOWN", "FAIL", "ERROR", "POWERED_DOWN", "FUTURE"))

    @property
    def takes_jobs(self) -> bool:
        """Whether Slurm will start something there, now or when it is free again."""
        return not self.is_down and not any(word in self.state for word in ("DRAIN", "UNKNOWN", "MAINT"))


def gres_of(text: str) -> tuple[Gres, ...]:
    """``gpu:a100:4(S:0-1),fpga:1`` or ``gpu:2(IDX:0-1)`` as kind, model and count of each."""
    return tuple(
        (match["kind"], match["model"] or "", int(match["count"]))
        for match in _GRES.finditer("" if text in UNKNOWN else text)
        if match["kind"] not in SHARES and int(match["count"])
    )


def node_facts(names: Sequence[str] = ()) -> list[NodeFacts]:
    """All nodes of the cluster, or those named. Raises `SlurmError`."""
    output, _ = run_command(["scontrol", "-o", "show", "node", *([",".join(names)] if names else [])])
    return [
        _parse_node_facts(parse_fields(line)) for line in output.splitlines() if line.startswith("NodeName=")
    ]


def _parse_node_facts(about: Mapping[str, str]) -> NodeFacts:
    def split_words(name: str) -> tuple[str, ...]:
        text = about.get(name, "")
        return () if text in UNKNOWN else tuple(text.split(","))

    return NodeFacts(
        name=about["NodeName"],
        address=about.get("NodeAddr", about["NodeName"]),
        cpus=int(about.get("CPUEfctv") or about.get("CPUTot") or 0),
        memory=int(about.get("RealMemory", 0)) * MEBIBYTE,
        gres=gres_of(about.get("Gres", "")),
        features=split_words("ActiveFeatures"),
        partitions=split_words("Partitions"),
        state=about.get("State", "UNKNOWN"),
        used_cpus=int(about.get("CPUAlloc", 0)),
        used_memory=int(about.get("AllocMem", 0)) * MEBIBYTE,
        used_gres={kind: int(n) for kind, n in _USED_GRES.findall(about.get("AllocTRES", ""))},
    )


class NodeTable:
    """Slurm's facts of nodes: one ``scontrol`` in ``fresh`` seconds for all callers. For many threads."""

    def __init__(self, fresh: Seconds) -> None:
        self._fresh = fresh
        self._lock = threading.Lock()
        self._facts: dict[str, NodeFacts] = {}
        self._covers: frozenset[str] = frozenset()  # names of the last query; none: all nodes
        self._asked_at = -math.inf

    def node_facts(self, names: Iterable[str] = ()) -> dict[str, NodeFacts]:
        """All nodes of the cluster, or those named, by name. Raises `SlurmError`."""
        wanted = frozenset(names)
        with self._lock:
            covered = not self._covers or (wanted and wanted <= self._covers)
            if not covered or time.monotonic() - self._asked_at >= self._fresh:
                known = wanted | self._covers if wanted and self._covers else wanted
                self._covers, self._asked_at = frozenset(), -math.inf
                self._facts = {fact.name: fact for fact in node_facts(sorted(known))}
                self._covers, self._asked_at = known, time.monotonic()
            return {name: fact for name, fact in self._facts.items() if not wanted or name in wanted}

    def forget_facts(self) -> None:
        """The facts have changed: the next call runs ``scontrol`` again."""
        with self._lock:
            self._asked_at = -math.inf


def devices_of(gres: Iterable[Gres]) -> tuple[Device, ...]:
    """Devices of a node; those of one kind are numbered through, as CUDA_VISIBLE_DEVICES counts them."""
    counts: dict[str, int] = {}
    devices: list[Device] = []
    for kind, model, count in gres:
        for _ in range(count):
            devices.append(Device(kind, model, counts.get(kind, 0)))
            counts[kind] = counts.get(kind, 0) + 1
    return tuple(devices)


# ------------------------------------------------------------------------------------------ allocations


@dataclass(frozen=True, slots=True)
class Share:
    """What was allotted of a node; memory is bytes, ``None`` where it is not limited."""

    cpus: int
    memory: int | None
    gres: tuple[Gres, ...]


@dataclass(frozen=True, slots=True)
class Allotment:
    """An allocation as Slurm describes it: its nodes with what was allotted of each, and when it ends.

    ``end`` is in seconds since the epoch, ``None`` where it has no end. ``about`` holds the other fields
    that Slurm shows.
    """

    job: str
    state: str
    end: Seconds | None
    shares: Mapping[str, Share]
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether anything can be started in it."""
        return self.state == "RUNNING"


def current_job(environ: Mapping[str, str]) -> str:
    """The allocation that we are in. Raises `InputError` where we are in none."""
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
    if not job:
        raise InputError(
            "found no SLURM_JOB_ID, expected to be inside an allocation: begin one with salloc or sbatch; or "
            "hand jobs to Slurm's queue with --executor slurm-queue",
            where="executor slurm",
        )
    return job


def find_allotment(job: str) -> Allotment:
    """The allocation of this job id. Raises `SlurmError`."""
    output, _ = run_command(["scontrol", "-o", "-d", "show", "job", job])
    line = next((line for line in output.splitlines() if line.startswith("JobId=")), "")
    about = parse_fields(line)
    shares: dict[str, Share] = {}
    for hosts, cpus, memory, gres in _GROUP.findall(line):
        share = Share(len(expand_hostlist(f"[{cpus}]")), int(memory) * MEBIBYTE or None, gres_of(gres))
        shares.update(dict.fromkeys(expand_hostlist(hosts), share))
    unlimited = about.get("TimeLimit") in ("UNLIMITED", "INFINITE")
    end = None if unlimited else parse_moment(about.get("EndTime", ""))
    return Allotment(job, about.get("JobState", "UNKNOWN"), end, shares, about)


def cluster_of(nodes: Iterable[NodeFacts], found: Allotment, features: Sequence[str]) -> Cluster:
    """What an allotment gives of these nodes, in their order; cores are numbered within it.

    A node's CPU model is the one of ``features`` that it has: only they keep the history of nodes apart.
    """
    made: list[Node] = []
    for node in nodes:
        if node.name in found.shares:
            share = found.shares[node.name]
            made.append(
                Node(
                    node.name,
                    tuple(range(share.cpus)),
                    devices_of(_with_models(share.gres, node.gres)),
                    share.memory,
                    cpu_model=cpu_model(node, features),
                    partitions=node.partitions,
                )
            )
    return Cluster(tuple(made), f"Slurm allocation {found.job}")


def cpu_model(node: NodeFacts, features: Sequence[str]) -> str:
    """The first of these features that the node has."""
    return next((feature for feature in features if feature in node.features), "")


def _with_models(given: Iterable[Gres], known: Sequence[Gres]) -> Iterator[Gres]:
    """An allotment may leave the model out where the node has one only."""
    for kind, model, count in given:
        models = {m for k, m, _ in known if k == kind}
        yield kind, model or (models.pop() if len(models) == 1 else ""), count
