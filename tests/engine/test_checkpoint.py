"""A journal may begin anew at any moment: each segment alone replays to the same decisions."""

from __future__ import annotations

import heapq
import random
from pathlib import Path
from typing import Any

import pytest

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.orders import Stop
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.model import Cluster, Ended, Job, NodeDrained, NodeJoined, Placed, State
from dovetail.plugins import load_policy
from dovetail.runtimes.perfect import PerfectModel
from dovetail.testing.builders import full, workload

POLICIES = ["fcfs", "easy", "conservative", "history", "brr", "min-min", "sjf", "fms", "heteroprio"]


class Service:
    """A driver with a random day: jobs come, end, fail, are held, cancelled, requeued; a node drains."""

    def __init__(self, seed: int, name: str, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.name, self.folder = name, folder
        rows: list[Any] = []
        for i in range(40):
            times = {"cpu": float(rng.randint(1, 20))}
            if rng.random() < 0.6:
                times["gpu"] = float(rng.randint(1, 20))
            rows.append((f"j{i}", times, float(rng.randint(0, 60))))
        self.jobs = sorted(workload(rows).jobs, key=lambda job: job.submit_time)
        truth = workload(rows).truth
        self.truth = truth
        self.loaded = load_policy(name)
        self.segments: list[Path] = []
        self.cluster = Cluster.uniform(rng.randint(1, 3), rng.choice([1, 2, 4]), rng.randint(1, 2))
        self.driver = Driver(
            self.cluster,
            self.loaded.policy,  # type: ignore[arg-type]
            PerfectModel(truth),
            bound=no_bound,
            journal=self.new_journal(),
            options=DriverOptions(policy_name=name, enforce=True),
        )
        self.ends: list[tuple[float, int, Ended]] = []
        self.count = 0

    def new_journal(self) -> JournalWriter:
        path = self.folder / f"{len(self.segments)}.jsonl"
        self.segments.append(path)
        return JournalWriter(path, self.cluster, policy=self.name)

    def run(self) -> None:
        rng, driver = self.rng, self.driver
        jobs: list[Job] = list(self.jobs)
        now = 0.0
        for _ in range(600):
            due = [jobs[0].submit_time] if jobs else []
            due += [self.ends[0][0]] if self.ends else []
            due.append(driver.next_time())
            now = max(now, min(due))
            if now == float("inf"):
                break
            while jobs and jobs[0].submit_time <= now:
                driver.submit(jobs.pop(0), held="held" if rng.random() < 0.1 else "")
            while self.ends and self.ends[0][0] <= now:
                driver.queue_events(heapq.heappop(self.ends)[2])
            self.say()
            for order in driver.process_instant(now):
                if isinstance(order, Placed):
                    name = order.implementation.name
                    seconds = self.truth.seconds(order.job, order.implementation, order.allocation.request)
                    assert seconds is not None, name
                    state = State.COMPLETED if rng.random() < 0.9 else State.FAILED
                    self.later(now + seconds, Ended(order.job.id, state, attempt=order.attempt))
                elif isinstance(order, Stop):
                    self.later(now, Ended(order.job, order.state, None, attempt=order.attempt))
            driver.write_last_instant()
            if rng.random() < 0.15:
                before = driver.begin_journal(now, self.new_journal)
                if isinstance(before, JournalWriter):
                    before.close()
        for job in [*driver.engine.held]:
            driver.release(job)
        assert isinstance(driver.journal, JournalWriter)
        driver.journal.close()

    def later(self, when: float, event: Ended) -> None:
        self.count += 1
        heapq.heappush(self.ends, (when, self.count, event))

    def say(self) -> None:
        rng, driver = self.rng, self.driver
        job = f"j{rng.randint(0, 39)}"
        what = rng.random()
        if what < 0.05:
            driver.hold(job)
        elif what < 0.12:
            driver.release(job)
        elif what < 0.15:
            driver.cancel(job)
        elif what < 0.18:
            driver.requeue(job)
        elif what < 0.20:
            driver.queue_events(NodeDrained(len(self.cluster) - 1))
        elif what < 0.25:
            driver.queue_events(NodeJoined(len(self.cluster) - 1))


@pytest.mark.parametrize("name", POLICIES)
def test_every_segment_replays_alone(name: str, tmp_path: Path) -> None:
    segments = decisions = 0
    for seed in range(full(150, 12)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        service = Service(seed, name, folder)
        service.run()
        policy: Any = load_policy(name).policy
        for path in service.segments:
            decisions += replay(read_journal(path), policy)
            segments += 1
    assert segments > full(300, 24)
    assert decisions > full(4000, 300)
