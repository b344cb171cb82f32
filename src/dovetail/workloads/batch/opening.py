"""From a path, or standard input, to a batch script; or the news that it is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.reading import is_pipe, peek_pipe, read_text
from dovetail.files.sentences import file_name
from dovetail.files.streams import standard_input
from dovetail.workloads.batch.head import is_script
from dovetail.workloads.batch.script import BatchScript, read_script

STDIN = "-"
"""The name that stands for standard input."""
MOST_BYTES = 4 << 20
"""Bytes of a script; a longer file is a script only if it begins like one."""
BEGINNING = 4096


def open_script(path: str, environ: Mapping[str, str]) -> BatchScript | None:
    """The script of that path (``-``: standard input); ``None`` where it holds none, or is not there.

    Raises `InputError` for a script that sbatch would not take as one.
    """
    if path == STDIN:
        given = standard_input(lenient=True)
        return read_script(given, "standard input", environ=environ) if is_script(given) else None
    text = _text_of(path)
    return None if text is None else read_script(text, file_name(path), environ=environ, path=path)


def is_script_file(path: str) -> bool:
    """Whether a path names a batch script, also one that sbatch would refuse."""
    try:
        return _text_of(path) is not None
    except InputError:
        return True


def _text_of(path: str) -> str | None:
    """The text of a script; ``None`` where a path holds none. Raises `InputError`."""
    if path.endswith(".toml") or not (os.path.isfile(path) or is_pipe(path)):
        return None
    try:
        if is_pipe(path):
            beginning = peek_pipe(path, MOST_BYTES + 1)
            size = len(beginning)
        else:
            with Path(path).open("rb") as file:
                beginning = file.read(BEGINNING)
                size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    bare = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    if (size > MOST_BYTES and not bare.startswith(b"#!")) or b"\0" in bare:
        return None
    try:
        # A program is bytes, as sbatch has it: comments of ten years ago are in whatever encoding.
        text = read_text(path, "a batch script", lenient=True, most=MOST_BYTES)
    except InputError:
        if bare.startswith(b"#!"):
            raise
        # Whatever reads it as something else names what is wrong.
        return None
    return text if is_script(text) else None
