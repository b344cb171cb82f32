"""Slurm's commands over a real service: what people and programs call them with."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from services import Serving, serving
from slurm_shims import COMMANDS, Shims
from waiting import until

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

ME = getpass.getuser()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


@pytest.fixture(scope="module")
def slurm(service: Serving) -> Shims:
    return Shims(service, service.root / "shims")


@pytest.fixture
def held(slurm: Shims) -> Iterator[str]:
    """A job that waits for its release."""
    job = slurm.submit("-H", "-J", "kept", "-t", "90", "--comment", "a b", "-c", "2", "--wrap", "true")
    yield job
    slurm.run("scancel", job)


# -- the folder ------------------------------------------------------------------------------------------


def test_the_command_writes_programs_that_need_no_path(service: Serving, tmp_path: Path) -> None:
    done = service.dovetail("slurm-shims", "--dir", str(tmp_path / "bin"), "--json")
    assert json.loads(done.stdout)["commands"] == list(COMMANDS), done.stderr
    bare = {"PATH": "/usr/bin:/bin", "DOVETAIL_SERVICE": str(service.folder.path)}
    for name in COMMANDS:
        argv = [str(tmp_path / "bin" / name), "--version"]
        found = subprocess.run(argv, env=bare, capture_output=True, text=True, check=True)
        assert re.fullmatch(r"slurm \d+\.\d+\.\d+\n", found.stdout)


def test_a_program_of_another_is_not_written_over(service: Serving, tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    done = service.dovetail("slurm-shims", "--dir", str(tmp_path))
    assert done.returncode == 2
    assert "squeue: found another program of that name" in done.stderr
    assert (tmp_path / "squeue").read_text() == "#!/bin/sh\n"


def test_without_a_service_there_is_one_sentence(slurm: Shims, tmp_path: Path) -> None:
    done = slurm.run("squeue", env={"DOVETAIL_SERVICE": str(tmp_path / "none")})
    assert done.returncode == 1
    assert done.stderr.startswith("squeue: error: no service runs here")
    assert done.stderr.count("\n") == 1


HEAVY = {
    "typer",
    "click",
    "rich",
    "pydantic",
    "http.client",
    "email",
    "ssl",
    "subprocess",
    "argparse",
    "sqlite3",
    "inspect",
    "ast",
}


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("squeue", 80),
        ("sacct -S now", 80),
        ("scancel 99999999", 80),
        ("scontrol show config", 80),
        ("sinfo", 85),
        ("sacctmgr list user", 80),
        ("sshare", 80),
        ("sbatch -H -J brief --wrap true", 120),
    ],
)
def test_a_call_imports_little(slurm: Shims, words: str, most: int) -> None:
    """Importing is nearly all that a call takes; what a busy machine makes of its seconds says little."""
    name, *rest = words.split()
    argv = [sys.executable, "-I", "-S", "-X", "importtime", str(slurm.folder / name), *rest]
    done = subprocess.run(argv, env=slurm.environment, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.split("\n") if "|" in line}
    assert not modules & HEAVY
    assert len(modules) <= most
    slurm.run("scancel", "-n", "brief")


# -- sbatch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["file", "input", "device", "wrap"])
def test_a_script_however_it_comes(slurm: Shims, tmp_path: Path, how: str) -> None:
    text = "#!/bin/sh\n#SBATCH --job-name=mine\necho $SLURM_JOB_ID $SLURM_JOB_NAME $# > out\n"
    (tmp_path / "job.sh").write_text(text)
    words = {
        "file": ["job.sh", "a", "b"],
        "input": [],
        "device": ["/dev/stdin"],
        "wrap": ["--wrap", "echo hi"],
    }[how]
    job = slurm.submit(*words, cwd=tmp_path, stdin=text)
    assert slurm.ended(job) == "COMPLETED"
    if how == "wrap":
        assert (tmp_path / f"slurm-{job}.out").read_text() == "hi\n"
    else:
        assert (tmp_path / "out").read_text() == f"{job} mine {2 if how == 'file' else 0}\n"
        assert (tmp_path / f"slurm-{job}.out").read_text() == ""


def test_what_sbatch_answers(slurm: Shims, tmp_path: Path) -> None:
    assert re.fullmatch(r"Submitted batch job \d+\n", slurm.out("sbatch", "--wrap", "true", cwd=tmp_path))
    assert slurm.out("sbatch", "-Q", "--wrap", "true", cwd=tmp_path) == ""
    done = slurm.run("sbatch", "--wait", "--wrap", "exit 7", cwd=tmp_path)
    assert done.returncode == 7
    done = slurm.run("sbatch", "--test-only", "--wrap", "true", cwd=tmp_path)
    assert done.returncode == 0
    assert re.match(r"sbatch: Job \d+ to start at \S+ using 1 processors", done.stderr)
    done = slurm.run("sbatch", "--test-only", "-N", "9", "--wrap", "true", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("allocation failure: ")


def test_a_test_takes_nothing_in(slurm: Shims, tmp_path: Path) -> None:
    first = int(slurm.submit("-H", "-J", "none", "--wrap", "true", cwd=tmp_path))
    slurm.run("sbatch", "--test-only", "--wrap", "true", cwd=tmp_path)
    assert int(slurm.submit("-H", "-J", "none", "--wrap", "true", cwd=tmp_path)) == first + 1
    slurm.run("scancel", "-n", "none")


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["--nosuch", "--wrap", "true"], 255, "sbatch: unrecognized option '--nosuch'"),
        (["-Y", "--wrap", "true"], 255, "sbatch: invalid option -- 'Y'"),
        (["--wrap"], 255, "sbatch: option '--wrap' requires an argument"),
        (["--wrap", "true", "more"], 1, "sbatch: error: Script arguments not permitted with --wrap option"),
        (["/nosuch"], 1, "sbatch: error: Unable to open file /nosuch"),
        (["-t", "nosuch", "--wrap", "true"], 255, "sbatch: error: "),
        (["-N", "9", "--wrap", "true"], 1, "sbatch: error: Batch job submission failed: Node count"),
        ([], 1, "sbatch: error: Batch script is empty!"),
    ],
)
def test_what_is_wrong_has_slurms_status(slurm: Shims, words: list[str], status: int, sentence: str) -> None:
    done = slurm.run("sbatch", *words)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith(sentence)


def test_what_is_no_script_is_refused_as_by_sbatch(slurm: Shims) -> None:
    done = slurm.run("sbatch", stdin="echo hi\n")
    assert done.returncode == 1
    assert "This does not look like a batch script" in done.stderr
    done = slurm.run("sbatch", stdin="#!/bin/sh\r\ntrue\r\n")
    assert done.returncode == 1
    assert "DOS line breaks" in done.stderr


def test_a_job_that_submits_describes_another(slurm: Shims, tmp_path: Path) -> None:
    """What describes the job in which sbatch is called does not come along."""
    inner = "echo ${SLURM_ARRAY_TASK_ID-none} ${MINE-none} > inner"
    job = slurm.submit("-a", "3", "--wrap", f"export MINE=5; sbatch --wait --wrap '{inner}'", cwd=tmp_path)
    assert slurm.ended(job) == "COMPLETED"
    assert (tmp_path / "inner").read_text() == "none 5\n"


# -- looking ---------------------------------------------------------------------------------------------


def test_the_usual_queue(slurm: Shims, held: str) -> None:
    lines = slurm.out("squeue", "-j", held).split("\n")
    assert lines[0] == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert lines[1] == f"{held:>18}  dovetail     kept {ME[:8]:>8} PD       0:00      1 (JobHeldUser)"


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("%i|%t|%T", "{0}|PD|PENDING"), ("%L/%l/%M", "1:30:00/1:30:00/0:00"),
        ("%j,%u,%P", "kept,{1},dovetail"),
        ("%D %C %R", "1 2 (JobHeldUser)"), ("%A.%F.%K", "{0}.{0}.N/A"), ("%k=%a", "a b=(null)"),
        ("[%5t][%.5t][%.1T]", "[PD   ][   PD][P]"), ("%q%%i", "normal{0}"), ("%e%S", "N/AN/A"),
    ],
)  # fmt: skip
def test_formats_of_letters(slurm: Shims, held: str, layout: str, expected: str) -> None:
    found = slurm.out("squeue", "-h", "-j", held, "-o", layout)
    assert found == expected.format(held, ME) + "\n"


def test_formats_of_names(slurm: Shims, held: str) -> None:
    found = slurm.out("squeue", "-j", held, "-O", "JobID:8,Name:.6,StateCompact:3|,WorkDir:200")
    head, line, _ = found.split("\n")
    assert head.startswith("JOBID     NAMEST |WORK_DIR")
    assert line.startswith(f"{held:8}  keptPD |{slurm.service.root}")


def test_the_queue_as_json(slurm: Shims, held: str) -> None:
    (job,) = json.loads(slurm.out("squeue", "--json", "-j", held))["jobs"]
    assert (job["job_id"], job["job_state"], job["user_name"]) == (int(held), "PENDING", ME)
    assert (job["time_limit"], job["comment"], job["cpus"]) == (90, "a b", 2)


def test_arrays_stand_together_while_they_wait(slurm: Shims) -> None:
    array = slurm.submit("-H", "-a", "1-3,7%2", "--wrap", "true")
    try:
        assert slurm.out("squeue", "-h", "-j", array, "-o", "%i %K") == f"{array}_[1-3,7%2] 1-3,7%2\n"
        each = slurm.out("squeue", "-h", "-r", "-j", array, "-o", "%i").split()
        assert each == [f"{array}_{index}" for index in (1, 2, 3, 7)]
        assert slurm.out("squeue", "-h", "-j", f"{array}_2", "-o", "%i").strip() == f"{array}_[2%2]"
        slurm.out("scancel", f"{array}_2")
        slurm.out("scancel", f"{array}_[1,7]")
        assert slurm.out("squeue", "-h", "-r", "-j", array, "-o", "%i").split() == [f"{array}_3"]
        states = slurm.out("sacct", "-X", "-n", "-P", "-j", array, "-o", "JobID,State").split("\n")
        assert f"{array}_2|CANCELLED by {os.geteuid()}" in states
        assert f"{array}_[3%2]|PENDING" in states
        assert slurm.state(f"{array}_[1-2]").count("CANCELLED") == 2
    finally:
        slurm.run("scancel", array)


def test_states_and_names_filter(slurm: Shims, held: str, tmp_path: Path) -> None:
    over = slurm.submit("-J", "over", "--wrap", "exit 3", cwd=tmp_path)
    slurm.ended(over)
    ids = ("squeue", "-h", "-o", "%i", "-j", f"{held},{over}")
    assert slurm.out(*ids).split() == [held]
    assert sorted(slurm.out(*ids, "-t", "all").split()) == sorted([held, over])
    assert slurm.out(*ids, "-t", "F,PD", "-n", "over").split() == [over]
    assert slurm.out(*ids, "-t", "R").split() == []
    assert slurm.out(*ids, "--me", "-u", "nobody-else").split() == [held]
    assert slurm.out(*ids, "-u", "nobody-else").split() == []
    done = slurm.run("squeue", "-t", "nosuch")
    assert done.returncode == 1
    assert done.stderr.startswith("squeue: error: Invalid job state specified: nosuch")
    done = slurm.run("squeue", "-j", "99999999")
    assert (done.returncode, done.stderr) == (1, "slurm_load_jobs error: Invalid job id specified\n")


def test_what_sacct_keeps(slurm: Shims, tmp_path: Path) -> None:
    burn = "python3 -c 'x = bytearray(40 << 20); sum(range(3000000))'; exit 5"
    job = slurm.submit(
        "-J", "used", "-t", "5", "--mem", "200", "--comment", "c", "--wrap", burn, cwd=tmp_path
    )
    slurm.ended(job)
    names = "JobID,JobIDRaw,JobName,State,ExitCode,ReqMem,AllocTRES,Timelimit,Comment,WorkDir,NNodes"
    whole, batch, _ = slurm.out("sacct", "-j", job, "-n", "--parsable2", "-o", names).split("\n")
    tres = "cpu=1,mem=200M,node=1,billing=1"
    assert whole == f"{job}|{job}|used|FAILED|5:0|200M|{tres}|00:05:00|c|{tmp_path}|1"
    assert batch.startswith(f"{job}.batch|{job}.batch|batch|FAILED|5:0|")
    peak, spent = slurm.out("sacct", "-j", f"{job}.batch", "-nPo", "MaxRSS,TotalCPU").strip().split("|")
    assert 40 * 1024 < int(peak.removesuffix("K")) < 200 * 1024
    assert re.fullmatch(r"00:\d\d\.\d{3}", spent)
    assert spent != "00:00.000"
    start, end, took = slurm.out("sacct", "-Xnj", job, "-P", "-o", "Start,End,Elapsed").strip().split("|")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", start)
    assert start <= end
    assert took.startswith("00:00:")


def test_sacct_filters(slurm: Shims, tmp_path: Path) -> None:
    jobs = [slurm.submit("-J", name, "--wrap", "true", cwd=tmp_path) for name in ("one", "two")]
    for job in jobs:
        slurm.ended(job)
    ask = ("sacct", "-X", "-n", "-P", "-o", "JobID")
    assert slurm.out(*ask, "-j", ",".join(jobs)).split() == jobs
    assert slurm.out(*ask, "-j", jobs[0], "-j", jobs[1]).split() == jobs
    assert slurm.out(*ask, "--name", "two", "-u", ME).split() == [jobs[1]]
    assert jobs[0] in slurm.out(*ask, "-S", "now-1hour", "-E", "now").split()
    assert slurm.out(*ask, "-S", "2001-01-01", "-E", "2001-02-01").split() == []
    assert jobs[0] in slurm.out(*ask, "-s", "CD", "-S", "now-1hour", "-E", "now").split()
    assert slurm.out(*ask, "-s", "F", "-S", "now-1hour", "-E", "now", "--name", "one").split() == []
    assert slurm.out(*ask, "-j", "99999999") == ""
    for words, sentence in (
        (["-o", "nosuch"], 'sacct: error: Invalid field requested: "nosuch"'),
        (["-j", "abc"], "sacct: fatal: Bad job/step specified: abc"),
        (["more"], "sacct: error: Unknown arguments:"),
        (["--nosuch"], "sacct: unrecognized option '--nosuch'"),
    ):
        done = slurm.run("sacct", *words)
        assert done.returncode == 1
        assert done.stderr.startswith(sentence)


def test_sacct_prints_the_script_of_a_job(slurm: Shims, tmp_path: Path) -> None:
    """As Slurm 22.05 does, byte for byte; the environment of a job is not kept."""
    text = b"#!/bin/sh\n# caf\xe9\ntrue\n"
    (tmp_path / "job.sh").write_bytes(text)
    job = slurm.submit("-a", "1-2", "job.sh", cwd=tmp_path)
    slurm.ended(job)
    asked = subprocess.run(["sacct", "-B", "-j", job], env=slurm.environment, capture_output=True, check=True)
    line = b"-" * 80
    heads = [f"Batch Script for {job}_{index}\n".encode() for index in (1, 2)]
    assert asked.stdout == b"".join(head + line + b"\n" + text + b"\n" for head in heads)
    kept = slurm.out("sacct", "--env-vars", "-j", f"{job}_1").split("\n")
    assert kept == [f"Environment used for {job}_1 (must be batch to display)", "-" * 80, "NONE", "", ""]
    for words in (["-B"], ["--env-vars"], ["-B", "--env-vars", "-j", job]):
        done = slurm.run("sacct", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("sacct: fatal: ")


JSON_KEYS = [
    *[
        "account",
        "allocation_nodes",
        "array",
        "association",
        "cluster",
        "comment",
        "constraints",
        "container",
    ],
    *[
        "derived_exit_code",
        "exit_code",
        "flags",
        "group",
        "het",
        "job_id",
        "kill_request_user",
        "mcs",
        "name",
        "nodes",
    ],
    *[
        "partition",
        "priority",
        "qos",
        "required",
        "reservation",
        "state",
        "steps",
        "time",
        "tres",
        "user",
        "wckey",
    ],
    "working_directory",
]
"""Those of a job in the answer of Slurm 22.05's sacct."""


