"""A stand-in of NVIDIA's ``nvidia-cuda-mps-control``: a program that records its calls, and is a daemon.

As the real one it writes its pid beside its pipes, goes on by itself, and ends by ``quit`` on standard input.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTROL = """#!PYTHON -IS
import json, os, signal, stat, sys, time
box = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
named = os.path.join(pipes, "nvidia-cuda-mps-control.pid")
order = "" if "-d" in sys.argv else sys.stdin.read().strip()
seen = {name: os.environ.get(name) for name in
        ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}
modes = [oct(stat.S_IMODE(os.stat(seen[name]).st_mode)) if seen[name] and os.path.isdir(seen[name]) else None
         for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")]
with open(os.path.join(box, "calls"), "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "order": order, "env": seen, "modes": modes}) + "\\n")
if os.path.exists(os.path.join(box, "refuse")):
    sys.exit(1)
if "-d" in sys.argv:
    ready, done = os.pipe()
    if os.fork():
        os.close(done)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.setsid()
    if os.path.exists(named):
        try:
            os.kill(int(open(named).read()), 0)
            sys.exit(1)  # one runs there already
        except ProcessLookupError:
            pass
    with open(named, "w") as file:
        file.write(str(os.getpid()))
    os.write(done, b"x")
    os.closerange(0, 3)
    deaf = os.path.exists(os.path.join(box, "deaf"))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: os._exit(0))
    while True:
        time.sleep(60)
elif order == "quit":
    os.kill(int(open(named).read()), signal.SIGTERM)
"""


@dataclass
class MpsBox:
    """The stand-in in ``folder``/bin, and what it was called for."""

    folder: Path

    def __post_init__(self) -> None:
        program = self.folder / "bin" / "nvidia-cuda-mps-control"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(CONTROL.replace("PYTHON", sys.executable))
        program.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds it."""
        return {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every call so far: arguments, the order on standard input, variables, the folders' modes."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["argv"] == ["-d"]]

    @property
    def quits(self) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["order"] == "quit"]

    @staticmethod
    def pid_of(call: dict[str, Any]) -> int:
        """The daemon that this call has started."""
        return int(Path(call["env"]["CUDA_MPS_PIPE_DIRECTORY"], "nvidia-cuda-mps-control.pid").read_text())
