"""Places given away a moment early: with whatever delays, wishes and wrong predictions, nothing is shared.

A supervisor is played with its real book of successors; words to it and from it are late, in their order.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.orders import Order, Stop, Withdraw
from dovetail.driver.prefill import AHEAD, ALONG, SHORTER
from dovetail.engine.journal.journal import JournalWriter, read_journal, replay
from dovetail.engine.state.core import no_bound
from dovetail.model import (
    Cancelled,
    Cluster,
    Device,
    Ended,
    Event,
    Held,
    Job,
    Lingering,
    Node,
    NodeDrained,
    NodeJoined,
    Placed,
    Prediction,
    Released,
    Request,
    Requeued,
    State,
    Throttle,
    Withdrawn,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.process.successors import DroppedSuccessors, Successor, Successors
from dovetail.testing.builders import full, workload

FINAL = (State.COMPLETED, State.CANCELLED, State.FAILED)
CASES = full(4000, 60)
MS = 1e-3
CLUSTERS = ((1, 0), (2, 0), (4, 0), (2, 1), (3, 2))  # cores and GPUs
POLICIES = ("history", "fcfs", "easy", "best-device", "lookahead", "history-guarded")


def machine(cores: int, gpus: int = 0) -> Cluster:
    return Cluster((Node("n", tuple(range(cores)), tuple(Device("gpu", "", d) for d in range(gpus))),))


class Guessing:
    """A `RuntimeModel` that takes every job for one of a millisecond."""

    version = 0

    def predict(self, *of: Any) -> Prediction:
        return Prediction(1 * MS, 5 * MS, 9, "a guess")

    def runs(self, *of: Any) -> int:
        return 9


class Machine:
    """What really runs; begins what it is given when those before it have ended, and tells later."""

    def __init__(self, rng: random.Random, cluster: Cluster) -> None:
        self.rng, self.cluster = rng, cluster
        self.next = Successors()
        self.running: dict[str, tuple[Placed, float, float]] = {}  # and when it began, and ends
        self.begun: Counter[tuple[str, int]] = Counter()
        self.inbox: deque[tuple[float, Order, tuple[str, ...]]] = deque()
        self.outbox: deque[tuple[float, list[Event]]] = deque()
        self.held: dict[object, str] = {}
        self.followed = self.withdrawn = self.lingered = 0

    def order(self, now: float, order: Order, after: tuple[str, ...]) -> None:
        before = self.inbox[-1][0] if self.inbox else 0.0
        self.inbox.append((max(before, now + self.rng.random() * MS), order, after))

    def tell(self, now: float, *events: Event) -> None:
        before = self.outbox[-1][0] if self.outbox else 0.0
        self.outbox.append((max(before, now + self.rng.choice([0, 0.3, 4]) * MS), list(events)))

    def next_time(self) -> float:
        due = [self.inbox[0][0]] if self.inbox else []
        due += [end for _, _, end in self.running.values()]
        return min(due, default=float("inf"))

    def step(self, now: float) -> None:
        for job, (placed, began, end) in list(self.running.items()):
            if end <= now:
                self.end(job, Ended(job, State.COMPLETED, 0, "", None, began, end, placed.attempt), end)
        while self.inbox and self.inbox[0][0] <= now:
            self.carry_out(*self.inbox.popleft())

    def units(self, placed: Placed) -> set[object]:
        node = self.cluster.nodes[0]
        devices = {("gpu", d) for part in placed.allocation.parts for d in part.devices}
        cores = placed.allocation.cores_on(0, node)
        assert bool(cores) == any(part.cpus for part in placed.allocation.parts)
        return devices | set(cores)

    def begin_instant(self, placed: Placed, now: float) -> None:
        job = placed.job.id
        for unit in self.units(placed):
            assert unit not in self.held, f"{job} begins on {unit}, which {self.held[unit]} has"
            self.held[unit] = job
        self.begun[job, placed.attempt] += 1
        assert self.begun[job, placed.attempt] == 1, f"{job} has run twice"
        seconds = self.rng.choice([0.4, 0.8, 1.0, 2.5]) * MS if self.rng.random() < 0.9 else 0.2
        self.running[job] = placed, now, now + seconds

    def end(self, job: str, event: Ended, now: float) -> None:
        placed, _, _ = self.running.pop(job)
        for unit in self.units(placed):
            del self.held[unit]
        self.tell(now, event)
        self.over(job, now)

    def over(self, job: str, now: float) -> None:
        for one in self.next.release_followers(job):
            self.begin_instant(one.request["placed"], now)

    def carry_out(self, now: float, order: Order, after: tuple[str, ...]) -> None:
        if isinstance(order, Placed):
            self.next.restore_job(order.job.id)
            before = self.next.before(after, self.running.__contains__)
            if before:
                self.followed += 1
                self.next.add(order.job.id, Successor({"placed": order}, b"", before))
            else:
                self.begin_instant(order, now)
        elif isinstance(order, Stop):
            if order.job in self.running:
                _, began, _ = self.running[order.job]
                ended = Ended(order.job, order.state, None, order.detail, None, began, now, order.attempt)
                self.end(order.job, ended, now)
            elif order.job in self.next:
                self.next.drop_jobs([order.job])
                self.tell(now, Withdrawn(order.job))
        elif isinstance(order, Withdraw):
            gone = self.next.followers_of(order.job)
            self.next.drop_jobs(gone)
            still = [Lingering(order.job)] if order.job in self.running else []
            self.withdrawn += len(gone)
            self.lingered += len(still)
            self.tell(now, *map(Withdrawn, gone), *still)


def asking(job: Job, cpus: int) -> Job:
    """The job with so many CPUs for its program on CPUs."""
    asked = Request(1, cpus)
    return replace(
        job,
        choices=tuple(
            replace(c, request=asked) if c.implementation.kind == "cpu" else c for c in job.choices
        ),
    )


def queue_of(rng: random.Random, cluster: Cluster) -> Workload:
    gpus = bool(cluster.nodes[0].devices)
    rows: list[Any] = []
    for i in range(rng.randint(1, 40)):
        times = {"cpu": 1 * MS, "gpu": 1 * MS} if gpus and rng.random() < 0.5 else {"cpu": 1 * MS}
        rows.append((f"j{i}", times, rng.choice([0.0, 0.0, 0.0, 0.004, 0.1])))
    made = workload(rows)
    throttle = (Throttle("a", 2),)
    cores = len(cluster.nodes[0].cores)
    jobs = [
        replace(
            asking(job, min(cores, rng.choice([1, 1, 1, 2]))),
            throttles=throttle if rng.random() < 0.1 else (),
        )
        for job in made.jobs
    ]
    return replace(made, jobs=jobs)


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.cluster = machine(*rng.choice(CLUSTERS))
        self.workload = queue_of(rng, self.cluster)
        self.policy = rng.choice(POLICIES)
        self.path = folder / f"{seed}.jsonl"
        self.journal = JournalWriter(self.path, self.cluster, policy=self.policy)
        self.loaded = load_policy(self.policy)
        self.driver = Driver(
            self.cluster,
            self.loaded.policy,
            Guessing(),
            bound=no_bound,
            journal=self.journal,
            options=DriverOptions(requeues=8, enforce=True),
        )
        self.driver.look_ahead()
        self.machine = Machine(rng, self.cluster)
        self.arrivals = deque(sorted(self.workload.jobs, key=lambda job: job.submit_time))
        self.now = 0.0
        self.asked: set[str] = set()
        self.refused = DroppedSuccessors()
        self.never: Counter[str] = Counter()  # starts that could not be asked for

    def next_time(self) -> float:
        told = self.machine.outbox[0][0] if self.machine.outbox else float("inf")
        arrives = self.arrivals[0].submit_time if self.arrivals else float("inf")
        return min(self.driver.next_time(), self.machine.next_time(), told, arrives)

    def run(self, *, quiet: bool) -> None:
        released = False
        for step in range(4000):
            due = self.next_time()
            if due == float("inf") and self.driver.idle:
                if released:
                    break
                released = True  # in the end everything may end
                self.driver.queue_events(NodeJoined(0), *(Released(job.id) for job in self.workload.jobs))
            self.now = self.now if due == float("inf") else max(self.now, due)
            self.machine.step(self.now)
            while self.arrivals and self.arrivals[0].submit_time <= self.now:
                self.driver.submit(self.arrivals.popleft())
            while self.machine.outbox and self.machine.outbox[0][0] <= self.now:
                self.hear(*self.machine.outbox.popleft()[1])
            if not (quiet or released) and step < 60 and self.rng.random() < 0.2:
                self.driver.queue_events(self.incident())
            for order in self.driver.process_instant(self.now):
                self.give(order)
            self.driver.write_last_instant()
            self.driver.engine.validate_books()
        else:
            raise AssertionError("it does not come to an end")
        self.journal.close()

    def give(self, order: Order) -> None:
        """What an executor does of it: some jobs cannot be asked for, and never reach the machine."""
        if not isinstance(order, Placed):
            self.machine.order(self.now, order, ())
            return
        after = self.refused.replacements_of(self.driver.after(order.job.id), self.asked.__contains__)
        if self.rng.random() < 0.03:
            self.refused.drop_job(order.job.id, after)
            self.driver.queue_events(Ended(order.job.id, State.FAILED, attempt=order.attempt, ran=False))
            self.never[order.job.id] += 1
        else:
            self.asked.add(order.job.id)
            self.refused.restore_job(order.job.id)
            self.machine.order(self.now, order, tuple(after))

    def hear(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, Ended | Withdrawn):
                self.asked.discard(event.job)
                self.refused.forget_job(event.job)
        self.driver.queue_events(*events)

    def incident(self) -> Event:
        job = f"j{self.rng.randint(0, 40)}"
        kinds = [Cancelled(job), Held(job), Released(job), Requeued(job), NodeDrained(0), NodeJoined(0)]
        return self.rng.choice(kinds)

    def check(self) -> None:
        records = self.driver.engine.records
        assert not self.machine.next.waiting
        assert not self.driver.engine.ending
        for job in self.workload.jobs:
            record = records[job.id]
            assert record.state in FINAL, (job.id, record.state)
            runs = sum(count for (name, _), count in self.machine.begun.items() if name == job.id)
            runs += self.never[job.id]
            assert record.attempts == runs, f"{job.id} ran {runs} times, on record {record.attempts}"
        holds = sorted(
            (record.start, record.end, unit)
            for record in records.values()
            if record.start is not None and record.end is not None and not record.earlier
            if record.state is not State.FAILED
            for unit in map(str, self.machine.units(_placed(record)))
        )
        last: dict[str, float] = {}
        for start, end, unit in holds:
            assert start >= last.get(unit, 0.0), f"on record {unit} is held twice at {start}"
            last[unit] = end


def _placed(record: Any) -> Placed:
    return Placed(record.job, record.implementation, record.allocation, record.start, None, record.end)


@pytest.mark.parametrize("block", range(3))
def test_nothing_is_shared_lost_or_run_twice(block: int, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block, CASES, 3):
        world = World(seed, tmp_path)
        try:
            world.run(quiet=seed % 2 == 0)
            world.check()
            replay(read_journal(world.path), world.loaded.policy)
        except Exception as error:
            error.add_note(f"seed {seed}, {world.policy}, at {world.now}")
            raise
        world.path.unlink()
        seen["followed"] += world.machine.followed
        seen["withdrawn"] += world.machine.withdrawn
        seen["refused"] += sum(world.never.values())
        seen["lingered"] += world.machine.lingered
        seen["cancelled"] += sum(r.state is State.CANCELLED for r in world.driver.engine.records.values())
    for what in ("followed", "withdrawn", "lingered", "cancelled", "refused"):
        assert seen[what] > 0, f"no case had {what}"


def test_lines_end_at_different_moments() -> None:
    """With jobs of a millisecond, a core's line is as long as the others', but for the first one's."""
    made = workload([(f"j{i}", {"cpu": 1 * MS}) for i in range(400)])
    driver = Driver(
        machine(3), load_policy("fcfs").policy, Guessing(), bound=no_bound, options=DriverOptions()
    )
    driver.look_ahead()
    for job in made.jobs:
        driver.submit(asking(job, 1))
    orders = driver.process_instant(0.0)
    lines = Counter(order.allocation.cores[0][0] for order in orders if isinstance(order, Placed))
    deep, shallow = AHEAD / MS, (AHEAD - SHORTER) / MS
    along = 1 + ALONG / MS
    assert shallow <= lines[0] <= shallow + along
    assert all(deep <= lines[core] <= deep + along for core in (1, 2))


