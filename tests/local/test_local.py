"""Real processes: what they get, how they end, and that none is left."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import stop
from waiting import until as soon

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import RunFolder
from dovetail.local.executor import Local, LocalExecutor
from dovetail.model import Cluster, Ended, Launch, Node, Placed, State
from dovetail.process.outputs import Outputs
from dovetail.process.recovery import recover_run, unsettled_runs
from dovetail.process.spawn_log import read_log
from dovetail.testing.processes import (
    CORES,
    cpu_cluster,
    device,
    ends,
    is_running,
    on_device,
    placed,
    run_all,
    wait_until,
)

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

PYTHON = (sys.executable, "-I", "-S", "-c")


def test_a_program_runs_with_its_arguments_and_its_output_is_kept(tmp_path: Path) -> None:
    job = placed("a", "/bin/echo", "{n}", "$HOME", "a b", inputs={"n": 2048.0})
    end = run_all(tmp_path, [job])["a"]
    assert (end.state, end.exit_code, end.detail) == (State.COMPLETED, 0, "")
    out = tmp_path / "run" / "a.out"
    assert out.read_text() == "2048 $HOME a b\n"  # no shell has seen it
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert stat.S_IMODE(out.parent.stat().st_mode) == 0o700


def test_usage_is_measured(tmp_path: Path) -> None:
    code = "x = bytearray(60_000_000)\nfor i in range(2_000_000): pass"
    end = run_all(tmp_path, [placed("a", *PYTHON, code)])["a"]
    usage = end.usage
    assert usage is not None
    assert usage.cpu_time is not None
    assert usage.peak_memory is not None
    assert usage.wall_time is not None
    assert end.started_at is not None
    assert end.ended_at is not None
    assert usage.cpu_time > 0.01
    assert usage.peak_memory > 60_000_000
    assert usage.wall_time == pytest.approx(end.ended_at - end.started_at)
    assert usage.wall_time > 0.9 * usage.cpu_time


def test_what_an_app_reports_of_its_transfers_is_kept(tmp_path: Path) -> None:
    said = '{{"device": "cpu", "transfer_seconds": 3.0, "bytes_to_device": 200, "bytes_from_device": 100}}'
    usage = run_all(tmp_path, [placed("a", "/bin/echo", said)])["a"].usage
    assert usage is not None
    assert (usage.sent, usage.received, usage.sent_time, usage.received_time) == (200, 100, 2.0, 1.0)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("no-such-program-here",), "program 'no-such-program-here' was not found in PATH"),
        (("./nothing",), "program './nothing' does not exist"),
        (("./plain",), "program './plain' is not executable"),
        (("./garbage",), "program './garbage' is neither a binary for this machine nor a script"),
        (("./orphan",), "the interpreter that it names does not exist"),
        (("/bin/echo", "a\0b"), "cannot be started: embedded null"),
        (("/bin/true", "x" * 3_000_000), "cannot be started: Argument list too long"),
        (("/bin/echo", "{m}"), "names {m}, expected one of {n}, {device}"),
    ],
)
def test_a_program_that_cannot_start_is_a_failed_job_with_a_sentence(
    tmp_path: Path, argv: tuple[str, ...], sentence: str
) -> None:
    for name, text, mode in (
        ("plain", "", 0o600),
        ("garbage", "\x7f\x01", 0o700),
        ("orphan", "#!/no/sh\n", 0o700),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    end = run_all(tmp_path, [placed("a", *argv, inputs={"n": 1.0})], cwd=tmp_path)["a"]
    assert (end.state, end.exit_code) == (State.FAILED, None)
    assert sentence in end.detail


def test_no_command_and_no_folder_are_failed_jobs(tmp_path: Path) -> None:
    end = run_all(tmp_path, [placed("a", command=False)])["a"]
    assert end.state is State.FAILED
    assert end.detail == "implementation 'cpu' of app 'app' has no command"
    end = run_all(tmp_path / "2", [placed("a", "/bin/true")], cwd=tmp_path / "gone")["a"]
    assert end.state is State.FAILED
    assert re.fullmatch(
        "its working folder '.*/gone' cannot be entered: No such file or directory", end.detail
    )


@pytest.mark.parametrize(
    ("script", "code", "sentence"),
    [
        ("exit 3", 3, "exit code 3"),
        ("echo one >&2; echo two >&2; exit 7", 7, "exit code 7; two"),
        ("kill -SEGV $$", -11, "ended by signal 11 (SIGSEGV)"),
        ("kill -9 $$", -9, "ended by signal 9 (SIGKILL)"),
    ],
)
def test_a_failing_program_says_how(tmp_path: Path, script: str, code: int, sentence: str) -> None:
    end = run_all(tmp_path, [placed("a", "/bin/sh", "-c", script)])["a"]
    assert (end.state, end.exit_code, end.detail) == (State.FAILED, code, sentence)


def test_stop_asks_first_and_the_answer_is_the_reason(tmp_path: Path) -> None:
    async def stop(executor: LocalExecutor) -> None:
        await wait_until((tmp_path / "run" / "a.out").exists)
        await wait_until(lambda: (tmp_path / "run" / "a.out").read_text() == "up\n")
        await executor.stop("a", "TIMEOUT")
        await executor.stop("a", "CANCELLED")  # the first reason stays
        await executor.stop("unknown", "CANCELLED")

    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    end = run_all(tmp_path, [placed("a", "/bin/sh", "-c", script)], meanwhile=stop)["a"]
    assert (end.state, end.exit_code) == (State.TIMEOUT, 0)
    assert (tmp_path / "run" / "a.out").read_text() == "up\nbye\n"


def test_a_job_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    async def stop(executor: LocalExecutor) -> None:
        await wait_until((tmp_path / "run" / "a.out").exists)
        await wait_until(lambda: (tmp_path / "run" / "a.out").read_text() == "up\n")
        await executor.stop("a", "CANCELLED")

    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    end = run_all(tmp_path, [placed("a", "/bin/sh", "-c", script)], meanwhile=stop, grace=0.3)["a"]
    assert (end.state, end.exit_code) == (State.CANCELLED, -9)
    assert "killed because it did not end on SIGTERM" in end.detail
    assert end.usage is not None
    assert end.usage.wall_time is not None
    assert end.usage.wall_time >= 0.3


def test_a_child_keeps_its_grace_when_its_parent_ends_at_once(tmp_path: Path) -> None:
    """``sh`` ends on TERM, the program below it is still saving its work."""

    async def stop(executor: LocalExecutor) -> None:
        await wait_until(lambda: (tmp_path / "up").exists())
        await executor.stop("a", "TIMEOUT")

    on_term = f"sleep 0.3; echo saved > {tmp_path}/saved; exit"
    inner = f"trap '{on_term}' TERM; : > {tmp_path}/up; while :; do sleep 0.05; done"
    job = placed("a", "/bin/sh", "-c", f'/bin/sh -c "{inner}" & wait', env={"PATH": "/bin:/usr/bin"})
    end = run_all(tmp_path, [job], meanwhile=stop, grace=20)["a"]
    assert end.state is State.TIMEOUT
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("cgroups", ["on", "off"])
@pytest.mark.parametrize("start", ["{} &", "setsid {} &", "(setsid {} &);"])
def test_processes_that_outlive_their_job_are_killed_and_reported(
    tmp_path: Path, start: str, cgroups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_CGROUPS", cgroups)
    stays = start.format("sh -c 'echo $$; exec sleep 300'")
    script = f"{stays} while [ ! -s {tmp_path}/run/a.out ]; do sleep 0.01; done"
    end = run_all(tmp_path, [placed("a", "/bin/sh", "-c", script)])["a"]
    assert end.state is State.COMPLETED
    assert end.detail == "processes that outlived it were killed"
    soon(lambda: not is_running(int((tmp_path / "run" / "a.out").read_text())))


LAUNCHER = r"""
import os, sys, time
folder, session = sys.argv[1:]
if os.fork() == 0:  # the proxy: its parent is a launcher that waits for the ranks only
    if session == "own session":
        os.setsid()
    rank = os.fork()
    if rank == 0:
        open(folder + "/rank", "w").close()
        os._exit(0)
    os.waitpid(rank, 0)
    parent = os.getppid()
    open(folder + "/up", "w").close()
    while os.getppid() == parent:
        time.sleep(0.001)
    time.sleep(0.05)
    open(folder + "/over", "w").close()
    os._exit(0)
