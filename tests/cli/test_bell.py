"""The terminal's bell at the end of a run, or of what was waited for; never into a file."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.live


def on_a_terminal(words: list[str], folder: Path) -> bytes:
    """What a command writes to a terminal as its standard error."""
    main, side = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "dumb"}
    done = subprocess.Popen(
        [sys.executable, "-m", "dovetail", *words],
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=side,
    )  # fmt: skip
    os.close(side)
    seen = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:  # the last process has closed it
            break
        if not piece:
            break
        seen += piece
    os.close(main)
    assert done.wait(60) == 0
    return seen


def test_the_bell_rings_once_at_the_end_if_it_is_wanted(tmp_path: Path) -> None:
    rings = on_a_terminal(["run", "--bell", "--", "true"], tmp_path)
    assert rings.count(b"\a") == 1
    assert rings.index(b"\a") > rings.index(b"Outputs and journal")
    assert b"\a" not in on_a_terminal(["run", "--", "true"], tmp_path)


def test_a_file_gets_none(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, "-m", "dovetail", "run", "--bell", "--", "true"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=100)
    assert b"\a" not in done.stderr + done.stdout
