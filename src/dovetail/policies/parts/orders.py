"""Orders of the queue, as keys of one job; ties go to the job submitted first, then to file order."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log10, sqrt
from typing import Any, Literal, NamedTuple

from dovetail.model import WHOLE_POOL, Job, Seconds

Order = Literal["fcfs", "sjf", "largest", "f1", "saf", "sqrtsaf"]


def priority_first(job: Job) -> float:
    """Higher priority first."""
    return -job.priority


def by_walltime(job: Job, limit: Seconds) -> float:
    """Ascending walltime, priorities ignored."""
    return limit


def shortest_first(job: Job, limit: Seconds) -> tuple[float, float]:
    """Higher priority first, then ascending walltime."""
    return -job.priority, limit


def largest_first(job: Job) -> tuple[float, float, float, float]:
    """Higher priority first, then most nodes, then most devices and most CPUs on each node."""
    request = job.choices[0].request
    cpus = inf if request.cpus == WHOLE_POOL else request.cpus
    return -job.priority, -job.nodes, -request.gpus, -cpus


def f1_first(job: Job, limit: Seconds) -> tuple[float, float]:
    """Higher priority first, then ascending F1 (Carastan-Santos and de Camargo 2017).

    F1 = log10(r) * n + 870 * log10(s): r is the requested time, n the processors, s the submission time.
    r and s below one second count as one second.
    """
    return -job.priority, log10(max(1.0, limit)) * count_processors(job) + 870 * log10(
        max(1.0, job.submit_time)
    )


def smallest_area_first(job: Job, limit: Seconds) -> tuple[float, float]:
    """Higher priority first, then ascending area: walltime times processors."""
    return -job.priority, limit * count_processors(job)


def smallest_root_area_first(job: Job, limit: Seconds) -> tuple[float, float]:
    """Higher priority first, then ascending walltime times the root of the processors."""
    return -job.priority, limit * sqrt(count_processors(job))


def count_processors(job: Job) -> int:
    """Nodes times CPUs on each, as the job requests them; whole pools and none count as one."""
    return job.nodes * max(1, job.choices[0].request.cpus)


class OrderKey(NamedTuple):
    """A key for `Queue.by` and `Queue.in_time`; ``bounded``: it is called with the walltime too."""

    key: Callable[..., Any]
    bounded: bool


ORDERS: dict[Order, OrderKey] = {
    "fcfs": OrderKey(priority_first, False),
    "sjf": OrderKey(shortest_first, True),
    "largest": OrderKey(largest_first, False),
    "f1": OrderKey(f1_first, True),
    "saf": OrderKey(smallest_area_first, True),
    "sqrtsaf": OrderKey(smallest_root_area_first, True),
}
