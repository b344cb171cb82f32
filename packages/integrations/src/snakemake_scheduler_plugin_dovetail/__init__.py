"""A Snakemake scheduler: which of the jobs that are ready start now, and on which device, by learned times.

    snakemake --scheduler dovetail --cores 8 --resources gpu=1

A rule with ``resources: dovetail_on="cpu,gpu"`` runs on either: its job has ``resources.gpu`` then, 0 or 1. A
device that is free takes the job that gains most by it (HeteroPrio, Agullo et al. 2016, Euro-Par), unless the
other one would be done with all that waits before. Among equals the one with the highest upward rank comes
first: the learned time to the end of the workflow by the longest chain behind it (HEFT, Topcuoglu et al.
2002).

Times are those of Dovetail's history: of jobs that its executor ran, and of imported benchmark files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.settings import SchedulerSettingsBase

from dovetail.errors import DovetailError
from snakemake_executor_plugin_dovetail import GPUS, ON
from snakemake_scheduler_plugin_dovetail.times import LearnedTimes, rank_jobs

__all__ = ["Scheduler", "SchedulerSettings"]

CORES, GPU = "_cores", "gpu"
MOST_UNITS = 4096
"""More cores than that are no limit: the queue below has the real one."""


@dataclass
class SchedulerSettings(SchedulerSettingsBase):  # type: ignore[misc]
    """Settings of the scheduler: ``--scheduler-dovetail-history``."""

    history: str | None = field(
        default=None, metadata={"help": "history file of run times; default: this account's", "type": str}
    )


class _Way(NamedTuple):
    """One way to run a job: what it takes, and its expected seconds."""

    takes: Mapping[str, float]
    seconds: float


class Scheduler(SchedulerBase):  # type: ignore[misc]
    """Selection by gain and upward rank. O(ready * selected), with both kinds O(ready^2) each time."""

    clock = staticmethod(time.monotonic)

    def __post_init__(self) -> None:
        """Open the history. Raises `WorkflowError`."""
        self._ranks: Mapping[Any, float] = {}
        self._running: dict[Any, tuple[_Way, float]] = {}
        try:
            self._times = LearnedTimes(getattr(self.settings, "history", None))
        except DovetailError as error:
            raise WorkflowError(str(error)) from error

    def dag_updated(self) -> None:
        """Jobs have come or gone."""
        self._ranks = {}

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any] | None:
        """The jobs that start now; ``None``, which has Snakemake choose by itself, where none ever would."""
        now = self.clock()
        again = set(selectable_jobs)
        self._running = {
            job: run for job, run in self._running.items() if job not in again and not self.dag.finished(job)
        }
        free = {
            name: float(amount) for name, amount in available_resources.items() if isinstance(amount, int)
        }
        lanes = self._find_lanes(free, now)
        if not all(job in self._ranks for job in remaining_jobs):
            self._ranks = rank_jobs(remaining_jobs, self.dag.job_dependencies, self._mean_seconds)
        chosen: list[Any] = []
        # Snakemake's own priorities come first.
        for priority in sorted({job.priority for job in selectable_jobs}, reverse=True):
            waiting = {
                job: self._find_ways(job, lanes) for job in selectable_jobs if job.priority == priority
            }
            while (found := self._choose_next(waiting, free, lanes, now)) is not None:
                job, kind = found
                ways = waiting.pop(job)
                for name, amount in ways[kind].takes.items():
                    free[name] = free.get(name, inf) - amount
                for name, moments in lanes.items():
                    moments.sort()
                    moments[: round(ways[kind].takes.get(name, 0))] = []
                    moments += [now + ways[kind].seconds] * round(ways[kind].takes.get(name, 0))
                if GPU in lanes and ON in job.scheduler_resources and GPU not in job.scheduler_resources:
                    job.add_aux_resource(GPU, int(ways[kind].takes.get(GPU, 0)))
                self._running[job] = ways[kind], now + ways[kind].seconds
                chosen.append(job)
        return chosen if chosen or self._running else None

    def _choose_next(
        self,
        waiting: Mapping[Any, Mapping[str, _Way]],
        free: Mapping[str, float],
        lanes: Mapping[str, Sequence[float]],
        now: float,
    ) -> tuple[Any, str] | None:
        """Of all that fits now the job that gains most by the device that is free, as far as it gains."""
        best: tuple[tuple[float, float], Any, str] | None = None
        for job, ways in waiting.items():
            for kind, way in ways.items():
                if not all(free.get(name, amount) >= amount for name, amount in way.takes.items()):
                    continue
                others = [one.seconds for other, one in ways.items() if other != kind]
                # What has no choice comes before what could run elsewhere.
                gain = others[0] / max(way.seconds, 1e-9) if others else inf
                key = gain, self._ranks.get(job, 0.0)
                if (best is None or key > best[0]) and not (
                    others and self._ends_sooner_later(job, kind, waiting, lanes, now)
                ):
                    best = key, job, kind
        return None if best is None else best[1:]

    def _ends_sooner_later(
        self,
        job: Any,
        kind: str,
        waiting: Mapping[Any, Mapping[str, _Way]],
        lanes: Mapping[str, Sequence[float]],
        now: float,
    ) -> bool:
        """Whether the other kind would be done with all that waits before this one with this job."""
        other = next(one for one in waiting[job] if one != kind)
        moments = lanes.get(GPU if other == GPU else CORES, ())
        if not moments:
            return False
        busy = sum(moment - now for moment in moments)
        busy += sum(ways[other].seconds for ways in waiting.values() if other in ways)
        alone = min(moments) - now + waiting[job][other].seconds
        return waiting[job][kind].seconds > max(alone, busy / len(moments))

    def _find_lanes(self, free: Mapping[str, float], now: float) -> dict[str, list[float]]:
        """When each core and GPU is free, by what runs and its times; what ran longer ends now."""
        return {
            name: [now] * round(free[name])
            + [
                max(now, end)
                for way, end in self._running.values()
                for _ in range(round(way.takes.get(name, 0)))
            ]
            for name in (CORES, GPU)
            if free.get(name, MOST_UNITS) < MOST_UNITS
        }

    def _find_ways(self, job: Any, lanes: Mapping[str, Sequence[float]]) -> dict[str, _Way]:
        """How a job can run: as its resources say, or, with `ON`, on each kind of which there is a device."""
        takes = {
            name: float(amount)
            for name, amount in job.scheduler_resources.items()
            if isinstance(amount, int | float) and amount > 0
        }
        return {
            kind: _Way({GPU: 1.0, **takes} if kind == GPU else takes, self._times.expected_seconds(job, kind))
            for kind in _kinds_of(job)
            if kind != GPU or lanes.get(GPU) or any(name in takes for name in GPUS)
        } or {"cpu": _Way(takes, self._times.expected_seconds(job, "cpu"))}

    def _mean_seconds(self, job: Any) -> float:
        times = [self._times.expected_seconds(job, kind) for kind in _kinds_of(job)]
        return sum(times) / len(times)


def _kinds_of(job: Any) -> Sequence[str]:
    """The kinds of devices that a job may still run on."""
    resources = job.scheduler_resources
    if any(resources.get(name, 0) for name in GPUS):
        return (GPU,)
    offered = {kind.strip() for kind in str(resources.get(ON, "")).split(",")}
    # The GPU first, where nothing is known of either. What was chosen before, as for a retry, stays.
    kinds = [kind for kind in (GPU, "cpu") if kind in offered and GPU not in resources]
    return kinds or ("cpu",)
