"""Running the apps of a suite for real: which sizes, on which devices of this machine, and what came out.

Runs go through the live engine into a history, as any run does: each is a process of its own, pinned to its
device's cores, and its time is the whole process's.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from dovetail import api
from dovetail.engine.state.core import Engine
from dovetail.errors import InputError
from dovetail.local.discovery import Inventory, take_inventory
from dovetail.model import (
    CPU,
    App,
    Choice,
    Cluster,
    Command,
    Device,
    DeviceClass,
    Implementation,
    Job,
    Node,
    Record,
    State,
    TableTruth,
    Workload,
    request_for,
)
from dovetail_lab.apps.bench.measured import MeasuredRun, inputs_of
from dovetail_lab.apps.registry import SUITES, find_app

ALONE = 1
"""Memory of a node and of each job while measuring, in place of bytes: so a job has the node to itself."""
DEVICE_KINDS = ("gpu", "opencl", "cuda")
"""Kinds of device that the apps can run on; on ``gpu`` they use ``cuda``."""


@dataclass(frozen=True, slots=True)
class Point:
    """An app at one size; ``role`` is what it is for (small, medium, large, iterations, train, unseen)."""

    app: str
    role: str
    n: int


def app_names(apps: str | None, suite: str = "gregg") -> list[str]:
    """The apps of a list joined by commas, all of the suite for ``None``; raises `InputError`."""
    known = SUITES[suite]
    if apps is None:
        return list(known)
    found = [name.strip() for name in apps.split(",")]
    for name in found:
        if name not in known:
            raise InputError(f"found {name!r}, expected names from {', '.join(known)}", where="--apps")
    return list(dict.fromkeys(found))


def size_points(apps: Iterable[str], sizes: Sequence[str]) -> list[Point]:
    """The apps at their sizes ``small``, ``medium``, ``large``, ``iterations``, or at a number.

    Raises `InputError` for what is none of these.

    Size by size, so that a run that is cut short has seen every app.
    """
    chosen = list(apps)
    found: list[Point] = []
    # Size by size, so that a run that is cut short has seen every app.
    for size in sizes:
        for app in chosen:
            spec = find_app(app)
            known = spec.configuration_of(size)
            if known is not None:
                found.append(Point(app, size, known[0]))
            elif size.isdecimal() and 0 < int(size) <= spec.largest_size:
                found.append(Point(app, size, int(size)))
            else:
                named = "small, medium, large" + (", iterations" if spec.iterations else "")
                raise InputError(
                    f"found {size!r}, expected {named} or a whole number that {app} takes", where="--sizes"
                )
    return found


def sizes_table() -> list[Point]:
    """The sizes of the accuracy study: five or six to learn from and five unseen, an app.

    Unseen sizes lie inside and outside of the range learned from. Apps that pad their input to a power of
    two get powers of two: anything between two of them takes exactly as long as the larger.
    """
    text = resources.files("dovetail_lab.apps.bench").joinpath("sizes.csv").read_text(encoding="utf-8")
    return [Point(row["app"], row["role"], int(row["n"])) for row in csv.DictReader(text.splitlines())]


def two_devices(found: Inventory | None = None) -> Cluster:
    """This machine: what discovery finds if that has a device besides the CPU; else its first two cores.

    Without a GPU, NumPy on the first core and OpenCL (PoCL) on the second are two unlike devices. Without
    PoCL, or with one core only, there is the CPU alone.
    """
    found = take_inventory() if found is None else found
    cluster = found.cluster()
    # A real device is always better than the substitute below.
    if cluster.total_devices or len(found.cores.usable) < 2:
        return cluster
    pocl = next((d for d in found.devices if d.kind == "opencl" and d.model == "pocl"), None)
    if pocl is None:
        return cluster
    # Two cores as two devices: pinned, so that they do not disturb each other.
    first, second = found.cores.usable[:2]
    device = Device("opencl", "pocl", 0, (second,))
    return Cluster((Node("here", (first,), (device,)),), "two cores: NumPy, PoCL")


def suite_workload(
    found: Sequence[Point], cluster: Cluster, repeat: int, rng: np.random.Generator | None = None
) -> Workload:
    """A job for each point, device class of the cluster and repetition, on that class only.

    With ``rng`` every repetition has an order of its own. Each job requests `ALONE`.
    """
    classes = [c for c in cluster.classes if c.kind in (CPU, *DEVICE_KINDS)]
    if not classes:
        raise InputError(f"has none of the devices {', '.join((CPU, *DEVICE_KINDS))}", where="cluster")
    kinds = list(dict.fromkeys(c.kind for c in classes))
    apps = {name: app_of(name, kinds) for name in dict.fromkeys(point.app for point in found)}
    jobs: list[Job] = []
    # By repetition first: a machine that slows down affects all apps alike.
    for turn in range(1, repeat + 1):
        order = range(len(found)) if rng is None else rng.permutation(len(found)).tolist()
        for point in (found[i] for i in order):
            app = apps[point.app]
            for implementation, device in _implementation_places(app, classes):
                request = implementation.request
                if _device_label(device, classes) != device.kind:
                    request = replace(request, models=(device.model,))
                request = replace(request, memory=ALONE)
                many = "-many" if point.role == "iterations" else ""
                kind = "cpu+" if implementation.kind.startswith("cpu+") else ""
                name = f"{point.app}-{point.n}{many}-{kind}{_device_label(device, classes)}-{turn}"
                choices = (Choice(implementation, request),)
                inputs = inputs_of(point.app, point.role, point.n)
                jobs.append(Job(name, app, choices, index=len(jobs), inputs=inputs))
    return Workload("bench", jobs, TableTruth())


def _device_label(device: DeviceClass, classes: Sequence[DeviceClass]) -> str:
    """The kind, with the model where the machine has several of the kind."""
    return device.kind if sum(c.kind == device.kind for c in classes) == 1 else str(device)


def _implementation_places(
    app: App, classes: Sequence[DeviceClass]
) -> Iterable[tuple[Implementation, DeviceClass]]:
    """Each implementation with each device class that it can use."""
    for device in classes:
        for implementation in app.implementations:
            if implementation.kind.removeprefix("cpu+") == device.kind:
                yield implementation, device


def app_of(name: str, kinds: Sequence[str], program: Sequence[str] = (sys.executable,)) -> App:
    """The app under the name and with the implementations that a job file's ``on`` gives it.

    Apps that run on several nodes also run on the CPU and an OpenCL device at once.
    """
    spec = find_app(name)
    rest = ("--n", "{n}") + (("--iterations", "{iterations}") if spec.iterations else ())
    both = [f"cpu+{kind}" for kind in kinds if spec.nodes and kind == "opencl"]
    made = []
    for kind in (*kinds, *both):
        device = kind if kind in both else "{device}"
        command = (*program, "-m", "dovetail.apps", name, "--device", device, *rest)
        made.append(Implementation(kind, kind, request_for(kind), Command(command)))
    return App(name, tuple(made))


def measure_suite(
    found: Sequence[Point],
    cluster: Cluster,
    *,
    repeat: int,
    history: Path | None = None,
    run_dir: Path | None = None,
    changed: Callable[[Engine], None] | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[list[MeasuredRun], list[Record]]:
    """Run all points on all devices, for real; what completed, and the records of what did not.

    One run at a time on each node: beside one on another device, which shares its caches and memory, a run
    takes longer, and its time varies. With ``rng`` in random order: a run's time depends on what ran before
    it, which would else be the same in every repetition. An interruption ends what runs and cancels the rest.
    """
    workload = suite_workload(found, cluster, repeat, rng)
    cluster = replace(cluster, nodes=tuple(replace(node, memory=ALONE) for node in cluster.nodes))
    report = api.run(
        workload, cluster=cluster, policy="best-device", history=history, run_dir=run_dir, changed=changed
    )
    roles = {(p.app, *inputs_of(p.app, p.role, p.n).values()): p.role for p in found}
    classes = [c for c in cluster.classes if c.kind in (CPU, *DEVICE_KINDS)]
    done: list[MeasuredRun] = []
    undone: list[Record] = []
    for record in report.result.records:
        seconds = record.took
        if record.state is not State.COMPLETED or seconds is None or record.implementation is None:
            undone.append(record)
            continue
        n = int(record.job.inputs["n"])
        usage = record.usage
        moved = 0.0 if usage is None else (usage.sent_time or 0.0) + (usage.received_time or 0.0)
        spent = 0.0 if usage is None else usage.cpu_time or 0.0
        name = record.job.app.name
        models = record.job.choices[0].request.models
        both, _, kind = record.implementation.kind.rpartition("+")
        device = next(c for c in classes if c.kind == kind and (not models or c.model in models))
        label = f"cpu+{_device_label(device, classes)}" if both else _device_label(device, classes)
        role = roles[name, *record.job.inputs.values()]
        done.append(MeasuredRun(name, label, role, n, seconds, spent, moved))
    return done, undone
