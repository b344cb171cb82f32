"""The driver under everything that can happen, the books checked after every instant.

Nodes that leave, drain, return and are new; jobs cancelled, held, released, requeued, preempted, migrated
with delays, handed over to an outside scheduler that puts them where it likes; dependencies and throttles.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from erratic import Erratic
from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.driver.orders import HandOver, Move, Signal, Stop
from dovetail.driver.prepare import prepare_workload
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.phases import STEPS, Phase
from dovetail.interfaces import Policy
from dovetail.model import (
    Allocation,
    Cancelled,
    Cluster,
    Dependency,
    Device,
    DeviceClass,
    Ended,
    Event,
    Held,
    Job,
    Migrated,
    Node,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Part,
    Placed,
    Released,
    Request,
    Requeued,
    Result,
    Started,
    State,
    Throttle,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, full, workload
from dovetail.testing.invariants import check_schedule
from dovetail.testing.virtual_time import run_virtual

CASES = full(10_000, 90)
FINAL = [State.COMPLETED, State.COMPLETED, State.COMPLETED, State.FAILED]


def cluster_of(rng: random.Random) -> Cluster:
    return Cluster(tuple(node_of(rng, i) for i in range(rng.randint(1, 4))))


def node_of(rng: random.Random, index: int) -> Node:
    devices = tuple(Device("gpu", "", d) for d in range(rng.choice([0, 0, 1, 2])))
    return Node(f"n{index}", tuple(range(rng.choice([1, 2, 4]))), devices)


def jobs_of(rng: random.Random, count: int) -> Workload:
    rows: list[Any] = []
    for i in range(count):
        times = {"cpu": float(rng.randint(0, 20))}
        if rng.random() < 0.5:
            times["gpu"] = float(rng.randint(0, 20))
        rows.append((f"j{i}", times, float(rng.choice([0, 0, 3, 9]))))
    made = workload(rows)
    jobs: list[Job] = []
    for job in made.jobs:
        request = Request(rng.choice([1, 1, 1, 2]), rng.choice([1, 1, -1]))
        choices = tuple(
            replace(c, request=request) if c.implementation.kind == "cpu" else c for c in job.choices
        )
        others = [other.id for other in made.jobs if other.index < job.index]
        depends = ()
        if others and rng.random() < 0.15:
            depends = (Dependency(rng.choice(["afterok", "afterany"]), rng.choice(others)),)
        throttles = (Throttle("a", 1),) if rng.random() < 0.15 else ()
        retries = rng.choice([0, 0, 0, 2])
        jobs.append(replace(job, choices=choices, depends=depends, throttles=throttles, retries=retries))
    table = {
        (job.id, c.implementation.name, c.request.nodes): made.truth.seconds(
            job, c.implementation, c.request.on(1)
        )
        for job in jobs
        for c in job.choices
    }
    return replace(made, jobs=jobs, truth=type(made.truth)(table))  # type: ignore[arg-type]


class World:
    """Carries orders out after whatever delay, in whatever way, and lets other things happen."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.cluster = cluster_of(rng)
        self.workload = jobs_of(rng, rng.randint(1, 12))
        self.driver = Driver(
            self.cluster,
            Erratic(seed, outside=True),
            TrueTimesModel(self.workload.truth),
            bound=no_bound,
            options=DriverOptions(hold_moves=True, requeues=8),
        )
        self.now = 0.0
        self.due: list[tuple[float, int, Event]] = []
        self.count = 0
        self.ended: Counter[str] = Counter()

    def later(self, event: Event, most: int = 12) -> None:
        self.count += 1
        self.due.append((self.now + self.rng.randint(0, most), self.count, event))
        self.due.sort(key=lambda entry: entry[:2])

    def run(self) -> None:
        for job in self.workload.jobs:
            self.due.append((job.submit_time, -1, job))  # type: ignore[arg-type]
        self.due.sort(key=lambda entry: entry[:2])
        for step in range(400):
            now = min(self.driver.next_time(), self.due[0][0] if self.due else float("inf"))
            if now == float("inf") and self.driver.idle:
                break
            self.now = self.now if now == float("inf") else max(self.now, now)
            if step < 60 and self.rng.random() < 0.3:
                self.driver.queue_events(*self.incident())
            while self.due and self.due[0][0] <= self.now:
                what = self.due.pop(0)[2]
                if isinstance(what, Job):
                    self.driver.submit(what)
                else:
                    self.driver.queue_events(what)
            for order in self.driver.process_instant(self.now):
                self.carry_out(order)
            self.driver.write_last_instant()
            self.driver.engine.validate_books()
            for record in self.driver.ended():
                self.ended[record.job.id] += 1

    def carry_out(self, order: object) -> None:
        rng = self.rng
        if isinstance(order, Placed):
            self.later(Ended(order.job.id, rng.choice(FINAL), 0, attempt=order.attempt))
        elif isinstance(order, Stop):
            if rng.random() < 0.9:
                self.later(Ended(order.job, order.state, None, attempt=order.attempt), 3)
        elif isinstance(order, Move):
            self.later(Migrated(order.placed.job.id, rng.choice(["", "", "the target is gone"])), 5)
        elif isinstance(order, HandOver):
            device = rng.choice([None, DeviceClass("gpu", "elsewhere")])
            if rng.random() < 0.8:
                self.later(Started(order.job.id, self.foreign(order), device), 6)
            self.due.append((self.now + 9 + rng.randint(0, 5), 0, Ended(order.job.id, rng.choice(FINAL))))
            self.due.sort(key=lambda entry: entry[:2])
        else:
            assert isinstance(order, Signal)

    def foreign(self, order: HandOver) -> Allocation | None:
        """Where an outside scheduler puts a job: anywhere, also where others are."""
        request, nodes = order.decision.request, len(self.driver.engine.cluster)
        if self.rng.random() < 0.3 or request.nodes > nodes:
            return None
        mask = sum(1 << n for n in self.rng.sample(range(nodes), request.nodes))
        devices = tuple(range(int(request.gpus)))
        return Allocation(request, (Part(mask, max(0, request.cpus), devices),))

    def incident(self) -> list[Event]:
        rng, engine = self.rng, self.driver.engine
        job = f"j{rng.randint(0, 12)}"
        node = rng.randrange(len(engine.cluster))
        kinds = ["lost", "drained", "joined", "new", "cancel", "hold", "release", "requeue", "stale"]
        kind = rng.choice(kinds)
        if kind == "new":
            return [NodeJoined(len(engine.cluster), node_of(rng, len(engine.cluster)))]
        events: dict[str, Event] = {
            "lost": NodeLost(node),
            "drained": NodeDrained(node),
            "joined": NodeJoined(node),
            "cancel": Cancelled(job),
            "hold": Held(job),
            "release": Released(job),
            "requeue": Requeued(job),
            "stale": Ended(job, attempt=9),
        }
        return [events[kind]]


