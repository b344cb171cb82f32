"""A promised start, by itself: the engine works parts of some out on demand.

`dovetail.engine.profile.lineup` has a subclass whose start moves with others.
"""

from __future__ import annotations

from dovetail.model.allocation import Allocation
from dovetail.model.frozen import frozen
from dovetail.model.job import Implementation, Job, Seconds

__all__ = ["Promise"]


@frozen(frozen=True, slots=True)
class Promise:
    """A start that was promised to a waiting job (`Reserve`)."""

    job: Job
    implementation: Implementation
    allocation: Allocation
    start: Seconds
