"""The twin for gangs that communicate with GPUs, their own nodes' or borrowed ones (Markthub 2015)."""

from __future__ import annotations

from dovetail.engine.asked import Asked
from dovetail.model import Result
from dovetail.policies.mrq_aware import MrqAware
from dovetail.rates.remote_gpu import RemoteGpu
from dovetail.runtimes.perfect import PerfectModel

__all__ = ["borrowing_twin"]

LEAST = 200
"""Jobs from which on it is worth loading, the first time compiling."""


def borrowing_twin(asked: Asked) -> Result | None:
    """The result, or ``None`` where jobs, nodes, policy, rates or options are others (`arrays_of`)."""
    workload, rates = asked.workload, asked.rates
    perfect = type(asked.runtimes) is PerfectModel and asked.runtimes.truth is workload.truth
    if not perfect or type(rates) is not RemoteGpu or len(workload.jobs) < LEAST:
        return None
    if not _forecast_is_its_own(asked, rates):
        return None
    from dovetail.engine.borrowing import arrays_of, simulate_arrays  # loads a compiler

    arrays = arrays_of(workload, asked.cluster, asked.policy, rates, asked.options)
    return None if arrays is None else simulate_arrays(arrays, asked.options)


def _forecast_is_its_own(asked: Asked, rates: RemoteGpu) -> bool:
    """Whether the policy foresees what the kernel does: by the very rates of the simulation, or nothing."""
    if asked.forecast is None or type(asked.policy) is not MrqAware:
        return asked.forecast is None and type(asked.policy) is not MrqAware
    foreseen = asked.forecast.rates
    return type(foreseen) is RemoteGpu and foreseen.told() == rates.told()
