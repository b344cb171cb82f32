"""``dovetail submit --interactive``: a program on a job's cores and devices, seen and typed into from here.

The terminal goes through the service's socket. While the job waits, Ctrl-C cancels it; once it runs, all
that is typed is the program's, and the end of this process is a hang-up that ends the job.
"""

from __future__ import annotations

import base64
import http.client
import os
import select
import signal
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dovetail.client.connection import Connection, Reply
from dovetail.errors import DovetailError, InputError
from dovetail.files.streams import print_note
from dovetail.process.terminal import Frames

LOOK = 0.2
"""Seconds between two looks at whether the job has begun."""
QUIET = 2.0
"""Seconds after which a job that waits is named, with its reason."""
PIECE = 4096
END_OF_INPUT = b"\x04"
"""What ends the input of a program on a terminal (Ctrl-D)."""


def default_command() -> list[str]:
    """The user's shell."""
    return [os.environ.get("SHELL") or "/bin/sh"]


def run_on_terminal(service: Connection, inputs: Connection, form: Mapping[str, Any]) -> int:
    """Submit the job, wait for its turn, and be its terminal; the exit status is the program's.

    ``inputs`` is a second connection, for what is typed. Raises `InputError`.
    """
    job = service.post("/api/v1/jobs", {**form, "interactive": True})["ids"][0]
    try:
        row = _when_it_runs(service, job)
    except KeyboardInterrupt:
        service.post("/api/v1/cancel", {"jobs": job})
        print_note(f"job {job} is cancelled")
        return 130
    if row["state"] != "RUNNING":
        return _status_of(row)
    code = _attached(service, inputs, job)
    if code is None:
        return _status_of(service.get(f"/api/v1/jobs/{job}"))
    service.post("/api/v1/wait", {"jobs": job, "timeout": 10})
    return code


def _when_it_runs(service: Connection, job: str) -> dict[str, Any]:
    """The job once it runs, or has ended; while it waits, its reasons go to standard error."""
    named, began = "", time.monotonic()
    while True:
        row: dict[str, Any] = service.get(f"/api/v1/jobs/{job}")
        if row["state"] != "PENDING":
            return row
        if row["reason"] != named and time.monotonic() > began + QUIET:
            named = row["reason"]
            print_note(f"job {job}: {named}; Ctrl-C cancels it")
        time.sleep(LOOK)


def _status_of(row: Mapping[str, Any]) -> int:
    """The exit status for a job whose program has not given one here."""
    print_note(f"job {row['id']}: {row['state']}" + (f": {row['detail']}" if row["detail"] else ""))
    return int(row["exit_code"] or 1)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Have a terminal hand on all that is typed; nothing where it is no terminal."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead stays
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _attached(service: Connection, inputs: Connection, job: str) -> int | None:
    """Be the job's terminal until it ends; the program's exit status, ``None`` where it has given none."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)

    def resized(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(woken, b"R")

    before = signal.signal(signal.SIGWINCH, resized)
    typed = threading.Thread(target=_type, args=(inputs, job, wake), daemon=True)
    code: int | None = None
    frames = Frames()
    try:
        stream = _opened_stream(service, job)
        with _raw(0):
            typed.start()
            while data := stream.read1(1 << 16):
                for letter, body in frames.feed(data):
                    if letter == b"X":
                        code = body[0]
                    elif body:
                        _write_all(body)
    except (OSError, http.client.HTTPException) as error:
        print_note(f"the terminal of job {job} is lost: {error}")
    finally:
        signal.signal(signal.SIGWINCH, before)
        with suppress(BlockingIOError):
            os.write(woken, b"Q")
        service.close()
    return code


def _opened_stream(service: Connection, job: str) -> http.client.HTTPResponse:
    """What the terminal shows. Raises the service's refusal."""
    size = _size()
    answer = service.stream(f"/api/v1/jobs/{job}/terminal?rows={size.lines}&columns={size.columns}")
    if answer.status != 200:
        Reply(answer.status, {}, answer.read()).read_json()
        raise InputError(f"job {job} has no terminal")
    return answer


def _size() -> os.terminal_size:
    """The size of the terminal here; the usual one where there is none."""
    try:
        found = os.get_terminal_size(0)
    except OSError:
        return os.terminal_size((80, 24))
    return found if all(found) else os.terminal_size((80, 24))


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _type(service: Connection, job: str, wake: int) -> None:
    """Send what is typed, and each new size of the window."""
    reads = [0, wake]
    try:
        while True:
            ready, _, _ = select.select(reads, [], [])
            form: dict[str, Any] = {}
            if wake in ready:
                if b"Q" in os.read(wake, 64):
                    return
                size = _size()
                form |= {"rows": size.lines, "columns": size.columns}
            if 0 in ready:
                data = os.read(0, PIECE)
                if not data:
                    reads.remove(0)
                form["data"] = base64.b64encode(data or END_OF_INPUT).decode()
            service.post(f"/api/v1/jobs/{job}/terminal", form)
    except InputError:
        return  # the job has ended, and so does its output
    except (DovetailError, OSError) as error:
        print_note(f"what is typed does not reach job {job}: {error}")
    finally:
        service.close()
