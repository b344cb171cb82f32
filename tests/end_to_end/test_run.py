"""``dovetail run`` with real processes: every way in which a job can end is a clear state in the table."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dovetail_command import DOVETAIL, load
from waiting import until

from dovetail.history.sqlite import SqliteHistory
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]

ONE_CORE = """
[[node]]
name = "here"
cores = [{core}]
"""

JOBS = """
[[app]]
name = "{name}"
[[app.implementation]]
name = "cpu"
command = {command}
[[job]]
app = "{name}"
count = {count}
{more}
"""


def one_core(tmp_path: Path) -> str:
    core = min(os.sched_getaffinity(0))
    path = tmp_path / "cluster.toml"
    path.write_text(ONE_CORE.format(core=core))
    return str(path)


def job_file(tmp_path: Path, command: list[str], *, name: str = "a", count: int = 1, more: str = "") -> str:
    path = tmp_path / f"{name}.toml"
    path.write_text(JOBS.format(name=name, command=json.dumps(command), count=count, more=more))
    return str(path)


def runs_in(history: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(history) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with SqliteHistory(history) as store:
        return [(run.uid, run.state) for run in store.all_runs()]


def states(found: Any) -> list[str]:
    return [job["state"] for job in found["jobs"]]


def test_a_run_is_recorded_and_predicts_the_next(dovetail: Call, tmp_path: Path) -> None:
    jobs, cluster = job_file(tmp_path, ["sleep", "0.2"], count=2), one_core(tmp_path)
    first = dovetail("run", jobs, "--cluster", cluster, "--history", "h.sqlite", "--json")
    assert first.returncode == 0, first.stderr
    assert states(load(first)) == ["COMPLETED", "COMPLETED"]
    assert load(first)["jobs"][0]["predicted"] is None
    second = dovetail("run", jobs, "--cluster", cluster, "--history", "h.sqlite", "--json")
    predicted = [job["predicted"] for job in load(second)["jobs"]]
    took = [job["end"] - job["start"] for job in load(first)["jobs"]]
    assert all(min(took) / 1.5 < p < 1.5 * max(took) for p in predicted)
    assert len(runs_in(tmp_path / "h.sqlite")) == 4
    assert (tmp_path / "h.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("command", "more", "state", "words"),
    [
        (["false"], "", "FAILED", "exit code 1"),
        (["no-such-program-anywhere"], "", "FAILED", "no-such-program-anywhere"),
        (["sleep", "600"], "walltime = 0.3", "TIMEOUT", ""),
    ],
)
def test_failures_end_in_a_clear_state(
    dovetail: Call, tmp_path: Path, command: list[str], more: str, state: str, words: str
) -> None:
    jobs = job_file(tmp_path, command, more=more)
    found = dovetail("run", jobs, "--cluster", one_core(tmp_path), "--history", "h.sqlite", "--json")
    assert found.returncode == 1
    assert states(load(found)) == [state]
    assert words in found.stderr


@pytest.mark.parametrize("count", [3, 1])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_what_runs_and_cancels_what_waits(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals, count: int
) -> None:
    jobs = job_file(tmp_path, ["sleep", "600"], count=count)
    command = [*DOVETAIL, "run", jobs, "--cluster", one_core(tmp_path), "--history", "h.sqlite", "--json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert "starts" in process.stderr.readline()
    process.send_signal(number)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    assert states(json.loads(out)) == ["CANCELLED"] * count
    nobody_is_left(tmp_path)


def sleepers(tmp_path: Path) -> list[int]:
    """Processes whose working folder is the test's."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if os.readlink(f"/proc/{entry}/cwd") == str(tmp_path):
                    found.append(int(entry))
            except OSError:
                continue
    return found


def nobody_is_left(tmp_path: Path) -> None:
    """The supervisor is the last to leave, a moment after its jobs."""
    until(lambda: not sleepers(tmp_path), "something still runs there")


def on_record(tmp_path: Path, what: str, count: int = 1) -> bool:
    """Whether so many jobs of the only run have started, or ended, by the log of the supervisor."""
    logs = list(tmp_path.rglob("spawn.log"))
    return bool(logs) and len(getattr(read_log(logs[0]), what)) >= count


