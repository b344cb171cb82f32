"""Standard output of which every byte arrives, or the command fails."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from dovetail.files import streams
from dovetail.files.streams import Whole, is_input_given, whole_stream

RUN = (sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()")


def test_a_pipe_that_somebody_made_non_blocking_is_waited_for() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = os.urandom(1 << 20)
    found: list[bytes] = []

    def read() -> None:
        with open(reader, "rb") as file:
            found.append(file.read())

    thread = threading.Thread(target=read)
    thread.start()
    with Whole(writer, "wb") as stream:
        assert stream.write(data) == len(data)
    thread.join()
    assert found == [data]


def test_an_unbuffered_stream_is_written_line_by_line(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb", buffering=0) as raw:
        unbuffered = io.TextIOWrapper(cast(Any, raw), encoding="utf-8", write_through=True)
        stream = whole_stream(unbuffered)
        stream.write("one\n")
        stream.write("tw")
        assert (tmp_path / "out").read_text() == "one\n"
        stream.flush()
        assert (tmp_path / "out").read_text() == "one\ntw"


def test_what_is_no_file_stays_as_it_is() -> None:
    kept = io.StringIO()
    assert whole_stream(kept) is kept


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_does_not_fit_is_an_error(unbuffered: str, tmp_path: Path) -> None:
    """The first kilobyte can be written, which is a write that takes a part."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    script = 'ulimit -f 1; exec "$0" "$@" > out'
    done = subprocess.run(
        ["bash", "-c", script, *RUN, "policies"],
        cwd=tmp_path, env=environment, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "dovetail: cannot write: File too large\n"
    assert (tmp_path / "out").stat().st_size == 1024


def test_a_pipe_into_which_nothing_comes_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a program that starts `dovetail submit` with a pipe, and never writes to it or closes it."""
    monkeypatch.setattr(streams, "BEGINS", 0.01)
    for written, given in ((b"", False), (b"true\n", True)):
        end, start = os.pipe()
        with open(end) as reader:
            monkeypatch.setattr(sys, "stdin", reader)
            if written:
                os.write(start, written)
                os.close(start)
            assert is_input_given() is given
            if not written:
                os.close(start)