def test_a_job_behind_one_that_goes_on_finds_another_place() -> None:
    """Of two cores one is taken by a job that was thought short: who was to follow it runs on the other."""
    cluster = machine(2)
    made = workload([(f"j{i}", {"cpu": 1 * MS}) for i in range(4)])
    driver = Driver(cluster, load_policy("fcfs").policy, Guessing(), bound=no_bound, options=DriverOptions())
    driver.look_ahead()
    for job in made.jobs:
        driver.submit(asking(job, 1))
    orders = list(driver.process_instant(0.0))
    placed = {order.job.id: order for order in orders if isinstance(order, Placed)}
    assert list(placed) == ["j0", "j1", "j2", "j3"]
    after = {job: list(driver.after(job)) for job in placed}
    assert after == {"j0": [], "j1": [], "j2": ["j0"], "j3": ["j1"]}
    assert driver.next_time() < 0.1
    assert list(driver.process_instant(driver.next_time())) == [Withdraw("j0"), Withdraw("j1")]
    driver.queue_events(Ended("j1", State.COMPLETED, 0, attempt=1), Withdrawn("j2"), Lingering("j0"))
    (start,) = driver.process_instant(0.05)
    assert isinstance(start, Placed)
    assert (start.job.id, start.attempt) == ("j2", 1)
    assert start.allocation.cores == placed["j3"].allocation.cores
    assert driver.after("j2") == ["j3"]