def test_kill_9_at_random_moments_loses_nothing(
    dovetail: Call, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The database opens, no run is there twice, none that ended is lost, no orphan is unknown."""
    rng = np.random.Generator(np.random.PCG64(20260101))
    marks = tmp_path / "marks"
    marks.mkdir()
    script = tmp_path / "job.sh"
    # A job says on its own that it ended: one file each, made by its last command.
    script.write_text('sleep 0.03; : > "$1/$DOVETAIL_JOB.$$"\n')
    jobs = job_file(tmp_path, ["sh", str(script), str(marks)], count=40)
    cluster = one_core(tmp_path)
    for _ in range(full(100, 3)):
        command = [*DOVETAIL, "run", jobs, "--cluster", cluster, "--history", "h.sqlite"]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        if rng.random() < 0.8:
            process.stderr.readline()  # the first job starts; else somewhere while Dovetail itself starts
        time.sleep(float(rng.uniform(0.0, 1.5)))
        process.kill()
        process.wait()
        process.stderr.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        left = load(dovetail("recover", "--json"))
        if not any(run["running"] for run in left):
            break
        time.sleep(0.1)
    dovetail("recover")
    recorded = runs_in(tmp_path / "h.sqlite")
    uids = [uid for uid, _ in recorded]
    assert len(set(uids)) == len(uids)
    completed = sum(state == "COMPLETED" for _, state in recorded)
    assert completed == len(list(marks.iterdir()))
    assert load(dovetail("recover", "--json")) == []
    nobody_is_left(tmp_path)


def test_an_orphan_is_found_named_and_stopped(
    dovetail: Call, tmp_path: Path, environment: dict[str, str]
) -> None:
    jobs = job_file(tmp_path, ["sleep", "300"], name="long")
    command = [*DOVETAIL, "run", jobs, "--cluster", one_core(tmp_path), "--history", "h.sqlite"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert "long-1 starts" in process.stderr.readline()
    until(lambda: on_record(tmp_path, "starts"))
    process.kill()
    process.wait()
    process.stderr.close()
    found = dovetail("recover")
    assert "long-1 still runs: process" in found.stdout
    assert dovetail("recover", "--stop").returncode == 0
    nobody_is_left(tmp_path)
    assert dovetail("recover").stdout == "Nothing was left behind.\n"


def test_the_first_run_on_a_device_is_marked(dovetail: Call, tmp_path: Path) -> None:
    jobs = job_file(tmp_path, ["true"], count=3)
    for _ in range(2):
        arguments = ("--cluster", one_core(tmp_path), "--history", "h.sqlite", "-q")
        assert dovetail("run", jobs, *arguments).returncode == 0
    with SqliteHistory(tmp_path / "h.sqlite", must_exist=True) as history:
        assert [run.first_on_device for run in history.all_runs()] == [True] + 5 * [False]


def test_a_run_folder_elsewhere_is_recovered_too(
    dovetail: Call, tmp_path: Path, environment: dict[str, str], state: Path
) -> None:
    jobs = job_file(tmp_path, ["sleep", "300"], name="long")
    where = ("--cluster", one_core(tmp_path), "--history", "h.sqlite", "--run-dir", "elsewhere")
    process = subprocess.Popen(
        [*DOVETAIL, "run", jobs, *where], cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert "long-1 starts" in process.stderr.readline()
    until(lambda: on_record(tmp_path, "starts"))
    process.kill()
    process.wait()
    process.stderr.close()
    assert "long-1 still runs: process" in dovetail("recover").stdout
    assert dovetail("recover", "--stop").returncode == 0
    nobody_is_left(tmp_path)
    assert dovetail("recover").stdout == "Nothing was left behind.\n"
    assert not [path for path in (state / "dovetail" / "runs").iterdir() if path.is_symlink()]


def test_a_list_of_commands_needs_no_toml(dovetail: Call, tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text(
        "# three ordinary lines\nsleep 0.1\nsleep 0.2\n\nsleep 0.3 # the last\n"
    )
    arguments = ("commands.txt", "--cluster", one_core(tmp_path), "--history", "h.sqlite")
    for _ in range(2):
        assert dovetail("run", *arguments, "-q").returncode == 0
    last = load(dovetail("run", *arguments, "--json"))
    assert [job["predicted"] is not None for job in last["jobs"]] == [True, True, True]
    told = dovetail("explain", *arguments)
    assert "arg1=0.1" in told.stdout


def test_a_command_after_two_dashes(dovetail: Call, tmp_path: Path) -> None:
    found = dovetail(
        "run", "--cluster", one_core(tmp_path), "--history", "h.sqlite", "--json", "--", "echo", "--json"
    )
    assert found.returncode == 0, found.stderr
    assert states(load(found)) == ["COMPLETED"]


def test_what_cannot_run_here_is_no_success(dovetail: Call, tmp_path: Path) -> None:
    done = dovetail("run", "--cluster", one_core(tmp_path), "--on", "opencl", "--", "true")
    assert done.returncode == 2
    assert (
        "the command: 1 job rejected, the first is true-1: needs a device of kind opencl, and there is none"
        in done.stderr
    )


def test_explain_and_replay_of_the_last_run(dovetail: Call, tmp_path: Path, state: Path) -> None:
    jobs = job_file(tmp_path, ["true"], count=2)
    assert (
        dovetail("run", jobs, "--cluster", one_core(tmp_path), "--history", "h.sqlite", "-q").returncode == 0
    )
    rows = load(dovetail("explain", "--json"))
    assert [row["id"] for row in rows] == ["a-1", "a-2"]
    assert all(row["actual"] is not None and row["reason"] for row in rows)
    journal = next(state.glob("dovetail/runs/*/journal.jsonl"))
    replayed = dovetail("replay", str(journal))
    assert replayed.returncode == 0
    assert "all identical" in replayed.stdout


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    size = ["-o", "size=2m"]
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", *size, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_delays_what_has_not_started_and_loses_nothing(
    small: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The first job fills the disk; the second starts when there is space again, and is told of once."""
    (tmp_path / "fill.sh").write_text(
        f"until test -e {tmp_path}/started; do sleep 0.02; done\n"  # its start is on record
        f"head -c 4000000 /dev/zero > {small}/ballast; sleep 0.5; echo ended > {tmp_path}/first\n"
    )
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("sh fill.sh\ntouch second\n")
    with (tmp_path / "noted").open("w") as stderr:
        process = subprocess.Popen(
            [*DOVETAIL, "run", str(jobs), "--cluster", one_core(tmp_path), "--history",
             str(small / "h.sqlite"), "--run-dir", str(small / "run"), "--json"],
            cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
    until(lambda: on_record(small, "starts"))
    (tmp_path / "started").touch()
    until(lambda: "the disk is full" in (tmp_path / "noted").read_text())
    assert (tmp_path / "first").exists()
    time.sleep(full(2.5, 1.0))  # it is tried again, in vain
    assert process.poll() is None
    assert not (tmp_path / "second").exists()
    (small / "ballast").unlink()
    said, _ = process.communicate(timeout=100)
    noted = (tmp_path / "noted").read_text()
    assert process.returncode == 0, noted
    assert states(json.loads(said)) == ["COMPLETED", "COMPLETED"]
    assert noted.count("the disk is full: nothing starts until it is on record; what runs (0) goes on") == 1
    assert noted.count("what waited is on record again: jobs start") == 1
    assert len(runs_in(small / "h.sqlite")) == 2
    with sqlite3.connect(small / "h.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with sqlite3.connect(small / "run" / "ledger.db") as database:
        assert database.execute("SELECT count(*) FROM unrecorded").fetchone() == (0,)


TWELVE = """
# Twelve different command lines, as somebody's list of chores might be
sleep 0.05
sort data.txt
gzip -kc data.txt
sha256sum data.txt
md5sum data.txt
wc -l data.txt
head -c 1000 data.txt
tail -n 5 data.txt
cut -c1 data.txt
seq 1 1000
python -m dovetail.apps reduction --device {device} --n 10000
python -m dovetail.apps matmul --device {device} --n 64
"""


def test_twelve_ordinary_command_lines_are_all_predicted_the_third_time(
    dovetail: Call, tmp_path: Path
) -> None:
    (tmp_path / "commands.txt").write_text(TWELVE)
    (tmp_path / "data.txt").write_text("some line\n" * 5000)
    arguments = ("commands.txt", "--cluster", one_core(tmp_path), "--history", "h.sqlite", "--json")
    runs = [load(dovetail("run", *arguments)) for _ in range(3)]
    for found in runs:
        assert states(found) == ["COMPLETED"] * 12
    # The last line is a run of the same program as the one before it, so something is known of it at once.
    assert [job["predicted"] for job in runs[0]["jobs"]][:11] == [None] * 11
    assert all(job["predicted"] > 0 for job in runs[2]["jobs"])


def test_another_writer_on_the_history_delays_no_walltime_and_kills_no_job(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    SqliteHistory(tmp_path / "h.sqlite").close()
    other = sqlite3.connect(tmp_path / "h.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    jobs = job_file(tmp_path, ["sleep", "0.1"], count=3, more='[[job]]\napp = "long"\nwalltime = 1\n')
    long = '[[app]]\nname = "long"\n[[app.implementation]]\nname = "cpu"\ncommand = ["sleep", "30"]\n'
    Path(jobs).write_text(long + Path(jobs).read_text())
    process = subprocess.Popen(
        [*DOVETAIL, "run", jobs, "--cluster", one_core(tmp_path), "--history", "h.sqlite", "--json"],
        cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: on_record(tmp_path, "ends", 4), "a job waits for the other writer")
    time.sleep(full(25, 1))
    other.execute("ROLLBACK")
    other.close()
    said, noted = process.communicate(timeout=100)
    assert process.returncode == 1, noted
    found = json.loads(said)
    assert sorted(states(found)) == ["COMPLETED"] * 3 + ["TIMEOUT"]
    (cut,) = [job for job in found["jobs"] if job["state"] == "TIMEOUT"]
    assert 1.0 <= cut["end"] - cut["start"] < 30
    assert len(runs_in(tmp_path / "h.sqlite")) == 4
