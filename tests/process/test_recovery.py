"""Dovetail is killed at random moments: what ended is known, once, and nothing runs unknown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from dovetail.history.memory import MemoryHistory
from dovetail.model import State
from dovetail.process.processes import started_at
from dovetail.process.recovery import Recovery, link_run, recover_run, unlink_run, unsettled_runs
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full
from dovetail.testing.processes import is_running, placed, run_all

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

# Keeps two jobs running until it is killed. Each job notes in TRUTH when it starts and when it ends.
DRIVER = """
import asyncio, itertools, os, sys
from pathlib import Path
from dovetail.local.executor import LocalExecutor
from dovetail.interfaces import RunFolder
from dovetail.testing.processes import cpu_cluster, placed

folder, script = sys.argv[1:3]

async def main():
    executor = LocalExecutor(RunFolder(Path(folder, "run")), cpu_cluster())
    numbers = itertools.count()
    async def launch():
        n = next(numbers)
        await executor.launch(placed(f"j{n}", "/bin/sh", "-c", script, "sh", folder + "/truth", f"j{n}"))
    await launch()
    await launch()
    async for event in executor.events():
        await launch()

asyncio.run(main())
"""
SHORT = 'echo "start $2 $$" >> $1; sleep 0.0$(($$ % 4)); echo "end $2 $$" >> $1'
LONG = 'echo "start $2 $$" >> $1; sleep 300; echo "end $2 $$" >> $1'


def start_driver(folder: Path, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(folder), script], start_new_session=True)


def truth(folder: Path) -> tuple[dict[str, int], set[str]]:
    """(pid by job) of those that started, and those that ended, by their own account."""
    path = folder / "truth"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    started = {job: int(pid) for what, job, pid in lines if what == "start"}
    return started, {job for what, job, _ in lines if what == "end"}


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def final(folder: Path) -> Recovery:
    """The state when the last job has ended by itself."""
    return until(lambda: found if not (found := recover_run(folder)).running else None)


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """No run is recorded twice, none that ended is lost, no orphan is left unknown."""
    rng = np.random.Generator(np.random.PCG64(2))
    history = MemoryHistory()
    total = 0
    for attempt in range(full(100, 4)):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        driver = start_driver(folder, SHORT)
        if attempt:  # the first is killed whenever; the others when jobs run
            until(lambda folder=folder: (folder / "truth").exists())
        time.sleep(float(rng.uniform(0, 0.2)))
        kill(driver)
        if not (folder / "run" / "spawn.log").exists():
            assert not truth(folder)[0]
            continue
        first = recover_run(folder / "run")
        assert not first.in_use
        known = {job.job for job in (*first.ended, *first.running, *first.lost)}
        assert truth(folder)[0].keys() <= known
        for job in first.ended:
            history.record(job.run)
        last = final(folder / "run")
        started, ended = truth(folder)
        assert not last.lost
        assert {job.job for job in last.ended} >= started.keys() >= ended
        assert all(job.event.state is State.COMPLETED for job in last.ended)
        until(lambda started=started: not any(is_running(pid) for pid in started.values()))
        assert max(Counter(job.run.uid for job in last.ended).values(), default=1) == 1
        for job in last.ended:  # once more, with those that had been recorded already
            history.record(job.run)
        total += len(last.ended)
        assert last.settle()
        assert not unsettled_runs(folder)
    recorded = history.runs("app")
    assert len(recorded) == len({run.uid for run in recorded}) == total
    assert total > 0


def test_what_still_runs_is_found_and_stopped(tmp_path: Path) -> None:
    driver = start_driver(tmp_path, LONG)
    until(lambda: len(truth(tmp_path)[0]) == 2)
    until(lambda: len(read_log(tmp_path / "run" / "spawn.log").starts) == 2)
    alive = recover_run(tmp_path / "run")
    assert alive.in_use
    assert alive.stop() is alive
    assert not alive.settle()
    kill(driver)
    found = recover_run(tmp_path / "run")
    started = truth(tmp_path)[0]
    assert not found.in_use
    assert {job.job: job.pid for job in found.running} == started
    assert all(job.watched and job.argv[0] == "/bin/sh" for job in found.running)
    assert unsettled_runs(tmp_path) == [tmp_path / "run"]
    after = found.stop()
    assert not after.running
    assert {job.job: job.event.state for job in after.ended} == dict.fromkeys(started, State.CANCELLED)
    until(lambda: not any(is_running(pid) for pid in started.values()))
    assert after.settle()


def test_the_supervisor_killed_too(tmp_path: Path) -> None:
    """Then exit codes are lost, but no process is."""
    driver = start_driver(tmp_path, LONG)
    until(lambda: len(truth(tmp_path)[0]) == 2)
    log = read_log(tmp_path / "run" / "spawn.log")
    driver.send_signal(signal.SIGSTOP)  # else it may notice, and be killed between ending a job and saying so
    os.waitid(os.P_PID, driver.pid, os.WSTOPPED)
    os.kill(log.supervisors[0]["pid"], signal.SIGKILL)
    kill(driver)
    found = recover_run(tmp_path / "run")
    started = truth(tmp_path)[0]
    assert {job.job: job.pid for job in found.running} == started
    assert not any(job.watched for job in found.running)
    after = found.stop(grace=2.0)
    assert not after.running
    until(lambda: not any(is_running(pid) for pid in started.values()))
    assert all("exit code is not known" in job.reason for job in after.lost if job.job in started)


def test_a_process_whose_pid_was_never_written_is_found_by_its_environment(tmp_path: Path) -> None:
    """The supervisor was killed between starting a process and noting its pid."""
    run_all(tmp_path, [placed("a", "/bin/true")])
    path = tmp_path / "run" / "spawn.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line["t"] in ("run", "supervisor", "setup", "intent")]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    uid = next(line["uid"] for line in kept if line["t"] == "intent")
    orphan = subprocess.Popen(
        ["/bin/sleep", "300"], env={"DOVETAIL_UID": uid}, start_new_session=True, stdout=subprocess.DEVNULL
    )
    until(lambda: b"DOVETAIL_UID" in Path(f"/proc/{orphan.pid}/environ").read_bytes())
    found = recover_run(tmp_path / "run")
    assert [(job.job, job.pid, job.watched) for job in found.running] == [("a", orphan.pid, False)]
    # Its parent, this test, reaps it only later: a zombie does not count as running.
    after = found.stop(grace=5.0)
    assert orphan.wait() == -signal.SIGTERM
    assert [job.reason for job in after.lost] == [
        "Dovetail and its supervisor were killed before it was started"
    ]


def test_a_pid_that_was_given_again_is_not_taken_for_the_job(tmp_path: Path) -> None:
    run_all(tmp_path, [placed("a", "/bin/true")])
    path = tmp_path / "run" / "spawn.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["t"] == "start":
            line["pid"] = os.getpid()
            assert abs((started_at(os.getpid()) or 0.0) - line["boot"]) > 0
    kept = [line for line in lines if line["t"] in ("run", "supervisor", "setup", "intent", "start")]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = recover_run(tmp_path / "run")
    mine = started_at(os.getpid())
    boot = next(line["boot"] for line in kept if line["t"] == "start")
    if mine is not None and 0 <= mine - boot <= 1.0:
        pytest.skip("this process was started in the same second as the job")
    assert not found.running
    assert [job.job for job in found.lost] == ["a"]


def test_after_a_new_boot_nothing_runs(tmp_path: Path) -> None:
    run_all(tmp_path, [placed("a", "/bin/true"), placed("b", "/bin/true")])
    path = tmp_path / "run" / "spawn.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "boot_id" in line:  # of Dovetail, and of its supervisor
            line["boot_id"] = "another"
    kept = [
        line
        for line in lines
        if line["t"] not in ("done", "settled") and not (line["t"] == "end" and line["uid"].endswith("/b"))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept) + '{"t":"end","uid":"torn')
    found = recover_run(tmp_path / "run")
    assert [job.job for job in found.ended] == ["a"]
    assert [(job.job, job.reason) for job in found.lost] == [
        ("b", "the machine was started anew, which ended it")
    ]
    assert read_log(path).torn == 1


def test_runs_left_behind_are_listed_oldest_first(tmp_path: Path) -> None:
    assert unsettled_runs(tmp_path / "none") == []
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name in ("2", "1"):
        (tmp_path / name).mkdir()
        run_all(tmp_path / name, [placed("a", "/bin/true")])
        log = tmp_path / name / "run" / "spawn.log"
        log.write_text(log.read_text().replace('{"t":"settled"}\n', ""))
        os.utime(log, (int(name), int(name)))
        (tmp_path / name / "run").rename(tmp_path / f"r{name}")
    assert unsettled_runs(tmp_path) == [tmp_path / "r1", tmp_path / "r2"]
    assert recover_run(tmp_path / "r1").settle()
    assert unsettled_runs(tmp_path) == [tmp_path / "r2"]


def test_the_recovered_run_is_what_the_history_keeps(tmp_path: Path) -> None:
    found = run_all(tmp_path, [placed("a", "/bin/sh", "-c", "exit 3", inputs={"n": 5.0})])["a"]
    job = recover_run(tmp_path / "run").ended[0]
    assert job.event == found
    assert (job.run.app, job.run.implementation, str(job.run.device_class)) == ("app", "cpu", "cpu")
    assert (job.run.nodes, job.run.cpus, job.run.gpus, dict(job.run.inputs)) == (1, 1, 0, {"n": 5.0})
    assert job.run.state is State.FAILED
    assert found.usage is not None
    assert job.run.seconds == pytest.approx(found.usage.wall_time)
    assert job.run.uid.endswith("/a")


def test_a_run_folder_elsewhere_is_found_by_its_link_until_it_is_settled(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "runs", tmp_path / "elsewhere" / "run"
    run_all(elsewhere.parent, [placed("a", "/bin/true")])
    log = elsewhere / "spawn.log"
    log.write_bytes(log.read_bytes().removesuffix(b'{"t":"settled"}\n'))
    link_run(root, elsewhere, "one")
    link_run(root, elsewhere, "two")
    assert unsettled_runs(root) == [elsewhere, elsewhere]
    unlink_run(root, "two")
    unlink_run(root, "two")
    assert unsettled_runs(root) == [elsewhere]
    assert recover_run(elsewhere).settle()
    assert unsettled_runs(root) == []
    assert list(root.iterdir()) == []


def test_a_link_to_a_deleted_run_folder_disappears(tmp_path: Path) -> None:
    link_run(tmp_path, tmp_path / "gone" / "run", "one")
    assert unsettled_runs(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_in_its_place_needs_no_link_and_stays(tmp_path: Path) -> None:
    run_all(tmp_path, [placed("a", "/bin/true")])
    link_run(tmp_path, tmp_path / "run", "run")
    unlink_run(tmp_path, "run")
    assert (tmp_path / "run").is_dir()
    assert not (tmp_path / "run").is_symlink()
