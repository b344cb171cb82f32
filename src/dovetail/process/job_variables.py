"""The variables of one job that its batch script expects: patterns filled in with where it was placed."""

from __future__ import annotations

import time
from itertools import groupby

from dovetail.model import Cluster, Placed
from dovetail.model.hostlist import compress_names
from dovetail.model.marks import fill_marks, job_marks

DEFAULT_PARTITION = "dovetail"
"""Stands for the partition of a job that names none."""


def filled_variables(placed: Placed, cluster: Cluster) -> dict[str, str]:
    """The variables of the job's `Launch`, without those that are empty. Linear in nodes."""
    launch = placed.job.launch
    if launch is None or not launch.variables:
        return {}
    facts = Facts(placed, cluster)
    found = {name: fill_marks(pattern, facts) for name, pattern in launch.variables}
    return {name: value for name, value in found.items() if value}


class Facts:
    """What marks stand for, each worked out where it is needed."""

    def __init__(self, placed: Placed, cluster: Cluster) -> None:
        launch = placed.job.launch
        self._placed, self._cluster = placed, cluster
        self._of_job = job_marks(placed.job.id, "" if launch is None else launch.indices, placed.job.index)
        self._known: dict[str, str] = {}
        # The job is handed over now, and begins a moment later.
        self._now = time.time()

    def __call__(self, letter: str) -> str:
        """The value of a mark; empty for a letter that stands for nothing."""
        if letter in self._of_job:
            return self._of_job[letter]
        if letter not in self._known:
            self._known[letter] = self._fact_of_letter(letter)
        return self._known[letter]

    def _fact_of_letter(self, letter: str) -> str:
        placed, cluster = self._placed, self._cluster
        allocation = placed.allocation
        first = cluster.nodes[allocation.first_node]
        if letter == "H":
            return first.name.partition(".")[0]
        if letter == "N":
            return compress_names([cluster.nodes[n].name for n in allocation.nodes])
        if letter == "K":
            return str(len(allocation.nodes))
        if letter == "C":
            return str(max(1, len(self._cores_by_node()[0])))
        if letter == "P":
            return run_length_text([max(1, len(cores)) for cores in self._cores_by_node()])
        if letter == "S":
            return str(int(self._now))
        if letter == "E":
            return "" if placed.job.walltime is None else str(int(self._now + placed.job.walltime))
        if letter == "r":
            return str(placed.attempt - 1) if placed.attempt > 1 else ""
        if letter == "p":
            return (placed.job.queue or allocation.request.partition or DEFAULT_PARTITION).partition(",")[0]
        held = self._first_node_devices()
        return {"g": str(len(held)) if held else "", "G": ",".join(map(str, held))}.get(letter, "")

    def _cores_by_node(self) -> list[set[int]]:
        """The cores of each node, in their order: those of its pool and of its devices."""
        allocation, found = self._placed.allocation, []
        for n in allocation.nodes:
            node, part = self._cluster.nodes[n], allocation.part_on(n)
            devices = () if part is None else part.devices
            cores = set(allocation.cores_on(n, node))
            found.append(cores.union(*(node.devices[d].cores for d in devices)))
        return found

    def _first_node_devices(self) -> list[int]:
        """The places of the devices on the first node."""
        allocation = self._placed.allocation
        part = allocation.part_on(allocation.first_node)
        return [] if part is None else list(part.devices)


def run_length_text(numbers: list[int]) -> str:
    """``4(x2),3``: equal neighbours together, as Slurm writes CPUs of nodes.

    >>> run_length_text([4, 4, 3])
    '4(x2),3'
    """
    groups = ((number, len(list(same))) for number, same in groupby(numbers))
    return ",".join(f"{number}(x{times})" if times > 1 else f"{number}" for number, times in groups)
