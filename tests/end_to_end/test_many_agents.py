"""An allocation of many nodes: real agents on this host, started by a stand-in for srun."""

from __future__ import annotations

import resource
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL, load
from slurm_stand_in import install

from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

NODES = full(512, 24)
SOFT = full(256, 60)


def resident() -> int:
    """Bytes of memory that the agents hold, what they share counted by their number (PSS)."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"process/agent.py" in (process / "cmdline").read_bytes():
                rollup = (process / "smaps_rollup").read_text()
                total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        except OSError:
            continue
    return total


def limited(soft: int, hard: int) -> Callable[[], None]:
    """To be called in a child: its limits of open files."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def test_many_agents_are_ready_soon_with_few_open_files_allowed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """One job a node, and one node that cannot be reached at first: it joins, and gets its job."""
    around = {**environment, **install(tmp_path / "bin", NODES)}
    (tmp_path / "bin" / "refuses").write_text("n3\n")
    said = tmp_path / "said"
    words = f"echo $SLURMD_NODENAME $(date +%s.%N) >> {said}"
    until = f'until grep -q "^n3 " {said}; do sleep {full(3, 0.5)}; done'
    jobs = f"sh -c '{words}; sleep 1'\n" * NODES + f"sh -c '{words}; {until}'\n" * NODES
    (tmp_path / "jobs.txt").write_text(jobs)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before, began = seconds(resource.RUSAGE_CHILDREN), time.time()
    process = subprocess.Popen(
        [*DOVETAIL, "run", "jobs.txt", "--executor", "slurm?poll=0.5", "--policy", "fcfs", "--json"],
        cwd=tmp_path,
        env=around,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited(SOFT, hard),
    )
    most = 0

    def come_back() -> None:
        nonlocal most
        while process.poll() is None and (not said.exists() or said.read_text().count("\n") < NODES // 2):
            time.sleep(0.05)
        most = resident()
        (tmp_path / "bin" / "refuses").write_text("")

    watcher = threading.Thread(target=come_back)
    watcher.start()
    out, err = process.communicate(timeout=180)
    watcher.join()
    assert process.returncode == 0, err
    rows = load(subprocess.CompletedProcess([], 0, out, err))["jobs"]
    assert Counter(row["state"] for row in rows) == {"COMPLETED": 2 * NODES}
    lines = [line.split() for line in said.read_text().splitlines()]
    assert {node for node, _ in lines} == {f"n{n}" for n in range(NODES)}
    ready = max(min(float(at) for node, at in lines if node == f"n{n}") for n in range(NODES) if n != 3)
    cpu = seconds(resource.RUSAGE_CHILDREN) - before
    print(f"{NODES} agents: jobs on all after {ready - began:.1f} s, {cpu:.1f} CPU-s, {most / 1e9:.2f} GB")
    assert cpu < 120.0 * NODES / 512 + 10.0
    assert 0 < most < 10e9 * NODES / 512
    if NODES == 512:
        assert cpu < 120.0
    calls = (tmp_path / "bin" / "calls").read_text().splitlines()
    assert sum("show node" in call for call in calls) <= 2 * (time.time() - began) + 4
    assert max(int(size) for size in (tmp_path / "bin" / "sizes").read_text().split()) < 1000


def test_a_hard_limit_of_open_files_costs_nodes_and_not_the_run(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """With 76 files 12 agents can be reached beside what Dovetail needs itself."""
    around = {**environment, **install(tmp_path / "bin", 16)}
    said = tmp_path / "said"
    # A job holds its node until all that can be reached have one, however late their agents come.
    all_there = f"until test $(sort -u {said} | wc -l) -ge 12; do sleep 0.2; done"
    (tmp_path / "jobs.txt").write_text(f"sh -c 'echo $SLURMD_NODENAME >> {said}; {all_there}'\n" * 32)
    done = subprocess.run(
        [*DOVETAIL, "run", "jobs.txt", "--executor", "slurm?poll=0.5", "--policy", "fcfs", "--json"],
        cwd=tmp_path,
        env=around,
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=limited(76, 76),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Counter(row["state"] for row in load(done)["jobs"]) == {"COMPLETED": 32}
    assert len(set(said.read_text().split())) == 12
    assert "ulimit -Hn" in done.stderr
