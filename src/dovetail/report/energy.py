"""Processor-seconds busy and idle, and the energy they take at given watts.

A processor is a CPU of the cluster's pools. Of a machine that is on from the first submission to the
last end, every CPU is busy while a job holds it, else idle; devices likewise, by the share held.
"""

from __future__ import annotations

import math

from dovetail.errors import InputError
from dovetail.model import Result, Seconds
from dovetail.records import dataclass
from dovetail.report.columns import columns_of


@dataclass(frozen=True, slots=True)
class Watts:
    """Watts of one processor, and of one device, while idle and while busy.

    Raises ``InputError`` for a negative or non-finite number, and where busy is below idle.
    """

    idle: float
    busy: float
    device_idle: float = 0.0
    device_busy: float = 0.0

    def __post_init__(self) -> None:
        for what, idle, busy in (
            ("", self.idle, self.busy),
            ("of a device ", self.device_idle, self.device_busy),
        ):
            for name, value in (("idle", idle), ("busy", busy)):
                if not (math.isfinite(value) and value >= 0.0):
                    raise InputError(f"{name} watts {what}are {value}, expected a number of at least 0")
            if busy < idle:
                raise InputError(f"busy watts {what}are {busy}, expected at least the {idle} of idle ones")


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Seconds times processors (``busy``, ``idle``) and times devices, from first submission to last end."""

    busy: Seconds
    idle: Seconds
    device_busy: Seconds
    device_idle: Seconds

    def energy_joules(self, watts: Watts) -> float:
        """Joules."""
        processors = self.busy * watts.busy + self.idle * watts.idle
        return processors + self.device_busy * watts.device_busy + self.device_idle * watts.device_idle


def use_of(result: Result) -> ResourceUse:
    """What a result's jobs held, and what was left. O(jobs)."""
    columns = columns_of(result)
    held = columns.stretches
    busy = float(held.seconds @ held.cpus)
    device_busy = float(held.seconds @ held.devices)
    cluster = result.cluster
    # Rounding in the sums must not make a machine that never rests owe some idle time.
    return ResourceUse(
        busy,
        max(0.0, cluster.total_cpus * columns.makespan - busy),
        device_busy,
        max(0.0, cluster.total_devices * columns.makespan - device_busy),
    )


def energy_metrics(result: Result, watts: Watts | None = None) -> dict[str, float | None]:
    """The use of a result by name, as metrics are; ``energy`` in joules, ``None`` without watts."""
    use = use_of(result)
    devices = result.cluster.total_devices > 0
    return {
        "busy_processor_seconds": use.busy,
        "idle_processor_seconds": use.idle,
        "busy_device_seconds": use.device_busy if devices else None,
        "idle_device_seconds": use.device_idle if devices else None,
        "energy": None if watts is None else use.energy_joules(watts),
    }
