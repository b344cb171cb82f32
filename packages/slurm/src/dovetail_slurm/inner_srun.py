"""``srun`` inside a job of an allocation: a step on exactly the job's nodes, cores and devices.

Slurm knows of the allocation alone, so a step that a job begins would take what belongs to others. In a
job's PATH this program comes first as ``srun``: it runs Slurm's own beside all that runs (``--overlap``), on
the job's nodes. As ``task`` it is the prolog of each of the step's tasks (``SLURM_TASK_PROLOG``, also where
Slurm's srun is called by its path): it binds the task to the job's cores, and prints the variables that name
its devices. A step that requests a part of them (``--exact``, ``--cpus-per-task``, ``--gpus``, ``--gres``)
gets one that no other such step of the job holds, and waits for it, as in Slurm. Standard library only; run
by path.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

FLAGS = frozenset(
    {
        *("exclusive", "exact", "overlap", "label", "no-kill", "kill-on-bad-exit", "unbuffered", "verbose"),
        *("quiet", "pty", "multi-prog", "overcommit", "oversubscribe", "preserve-env", "disable-status"),
        *("no-allocate", "contiguous", "hold", "immediate", "spread-job", "use-min-nodes", "reboot", "help"),
        *("usage", "version", "whole", "bcast", "nice", "test-only", "interactive", "send-libs", "x11"),
        *("resv-ports", "propagate", "get-user-env", "compress", "wait-for-nodes", "debugger-test"),
    }
)
"""srun's long options that take no value, or one after ``=`` only; all others take one (srun(1))."""
SHORT_FLAGS = "EHIKQOVXZhklsuv"
SHORT = {"w": "nodelist", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus"}
OURS = frozenset({"nodelist", "nodes", "cpus-per-task", "exact", "exclusive", "overlap"})
DEVICES = frozenset({"gpus", "gpus-per-node", "gpus-per-task", "gres"})
PATIENCE = 0.2
"""Seconds between two attempts to get a part of the job's cores and devices."""


def parse_words(words: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """The options that are ours to fulfil, the other words for srun, and the command.

    >>> parse_words(["-n2", "--gres", "gpu:1", "-l", "prog", "-n9"])
    ({'ntasks': '2', 'gres': 'gpu:1'}, ['-n2', '-l'], ['prog', '-n9'])
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        # srun takes no options behind the first word that is none: the rest is the program's own.
        if word == "--" or not word.startswith("-") or word == "-":
            break
        taken, letters = [word], ""
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            takes = name not in FLAGS and not equals
        else:
            letters = word[1:]
            while letters and letters[0] in SHORT_FLAGS:
                # Letters may be joined (-ln2): flags first (I and K with a value joined to them); a letter
                # that takes a value takes all that follows.
                letters = "" if letters[0] in "IK" else letters[1:]
            name, value = SHORT.get(letters[:1], letters[:1]), letters[1:].removeprefix("=")
            takes = bool(letters) and not value
        if takes and at + 1 < len(words):
            at += 1
            value = words[at]
            taken.append(value)
        if name in OURS or (name in DEVICES and (name != "gres" or "gpu" in value)):
            found[name] = value
            # Flags that stood before our option in the same word stay srun's.
            flags = "" if word.startswith("--") else word[1 : len(word) - len(letters)]
            rest += [f"-{flags}"] if flags else []
        else:
            if name in ("ntasks", "jobid"):
                found[name] = value
            rest += taken
        at += 1
    command = list(words[at:])
    return found, rest, command[1:] if command[:1] == ["--"] else command


def count_of(text: str) -> int:
    """``2``, ``a100:2``, ``gpu:2,other:1`` as a number of GPUs."""
    numbers = [int(match) for match in re.findall(r"(?:^|:)(\d+)(?=,|$|\()", text)]
    return numbers[0] if numbers else 1


def chosen_nodes(options: Mapping[str, str], ours: Sequence[str]) -> list[str]:
    """The nodes of the step, of ours."""
    if "nodelist" in options:
        named = [name for name in options["nodelist"].split(",") if name]
        foreign = [name for name in named if name not in ours]
        # Names in brackets are left to srun, which expands and checks them.
        if foreign and not any("[" in name for name in named):
            sys.exit(f"srun: found node {foreign[0]}, expected of the job's own: {', '.join(ours)}")
        return [name for name in named if name in ours] or list(ours)
    count = options.get("nodes", "").partition("-")[0]
    if count.isdecimal():
        if int(count) > len(ours):
            sys.exit(f"srun: found {count} nodes, expected at most the {len(ours)} that are the job's")
        return list(ours[: int(count)])
    return list(ours)


def part_of(options: Mapping[str, str], nodes: Sequence[str], shares: Mapping[str, Any]) -> dict[str, int]:
    """How many cores and devices of each node the step is to have, where that is a part of them."""
    tasks = int(options["ntasks"]) if options.get("ntasks", "").isdecimal() else len(nodes)
    each = -(-tasks // len(nodes))
    cores = min(len(shares[node]["cores"]) for node in nodes)
    gpus = min((len(held) for node in nodes for held in shares[node]["pick"].values()), default=0)
    part: dict[str, int] = {}
    if "cpus-per-task" in options:
        part["cores"] = each * int(options["cpus-per-task"])
    elif "exact" in options or "exclusive" in options:
        part["cores"] = each
    if "gpus-per-task" in options:
        part["gpus"] = each * count_of(options["gpus-per-task"])
    elif "gpus-per-node" in options or "gres" in options:
        part["gpus"] = count_of(options.get("gpus-per-node") or options["gres"])
    elif "gpus" in options:
        part["gpus"] = -(-count_of(options["gpus"]) // len(nodes))
    for name, most in (("cores", cores), ("gpus", gpus)):
        if part.get(name, 0) > most:
            sys.exit(f"srun: found {part[name]} {name} a node, expected at most the job's {most}")
    # A step that takes all of the job's part needs no division.
    return {name: n for name, n in part.items() if n < (cores if name == "cores" else gpus)}


def hold_places(part: Mapping[str, int], most: Mapping[str, int], folder: str) -> dict[str, list[int]]:
    """Places of cores and devices that no other step of the job holds; held until our process ends.

    The locks go over to srun with their descriptors.
    """
    while True:
        held: list[int] = []
        found: dict[str, list[int]] = {}
        for name, wanted in part.items():
            for place in range(most[name]):
                if len(found.setdefault(name, [])) == wanted:
                    break
                # Locks of files end with their process, even where it is killed, so no step leaves cores
                # behind as taken.
                lock = os.open(f"{folder}.{name}.{place}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                held.append(lock)
                found[name].append(place)
        if all(len(found[name]) == wanted for name, wanted in part.items()):
            # Python's descriptors close on exec; these must stay with srun, which holds them until the step
            # ends.
            for lock in held:
                os.set_inheritable(lock, True)
            return found
        # All or nothing: two steps that each wait with half of what they need would wait for ever.
        for lock in held:
            os.close(lock)
        time.sleep(PATIENCE)


def become_srun(words: Sequence[str]) -> None:
    """Become Slurm's own srun."""
    here = os.path.dirname(os.path.abspath(os.environ["DOVETAIL_SRUN"]))
    path = ":".join(one for one in os.environ.get("PATH", os.defpath).split(":") if one != here)
    program = shutil.which("srun", path=path)
    if program is None:
        sys.exit("srun: was not found in PATH")
    options, rest, command = parse_words(words)
    if options.get("jobid", os.environ["SLURM_JOB_ID"]) != os.environ["SLURM_JOB_ID"]:
        # Another allocation's step is no affair of this job: srun gets the words as they are.
        os.execv(program, ["srun", *words])
    shares = json.loads(os.environ["DOVETAIL_GANG"])
    nodes = chosen_nodes(options, list(shares))
    name = hashlib.blake2b(os.environ["DOVETAIL_UID"].encode(), digest_size=8).hexdigest()
    part = part_of(options, nodes, shares)
    if part:
        gpus = [len(held) for node in nodes for held in shares[node]["pick"].values()]
        most = {"cores": min(len(shares[n]["cores"]) for n in nodes), "gpus": min(gpus, default=0)}
        step: dict[str, Any] = {**hold_places(part, most, f"{os.environ['DOVETAIL_STEPS']}/{name}")}
        os.environ["DOVETAIL_STEP"] = json.dumps({**step, "each": "gpus-per-task" in options})
    given = [
        "--overlap",
        f"--job-name=dovetail-{name}",
        f"--nodelist={','.join(nodes)}",
        f"--nodes={len(nodes)}",
    ]
    if not any(word.startswith("--mem") for word in rest):
        given.append("--mem=0")  # what the job has; how much that is is for Dovetail to see to
    if "ntasks" not in options and len(nodes) < len(shares):
        given.append(f"--ntasks={len(nodes)}")
    os.execv(program, ["srun", *given, *rest, *command])


def task_counts(text: str) -> list[int]:
    """``2(x3),1`` as the number of tasks of each node.

    >>> task_counts("2(x3),1")
    [2, 2, 2, 1]
    """
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found


def prepare_task() -> None:
    """Bind the task that we are the prolog of (our parent) and print its variables."""
    environ = os.environ
    share = json.loads(environ["DOVETAIL_GANG"]).get(environ["SLURMD_NODENAME"])
    if share is None:
        print(f"print srun: node {environ['SLURMD_NODENAME']} is not the job's own")
        os.kill(os.getppid(), 15)
        return
    step = json.loads(environ.get("DOVETAIL_STEP", "{}"))
    counts = task_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    node = int(environ.get("SLURM_NODEID", "0"))
    tasks, local = counts[node] if node < len(counts) else 1, int(environ.get("SLURM_LOCALID", "0"))
    usable = sorted(os.sched_getaffinity(os.getppid()))
    cores = [share["cores"][place] for place in step.get("cores", range(len(share["cores"])))]
    # Where Slurm gave the task other CPUs than were counted on, places would name wrong ones: then it keeps
    # what it has.
    if len(usable) == share["cpus"] and cores:
        mine = slice_of([usable[core] for core in cores], local, tasks)
        os.sched_setaffinity(os.getppid(), mine)
    for name, value in share["env"].items():
        print(f"export {name}={value}")
    for name, numbers in share["pick"].items():
        visible = [word for word in environ.get(name, "").split(",") if word]
        places = [place for place in step.get("gpus", range(len(numbers))) if place < len(numbers)]
        held = [visible[numbers[place]] for place in places if numbers[place] < len(visible)]
        if step.get("each"):
            held = slice_of(held, local, tasks)
        print(f"export {name}={','.join(held)}")


def slice_of(held: list[Any], local: int, tasks: int) -> list[Any]:
    """What one of several tasks of a node has; all of it where there is less than one for each."""
    each = len(held) // tasks
    return held[local * each : (local + 1) * each] if each else held


def main() -> None:
    """As ``srun``, or as a task's prolog."""
    if sys.argv[1] == "task":
        prepare_task()
    else:
        become_srun(sys.argv[2:])


if __name__ == "__main__":
    main()
