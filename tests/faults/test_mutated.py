"""Every kind of file that Dovetail reads, damaged in thousands of ways: one sentence each, no internal error.

Each case is a process of its own (a fork) that may use 1 GB of memory and 10 s.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dovetail_command import DOVETAIL
from mutations import Damage, Rng, bytes_damaged, json_damaged, text_damaged
from places import AS_PROCESS_1, containers
from sample_files import CLUSTER, JOBS, TRACES
from waiting import until

from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = pytest.mark.xdist_group("live")

ONE_CASE = Path(__file__).resolve().parents[1] / "support" / "one_case.py"
MACHINE = ("--cluster", "4x8cpu+1gpu", "--policy", "fcfs")


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it lies in the sample folder, how it is damaged, what reads it."""

    path: str
    damage: Damage
    commands: tuple[tuple[str, ...], ...]
    count: int


def sql_damaged(data: bytes, rng: Rng) -> bytes:
    """A SQLite file with a cell changed by SQL; or, every other time, as bytes."""
    if rng.random() < 0.5:
        return bytes_damaged(data, rng)
    database = sqlite3.connect(":memory:")
    database.deserialize(data)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = tables[int(rng.integers(0, len(tables)))]
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    column = columns[int(rng.integers(0, len(columns)))]
    (old,) = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone() or (None,)
    odd: list[Any] = [None, -1, 2**40, 1e308, "x", b"\xff", "{}", b"{}", b"[1]", b"", "é" * 100]
    if isinstance(old, bytes):
        odd += [json_damaged(old, rng)] * 8
    try:
        database.execute(f"UPDATE {table} SET {column} = ?", (odd[int(rng.integers(0, len(odd)))],))
    except sqlite3.DatabaseError:
        database.execute(f"DELETE FROM {table}")  # a rule of the table forbids it: then it is empty
    database.commit()
    return database.serialize()


KINDS = {
    "job files": Kind("jobs.toml", text_damaged, (("simulate", "jobs.toml", *MACHINE),), 1500),
    "cluster files": Kind(
        "cluster.toml",
        text_damaged,
        (("simulate", "jobs.toml", "--cluster", "cluster.toml", "--policy", "fcfs"),),
        1000,
    ),
    **{
        name: Kind(name, text_damaged, (("simulate", name, *MACHINE, "--on", "cpu"),), 250)
        for name in TRACES
        if name != "commands.txt"
    },
    "journals": Kind(
        "journal.jsonl",
        json_damaged,
        (("replay", "journal.jsonl"), ("simulate", "journal.jsonl", *MACHINE), ("explain", "journal.jsonl")),
        2000,
    ),
    "spawn logs": Kind("run/spawn.log", json_damaged, (("recover", "--json"),), 1500),
    "run.json": Kind("run/run.json", json_damaged, (("recover", "--json"), ("ledger", "run")), 500),
    "ledgers": Kind("run/ledger.db", sql_damaged, (("ledger", "run"), ("recover", "--json")), 1000),
    "histories": Kind(
        "h.sqlite",
        sql_damaged,
        tuple(("history", *words, "--history", "h.sqlite") for words in (("list",), ("export", "out.jsonl"))),
        1000,
    ),
    "exports": Kind(
        "export.jsonl", json_damaged, (("history", "import", "export.jsonl", "--history", "new.sqlite"),), 500
    ),
}
"""10,500 files in all."""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole file of each kind; the run was killed when two of its jobs had ended and one ran."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "jobs.toml").write_text(JOBS)
    (folder / "cluster.toml").write_text(CLUSTER)
    for name, text in TRACES.items():
        (folder / name).write_text(text)
    (folder / "job.sh").write_text("until test -e go; do sleep 0.02; done\n")
    (folder / "line.txt").write_text("true\nfalse\nsh job.sh\ntrue\n")
    core = min(os.sched_getaffinity(0))
    (folder / "here.toml").write_text(f'[[node]]\nname = "here"\ncores = [{core}]\n')
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(
        [*DOVETAIL, "run", "line.txt", "--cluster", "here.toml", "--history", "h.sqlite", "--run-dir", "run"],
        cwd=folder, env=environment, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while "sh-1 starts" not in process.stderr.readline():
        assert process.poll() is None
    until(lambda: len(read_log(folder / "run" / "spawn.log").starts) == 3)
    process.kill()
    process.wait()
    process.stderr.close()
    (folder / "go").touch()
    until(lambda: b'"t":"done"' in (folder / "run" / "spawn.log").read_bytes())
    for name in ("h.sqlite", "run/ledger.db"):
        with sqlite3.connect(folder / name) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.execute("PRAGMA journal_mode = DELETE")
        database.close()
    (folder / "run" / "unrecorded").touch()
    export = ("history", "export", "export.jsonl", "--history", "h.sqlite")
    journal = (
        "simulate",
        "jobs.toml",
        "--cluster",
        "2x2cpu+1gpu",
        "--policy",
        "history",
        "--journal",
        "journal.jsonl",
    )
    for command in (export, journal):
        subprocess.run([*DOVETAIL, *command], cwd=folder, env=environment, check=True, capture_output=True)
    return folder


class Cases:
    """The process that runs the cases."""

    def __init__(self, around: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*around, sys.executable, str(ONE_CASE)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(self, cwd: Path, argv: tuple[str, ...]) -> tuple[int, str]:
        """Exit status (negative: the signal) and what was said on standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        case = {"cwd": str(cwd), "state": str(cwd / "state"), "argv": argv}
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return found["status"], found["err"]

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@pytest.fixture(
    scope="module", params=[(), *full([pytest.param(AS_PROCESS_1, marks=containers())], [])], ids=len
)
def run_case(request: pytest.FixtureRequest) -> Iterator[Callable[[Path, tuple[str, ...]], tuple[int, str]]]:
    """Beneath this test, and beneath process 1 of a PID namespace."""
    cases = Cases(request.param)
    yield cases
    cases.close()


def fault_of(status: int, err: str) -> str:
    """What is wrong with an answer; empty where nothing is."""
    if status not in (0, 1, 2):
        return f"status {status}"
    if "internal error" in err or "Traceback" in err:
        return "an internal error"
    said = [line for line in err.splitlines() if line.startswith("dovetail: ")]
    if status == 2 and len(said) != 1:
        return f"{len(said)} sentences"
    return "unprintable" if any(not line.isprintable() for line in err.splitlines()) else ""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_answered(
    name: str, samples: Path, tmp_path: Path, run_case: Callable[[Path, tuple[str, ...]], tuple[int, str]]
) -> None:
    kind = KINDS[name]
    whole = (samples / kind.path).read_bytes()
    here = tmp_path / "here"
    faults: list[str] = []
    for number in range(full(kind.count, max(3, kind.count // 300))):
        rng = np.random.Generator(np.random.PCG64([number, len(name)]))
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(samples, here, symlinks=True)
        link = next((here / "state" / "dovetail" / "runs").iterdir())
        link.unlink()
        link.symlink_to(here / "run")
        damaged = kind.damage(whole, rng)
        (here / kind.path).write_bytes(damaged)
        for command in kind.commands:
            fault = fault_of(*(answer := run_case(here, command)))
            if fault:
                faults.append(f"{number} {' '.join(command)}: {fault}: {answer}")
    assert not faults, f"{len(faults)} of {full(kind.count, 0)}: {faults[:5]}"
