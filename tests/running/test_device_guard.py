"""Strangers on devices, drivers that hang, devices that break: what may start where."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fake_executor import FakeExecutor
from gpu_box import GB, GpuBox
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun
from dovetail.engine.state.core import Engine, no_bound
from dovetail.history.memory import MemoryHistory
from dovetail.local.claims import Claims
from dovetail.local.device_processes import DeviceProcess
from dovetail.local.device_watch import DeviceState, DeviceWatch, Snapshot
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    State,
    TableTruth,
    fits_node,
)
from dovetail.model.fitting import memory_taken
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.running.device_guard import FRESH, DeviceGuard, WatchedDevice
from dovetail.running.failing_devices import FailingDevices
from dovetail.running.neighbours import Neighbours
from dovetail.runtimes.registry import make_model
from dovetail.spec.values import Neighbourhood
from dovetail.testing.builders import full
from dovetail.testing.virtual_time import run_virtual

# ---------------------------------------------------------------------------------- who fails where


def test_three_apps_that_fail_at_once_suspend_a_device_and_trials_double_that() -> None:
    found = FailingDevices[str]()
    for app in "ab":
        found.ended("gpu0", app, State.FAILED, 0.1, 1.0)
        found.ended("gpu0", app, State.FAILED, 0.1, 1.0)
    assert found.suspended_devices(1.0) == {}
    found.ended("gpu0", "c", State.FAILED, 4.9, 2.0)
    why, until = found.suspended_devices(2.0)["gpu0"]
    assert until == 62.0
    assert "jobs of 3 apps (a, b, c) failed there within 5 s" in why
    assert found.suspended_devices(62.0) == {}
    found.ended("gpu0", "a", State.FAILED, 0.1, 63.0)
    assert found.suspended_devices(63.0)["gpu0"][1] == 63.0 + 120.0
    found.ended("gpu0", "a", State.COMPLETED, 0.1, 190.0)
    for app in "bc":
        found.ended("gpu0", app, State.FAILED, 0.1, 200.0)
    assert found.suspended_devices(200.0) == {}, "a run that completed has cleared it"


def test_apps_that_fail_everywhere_are_to_blame_themselves() -> None:
    found = FailingDevices[str]()
    for app in "abc":
        for device in ("gpu0", "gpu1"):
            found.ended(device, app, State.FAILED, 0.1, 1.0)
    assert "gpu1" not in found.suspended_devices(1.0)


def test_what_fails_late_or_for_memory_blames_no_device() -> None:
    found = FailingDevices[str]()
    for app in "abcd":
        found.ended("gpu0", app, State.FAILED, 5.1, 1.0)
        found.ended("gpu0", app, State.OUT_OF_MEMORY, 0.1, 1.0)
    assert found.suspended_devices(1.0) == {}


# ---------------------------------------------------------------------------------- the real watcher


def watch_of(box: GpuBox, monkeypatch: pytest.MonkeyPatch) -> DeviceWatch:
    for name, value in box.environment.items():
        monkeypatch.setenv(name, value)
    return DeviceWatch("nvidia")


def test_a_driver_that_hangs_costs_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = GpuBox(tmp_path)
    uuid = box.add(16 * GB)
    box.occupy(uuid, os.getpid(), 3 * GB)
    watch = watch_of(box, monkeypatch)
    seen = watch.take_snapshot(30.0)
    assert seen is not None
    device = seen.device(uuid)
    assert device is not None
    assert device.used == 3 * GB
    assert [(one.pid, one.memory, one.is_visible) for one in device.processes] == [
        (os.getpid(), 3 * GB, True)
    ]
    (tmp_path / "hang").touch()
    monkeypatch.setattr("dovetail.local.device_watch.SILENT", 0.0)
    assert watch.take_snapshot(0.05) is None
    assert watch.trouble == "the nvidia driver does not answer"
    (tmp_path / "hang").unlink()
    assert watch.take_snapshot(30.0) is not None
    assert watch.trouble == ""
    watch.close()


def test_a_driver_that_always_answers_late_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes longer than the caller waits: what it says of then is what is known."""
    box = GpuBox(tmp_path)
    box.add(16 * GB)
    watch = watch_of(box, monkeypatch)
    assert watch.take_snapshot(30.0) is not None
    (tmp_path / "slow").write_text("150")
    assert watch.take_snapshot(0.0) is None
    seen = until(lambda: watch.take_snapshot(0.01), "no answer is heeded")
    assert seen is not None
    assert seen.took >= 0.15
    assert seen.devices[0].memory == 16 * GB
    watch.close()


