"""What a user pays for the whole command: CPU and memory of ``dovetail simulate FILE.swf … --csv OUT``.

Run with ``make bench``, or as a program for the table alone: ``python benchmarks/test_whole_command.py``.
``DOVETAIL_BENCH_BEFORE`` names another checkout, whose command is timed in the same turns. What the command
needs for a small log is taken off: that is start-up, with all imports.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dovetail.workloads.synthetic import rigid_arrays

HERE = Path(__file__).parents[1]
COMMAND = "from dovetail.start import main; main()"
OFF = ("--compiled", "off")
SMALL = 10_001  # jobs


class Case(NamedTuple):
    """A log of so many jobs for so many single-CPU nodes at load 0.85, and what else is asked."""

    jobs: int
    nodes: int
    options: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        """How often it is measured: the commit before takes minutes for a million jobs."""
        return 1 if self.jobs > 300_000 else 3


CASES = (
    Case(100_000, 256),
    Case(100_000, 256, OFF),
    Case(1_000_000, 256),
    Case(1_000_000, 256, OFF),
    Case(1_000_000, 256, ("--json",)),
    Case(300_000, 80_640),
)
WITH_BEFORE = (Case(100_000, 256), Case(100_000, 256, OFF), Case(1_000_000, 256))
MOST_MEMORY = 1000  # MiB, with the twin or without it


class Cost(NamedTuple):
    """CPU seconds and MiB at most of one command."""

    seconds: float
    memory: float


def write_log(path: Path, jobs: int, nodes: int) -> Path:
    """An SWF file, whole seconds throughout."""
    found = rigid_arrays(jobs, nodes, 0.85, 1)
    columns = (found.number, found.submit, found.run, found.processors, found.walltime, found.user)
    rows = zip(*(column.astype(int).tolist() for column in columns), strict=True)
    with path.open("w") as file:
        file.write(f"; MaxProcs: {nodes}\n")
        for number, submit, run, processors, walltime, user in rows:
            sizes = f"{processors} -1 -1 {processors} {walltime}"
            file.write(f"{number} {submit} -1 {max(1, run)} {sizes} -1 1 {user} 1 -1 1 1 -1 -1\n")
    return path


def cost(checkout: Path, log: Path, case: Case, csv: Path) -> Cost:
    """Of one command from a checkout."""
    command = [
        sys.executable, "-c", COMMAND, "simulate", str(log), "--cluster", f"{case.nodes}x1cpu",
        "--policy", "easy", "--csv", str(csv), *case.options,
    ]  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(checkout / "src"), "XDG_STATE_HOME": str(csv.parent)}
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def checkouts() -> list[Path]:
    """This one, and the one before if there is one."""
    before = os.environ.get("DOVETAIL_BENCH_BEFORE")
    return [HERE, Path(before)] if before else [HERE]


def measure(folder: Path, case: Case) -> Iterator[str]:
    """A line for each checkout, measured in turns; the CSVs are the same to the byte."""
    log = write_log(folder / f"{case.jobs}-{case.nodes}.swf", case.jobs, case.nodes)
    small = write_log(folder / f"small-{case.nodes}.swf", SMALL, case.nodes)
    turns = [c for c in checkouts() if c == HERE or case in WITH_BEFORE]
    found: dict[Path, list[Cost]] = {c: [] for c in turns}
    starts: dict[Path, list[float]] = {c: [] for c in turns}
    cost(HERE, small, case, folder / "warm.csv")  # compiles where that has not been done
    for _ in range(case.rounds):
        for checkout in turns:
            starts[checkout].append(cost(checkout, small, case, folder / "small.csv").seconds)
            found[checkout].append(cost(checkout, log, case, folder / f"{turns.index(checkout)}.csv"))
    texts = {(folder / f"{turns.index(checkout)}.csv").read_bytes() for checkout in turns}
    assert len(texts) == 1
    for checkout in turns:
        seconds = statistics.median(c.seconds for c in found[checkout])
        start = statistics.median(starts[checkout])
        memory = max(c.memory for c in found[checkout])
        assert checkout != HERE or memory < MOST_MEMORY
        rate = (case.jobs - SMALL) / (seconds - start)
        yield (
            f"{'this' if checkout == HERE else 'before':6s} {case.jobs:9,d} jobs, {case.nodes:6,d} nodes "
            f"{' '.join(case.options):15s}: {seconds:6.2f} CPU-s (of {SMALL:,d} jobs {start:.2f}), "
            f"{rate:9,.0f} jobs per CPU-second, {memory:5.0f} MiB"
        )


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.jobs}-{c.nodes}{''.join(c.options)}")
def test_whole_command(benchmark: Any, capsys: Any, tmp_path: Path, case: Case) -> None:
    lines: list[str] = []
    benchmark.pedantic(lambda: lines.extend(measure(tmp_path, case)), rounds=1)
    with capsys.disabled():
        print("\n" + "\n".join(lines))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        for one in CASES:
            for line in measure(Path(temporary), one):
                print(line, flush=True)
