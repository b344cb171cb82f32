"""What a machine lacks for a moment fails no job: starts wait, say why, and go on when it is there again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crashes import SOURCE, built
from dovetail_command import DOVETAIL
from services import Serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.client.folder import ServiceFolder
from dovetail.errors import InputError
from dovetail.files.locks import is_locked, try_lock
from dovetail.files.shortage import WORDS, NoPlaceError, lack_at, lack_of
from dovetail.process.cgroups import Groups
from dovetail.process.children import Setup
from dovetail.process.outputs import Outputs
from dovetail.process.processes import is_alive
from dovetail.process.spawn_log import parse_log
from dovetail.process.starting import NoResourcesError, SpawnError, Starter

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
WAITS = "until test -e {go}; do sleep 0.05; done"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 inodes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=300,size=64m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> list[Path]:
    """Take every inode that is left."""
    made: list[Path] = []
    while not lack_at(str(folder)):
        made.append(folder / f"filler-{len(made)}")
        made[-1].touch()
    return made


def test_without_inodes_jobs_of_a_service_wait_and_nothing_comes_in(small: Path, tmp_path: Path) -> None:
    service = Serving(small, "--cluster", "1x1cpu")
    service.start().close()
    words = "no inodes are left on the disk"
    with open_connection(service.folder.path) as client:
        go = tmp_path / "go"
        begun = tmp_path / "begun"  # a job that has not really begun would be taken back for want of inodes
        waits = f"touch {begun}; {WAITS.format(go=go)}"
        ids = submit(client, {"command": ["sh", "-c", waits]}, *[{"command": ["true"]}] * 5)
        until(begun.exists)
        fillers = fill(small)
        go.touch()
        assert wait(client, ids[:1]) == {ids[0]: "COMPLETED"}
        until(lambda: words in (client.get("/api/v1/info")["blocked"] or ""))
        assert {client.get(f"/api/v1/jobs/{id}")["state"] for id in ids[1:]} == {"PENDING"}
        refused = service.dovetail("submit", "--", "true")
        assert refused.returncode != 0
        assert words in refused.stderr
        assert words in service.dovetail("queue").stderr
        for path in fillers:
            path.unlink()
        assert set(wait(client, ids).values()) == {"COMPLETED"}
        assert {client.get(f"/api/v1/jobs/{id}")["attempts"] for id in ids} == {1}
        until(lambda: client.get("/api/v1/info")["blocked"] is None)
        submit(client, {"command": ["true"]})
    service.stop()


def test_without_inodes_jobs_of_a_run_wait(small: Path, tmp_path: Path) -> None:
    """Also killed meanwhile and taken up: what was taken back is in the record as if it had not begun."""
    go = tmp_path / "go"
    (tmp_path / "jobs").write_text("\n".join([f"sh -c '{WAITS.format(go=go)}'", *["true"] * 5]))
    (tmp_path / "one.toml").write_text(f'[[node]]\nname = "here"\ncores = [{min(os.sched_getaffinity(0))}]\n')
    environment = {**os.environ, "XDG_STATE_HOME": str(small / "state")}
    options = ["--cluster", "one.toml", "--run-dir", str(small / "run"), "--json"]
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        run = subprocess.Popen(
            [*DOVETAIL, "run", "jobs", *options], cwd=tmp_path, env=environment, stdout=out, stderr=err
        )
    told = tmp_path / "err"
    log = small / "run" / "spawn.log"
    until(lambda: log.exists() and bool(parse_log(log.read_bytes()).starts))
    fillers = fill(small)
    go.touch()
    until(lambda: "no inodes are left on the disk: nothing starts until that has changed" in told.read_text())
    assert len(parse_log(log.read_bytes()).intents) == 1
    run.kill()
    run.wait(60)
    for path in fillers:
        path.unlink()
    done = subprocess.run(
        [*DOVETAIL, "run", "--resume", str(small / "run"), "--json"],
        cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [job["state"] for job in json.loads(done.stdout)["jobs"]] == ["COMPLETED"] * 6


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE])
def test_a_fork_that_fails_for_want_leaves_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_spawn", spawn)
    before = os.getcwd(), os.sched_getaffinity(0)
    files = [str(tmp_path / name) for name in ("out", "err")]
    job = {"job": "1", "uid": "r/1", "argv": ["/bin/true"], "files": files}
    starter, groups = Starter(), Groups("")
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    few = 1000 if soft in (-1, resource.RLIM_INFINITY) or soft > 1000 else soft - 1
    try:
        with pytest.raises(NoResourcesError):
            starter.spawn_job(job, Setup({}, "/bin", [], str(tmp_path), 1.0, 0o077), groups)
        assert not any(os.path.exists(path) for path in files), "it is started again, with new ones"
        if number in (errno.EAGAIN, errno.ENOMEM):  # its user's own limit will be there tomorrow, too
            with pytest.raises(SpawnError) as found:
                starter.spawn_job(
                    job, Setup({}, "/bin", [], str(tmp_path), 1.0, None, {"NPROC": few}), groups
                )
            assert not isinstance(found.value, NoResourcesError)
        assert resource.getrlimit(resource.RLIMIT_NPROC) == (soft, hard)
    finally:
        os.chdir(before[0])
        os.sched_setaffinity(0, before[1])


def test_one_class_of_reasons() -> None:
    cause = OSError(errno.EDQUOT, "x")
    above = RuntimeError("cannot")
    above.__cause__ = cause
    assert lack_of(above) == "the disk quota is used up"
    assert lack_of(OSError(errno.EROFS, "no", "/away")) == "the file system is read-only"
    assert lack_of(OSError(errno.EIO, "broken")) == ""
    assert lack_of(None) == ""


def test_a_link_to_nothing_in_the_place_of_a_folder_is_no_reason_of_a_job(tmp_path: Path) -> None:
    """As a file there: what is to start waits until it is gone."""
    (tmp_path / "output").symlink_to("/nowhere/at/all")
    outputs = Outputs(tmp_path, endless=True)
    with pytest.raises(NoPlaceError, match="output: found a file, expected a folder") as found:
        outputs.own_paths("1", 1)
    assert lack_of(found.value)
    (tmp_path / "output").unlink()
    assert outputs.own_paths("1", 1)[0].endswith("output/0/1.out")


# ------------------------------------------------- quotas, stale handles, processes, memory: by a stand-in


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that has calls fail while a file says so."""
    found = built(tmp_path_factory.mktemp("lacking"), SOURCE.with_name("lacking.c"))
    if found is None:
        pytest.skip("no C compiler builds the stand-in")
    return found