def test_sacct_answers_in_json_as_slurm_does(slurm: Shims, tmp_path: Path) -> None:
    """Its form is another than that of squeue: states and times have parts."""
    job = slurm.submit("-t", "5", "-J", "j", "--wrap", "srun true; exit 3", cwd=tmp_path)
    slurm.ended(job)
    (found,) = json.loads(slurm.out("sacct", "--json", "-j", job))["jobs"]
    assert sorted(found) == JSON_KEYS
    assert found["state"] == {"current": "FAILED", "reason": "NonZeroExitCode"}
    assert found["exit_code"] == {"status": "ERROR", "return_code": 3}
    assert found["time"]["start"] - found["time"]["submission"] >= 0
    assert (found["job_id"], found["time"]["limit"], found["required"]["CPUs"]) == (int(job), 5, 1)
    steps = [(one["step"]["id"], one["state"], one["tasks"]["count"]) for one in found["steps"]]
    assert steps == [("batch", "FAILED", 1), ("0", "COMPLETED", 1)]
    assert {"type": "cpu", "name": None, "id": 1, "count": 1} in found["tres"]["allocated"]
    assert json.loads(slurm.out("sacct", "--json", "-X", "-j", job))["jobs"][0]["steps"] == []


def test_squeue_names_a_user_that_is_not_there(slurm: Shims) -> None:
    done = slurm.run("squeue", "-h", "-u", "nosuchuser")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "squeue: error: Invalid user: nosuchuser\n"


