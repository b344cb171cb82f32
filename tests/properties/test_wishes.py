"""Everything at once: what many clients want of the same jobs, against a small model of what each may be.

Clients submit, cancel, hold, release and requeue, drain and resume nodes, several of them between two
instants; jobs end, fail and run into their stops meanwhile; the service is killed at any moment and starts
again from its ledger. The model knows of each job only what was acknowledged last.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from erratic import Erratic

from dovetail.driver.admission import HELD
from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.orders import Move, Order, Stop
from dovetail.driver.priority import Priorities
from dovetail.driver.wishes import WISH_EVENTS, Wish, refusal_of
from dovetail.engine.state.core import no_bound
from dovetail.engine.state.phases import Phase
from dovetail.interfaces import LastAttempts, RunningAttempt
from dovetail.model import (
    Cluster,
    Dependency,
    Ended,
    Job,
    Migrated,
    Node,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Paused,
    Placed,
    State,
    Throttle,
)
from dovetail.plugins import load_policy
from dovetail.running.ledger import Action, Ledger
from dovetail.running.taking_up import enter_adopted, sorted_out
from dovetail.runtimes.perfect import PerfectModel
from dovetail.testing.builders import full, workload

CASES = full(6_000, 120)
BLOCKS = 4
FOUND = (1091, 2383)
"""Seeds that found something once."""
STEPS = 40
OPEN = (State.PENDING, State.RUNNING)
FATES = [State.COMPLETED, State.COMPLETED, State.FAILED, State.NODE_FAIL, State.OUT_OF_MEMORY]
ACTIONS: tuple[Action, ...] = ("cancel", "hold", "release", "requeue")


@dataclass
class Expected:
    """What the model knows of one job: which wish was acknowledged last, and how often it had started."""

    job: Job
    last: Action | None = None
    held: bool = False
    starts: int = 0
    starts_then: int = 0
    ran_then: bool = False


@dataclass
class Client:
    """Somebody who wants one thing of one job, and waits for the answer."""

    action: Action
    job: str
    wish: Wish
    moot: bool = False  # something came after it that nobody of ours wanted


class World:
    """A service without processes: its ledger is real, its executor is a table of what runs."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.path = folder / f"{seed}.db"
        self.cluster = Cluster(tuple(Node(f"n{i}", tuple(range(rng.choice([1, 2])))) for i in range(2)))
        self.policy: Any = rng.choice([Erratic(seed), *(load_policy(n).policy for n in ("fcfs", "easy"))])
        self.made = workload([(str(i + 1), {"cpu": float(rng.randint(1, 9))}, 0.0) for i in range(40)])
        self.ranked = rng.random() < 0.5
        self.now, self.next = 0.0, 0
        self.expected: dict[str, Expected] = {}
        self.alive: dict[str, Placed] = {}  # what the executor runs
        self.over: dict[str, Ended] = {}  # what has ended, and nobody has heard of
        self.stops: dict[str, State] = {}
        self.moves: list[str] = []
        self.clients: list[Client] = []
        self.updates: list[Wish] = []
        self.counts: Counter[str] = Counter()
        self.driver, self.ledger = self.begun(())

    # ------------------------------------------------------------------ the service

    def begun(self, lost: Sequence[int]) -> tuple[Driver, Ledger]:
        """Start, and take up what the ledger and the executor know."""
        ledger = Ledger(self.path)
        ledger.epoch = self.now
        running = [RunningAttempt(id, placed.attempt, 0.0) for id, placed in self.alive.items()]
        left = LastAttempts(running=running, ended=list(self.over.values()))
        self.over.clear()
        waiting, adopted, ends, outside = sorted_out(ledger, left, self.now)
        assert not outside
        driver = Driver(
            self.cluster,
            self.policy,
            PerfectModel(self.made.truth),
            bound=no_bound,
            ledger=ledger,
            ended_before=ledger.state,
            options=DriverOptions(hold_moves=True, requeues=200),
        )
        driver.epoch = self.now
        self.now = 0.0
        enter_adopted(driver, adopted, ends)
        if self.ranked:
            driver.order_by_priority(Priorities(priorities=False), 0.0)
        driver.queue_events(*(NodeDrained(n) for n in lost), *waiting)
        return driver, ledger

    def killed(self) -> None:
        """The service dies with all that was not acknowledged; jobs run on, some end; it starts again."""
        self.counts["kill"] += 1
        self.moves.clear()
        self.updates.clear()
        for client in self.clients:  # they were never answered: either may be so
            self.forget(client.job)
        self.clients.clear()
        self.stops.clear()
        for id in list(self.alive):
            if self.rng.random() < 0.3:
                self.end(id, self.rng.choice(FATES))
        self.driver.ledger = None
        self.ledger.close()
        self.now += self.driver.epoch
        self.driver, self.ledger = self.begun(())
        assert not [one for one in self.ledger.open_entries() if one.job.id not in self.expected]

    def signalled(self) -> None:
        """TERM: the service leaves what runs, what was not answered never is, and it starts again."""
        self.counts["signal"] += 1
        stops = [order for order in self.driver._carried if isinstance(order, Stop)]
        assert all(order.job in self.expected for order in stops)
        for id in [id for id in self.alive if id in self.stops and self.rng.random() < 0.5]:
            self.end(id, self.stops[id])
        self.moves.clear()
        self.updates.clear()
        for client in self.clients:
            self.forget(client.job)
        self.clients.clear()
        self.stops.clear()
        assert self.ledger.settle(), "what was decided is on record before it goes"
        self.ledger.close()
        self.now += self.driver.epoch
        self.driver, self.ledger = self.begun(())
        assert {one.job.id for one in self.ledger.open_entries()} <= self.expected.keys()

    def interrupted(self) -> None:
        """INT to a run: all that waits is cancelled, what runs is stopped; whatever is wanted meanwhile."""
        self.counts["interrupt"] += 1
        engine = self.driver.engine
        waits = [*engine.held, *(job.id for job in engine.queue)]
        waits += [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
        touched = {*waits, *(placed.job.id for placed in engine.at_work)}
        for id in touched:
            self.forget(id)
        for client in self.clients:
            client.moot = client.moot or client.job in touched
        self.driver.cancel_everything(running=self.rng.random() < 0.5)

    def forget(self, job: str) -> None:
        expected = self.expected[job]
        expected.last, expected.held = None, False

    # ------------------------------------------------------------------ the executor

    def end(self, job: str, state: State) -> None:
        placed = self.alive.pop(job)
        self.over[job] = Ended(job, state, 0, attempt=placed.attempt)
        self.stops.pop(job, None)

    def carry_out(self, order: Order) -> None:
        if isinstance(order, Placed):
            id, expected = order.job.id, self.expected[order.job.id]
            assert id not in self.alive, f"job {id} runs twice"
            assert not expected.held, f"job {id} starts though it is held"
            expected.starts += 1
            starts = expected.starts > expected.starts_then
            assert expected.last != "cancel" or not starts, f"job {id} starts though it was cancelled"
            self.alive[id] = order
        elif isinstance(order, Stop):
            if order.state is State.NODE_FAIL:  # it has ended with its node
                self.alive.pop(order.job, None)
                self.stops.pop(order.job, None)
            elif order.job in self.alive:
                self.stops[order.job] = order.state
        elif isinstance(order, Move):
            self.moves.append(order.placed.job.id)

    def some_time(self) -> None:
        """Jobs end by themselves, or by their stops; what has ended is heard of, some of it later."""
        rng = self.rng
        for id in list(self.alive):
            if id in self.stops and rng.random() < 0.6:
                self.end(id, self.stops[id])
            elif rng.random() < 0.2:
                self.end(id, rng.choice(FATES))
        for id in list(self.over):
            if rng.random() < 0.8:
                self.driver.queue_events(self.over.pop(id))
        moves, self.moves = self.moves, []
        self.driver.queue_events(*(Migrated(job, rng.choice(["", "it is gone"])) for job in moves))
        if rng.random() < 0.05:
            self.driver.queue_events(Ended(self.some_job(), State.FAILED, 1, attempt=99))  # late news

    # ------------------------------------------------------------------ the clients

    def some_job(self) -> str:
        return self.rng.choice(list(self.expected))

    def submit(self) -> None:
        """As the service does it: on record, then given to the driver."""
        rng = self.rng
        job = replace(self.made.jobs[self.next], submit_time=self.now, retries=rng.choice([0, 0, 2]))
        if self.expected and rng.random() < 0.25:
            kind = rng.choice(["afterok", "afterany", "afternotok"])
            job = replace(job, depends=(Dependency(kind, self.some_job()),))
        if rng.random() < 0.15:
            job = replace(job, throttles=(Throttle("few", 1),))
        self.next += 1
        held = rng.random() < 0.15
        self.ledger.submit([job], self.driver.epoch, held={job.id} if held else ())
        self.expected[job.id] = Expected(job, held=held)
        self.driver.submit(job, held=HELD if held else "")

    def want(self, action: Action, job: str) -> None:
        """As the service does it: looked at, on record, then given to the driver."""
        engine = self.driver.engine
        phase = engine.phase_of(job)
        if phase is Phase.UNKNOWN:  # not taken in yet, or it has left memory
            if self.ledger.state(job) is None:
                return
            phase = Phase.ENDED
        refused = refusal_of(WISH_EVENTS[action](job), phase, new=False)
        if refused:
            self.counts["refused at once"] += 1
            return
        self.ledger.record_wish(action, [job])
        if action == "requeue" and engine.phase_of(job) is Phase.UNKNOWN:
            entry = self.ledger.find_entry(job)
            assert entry is not None
            wish = self.driver.submit(entry.job, attempts=entry.attempt, failures=entry.failures)
        else:
            does: dict[Action, Callable[[str], Wish]] = {
                "cancel": self.driver.cancel,
                "hold": self.driver.hold,
                "release": self.driver.release,
                "requeue": self.driver.requeue,
            }
            wish = does[action](job)
        self.clients.append(Client(action, job, wish))

    def answered(self) -> None:
        """After an instant everybody has an answer; the model takes down what was acknowledged."""
        assert all(wish.is_settled for wish in self.updates), "an update has no answer"
        self.counts["updated"] += sum(wish.applied for wish in self.updates)
        self.updates.clear()
        clients, self.clients = self.clients, []
        for client in clients:
            assert client.wish.is_settled, f"{client.action} of job {client.job} has no answer"
            if client.wish.refused:
                self.counts["refused"] += 1
                self.ledger.correct_wish(client.job, self.driver.pending_wish(client.job))
                continue
            self.counts[client.action] += 1
            if client.moot:
                self.forget(client.job)
                continue
            expected = self.expected[client.job]
            expected.last = client.action
            expected.starts_then = expected.starts
            expected.ran_then = client.job in self.alive
            expected.held = client.action == "hold"

    def change(self) -> None:
        """A job is to be another one, whatever that brings."""
        rng, job = self.rng, self.some_job()
        record = self.driver.engine.records.get(job)
        if record is None:
            return
        if rng.random() < 0.3:
            after = rng.choice([None, self.some_job()])
            self.updates.append(self.driver.move_job(job, None if after == job else after, rng.random()))
            return
        fields: dict[str, Any] = rng.choice(
            [
                {"walltime": rng.choice([None, 5.0, 50.0])},
                {"priority": rng.randrange(3)},
                {"throttles": rng.choice([(), (Throttle("few", 1),)]), "name": "new"},
                {"depends": (Dependency("afterany", self.some_job()),)},
                {"depends": ()},
            ]
        )
        self.updates.append(self.driver.update(job, replace(record.job, **fields), list(fields)))

    def node(self) -> None:
        n = self.rng.randrange(2)
        self.driver.queue_events(self.rng.choice([NodeDrained(n), NodeJoined(n), NodeLost(n)]))

    # ------------------------------------------------------------------ going on

    def instant(self) -> None:
        driver = self.driver
        orders = list(driver.process_instant(self.now))
        self.answered()
        for order in orders:
            self.carry_out(order)
        driver.write_last_instant()
        driver.engine.validate_books()
        for id, record in driver.engine.records.items():
            assert self.ledger.state(id) == (None if record.state in OPEN else record.state), id
        for id in driver.ended():
            if self.rng.random() < 0.2 and driver.engine.phase_of(id.job.id) is Phase.ENDED:
                driver.retire_job(id.job.id)
                self.counts["left memory"] += 1

    def run(self) -> None:
        rng = self.rng
        for _ in range(STEPS):
            self.now += 1.0
            if self.next < 12 and rng.random() < 0.5:
                self.submit()
            if self.expected:
                favourite = self.some_job()
                for _ in range(rng.choice([0, 1, 2, 4])):
                    job = favourite if rng.random() < 0.7 else self.some_job()
                    self.want(rng.choice(ACTIONS), job)
            if rng.random() < 0.1:
                self.node()
            if self.expected and rng.random() < 0.2:
                self.change()
            if rng.random() < 0.05:
                self.driver.queue_events(Paused(rng.choice([(), ("all",), ("cpu",), ("gpu",)])))
            if rng.random() < 0.04:
                self.killed()
            if rng.random() < 0.03:
                self.signalled()
            if rng.random() < 0.01:
                self.interrupted()
            if self.expected:
                self.some_time()
            self.instant()
        self.to_the_end()

    def to_the_end(self) -> None:
        """All nodes are back, nothing is held: everything comes to its end."""
        self.driver.queue_events(NodeJoined(0), NodeJoined(1), Paused())
        self.instant()
        for id in self.expected:
            if self.driver.engine.phase_of(id) is Phase.HELD:
                self.want("release", id)
        for _ in range(2000):
            self.now += 1.0
            self.instant()
            if not (
                self.alive or self.over or self.moves or self.driver.has_waiting_jobs or not self.driver.idle
            ):
                break
            self.some_time()
        assert not self.ledger.open_entries(), [e.job.id for e in self.ledger.open_entries()]
        for id, expected in self.expected.items():
            if expected.last == "requeue":
                assert expected.starts > expected.starts_then, f"job {id} was requeued and never ran again"
        self.ledger.close()


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.timeout(full(2400, 240))
def test_everything_at_once_is_answered_and_done(block: int, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in {*range(block, CASES, BLOCKS), *(seed for seed in FOUND if seed % BLOCKS == block)}:
        world = World(seed, tmp_path)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed}, at {world.now}")
            raise
        counts += world.counts
        world.path.unlink()
    for what in (
        *ACTIONS,
        "updated",
        "refused",
        "refused at once",
        "kill",
        "signal",
        "interrupt",
        "left memory",
    ):
        assert counts[what] > 0, f"no case had {what}"
