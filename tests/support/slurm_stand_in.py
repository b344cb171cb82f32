"""Stands in for Slurm's commands where there are more nodes than slurmds fit on a host; the agents are real.

``srun`` starts its command once for each node of ``--nodelist``, all on this host; ``scontrol`` shows one
allocation that has all nodes. A node named in the file ``refuses`` gets none, and what srun says of it ends
the step on all others, as Slurm has it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SRUN = """#!{python} -IS
import os, sys
here = {here!r}
command = sys.argv[next(n for n, word in enumerate(sys.argv) if n and not word.startswith("-")):]
names = next(word for word in sys.argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
with open(here + "/calls", "a") as file:
    file.write("srun %d\\n" % len(names))
with open(here + "/refuses") as file:
    bad = set(file.read().split()) & set(names)
if bad:
    sys.exit("srun: error: Task launch for StepId=1.0 failed on node %s: Communication error" % min(bad))
text = os.read(0, 1 << 20)
size = os.open(here + "/sizes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(size, b"%d\\n" % len(text))
given = os.memfd_create("input", 0)
os.write(given, text)
opened = [(os.POSIX_SPAWN_OPEN, 0, "/proc/self/fd/%d" % given, os.O_RDONLY, 0)]
for name in names:
    environ = {{**os.environ, "SLURMD_NODENAME": name}}
    os.posix_spawn(command[0], command, environ, file_actions=opened)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
SCONTROL = """#!/bin/sh
echo scontrol "$@" | cut -c1-40 >> {here}/calls
case "$*" in
*config*) echo "SlurmUser = somebody(1)"; echo "KillWait = 30 sec";;
*job*) cat {here}/job;;
*node*) cat {here}/node;;
esac
"""


def install(folder: Path, nodes: int) -> dict[str, str]:
    """Write the commands, and give the environment in which they are found."""
    folder.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / name).write_text(text.format(python=sys.executable, here=str(folder)))
        (folder / name).chmod(0o755)
    (folder / "refuses").touch()
    (folder / "job").write_text(
        "JobId=1 JobState=RUNNING TimeLimit=UNLIMITED EndTime=Unknown "
        f"Nodes=n[0-{nodes - 1}] CPU_IDs=0 Mem=0 GRES=\n"
    )
    about = "NodeAddr=127.0.0.1 CPUTot=1 RealMemory=1000 State=ALLOCATED Partitions=all"
    (folder / "node").write_text("".join(f"NodeName=n{n} {about}\n" for n in range(nodes)))
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