while not os.path.exists(folder + "/up"):
    time.sleep(0.001)
os._exit(0)
"""
"""What ``mpirun`` does: its proxy notices that the launcher is gone, and ends a moment after it."""


@pytest.mark.parametrize("cgroups", ["on", "off"])
@pytest.mark.parametrize("session", ["own session", "of the job"])
def test_a_proxy_that_ends_by_itself_a_moment_later_is_not_reported(
    tmp_path: Path, session: str, cgroups: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_CGROUPS", cgroups)
    end = run_all(tmp_path, [placed("a", *PYTHON, LAUNCHER, str(tmp_path), session)])["a"]
    assert (end.state, end.detail) == (State.COMPLETED, "")
    assert (tmp_path / "over").exists()


@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="no mpiexec is installed")
def test_a_real_mpi_launcher_leaves_nothing_to_report(tmp_path: Path) -> None:
    place = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = (shutil.which("mpiexec"), "-n", "2", "/bin/true")
    end = run_all(tmp_path, [placed(f"{i}", *command, env=place) for i in range(8)])
    assert {(one.state, one.detail) for one in end.values()} == {(State.COMPLETED, "")}


def test_jobs_are_pinned_to_the_cores_they_were_given(tmp_path: Path) -> None:
    cluster = Cluster((Node("n0", CORES[:1], (device("opencl", "pocl", 0, CORES[-1:]),)),))
    show = ("/bin/grep", "Cpus_allowed_list", "/proc/self/status")
    jobs = [placed("cpu", *show)]
    if len(CORES) > 1:
        jobs.append(on_device("device", cluster, "opencl", (0,), *show))
        jobs.append(on_device("both", cluster, "opencl", (0,), *show, cpus=1))
    cluster = cluster if len(CORES) > 1 else cpu_cluster()
    found = run_all(tmp_path, jobs, cluster=cluster)
    assert all(end.state is State.COMPLETED for end in found.values())
    allowed = {j: (tmp_path / "run" / f"{j}.out").read_text().split()[-1] for j in found}
    assert allowed["cpu"] == str(CORES[0])
    if len(CORES) > 1:
        assert allowed["device"] == str(CORES[-1])
        assert allowed["both"] in (f"{CORES[0]},{CORES[-1]}", f"{CORES[0]}-{CORES[-1]}")


def test_a_job_without_cores_may_use_all_of_ours(tmp_path: Path) -> None:
    cluster = Cluster((Node("n0", CORES[:1], (device("gpu"),)),))
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    run_all(tmp_path, [on_device("a", cluster, "gpu", (0,), *PYTHON, code)], cluster=cluster)
    assert (tmp_path / "run" / "a.out").read_text().strip() == str(list(CORES))


def test_the_environment_is_set_in_the_child_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCL_AFFINITY", "1")
    before = dict(os.environ)
    cluster = Cluster(
        (Node("n0", CORES[:1], (device("gpu", "NVIDIA T4", 0), device("gpu", "NVIDIA T4", 1))),)
    )
    run_all(
        tmp_path,
        [
            on_device("a", cluster, "gpu", (1,), "/usr/bin/env"),
            placed("b", "/usr/bin/env", env={"OMP_NUM_THREADS": "7"}),
        ],
        cluster=cluster,
    )
    assert dict(os.environ) == before
    a, b = (
        dict(x.split("=", 1) for x in (tmp_path / "run" / f"{j}.out").read_text().splitlines()) for j in "ab"
    )
    assert (a["CUDA_VISIBLE_DEVICES"], a["DOVETAIL_DEVICES"], a["DOVETAIL_DEVICE"]) == (
        "1",
        "n0/gpu1",
        "cuda",
    )
    assert (a["DOVETAIL_JOB"], a["OMP_NUM_THREADS"]) == ("a", "1")
    assert a["DOVETAIL_UID"].endswith("/a")
    assert (b["CUDA_VISIBLE_DEVICES"], b["OMP_NUM_THREADS"], b["OPENBLAS_NUM_THREADS"]) == ("", "7", "1")
    assert "POCL_AFFINITY" not in a
    assert a["HOME"] == before["HOME"]


def test_signals_and_descriptors_of_ours_do_not_reach_the_jobs(tmp_path: Path) -> None:
    code = "import os; print(os.getpgrp() == os.getpid() == os.getsid(0))"
    # A shell in between: Python itself ignores SIGPIPE as soon as it starts.
    job = placed(
        "a",
        "/bin/sh",
        "-c",
        "grep -E 'SigIgn|SigBlk' /proc/self/status; ls -l /proc/self/fd | tail -n +2 | wc -l",
    )
    run_all(tmp_path, [job, placed("b", *PYTHON, code)])
    words = (tmp_path / "run" / "a.out").read_text().split()
    standard = (1 << 31) - 1
    assert [int(words[1], 16) & standard, int(words[3], 16) & standard] == [0, 0]
    assert int(words[4]) == 4  # 0, 1, 2 and the folder that ls reads
    assert (tmp_path / "run" / "b.out").read_text() == "True\n"


def test_strange_ids_make_harmless_files(tmp_path: Path) -> None:
    long = "x" * 100
    names = [
        "../up",
        "a/b",
        "a b",
        "ünï",
        ".hidden",
        long + "1",
        long + "2",
        "-rf",
        "spawn.log",
        "supervisor",
        'quoted " and \\ and \x7f',
    ]
    found = run_all(tmp_path, [placed(name, "/bin/echo", "hi") for name in names])
    assert all(end.state is State.COMPLETED for end in found.values())
    ours = {"spawn.log", "supervisor.err", "supervisor.sock"}
    files = {p.name for p in (tmp_path / "run").iterdir()} - ours
    assert len(files) == 2 * len(names)
    assert {"a_b.out", "a_b-2.out", "ünï.out", f"{long}.out", f"{long}-2.err", "supervisor-2.err"} <= files
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    log = read_log(tmp_path / "run" / "spawn.log")  # records are put together by hand
    assert len(log.starts) == len(log.ends) == len(names)
    assert (log.torn, log.wrong, log.describe_damage()) == (0, 0, "")


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    (tmp_path / "a.err").symlink_to(tmp_path / "nowhere")
    assert outputs.of(placed("a", "/bin/true").job, 1, "/")[0] == (
        f"{tmp_path}/a-2.out",
        f"{tmp_path}/a-2.err",
    )
    assert outputs.of(placed("b", "/bin/true").job, 1, "/")[0] == (f"{tmp_path}/b.out", f"{tmp_path}/b.err")


def test_cores_that_are_not_ours_or_owned_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cluster: node n0: found core 99999, expected cores that this"):
        LocalExecutor(RunFolder(tmp_path / "run"), Cluster((Node("n0", (99_999,)),)))
    twice = Cluster((Node("n0", CORES[:1]), Node("n1", CORES[:1])))
    with pytest.raises(InputError, match=r"node n1: found core \d+, which node n0 has already"):
        LocalExecutor(RunFolder(tmp_path / "run"), twice)


def test_a_run_folder_is_used_once(tmp_path: Path) -> None:
    run_all(tmp_path, [placed("a", "/bin/true")])
    with pytest.raises(ExecutorError, match="found the log of another run"):
        LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())


def test_close_stops_what_runs_and_events_finish(tmp_path: Path) -> None:
    async def main() -> list[Ended]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        for name in "abc":
            await executor.launch(placed(name, "/bin/sleep", "300"))
        await executor.close()
        await executor.close()
        with pytest.raises(ExecutorError, match="after the executor was closed"):
            await executor.launch(placed("d", "/bin/true"))
        found = [event async for event in executor.events() if isinstance(event, Ended)]
        assert unsettled_runs(tmp_path) == [tmp_path / "run"]
        assert executor.settle()
        assert unsettled_runs(tmp_path) == []
        return found

    found = asyncio.run(main())
    assert sorted((end.job, end.state) for end in found) == [(n, State.CANCELLED) for n in "abc"]
    log = read_log(tmp_path / "run" / "spawn.log")
    assert log.settled
    soon(lambda: not any(is_running(start["pid"]) for start in log.starts.values()))


def test_a_job_cannot_be_launched_while_it_runs(tmp_path: Path) -> None:
    async def main() -> None:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        await executor.launch(placed("a", "/bin/sleep", "300"))
        with pytest.raises(ExecutorError, match="job a is running already"):
            await executor.launch(placed("a", "/bin/true"))
        await executor.close()

    asyncio.run(main())


def test_many_jobs_all_end_once(tmp_path: Path) -> None:
    """More requests at once than a socket's buffer takes."""
    jobs = [placed(f"j{i}", "/bin/true", "x" * 2000) for i in range(300)]
    found = run_all(tmp_path, jobs)
    assert len(found) == 300
    assert all(end.state is State.COMPLETED for end in found.values())
    log = read_log(tmp_path / "run" / "spawn.log")
    assert len(log.ends) == len(log.starts) == 300
    assert (log.torn, log.done) == (0, True)