def test_nothing_follows_a_job_whose_length_is_not_known() -> None:
    class Unsure(Guessing):
        def predict(self, *of: Any) -> Prediction:
            return Prediction(1 * MS, 50 * MS, 9, "a guess")

    made = workload([(f"j{i}", {"cpu": 1 * MS}) for i in range(4)])
    for model, ahead in ((Unsure(), 0), (Guessing(), 3)):
        driver = Driver(
            machine(1),
            load_policy("fcfs").policy,
            model,
            bound=no_bound,
            options=DriverOptions(),
        )
        driver.look_ahead()
        for job in made.jobs:
            driver.submit(asking(job, 1))
        assert len(driver.process_instant(0.0)) == 1 + ahead


def test_who_waits_for_a_promise_is_not_overtaken() -> None:
    """With a promise outstanding no place is given away: it was made by what holds places in truth."""
    made = workload([("a", {"cpu": 1 * MS}), ("b", {"cpu": 1 * MS}), ("c", {"cpu": 1 * MS})])
    jobs = [asking(job, cpus) for job, cpus in zip(made.jobs, (1, 2, 1), strict=True)]
    driver = Driver(
        machine(2),
        load_policy("easy").policy,
        Guessing(),
        bound=no_bound,
        options=DriverOptions(),
    )
    driver.look_ahead()
    for job in jobs:
        driver.submit(job)
    orders = driver.process_instant(0.0)
    assert {order.job.id for order in orders if isinstance(order, Placed)} >= {"a"}
    for order in orders:
        assert isinstance(order, Placed)
        assert not driver.engine.promises.held or not driver.after(order.job.id)


