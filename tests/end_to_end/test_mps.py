"""``mps = true``: daemons of NVIDIA's MPS, by a stand-in that records its calls, over real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load
from gpu_box import GB, GpuBox
from mps_box import MpsBox
from services import Serving, submit, wait
from waiting import until

from dovetail.local import mps

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Command = Callable[..., subprocess.CompletedProcess[str]]
SHOW = """
import json, os, sys, time
names = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
if len(sys.argv) > 1:
    open(sys.argv[1] + ".begun", "w").close()
while len(sys.argv) > 1 and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@pytest.fixture
def box(tmp_path: Path, environment: dict[str, str]) -> Iterator[MpsBox]:
    """Two GPUs of 40 GB in a cluster file, both with MPS."""
    gpus, found = GpuBox(tmp_path / "box"), MpsBox(tmp_path / "mps")
    for _ in range(2):
        gpus.add(40 * GB)
    devices = '{ kind = "gpu", model = "A100", memory = "40GB", count = 2, mps = true }'
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "box"\ncpus = 2\ndevices = [{devices}]\n')
    (tmp_path / "show.py").write_text(SHOW)
    path = f"{tmp_path / 'mps' / 'bin'}{os.pathsep}{environment['PATH']}"
    environment.pop("CUDA_MPS_PIPE_DIRECTORY", None)
    # A short path: the daemons' sockets lie beside the claims, and a worker of the tests has long ones.
    with TemporaryDirectory(prefix="mps-") as short:
        environment |= {**gpus.environment, "DOVETAIL_CLAIMS": f"{short}/claims", "PATH": path}
        yield found


def job_file(folder: Path, count: int, *more: str, **asked: object) -> str:
    command = [sys.executable, str(folder / "show.py"), *more]
    lines = ["[[app]]", 'name = "show"', "[[app.implementation]]", 'name = "gpu"']
    lines += [f"command = {json.dumps(command)}", *(f"{name} = {json.dumps(v)}" for name, v in asked.items())]
    lines += ["[[job]]", 'app = "show"', f"count = {count}"]
    (folder / "jobs.toml").write_text("\n".join(lines) + "\n")
    return "jobs.toml"


