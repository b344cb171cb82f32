"""The interference of Gregg 2011, section 4.3: a GPU application slows down while the CPU computes.

An application that runs its kernel on the GPU still has serial phases and a host thread on the CPU, which
it must share with whatever computes there. The paper points the effect out and gives no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.model import CPU, EMPTY, JobId, Placed, Seconds


@dataclass
class GpuSlowdown:
    """On each node, jobs on a device run ``factor`` times slower while a job runs on the CPUs alone.

    Jobs on several nodes are slowed by work on any of them. Keeps what runs: one model a simulation.
    """

    factor: float = 1.2
    _cpu_jobs: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _on_devices: dict[JobId, Placed] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.factor < float("inf"):
            raise ValueError(f"factor is {self.factor}, expected a number of 1 or more")

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """New rates of the jobs on devices of the nodes where something changed. No stalls."""
        touched: set[int] = set()
        rated: dict[JobId, Placed] = {}
        for placed, step in [*((p, -1) for p in ended), *((p, 1) for p in started)]:
            if placed.implementation.kind == CPU:
                for node in placed.allocation.nodes:
                    self._cpu_jobs[node] = self._cpu_jobs.get(node, 0) + step
                    touched.add(node)
            elif step > 0:
                self._on_devices[placed.job.id] = rated[placed.job.id] = placed
            else:
                self._on_devices.pop(placed.job.id, None)
        # No `touched` for these: jobs on the CPUs do not migrate, and a job on a device slows no other.
        for placed in migrated:
            self._on_devices[placed.job.id] = rated[placed.job.id] = placed
        if touched:
            near = (p for p in self._on_devices.values() if touched.intersection(p.allocation.nodes))
            rated.update((placed.job.id, placed) for placed in near)
        return {job: self._rate_of_job(placed) for job, placed in rated.items()}, EMPTY

    def _rate_of_job(self, placed: Placed) -> float:
        slowed = any(self._cpu_jobs.get(node, 0) > 0 for node in placed.allocation.nodes)
        return 1.0 / self.factor if slowed else 1.0
