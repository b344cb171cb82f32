"""A job in a cgroup of its own: nothing gets out, nothing is left; with the real kernel where it lets us."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until as soon

from dovetail.local.executor import LocalExecutor
from dovetail.model import State
from dovetail.process import cgroups, supervisor
from dovetail.process.cgroups import Group, Groups, is_delegated, own_cgroup, with_memory
from dovetail.process.recovery import recover_run
from dovetail.process.spawn_log import SpawnLog, read_log
from dovetail.testing.processes import ends, is_running, placed, run_all, wait_until

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

FLED = """
import os, sys, time
def away(path, leader):
    if os.fork():
        if leader == "ends":
            while not os.path.exists(path):
                time.sleep(0.01)
            os._exit(0)
        time.sleep(300)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    os.execve("/bin/sleep", ["sleep", "300"], dict())
away(*sys.argv[1:])
"""
"""Leaves its session, its process group and its environment."""


@pytest.fixture
def real() -> None:
    """Skips where no cgroup of version 2 is ours to divide."""
    groups = Groups("0" * 32)
    place = groups.place
    groups.close()
    if not place:
        pytest.skip("no cgroup of version 2 can be made here")
    assert not os.path.exists(place)


def cgroup_of(folder: Path) -> Path:
    """Where the jobs of the run in ``folder`` have their cgroups; other runs of this machine have others."""
    place = Path(read_log(folder / "run" / "spawn.log").place)
    assert place.parent == Path(own_cgroup())
    assert place.name.startswith("dovetail-")
    return place


def fled(path: Path, leader: str = "ends") -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", FLED, str(path), leader)


def pid_in(path: Path) -> int:
    return int(path.read_text())


@pytest.mark.usefixtures("real")
def test_a_daemon_that_has_left_everything_ends_with_its_job(tmp_path: Path) -> None:
    end = run_all(tmp_path, [placed("a", *fled(tmp_path / "pid")), placed("b", "/bin/true")])
    assert end["a"].state is end["b"].state is State.COMPLETED
    assert end["a"].detail == "processes that outlived it were killed"
    assert end["b"].detail == ""
    soon(lambda: not is_running(pid_in(tmp_path / "pid")))
    soon(lambda: not cgroup_of(tmp_path).exists())


def test_without_cgroups_such_a_daemon_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CGROUPS", "off")
    end = run_all(tmp_path, [placed("a", *fled(tmp_path / "pid"))])["a"]
    pid = pid_in(tmp_path / "pid")
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    assert end.detail == ""
    assert not read_log(tmp_path / "run" / "spawn.log").place


@pytest.mark.usefixtures("real")
def test_a_daemon_ends_with_its_job_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    async def strike(executor: LocalExecutor) -> None:
        await wait_until((tmp_path / "pid").exists)
        (supervisor_of,) = read_log(tmp_path / "run" / "spawn.log").supervisors
        os.kill(supervisor_of["pid"], signal.SIGKILL)

    end = run_all(tmp_path, [placed("a", *fled(tmp_path / "pid", "stays"))], meanwhile=strike)["a"]
    assert end.state is State.NODE_FAIL
    soon(lambda: not is_running(pid_in(tmp_path / "pid")))
    soon(lambda: not cgroup_of(tmp_path).exists())


@pytest.mark.usefixtures("real")
def test_a_daemon_is_found_and_ended_when_dovetail_and_the_supervisor_were_killed(tmp_path: Path) -> None:
    leader = os.fork()
    if leader == 0:
        try:
            run_all(tmp_path, [placed("a", *fled(tmp_path / "pid", "stays"))])
        finally:
            os._exit(1)
    soon((tmp_path / "pid").exists)
    log = tmp_path / "run" / "spawn.log"
    soon(lambda: bool(read_log(log).starts))
    for pid in (read_log(log).supervisors[0]["pid"], leader):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(leader, 0)
    (start,) = read_log(log).starts.values()
    os.kill(start["pid"], signal.SIGKILL)  # the job itself: its daemon alone is left
    daemon, place = pid_in(tmp_path / "pid"), cgroup_of(tmp_path)
    assert place.exists()
    soon(lambda: [job.pid for job in recover_run(tmp_path / "run").running] == [daemon])
    now = recover_run(tmp_path / "run").stop(grace=0.1)
    assert not now.running
    soon(lambda: not is_running(daemon))
    assert now.settle()
    soon(lambda: not place.exists())


@pytest.mark.usefixtures("real")
def test_jobs_use_a_cgroup_one_after_the_other(tmp_path: Path) -> None:
    async def others(executor: LocalExecutor) -> None:
        for n in range(5):
            await ends(executor, 1)
            await executor.launch(placed(f"j{n}", "/bin/true"))

    run_all(tmp_path, [placed("first", "/bin/true")], meanwhile=others)
    starts = read_log(tmp_path / "run" / "spawn.log").starts.values()
    assert len(starts) == 6
    assert len({start["group"] for start in starts}) == 1
    soon(lambda: not cgroup_of(tmp_path).exists())


def test_a_log_names_no_cgroup_but_its_own(tmp_path: Path) -> None:
    """What a damaged or planted log says is not believed: nothing of others is killed or removed."""
    (tmp_path / "dovetail-a").mkdir()
    for place, run in (
        (str(tmp_path / "dovetail-a"), "a"),
        ("/sys/fs/cgroup", "a"),
        ("x\0y/dovetail-a", "a"),
    ):
        log = SpawnLog(header={"run": run}, place=place, starts={"a/j": {"group": "1-1"}})
        assert cgroups.group_of(log, "a/j") is None
        cgroups.clear_groups(log)
    assert (tmp_path / "dovetail-a").is_dir()


def test_memory_is_limited_beside_us_where_that_was_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that look like cgroups: a process in the upper one would be in the way of limits below."""
    own = tmp_path / "service" / "main"
    own.mkdir(parents=True)
    (tmp_path / "service" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert with_memory(str(own)) == (str(own), False)
    monkeypatch.setattr(cgroups, "is_delegated", lambda place: True)
    assert with_memory(str(own)) == (str(own.parent), True)
    (own / "cgroup.subtree_control").write_text("memory\n")
    assert with_memory(str(own)) == (str(own), True)
    assert not is_delegated(str(tmp_path)) or os.geteuid()


@pytest.mark.parametrize(("said", "killed"), [("oom 0\noom_kill 0\n", False), ("oom 1\noom_kill 12\n", True)])
def test_the_kernel_says_what_it_has_killed(said: str, killed: bool, tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text(f"low 0\nhigh 0\nmax 9\n{said}oom_group_kill 1\n")
    assert Group(str(tmp_path), -1, -1, True).out_of_memory() is killed


INIT = """#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t cgroup2 cgroup /sys/fs/cgroup
{command} > {out} 2>&1
mount -o remount,ro / ; echo o > /proc/sysrq-trigger; sleep 60
"""


@pytest.mark.timeout(400)
@pytest.mark.skipif(os.geteuid() != 0, reason="its kernel wants to make device files")
def test_a_real_kernel_ends_what_needs_more_memory(tmp_path: Path) -> None:
    """In a kernel of its own (Debian's user-mode-linux), since few machines give theirs away."""
    kernel = shutil.which("linux.uml")
    if kernel is None:
        pytest.skip("no kernel to try it with: apt-get install user-mode-linux")
    script, out = Path(__file__).parents[1] / "support" / "limited_job.py", tmp_path / "said"
    argv = [sys.executable, str(script), supervisor.__file__, str(tmp_path / "run")]
    (tmp_path / "init").write_text(INIT.format(command=shlex.join(argv), out=out))
    (tmp_path / "init").chmod(0o755)
    boot = [kernel, "rootfstype=hostfs", "rw", "mem=700M", f"init={tmp_path}/init", "con=null", "quiet"]
    subprocess.run(boot, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
    *ends, groups = map(json.loads, out.read_text().splitlines())
    big, small, free = ends
    assert big["stop"] == "OUT_OF_MEMORY"
    assert big["why"].startswith("memory: its processes needed more than the 60000000 bytes")
    assert os.WTERMSIG(big["status"]) == signal.SIGKILL
    assert small["status"] == free["status"] == 0
    assert "stop" not in small
    assert groups == []