def test_srun_takes_options_of_other_machines(slurm: Shims, tmp_path: Path) -> None:
    """Slurm itself passes them over where there is nothing to bind, to copy or to choose from."""
    options = "--accel-bind=g --bcast-exclude=/lib --het-group=0"
    job = slurm.submit("-n2", "--wrap", f"srun {options} --tasks-per-node=2 echo hi", cwd=tmp_path)
    assert slurm.ended(job) == "COMPLETED"
    assert (tmp_path / f"slurm-{job}.out").read_text() == "hi\nhi\n"


def test_nodes_and_partitions(slurm: Shims) -> None:
    assert slurm.out("sinfo", "-o", "%P") == "PARTITION\ndovetail*\n"
    assert slurm.out("sinfo", "-h", "-N", "-o", "%N %c").strip().endswith(" 2")
    assert re.search(
        r"PartitionName=dovetail\n.* Default=YES ", slurm.out("scontrol", "show", "partition"), re.S
    )
    assert "MinJobAge               = 3600 sec" in slurm.out("scontrol", "show", "config")
    assert slurm.out("scontrol", "show", "hostnames", "n[08-10],m1").split() == ["n08", "n09", "n10", "m1"]
    name = slurm.out("sinfo", "-h", "-o", "%N").strip()
    assert slurm.out("scontrol", "-o", "show", "node", name).startswith(f"NodeName={name} ")
    slurm.out("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=test")
    assert slurm.out("sinfo", "-h", "-o", "%t").strip() == "drain"
    slurm.out("scontrol", "update", f"NodeName={name}", "State=RESUME")
    assert slurm.out("sinfo", "-h", "-o", "%T").strip() in ("idle", "mixed", "allocated")