@pytest.mark.parametrize("block", range(5))
@pytest.mark.timeout(full(1200, 120))
def test_the_books_hold_whatever_happens(block: int) -> None:
    steps: Counter[str] = Counter()
    for seed in range(block, CASES, 5):
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            error.add_note(f"seed {seed}, at {world.now}")
            raise
        for record in world.driver.engine.records.values():
            steps[record.state] += 1
            steps["again"] += record.attempts > 1
            steps["moved"] += record.migrations > 0 or any(s.state is None for s in record.earlier)
            steps["outside"] += record.allocation is not None and not record.allocation.parts
    for what in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "again", "moved", "outside"):
        assert steps[what] > 0, f"no case had {what}"


# ----------------------------------------------------------------- simulated as live, and replayed


def incidents_of(rng: random.Random, cluster: Cluster) -> list[tuple[float, Event]]:
    found: list[tuple[float, Event]] = []
    nodes = len(cluster)
    for when in sorted(rng.randint(0, 40) for _ in range(rng.randint(0, 8))):
        job, node = f"j{rng.randint(0, 9)}", rng.randrange(nodes)
        event: Event = rng.choice(
            [NodeLost(node), NodeDrained(node), NodeJoined(node), Cancelled(job), Held(job), Requeued(job)]
        )
        if rng.random() < 0.15:
            event = NodeJoined(nodes, node_of(rng, nodes))
            nodes += 1
        found.append((when + 0.5, event))
    # In the end all are back and nobody is held, so that everything ends.
    found += [(60.0, NodeJoined(n)) for n in range(nodes)]
    found += [(60.0, Released(f"j{i}")) for i in range(10)]
    return found


