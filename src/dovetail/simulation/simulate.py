"""Virtual time: the same engine and policies, driven by true run times that no policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.driver.prepare import check_depends, check_policy, prepare_workload
from dovetail.files.garbage import rare_collections
from dovetail.interfaces import History, Planner, Policy, RateModel, RuntimeModel
from dovetail.model import (
    NO_CONDITIONS,
    Cluster,
    Conditions,
    Event,
    Result,
    Seconds,
    Workload,
)
from dovetail.simulation.request import HasStandIn, NotModelled, SimulationOptions, SimulationRequest
from dovetail.simulation.stand_in import stand_in

if TYPE_CHECKING:  # what the stand-in simulates waits for no driver
    from numpy.random import Generator

    from dovetail.driver.driver import JournalSink
    from dovetail.driver.gpu_hours import GpuHours
    from dovetail.driver.priority import Priorities
    from dovetail.engine.state.progress import Expectations

__all__ = ["SimulationOptions", "simulate"]


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy | Planner,
    runtimes: RuntimeModel,
    *,
    rates: RateModel | None = None,
    forecast: Expectations | None = None,
    observe: History | None = None,
    journal: JournalSink | None = None,
    options: SimulationOptions | None = None,
    follow: Policy | None = None,
    incidents: Sequence[tuple[Seconds, Event]] = (),
    priorities: Priorities | None = None,
    hours: GpuHours | None = None,
    conditions: Conditions = NO_CONDITIONS,
    chance: tuple[Generator, Generator] | None = None,
) -> Result:
    """Run a workload through a policy in virtual time.

    ``observe`` is the history that a learning model is built on: every finished job is recorded in it
    before the policy decides again. ``incidents`` are what happens beside the jobs, by ascending time:
    nodes lost, drained, back or new; jobs cancelled, held, released, requeued. A `Planner` plans whenever
    jobs have been submitted, and ``follow`` carries its plan out. With ``priorities`` the policy sees jobs by
    rank, as a service's does, and with ``hours`` users have so many GPU hours. ``conditions`` are those of
    the machine (what its own file gives is not looked at), ``chance`` the random numbers of its failures: for
    the times between them, and for repairs. Raises `UnsupportedWorkload`, `PolicyError`.
    """
    opts = options or SimulationOptions()
    began = opts.clock() if opts.clock else 0.0
    ready = prepare_workload(workload, cluster, need_truth=True)
    operation = None
    if conditions:
        from dovetail.simulation.operation import Operation, chance_of, in_classes

        ready = in_classes(ready, conditions)
        operation = Operation(conditions, ready, chance or chance_of(conditions))
    check_depends(ready)
    check_policy(policy, opts.policy_name or type(policy).__name__, ready, cluster)
    beside = observe is not None or journal is not None or bool(incidents) or priorities is not None
    beside = beside or hours is not None
    request = SimulationRequest(ready, cluster, policy, runtimes, rates, forecast, opts)
    reason = "a journal, a history that learns, incidents or ranks go through the engine" if beside else ""
    if operation is not None:
        reason = f"the cluster file has {' and '.join(conditions.fields) or 'conditions'}"
    elif opts.compiled == "auto" and not beside:
        found = _simulate_compiled(request)
        if isinstance(found, Result):
            return found
        reason = found.reason
    loads = opts.clock() if opts.clock else 0.0
    from dovetail.simulation.virtual_time import VirtualTime

    if opts.clock:
        began += opts.clock() - loads  # what is imported once is no part of a simulation
    simulation = VirtualTime(request, observe, journal, follow, list(incidents), operation)
    if priorities is not None:
        simulation.order_by_priority(priorities)
    if hours is not None:
        simulation.limit_hours(hours)
    with rare_collections():
        result = simulation.run()
    spent = opts.clock() - began if opts.clock else None
    return replace(result, interpreted=reason, simulation_seconds=spent)


def _simulate_compiled(request: SimulationRequest) -> Result | NotModelled:
    """What the compiled simulation makes of it, where one models it."""
    rates: object = request.rates
    if isinstance(rates, HasStandIn):
        return rates.stand_in(request)
    return stand_in(request)