def test_a_shortened_log_has_what_runs_and_all_that_later_jobs_share(tmp_path: Path) -> None:
    """Of an executor that another one then takes up."""
    folder = RunFolder(tmp_path / "run", "r1", str(tmp_path), endless=True)
    log = tmp_path / "run" / "spawn.log"
    brought = Launch(str(tmp_path), (("PATH", "/usr/bin:/bin"),))

    quick, slow = placed("", "/bin/true"), placed("", "/bin/sleep", "300")

    def job(name: str, like: Placed) -> Placed:
        return replace(like, job=replace(like.job, id=name, launch=brought))

    async def before() -> LocalExecutor:
        executor = Local().open(folder, cpu_cluster())
        for n in range(5):
            await executor.launch(job(f"{n}", quick))
        await ends(executor, 5)
        long = log.stat().st_size
        executor.shorten_log()  # nothing runs: what the five shared is in use by none
        await wait_until(lambda: log.stat().st_size < long)
        assert not read_log(log).intents
        await executor.launch(job("5", slow))
        await executor.launch(job("6", quick))
        assert list(await ends(executor, 1)) == ["6"]
        assert not read_log(log).describe_damage()
        executor.shorten_log()
        await wait_until(lambda: len(read_log(log).intents) == 1)
        await executor.leave()
        await wait_until(lambda: read_log(log).gone)
        return executor

    async def after() -> None:
        executor, left = Local().resume(folder, cpu_cluster())
        assert [one.job for one in left.running] == ["5"]
        await executor.launch(job("7", quick))
        assert (await ends(executor, 1))["7"].state is State.COMPLETED
        await executor.stop("5", "CANCELLED")
        assert (await ends(executor, 1))["5"].state is State.CANCELLED
        await executor.close()
        assert executor.settle()

    first = asyncio.run(before())
    assert not read_log(log).describe_damage()
    asyncio.run(after())
    assert not read_log(log).describe_damage()
    assert first._process is not None
    assert first._process.wait(100) == 0