def test_a_lost_gpu_and_an_error_of_the_driver_are_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = GpuBox(tmp_path)
    first, second = box.add(16 * GB), box.add(16 * GB)
    watch = watch_of(box, monkeypatch)
    assert watch.take_snapshot(30.0) is not None
    box.devices[0]["fault"] = 15
    box.write()
    (tmp_path / "xid").write_text("1 79")
    seen = watch.take_snapshot(30.0)
    assert seen is not None
    assert [seen.device(one).fault for one in (first, second)] == [  # type: ignore[union-attr]
        "NVML cannot read it: GPU is lost",
        "the driver reports error Xid 79",
    ]
    box.devices[0]["fault"] = 0
    box.write()
    seen = watch.take_snapshot(30.0)
    assert seen is not None
    assert [one.fault for one in seen.devices] == ["", ""]
    watch.close()


# ---------------------------------------------------------------------------------- whole runs

MODELS = {"T4": 16, "A100": 40, "A100 MIG 3g.20gb": 20, "A100 MIG 1g.5gb": 5, "unknown": None, "alone": 16}
"""Bytes of each; ``alone`` is in a compute mode that lets one program at a time compute."""


@dataclass
class Strangers:
    """A driver in virtual time: who computes where, and which devices are lost, from when until when."""

    cluster: Cluster
    stays: Sequence[tuple[int, float, float, int]]  # device, from, to, bytes
    lost: Sequence[tuple[int, float, float]]
    trouble: str = ""
    alive: bool = True
    looks: list[float] = field(default_factory=list)

    def here(self, device: int, when: float) -> list[int]:
        return [memory for d, low, high, memory in self.stays if d == device and low <= when < high]

    def is_lost(self, device: int, when: float) -> bool:
        return any(d == device and low <= when < high for d, low, high in self.lost)

    def take_snapshot(self, patience: float = 0.0) -> Snapshot:
        now = asyncio.get_running_loop().time()
        self.looks.append(now)
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


def one_box(models: Sequence[str]) -> Cluster:
    devices = tuple(
        Device("gpu", model, d, memory=MODELS[model], exclusive=model == "alone")
        for d, model in enumerate(models)
    )
    return Cluster((Node("box", (0,), devices),))


def queue_of(
    drawn: Sequence[tuple[float, int, float, float]], cluster: Cluster
) -> tuple[list[Job], TableTruth]:
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for index, (share, memory, seconds, submit) in enumerate(drawn):
        way = Implementation("gpu", "gpu", Request(1, 0, (("gpu", share),), gpu_memory=memory))
        if fits_node(way.request, cluster.nodes[0]):
            app = App(f"app{share}-{memory}", (way,))
            jobs.append(Job(f"j{index}", app, (Choice(way, way.request),), index=index, submit_time=submit))
            table[f"j{index}", "gpu", 1] = seconds
    return sorted(jobs, key=lambda job: (job.submit_time, job.index)), TableTruth(table)


async def drive(
    cluster: Cluster, world: Strangers, mode: Neighbourhood, policy: str, drawn: Sequence[Any], folder: str
) -> list[str]:
    """What was told."""
    jobs, truth = queue_of(drawn, cluster)
    history = MemoryHistory()
    loop = asyncio.get_running_loop()
    driver = Driver(
        cluster,
        load_policy(policy).policy,
        make_model("least-squares", history),
        bound=no_bound,
        history=history,
        follow=FollowPlan(),
        options=DriverOptions(policy_name=policy, enforce=True),
    )
    node = cluster.nodes[0]
    watched = {
        (0, device.name): WatchedDevice((0, device.name), "nvidia", str(d), device.memory, device.exclusive)
        for d, device in enumerate(node.devices)
    }
    guard = DeviceGuard(mode, lambda pid: (False, ""), {"nvidia": world}, watched, clock=loop.time)
    claims = Claims("0" * 32, Path(folder))
    told: list[str] = []

    def check(engine: Engine) -> None:
        """At every instant: nothing started on a stranger's device, nothing above what is there."""
        engine.validate_books()
        now = engine.view.now
        for placed in engine.running.values():
            if placed.job.foreign or placed.start_time < now:
                continue
            for d in placed.allocation.parts[0].devices:
                seen = max(when for when in world.looks if when <= now)
                assert now - seen <= FRESH + 1e-9
                assert not world.is_lost(d, seen)
                if mode == "avoid":
                    assert not world.here(d, seen), "it starts beside a stranger"
                if node.devices[d].exclusive:
                    assert mode == "ignore" or not world.here(d, seen), "two programs on one that lets one"
                    guests = [one for one in engine.running.values() if not one.job.foreign]
                    assert sum(d in part.devices for one in guests for part in one.allocation.parts) == 1
                if mode == "memory" and world.here(d, seen):
                    used = sum(
                        memory_taken(node.devices[d].memory or 0, part.units, part.gpu_memory)
                        for other in engine.running.values()
                        if not other.job.foreign
                        for part in other.allocation.parts
                        if d in part.devices
                    )
                    assert used + sum(world.here(d, seen)) <= (node.devices[d].memory or inf)

    live = LiveRun(
        driver,
        FakeExecutor(truth),
        jobs,
        changed=check,
        tell=told.append,
        neighbours=Neighbours(claims, cluster, told.append, guard),
    )
    try:
        await live.run()
    finally:
        claims.close()
    assert all(driver.engine.records[job.id].state is State.COMPLETED for job in jobs), "nobody starves"
    return told


