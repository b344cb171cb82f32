"""Questions to an outside scheduler: shapes of jobs, and when it would start one."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model.job import Request, Seconds
from dovetail.records import dataclass

__all__ = ["Begun", "ForeseenStart", "HandedOver", "Shape", "TimeUsed"]


# Hashable, and without the job: jobs of one shape share one question to a scheduler that answers slowly.
@dataclass(frozen=True, slots=True)
class Shape:
    """What an outside scheduler would see of a job: where it is to go, what it requests, for how long.

    ``target`` is a queue of that scheduler (Slurm: a partition), ``walltime`` ``None`` where none is
    requested, ``options`` what is passed on to it as it stands.
    """

    target: str
    request: Request
    walltime: Seconds | None = None
    options: tuple[str, ...] = ()


# Logarithms, since run times spread over orders of magnitude; a share alone would promise too much.
class TimeUsed(NamedTuple):
    """What ``jobs`` used of their walltimes, all together; ``spread`` is the deviation of its logarithm.

    An outside scheduler foresees starts as if all jobs took their whole walltimes.
    """

    share: float
    spread: float
    jobs: int


@dataclass(frozen=True, slots=True)
class ForeseenStart:
    """When such a job would have started, by the outside scheduler, had it been handed over at ``asked_at``.

    ``start`` is in the engine's time; ``None``: never, for the reason ``why``. Of such jobs ``room`` would
    have found free nodes at once. ``used`` is what jobs there use of their walltimes, where that is known.
    """

    asked_at: Seconds
    start: Seconds | None
    room: int = 0
    why: str = ""
    used: TimeUsed | None = None


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A job that was handed over: when, its request, and the run time then predicted (or ``None``)."""

    at: Seconds
    request: Request
    expected: Seconds | None


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that the outside scheduler has started: what it had foreseen, and how long that took."""

    target: str
    request: Request
    foreseen: Seconds
    waited: Seconds