def test_a_log_is_long_again_when_it_has_grown_threefold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail.local.executor.LONG_LOG", 2000)

    async def grown(executor: LocalExecutor) -> None:
        assert not executor.has_long_log()
        await executor.launch(placed("a", "/bin/true", "x" * 3000))
        await ends(executor, 1)
        assert executor.has_long_log()
        log = executor.run_dir / "spawn.log"
        long = log.stat().st_size
        executor.shorten_log()
        assert not executor.has_long_log()
        await wait_until(lambda: log.stat().st_size < long)
        await executor.launch(placed("b", "/bin/true"))
        await ends(executor, 1)
        assert not executor.has_long_log(), "what is left may be all that is needed"

    run_all(tmp_path, [], meanwhile=grown)


def test_jobs_of_a_killed_supervisor_end_as_node_fail_and_the_next_gets_a_new_one(tmp_path: Path) -> None:
    async def main() -> tuple[Ended, Ended]:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        log = tmp_path / "run" / "spawn.log"
        await executor.launch(placed("a", "/bin/sh", "-c", "setsid sleep 300 & sleep 300"))
        await wait_until(lambda: bool(read_log(log).starts))
        os.kill(read_log(log).supervisors[0]["pid"], signal.SIGKILL)
        first = (await asyncio.wait_for(ends(executor, 1), 200))["a"]
        await executor.launch(placed("b", "/bin/true"))
        second = (await asyncio.wait_for(ends(executor, 1), 200))["b"]
        await executor.close()
        return first, second

    first, second = asyncio.run(main())
    assert first.state is State.NODE_FAIL
    assert "the supervisor of this run ended (status -9)" in first.detail
    assert second.state is State.COMPLETED
    log = read_log(tmp_path / "run" / "spawn.log")
    assert len(log.supervisors) == 2
    assert set(log.ends) == set(log.intents)
    soon(lambda: not is_running(log.starts[next(iter(log.starts))]["pid"]))