def test_accounts_are_asked_about_and_not_changed(slurm: Shims) -> None:
    asked = slurm.out("sacctmgr", "-n", "-s", "list", "user", ME, "format=account%256")
    assert asked == " " * 257 + "\n"
    assert slurm.out("sacctmgr", "-nP", "show", "user", ME, "format=user") == f"{ME}\n"
    assert slurm.out("sshare", "-U", "--format", "Account%256", "--noheader").strip() == ""
    done = slurm.run("sacctmgr", "-i", "add", "account", "x")
    assert done.returncode == 1
    assert "nothing to change" in done.stderr


# -- changing --------------------------------------------------------------------------------------------


def test_scontrol_changes_what_waits(slurm: Shims, held: str) -> None:
    slurm.out("scontrol", "update", f"JobId={held}", "TimeLimit=30", "JobName=other")
    shown = slurm.out("scontrol", "show", "job", held)
    assert "TimeLimit=00:30:00" in shown
    assert "JobName=other" in shown
    assert "Reason=JobHeldUser" in shown
    one = slurm.out("scontrol", "-o", "show", "job", held)
    assert one.startswith(f"JobId={held} JobName=other UserId={ME}({os.geteuid()}) ")
    assert one.count("\n") == 1
    done = slurm.run("scontrol", "update", f"JobId={held}", "Nosuch=3")
    assert (done.returncode, done.stderr.split("\n")[1]) == (1, "Request aborted")
    done = slurm.run("scontrol", "show", "job", "99999999")
    assert (done.returncode, done.stderr) == (1, "slurm_load_jobs error: Invalid job id specified\n")
    for word, second in (("hold", True), ("release", True), ("requeue", False)):
        done = slurm.run("scontrol", word, "99999999", "abc")
        lines = [f"Invalid job id specified for job {job}" for job in ("99999999", "abc")]
        lines += ["slurm_suspend error: Invalid job id specified"] * second
        assert (done.returncode, done.stderr.splitlines()) == (1, lines)
    assert slurm.run("scontrol", "suspend", held).returncode == 1
    slurm.out("scontrol", "release", held)
    slurm.ended(held)


