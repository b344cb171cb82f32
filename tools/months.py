"""Months of a service in minutes: traffic, restarts, kills, prunes, logouts, full disks, steps of the clock.

Usage: python tools/months.py [--months 8 | --minutes 480] [--days 6] [--jobs 40] [--seed 1] [--steady].
A month is so many days of traffic, after each of which all that has ended is made older by its part of a
month; with --minutes, months follow each other for so long. The service's memory, descriptors and threads
are measured before it is restarted at the end of each month, its folder after; --steady never restarts it,
so that what one process gathers is seen. What they drift by in an hour is the slope of a line through all
months from the fourth, in which what is old has begun to go. Exit status 1 where the last month has more
than the fourth by more than a tenth and a little, or where an acknowledged job is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from services import Serving, submit, wait

from dovetail.client.connection import Connection, NoService, open_connection
from dovetail.client.errors import Full
from dovetail.service.tidying import DAY

MONTH = 30
JOBS_A_DAY = 40
ELEMENTS = 25
EVERY = 2.0
ENDS = ("restart", "kill", "clock")
"""What a steady service is spared: one whose clock was set forward takes nothing for old from then on."""
LONG_LOG = 256 << 10
PROGRAM = f"""
import signal, time
real, offset = time.time, 0.0
time.time = lambda: real() + offset
def step(*_):
    global offset
    offset += 2 * 86400
