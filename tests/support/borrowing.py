"""Jobs that compute on devices which may be borrowed, and say where these were."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail_command import DOVETAIL
from waiting import stop, until

__all__ = [
    "KILLED",
    "PROGRAM",
    "ROWS",
    "Row",
    "begun",
    "children",
    "jobs",
    "silence_the_wide_one",
    "stopped_on_its_way_home",
    "wake",
]

PROGRAM = '''
"""So many steps on all of its devices, each as long as it sleeps; tells the result and where it was."""
import json, os, sys, time
import dovetail_remote

steps, out = int(sys.argv[1]), sys.argv[2]
xp = dovetail_remote.namespace()
devices = xp.__array_namespace_info__().devices()
began = [str(device.address) for device in devices]
open(out + ".began", "w").close()
sums = [xp.arange(1000.0, device=device) for device in devices]
for k in range(steps):
    sums = [s * 0.5 + k % 7 for s in sums]
    for s in sums:
        float(s[0])
    time.sleep(0.02)
for _ in range(3000 if out == "long.json" else 0):  # on a busy machine the wide one may begin late
    if os.path.exists("wide.json.began"):
        break
    time.sleep(0.02)
ended = [str(device.address) for device in devices]
with open(out, "w") as file:
    json.dump({"began": began, "ended": ended, "values": [float(xp.sum(s)) for s in sums]}, file)
'''

Row = tuple[str, int, int]
"""A job's name, its devices, its steps."""
ROWS: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 60), ("wide", 2, 160))
"""A job of 1 s on b; one of 2 s on a, until the third has begun; and that one, on two devices of a node."""
KILLED: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 300), ("wide", 2, 900), ("late", 2, 20))


def jobs(rows: tuple[Row, ...], python: str = sys.executable) -> str:
    """A job file."""
    apps = "".join(
        f"""
[[app]]
name = "on{gpus}"
[[app.implementation]]
name = "gpu"
command = ["{python}", "program.py", "{{steps}}", "{{out}}"]
cpus = 0
gpus = {gpus}
time = 5
"""
        for gpus in (1, 2)
    )
    return apps + "".join(
        f'[[job]]\nid = "{name}"\napp = "on{gpus}"\ninputs = {{ steps = {steps}, out = "{name}.json" }}\n'
        for name, gpus, steps in rows
    )


def children(pid: int) -> list[int]:
    """Processes that a process's main thread has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def begun(folder: Path, environment: Mapping[str, str], lent: Sequence[str]) -> subprocess.Popen[str]:
    """A run of the folder's jobs as ``lent`` says, the wide one of which computes on a borrowed device."""
    process = subprocess.Popen(
        [*DOVETAIL, "run", "jobs.toml", *lent, "--policy", "mrq", "--json", "--quiet"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(lambda: (folder / "wide.json.began").exists() or process.poll() is not None)
    if process.poll() is not None:
        raise AssertionError(process.communicate())
    return process


def silence_the_wide_one(folder: Path) -> None:
    """Once it has begun it makes no calls until `wake`, and so hears nothing of a device that is lost."""
    waits = "for _ in range(6000 if out == 'wide.json' else 0):\n"
    waits += "    if os.path.exists('go'):\n        break\n    time.sleep(0.1)\nfor k"
    (folder / "program.py").write_text(PROGRAM.replace("for k", waits, 1))


def wake(folder: Path) -> None:
    """What was silenced goes on."""
    (folder / "go").touch()


def stopped_on_its_way_home(device: int, journal: Path) -> None:
    """Stop the device that the silent wide job has borrowed, and have it in the middle of its move.

    It has been asked for its arrays, and they do not come.
    """
    stop(device)
    until(lambda: '["migrate","wide"' in journal.read_text(), "it is to come home")
    time.sleep(0.5)  # until it asks
    assert '["migrated","wide"' not in journal.read_text()
