"""The short form of a cluster, ``COUNTxCPUScpu[+GPUSgpu]``, as people write it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dovetail.errors import InputError
from dovetail.model.hostlist import MOST_NAMES
from dovetail.model.node import Node, Numbered, short_form, uniform_node
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES

SHORT = "'16x8cpu+1gpu'"

_SHORT = re.compile(r"([0-9]{1,9})x([0-9]{1,9})cpu(?:\+([0-9]{1,9})gpu)?")


def is_short(text: str) -> bool:
    """Whether the text is a short form, such as ``16x8cpu+1gpu``."""
    return _SHORT.fullmatch(text) is not None


def parse_short_form(text: str) -> tuple[list[tuple[Node, Sequence[str]]], str] | None:
    """The nodes of a short form and what to call the cluster; ``None`` where the text is something else.

    Raises `InputError` where it gives none, or more than a cluster can have.
    """
    match = _SHORT.fullmatch(text)
    if match is None:
        return None
    nodes, cpus, gpus = (int(number or 0) for number in match.groups())
    for found, most, what in (
        (nodes, MOST_NAMES, "nodes"),
        (cpus, MOST_CPUS, "CPUs a node"),
        (gpus, MOST_DEVICES, "GPUs a node"),
    ):
        if found > most:
            raise InputError(f"cluster {text!r}: found {found} {what}, expected at most {most}")
    if nodes == 0 or cpus + gpus == 0:
        what = "nodes" if nodes == 0 else "CPUs and no GPUs"
        raise InputError(f"cluster {text!r}: found 0 {what}, expected at least one, as in {SHORT}")
    return [(uniform_node(cpus, gpus), Numbered("n", nodes))], short_form(nodes, cpus, gpus)
