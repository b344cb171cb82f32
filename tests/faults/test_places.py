"""Containers and homes that several hosts share: process 1 again and again, and another host's things."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest
from places import AS_PROCESS_1, Around, as_host, containers, dovetail_at, hosts, needs, new_boot
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.client.folder import ServiceFolder
from dovetail.process.processes import is_zombie, process_origin, started_at
from dovetail.process.recovery import recover_run
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


# ---------------------------------------------------------------------------------------- process 1


@containers()
def test_a_service_as_process_1_begins_again_and_again(tmp_path: Path) -> None:
    """Stopped and killed by turns; its pids, and its jobs', are the same each time."""
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.around = AS_PROCESS_1
    lost: list[str] = []
    for n in range(4):
        with service.start() as client:
            done, left = submit(client, {"command": ["true"]}, {"command": ["sleep", "600"]})
            assert wait(client, [done]) == {done: "COMPLETED"}
            until(lambda: client.get("/api/v1/info")["jobs"]["running"] == 1)
            assert {id: client.get(f"/api/v1/jobs/{id}")["state"] for id in lost} == dict.fromkeys(
                lost, "NODE_FAIL"
            )
            if lost:
                assert "has ended, and the job with it" in client.get(f"/api/v1/jobs/{lost[-1]}")["reason"]
            lost.append(left)
        assert service.process is not None
        if n % 2:
            service.kill()
        else:
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(60) == 0
    log = read_log(service.folder.path / "spawn.log")
    assert log.client["pid"] == 1
    assert not log.describe_damage()
    service.stop()


