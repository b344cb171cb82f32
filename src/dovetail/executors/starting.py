"""What a job needs before its process exists, and what is said where that fails. Standard library only."""

from __future__ import annotations

import errno
import os

__all__ = ["SpawnError", "enter", "find_program", "open_output", "pin", "spawn_failure"]


class SpawnError(Exception):
    """The job could not be started; the text is the sentence for its user."""


def open_output(path: str, opened: list[int], paths: list[str], chosen: bool) -> int:
    """Create a file for a job's output, readable by its owner only; one that the user ``chose`` may be there.

    Standard error may share the file of standard output.
    """
    if opened and path == paths[0]:
        return os.dup(opened[0])
    flags = os.O_TRUNC if chosen else os.O_EXCL | os.O_NOFOLLOW
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666 if chosen else 0o600)
    except OSError as error:
        raise SpawnError(f"its output file {path!r} cannot be created: {error.strerror}") from error


def enter(folder: str) -> None:
    """Make the job's working folder ours, so that the child inherits it."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise SpawnError(f"its working folder {folder!r} cannot be entered: {error.strerror}") from error


def pin(cores: list[int]) -> None:
    """Give ourselves the job's cores, so that the child has them from its first instruction."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        raise SpawnError(f"it cannot be pinned to cores {cores}: {error.strerror}") from error


def find_program(name: str, path: str) -> str:
    """The program's file as a shell would find it; a name with a slash counts from the working folder."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise SpawnError(f"program {name!r} was not found in PATH")


def spawn_failure(name: str, program: str, error: OSError | ValueError) -> str:
    """The sentence for a program that cannot be started."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOENT:
        if os.path.exists(program):
            return f"program {name!r} cannot be started: the interpreter that it names does not exist"
        return f"program {name!r} does not exist"
    if number == errno.EACCES:
        return f"program {name!r} is not executable"
    if number == errno.ENOEXEC:
        return f"program {name!r} is neither a binary for this machine nor a script that begins with #!"
    return f"program {name!r} cannot be started: {error.strerror if isinstance(error, OSError) else error}"
