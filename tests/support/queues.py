"""A queue of jobs that say when they begin and end; it is started, killed, taken up, and looked at."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from dovetail_command import DOVETAIL
from waiting import until

from dovetail.model import State
from dovetail.process.processes import started_at
from dovetail.process.spawn_log import read_log

__all__ = ["FINAL", "Runs", "folder_of", "kill", "processes_of", "states", "supervisors"]

FINAL = {str(state) for state in State} - {"PENDING", "RUNNING"}

JOB = """\
import os, sys, time
def say(what):
    nodes, cores = os.environ["DOVETAIL_NODES"], os.environ["DOVETAIL_CORES"]
    held = ",".join(f"{nodes}/{core}" for core in cores.split(","))
    line = f"{what} {os.environ['DOVETAIL_JOB']} {held} {time.monotonic():.6f}\\n"
    os.write(out, line.encode())
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
say("began")
time.sleep(float(sys.argv[2]))
while os.path.exists("held"):
    time.sleep(0.02)
say("ended")
"""


def folder_of(state: Path) -> Path:
    """The folder of the only run."""
    (folder,) = (state / "dovetail" / "runs").iterdir()
    return folder


def states(folder: Path) -> Counter[str]:
    """How many jobs of a run are in each state."""
    with sqlite3.connect(folder / "ledger.db") as db:
        return Counter(row[0] for row in db.execute("SELECT state FROM job"))


def supervisors(folder: Path) -> list[int]:
    """Processes that supervise a run on this machine."""
    log = folder / "spawn.log"
    if not log.exists():
        return []
    # One notes its moment when it is up, which takes a while on a busy machine.
    return [s["pid"] for s in read_log(log).supervisors if (started_at(s["pid"]) or inf) <= s["boot"] + 0.05]


def kill(pid: int) -> None:
    """Kill a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def processes_of(word: str) -> list[int]:
    """Processes in whose command line the word stands."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


class Runs:
    """A queue, what its jobs have said, and the Dovetail that runs it."""

    def __init__(self, tmp_path: Path, environment: Mapping[str, str], state: Path) -> None:
        self.tmp_path, self.environment, self.state = tmp_path, environment, state
        self.said = tmp_path / "said.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.count = 0

    def write(self, count: int, seconds: Callable[[int], float], **fields: Any) -> None:
        """The job file: so many jobs of one CPU, with these fields."""
        (self.tmp_path / "job.py").write_text(JOB)
        script = str(self.tmp_path / "job.py")
        lines = ["[[app]]", 'name = "job"', "[[app.implementation]]", 'name = "cpu"', "cpus = 1"]
        lines += [f"command = {json.dumps(['python3', '-I', '-S', script, str(self.said), '{n}'])}"]
        for i in range(count):
            lines += ["[[job]]", f'id = "j{i}"', 'app = "job"', f"inputs = {{ n = {seconds(i)} }}"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        (self.tmp_path / "jobs.toml").write_text("\n".join(lines) + "\n")
        self.count = count

    def go(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start ``dovetail run ARGUMENTS``."""
        with (self.tmp_path / "stderr.txt").open("ab") as stderr:
            self.process = subprocess.Popen(
                [*DOVETAIL, "run", *arguments],
                cwd=self.tmp_path,
                env={**self.environment, **(environment or {})},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        return self.process

    @property
    def complaints(self) -> str:
        """What was written on standard error."""
        return (self.tmp_path / "stderr.txt").read_text()

    def began(self) -> bool:
        """Whether the whole queue is on disk."""
        ledgers = list((self.state / "dovetail" / "runs").glob("*/ledger.db"))
        try:
            return bool(ledgers) and sum(states(ledgers[0].parent).values()) == self.count
        except sqlite3.OperationalError:
            return False

    def wait_for(self, count: int, what: str = "began") -> None:
        """Wait until so many jobs have begun, or ended."""
        until(lambda: self.said.exists() and self.said.read_text().count(what) >= count, f"{count} {what}")

    def rows(self) -> dict[str, tuple[str, int, str]]:
        """State, attempt and detail of each job."""
        with sqlite3.connect(folder_of(self.state) / "ledger.db") as db:
            rows = db.execute("SELECT id, state, attempt, coalesce(detail, '') FROM job").fetchall()
        return {job: (state, attempt, detail) for job, state, attempt, detail in rows}

    def check(self, *, left: int = 0) -> None:
        """Every job (but those ``left``) ended once, none was executed more often than it was started.

        No two jobs were on one core at the same time.
        """
        rows = self.rows()
        assert sum(state in FINAL for state, _, _ in rows.values()) == self.count - left
        lines = [line.split() for line in self.said.read_text().splitlines()]
        began = Counter(job for what, job, _, _ in lines if what == "began")
        assert all(times <= rows[job][1] for job, times in began.items())
        ended = {job for what, job, _, _ in lines if what == "ended"}
        assert {job for job, (state, _, _) in rows.items() if state == "COMPLETED"} <= ended
        never = {job for job in rows if job not in began}
        assert all(rows[job][0] in ("NODE_FAIL", "PENDING") for job in never)
        until(lambda: not processes_of(str(self.tmp_path / "job.py")), "a job still runs")
        self._no_core_shared(lines)

    def _no_core_shared(self, lines: list[list[str]]) -> None:
        spans: dict[str, list[tuple[float, float]]] = {}
        for at, (what, job, cores, when) in enumerate(lines):
            if what != "began":
                continue
            # An attempt that was cut short ended at the latest when its core was given to the next.
            after = next(((k, w) for k, j, _, w in lines[at + 1 :] if j == job), ("", when))
            over = float(after[1] if after[0] == "ended" else when)
            for core in cores.split(","):
                spans.setdefault(core, []).append((float(when), over))
        for busy in spans.values():
            busy.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(busy))