def test_what_waits_is_listed_in_the_order_in_which_it_goes(slurm: Shims) -> None:
    """By priority, then by place, what a user made nice behind; what is held comes last, as in Slurm."""
    busy = slurm.submit("-c2", "-J", "busy", "--wrap", "sleep 600")
    slurm.until_state(busy, "RUNNING")
    words = {"plain": [], "nice": ["--nice=5"], "held": ["-H"], "top": [], "high": []}
    jobs = {name: slurm.submit("-c2", "-J", "order", *rest, "--wrap", "true") for name, rest in words.items()}
    slurm.out("scontrol", "top", jobs["top"])
    slurm.out("scontrol", "update", f"JobId={jobs['high']}", "Priority=7")
    shown = slurm.out("squeue", "-h", "-n", "order", "-o", "%i %Q").splitlines()
    assert shown[0] == f"{jobs['high']} 7"
    assert [line.split()[0] for line in shown] == [
        jobs[name] for name in ("high", "top", "plain", "nice", "held")
    ]
    slurm.out("scancel", "-n", "order")
    slurm.out("scancel", busy)


def test_scancel_by_filters(slurm: Shims) -> None:
    jobs = [slurm.submit("-H", "-J", f"f{n}", "--wrap", "true") for n in range(4)]
    slurm.out("scancel", "-n", "f0", "-t", "RUNNING")
    assert slurm.state(jobs[0]) == "PENDING"
    slurm.out("scancel", "-n", "f0", "-u", ME)
    slurm.out("scancel", jobs[1], f"{jobs[2]},{jobs[3]}")
    assert all(slurm.state(job) == f"CANCELLED by {os.geteuid()}" for job in jobs)
    assert slurm.run("scancel", "99999999").returncode == 0
    for words, sentence in (
        ([], "scancel: error: No job identification provided"),
        (["abc"], "scancel: error: Invalid job id abc"),
        (["-s", "NOSUCH", jobs[0]], "Unknown job signal: NOSUCH"),
        (["-t", "FAILED"], "Invalid job state specified: FAILED"),
    ):
        done = slurm.run("scancel", *words)
        assert done.returncode == 1
        assert done.stderr.startswith(sentence)


