"""A box for a long time: strangers, MIG instances, devices that break, jobs that fail, shares by all rules.

Real drivers and guards in virtual time; what happens is drawn from one seed a box. At every instant the
engine's books are checked, and against them what the box really held: nothing starts beside a stranger or on
a lost device, nothing goes above a device's memory by what was seen, nobody starves.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.engine.state.core import Engine, no_bound
from dovetail.history.memory import MemoryHistory
from dovetail.local.claims import Holder
from dovetail.local.device_processes import DeviceProcess
from dovetail.local.device_watch import DeviceState, Snapshot
from dovetail.model import (
    FRACTION_UNITS,
    App,
    Choice,
    Cluster,
    Device,
    Ended,
    Event,
    Implementation,
    Job,
    Node,
    Placed,
    Request,
    State,
    TableTruth,
    Usage,
    Workload,
    fits_node,
)
from dovetail.model.fitting import memory_taken
from dovetail.model.job import Sizing
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.running.device_guard import FRESH, DeviceGuard, WatchedDevice
from dovetail.running.neighbours import Neighbours
from dovetail.runtimes.registry import make_model
from dovetail.spec.values import Neighbourhood
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.testing.virtual_time import run_virtual

STEPS = full(1_000_000, 3_000)
UNIT = 1000
"""Sizes are multiples of it: then a tenth of the smallest device is more than nothing."""
MODELS = {"T4": 16 * UNIT, "A100": 40 * UNIT, "A100 MIG 3g.20gb": 20 * UNIT, "A100 MIG 1g.5gb": 5 * UNIT}
LATEST = 7200.0
"""Seconds within which all jobs of a box end, one after the other even."""
POLICIES = ("history", "lookahead", "fcfs", "easy", "conservative", "min-min", "best-device")
MODES: tuple[Neighbourhood, ...] = ("avoid", "avoid", "memory", "ignore")


@dataclass
class World:
    """A driver in virtual time. ``stays`` are (device, from, to, bytes); ``lost`` (device, from, to)."""

    cluster: Cluster
    stays: list[tuple[int, float, float, int]]
    lost: list[tuple[int, float, float]]
    trouble: str = ""
    alive: bool = True
    seen: float = 0.0

    def here(self, device: int, when: float) -> list[int]:
        """Bytes of each stranger on a device; all of them together hold no more than it has."""
        left, found = self.cluster.nodes[0].devices[device].memory or 0, []
        for d, low, high, memory in self.stays:
            if d == device and low <= when < high:
                found.append(min(memory, left))
                left -= found[-1]
        return found

    def is_lost(self, device: int, when: float) -> bool:
        return any(d == device and low <= when < high for d, low, high in self.lost)

    def take_snapshot(self, patience: float = 0.0) -> Snapshot:
        now = self.seen = asyncio.get_running_loop().time()
        states = []
        for d, device in enumerate(self.cluster.nodes[0].devices):
            processes = tuple(
                DeviceProcess(900_000 + n, memory, "ana", "python", 0.0)
                for n, memory in enumerate(self.here(d, now))
            )
            fault = "NVML cannot read it: GPU is lost" if self.is_lost(d, now) else ""
            states.append(DeviceState(str(d), d, device.memory or 0, 0, None, processes, fault))
        return Snapshot(now, states)

    def close(self) -> None: ...


class Users(FakeExecutor):
    """Jobs that need memory of their devices, and fail for want of it, or for no reason, for some tries."""

    def __init__(self, truth: TableTruth, cluster: Cluster, needs: dict[str, int], bad: set[str]) -> None:
        super().__init__(truth)
        self._cluster, self._needs, self._bad = cluster, needs, bad
        self._ends: dict[tuple[str, int], Ended] = {}

    async def launch(self, placed: Placed) -> None:
        """Say how this try will end, and begin."""
        job, attempt = placed.job.id, placed.attempt
        part, need = placed.allocation.parts[0], self._needs[job]
        device = self._cluster.nodes[0].devices[part.devices[0]]
        given = memory_taken(device.memory or 0, part.units, part.gpu_memory)
        if given < need:
            end = Ended(job, State.OUT_OF_MEMORY, 1, "out of memory", attempt=attempt, on_device=True)
        elif job in self._bad and attempt == 1:
            end = Ended(job, State.FAILED, 1, "", attempt=attempt)
        else:
            end = Ended(job, usage=Usage(gpu_memory=need), attempt=attempt)
        self._ends[job, attempt] = end
        await super().launch(placed)

    def _at(self, when: float, number: int, event: Event) -> None:
        if isinstance(event, Ended):
            event = self._ends[event.job, event.attempt or 1]
        super()._at(when, number, event)


class AllClaims:
    """The claims of a Dovetail that is alone on its machine."""

    patience = 0.0
    until: float | None = None
    waiting: Sequence[Holder] = ()

    def __init__(self) -> None:
        self.held: frozenset[str] = frozenset()

    def choose_units(self, choice: Callable[[Mapping[str, Holder]], Iterable[str]]) -> dict[str, Holder]:
        self.held |= frozenset(choice({}))
        return {}

    def keep(self, used: Iterable[str]) -> None:
        self.held = frozenset(used)

    def wait_for(self, wants: Mapping[str, int], since: float) -> None: ...


@dataclass
class Count:
    """What has happened in all boxes so far; ``boxes`` are those of seeds from ``first`` on, in order."""

    steps: int = 0
    starts: int = 0
    shared: int = 0
    tries: int = 0
    barred: int = 0
    instances: int = 0
    kills: int = 0
    boxes: int = 0
    first: int = 1
    cpu_seconds: float = 0.0
    code: str = ""


def drawn_world(rng: random.Random) -> World:
    """A box of one to six devices; who comes and what breaks in its first minute."""
    models = rng.choices(sorted(MODELS), k=rng.randint(1, 6))
    devices = tuple(Device("gpu", model, d, memory=MODELS[model]) for d, model in enumerate(models))
    cluster = Cluster((Node("box", (0,), devices),))
    spans = [(rng.uniform(0, 60), rng.uniform(0, 20)) for _ in range(rng.randint(0, 10))]
    stays = [
        (rng.randrange(len(models)), low, low + span, UNIT * rng.choice((1, 4, 10))) for low, span in spans
    ]
    spans = [(rng.uniform(0, 60), rng.uniform(0, 10)) for _ in range(rng.randint(0, 3))]
    return World(cluster, stays, [(rng.randrange(len(models)), low, low + span) for low, span in spans])


def drawn_jobs(
    rng: random.Random, cluster: Cluster
) -> tuple[list[Job], TableTruth, dict[str, int], set[str]]:
    """Jobs of a few apps: whole devices, parts, sizes, what is learned of both; some fail at first."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    needs: dict[str, int] = {}
    bad: set[str] = set()
    largest = max(device.memory or 0 for device in cluster.nodes[0].devices)
    for index in range(rng.randint(5, 60)):
        form, need = rng.randrange(5), UNIT * rng.choice((1, 3, 5, 13, 20, 40))
        request = (
            Request(1, 0, (("gpu", 1.0),)),
            Request(1, 0, (("gpu", rng.choice((0.1, 0.25, 0.5))),)),
            Request(1, 0, (("gpu", 1.0),), gpu_memory=need),
            Request(1, 0, (("gpu", 0.25),), gpu_memory=need),
            Request(1, 0, (("gpu", 1.0),), sharing=True),
        )[form]
        way = Implementation("gpu", "gpu", request)
        if not fits_node(request, cluster.nodes[0]):
            continue
        name, app = f"j{index}", App(f"app{form}-{need}", (way,))
        sizing = Sizing(gpu_auto=("gpu",) if form == 4 or (form == 2 and rng.random() < 0.3) else ())
        submit = rng.choice((0.0, 0.0, rng.uniform(0, 60)))
        made = Job(
            name, app, (Choice(way, request),), index=index, submit_time=submit, sizing=sizing, retries=2
        )
        jobs.append(made)
        table[name, "gpu", 1] = rng.choice((0.0, 0.5, 2.0, 7.0))
        needs[name] = min(need, largest) if form in (0, 4) else min(need, UNIT // 10)
        if rng.random() < 0.1:
            bad.add(name)
    return sorted(jobs, key=lambda job: (job.submit_time, job.index)), TableTruth(table), needs, bad


async def live_in(world: World, rng: random.Random, count: Count) -> None:
    """All jobs of a box, to their ends; every instant is a step."""
    cluster, mode, policy = world.cluster, rng.choice(MODES), rng.choice(POLICIES)
    jobs, truth, needs, bad = drawn_jobs(rng, cluster)
    history = MemoryHistory()
    node, loop = cluster.nodes[0], asyncio.get_running_loop()
    driver = Driver(
        cluster,
        load_policy(policy).policy,
        make_model("mean", history),
        bound=no_bound,
        history=history,
        follow=FollowPlan(),
        options=DriverOptions(policy_name=policy, enforce=True),
    )
    watched = {
        (0, device.name): WatchedDevice((0, device.name), "nvidia", str(d), device.memory)
        for d, device in enumerate(node.devices)
    }
    guard = DeviceGuard(mode, lambda pid: (False, ""), {"nvidia": world}, watched, clock=loop.time)
    begun: set[tuple[str, int]] = set()

    def check(engine: Engine) -> None:
        count.steps += 1
        if count.steps % 16 == 0:
            engine.validate_books()
        now, held = engine.view.now, [0] * len(node.devices)
        assert now < LATEST, "a job starves"
        units = [0] * len(node.devices)
        guests = [0] * len(node.devices)
        for placed in engine.running.values():
            if placed.job.foreign:
                continue
            for part in placed.allocation.parts:
                for d in part.devices:
                    held[d] += memory_taken(node.devices[d].memory or 0, part.units, part.gpu_memory)
                    units[d] += part.units
                    guests[d] += 1
        for d, device in enumerate(node.devices):
            assert held[d] <= (device.memory or 0), "above the memory of a device"
            assert units[d] <= FRACTION_UNITS
            count.shared += guests[d] > 1
        count.barred += any(placed.job.foreign for placed in engine.running.values())
        for placed in engine.running.values():
            if placed.job.foreign or (placed.job.id, placed.attempt) in begun:
                continue
            begun.add((placed.job.id, placed.attempt))
            count.starts += 1
            assert now - world.seen <= FRESH + 1e-9
            for d in placed.allocation.parts[0].devices:
                strangers = world.here(d, world.seen)
                assert not world.is_lost(d, world.seen), "on a device that is lost"
                assert mode != "avoid" or not strangers, "beside a stranger"
                if mode == "memory":
                    size = node.devices[d].memory or 0
                    assert held[d] + sum(strangers) <= size, "above what is left"

    neighbours = Neighbours(AllClaims(), cluster, lambda words: None, guard)  # type: ignore[arg-type]
    executor = Users(truth, cluster, needs, bad)
    await LiveRun(driver, executor, jobs, changed=check, neighbours=neighbours).run()
    records = [driver.engine.records[job.id] for job in jobs]
    count.tries += sum(record.attempts for record in records)
    count.kills += sum(record.job.sizing.gpu_kills for record in records)
    count.instances += sum("MIG" in device.model for device in node.devices)
    for record in records:
        name = record.job.id
        assert record.state in (State.COMPLETED, State.OUT_OF_MEMORY), "nobody starves, or fails for good"
        if record.state is State.OUT_OF_MEMORY:  # no device that it may have is large enough
            assert record.job.sizing.gpu_kills
        assert record.attempts <= 2 + len(set(MODELS.values())) + (name in bad)
    result = driver.result(Workload("box", jobs, truth))
    check_schedule(result, Workload("box", jobs, truth), work=False)


KEPT = Path(__file__).parents[2] / "build" / "device-walk.json"
"""How far the long walk has come, for the next run of it to go on."""
EVERY = 20
"""Boxes between two notes of that."""


def code_walked() -> str:
    """A hash of all that the walk tests, and of itself: of other code nothing counts."""
    root = Path(__file__).parents[2]
    files = [Path(__file__), *sorted((root / "src" / "dovetail").rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def walk(steps: int, kept: Path | None = None, first: int = 1) -> Count:
    """Box after box, until so many instants have been checked; with ``kept`` from where an earlier one ended.

    The boxes are those of the seeds ``first``, ``first`` + 1, …
    """
    count = Count(first=first, code=code_walked() if kept is not None else "")
    if kept is not None and kept.exists():
        found = Count(**json.loads(kept.read_text()))
        count = found if (found.code, found.first) == (count.code, count.first) else count
    began = time.process_time() - count.cpu_seconds
    while count.steps < steps:
        seed = first + count.boxes
        rng = random.Random(seed)
        world = drawn_world(rng)
        try:
            run_virtual(live_in(world, rng, count))
        except BaseException as error:
            error.add_note(f"box of seed {seed}")
            raise
        count.boxes += 1
        count.cpu_seconds = round(time.process_time() - began, 1)
        if kept is not None and (count.boxes % EVERY == 0 or count.steps >= steps):
            kept.parent.mkdir(exist_ok=True)
            fresh = kept.with_suffix(".new")
            fresh.write_text(json.dumps(asdict(count)))
            fresh.replace(kept)
    return count


def test_a_long_walk_keeps_every_rule() -> None:
    count = walk(STEPS, full(KEPT, None))
    assert count.starts > count.steps / 40, "jobs start"
    assert count.shared > count.steps / 40, "and share devices"


def test_a_job_that_fits_only_where_it_was_never_tried_is_tried_there() -> None:
    count, rng = Count(), random.Random(100_005)
    run_virtual(live_in(drawn_world(rng), rng, count))
    assert count.starts > 50


def test_a_walk_goes_on_where_it_ended(tmp_path: Path) -> None:
    first = walk(50, tmp_path / "kept")
    again = walk(first.steps + 1, tmp_path / "kept")
    assert again.boxes > first.boxes
    whole = walk(again.steps)
    assert (whole.steps, whole.boxes, whole.starts) == (again.steps, again.boxes, again.starts)
    (tmp_path / "kept").write_text(json.dumps({**asdict(again), "code": "of an earlier day"}))
    assert walk(50, tmp_path / "kept").boxes == first.boxes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A long walk, which goes on where an earlier one ended.")
    parser.add_argument("steps", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first box")
    arguments = parser.parse_args()
    print(json.dumps(asdict(walk(arguments.steps, arguments.kept, arguments.first))))
