"""What options for ``sbatch`` ask for, as far as it decides where a job may go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["partition_of"]


def partition_of(options: Sequence[str]) -> str:
    """The partition that options for sbatch ask for; empty where they ask for none."""
    for option, value in pairwise((*options, "")):
        if option in ("-p", "--partition"):
            return value
        if option.startswith("--partition="):
            return option.partition("=")[2]
        if option.startswith("-p") and not option.startswith("--"):
            return option[2:]
    return ""