CATCHES = """\
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: (print("task", flush=True), sys.exit(0)))
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize(("flag", "heard"), [((), "task"), (("-b",), "script"), (("-f",), "script task")])
def test_signals_reach_whom_they_are_for(
    slurm: Shims, tmp_path: Path, flag: tuple[str, ...], heard: str
) -> None:
    (tmp_path / "catches.py").write_text(CATCHES)
    end = "kill $!; wait" if flag == ("-b",) else "wait"
    text = f"#!/bin/bash\ntrap 'echo script' USR1\nsrun -u python3 -I -S catches.py &\nwait\n{end}\n"
    job = slurm.submit("-o", "out", cwd=tmp_path, stdin=text)
    out = tmp_path / "out"
    until(lambda: out.exists() and "ready" in out.read_text(), "the task does not begin")
    slurm.out("scancel", *flag, "--signal", "SIGUSR1", job)
    slurm.ended(job)
    words = out.read_text().split()
    assert {*words} - {"ready"} >= {*heard.split()}
    assert ("script" in words) == ("script" in heard)


def test_a_signal_before_the_limit(slurm: Shims, tmp_path: Path) -> None:
    """Without B: it is for what the script has started; the script stays and ends by itself."""
    (tmp_path / "catches.py").write_text(CATCHES)
    text = (
        "#!/bin/bash\n#SBATCH -t 0:20 --signal=USR1@14 -o out\nsrun python3 -I -S catches.py\necho after $?\n"
    )
    job = slurm.submit(cwd=tmp_path, stdin=text)
    assert slurm.ended(job) == "COMPLETED"
    assert (tmp_path / "out").read_text().split() == ["ready", "task", "after", "0"]


def test_a_job_knows_when_its_walltime_ends(slurm: Shims, tmp_path: Path) -> None:
    """And none is known to one without."""
    say = "echo $((SLURM_JOB_END_TIME - SLURM_JOB_START_TIME)) $SLURM_JOB_START_TIME"
    limited = slurm.submit("-t", "5", "-o", "out", "--wrap", say, cwd=tmp_path)
    free = slurm.submit("-o", "free", "--wrap", "echo ${SLURM_JOB_END_TIME-none}", cwd=tmp_path)
    assert [slurm.ended(job) for job in (limited, free)] == ["COMPLETED", "COMPLETED"]
    length, start = (tmp_path / "out").read_text().split()
    assert length == "300"
    noted = slurm.out("sacct", "-nPX", "-j", limited, "-o", "Submit,End")
    submitted, ended = (datetime.fromisoformat(text).timestamp() for text in noted.strip().split("|"))
    assert submitted - 1 <= int(start) <= ended + 1
    assert (tmp_path / "free").read_text() == "none\n"


def test_a_job_requeues_itself(slurm: Shims, tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -o out --open-mode=append\necho try ${SLURM_RESTART_COUNT:-0}\n"
        "if [ ! -e once ]; then touch once; scontrol requeue $SLURM_JOB_ID; echo asked $?; sleep 60; fi\n"
    )
    job = slurm.submit(cwd=tmp_path, stdin=text)
    until(lambda: (tmp_path / "once").exists(), "it does not begin")
    until(lambda: slurm.state(job) == "COMPLETED", "it does not come back")
    words = (tmp_path / "out").read_text()
    assert words.startswith("try 0\n")
    assert words.endswith("try 1\n")
    assert "Restarts=1" in slurm.out("scontrol", "show", "job", job)


# -- srun ------------------------------------------------------------------------------------------------


def test_tasks_know_their_place(slurm: Shims, tmp_path: Path) -> None:
    say = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID $SLURM_STEP_ID"
    steps = f"srun -o 't.%t.%s' sh -c '{say}'\nsrun -n1 -o one sh -c '{say}'\n"
    script = f"#!/bin/sh\n#SBATCH -o /dev/null -n 2\n{steps}"
    job = slurm.submit(cwd=tmp_path, stdin=script)
    assert slurm.ended(job) == "COMPLETED"
    assert [(tmp_path / f"t.{n}.0").read_text() for n in (0, 1)] == ["0/2 0 0 0\n", "1/2 1 0 0\n"]
    assert (tmp_path / "one").read_text() == "0/1 0 0 1\n"


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("srun -n 2 sh -c 'exit $SLURM_PROCID'", 1, "task 1: Exited with exit code 1"),
        ("srun -n 3 sh -c 'exit $((SLURM_PROCID * 3))'", 6, "task 2: Exited with exit code 6"),
        ("srun sh -c 'kill -9 $$'", 137, "task 0: Killed"),
        ("srun nosuchprogram", 2, "execve(): nosuchprogram: No such file or directory"),
        ("srun --nosuch true", 255, "srun: unrecognized option '--nosuch'"),
        ("srun", 1, "srun: fatal: No command given to execute."),
        (
            "srun -n 2 -K sh -c '[ $SLURM_PROCID = 0 ] && exit 4; sleep 100'",
            137,
            "task 0: Exited with exit code 4",
        ),
    ],
)
def test_the_status_of_a_step(slurm: Shims, tmp_path: Path, command: str, status: int, said: str) -> None:
    job = slurm.submit("-o", "out", cwd=tmp_path, stdin=f"#!/bin/sh\n{command}\necho $?\n")
    slurm.ended(job)
    text = (tmp_path / "out").read_text()
    assert said in text
    assert text.split("\n")[-2] == str(status)


def test_steps_are_on_record(slurm: Shims, tmp_path: Path) -> None:
    """Numbers, programs, tasks, states and statuses, beside those of the job and its script."""
    script = (
        "#!/bin/sh\n#SBATCH -n 2 -o /dev/null\nsrun true\nsrun -n 1 sh -c 'exit 3'\n"
        "srun -n1 sh -c 'kill -9 $$'\nsrun -n1 nosuchprogram\nexit 0\n"
    )
    job = slurm.submit(cwd=tmp_path, stdin=script)
    assert slurm.ended(job) == "COMPLETED"
    layout = "JobID,JobName%20,State,ExitCode,NTasks,AllocCPUS,NNodes"
    found = slurm.out("sacct", "-nP", "-j", job, "-o", layout).splitlines()
    assert [line.split("|")[0] for line in found] == [job, *(f"{job}.{n}" for n in ("batch", 0, 1, 2, 3))]
    assert found[2:] == [
        f"{job}.0|true|COMPLETED|0:0|2|2|1",
        f"{job}.1|sh|FAILED|3:0|1|1|1",
        f"{job}.2|sh|FAILED|0:9|1|1|1",
        f"{job}.3|nosuchprogram|FAILED|2:0|1|1|1",
    ]
    assert slurm.out("sacct", "-nP", "-X", "-j", job, "-o", "JobID") == f"{job}\n"
    assert slurm.out("sacct", "-nP", "-j", f"{job}.1", "-o", "JobID,MaxRSS").startswith(f"{job}.1|")
    peak = slurm.out("sacct", "-nP", "-j", f"{job}.0", "-o", "MaxRSS").strip()
    assert 100 < int(peak.removesuffix("K")) < 100_000


def test_a_step_that_runs_and_one_that_is_cancelled_with_its_job(slurm: Shims, tmp_path: Path) -> None:
    job = slurm.submit(cwd=tmp_path, stdin="#!/bin/sh\n#SBATCH -o /dev/null\nsrun sleep 100\n")
    step = ("sacct", "-nP", "-j", f"{job}.0", "-o", "JobName,State")
    until(lambda: slurm.out(*step) == "sleep|RUNNING\n", "its step runs")
    shown = slurm.out("squeue", "-h", "-s", "-j", job, "-o", "%i|%j|%A|%u").splitlines()
    assert [line.rpartition("|")[0] for line in shown] == [f"{job}.0|sleep|1", f"{job}.batch|batch|1"]
    assert slurm.out("squeue", "-h", f"--steps={job}.0", "-O", "stepid:|").strip(" |\n") == f"{job}.0"
    assert "STEPID     NAME PARTITION     USER      TIME NODELIST" in slurm.out("squeue", "-s")
    slurm.out("scancel", job)
    assert slurm.ended(job) == "CANCELLED"
    assert slurm.out(*step) == "sleep|CANCELLED\n"
    assert slurm.out("squeue", "-h", "-s", "-j", job) == ""


def test_tasks_are_spread_over_the_nodes_of_a_job(tmp_path: Path) -> None:
    """On a service whose machine is described as several nodes."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core is here, and each node needs its own")
    nodes = "".join(
        f'[[node]]\nname = "{name}"\ncores = [{core}]\n' for name, core in zip("ab", cores, strict=False)
    )
    (tmp_path / "nodes.toml").write_text(nodes)
    with serving(tmp_path, "--cluster", str(tmp_path / "nodes.toml")) as service:
        slurm = Shims(service, tmp_path / "shims")
        say = "sh -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_PROCID'"
        lines = f"srun -l {say}\nsrun -l -n 3 {say}\nsrun -N1 -n1 -w b {say}\nsrun -N 3 true\n"
        head = "#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=1 -o out\n"
        job = slurm.submit(cwd=tmp_path, stdin=head + lines)
        assert slurm.ended(job) == "FAILED"
        text = (tmp_path / "out").read_text()
        lines_of = text.split("\n")
        assert sorted(lines_of[:2]) == ["0: a 0 0", "1: b 1 1"]
        assert sorted(lines_of[2:5]) == ["0: a 0 0", "1: a 0 1", "2: b 1 2"]
        assert lines_of[5] == "b 0 0"
        assert "More nodes requested than the job has" in text
        wide = slurm.out("sacct", "-nP", "-j", f"{job}.0", "-o", "NNodes,NodeList,NTasks")
        assert wide == "2|a,b|2\n"


