"""The actor that holds a node's GPUs for a run that lends them, and has them served. Standard library only.

Sent to the workers by value. Like a command behind its fence (`dovetail_ray.task`), the device
server stands behind a keeper, a small process that ends it, and removes the token, as soon as its actor is
gone: with its node, or with Dovetail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

KEEPER = r"""
import json, os, shutil, subprocess, sys, tempfile

def begin():
    complaints = open(os.path.join(place, "complaints"), "w+")
    own = {**spec["env"], "DOVETAIL_STARTED_BY": str(os.getpid()), "DOVETAIL_SOCKETS": place}
    words = [word.replace("{token}", path) for word in spec["argv"]]
    server = subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=complaints, text=True, env={**os.environ, **own})
    line = server.stdout.readline()
    if line:
        about["ready"] = line
        return server
    server.wait()
    complaints.seek(0)
    about["complaint"] = complaints.read().strip()[-1000:] or "it ended (status %d)" % server.returncode
    return None

os.setsid()
spec = json.loads(sys.stdin.readline())
place = tempfile.mkdtemp(prefix="dovetail-")
server = None
try:
    path = os.path.join(place, "token")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(spec["token"])
    while sys.stdin.readline():
        if server is None or server.poll() is not None:
            about = {"token": path, "ready": "", "complaint": ""}
            server = begin() if spec["argv"] else None
        print(json.dumps(about), flush=True)
finally:
    if server is not None:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    shutil.rmtree(place, ignore_errors=True)
"""


class Lender:
    """One node's; ``argv`` are the arguments of Python for what serves its devices, none without a device.

    ``env`` are its variables beside ours.
    """

    def __init__(self, argv: list[str], token: str, env: dict[str, str]) -> None:
        self._spec = {"argv": argv, "token": token, "env": env}
        self._keeper: subprocess.Popen[str] | None = None

    def hold(self) -> bool:
        """Once this answers, Ray has given us the GPUs."""
        return True

    def serve(self) -> dict[str, Any]:
        """See to it that the server runs: its line when it was ready, or its complaint.

        And where the token is, and what the GPUs are called that Ray has given us.
        """
        if self._keeper is None or self._keeper.poll() is not None:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", KEEPER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._query_keeper(json.dumps(self._spec))
        about: dict[str, Any] = json.loads(
            self._query_keeper("serve", answered=True) or '{"complaint":"it was killed"}'
        )
        return {**about, "visible": os.environ.get("CUDA_VISIBLE_DEVICES", "")}

    def end(self) -> None:
        """Have the keeper end the server and remove the token; returns when it has."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            self._keeper.wait()

    def _query_keeper(self, line: str, *, answered: bool = False) -> str:
        assert self._keeper is not None
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.write(line + "\n")
        self._keeper.stdin.flush()
        return self._keeper.stdout.readline() if answered else ""
