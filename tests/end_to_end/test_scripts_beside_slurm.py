"""Heads of scripts, read by us and by the real sbatch: what both take, and what each makes of it."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm

from dovetail.errors import InputError
from dovetail.spec.sbatch import SBATCH_OPTIONS
from dovetail.workloads.batch.patterns import fill_pattern
from dovetail.workloads.batch.script import BatchScript, read_script
from dovetail.workloads.batch.units import MEBIBYTE
from dovetail.workloads.batch.variables import Origin

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

CORPUS = Path(__file__).parents[1] / "corpus" / "sbatch"
TAKEN = (CORPUS / "taken.txt").read_text().splitlines()
"""Options that both take and make the same of, a line of a script each."""
REFUSED = (CORPUS / "refused.txt").read_text().splitlines()
SAMPLES = dict(line.split("=", 1) for line in (CORPUS / "samples.txt").read_text().splitlines())
"""A value for each option that takes any but a word."""
LACKING = "batch clusters constraint prefer reservation licenses nodelist exclude nodefile"
"""What the cluster of the test has none of: sbatch refuses it there, and we warn."""
WANTS_A_FILE = "bbf export-file container wrap get-user-env"
NO_JOB = "help usage version test-only wait parsable quiet uid gid"
BESIDE_ANOTHER = "gpus-per-task gpus-per-socket ntasks-per-gpu cpus-per-gpu mem-per-gpu input chdir"
"""What sbatch takes only beside another option, or where a file or folder is."""
LATER = (
    "container-id consolidate-segments extra oom-kill-step resv-ports segment spread-segments stepmgr "
    "tres-bind tres-per-task"
)
"""Options of versions after 22.05."""
OTHERWISE = {
    *LACKING.split(),
    *WANTS_A_FILE.split(),
    *NO_JOB.split(),
    *BESIDE_ANOTHER.split(),
    *LATER.split(),
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(4, cpus=8, gpus=2, memory=16000, gpu_model="a100"),)) as cluster:
        yield cluster


def script_of(text: str) -> str:
    return f"#!/bin/sh\n#SBATCH {text}\ntrue\n"


def ours(text: str, now: datetime | None = None) -> BatchScript:
    return read_script(script_of(text), "job.sh", environ={}, now=now)


def submitted(slurm: SlurmCluster, folder: Path, texts: list[str]) -> dict[str, str]:
    """What ``scontrol`` shows of a job of each head, all held; or what sbatch says."""
    found, jobs = {}, {}
    for number, text in enumerate(texts):
        path = folder / f"{number}.sh"
        path.write_text(script_of(text))
        done = subprocess.run(
            ["sbatch", "--hold", "--parsable", path], env=slurm.environment, capture_output=True, text=True,
            check=False, cwd=folder,
        )  # fmt: skip
        if done.returncode == 0 and done.stdout.strip().isdigit():
            jobs[done.stdout.strip()] = text
        else:
            found[text] = done.stderr
    for line in slurm.call("scontrol", "-o", "show", "job").splitlines():
        job = re.match(r"JobId=(\d+)", line)
        if job is not None and job[1] in jobs:
            found[jobs[job[1]]] = line
    slurm.call("scancel", *jobs)
    return found


@pytest.fixture(scope="module")
def theirs(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return submitted(slurm, tmp_path_factory.mktemp("heads"), [*TAKEN, *REFUSED])


def value(line: str, name: str) -> str:
    found = re.search(rf"(?:^| ){name}=(.*?)(?= [A-Za-z:/]+=|$)", line)
    return found[1].strip() if found else ""


@pytest.mark.parametrize("text", dict.fromkeys(TAKEN))
def test_both_make_the_same_of_what_both_take(theirs: dict[str, str], text: str) -> None:
    line = theirs[text]
    assert line.startswith("JobId="), line
    submit = datetime.fromisoformat(value(line, "SubmitTime"))
    found = ours(text, submit)
    assert not found.refused, found.refused[0].sentence()
    fields, shares = found.fields, found.shares
    assert shares is not None
    assert value(line, "JobName") == fields.get("name", value(line, "JobName"))
    assert value(line, "TimeLimit") == limit_of(fields.get("walltime"))
    if "-N" in text or "per-node" in text:  # else an estimate
        assert value(line, "NumNodes").partition("-")[0] == str(shares.nodes)
    if "-O" not in text:
        assert value(line, "NumTasks") == str(shares.tasks)
    assert value(line, "CPUs/Task") == str(shares.cpus_per_task if "per-gpu=2 -G" not in text else 1)
    assert value(line, "Comment") == found.fields.get("comment", "")
    assert value(line, "OverSubscribe") == (
        "OK" if shares.cpus != "all" and "-s" not in text else value(line, "OverSubscribe")
    )
    check_memory(line, text, found)
    check_devices(line, text, found)
    if "array" in fields:
        indices = fields["array"].partition("%")
        assert set(expand(value(line, "ArrayTaskId").partition("%")[0])) == set(expand(indices[0]))
        assert value(line, "ArrayTaskId").partition("%")[2] == indices[2]
    if text.startswith("-b"):
        eligible = value(line, "EligibleTime")
        begin = fields.get("begin")
        assert eligible == ("Unknown" if begin is None else datetime.fromtimestamp(begin).isoformat())
    if text in ("--requeue", "--no-requeue"):
        assert value(line, "Requeue") == str(int(fields["restartable"]))


def limit_of(walltime: float | None) -> str:
    """As scontrol shows it: whole minutes, rounded up."""
    if walltime is None:
        return "UNLIMITED"
    minutes = math.ceil(walltime / 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    return f"{days}-{hours:02}:{minutes:02}:00" if days else f"{hours:02}:{minutes:02}:00"


def check_memory(line: str, text: str, found: BatchScript) -> None:
    assert found.shares is not None
    said = value(line, "MinMemoryNode") or value(line, "MinMemoryCPU")
    if "--mem=" in text:
        assert mebibytes(said) == (found.shares.memory or 0) // MEBIBYTE
    elif "--mem-per-cpu" in text:
        assert mebibytes(said) * int(value(line, "NumCPUs")) == (found.shares.memory or 0) // MEBIBYTE
    elif "--mem-per-gpu" in text:
        assert (found.shares.memory or 0) // MEBIBYTE == 2 * int(value(line, "MemPerTres").rpartition(":")[2])


def mebibytes(text: str) -> int:
    return int(text.rstrip("MGT")) * {"G": 1024, "T": 1024**2}.get(text[-1], 1)


def check_devices(line: str, text: str, found: BatchScript) -> None:
    """The entries of the three columns, added up for a node."""
    assert found.shares is not None
    nodes, tasks = found.shares.nodes, found.shares.tasks
    total = 0
    for column, times in (("TresPerJob", 1), ("TresPerNode", nodes), ("TresPerTask", tasks)):
        entries = [e for e in value(line, column).split(",") if e.startswith("gres:gpu")]
        counts = [e.rpartition(":")[2] for e in entries]
        amount = sum(int(c) if c.isdigit() else 1 for c in counts) * times
        total = max(total, amount)
        for entry in entries:
            kind = entry.split(":")[2:3]
            if kind and not kind[0].isdigit():
                assert found.fields.get("models") == kind
    assert found.shares.gpus * nodes == total, line


def expand(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


@pytest.mark.parametrize("text", REFUSED)
def test_both_refuse(theirs: dict[str, str], text: str) -> None:
    assert not theirs[text].startswith("JobId="), "sbatch takes it"
    found = ours(text)
    assert found.refused
    assert found.refused[0].where.startswith("job.sh: line 2")


def test_every_option_is_known_to_both(slurm: SlurmCluster, tmp_path: Path) -> None:
    texts = {}
    for option in SBATCH_OPTIONS:
        if option.name not in OTHERWISE:
            sample = SAMPLES.get(option.name, "x" if option.value == "required" else "")
            texts[option.name] = f"--{option.name}" + (f"={sample}" if sample else "")
    theirs = submitted(slurm, tmp_path, list(texts.values()))
    for name, text in texts.items():
        assert theirs[text].startswith("JobId="), (name, theirs[text])
        assert not ours(text).refused, name


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("-t 5", {"SBATCH_TIMELIMIT": "7"}),
        ("-J a", {"SBATCH_JOB_NAME": "b"}),
        ("-c 1", {"SBATCH_EXCLUSIVE": ""}),
        ("-c 1", {"SBATCH_REQUEUE": "no"}),
        ("-c 1", {"SBATCH_REQUEUE": "yes"}),
        ("--mem=1G", {"SBATCH_MEM_PER_CPU": "100"}),
        ("--gres=gpu:1", {"SBATCH_GRES": "gpu:2"}),
    ],
)
def test_the_environment_goes_over_the_script(
    slurm: SlurmCluster, tmp_path: Path, text: str, environ: dict[str, str]
) -> None:
    path = tmp_path / "job.sh"
    path.write_text(script_of(text))
    done = subprocess.run(
        ["sbatch", "--hold", "--parsable", path], env={**slurm.environment, **environ}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    job = done.stdout.strip()
    line = slurm.call("scontrol", "-o", "show", "job", job)
    slurm.call("scancel", job)
    found = read_script(script_of(text), "job.sh", environ=environ)
    assert not found.refused
    fields = found.fields
    assert value(line, "TimeLimit") == limit_of(fields.get("walltime"))
    assert value(line, "JobName") == fields.get("name", "job.sh")
    assert (value(line, "OverSubscribe") == "NO") == (fields.get("cpus") == "all")
    assert value(line, "Requeue") == str(int(fields.get("restartable", False)))
    if "--mem" in text:  # another way to say it changes nothing
        assert mebibytes(value(line, "MinMemoryNode")) == fields["memory"] // MEBIBYTE
    if "SBATCH_GRES" in environ:
        assert value(line, "TresPerNode").endswith(f":{fields['gpus']}")


@pytest.mark.parametrize(
    "text",
    [
        "\n#!/bin/sh\n#SBATCH -t 5\n", "#SBATCH -t 5\ntrue\n", "#!/bin/sh\r\n#SBATCH -t 5\r\ntrue\r\n",
        "#!/bin/sh\n#SBATCH -t 5\r\ntrue\n",
    ],
)  # fmt: skip
def test_both_say_that_this_is_no_script(slurm: SlurmCluster, tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.sh"
    path.write_bytes(text.encode())
    done = subprocess.run(["sbatch", path], env=slurm.environment, capture_output=True, check=False)
    assert done.returncode != 0
    with pytest.raises(InputError):
        read_script(text, "job.sh", environ={})


def test_where_the_head_ends(slurm: SlurmCluster, tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    text = (
        "#!/bin/sh\n # indented\n\n## -J no\n#SBATCH-J\n#SBATCH one\n #SBATCH -J two\n# SBATCH -J three\n"
        "#sbatch -J four\n:\n#SBATCH -J five\n"
    )
    path.write_text(text)
    job = slurm.call("sbatch", "--hold", "--parsable", str(path)).strip()
    line = slurm.call("scontrol", "-o", "show", "job", job)
    slurm.call("scancel", job)
    found = read_script(text, "job.sh", environ={})
    assert value(line, "JobName") == found.fields["name"] == "one"


def test_names_of_files(slurm: SlurmCluster, tmp_path: Path) -> None:
    patterns = ["a%j-%J.s%s", "b%4j.%n.%t.%3t", "c%x.%u.%%.%q", r"d\%j", "e%A-%a", "f%20j"]
    made = {}
    for pattern in patterns:
        slurm.call("sbatch", "-W", "-J", "name", "-o", pattern, "--wrap", "true", cwd=tmp_path)
        (path,) = set(tmp_path.iterdir()) - set(made)
        made[path] = pattern
    for path, pattern in made.items():
        filled, _ = fill_pattern(pattern, "name", value_of_user(), is_array=False)
        number = re.escape(re.search(r"\d+", path.name)[0].lstrip("0")) if re.search(r"\d", path.name) else ""
        expected = re.sub("\0(\\d*)[jJA]", lambda m: number.zfill(int(m[1] or 0)), filled)  # noqa: B023
        assert path.name == expected


def value_of_user() -> str:
    return Origin.of_this_process("/").user
