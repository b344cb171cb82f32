"""Heads of real scripts, and forms of options: what a real sbatch makes of them beside what the reader does.

For each: whether sbatch takes it, and where both do, the fields of ``scontrol show job`` of a held job. What
differs stands below with its reason; anything else fails. Nodes are declared, and none runs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from batch_heads import CORPUS, FORMS, Head, heads
from slurm_cluster import SlurmCluster, needs_slurm
from slurm_fields import differences, fields_of

from dovetail.errors import InputError
from dovetail.model.hostlist import expand_hostlist
from dovetail.testing.builders import full
from dovetail.workloads.batch.script import BatchScript, read_script

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

EVERY = full(1, 12)
"""One head in so many."""
SITE = re.compile(
    r"[Ii]nvalid (?:partition|job array|feature|license|entry for --cluster)|Requested reservation is invalid"
    r"|Invalid node name|Problem talking to database|gres\) specification$"
)
"""What sbatch refuses because this site lacks it; a service passes it over, or has partitions of its own."""
DIFFERENT = {
    "--partition=": "an empty name is none, with a warning",
    "hetjob": "jobs of several components are refused",
    "packjob": "jobs of several components are refused",
    "--container=/x": "jobs in containers are refused",
    "--uid=0": "jobs run as the service's account",
    "--gid=0": "jobs run as the service's account",
    "--help": "prints a page; refused where a job is submitted",
    "--usage": "prints a page; refused where a job is submitted",
    "--version": "prints a version; refused where a job is submitted",
    "--hint=help": "prints a page; refused where a job is submitted",
    "--gres=help": "prints a page; refused where a job is submitted",
    "--test-only": "submits no job; refused where a job is submitted",
    "--wrap=true": "a command in the place of a script belongs on the command line",
    "-G a100:1,v100:1": "a job has devices of one type",
    "--gres=gpu:a100:1,gpu:v100:1": "a job has devices of one type",
    "--dependency=afterok:1,afterok:2?afterok:3": "dependencies are all wanted, or one of them is",
    "-N 0-0": "no node is no job",
    "--array=1-3,%2": "sbatch adds the index 0",
    "--gres=gpu:-1": "sbatch takes it, and no such job could run",
    "--signal=99": "there is no such signal to send",
    "--share": "a spelling of earlier versions",
    "--workdir=/tmp": "a spelling of earlier versions",
    "--tres-per-task=cpu=2": "an option of later versions",
    "--begin=2031-02-29": "there is no such day",
    "--cpu-freq=nosuch": "frequencies stay as they are, with a warning",
    "--bbf=/nosuch": "there is no burst buffer, with a warning",
    "--distribution=arbitrary": "tasks are not distributed, with a warning",
    "@SBATCH_TIMELIMIT=": "an empty variable is none",
    "@SBATCH_CPUS_PER_GPU=2;;-G 1 -c 3": "the script wins over the environment, as in later versions",
    "$--mem=1G;;--mem-per-cpu=10M": "the command line wins over the script, as in later versions",
    "$--mem-per-cpu=10M;;--mem=1G": "the command line wins over the script, as in later versions",
    "$-c 1;;--cpus-per-gpu=4 -G 1": "the command line wins over the script, as in later versions",
    "--gpus=v100:4,a100:1": "a job has devices of one type",
    "--begin=2030-02-30": "there is no such day",
    "--begin=2/30": "there is no such day",
    '--begin="16:00 17:00"': "a moment has one time of day",
    "--signal=65@10": "there is no such signal to send",
    "--wo=/tmp": "a spelling of earlier versions",
    "--sha": "a spelling of earlier versions",
    "@SBATCH_CONTAINER=/x": "jobs in containers are refused",
    "~#PBS -l walltime=1:00:00;;-N2": "lines of other systems are passed over, with a warning",
    "~#BSUB -W 10;;-N2": "lines of other systems are passed over, with a warning",
    "~#PBS -l nodes=2": "lines of other systems are passed over, with a warning",
    "~#PBS -N a;;-n 2": "lines of other systems are passed over, with a warning",
    "~#BSUB -n 2": "lines of other systems are passed over, with a warning",
}
"""Heads of which one is refused or different by design."""
UNLIKE = {
    "@SBATCH_OUTPUT=;;-o x": "an empty variable is none",
    "@SBATCH_TRES_PER_TASK=cpu=2": "an option of later versions",
    "--dependency=afterany:2_3:2_[5,7]": "Slurm drops what waits for elements that are not there",
    "-N 0": "Slurm counts no task until the job starts",
    "-N 0-2": "Slurm counts no task until the job starts",
    "--exclusive;;--exclusive=mcs": "whole nodes, with a warning",
    "-t 99999999": "Slurm counts no longer than 2^32 s",
    "--mem-per-cpu=0": "Slurm writes 0 a CPU as 0 a node; both mean all",
    "--exclusive=user": "whole nodes, with a warning",
    "--exclusive=mcs": "whole nodes, with a warning",
    "@SBATCH_EXCLUSIVE=user": "whole nodes, with a warning",
    "--reboot": "Slurm gives whole nodes to be booted",
    "--nice=-10": "raises none, with a warning",
    "-B 2:4:1": "Slurm counts a task for each of these CPUs until the job starts",
    "-N 00": "Slurm counts no task until the job starts",
    "-s --exclusive=user": "whole nodes, with a warning",
    "@SBATCH_EXCLUSIVE=mcs": "whole nodes, with a warning",
    "--dependency=afterburstbuffer:999999": "there is no burst buffer, with a warning",
    "--nodelist=n[1-3] -n 2": "Slurm takes a node off the list, which is passed over with a warning",
    "-B 2": "Slurm counts a task for each of these CPUs until the job starts",
}
"""Forms whose fields differ by design."""
WORDS = {
    "hetjob": "jobs of several components are refused",
    "--workdir": "a spelling of earlier versions",
    "--share": "a spelling of earlier versions",
    "--threads-per-core=2": "Slurm counts a task for each thread until the job starts",
}
"""Options that make any head different."""


def read(head: Head) -> BatchScript | None:
    try:
        return read_script(head.script, "job.sh", environ=head.environ, words=head.words, path="job.sh")
    except InputError:
        return None


def values(scripts: Iterable[BatchScript], option: str, pattern: str) -> set[str]:
    """What the values of an option name, but for what is to be unknown."""
    given = [script.places[option].value or "" for script in scripts if option in script.places]
    return {name for value in given for name in re.findall(pattern, value)} - {"nosuch"}


def site_of(scripts: Sequence[BatchScript]) -> SlurmCluster:
    """A cluster that has the partitions, nodes, features and types of GPUs that the scripts name."""
    lists = values(scripts, "nodelist", r"[A-Za-z][\w-]*(?:\[[\d,-]*\d\])?")
    lists |= values(scripts, "exclude", r"[A-Za-z][\w-]*(?:\[[\d,-]*\d\])?")
    named = {name for one in lists for name in hosts(one)} - {f"n{i}" for i in range(200)}
    types = {model for script in scripts for model in script.requested.models} - {"nosuch", "n"}
    features = values(scripts, "constraint", r"[A-Za-z0-9_][\w.:-]*") | {"gpu", "a", "b"}
    gres = ",".join(
        [*(f"gpu:{one}:8" for one in sorted(types | {"a100", "v100"})), "ssdtmp:100G", "gpumem:1000G"]
    )
    about = f"NodeAddr=127.0.0.1 CPUs=256 RealMemory=1000000 Gres={gres} State=CLOUD"
    nodes = [f"NodeName=n[0-199] {about} Feature={','.join(sorted(features))}"]
    nodes += [f"NodeName={','.join(sorted(named))} {about}"] if named else []
    names = values(scripts, "partition", r"[A-Za-z0-9][\w.-]*") | {"part", "part1", "part2", "gpu"}
    partitions = [f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP" for name in sorted(names)]
    default = "PartitionName=plain Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    settings = {
        "GresTypes": "gpu,ssdtmp,gpumem",
        "Licenses": "SCRATCH:10",
        "MaxArraySize": "100000",
        "PrivateData": "cloud",
        "ResumeProgram": "/bin/true",
        "SlurmdTimeout": "0",
        "SuspendProgram": "/bin/true",
        "SuspendTime": "100000",
    }
    return SlurmCluster((), settings, declared=[*nodes, default, *partitions])


def hosts(text: str) -> list[str]:
    try:
        return expand_hostlist(text)
    except InputError:
        return []


def is_compared(head: Head) -> bool:
    """The corpus and the forms have some whose turn it is; the designed differences are always looked at."""
    return head.number % EVERY == 0 or head.text in DIFFERENT or head.text in UNLIKE


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    every = [*heads(CORPUS), *heads(FORMS)]
    with site_of([script for script in map(read, every) if script is not None]) as cluster:
        for name in ("resv", "resv_a"):
            about = "StartTime=now Duration=60 Users=root Nodes=n0 Flags=OVERLAP"
            cluster.call("scontrol", "create", "reservation", f"ReservationName={name}", *about.split())
        yield cluster


def sbatch(site: SlurmCluster, head: Head, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.sh").write_text(head.script)
    return subprocess.run(
        ["sbatch", *words, *head.words, "job.sh"],
        env={**site.environment, **head.environ},
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def why_different(head: Head, table: Mapping[str, str]) -> str:
    return table.get(head.text) or next((why for word, why in WORDS.items() if word in head.text), "")


@pytest.mark.parametrize("file", [CORPUS, FORMS], ids=["heads", "forms"])
def test_the_reader_takes_what_sbatch_takes_and_makes_of_it_what_sbatch_makes(
    site: SlurmCluster, tmp_path: Path, file: Path
) -> None:
    """Also ``--test-only``, whose verdict is the same but for where nodes are too small."""
    wrong: list[str] = []
    compared = 0
    for head in filter(is_compared, heads(file)):
        script = read(head)
        ours = script is not None and not script.refused
        held = sbatch(site, head, tmp_path, "--hold", "--parsable")
        number = held.stdout.strip().partition(";")[0]
        theirs = held.returncode == 0 and number.isdecimal()
        checked = sbatch(site, head, tmp_path, "--test-only")
        small = "Requested node configuration is not available" in checked.stderr
        said = held.stderr.strip()
        if theirs and checked.returncode and not small:
            wrong.append(f"{head.text}: --test-only: {checked.stderr}")
        if ours != theirs:
            of_the_site = ours and SITE.search(said)
            if not (of_the_site or why_different(head, DIFFERENT)):
                mine = [note.sentence() for note in script.refused] if script is not None else "no script"
                wrong.append(f"{head.text}: sbatch: {said or 'takes it'}; ours: {mine or 'takes it'}")
            continue
        if head.text in DIFFERENT and head.text.startswith("~"):
            continue
        if not theirs:
            continue
        assert script is not None
        compared += 1
        job = fields_of(site.call("scontrol", "-o", "show", "job", number))
        found = differences(script, job)
        if found and not why_different(head, UNLIKE):
            wrong.append(f"{head.text}: {found}")
    assert not wrong, "\n".join(wrong)
    assert compared > full(300, 20)


@pytest.mark.parametrize("lines", [("-F nodes",), ("-w ./nodes",), ("-F nodes", "-w n9"), ("-F nodes -n 2",)])
def test_a_file_of_nodes_counts_them(site: SlurmCluster, tmp_path: Path, lines: Sequence[str]) -> None:
    (tmp_path / "nodes").write_text("# some\nn1*2\nn[2-3]\n\nn5,n6\n")
    text = "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), "true", ""])
    (tmp_path / "job.sh").write_text(text)
    number = site.call("sbatch", "--hold", "--parsable", "job.sh", cwd=tmp_path).strip()
    job = fields_of(site.call("scontrol", "-o", "show", "job", number))
    text = text.replace("-F nodes", f"-F {tmp_path}/nodes").replace("./nodes", f"{tmp_path}/nodes")
    shares = read_script(text, "job.sh", environ={}, path="job.sh").shares
    assert shares is not None
    assert (f"{shares.nodes}", f"{shares.tasks}") == (job["NumNodes"].partition("-")[0], job["NumTasks"])


@pytest.mark.parametrize(
    "option", ["-H", "-HJ a", "-H --priority=5", "--priority=0", "--priority=x", "--hold -b now"]
)
def test_both_hold_the_same(site: SlurmCluster, tmp_path: Path, option: str) -> None:
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\n#SBATCH {option}\ntrue\n")
    number = site.call("sbatch", "--parsable", "job.sh", cwd=tmp_path).strip()
    job = fields_of(site.call("scontrol", "-o", "show", "job", number))
    site.call("scancel", number)
    script = read_script((tmp_path / "job.sh").read_text(), "job.sh", environ={}, path="job.sh")
    assert script.fields.get("hold", False) == (job["Reason"] == "JobHeldUser")


def test_no_reason_stands_for_nothing() -> None:
    texts = {head.text for head in heads(FORMS)}
    assert set(DIFFERENT) | set(UNLIKE) <= texts
