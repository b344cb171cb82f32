"""Conformance suites for plugins: subclass one in your tests, name your class, run pytest.

    class TestMyPolicy(PolicyConformance):
        policy = "path/to/mine.py:MyPolicy"

Each test states a rule that the engine, the reports or other users rely on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from dovetail.errors import UnsupportedWorkload
from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import Executor, RuntimeModel
from dovetail.model import (
    Allocation,
    Cluster,
    DeviceClass,
    Ended,
    Implementation,
    Job,
    Part,
    Placed,
    Request,
    Result,
    Run,
    State,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, full, rigid, workload
from dovetail.testing.invariants import check_schedule

__all__ = ["ExecutorConformance", "PolicyConformance", "RuntimeModelConformance"]


def _random_jobs(rng: np.random.Generator, count: int) -> Workload:
    rows: list[Any] = []
    for i in range(count):
        times = {"cpu": float(rng.integers(0, 50))}
        if rng.random() < 0.7:
            times["gpu"] = float(rng.integers(0, 50))
        # Few moments for many jobs, so that several come, end and start at the same instant.
        rows.append((f"j{i}", times, float(rng.choice([0, 0, 5, 20, 20, 60]))))
    return workload(rows)


def _random_gangs(rng: np.random.Generator, count: int, nodes: int) -> Workload:
    rows: list[Any] = []
    for _ in range(count):
        seconds = float(rng.integers(0, 40))
        limit = seconds * float(rng.integers(1, 4)) + float(rng.integers(0, 2))
        rows.append((float(rng.integers(0, 60)), int(rng.integers(1, nodes + 1)), seconds, limit))
    return rigid(rows)


class PolicyConformance:
    """What every policy and planner keeps. ``policy`` is as the command line takes it."""

    policy: ClassVar[str]
    clusters: ClassVar[Sequence[str]] = ("1x1cpu+1gpu", "2x2cpu+2gpu", "3x1cpu")
    repetitions: ClassVar[int] = full(60, 7)

    def _simulate_jobs(self, jobs: Workload, cluster: Cluster) -> Result:
        loaded = load_policy(self.policy)
        options = SimulationOptions(
            policy_name=loaded.name,
            placement=getattr(loaded.policy, "placement", "pack"),
            validate=True,
        )
        result = simulate(
            jobs, cluster, loaded.policy, TrueTimesModel(jobs.truth), options=options, follow=FollowPlan()
        )
        check_schedule(result, jobs)
        return result

    def test_it_places_some_workload(self) -> None:
        """A policy that refuses whatever it is given is none."""
        rng = np.random.Generator(np.random.PCG64(0))
        one_node, gangs = _random_jobs(rng, 12), _random_gangs(rng, 15, 4)
        refusals: list[str] = []
        for jobs, shape in [*((one_node, shape) for shape in self.clusters), (gangs, "4x1cpu")]:
            try:
                self._simulate_jobs(jobs, Cluster.parse(shape))
            except UnsupportedWorkload as error:
                refusals.append(str(error))
        # The gangs may be refused as well as all shapes but one.
        assert len(refusals) <= len(self.clusters), f"it refuses everything: {refusals[0]}"

    def test_schedules_of_one_node_jobs_keep_the_invariants(self) -> None:
        """Capacity, order of events, work done; every job ends."""
        for seed in range(self.repetitions):
            jobs = _random_jobs(np.random.Generator(np.random.PCG64(seed)), 12)
            for shape in self.clusters:
                try:
                    self._simulate_jobs(jobs, Cluster.parse(shape))
                except UnsupportedWorkload:
                    continue

    def test_gangs_are_placed_or_refused_in_one_sentence(self) -> None:
        """A policy that cannot place jobs on several nodes refuses them before anything runs."""
        for seed in range(self.repetitions):
            jobs = _random_gangs(np.random.Generator(np.random.PCG64(seed)), 15, 4)
            refusal = None
            try:
                self._simulate_jobs(jobs, Cluster.parse("4x1cpu"))
            except UnsupportedWorkload as error:
                refusal = str(error)
            if refusal is not None:
                # By the policy's own name, without its options or package: a user must see which policy it
                # was.
                assert self.policy.partition("?")[0].rpartition(":")[2] in refusal
                assert "\n" not in refusal

    def test_the_same_input_gives_the_same_schedule(self) -> None:
        """Nothing but the view decides."""
        jobs = _random_jobs(np.random.Generator(np.random.PCG64(7)), 15)
        cluster = Cluster.parse(self.clusters[0])
        try:
            first, second = self._simulate_jobs(jobs, cluster), self._simulate_jobs(jobs, cluster)
        except UnsupportedWorkload:
            return
        assert [(r.start, r.allocation) for r in first.records] == [
            (r.start, r.allocation) for r in second.records
        ]

    def test_it_keeps_no_state(self) -> None:
        """A policy is a frozen dataclass of its parameters."""
        policy: Any = load_policy(self.policy).policy
        assert dataclasses.is_dataclass(policy)
        for field in dataclasses.fields(policy):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(policy, field.name, None)
        assert (type(policy).__doc__ or "").strip(), "the first line of its docstring is shown to users"


class RuntimeModelConformance:
    """What every runtime model over a history keeps."""

    device: ClassVar[DeviceClass] = DeviceClass("cpu")

    def make(self, history: MemoryHistory) -> RuntimeModel:
        """The model under test."""
        raise TypeError("name the model in a subclass")

    def _make_job(self, n: float) -> tuple[Job, Implementation, Request]:
        jobs = workload([("app", {"cpu": 1.0})])
        job = dataclasses.replace(jobs.jobs[0], inputs={"n": n}, walltime=100.0)
        choice = job.choices[0]
        return job, choice.implementation, choice.request

    def _make_run(self, n: float, seconds: float, state: State = State.COMPLETED) -> Run:
        return Run("app", "cpu", self.device, 1, 1, 0, {"n": n}, seconds, state)

    def test_an_unknown_app_has_no_runs(self) -> None:
        """The "no history" of exploration."""
        assert self.make(MemoryHistory()).runs("app", "cpu", self.device) == 0

    def test_only_completed_runs_count(self) -> None:
        """A failed run is no measure of how long the app takes."""
        history = MemoryHistory()
        history.record(self._make_run(10, 1.0, State.FAILED))
        assert self.make(history).runs("app", "cpu", self.device) == 0
        history.record(self._make_run(10, 1.0))
        assert self.make(history).runs("app", "cpu", self.device) == 1

    def test_predictions_are_positive_finite_and_within_their_interval(self) -> None:
        """Also where a straight line would go below 0."""
        history = MemoryHistory()
        model = self.make(history)
        for n, seconds in [(10, 5.0), (20, 1.0), (30, 0.5), (30, 0.6), (1000, 9.0)]:
            before = model.version
            history.record(self._make_run(n, seconds))
            assert model.version != before
            for size in (1, 10, 25, 35, 1e6):
                found = model.predict(*self._make_job(size), self.device)
                if found is not None:
                    assert math.isfinite(found.expected)
                    assert found.expected > 0
                    assert 0 <= found.lower <= found.expected <= found.upper
                    assert found.samples >= 0
                    assert found.basis

    def test_what_has_run_is_predicted(self) -> None:
        """A model that knows nothing of a job that has just run, with a walltime, predicts nothing at all."""
        history = MemoryHistory()
        model = self.make(history)
        for n in (10, 20, 30):
            for _ in range(2):
                history.record(self._make_run(n, n / 10))
        for n in (10, 20, 30):
            assert model.predict(*self._make_job(n), self.device) is not None, "nothing is ever predicted"

    def test_the_same_history_gives_the_same_prediction(self) -> None:
        """A replay predicts again: an answer depends on the history alone, not on earlier questions."""
        # Enough runs for a model to fit a line, with two of each size for its spread.
        runs = [self._make_run(n, n / 10 + k / 100) for n in (10, 20, 40, 80) for k in range(2)]
        history = MemoryHistory()
        grown = self.make(history)
        for run in runs:
            history.record(run)
            grown.predict(*self._make_job(50), self.device)
        fresh = self.make(MemoryHistory(runs))
        for n in (10, 50, 80):
            assert grown.predict(*self._make_job(n), self.device) == fresh.predict(
                *self._make_job(n), self.device
            )

    def test_another_device_class_shares_no_history_blindly(self) -> None:
        """What is known of another class does not count as runs of this one."""
        history = MemoryHistory()
        history.record(self._make_run(10, 1.0))
        assert self.make(history).runs("app", "cpu", DeviceClass("cpu", "other")) == 0


class ExecutorConformance:
    """What every executor keeps. Give a placed job that ends soon, one that takes long, one that fails."""

    timeout: ClassVar[float] = 30.0

    def make(self) -> Executor:
        """A fresh executor; called inside the running loop."""
        raise TypeError("name the executor in a subclass")

    def placed(self, kind: str) -> Placed:
        """A job of that kind: ``quick``, ``long`` or ``failing``."""
        raise TypeError("name the jobs in a subclass")

    def run(self, main: Any) -> Any:
        """How a coroutine is run; virtual time for a fake."""
        return asyncio.run(main)

    async def _next_end(self, executor: Executor) -> Ended:
        async for event in executor.events():
            if isinstance(event, Ended):
                return event
        raise AssertionError("the events ended before the job did")

    def test_a_job_runs_to_its_end(self) -> None:
        """One `Ended` with COMPLETED."""

        async def main() -> Ended:
            executor = self.make()
            await executor.launch(self.placed("quick"))
            end = await asyncio.wait_for(self._next_end(executor), self.timeout)
            await executor.close()
            return end

        end = self.run(main())
        assert end.state is State.COMPLETED
        assert end.exit_code == 0

    def test_a_failing_job_is_an_event_not_an_exception(self) -> None:
        """`launch` never raises for the job's own failure."""

        async def main() -> Ended:
            executor = self.make()
            await executor.launch(self.placed("failing"))
            end = await asyncio.wait_for(self._next_end(executor), self.timeout)
            await executor.close()
            return end

        end = self.run(main())
        assert end.state is State.FAILED

    @pytest.mark.parametrize("reason", [State.TIMEOUT, State.CANCELLED])
    def test_a_stopped_job_ends_with_the_reason(self, reason: State) -> None:
        """The state is the one given with the stop."""

        async def main() -> Ended:
            executor = self.make()
            placed = self.placed("long")
            await executor.launch(placed)
            await asyncio.sleep(0.05)
            await executor.stop(placed.job.id, reason.value)
            end = await asyncio.wait_for(self._next_end(executor), self.timeout)
            await executor.close()
            return end

        assert self.run(main()).state is reason

    def test_an_end_names_its_attempt(self) -> None:
        """A job may start again before the news of its last end has come in."""

        async def main() -> list[Ended]:
            executor = self.make()
            found: list[Ended] = []
            for attempt in (1, 2):
                await executor.launch(dataclasses.replace(self.placed("quick"), attempt=attempt))
                found.append(await asyncio.wait_for(self._next_end(executor), self.timeout))
            await executor.close()
            return found

        assert [end.attempt for end in self.run(main())] == [1, 2]

    def test_closing_ends_what_runs_and_may_be_done_twice(self) -> None:
        """Nothing is left running, and nothing waits for it."""

        async def main() -> None:
            executor = self.make()
            await executor.launch(self.placed("long"))
            await asyncio.wait_for(executor.close(), self.timeout)
            await executor.close()

        self.run(main())

    def test_stopping_an_unknown_job_is_no_error(self) -> None:
        """It may have ended while the request was on its way."""

        async def main() -> None:
            executor = self.make()
            await executor.stop("none", State.CANCELLED.value)
            await executor.close()

        self.run(main())


def place(job: Job, start: float = 0.0) -> Placed:
    """A job placed on node 0 with its first choice: one CPU pool of one core."""
    choice = job.choices[0]
    allocation = Allocation(choice.request, (Part(1, 1),))
    return Placed(job, choice.implementation, allocation, start, None, math.inf)