def test_a_job_that_had_ended_before_its_supervisor_died_was_not_ended_by_that(tmp_path: Path) -> None:
    async def main() -> Ended:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        log = tmp_path / "run" / "spawn.log"
        await executor.launch(placed("a", "/bin/sleep", "300"))
        await wait_until(lambda: bool(read_log(log).starts))
        supervisor = read_log(log).supervisors[0]["pid"]
        stop(supervisor)
        (start,) = read_log(log).starts.values()
        os.kill(start["pid"], signal.SIGKILL)
        await wait_until(lambda: not is_running(start["pid"]))
        os.kill(supervisor, signal.SIGKILL)
        end = (await asyncio.wait_for(ends(executor, 1), 200))["a"]
        await executor.close()
        return end

    end = asyncio.run(main())
    assert end.state is State.NODE_FAIL
    assert end.detail.startswith("it ended by itself, but the supervisor of this run ended (status -9)")


@pytest.mark.parametrize("leaves", ["", "sleep 300 & "])
def test_nor_is_that_said_of_one_that_had_ended_when_both_had_died(tmp_path: Path, leaves: str) -> None:
    async def main() -> Ended:
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster())
        log = tmp_path / "run" / "spawn.log"
        await executor.launch(placed("a", "/bin/sh", "-c", f"{leaves}exec sleep 300"))
        await wait_until(lambda: bool(read_log(log).starts))
        await executor.leave()
        await wait_until(lambda: not recover_run(tmp_path / "run").in_use)
        supervisor = read_log(log).supervisors[0]["pid"]
        stop(supervisor)
        (start,) = read_log(log).starts.values()
        os.kill(start["pid"], signal.SIGKILL)
        await wait_until(lambda: not is_running(start["pid"]))
        os.kill(supervisor, signal.SIGKILL)
        assert executor._process is not None
        executor._process.wait()
        executor = LocalExecutor(RunFolder(tmp_path / "run"), cpu_cluster(), resume=True)
        (end,) = executor.left_behind.unknown
        await executor.close()
        return end

    end = asyncio.run(main())
    assert end.state is State.NODE_FAIL
    assert end.detail.startswith("it ended while neither Dovetail nor its supervisor lived")


def test_a_full_disk_fails_the_job_and_nothing_else(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:

        async def main() -> list[Ended]:
            executor = LocalExecutor(RunFolder(small / "run"), cpu_cluster())
            found = []
            for name, argv in (
                ("a", ("/bin/true",)),
                ("fills", ("/bin/sh", "-c", "head -c 1000000 /dev/zero")),
                ("after", ("/bin/echo", "x")),
            ):
                await executor.launch(placed(name, *argv))
                found += (await asyncio.wait_for(ends(executor, 1), 200)).values()
            (small / "run" / "fills.out").unlink()
            await executor.launch(placed("again", "/bin/echo", "x"))
            found += (await asyncio.wait_for(ends(executor, 1), 200)).values()
            await executor.close()
            return found

        a, fills, after, again = asyncio.run(main())
        assert a.state is State.COMPLETED
        assert fills.state is State.FAILED
        assert fills.exit_code
        assert after.state is State.FAILED
        assert after.detail
        assert again.state is State.COMPLETED
        log = read_log(small / "run" / "spawn.log")
        assert set(log.intents) <= set(log.ends)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
