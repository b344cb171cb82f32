"""What policies that run each job on one unit have in common: they refuse gangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dovetail.interfaces import Traits
from dovetail.model import Cluster, Job


def refuse_gangs(jobs: Sequence[Job]) -> str | None:
    """Why these jobs cannot be placed by a policy that uses one node a job; ``None`` if they can."""
    for job in jobs:
        if job.nodes > 1 or not any(choice.request.nodes == 1 for choice in job.choices):
            return (
                f"places each job on one node; job {job.id} needs {job.nodes} nodes "
                "(easy, conservative and history place gangs, fms molds them)"
            )
    return None


class OneNode:
    """A policy that places each job on one node, and refuses gangs before anything runs.

    Most of them compare the units one by one (``each_unit``), which bounds the clusters that they are for.
    """

    __slots__ = ()
    traits: ClassVar[Traits] = Traits(each_unit=True)

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Why these jobs cannot be placed; ``None`` if they can."""
        return refuse_gangs(jobs)
