"""The same workload live and simulated: with the same policy object, by a virtual clock."""

from __future__ import annotations

from typing import Any

from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.driver.prepare import prepare_workload
from dovetail.engine.state.core import no_bound
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Decision, Result, Workload
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.virtual_time import run_virtual


class Decisions:
    """A journal sink that keeps decisions with their times."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, Decision]] = []

    def write_batch(self, now: float, events: Any, engine: Any, decisions: Any, *, ask: bool = True) -> None:
        self.kept.extend((now, decision) for decision in decisions)


def model(w: Workload, learned: bool) -> tuple[Any, MemoryHistory | None]:
    """Perfect knowledge, or a model that learns, with its history."""
    if not learned:
        return PerfectModel(w.truth), None
    history = MemoryHistory()
    return make_model("least-squares", history), history


def run_live(w: Workload, cluster: Cluster, policy: str, learned: bool, sink: Any) -> Result:
    """By the loop of a live run, with an executor whose jobs take their true times."""
    runtimes, history = model(w, learned)

    async def main() -> Result:
        driver = Driver(
            cluster,
            load_policy(policy).policy,
            runtimes,
            bound=no_bound,
            history=history,
            journal=sink,
            follow=FollowPlan(),
            options=DriverOptions(policy_name=policy, enforce=True),
        )
        ready = prepare_workload(w, cluster, need_truth=False)
        await LiveRun(driver, FakeExecutor(w.truth), ready.jobs).run()
        driver.engine.validate_books()
        return driver.result(ready)

    return run_virtual(main())


def run_simulated(w: Workload, cluster: Cluster, policy: str, learned: bool, sink: Any) -> Result:
    """By the loop of a simulation."""
    runtimes, history = model(w, learned)
    return simulate(
        w,
        cluster,
        load_policy(policy).policy,
        runtimes,
        observe=history,
        journal=sink,
        follow=FollowPlan(),
        # A live run knows no true times: neither may stand in for a walltime here.
        options=SimulationOptions(policy_name=policy, default_walltime=float("inf")),
    )
