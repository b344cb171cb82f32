"""The parts of the supervisor that need no process: its log on a full disk, finding programs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.process import supervisor
from dovetail.process.link import said_in
from dovetail.process.spawn_writer import Log
from dovetail.process.starting import SpawnError, find_program


def test_a_line_that_must_be_kept_is_owed_until_there_is_space(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    good = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        log = Log(full)
        assert log.write(b"end 1") == "No space left on device"
        assert log.write(b"intent", must=False) == "No space left on device"
        assert log.write(b"end 2") is not None
        log.fd = good
        assert log.write(b"end 3") is None
        assert (tmp_path / "log").read_bytes() == b"end 1\nend 2\nend 3\n"
    finally:
        os.close(full)
        os.close(good)


def test_a_torn_line_is_written_again_and_harms_no_other(tmp_path: Path) -> None:
    script = """
import os, resource, signal, sys
from dovetail.process.spawn_writer import Log
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
log = Log(fd)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (12, resource.RLIM_INFINITY))
print(log.write(b"first"), log.write(b"second-line"), log.write(b"intent", must=False))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(log.write(b"third"))
"""
    path = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    first, *rest = done.stdout.split(maxsplit=1)
    assert first == "None"
    assert rest[0].rstrip().endswith("None")
    lines = path.read_bytes().split(b"\n")
    assert lines[0] == b"first"
    assert lines[-3:] == [b"second-line", b"third", b""]
    assert b"intent" not in path.read_bytes()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "tool").write_text("not executable")
    (tmp_path / "b" / "tool").write_text("executable")
    (tmp_path / "b" / "tool").chmod(0o700)
    (tmp_path / "a" / "folder").mkdir()
    path = f"{tmp_path}/a:{tmp_path}/b"
    if os.geteuid():
        assert find_program("tool", path) == f"{tmp_path}/b/tool"
    assert find_program("./tool", path) == "./tool"
    monkeypatch.chdir(tmp_path / "b")
    assert find_program("tool", "") == "./tool"
    with pytest.raises(SpawnError, match="'folder' was not found in PATH"):
        find_program("folder", path)


def test_the_supervisor_needs_the_standard_library_only() -> None:
    """It runs without site-packages, so that it is up in milliseconds."""
    code = f"import runpy, sys; runpy.run_path({supervisor.__file__!r}); print('numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_names_that_are_no_text_are_heard_as_they_were_said() -> None:
    said = {"t": "end", "uid": os.fsdecode(b"run/\xff"), "status": 0}
    assert said_in(json.dumps(said).encode()) == said