def test_labels_and_input(slurm: Shims, tmp_path: Path) -> None:
    script = (
        "#!/bin/sh\nprintf 'a\\nb' | srun -l cat\nsrun -l -n 2 sh -c 'echo $SLURM_PROCID >&2' 2>&1 | sort\n"
    )
    job = slurm.submit("-o", "out", cwd=tmp_path, stdin=script)
    slurm.ended(job)
    assert (tmp_path / "out").read_text() == "0: a\n0: b\n0: 0\n1: 1\n"


def test_exact_steps_wait_for_cores_of_their_own(slurm: Shims, tmp_path: Path) -> None:
    task = "python3 -I -S -c 'import os, time; print(*os.sched_getaffinity(0)); time.sleep(0.3)'"
    lines = "".join(f"srun --exact -n1 -o cores.{n} {task} &\n" for n in range(4))
    job = slurm.submit("-c", "2", cwd=tmp_path, stdin=f"#!/bin/sh\n#SBATCH -o /dev/null\n{lines}wait\n")
    assert slurm.ended(job) == "COMPLETED"
    cores = [(tmp_path / f"cores.{n}").read_text().split() for n in range(4)]
    assert all(len(held) == 1 for held in cores)
    assert len({held[0] for held in cores}) == 2


def test_outside_of_a_job_srun_is_one(slurm: Shims, tmp_path: Path) -> None:
    done = slurm.run(
        "srun",
        "-n",
        "2",
        "-J",
        "mine",
        "-l",
        "sh",
        "-c",
        "echo $SLURM_JOB_NAME; echo e >&2; exit 3",
        cwd=tmp_path,
    )
    assert done.returncode == 3
    assert sorted(done.stdout.split("\n")) == ["", "0: mine", "1: mine"]
    assert "0: e" in done.stderr
    assert "task 0: Exited with exit code 3" in done.stderr
    done = slurm.run("srun", "-N", "9", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("srun: error: Unable to allocate resources: ")


def test_an_srun_that_is_ended_ends_its_job(slurm: Shims, tmp_path: Path) -> None:
    argv = [str(slurm.folder / "srun"), "-J", "endless", "sleep", "100"]
    process = subprocess.Popen(argv, env=slurm.environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    until(lambda: "R" in slurm.out("squeue", "-h", "-n", "endless", "-o", "%t"), "it does not run")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    until(lambda: not slurm.out("squeue", "-h", "-n", "endless"), "it runs on")


def test_nextflows_lines(slurm: Shims, tmp_path: Path) -> None:
    """A head and command lines as Nextflow's grid executor writes them (SlurmExecutor of 24.10)."""
    head = (
        "#!/bin/bash\n#SBATCH -J nf-hello_(1)\n#SBATCH -o {0}/.command.log\n#SBATCH --no-requeue\n"
        "#SBATCH --signal B:USR2@30\n#SBATCH -c 1\n#SBATCH --mem 100M\n"
    )
    trap = "set -e\ntrap 'exit 143' USR2\necho hello\nprintf 0 > .exitcode\n"
    (tmp_path / ".command.run").write_text(head.format(tmp_path) + trap)
    said = slurm.out("sbatch", ".command.run", cwd=tmp_path)
    job = re.fullmatch(r"Submitted batch job (\d+)\n", said)
    assert job is not None
    status = ("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", ME)
    until(lambda: f"{job[1]} CD" in slurm.out(*status).split("\n"), "it does not end")
    assert (tmp_path / ".command.log").read_text() == "hello\n"
    assert f"{job[1]} CD" in slurm.out(*status, "-p", "dovetail").split("\n")
    array = slurm.submit("-a", "0-1", "-H", "--wrap", "true", cwd=tmp_path)
    assert slurm.run("scancel", f"{array}_0", f"{array}_1").returncode == 0
    assert slurm.out("squeue", "-h", "-j", array) == ""