stays = st.lists(
    st.tuples(st.integers(0, 3), st.floats(0, 20), st.floats(0, 30), st.sampled_from([1, 4, 10])), max_size=5
)
losses = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 20), st.floats(0, 30)), max_size=2)
rows = st.lists(
    st.tuples(
        st.sampled_from([0.25, 0.5, 1.0, 1.0]),
        st.sampled_from([0, 0, 3, 5, 13]),
        st.sampled_from([0.5, 2.0, 7.0]),
        st.sampled_from([0.0, 0.0, 3.0, 12.0]),
    ),
    min_size=1,
    max_size=10,
)


@given(
    st.lists(st.sampled_from(sorted(MODELS)), min_size=1, max_size=4),
    stays,
    losses,
    rows,
    st.sampled_from(("avoid", "avoid", "memory", "ignore")),
    st.sampled_from(("history", "fcfs", "easy", "conservative", "lookahead", "min-min")),
)
@settings(max_examples=full(4_000, 40), deadline=None)
def test_strangers_come_and_go(
    models: list[str], came: list[Any], lost: list[Any], drawn: list[Any], mode: Neighbourhood, policy: str
) -> None:
    cluster = one_box(models)
    strangers = [(d, low, low + length, memory) for d, low, length, memory in came]
    world = Strangers(cluster, strangers, [(d, low, low + length) for d, low, length in lost])
    with TemporaryDirectory() as folder:
        run_virtual(drive(cluster, world, mode, policy, drawn, folder))


@dataclass
class Silent(Strangers):
    """A driver that gives no answer from one moment to another, and reports an Xid of device 0 at one."""

    silence: tuple[float, float] = (inf, inf)
    error_at: float = inf

    def take_snapshot(self, patience: float = 0.0) -> Snapshot | None:  # type: ignore[override]
        now = asyncio.get_running_loop().time()
        if self.silence[0] <= now < self.silence[1]:
            return None
        seen = super().take_snapshot(patience)
        if now < self.error_at:
            return seen
        self.error_at = inf  # an event is reported once
        fault = "the driver reports error Xid 79"
        return replace(seen, devices=[replace(seen.devices[0], fault=fault), *seen.devices[1:]])


def test_nothing_starts_on_what_was_seen_long_ago() -> None:
    """The driver is silent when the second job comes: a stranger of whom it says nothing is there by then."""
    cluster = one_box(["T4"])
    world = Silent(cluster, [(0, 2.0, 30.0, 4)], [], silence=(2.0, 12.0))
    with TemporaryDirectory() as folder:
        run_virtual(drive(cluster, world, "avoid", "fcfs", [(1.0, 0, 0.5, 0.0), (1.0, 0, 0.5, 9.0)], folder))
    assert max(world.looks) >= 30.0


def test_an_error_that_is_reported_while_no_job_waits_suspends_the_device() -> None:
    """One job runs on device 1 when device 0 fails; one that comes 20 s later does not start there."""
    cluster = one_box(["T4", "T4"])
    world = Silent(cluster, [(0, 0.0, 2.0, 4)], [], error_at=4.0)
    with TemporaryDirectory() as folder:
        told = run_virtual(
            drive(cluster, world, "avoid", "fcfs", [(1.0, 0, 30.0, 0.0), (1.0, 0, 1.0, 24.0)], folder)
        )
    assert any("gpu0 suspended for 60 s: the driver reports error Xid 79" in words for words in told), told