KINDS = {
    "quota": (("write",), errno.EDQUOT),
    "gone": (("write", "stale"), errno.ESTALE),
    "processes": (("fork",), errno.EAGAIN),
    "memory": (("fork",), errno.ENOMEM),
}


def test_for_want_of_anything_jobs_of_a_service_wait_and_nothing_comes_in(
    lacking: Path, tmp_path: Path
) -> None:
    """One service, through one want after the other; each is named in the same words wherever people look."""
    lacks = tmp_path / "lacks"
    service = Serving(tmp_path, "--cluster", "1x1cpu", LD_PRELOAD=str(lacking), DOVETAIL_LACKS=str(lacks))
    service.start().close()
    service.environment.pop("LD_PRELOAD")  # its clients lack nothing
    for kind, (calls, number) in KINDS.items():
        words = WORDS[number]
        with open_connection(service.folder.path) as client:
            go, begun = tmp_path / f"go-{kind}", tmp_path / f"begun-{kind}"
            waits = f"touch {begun}; {WAITS.format(go=go)}"
            ids = submit(client, {"command": ["sh", "-c", waits]}, *[{"command": ["true"]}] * 2)
            until(begun.exists)
            place = "-" if calls == ("fork",) else service.folder.path
            lacks.write_text("".join(f"{call} {number} {place}\n" for call in calls))
            go.touch()
            until(lambda words=words: words in (client.get("/api/v1/info")["blocked"] or ""), kind)
            refused = service.dovetail("submit", "--", "true")
            assert refused.returncode != 0, kind
            assert words in refused.stderr, (kind, refused.stderr)
            assert words in service.dovetail("queue").stderr, kind
            lacks.unlink()
            assert set(wait(client, ids).values()) == {"COMPLETED"}, kind
            assert {client.get(f"/api/v1/jobs/{id}")["attempts"] for id in ids} == {1}, kind
            until(lambda: client.get("/api/v1/info")["blocked"] is None)
    assert "Traceback" not in service.folder.log.read_text()
    service.stop()