@containers()
def test_a_killed_run_as_process_1_is_resumed(tmp_path: Path) -> None:
    """The job that ran has ended with its container; the one that waited begins in the next."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "jobs").write_text('sh -c "touch began; test -e go || sleep 600"\nsh -c "touch second"\n')
    (tmp_path / "one.toml").write_text(f'[[node]]\nname = "here"\ncores = [{min(os.sched_getaffinity(0))}]\n')
    command = dovetail_at(AS_PROCESS_1, "run", "jobs", "--cluster", "one.toml", "--run-dir", "run")
    process = Around(
        command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    until((tmp_path / "began").exists)
    os.kill(process.inner(), signal.SIGKILL)
    process.wait(60)
    (tmp_path / "go").touch()
    assert not (tmp_path / "second").exists()
    done = subprocess.run(
        dovetail_at(AS_PROCESS_1, "run", "--resume", "run", "--json"),
        cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    states = [job["state"] for job in json.loads(done.stdout)["jobs"]]
    assert states == ["NODE_FAIL", "COMPLETED"], done.stderr
    assert "PID namespace (container) in which it ran has ended" in done.stderr


@containers()
def test_process_1_ends_on_term_whatever_it_does_and_takes_in_orphans(tmp_path: Path) -> None:
    """A command that waits for an answer that never comes; a job whose supervisor was killed."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        silent.settimeout(60)
        command = dovetail_at(AS_PROCESS_1, "queue", "--service", str(tmp_path / "silent"))
        process = Around(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asked, _ = silent.accept()
        with asked:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
    with serving(tmp_path, "--cluster", "1x1cpu", around=AS_PROCESS_1) as service:
        assert isinstance(service.process, Around)
        first = service.process.inner()
        with open_connection(service.folder.path) as client:
            (id,) = submit(client, {"command": ["sh", "-c", "sleep 600 & sleep 600"]})
            until(lambda: bool(read_log(service.folder.path / "spawn.log").starts))
            os.kill(
                service.here(read_log(service.folder.path / "spawn.log").supervisors[-1]["pid"]),
                signal.SIGKILL,
            )
            assert wait(client, [id]) == {id: "NODE_FAIL"}
            (id,) = submit(client, {"command": ["true"]})
            assert wait(client, [id]) == {id: "COMPLETED"}
        kin = Path(f"/proc/{first}/task/{first}/children")
        until(lambda: not any(is_zombie(int(pid)) for pid in kin.read_text().split()), seconds=30)


def test_nothing_with_the_number_of_a_job_of_another_namespace_is_taken_for_it(tmp_path: Path) -> None:
    """A record whose pid and start are those of a process that lives, but of another PID namespace."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        run = tmp_path / "run"
        run.mkdir()
        place = {**process_origin(), "ns": "1.1"}
        boot = started_at(bystander.pid)
        shared = {
            "app": "a",
            "implementation": "cpu",
            "class": ["cpu", "x"],
            "nodes": 1,
            "cpus": 1,
            "gpus": 0,
        }
        records = [
            {"t": "run", **place, "pid": 1, "boot": 1.0, "time": 1.0},
            {"t": "supervisor", **place, "pid": 2, "boot": 1.0},
            {"t": "setup", "setup": 0, "run": shared, "cores": [0]},
            {
                "t": "intent", "uid": "r/1", "job": "1", "setup": 0, "argv": ["x"],
                "files": ["/o", "/e"], "inputs": {},
            },
            {"t": "start", "uid": "r/1", "pid": bystander.pid, "at": 1.0, "boot": boot},
        ]  # fmt: skip
        (run / "spawn.log").write_text("".join(json.dumps(record) + "\n" for record in records))
        found = recover_run(run)
        assert not found.damage
        assert not found.running
        assert [job.reason for job in found.lost] == [
            "the PID namespace (container) in which it ran has ended, and the job with it"
        ]
        found.stop()
        assert bystander.poll() is None
        bystander.kill()


# ------------------------------------------------------------------------------- one home on two hosts


class Home:
    """A home that hosts share: commands on one or the other, whose locks are seen on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boots = {"hosta": None, "hostb": new_boot(folder)}

    def on(self, host: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            dovetail_at(as_host(host, self.boots[host]), *arguments),
            cwd=self.folder, env=self.environment(host),
            text=True, capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    def environment(self, host: str) -> dict[str, str]:
        return {
            **os.environ,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DOVETAIL_CLAIMS": str(self.folder / f"claims-{host}"),
        }

    @property
    def service(self) -> ServiceFolder:
        return ServiceFolder(self.folder / "state" / "dovetail" / "service")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path)
    yield found
    found.on("hosta", "cancel", "all")
    found.on("hosta", "serve", "--stop")


@hosts()
def test_a_run_of_another_host_is_left_alone(home: Home) -> None:
    """While it goes on, and after it was killed there: it is that host's to record."""
    command = dovetail_at(
        as_host("hosta"), "run", "--history", "h.sqlite", "--", "sh", "-c", "touch on; sleep 600"
    )
    run = Around(
        command,
        cwd=home.folder,
        env=home.environment("hosta"),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until((home.folder / "on").exists)
    (log,) = (home.folder / "state" / "dovetail" / "runs").glob("*/spawn.log")
    until(lambda: bool(read_log(log).starts))
    before = log.read_bytes()
    job, supervisor = next(iter(read_log(log).starts.values()))["pid"], read_log(log).supervisors[-1]["pid"]

    assert home.on("hostb", "run", "--", "true").returncode == 0
    (told,) = json.loads(home.on("hostb", "recover", "--stop", "--json").stdout)
    assert (told["elsewhere"], told["running"], told["lost"]) == ("host hosta", [], [])
    assert log.read_bytes() == before
    assert json.loads(home.on("hostb", "runs", "--prune", "0s", "--json").stdout)["removed"]
    assert log.exists()

    for pid in (run.pid, supervisor):  # there is no fork around it: exec has made it the command
        os.kill(pid, signal.SIGKILL)
    run.wait(60)
    until(lambda: not recover_is_locked(log))
    before = log.read_bytes()
    assert home.on("hostb", "run", "--", "true").returncode == 0
    assert log.read_bytes() == before
    assert "nothing of it can be seen from here" in home.on("hostb", "recover").stdout
    refused = home.on("hostb", "run", "--resume", str(log.parent))
    assert refused.returncode == 2
    assert "was written on host hosta" in refused.stderr
    (told,) = json.loads(home.on("hosta", "recover", "--stop", "--json").stdout)
    assert told["elsewhere"] is None
    assert [one["id"] for one in told["lost"]] == ["sleep-1"]
    until(lambda: not Path(f"/proc/{job}").exists())


def recover_is_locked(log: Path) -> bool:
    import fcntl

    with open(log, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@hosts()
def test_a_service_of_another_host_is_named_at_once(home: Home) -> None:
    def refused(*arguments: str) -> str:
        done = home.on("hostb", *arguments)
        assert done.returncode == 2, done.stdout
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert home.on("hosta", "submit", "--", "sleep", "600").returncode == 0
    for command in (("queue",), ("submit", "--", "true"), ("serve",), ("serve", "--stop")):
        assert "the service of this folder runs on hosta (process " in refused(*command)
    address = home.service.address()
    assert address is not None
    os.kill(address.pid, signal.SIGKILL)
    until(lambda: not home.service.is_locked())
    before = home.service.ledger_path.read_bytes()
    for command in (("queue",), ("submit", "--", "true"), ("serve",)):
        assert "was started on hosta" in refused(*command)
    assert home.service.ledger_path.read_bytes() == before
    # There, all goes on.
    assert home.on("hosta", "submit", "--", "true").returncode == 0
    rows = json.loads(home.on("hosta", "queue", "--json").stdout)
    assert [row["id"] for row in rows if row["state"] == "RUNNING"][:1] == ["1"]
    assert home.on("hosta", "cancel", "all").returncode == 0
    assert home.on("hosta", "serve", "--stop").returncode == 0
    # It has ended in good order, and nothing is left: it may go on elsewhere.
    until(lambda: not recover_is_locked(home.service.path / "spawn.log"))


@hosts()
def test_the_same_host_started_anew_takes_up_its_own(home: Home) -> None:
    """Another boot id under the same name, and nobody holds the lock: that is a new start of the machine."""
    assert home.on("hosta", "submit", "--", "sleep", "600").returncode == 0
    until(lambda: bool(read_log(home.service.path / "spawn.log").starts))
    log = read_log(home.service.path / "spawn.log")
    address = home.service.address()
    assert address is not None
    for pid in (address.pid, log.supervisors[-1]["pid"], next(iter(log.starts.values()))["pid"]):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not home.service.is_locked())
    home.boots["hosta"] = new_boot(home.folder)
    assert home.on("hosta", "submit", "--wait", "--", "true").returncode == 0
    found = json.loads(home.on("hosta", "info", "1", "--json").stdout)
    assert found["state"] == "NODE_FAIL"
    assert "started anew" in found["reason"]


# ---------------------------------------------------------------------- no home, no account, nothing to write

STRANGER = ("unshare", "--user", "--map-user=54321", "--map-group=54321")
"""An account without an entry in the list of accounts; what its folders are to others, they are to it."""
CHECKOUT = str(Path(__file__).parents[2])
BARE = (
    # A checkout below one of these folders would be hidden: it is kept aside, and put back into the new one.
    'mount --bind "$2" /mnt && mount -o remount,bind,ro / && for one in /tmp /dev/shm /run/lock /var/tmp; do '
    "mount -t tmpfs none $one -o size=64m || exit; "
    'case "$2" in $one/*) mkdir -p "$2" && mount --bind /mnt "$2" || exit;; esac; '
    '[ -z "$1" ] || mount -o remount,ro $one || exit; done; cd / && shift 2 && exec "$@"'
)
"""A root and a temporary folder that cannot be written, in a mount namespace of its own."""


def as_stranger(tmp_path: Path, around: Sequence[str], script: str, **more: str) -> tuple[int, str, str]:
    """Run a script (``$D`` is dovetail) as an unknown account, without HOME: status, output, errors.

    Its output goes to files: a service that it starts would keep pipes open.
    """
    drop = ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "DOVETAIL_CLAIMS")
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    environment |= {"D": f"timeout 100 {sys.executable} -m dovetail", "PYTHONDONTWRITEBYTECODE": "1", **more}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        done = subprocess.run(
            [*around, *STRANGER, "sh", "-c", script], env=environment, cwd=tmp_path, stdout=out, stderr=err,
            stdin=subprocess.DEVNULL, timeout=250, check=False,
        )  # fmt: skip
        return done.returncode, _read(out), _read(err)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


COMMANDS = full(
    "queue info nodes runs recover 'token list' memory explain 'history list' 'submit -- true' 'wait last' "
    "queue 'run -- true' 'serve --stop'",
    "queue runs recover memory 'submit -- true' 'run -- true' 'serve --stop'",
)
EVERY_DAY = f"""
for command in {COMMANDS}; do
    echo "== $command" >&2
    $D $command >/dev/null || [ $? -le 2 ] || echo "$command: $?"
done
"""


@needs(*STRANGER[1:])
@hosts()
@pytest.mark.parametrize("bare", ["", "ro"], ids=["a-tmp-of-64-MB", "nothing-to-write"])
def test_an_account_without_home_has_sentences_for_answers(tmp_path: Path, bare: str) -> None:
    around = ("unshare", "--mount", "sh", "-c", BARE, "sh", bare, CHECKOUT)
    status, printed, told = as_stranger(tmp_path, around, EVERY_DAY)
    assert (status, printed) == (0, ""), told  # every command ends with 0, 1 or 2
    assert "internal error" not in told
    if bare:
        assert told.count("expected XDG_STATE_HOME to name a folder that can") > 5
    else:
        assert told.count("this account has no home") == 1, "once, when the folder is made"
        assert "kept in /tmp/dovetail-54321" in told


@needs(*STRANGER[1:])
@hosts()
def test_only_its_state_can_be_written(tmp_path: Path) -> None:
    """A read-only container with one volume; claims go there, too, whatever an image has at their place."""
    volume = 'mkdir -p "$0" && mount -t tmpfs none "$0" && mount -t tmpfs none /run/lock -o mode=1777'
    image = "mkdir /run/lock/dovetail-claims-54321 && mount -o remount,ro /run/lock"
    bare = 'mount -t tmpfs none /dev/shm -o ro && mount -o remount,bind,ro / && cd / && exec "$@"'
    around = ("unshare", "--mount", "sh", "-c", f"{volume} && {image} && {bare}", str(tmp_path))
    script = "$D submit --wait -- true && $D run -q -- true; status=$?; $D serve --stop; exit $status"
    status, printed, told = as_stranger(tmp_path, around, script, XDG_STATE_HOME=str(tmp_path))
    assert status == 0, told
    assert "Submitted job 1" in printed