def run(dovetail: Command, file: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The jobs, and what each saw of its environment."""
    process = dovetail("run", file, "--cluster", "cluster.toml", "--history", "history.db", "--json")
    jobs: list[dict[str, Any]] = load(process)["jobs"]
    assert [job["state"] for job in jobs] == ["COMPLETED"] * len(jobs), process.stderr
    return jobs, [json.loads(Path(job["stdout"]).read_text()) for job in jobs]


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended, and waits for its parent, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_jobs_that_share_a_device_do_so_through_its_daemon(
    dovetail: Command, box: MpsBox, tmp_path: Path
) -> None:
    jobs, seen = run(dovetail, job_file(tmp_path, 5, gpus=0.25, gpu_memory="9GB"))
    assert {job["devices"][0] for job in jobs} == {"box/gpu0", "box/gpu1"}
    used = {
        job["devices"][0][-1]: one["CUDA_MPS_PIPE_DIRECTORY"] for job, one in zip(jobs, seen, strict=True)
    }
    started = {call["env"]["CUDA_VISIBLE_DEVICES"]: call for call in box.starts}
    assert len(box.starts) == 2, "one daemon a device"
    for number, pipes in used.items():
        call = started[number]
        assert (call["env"]["CUDA_MPS_PIPE_DIRECTORY"], call["modes"]) == (pipes, ["0o700", "0o700"])
        assert call["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert {one["CUDA_VISIBLE_DEVICES"] for one in seen} == {"0"}, "a daemon shows its device as its first"
    assert all(one["CUDA_MPS_LOG_DIRECTORY"] == call["env"]["CUDA_MPS_LOG_DIRECTORY"]
               for one in seen for call in box.starts
               if one["CUDA_MPS_PIPE_DIRECTORY"] == call["env"]["CUDA_MPS_PIPE_DIRECTORY"])  # fmt: skip
    assert {call["env"]["CUDA_MPS_PIPE_DIRECTORY"] for call in box.quits} == set(used.values())
    assert not any(Path(pipes).exists() for pipes in used.values()), "nothing is left"


def test_a_job_with_a_device_to_itself_needs_no_daemon(
    dovetail: Command, box: MpsBox, tmp_path: Path
) -> None:
    _, seen = run(dovetail, job_file(tmp_path, 2))
    assert {one["CUDA_MPS_PIPE_DIRECTORY"] for one in seen} == {None}
    assert box.calls == []


def test_without_the_program_jobs_share_by_time_slices(
    dovetail: Command, box: MpsBox, tmp_path: Path
) -> None:
    (tmp_path / "mps" / "bin" / "nvidia-cuda-mps-control").unlink()
    _, seen = run(dovetail, job_file(tmp_path, 2, gpu_memory="9GB"))
    assert {one["CUDA_MPS_PIPE_DIRECTORY"] for one in seen} == {None}


def test_a_daemon_that_does_not_start_costs_no_job(dovetail: Command, box: MpsBox, tmp_path: Path) -> None:
    (tmp_path / "mps" / "refuse").touch()
    jobs, seen = run(dovetail, job_file(tmp_path, 6, gpu_memory="9GB"))
    assert {one["CUDA_MPS_PIPE_DIRECTORY"] for one in seen} == {None}
    assert len(box.starts) == len({job["devices"][0] for job in jobs}), "tried once a device, not each time"


def test_a_daemon_of_the_box_is_left_alone(
    dovetail: Command, box: MpsBox, tmp_path: Path, environment: dict[str, str]
) -> None:
    pipes = tmp_path / "site"
    pipes.mkdir()
    environment["CUDA_MPS_PIPE_DIRECTORY"] = str(pipes)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True)
    (call,) = box.starts
    pid = box.pid_of(call)
    try:
        _, seen = run(dovetail, job_file(tmp_path, 3, gpu_memory="9GB"))
        assert {one["CUDA_MPS_PIPE_DIRECTORY"] for one in seen} == {str(pipes)}, "jobs use that one"
        assert box.calls == [call]
        assert lives(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_daemon_that_dies_is_started_again(
    box: MpsBox, tmp_path: Path, environment: dict[str, str]
) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(cluster.read_text().replace("count = 2", "count = 1"))
    with serving_of(tmp_path, environment) as (_, asked):
        release = [str(tmp_path / f"go{n}") for n in range(2)]
        job = {"command": [sys.executable, "show.py"], "on": ["gpu"], "gpu_memory": "9GB"}
        first = submit(asked, {**job, "command": [*job["command"], release[0]]})
        (call,) = until(lambda: box.starts, "no daemon is started")
        until(Path(release[0] + ".begun").exists, "it does not start")
        pid = box.pid_of(call)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(pid), "it does not end")
        second = submit(asked, job)
        assert wait(asked, second) == {second[0]: "COMPLETED"}
        assert len(box.starts) == 2
        assert lives(box.pid_of(call))
        Path(release[0]).touch()
        assert wait(asked, first) == {first[0]: "COMPLETED"}
        until(lambda: box.quits, "the daemon of a device that no job uses goes on")


class serving_of:  # noqa: N801 - read as a function
    """A service on this box's cluster, and a connection to it."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.service = Serving(root, "--cluster", "cluster.toml", **environment)

    def __enter__(self) -> tuple[Serving, Any]:
        self.asked = self.service.start()
        return self.service, self.asked

    def __exit__(self, *about: object) -> None:
        self.asked.close()
        self.service.stop()


def test_a_daemon_outlives_a_kill_with_its_jobs_and_is_ended_after_them(
    box: MpsBox, tmp_path: Path, environment: dict[str, str]
) -> None:
    service = Serving(tmp_path, "--cluster", "cluster.toml", **environment)
    release = str(tmp_path / "go")
    with service.start() as asked:
        command = [sys.executable, "show.py", release]
        (job,) = submit(asked, {"command": command, "on": ["gpu"], "gpu_memory": "9GB"})
        (call,) = until(lambda: box.starts, "no daemon is started")
        until(Path(release + ".begun").exists, "it does not start")
    service.kill()
    pid = box.pid_of(call)
    with service.start() as asked:
        try:
            assert lives(pid), "its job goes on"
            assert box.quits == []
            later = submit(
                asked, {"command": [sys.executable, "show.py"], "on": ["gpu"], "gpu_memory": "9GB"}
            )
            assert wait(asked, later) == {later[0]: "COMPLETED"}
            assert len(box.starts) == 1, "the new job uses the daemon that is there"
            Path(release).touch()
            assert wait(asked, [job]) == {job: "COMPLETED"}
            until(lambda: not lives(pid), "the daemon goes on")
        finally:
            Path(release).touch()
            service.stop()


@pytest.mark.parametrize("deaf", [False, True])
def test_the_next_start_ends_what_a_crash_has_left(
    dovetail: Command, box: MpsBox, tmp_path: Path, environment: dict[str, str], deaf: bool
) -> None:
    """Also a daemon that does not end by order."""
    if deaf:
        (tmp_path / "mps" / "deaf").touch()
    release = tmp_path / "go"
    job_file(tmp_path, 1, str(release), gpu_memory="9GB")
    command = [*DOVETAIL, "run", "jobs.toml", "--cluster", "cluster.toml", "--history", "history.db"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            (call,) = until(lambda: box.starts, "no daemon is started")
            until(Path(f"{release}.begun").exists, "the job does not start")
            pid = box.pid_of(call)
        except BaseException:
            release.touch()  # the job ends, and with it what is waited for
            raise
        finally:
            process.kill()
    other = job_file(tmp_path, 1)
    run(dovetail, other)  # the job of the first run goes on, and so does its daemon
    assert lives(pid)
    assert box.quits == []
    release.touch()
    folder = Path(call["env"]["CUDA_MPS_PIPE_DIRECTORY"]).parents[1]
    until(lambda: is_free(folder / "lock"), "the supervisor goes on")
    run(dovetail, other)
    until(lambda: not lives(pid), "the daemon goes on")
    assert len(box.quits) == 1
    assert not folder.exists()


def is_free(lock: Path) -> bool:
    import fcntl

    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("kind", ["opencl", "npu"])
def test_mps_of_a_device_of_another_maker_is_refused(
    dovetail: Command, box: MpsBox, tmp_path: Path, kind: str
) -> None:
    devices = f'{{ kind = "{kind}", model = "x", mps = true }}'
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "box"\ncpus = 2\ndevices = [{devices}]\n')
    process = dovetail("run", "--cluster", "cluster.toml", "--history", "history.db", "--", "true")
    assert process.returncode == 2
    assert (
        f"node box: found mps = true of {kind}0 (x), expected it of NVIDIA's devices only" in process.stderr
    )


def test_a_process_of_another_name_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / mps.PID_FILE).write_text(str(os.getpid()))
    assert mps.daemon_pid(tmp_path) == 0
    for text in ("", "x", "0", "-1", "999999999999"):
        (tmp_path / mps.PID_FILE).write_text(text)
        assert mps.daemon_pid(tmp_path) == 0