def test_an_end_that_the_disk_does_not_take_is_kept_until_it_does(lacking: Path, tmp_path: Path) -> None:
    """A file system that becomes read-only under a supervisor whose Dovetail was killed."""
    lacks, go = tmp_path / "lacks", tmp_path / "go"
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LD_PRELOAD": str(lacking),
        "DOVETAIL_LACKS": str(lacks),
    }

    def dovetail(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DOVETAIL, *arguments], cwd=tmp_path, env=environment, text=True, capture_output=True,
            timeout=200, check=False,
        )  # fmt: skip

    folder = str(tmp_path / "run")
    command = [*DOVETAIL, "run", "--run-dir", folder, "--history", "h.sqlite", "--", "sh", "-c"]
    with subprocess.Popen(
        [*command, WAITS.format(go=go)], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    ) as run:
        log = tmp_path / "run" / "spawn.log"
        until(lambda: log.exists() and bool(parse_log(log.read_bytes()).starts))
        run.kill()
    (start,) = parse_log(log.read_bytes()).starts.values()
    until(lambda: parse_log(log.read_bytes()).gone)
    lacks.write_text(f"write {errno.EROFS} {tmp_path / 'run'}\n")
    go.touch()
    until(lambda: not is_alive(start["pid"], start["boot"]))
    told = dovetail("recover").stdout
    assert "sh-1 has ended: its supervisor writes down how as soon as it can" in told
    assert "--stop" not in told
    resumed = dovetail("run", "--resume", folder)
    assert resumed.returncode == 2
    assert f"cannot be written now: {WORDS[errno.EROFS]}" in resumed.stderr
    lacks.unlink()
    until(lambda: b'"t":"done"' in log.read_bytes(), "the supervisor does not leave")
    assert "1 ended runs recorded" in dovetail("recover").stdout
    assert json.loads(dovetail("runs", "--json").stdout)[0]["jobs"] == {"COMPLETED": 1}


@pytest.mark.parametrize("command", ["run -- true", "submit -- true", "queue", "recover", "serve"])
def test_a_home_without_locks_is_one_sentence(lacking: Path, tmp_path: Path, command: str) -> None:
    """Who lives could not be known there."""
    lacks = tmp_path / "lacks"
    folder = tmp_path / "state" / "dovetail" / "service"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "lock").touch(0o600)  # as a service of another machine has left it
    lacks.write_text(f"lock {errno.ENOLCK} {tmp_path}\n")
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "LD_PRELOAD": str(lacking),
        "DOVETAIL_LACKS": str(lacks),
    }
    done = subprocess.run(
        [*DOVETAIL, *command.split()], cwd=tmp_path, env=environment, text=True, capture_output=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert WORDS[errno.ENOLCK] in done.stderr
    assert done.stderr.count("\n") == 1


def test_locks_are_taken_as_a_network_file_system_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS locks a file for one owner only through a descriptor that may write; Lustre may have no locks."""
    real = fcntl.flock

    def of_nfs(fd: int, how: int) -> None:
        if how & fcntl.LOCK_EX and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", of_nfs)
    folder = ServiceFolder(tmp_path)
    held = folder.take_lock()
    assert held is not None
    assert folder.is_locked()
    assert is_locked(folder.path / "lock")
    assert folder.take_lock() is None
    os.close(held)
    assert not folder.is_locked()

    def of_lustre(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", of_lustre)
    with pytest.raises(InputError, match="has no locks"):
        folder.is_locked()
    with open(folder.path / "lock", "rb+") as file, pytest.raises(OSError, match="lock") as found:
        try_lock(file.fileno())
    assert (found.value.errno, found.value.filename) == (errno.ENOLCK, str(folder.path / "lock"))
