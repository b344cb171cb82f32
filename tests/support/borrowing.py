"""Jobs that compute on devices which may be borrowed, and say where these were."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["KILLED", "PROGRAM", "ROWS", "Row", "children", "jobs"]

PROGRAM = '''
"""So many steps on all of its devices, each as long as it sleeps; tells the result and where it was."""
import json, sys, time
import dovetail.remote

steps, out = int(sys.argv[1]), sys.argv[2]
xp = dovetail.remote.namespace()
devices = xp.__array_namespace_info__().devices()
began = [str(device.address) for device in devices]
open(out + ".began", "w").close()
sums = [xp.arange(1000.0, device=device) for device in devices]
for k in range(steps):
    sums = [s * 0.5 + k % 7 for s in sums]
    for s in sums:
        float(s[0])
    time.sleep(0.02)
ended = [str(device.address) for device in devices]
with open(out, "w") as file:
    json.dump({"began": began, "ended": ended, "values": [float(xp.sum(s)) for s in sums]}, file)
'''

Row = tuple[str, int, int]
"""A job's name, its devices, its steps."""
ROWS: tuple[Row, ...] = (("short", 1, 80), ("long", 1, 240), ("wide", 2, 320))
"""A job of 2 s on b, one of 6 s on a, and one that wants two devices of a node."""
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
