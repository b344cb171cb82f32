"""A new user's first ten minutes, as they would be typed, on programs that everybody has.

Narrow and wide, as root and as an ordinary user. What a screen must say is beside the line that was typed.
Every screen is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

NOBODY = 65534
SENTENCES = ("dovetail explain", "dovetail devices", "dovetail history predict")
"""Commands that print sentences too, which a terminal wraps."""
OURS = os.pathsep.join(path for path in sys.path if path)
SCALE = """
import argparse, time
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=float)
parser.add_argument("--passes", type=int)
parser.add_argument("--kind", default="plain")
given = parser.parse_args()
x = np.random.default_rng(1).random(int(given.rows))
for _ in range(given.passes):
    x = np.sort(x[::-1])
print(given.kind, round(float(x.sum())))
"""
COMMANDS = """\
# what a lab has
gzip -k -f -9 a.bin
gzip -k -f -1 b.bin
sort -n numbers.txt -o sorted.txt
python scale.py --rows 2e5 --passes 3
python scale.py --rows 1e5 --passes 2 --kind other
sha256sum a.bin b.bin
"""

# What is typed; the exit status; what its standard output and error must say (patterns).
SESSION: list[tuple[str, int, tuple[str, ...]]] = [
    ("dovetail", 2, ("Usage: dovetail", r"\n  run +Run jobs on this machine")),
    ("dovetail devices", 0, (r"\ncpu +.*\d+ of \d+ cores", "nvidia: ")),
    ("dovetail run commands.txt", 0, (r"\A6 of 6 jobs done in ", "journal of run [0-9a-f]{8}: ", "gzip-1")),
    ("dovetail run commands.txt -q", 0, (r"\A6 of 6 jobs done in ", "predicted m?s")),
    ("dovetail explain", 0, (r"python:scale.py-1  python:scale.py  .*rows=200000", "with the same inputs")),
    ("dovetail history list", 0, (r"python:scale.py +cpu .* 1 CPU +4 ", "sha256sum")),
    ("dovetail history show python:scale.py", 0, ("passes", "rows", r"\b200000\b")),
    ("dovetail history predict python:scale.py rows=150000 passes=2 kind=other", 0, ("90 % between",)),
    ("dovetail run -- python -c 'raise SystemExit(\"no luck\")'", 1, ("1 failed", "\n    no luck\n")),
    ("dovetail run --each n=1..3 -k -- echo number {n}", 0, (r"\Anumber 1\nnumber 2\nnumber 3\n",)),
    ("printf 'sleep 0.1\\nfalse\\ntrue\\n' | dovetail run -j 1 --halt soon,fail=1 -", 1, ("1 cancelled",)),
    ("dovetail run --on cpu,gppu commands.txt", 2, ("unknown kind of device 'gppu'.* did you mean 'gpu'",)),
    ("dovetail run comands.txt", 2, (r"comands.txt: found no such file",)),
    ("dovetail run -c 4096 -- true", 2, ("needs 4096 CPUs on a node, and no node has more than",)),
    ("dovetail simulate commands.txt --cluster 1x4cpu", 0, ("Makespan", "6 jobs give no times")),
    ("dovetail run commands.txt -q --json > result.json", 0, ()),
    ("dovetail compare last --cluster 1x1cpu --cluster 1x4cpu --policy history", 0, ("on 1x1cpu", "best")),
    ("dovetail replay last", 0, ("all identical",)),
    ("dovetail policies", 0, ("\nhistory\n", "Gregg 2011")),
    ("dovetail recover", 0, ()),
    ("dovetail history forget sha256sum", 0, ("3 runs deleted",)),
    ("dovetail hstory list", 2, ("No such command",)),
]  # fmt: skip
ELSEWHERE = (
    *("dovetail history show", "dovetail history predict", "dovetail simulate", "dovetail hstory"),
    *("dovetail run --on", "dovetail run comands", "dovetail run -c", "printf"),
    *("dovetail run --each", "dovetail compare", "dovetail policies", "dovetail recover"),
)
"""What other tests have too: `make test-all` types it here as well."""


def _python_of(user: int) -> str | None:
    """A Python that the user can run and that finds what ours finds, ours or the system's."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            ran = subprocess.run(
                [python, "-c", "import dovetail, numpy"], user=user, group=user, extra_groups=[], cwd="/",
                env={"PYTHONPATH": OURS, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, check=False,
            )  # fmt: skip
        except (PermissionError, FileNotFoundError):
            continue
        if ran.returncode == 0:
            return python
    return None


