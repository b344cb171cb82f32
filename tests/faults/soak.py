"""Runs at once on one history, whose lock is held for 20 s now and then, on a disk that fills and empties.

Usage: python tests/faults/soak.py [--seconds 600] [--runs 8]. Needs the right to mount a small tmpfs;
without it the disk does not fill. Says what was lost, killed or late; exit status 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from dovetail.history.sqlite import SqliteHistory
from dovetail.running.leftovers import recover_left_behind

COMMAND = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]
SIZE = 24 << 20
WALLTIME = 2.0
JOBS = f"""
[[app]]
name = "short"
[[app.implementation]]
name = "cpu"
command = ["sh", "-c", "sleep 0.2; echo $DOVETAIL_UID >> $TRUTH"]
cpus = 1
[[app]]
name = "long"
[[app.implementation]]
name = "cpu"
command = ["sleep", "60"]
cpus = 1
[[job]]
app = "short"
count = 12
[[job]]
app = "long"
walltime = {WALLTIME}
"""


class Soak:
    """One soak: its folders, its clock, and what its runs have said."""

    def __init__(self, folder: Path, small: Path, seconds: float) -> None:
        self.folder, self.small = folder, small
        self.until = time.monotonic() + seconds
        self.history = small / "h.sqlite"
        self.truth = folder / "truth"
        self.states: Counter[str] = Counter()
        self.late: list[float] = []
        self.faults: list[str] = []
        self.held = self.filled = self.finished = 0

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def runs(self, number: int) -> None:
        """Run the queue again and again."""
        environment = {**os.environ, "XDG_STATE_HOME": str(self.small / "state"), "TRUTH": str(self.truth)}
        command = [
            *COMMAND,
            "run",
            "jobs.toml",
            "--cluster",
            "here.toml",
            "--history",
            str(self.history),
            "--json",
        ]
        while not self.over:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != 1:  # the long job ends as TIMEOUT
                self.faults.append(f"run {number}: status {done.returncode}: {done.stderr[-300:]}")
                time.sleep(1.0)  # nothing can begin on a full disk
                continue
            self.finished += 1
            for job in json.loads(done.stdout)["jobs"]:
                self.states[job["state"]] += 1
                if job["state"] == "TIMEOUT":
                    self.late.append(job["end"] - job["start"] - WALLTIME)

    def locks(self) -> None:
        """Another writer holds the lock for 20 s, three times in two minutes."""
        while not self.over:
            time.sleep(20.0)
            other = sqlite3.connect(self.history, timeout=30.0, isolation_level=None)
            try:
                other.execute("BEGIN IMMEDIATE")
                time.sleep(20.0)
                other.execute("ROLLBACK")
                self.held += 1
            except sqlite3.OperationalError:
                continue
            finally:
                other.close()

    def fills(self) -> None:
        """The disk is full for 5 s, twice a minute."""
        ballast = self.small / "ballast"
        while not self.over:
            time.sleep(25.0)
            try:
                with ballast.open("wb", buffering=0) as file:
                    while file.write(bytes(1 << 16)):
                        pass
            except OSError:  # after the last write, which was short
                self.filled += 1
            time.sleep(5.0)
            ballast.unlink(missing_ok=True)

    def check(self) -> bool:
        """Compare what jobs say with what the history says."""
        left = recover_left_behind(self.small / "state" / "dovetail" / "runs")
        ended = Counter(self.truth.read_text().split())
        with SqliteHistory(self.history, must_exist=True) as history:
            recorded = Counter(run.uid for run in history.all_runs() if run.state == "COMPLETED")
        with sqlite3.connect(self.history) as database:
            whole = database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        lost, doubled = ended - recorded, recorded - ended
        worst = max(self.late, default=0.0)
        print(f"{self.finished} runs, {sum(ended.values())} short jobs, {len(self.late)} walltimes reached")
        print(f"the lock was held {self.held} times for 20 s, the disk was full {self.filled} times")
        print(f"lost {sum(lost.values())}, doubled {sum(doubled.values())}, states {dict(self.states)}")
        print(f"latest end after a walltime: {worst:.2f} s; left behind: {len(left)}; history whole: {whole}")
        for fault in self.faults[:5]:
            print(f"refused: {fault}")
        killed = set(self.states) - {"COMPLETED", "TIMEOUT"}
        return whole and not lost and not doubled and not killed and worst < 1.0


def main() -> int:
    """Soak, then check."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--runs", type=int, default=8)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = folder / "small"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(small)]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        try:
            core = min(os.sched_getaffinity(0))
            (folder / "jobs.toml").write_text(JOBS)
            (folder / "here.toml").write_text(f'[[node]]\nname = "here"\ncores = [{core}]\n')
            soak = Soak(folder, small, asked.seconds)
            SqliteHistory(soak.history).close()
            work = [threading.Thread(target=soak.runs, args=(number,)) for number in range(asked.runs)]
            work += [threading.Thread(target=soak.locks)] + (
                [threading.Thread(target=soak.fills)] if mounted else []
            )
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
            return 0 if soak.check() else 1
        finally:
            if mounted:
                subprocess.run(["umount", "-l", str(small)], check=False)


if __name__ == "__main__":
    sys.exit(main())
