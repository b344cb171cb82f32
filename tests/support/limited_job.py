"""Three jobs under a supervisor, two with limits of memory; prints how each ended, and the cgroups left.

Usage: python limited_job.py SUPERVISOR FOLDER. Standard library only: a small virtual machine runs it, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

BIG = "import os, time\nif os.fork() == 0:\n    x = bytearray(200_000_000)\ntime.sleep(60)"
JOBS = {"big": (60_000_000, BIG), "small": (60_000_000, "x = bytearray(1_000_000)"), "free": (None, "x = 1")}


def main() -> None:
    """Start the supervisor, and the jobs one after the other."""
    script, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    ours, theirs = socket.socketpair()
    log = os.open(f"{folder}/spawn.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    command = [sys.executable, "-I", "-S", script, str(theirs.fileno()), str(log), "0.0", folder]
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(), log), start_new_session=True)
    answers = ours.makefile()

    def send(**request: Any) -> None:
        ours.sendall(json.dumps(request).encode() + b"\n")

    send(t="setup", setup=0, env={}, outer=None, unset=[], cores=[], cwd=folder, grace=2.0, run={})
    for name, (limit, code) in JOBS.items():
        argv = [sys.executable, "-I", "-S", "-c", code]
        files = [f"{folder}/{name}.out", f"{folder}/{name}.err"]
        more = {} if limit is None else {"memory": limit}
        send(t="intent", uid=f"{'a' * 32}/{name}", job=name, setup=0, argv=argv, files=files, **more)
        print(answers.readline().strip(), flush=True)
    send(t="close", grace=1.0)
    process.wait(60)
    print(json.dumps([name for name in os.listdir("/sys/fs/cgroup") if name.startswith("dovetail-")]))


if __name__ == "__main__":
    main()
