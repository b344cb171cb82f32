"""A batch system of one machine, small and real: a line of scripts, some CPUs, a file for each job.

``python spooler.py FOLDER serve CPUS`` works through the line; ``submit``, ``list``, ``cancel``, ``requeue``
and ``forget`` are its commands, for every user who can write to the folder. It knows no arrays and no
accounting, puts a job back that is requeued, and keeps one that needs more CPUs than there are for ever.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

LOOK, GRACE = 0.02, 2.0


def read(path: Path) -> dict[str, Any]:
    """A job's file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write(path: Path, job: dict[str, Any]) -> None:
    """Replace a job's file in one step, since others read it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(job))
    os.replace(new, path)


def jobs_of(folder: Path) -> list[Path]:
    """The line, oldest first."""
    return sorted(folder.glob("*.job"), key=lambda path: int(path.stem))


def wanted(path: Path, what: str) -> bool:
    """Whether a command left this wish, which is taken away."""
    try:
        path.with_suffix(f".{what}").unlink()
    except FileNotFoundError:
        return False
    return True


def begin(path: Path, job: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a job's script as the leader of a session."""
    named = {"SPOOL_JOB": path.stem, "SPOOL_HOST": "spool", "SPOOL_RESTARTS": str(job["restarts"])}
    with open(job["log"], "ab") as log:
        process = subprocess.Popen(
            ["/bin/sh", job["script"], *job["arguments"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=job["folder"],
            env={**job["environ"], **named},
            start_new_session=True,
        )
    write(path, {**job, "state": "R", "start": time.time(), "host": "spool"})
    return process


def kill(process: subprocess.Popen[bytes]) -> int:
    """End a job: politely, then not; its exit status."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def serve(folder: Path, cpus: int) -> None:
    """Work through the line for ever, first come, first served."""
    running: dict[Path, subprocess.Popen[bytes]] = {}
    while True:
        used = 0
        for path in jobs_of(folder):
            job, process = read(path), running.get(path)
            if wanted(path, "cancel") and job["state"] in "QR":
                if process is not None:
                    kill(running.pop(path))
                write(path, {**job, "state": "X", "end": time.time()})
            elif wanted(path, "requeue") and process is not None:
                kill(running.pop(path))
                write(path, {**job, "state": "Q", "host": "", "restarts": job["restarts"] + 1})
            elif process is not None and (status := process.poll()) is not None:
                del running[path]
                write(path, {**job, "state": "F", "status": status, "end": time.time()})
            elif job["state"] == "R":
                used += job["cpus"]
            elif job["state"] == "Q" and job["cpus"] > cpus and not job["why"]:
                write(path, {**job, "why": "TooLarge"})
            elif job["state"] == "Q" and used + job["cpus"] <= cpus:
                running[path] = begin(path, job)
                used += job["cpus"]
        time.sleep(LOOK)


def submit(folder: Path, given: argparse.Namespace) -> None:
    """Put a script at the end of the line, and print its number."""
    if not os.path.isdir(given.folder):
        raise SystemExit(f"found folder {given.folder!r}, expected one that is there")
    for number in range(1, 1_000_000):
        try:
            os.close(os.open(folder / f"{number}.number", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        job = {
            "state": "Q",
            "script": given.script,
            "arguments": given.arguments,
            "cpus": given.cpus,
            "log": given.log,
            "folder": given.folder,
            "environ": dict(os.environ),
            "restarts": 0,
            "start": None,
            "end": None,
            "host": "",
            "status": None,
            "why": "",
        }
        write(folder / f"{number}.job", job)
        print(number)
        return


def main() -> None:
    """Do what the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spool", type=Path)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve").add_argument("cpus", type=int)
    commands.add_parser("list")
    for name in ("cancel", "requeue", "forget"):
        commands.add_parser(name).add_argument("ids", nargs="+")
    one = commands.add_parser("submit")
    one.add_argument("--cpus", type=int, default=1)
    one.add_argument("--log", default="/dev/null")
    one.add_argument("--folder", default="/")
    one.add_argument("script")
    one.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if given.command == "serve":
        serve(given.spool, given.cpus)
    elif given.command == "submit":
        submit(given.spool, given)
    elif given.command == "list":
        for path in jobs_of(given.spool):
            job = read(path)
            columns = (path.stem, job["state"], job["status"], job["host"], job["start"], job["end"])
            print(*("" if one is None else one for one in (*columns, job["why"], job["script"])), sep="|")
    elif given.command == "forget":
        for id in given.ids:
            (given.spool / f"{id}.job").unlink()
    else:
        for id in given.ids:
            (given.spool / f"{id}.{given.command}").touch()


if __name__ == "__main__":
    main()