class Stalls:
    """A rate model in which a migration stalls the job and nothing else changes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def changed(self, started: Any, ended: Any, migrated: Any) -> tuple[dict[str, float], dict[str, float]]:
        return {}, {placed.job.id: self.seconds for placed in migrated}


class Kept:
    def __init__(self) -> None:
        self.decisions: list[Any] = []

    def write_batch(self, now: float, events: Any, engine: Any, decisions: Any, *, ask: bool = True) -> None:
        self.decisions.extend((now, decision) for decision in decisions)


def live(w: Workload, cluster: Cluster, policy: Any, incidents: Any, stall: float, kept: Kept) -> Result:
    ready = prepare_workload(w, cluster, need_truth=False)

    async def main() -> Result:
        driver = Driver(
            cluster,
            policy,
            PerfectModel(w.truth),
            bound=no_bound,
            journal=kept,
            rejected=ready.rejected,
            options=DriverOptions(enforce=True),
        )
        run = LiveRun(driver, FakeExecutor(w.truth, incidents, stall), ready.jobs, stays=True)
        task = asyncio.create_task(run.run())
        await asyncio.sleep(2000)  # to the end of a simulation's time: long after the last incident
        run.stop()
        await task
        return driver.result(ready)

    return run_virtual(main())


@pytest.mark.parametrize("name", ["erratic", "fcfs", "easy", "conservative", "history"])
def test_live_is_as_simulated_and_replayed_whatever_happens(name: str) -> None:
    for seed in range(full(600, 15)):
        rng = random.Random(seed)
        cluster = cluster_of(rng)
        w = jobs_of(rng, 10)
        if name in ("history",):
            w = replace(w, jobs=[j for j in w.jobs if all(c.request.nodes == 1 for c in j.choices)])
            ids = {job.id for job in w.jobs}
            w = replace(w, jobs=[j for j in w.jobs if all(d.job in ids for d in j.depends)])
            ids = {job.id for job in w.jobs}
            w = replace(
                w, jobs=[replace(j, depends=tuple(d for d in j.depends if d.job in ids)) for j in w.jobs]
            )
        policy: Any = Erratic(seed) if name == "erratic" else load_policy(name).policy
        incidents, stall = incidents_of(rng, cluster), float(rng.randint(0, 3))
        simulated, lived = Kept(), Kept()
        options = SimulationOptions(default_walltime=float("inf"), validate=True)
        common: dict[str, Any] = {"options": options, "rates": Stalls(stall), "incidents": incidents}
        result = simulate(w, cluster, policy, PerfectModel(w.truth), journal=simulated, **common)
        check_schedule(result, w, work=False)
        other = live(w, cluster, policy, incidents, stall, lived)
        note = f"seed {seed}"
        assert lived.decisions == simulated.decisions, note
        rows = [(r.job.id, r.state, r.start, r.end, r.attempts, r.migrations) for r in result.records]
        assert rows == [
            (r.job.id, r.state, r.start, r.end, r.attempts, r.migrations) for r in other.records
        ], note
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "journal.jsonl"
            writer = JournalWriter(path, cluster, policy=name)
            simulate(w, cluster, policy, PerfectModel(w.truth), journal=writer, **common)
            writer.close()
            assert isinstance(policy, Policy)
            assert replay(read_journal(path), policy) == len(simulated.decisions), note


def test_the_table_of_transitions_knows_every_phase() -> None:
    assert {phase for phase, _ in STEPS} == set(Phase)
    assert set(STEPS.values()) == set(Phase) - {Phase.UNKNOWN}
