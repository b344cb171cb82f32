"""The rate model of a workload whose jobs give their communication."""

from __future__ import annotations

from dovetail.interfaces import ForecastsSharing, RateModel
from dovetail.model import Cluster, Workload
from dovetail.model.remote_times import any_communicates
from dovetail.plugins import load_rates

BORROWING = "remote_gpu"
"""The rate model that jobs with communication take by default (an entry point of dovetail-remote)."""


def with_communication(
    workload: Workload, cluster: Cluster, policy: object, rates: RateModel | None
) -> tuple[Workload, Cluster, RateModel | None]:
    """Workload, cluster and rate model as a simulation takes them; unchanged where no job communicates.

    Raises `InputError` where the default rate model is not installed.
    """
    if not any_communicates(workload.jobs):
        return workload, cluster, rates
    model: RateModel = load_rates(BORROWING) if rates is None else rates
    if isinstance(model, ForecastsSharing):
        workload, cluster = model.prepare(workload, cluster, policy)
    return workload, cluster, model
