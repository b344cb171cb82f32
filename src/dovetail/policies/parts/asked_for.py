"""What the user of a job on many nodes requested, and what stands in for it (Ravi 2012, section IV.D)."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Implementation, Job, fastest_choice


def kind_order(implementation: Implementation) -> int:
    """CPU and device together first, then a device, then the CPU: the order in which equals are taken."""
    return 0 if implementation.kind.startswith(f"{CPU}+") else 2 if implementation.kind == CPU else 1


def by_kind(choices: Iterable[Choice]) -> list[Choice]:
    """The choices with those that use most of a node first."""
    return sorted(choices, key=lambda choice: kind_order(choice.implementation))


def fastest_asked(view: View, job: Job) -> Choice:
    """The fastest implementation at the requested node count; ties: the one that uses most."""
    return fastest_choice(view, job, by_kind(job.asked or job.choices))


def asked_for(view: View, job: Job) -> Choice:
    """The user's request; without an ``implementation`` the one that is fastest at the node count."""
    for choice in job.asked or job.choices:
        if choice.implementation.name == job.implementation:
            return choice
    return fastest_asked(view, job)