def test_a_new_journal_begins_when_no_place_is_given_away(tmp_path: Path) -> None:
    """Under a stream of short jobs that moment has to be made: until then nobody gives a place away."""
    cluster = machine(1)
    made = workload([(f"j{i}", {"cpu": 1 * MS}) for i in range(200)])
    writers = [JournalWriter(tmp_path / f"{i}.jsonl", cluster, policy="fcfs") for i in range(2)]
    driver = Driver(
        cluster,
        load_policy("fcfs").policy,
        Guessing(),
        bound=no_bound,
        journal=writers[0],
        options=DriverOptions(),
    )
    driver.look_ahead()
    for job in made.jobs:
        driver.submit(asking(job, 1))
    line = deque(order for order in driver.process_instant(0.0) if isinstance(order, Placed))
    driver.write_last_instant()
    assert driver.engine.ending
    now, turned, longest = 0.0, None, 0
    while line:
        if turned is None and driver.begin_journal(now, lambda: writers[1]) is not None:
            turned = len(line)
            assert not driver.engine.ending
        now += 1 * MS
        driver.queue_events(Ended(line.popleft().job.id, State.COMPLETED, 0, attempt=1))
        line += [order for order in driver.process_instant(now) if isinstance(order, Placed)]
        driver.write_last_instant()
        longest = max(longest, len(line)) if turned else 0
    assert turned == 1, "the one that runs"
    assert longest > 10, "afterwards places are given away again"
    for writer in writers:
        writer.close()
    for i in range(2):
        replay(read_journal(tmp_path / f"{i}.jsonl"), load_policy("fcfs").policy)