def test_nothing_more_starts_beside_a_stranger_on_a_device_of_unknown_memory() -> None:
    """The first job runs there when the stranger comes; the second one waits until they have left."""
    cluster = one_box(["unknown"])
    world = Strangers(cluster, [(0, 1.0, 10.0, 4)], [])
    with TemporaryDirectory() as folder:
        drawn = [(0.25, 0, 5.0, 0.0), (0.25, 0, 1.0, 3.0)]
        run_virtual(drive(cluster, world, "avoid", "fcfs", drawn, folder))


def test_a_device_that_its_driver_lists_no_longer_gets_no_job() -> None:
    """One that it never listed may be a device that no driver describes: nothing is known of it."""
    empty = Strangers(Cluster((Node("box", (0,)),)), [], [])
    for name, words in (("GPU-aa", "suspended: the nvidia driver does not list it"), ("0", "")):
        device = WatchedDevice((0, "gpu0"), "nvidia", name, 16)
        guard = DeviceGuard("avoid", lambda pid: (False, ""), {"nvidia": empty}, {device.place: device})

        async def labels(guard: DeviceGuard = guard) -> list[str]:
            guard.clock = asyncio.get_running_loop().time
            driver = Driver(
                one_box(["T4"]),
                load_policy("fcfs").policy,
                make_model("mean", MemoryHistory()),
                bound=no_bound,
                options=DriverOptions(policy_name="fcfs"),
            )
            return [bar.label for bar in guard.device_bars(driver, 0.0).values()]

        assert run_virtual(labels()) == [words] * bool(words)


def test_the_process_that_watches_ends_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = GpuBox(tmp_path)
    box.add(16 * GB)
    watch = watch_of(box, monkeypatch)
    assert watch.take_snapshot(30.0) is not None
    process = watch._process
    assert isinstance(process, subprocess.Popen)
    watch.close()
    assert process.returncode is not None


# ---------------------------------------------------------------------------------- who holds without use


@dataclass
class Lazy(Strangers):
    """Devices on which nobody computes, from some moment on."""

    until: float = inf

    def take_snapshot(self, patience: float = 0.0) -> Snapshot:
        now = asyncio.get_running_loop().time()
        busy = 0.9 if now < self.until else 0.0
        devices = self.cluster.nodes[0].devices
        return Snapshot(now, [DeviceState(str(d), d, 16, 4, busy) for d in range(len(devices))])


@pytest.mark.parametrize(("until", "idle"), [(inf, False), (600.0, True), (3500.0, False)])
def test_who_holds_a_device_without_using_it_is_shown(
    caplog: pytest.LogCaptureFixture, until: float, idle: bool
) -> None:
    cluster = one_box(["T4", "T4"])
    world = Lazy(cluster, [], [], until=until)
    found: list[Any] = []
    told: list[tuple[str, str, int]] = []

    async def main() -> None:
        jobs, truth = queue_of([(1.0, 0, 5000.0, 0.0)], cluster)
        jobs = [replace(job, user="ana") for job in jobs]
        loop = asyncio.get_running_loop()
        driver = Driver(
            cluster,
            load_policy("fcfs").policy,
            make_model("mean", MemoryHistory()),
            bound=no_bound,
            options=DriverOptions(policy_name="fcfs"),
        )
        watched = {
            (0, device.name): WatchedDevice((0, device.name), "nvidia", str(d), device.memory)
            for d, device in enumerate(cluster.nodes[0].devices)
        }
        guard = DeviceGuard("avoid", lambda pid: (False, ""), {"nvidia": world}, watched, clock=loop.time)
        guard.notify_idle = lambda job, device, seconds: told.append((job, device, round(seconds / 60)))

        def look(engine: Engine) -> None:
            if loop.time() >= 4000 and not found:
                found.append(guard.device_sights(driver))

        with TemporaryDirectory() as folder:
            claims = Claims("0" * 32, Path(folder))
            neighbours = Neighbours(claims, cluster, lambda words: None, guard)
            live = LiveRun(driver, FakeExecutor(truth), jobs, changed=look, neighbours=neighbours)
            await live.run()
            claims.close()

    run_virtual(main())
    sight = found[0][0, "gpu0"]
    assert (sight.used, found[0][0, "gpu1"].idle) == (4, None)
    assert (sight.idle is not None) is idle
    lines = [record.getMessage() for record in caplog.records if "0 % busy" in record.getMessage()]
    assert lines == (["gpu0 is held by ana (job j0), 0 % busy for 30 min"] if idle else [])
    assert told == ([("j0", "gpu0", 30)] if idle else [])
    if idle:
        assert sight.idle[:2] == ("j0", "ana")
        assert sight.idle[2] == pytest.approx(3400.0, abs=5.0)
