"""Maps of programs: what a worker does with one file, and programs that stay.

A program writes to a part, a folder of its own; the map puts what it wrote in its place once it has
recorded that the item is done. So a result is there whole or not at all, two copies of one item never
write to one file, and after a crash it is known what was finished.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.model.templates import placeholder_names, render_template
from dovetail.process.processes import signal_group
from dovetail.records import dataclass

IN, OUT, INS = "in", "out", "ins"
LAST_LINES = 2000
"""Bytes of what a program wrote to standard error that are looked at for its last line."""
LEAVE_TIME = 1.0
"""Seconds that a program which stays has to leave when its input ends."""


class ProgramFailed(Exception):  # noqa: N818 - reads as what it is
    """A program could not be started, or ended badly, or wrote no output; the text names which."""


@dataclass(frozen=True, slots=True)
class FileItem:
    """One file of a map of programs: where it is, and what its result is called.

    The reduce of a map is an item too: its ``paths`` are the results.
    """

    path: str
    name: str
    paths: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Ran:
    """A program has done an item: seconds of the program alone, and where its output lies."""

    item: FileItem
    seconds: float
    part: str


def parse_command(text: str, where: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """A command as words, split as a shell splits them (no shell runs it). Raises `InputError`.

    ``allowed`` are the placeholders that it may have.
    """
    try:
        words = shlex.split(text)
        named = placeholder_names(words)
    except ValueError as error:
        raise InputError(
            f"found {show_value(text)}: {str(error).lower()}, expected a command", where=where
        ) from None
    if not words:
        raise InputError(f"found {show_value(text)}, expected a program and its arguments", where=where)
    for name in named:
        if name not in allowed:
            known = ", ".join(f"{{{word}}}" for word in allowed) or "none"
            raise InputError(f"found the placeholder {{{name}}}, expected {known}", where=where)
    return tuple(words)


@contextmanager
def _output_folder(parts: str, item: FileItem) -> Iterator[str]:
    """Where an item's output is written, in a folder of its own; it goes again where that fails."""
    with ExitStack() as undo:
        part = tempfile.mkdtemp(dir=parts)
        undo.callback(shutil.rmtree, part, ignore_errors=True)
        yield os.path.join(part, os.path.basename(item.name))
        undo.pop_all()


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is started for each item: ``{in}`` is its file, ``{out}`` where it shall write.

    Without ``{in}`` the file comes on standard input, without ``{out}`` standard output is the result.
    ``parts`` is the folder for outputs on the way, ``folder`` the one in which it runs.
    """

    argv: tuple[str, ...]
    parts: str
    folder: str

    def __call__(self, item: FileItem) -> Ran:
        """Run it. Raises `ProgramFailed`."""
        with _output_folder(self.parts, item) as out:
            seconds = self._run_program(item, out)
        return Ran(item, seconds, out)

    def _run_program(self, item: FileItem, out: str) -> float:
        named = placeholder_names(self.argv)
        argv: list[str] = []
        for word in self.argv:
            if word == f"{{{INS}}}":
                argv += item.paths
            else:
                argv.append(render_template(word, {IN: item.path, OUT: out}))
        # Into a file, not a pipe: a program that fills a pipe which is read at its end would hang.
        with tempfile.TemporaryFile() as errors, open(os.devnull, "r+b") as null:
            with ExitStack() as files:
                source: IO[Any] = null
                if IN not in named and not item.paths:
                    source = files.enter_context(open(os.path.join(self.folder, item.path), "rb"))
                sink: IO[Any] = null if OUT in named else files.enter_context(open(out, "wb"))
                began = time.perf_counter()
                process = _start_program(argv, self.folder, stdin=source, stdout=sink, stderr=errors)
                code = process.wait()
                seconds = time.perf_counter() - began
            # Nothing that it has started outlives it.
            signal_group(process.pid, signal.SIGKILL)
            if code:
                raise ProgramFailed(_describe_exit(code, errors))
        if not os.path.exists(out):
            raise ProgramFailed("ended well but did not write its output")
        return seconds


_staying: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
"""In a worker: programs that stay, each with the file that its complaints go to."""


@dataclass(frozen=True, slots=True)
class Staying:
    """A program that stays: it takes one item a line on standard input, and answers each with one line.

    ``line`` is what it is sent, by default the file's name; the answer is the result, unless the line has
    ``{out}``: then the program writes there itself. Where it ends instead of answering the item has failed,
    and the next item starts it anew.
    """

    argv: tuple[str, ...]
    parts: str
    folder: str
    line: str = "{in}"

    def __call__(self, item: FileItem) -> Ran:
        """Send the line, wait for the answer. Raises `ProgramFailed`."""
        with _output_folder(self.parts, item) as out:
            began = time.perf_counter()
            answer = self._send_item(render_template(self.line, {IN: item.path, OUT: out}).encode() + b"\n")
            seconds = time.perf_counter() - began
            if OUT not in placeholder_names([self.line]):
                Path(out).write_bytes(answer)
            elif not os.path.exists(out):
                raise ProgramFailed("answered but did not write its output")
        return Ran(item, seconds, out)

    def _send_item(self, line: bytes) -> bytes:
        fresh = self.argv not in _staying
        if fresh:
            errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
            process = _start_program(
                self.argv, self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
            _staying[self.argv] = process, errors
        process, errors = _staying[self.argv]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if answer.endswith(b"\n"):
            return answer
        # Ended, or answered half a line: the next item starts it anew.
        del _staying[self.argv]
        code = process.wait()
        signal_group(process.pid, signal.SIGKILL)
        with errors, process.stdout:
            if not fresh and not answer and not code:
                # It had left in good order after its last answer.
                return self._send_item(line)
            raise ProgramFailed(_describe_exit(code, errors) if code else "ended without an answer")

    def finish(self) -> None:
        """No more items: its input ends, so that it can leave in good order."""
        # All inputs first: programs that stay end at the same time, not one after the other.
        for process, _ in _staying.values():
            assert process.stdin is not None
            process.stdin.close()
        for process, _ in _staying.values():
            process.wait(LEAVE_TIME)


def _start_program(argv: Sequence[str], folder: str, **files: Any) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, with Ctrl-C as programs expect it."""
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            # Workers ignore Ctrl-C, and a child would inherit that.
            before = signal.signal(signal.SIGINT, signal.SIG_DFL)
            stack.callback(signal.signal, signal.SIGINT, before)
        try:
            return subprocess.Popen(argv, cwd=folder, process_group=0, **files)
        except OSError as error:
            raise ProgramFailed(f"cannot be started: {argv[0]}: {error.strerror}") from None


def _describe_exit(code: int, errors: IO[bytes]) -> str:
    """How it ended, and the last line of what it complained."""
    how = f"exit code {code}" if code > 0 else f"ended by signal {-code} ({signal.Signals(-code).name})"
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - LAST_LINES))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {lines[-1].strip()}" if lines else how
