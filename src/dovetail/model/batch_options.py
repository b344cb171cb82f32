"""What options for ``sbatch`` ask for, as far as it decides where a job may go."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dovetail.model.job import Implementation

_RESTRICTED = re.compile(r"([^-:][^:]*):(-.*)", re.DOTALL)
"""``KIND:--option``: for the implementations of that kind, or of that name."""


def partition_of(options: Sequence[str]) -> str:
    """The partition that options for sbatch ask for; empty where they ask for none."""
    asked = ""
    for option in folded(options):
        if option.startswith("--partition="):
            asked = option.partition("=")[2]
        elif option.startswith("-p"):
            asked = option[2:]
    return asked


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


def folded(options: Sequence[str]) -> list[str]:
    """Each option as one word: ``["--qos", "gpu"]`` as ``["--qos=gpu"]``.

    >>> folded(["--qos", "gpu", "-p", "a", "--exclusive"])
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
    """The one feature that options for sbatch ask for; empty where they ask for none, or for several.

    >>> constraint_of(["-C", "rome"]), constraint_of(["--constraint=a&b"])
    ('rome', '')
    """
    asked = ""
    for option in folded(options):
        if option.startswith("--constraint="):
            asked = option.partition("=")[2]
        elif option.startswith("-C"):
            asked = option[2:]
    return asked if re.fullmatch(r"[\w.-]*", asked) else ""
