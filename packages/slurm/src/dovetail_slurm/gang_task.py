"""What a task of a gang does before it becomes the job's program: take the cores and devices of its node.

Run by ``srun`` as ``python -I -S gang_task.py PROGRAM ARGUMENT…`` on every node of the gang. DOVETAIL_GANG
in its environment is a JSON object: for each node the cores (numbers within the allotment), how many CPUs
were allotted there, and variables; those of ``pick`` name which of the visible devices are the job's. Without
it, in a batch job of Slurm's queue, all that the task sees is the job's. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def select_devices(visible: str, numbers: list[int]) -> str:
    """Those of the visible devices that have these numbers among them; never one that is not ours to see."""
    found = [word for word in visible.split(",") if word]
    if any(number >= len(found) for number in numbers):
        sys.exit(f"found {len(found)} visible devices, expected one of number {max(numbers)}")
    return ",".join(found[number] for number in numbers)


def task_cores(share: dict[str, Any], task: int, tasks: int) -> list[int]:
    """The cores of this task of ``tasks`` on the node; none where we were not bound to the allotment."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) != share["cpus"]:
        return []
    held = [usable[core] for core in share["cores"]]
    each = len(held) // tasks
    return held[task * each : (task + 1) * each] if each else held


def main() -> None:
    """Become the program."""
    environ = dict(os.environ)
    shares = environ.pop("DOVETAIL_GANG", None)
    if shares is not None:
        share = json.loads(shares)[environ["SLURMD_NODENAME"]]
        environ.update(share["env"])
        for name, numbers in share["pick"].items():
            environ[name] = select_devices(os.environ.get(name, ""), numbers)
        mine = task_cores(share, int(environ["SLURM_LOCALID"]), share["tasks"])
        if mine:
            os.sched_setaffinity(0, mine)
    environ["DOVETAIL_RANK"] = environ["SLURM_PROCID"]
    environ["DOVETAIL_RANKS"] = environ["SLURM_NTASKS"]
    environ["DOVETAIL_LOCAL_RANK"] = environ["SLURM_LOCALID"]
    try:
        os.execvpe(sys.argv[1], sys.argv[1:], environ)
    except OSError as error:
        sys.exit(f"program {sys.argv[1]!r} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
