"""``power``: time = a·n^b + c, fitted in log space; several inputs have one power each.

The powers are those of the app's other devices where this one has run too few sizes to show its own: an
algorithm's growth is the same on each, only its constants differ.
"""

from __future__ import annotations

from dovetail.runtimes.learned import LearnedModel

__all__ = ["PowerModel"]


class PowerModel(LearnedModel):
    """Keeps to the power law of run times, with overhead where leave-one-out says that there is one."""

    only_power = True
    by_cpu_time = False
