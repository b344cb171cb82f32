"""A run that is struck at one numbered moment of its life, and what must be true of it afterwards."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dovetail_command import DOVETAIL
from waiting import until

from dovetail.history.sqlite import SqliteHistory
from dovetail.model import State
from dovetail.process.spawn_log import read_log
from dovetail.running.leftovers import Leftover, recover_left_behind

SOURCE = Path(__file__).with_name("faults.c")
JOBS = 3


def built(folder: Path, source: Path = SOURCE) -> Path | None:
    """The library that strikes, or another; ``None`` where nothing compiles it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / f"{source.stem}.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    return library if subprocess.run(command, check=False, capture_output=True).returncode == 0 else None


@dataclass(frozen=True)
class Struck:
    """What came out of it: the first command's status (negative: the signal), its output and errors."""

    folder: Path
    status: int
    printed: str
    said: str
    supervisor_killed: bool = False


def prepared(folder: Path) -> None:
    """Three jobs that say when they start and when they end, two of them on one core."""
    folder.mkdir()
    (folder / "job.sh").write_text(
        'echo "start $DOVETAIL_JOB" >> truth\nsleep 0.05\necho "end $DOVETAIL_JOB" >> truth\n'
    )
    (folder / "jobs.txt").write_text("sh job.sh\n" * JOBS)
    core = min(os.sched_getaffinity(0))
    (folder / "cluster.toml").write_text(f'[[node]]\nname = "here"\ncores = [{core}]\n')


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Without Python's own buffer, which would mend what Dovetail itself must write whole."""
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUNBUFFERED": "1", **more}


def command(
    folder: Path, *arguments: str, around: Sequence[str] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*around, *DOVETAIL, *arguments], cwd=folder, env=environment(folder, **more),
        text=True, capture_output=True, check=False, timeout=280,
    )  # fmt: skip


def strike(
    folder: Path,
    library: Path,
    role: str,
    number: int,
    what: str,
    later: int = 0,
    around: Sequence[str] = (),
) -> Struck:
    """Run the jobs, at such a place (`places`); at its ``number``-th call that writes, ``role`` is struck."""
    prepared(folder)
    done = command(
        folder, "run", "jobs.txt", "--cluster", "cluster.toml", "--history", "h.sqlite", "--json",
        around=around,
        LD_PRELOAD=str(library), DOVETAIL_FAULT=f"{role}:{number}:{what}", DOVETAIL_LATER=str(later),
        DOVETAIL_COUNT=str(folder / "count"),
    )  # fmt: skip
    killed = role == "supervisor" and what in ("kill", "both")
    return Struck(folder, done.returncode, done.stdout, done.stderr, killed)


def steps(folder: Path, library: Path, role: str, around: Sequence[str] = ()) -> int:
    """How many calls that write a process of a run makes when nothing goes wrong."""
    struck = strike(folder, library, role, 0, "count", around=around)
    assert struck.status == 0, struck.said
    return int((folder / "count").read_text())


def truth(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """How often each job has started, and has ended, by its own account."""
    path = folder / "truth"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return Counter(job for what, job in lines if what == "start"), Counter(
        job for what, job in lines if what == "end"
    )


def seen(folder: Path) -> set[str]:
    """Jobs whose process was found alive when its supervisor was gone, by the spawn log."""
    logs = list((folder / "state" / "dovetail" / "runs").glob("*/spawn.log*"))
    ends = [(log, uid, end) for log in map(read_log, logs) for uid, end in log.ends.items()]
    return {log.intents[uid]["job"] for log, uid, end in ends if end.get("ran") and uid in log.intents}


def recovered(folder: Path) -> list[Leftover]:
    """All that is told of what was left behind, asked until nothing runs any more."""
    told: list[Leftover] = []
    deadline = time.monotonic() + 60
    while True:
        found = recover_left_behind(folder / "state" / "dovetail" / "runs")
        told += found
        if not any(left.still_running for left in found):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def check(struck: Struck) -> None:
    """Nothing is doubled, run twice, lost in silence, recorded without having run, or left behind."""
    folder = struck.folder
    assert "internal error" not in struck.said, struck.said
    assert "Traceback" not in struck.said, struck.said
    told = recovered(folder)
    assert not any(left.trouble for left in told), told
    assert recovered(folder) == []
    started, _ = truth(folder)
    assert not started or max(started.values()) == 1, started
    runs = {}
    if (folder / "h.sqlite").exists() and (folder / "h.sqlite").stat().st_size:
        with sqlite3.connect(folder / "h.sqlite") as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()
        with SqliteHistory(folder / "h.sqlite", must_exist=True) as history:
            recorded = list(history.all_runs())
        runs = {run.job: run.state for run in recorded}
        assert len(runs) == len(recorded)
    # The one job that runs when its supervisor is killed is killed too, maybe before its first line: then it
    # cannot tell of itself, but its process was seen.
    silent = runs.keys() - started.keys()
    assert len(silent) <= struck.supervisor_killed, (runs, started)
    assert all(runs[job] is State.NODE_FAIL for job in silent), (runs, started)
    assert silent <= seen(folder), (runs, started)
    named = {job.job for left in told for job in (*left.recovery.lost, *left.recovery.ended)}
    named |= unsure(struck)
    assert started.keys() <= runs.keys() | named, (started, runs, told, struck.said)
    until(lambda: not left_running(folder), "something still runs")  # the supervisor is the last to leave
    if struck.status in (0, 1):
        whole(struck, runs)


def unsure(struck: Struck) -> set[str]:
    """The jobs of which it is said that nobody knows whether they ran.

    A supervisor was killed before it noted the start, and the job had ended, or never begun, when it was
    looked for. The next supervisor is struck at the same step, so there may be several.
    """
    told = json.loads(struck.printed)["jobs"] if struck.status in (0, 1) else []
    said = "; whether it had started is not known"
    found = {job["id"] for job in told if (job["detail"] or "").endswith(said)}
    assert struck.supervisor_killed or not found, struck.printed
    return found


def whole(struck: Struck, runs: dict[str, State]) -> None:
    """A command that ended by itself has printed all of its JSON; what it tells is what is on record."""
    told = {job["id"]: job["state"] for job in json.loads(struck.printed)["jobs"]}
    assert len(told) == JOBS, struck.printed
    assert runs.items() <= {job: State(state) for job, state in told.items()}.items(), (runs, told)
    assert struck.status == any(state != "COMPLETED" for state in told.values()), told


def left_running(folder: Path) -> list[str]:
    """Processes that still work in the folder."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if os.readlink(f"/proc/{entry}/cwd") == str(folder):
                    found.append(entry)
            except OSError:
                continue
    return found