signal.signal(signal.SIGUSR1, step)
from dovetail.local import executor
from dovetail.service import tidying
executor.LONG_LOG = {LONG_LOG}
tidying.EVERY, tidying.IDLE = {EVERY}, 1e9
from dovetail.cli.main import run_cli
run_cli()
"""
"""A service that looks for what is old every 2 s, though nothing has happened for weeks, as there are between
two days of traffic here, and shortens its spawn log 16 times as early, as its months have few jobs; a signal
sets its clock forward by two days."""


@dataclass
class Row:
    """What a service has at the end of a month."""

    month: int
    jobs: int
    starts: int
    memory: float
    descriptors: int
    threads: int
    ledger: float
    folder: float
    files: int
    seconds: float


@dataclass
class Months:
    """One service, day after day."""

    root: Path
    seed: int
    jobs_a_day: int = JOBS_A_DAY
    steady: bool = False
    rows: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        runtime = self.root / "runtime"
        runtime.mkdir()
        options = ("--cluster", "1x2cpu", "--keep", "1", "--log-level", "warning")
        self.service = Serving(
            self.root, *options, XDG_RUNTIME_DIR=str(runtime), DOVETAIL_CLAIMS=str(self.root / "claims")
        )
        self.runtime = runtime
        self.began = time.monotonic()
        self.client: Connection | None = None

    # ------------------------------------------------------------------ the service

    def start(self) -> None:
        """Start it; its clock goes right."""
        self.counts["starts"] += 1
        self.service.program = ("-c", PROGRAM)
        self.runtime.mkdir(exist_ok=True)
        self.client = self.service.start()

    def stop(self, *, kill: bool) -> None:
        """End it, by a signal that it takes, or by one that it does not."""
        assert self.service.process is not None
        assert self.client is not None
        self.client.close()
        if kill:
            self.service.kill()
            self.counts["kills"] += 1
        else:
            self.service.process.terminate()
            self.service.process.wait(100)

    def close(self) -> None:
        """End the service, and what it runs."""
        assert self.client is not None
        self.client.close()
        self.service.stop()

    def ask(self) -> Connection:
        """The service as it can be reached now."""
        assert self.client is not None
        try:
            self.client.get("/api/v1/info")
        except NoService:
            self.client.close()
            self.client = open_connection(self.service.folder.path)
        return self.client

    # ------------------------------------------------------------------ a day

    def day(self) -> None:
        """Jobs of many kinds, something that goes wrong, and a day passes."""
        rng = self.rng
        commands = [["sh", "-c", f"echo {rng.random()}"] for _ in range(self.jobs_a_day)]
        ids = self.sent(*({"command": one} for one in commands))
        ids += self.sent({"command": ["true"], "array": f"1-{ELEMENTS}"})
        held = self.sent({"command": ["true"], "hold": True})
        ids += self.sent({"script": "#!/bin/sh\necho script", "depends": [f"after:{ids[0]}"]})
        what = rng.choice(["logout", "full", "cancel", "prune", "nothing", *([] if self.steady else ENDS)])
        self.counts[what] += 1
        if what == "restart":
            self.stop(kill=False)
            self.start()
        elif what == "kill":
            self.stop(kill=True)
            self.start()
        elif what == "logout":
            self.logout()
        elif what == "full":
            self.full()
        elif what == "cancel":
            self.ask().post("/api/v1/cancel", {"jobs": ",".join(ids)})
        elif what == "clock":
            assert self.service.process is not None
            self.service.process.send_signal(signal.SIGUSR1)
        ended = wait(self.ask(), ids)
        self.counts["jobs"] += len(ended)
        assert len(ended) == len(ids), "an acknowledged job is missing"
        if what not in ("cancel", "full"):  # what a job writes to a full disk itself is its own failure
            assert set(ended.values()) == {"COMPLETED"}, Counter(ended.values())
        self.ask().post("/api/v1/cancel", {"jobs": held[0]})
        if what == "prune":
            self.ask().post("/api/v1/forget", {"age": 20 * DAY})

    def sent(self, *jobs: dict[str, Any]) -> list[str]:
        """Submit jobs, as soon as the service takes any: a disk that was full is looked at every 2 s."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return submit(self.ask(), *jobs)
            except Full:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def logout(self) -> None:
        """The runtime folder goes with the socket in it; the service makes another elsewhere."""
        if not self.runtime.exists():  # it has gone already, and this service has its socket elsewhere
            self.counts.subtract(["logout"])
            return
        assert self.client is not None
        self.client.close()
        for one in self.runtime.iterdir():
            one.unlink()
        self.runtime.rmdir()
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client = open_connection(self.service.folder.path)
                self.client.get("/api/v1/info")
            except NoService:
                self.client.close()
                assert time.monotonic() < deadline, "no socket was made anew"
                time.sleep(0.2)
            else:
                return

    def full(self) -> None:
        """The disk is full for a moment; what is refused then is no job."""
        if not os.path.ismount(self.root):
            return
        filler = self.root / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with contextlib.suppress(Full, NoService):
            submit(self.ask(), {"command": ["true"]})
        time.sleep(0.5)
        filler.unlink()

    def pass_time(self, days: float) -> None:
        """All that has ended is so much older."""
        folder = self.service.folder
        with contextlib.closing(sqlite3.connect(folder.ledger_path, timeout=30)) as db, db:
            db.execute(
                "UPDATE job SET ended = ended - ?, submitted = submitted - ? WHERE ended IS NOT NULL",
                (days * DAY, days * DAY),
            )
        for place, _, names in os.walk(folder.path / "output"):
            for path in (Path(place, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    before = path.stat().st_mtime - days * DAY
                    os.utime(path, (before, before))

    # ------------------------------------------------------------------ a month

    def month(self, number: int, days: int) -> None:
        """So many virtual days make a month; what is old goes, as once an hour, and all is measured."""
        for _ in range(days):
            self.day()
            self.pass_time(MONTH / days)
        client = self.ask()
        deadline = time.monotonic() + 60
        while client.get("/api/v1/jobs", limit=1)["total"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        held = self.held()
        if not self.steady:
            self.stop(kill=False)  # one whose clock was set forward takes nothing for old within a day
            self.start()
        time.sleep(3 * EVERY)
        self.rows.append(self.measured(number, *held))

    def held(self) -> tuple[float, int, int]:
        """The memory, descriptors and threads of the service, after what it has done since it started."""
        assert self.service.process is not None
        place = Path(f"/proc/{self.service.process.pid}")
        status = place.joinpath("status").read_text()

        def of_status(name: str) -> int:
            return int(status.split(f"{name}:")[1].split()[0])

        return of_status("VmRSS") / 1e3, len(list(place.joinpath("fd").iterdir())), of_status("Threads")

    def measured(self, number: int, memory: float, descriptors: int, threads: int) -> Row:
        """What its folder has now, beside what it held itself."""
        folder = self.service.folder
        # What the service removes meanwhile is passed over.
        files = [Path(place, name) for place, _, names in os.walk(folder.path) for name in names]
        with contextlib.closing(sqlite3.connect(folder.ledger_path, timeout=30)) as db:
            ((jobs,),) = db.execute("SELECT count(*) FROM job")
        sizes = 0
        for path in files:
            with contextlib.suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return Row(
            number,
            jobs,
            self.counts["starts"],
            memory,
            descriptors,
            threads,
            folder.ledger_path.stat().st_size / 1e6,
            sizes / 1e6,
            len(files),
            time.monotonic() - self.began,
        )

    def faults(self) -> list[str]:
        """What has grown from the fourth month, when what is old has begun to go, to the last."""
        if len(self.rows) < 5:
            return []
        before, after = self.rows[3], self.rows[-1]
        limits = {"memory": 8.0, "descriptors": 8, "threads": 4, "ledger": 1.0, "files": 200, "jobs": 200}
        return [
            f"{name}: {getattr(before, name):g} in month {before.month}, {getattr(after, name):g} in month "
            f"{after.month}"
            for name, spare in limits.items()
            if getattr(after, name) > 1.1 * getattr(before, name) + spare
        ]


MEASURED = ("memory", "descriptors", "threads", "ledger", "folder", "files")


def drift(rows: list[Row]) -> dict[str, float]:
    """What each grows by in an hour: the slope of the line of least squares from the fourth month on."""
    settled = rows[3:]
    if len(settled) < 2:
        return {}
    hours = [row.seconds / 3600 for row in settled]
    return {
        name: linear_regression(hours, [getattr(row, name) for row in settled]).slope for name in MEASURED
    }


def shown(rows: list[Row]) -> str:
    """The table of the page."""
    lines = [
        "| month | on record | starts | memory, MB | descriptors | threads | ledger, MB | files | after, s |",
        "| ---: " * 9 + "|",
    ]
    lines += [
        f"| {r.month} | {r.jobs:,} | {r.starts} | {r.memory:.0f} | {r.descriptors} | {r.threads} "
        f"| {r.ledger:.2f} | {r.files:,} | {r.seconds:.0f} |"
        for r in rows
    ]
    return "\n".join(lines)


@contextlib.contextmanager
def small_disk(size: str = "256m") -> Iterator[Path]:
    """A folder on a file system of its own, where one can be mounted; else one on this disk."""
    with tempfile.TemporaryDirectory() as root:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", root]
        mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
        try:
            yield Path(root)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", root], check=True)


def main() -> int:
    """Run, print the table, and say what has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=8)
    parser.add_argument("--minutes", type=float, help="begin months for so many minutes, instead of --months")
    parser.add_argument("--days", type=int, default=6, help="virtual days that a month has")
    parser.add_argument("--jobs", type=int, default=JOBS_A_DAY, help="of each of these days")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--steady", action="store_true", help="never restart it: no kills, no steps of the clock"
    )
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # also in the background: the disk goes with us
        signal.signal(number, signal.default_int_handler)
    with small_disk() as root:
        found = Months(root, arguments.seed, arguments.jobs, arguments.steady)
        found.start()
        try:
            for number in itertools.count(1):
                if arguments.minutes is None:
                    over = number > arguments.months
                else:
                    over = time.monotonic() - found.began > 60 * arguments.minutes
                if over:
                    break
                found.month(number, arguments.days)
                print(shown(found.rows[-1:]).splitlines()[-1], flush=True)
        finally:
            found.close()
        print(shown(found.rows))
        print(", ".join(f"{what} {count}" for what, count in sorted(found.counts.items())))
        slopes = drift(found.rows)
        print("drift per hour:", ", ".join(f"{name} {slope:+.2f}" for name, slope in slopes.items()))
        for fault in found.faults():
            print("GROWS:", fault)
        return int(bool(found.faults()))


if __name__ == "__main__":
    sys.exit(main())