ALL = [(ordinary, columns) for ordinary in (False, True) for columns in (80, 120)]
CASES = full(ALL, [(os.geteuid() == 0, 80)])


@pytest.fixture
def python(ordinary: bool) -> tuple[int | None, str]:
    """Who types (nobody: an ordinary user), and with which Python."""
    if not ordinary:
        return None, sys.executable
    if os.geteuid() != 0:
        pytest.skip("we are an ordinary user already")
    found = _python_of(NOBODY)
    if found is None:
        pytest.skip("an ordinary user cannot read this installation")
    return NOBODY, found


@pytest.fixture
def folder(python: tuple[int | None, str]) -> Iterator[Path]:
    """A folder with programs and data, and a home of its own; it belongs to the user.

    It is not one of pytest's, which are closed to other users.
    """
    user, interpreter = python
    with tempfile.TemporaryDirectory(prefix="dovetail-session-") as name:
        yield _furnished(Path(name), interpreter, user)


def _furnished(made: Path, interpreter: str, user: int | None) -> Path:
    (made / "scale.py").write_text(SCALE)
    (made / "commands.txt").write_text(COMMANDS)
    (made / "a.bin").write_bytes(os.urandom(300_000))
    (made / "b.bin").write_bytes(os.urandom(200_000))
    (made / "numbers.txt").write_text("\n".join(str((i * 7919) % 50_000) for i in range(50_000)))
    (made / "bin").mkdir()
    for name, words in (
        ("python", ""),
        ("dovetail", " -c 'from dovetail.cli.main import run_cli; run_cli()'"),
    ):
        (made / "bin" / name).write_text(f'#!/bin/sh\nexec {interpreter}{words} "$@"\n')
        (made / "bin" / name).chmod(0o755)
    if user is not None:
        for one in (made, *made.iterdir()):
            os.chown(one, user, user)
    return made


@pytest.mark.parametrize(("ordinary", "columns"), CASES)
def test_every_screen_of_the_first_ten_minutes(
    folder: Path, python: tuple[int | None, str], columns: int
) -> None:
    user = python[0]
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(folder),
        "COLUMNS": str(columns), "LANG": "C.UTF-8", "NO_COLOR": "1", "PYTHONPATH": OURS,
        "PYTHONDONTWRITEBYTECODE": "1", "DOVETAIL_CLAIMS": str(folder / "claims"),
    }  # fmt: skip
    for typed, status, says in full(SESSION, [line for line in SESSION if not line[0].startswith(ELSEWHERE)]):
        ran = subprocess.run(
            ["bash", "-c", typed], cwd=folder, env=environment, text=True, capture_output=True, check=False,
            timeout=200, user=user, group=user, extra_groups=None if user is None else [],
        )  # fmt: skip
        screen = f"$ {typed}\n{ran.stdout}{ran.stderr}"
        assert ran.returncode == status, screen
        for pattern in says:
            assert re.search(pattern, ran.stdout) or re.search(pattern, ran.stderr), (
                f"{pattern!r} in\n{screen}"
            )
        _looks_well(typed, ran.stdout, columns, screen)
        assert "Traceback" not in ran.stderr, screen
        assert "internal error" not in ran.stderr, screen
    _left_as_it_should_be(folder)


def _looks_well(typed: str, out: str, columns: int, screen: str) -> None:
    """No row of a table leaves the screen, no digit is lost, no number looks like Python's."""
    if not typed.startswith(SENTENCES):
        assert max(map(len, out.splitlines()), default=0) <= columns, screen
    assert not re.search(r"\d…|…\d", out), screen
    assert not re.search(r"\bnan\b|\binf\b|-0\.0\b|\bNone\b|1 jobs\b|1 inputs\b|1 cpus\b", out), screen


def _left_as_it_should_be(folder: Path) -> None:
    """The history is readable by its owner alone, and what jobs wrote is under readable names."""
    state = folder / ".local" / "state" / "dovetail"
    assert (state / "history.sqlite").stat().st_mode & 0o777 == 0o600
    runs = [run for run in (state / "runs").iterdir() if (run / "sha256sum-1.out").exists()]
    assert len(runs) == 3
    assert all(run.stat().st_mode & 0o777 == 0o700 for run in runs)
    assert "a.bin" in (runs[0] / "sha256sum-1.out").read_text()
