"""What options for ``sbatch`` request, as far as it decides where a job may go."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from dovetail.model.job import Implementation

_RESTRICTED = re.compile(r"([^-:][^:]*):(-.*)", re.DOTALL)
"""``KIND:--option``: for the implementations of that kind, or of that name."""


SCRIPT, OVERRIDES = "#SBATCH", "--"
"""What begins the options of a job that is a batch script, and what parts its own from those that win."""


def script_options(own: Sequence[str], overriding: Sequence[str]) -> tuple[str, ...]:
    """Options of a job that is a batch script: those of its own lines, and those that override them."""
    return (SCRIPT, *own, OVERRIDES, *overriding)


def of_script(options: Sequence[str]) -> tuple[Sequence[str], Sequence[str]] | None:
    """Own and overriding options of a job that is a batch script; ``None`` where it is none.

    >>> of_script(("#SBATCH", "--ntasks=2", "--", "--nodes=1")), of_script(("--qos=a",))
    ((('--ntasks=2',), ('--nodes=1',)), None)
    """
    if not options or options[0] != SCRIPT:
        return None
    middle = options.index(OVERRIDES)
    return options[1:middle], options[middle + 1 :]


def overriding_words(given: Mapping[str, Any], own: Sequence[str], on: Sequence[str]) -> list[str]:
    """Fields of a job that are not its script's own words, as options for sbatch; ``on``: kinds of devices.

    A job that may run on several kinds requests the devices of the one that it gets.

    >>> overriding_words({"nodes": 2, "walltime": 90.0}, [], [])
    ['--nodes=2', '--time=1:30']
    >>> overriding_words({}, ["--gres=gpu:2"], ["cpu", "gpu"])
    ['cpu:--gres=none']
    """
    found: list[str] = []
    if "nodes" in given:
        found.append(f"--nodes={given['nodes']}")
    cpus = given.get("cpus")
    if cpus is not None:
        # A job without a CPU of its own still has one in Slurm.
        found.append("--exclusive" if cpus == "all" else f"--cpus-per-task={max(1, int(cpus))}")
    if isinstance(given.get("memory"), int):
        # Slurm counts memory in MiB, and a job must not get less than it reserves.
        found.append(f"--mem={ceil(given['memory'] / (1 << 20))}M")
    if given.get("walltime") is not None:
        # Whole seconds, rounded up: Slurm ends a job at its limit, ours only after it.
        minutes, seconds = divmod(max(1, ceil(given["walltime"])), 60)
        found.append(f"--time={minutes}:{seconds:02d}")
    for name, option in (
        ("partition", "partition"),
        ("stdout", "output"),
        ("stderr", "error"),
        ("signal", "signal"),
    ):
        if given.get(name) is not None:
            found.append(f"--{option}={given[name]}")
    # A script with GPUs of its own that may also run on CPUs must not take them there.
    requests = any(word.startswith(("--gres", "--gpus", "-G")) for word in own)
    for kind in on:
        device = kind.removeprefix("cpu+")
        if device == "cpu":
            found += ["cpu:--gres=none"] if requests and (len(on) > 1 or given.get("gpus") == 0) else []
        elif not requests or given.get("gpus") is not None:
            found.append(f"{kind}:--gres={device}:{max(1, ceil(given.get('gpus') or 1))}")
    return found


def partition_of(options: Sequence[str]) -> str:
    """The partition that options for sbatch request; empty where they request none."""
    return value_of(options, "--partition", "-p")


def value_of(options: Sequence[str], long: str, short: str) -> str:
    """The last value of this option among options for sbatch; empty where there is none.

    >>> value_of(["-A", "x", "--account=y"], "--account", "-A"), value_of(["-pa"], "--qos", "-q")
    ('y', '')
    """
    found = ""
    for option in fold_options(options):
        if option.startswith(f"{long}="):
            found = option.partition("=")[2]
        # The later one wins, as in sbatch.
        elif option.startswith(short) and not option.startswith("--"):
            found = option[2:]
    return found


def options_for(options: Sequence[str], implementation: Implementation) -> tuple[str, ...]:
    """The options that hold for an implementation: those of other kinds are left out, prefixes go.

    >>> from dovetail.model import Request
    >>> options_for(["--account=x", "gpu:--qos=gpu"], Implementation("fast", "gpu", Request()))
    ('--account=x', '--qos=gpu')
    """
    found: list[str] = []
    for option in options:
        restricted = _RESTRICTED.fullmatch(option)
        if restricted is None:
            found.append(option)
        elif restricted[1] in (implementation.kind, implementation.name):
            found.append(restricted[2])
    return tuple(found)


def fold_options(options: Sequence[str]) -> list[str]:
    """Each option as one word: ``["--qos", "gpu"]`` as ``["--qos=gpu"]``.

    >>> fold_options(["--qos", "gpu", "-p", "a", "--exclusive"])
    ['--qos=gpu', '-pa', '--exclusive']
    """
    found: list[str] = []
    for word in options:
        if word.startswith("-") or not found:
            found.append(word)
        else:
            found[-1] += f"={word}" if found[-1].startswith("--") else word
    return found


def constraint_of(options: Sequence[str]) -> str:
    """The one feature that options for sbatch request; empty where they request none, or several.

    >>> constraint_of(["-C", "rome"]), constraint_of(["--constraint=a&b"])
    ('rome', '')
    """
    feature = value_of(options, "--constraint", "-C")
    return feature if re.fullmatch(r"[\w.-]*", feature) else ""
