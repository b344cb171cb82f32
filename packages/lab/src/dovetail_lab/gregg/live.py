"""Gregg 2011, Figures 3 to 5, run for real: the sixteen apps on this machine's CPU and one other device.

A round is a random order of the queue under every placement. First everything on the CPU, then everything on
the device: what these runs took is what the trained history knows, and what the simulation calls true. The
other placements start from a copy of it, `cold` from nothing. Figure 5 has the apps that were faster on the
device in the first round.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dovetail
from dovetail.errors import InputError
from dovetail.model import (
    CPU,
    App,
    Choice,
    Cluster,
    Command,
    Device,
    Implementation,
    Job,
    JobId,
    Node,
    Result,
    Seconds,
    TableTruth,
    Workload,
    request_for,
)
from dovetail.report.intervals import Interval, mean_interval
from dovetail.workloads.edit import shuffle_together
from dovetail_lab.apps.bench.measured import inputs_of
from dovetail_lab.apps.bench.suite import DEVICE_KINDS, app_of, two_devices
from dovetail_lab.apps.registry import APPS
from dovetail_lab.claims import Constant
from dovetail_lab.gregg.placements import FIGURE_3, FIGURE_5, STATIC, cpu_utilisation
from dovetail_lab.live import check_completed, slowdown_factor
from dovetail_lab.published.gregg import TABLE_2

MODEL = "least-squares"
"""The paper's."""
CONSTANT = Constant(
    "live_sizes",
    ("mixed",),
    "sizes of the apps that run: mixed (some are faster on a core, some on the device), small, medium, large",
    among=("mixed", "small", "medium", "large"),
)
MIXED = {
    "binarysearch": 1 << 20,
    "bitonicsort": 1 << 20,
    "fastwalsh": 1 << 23,
    "dct": 4000,
    "dwthaar1d": 1 << 23,
    "eigenvalue": 256,
    "fft": 1 << 23,
    "floydwarshall": 1000,
    "matmul": 1024,
    "transpose": 4096,
    "prefixsum": 1 << 22,
    "quasirandom": 1 << 22,
    "reduction": 1 << 25,
    "scan": 1 << 23,
    "convolution": 5100,
    "sobel": 7000,
}
"""Each takes 0.1 to 1.4 s; four to six are faster on PoCL than in NumPy, both on a core of an AMD EPYC."""


@dataclass(frozen=True, slots=True)
class PaperTimes:
    """Table 2's seconds, with what an application takes beside its kernel, times ``scale``.

    The costs are those of the one clock on which the paper's 29, 39 and 17 % come out together.
    """

    scale: float = 0.5
    gpu_cost: Seconds = 0.46
    cpu_cost: Seconds = 0.56

    def seconds(self, app: str) -> dict[str, Seconds]:
        """How long it takes here, by kind of device."""
        gpu, cpu = next((gpu, cpu) for name, gpu, cpu in TABLE_2 if name == app)
        return {
            DEVICE: self.scale * (gpu / 1000 + self.gpu_cost),
            CPU: self.scale * (cpu / 1000 + self.cpu_cost),
        }

    @property
    def faster(self) -> tuple[str, ...]:
        """The apps of Figure 5, by the table: of some the two times differ by less than a start costs."""
        return tuple(name for name, gpu, cpu in TABLE_2 if gpu < cpu)


DEVICE = "opencl"
"""What stands for the paper's GPU where programs only take its time."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How the queue is placed: a policy, what it knows, of which figure; the paper's seconds and CPU use."""

    name: str
    policy: str
    figure: int
    trained: bool
    paper: Seconds | None = None
    paper_cpu: float | None = None


PLACEMENTS = (
    Placement("cpu-only", "cpu-only", 3, False),
    Placement("gpu-only", "gpu-only", 3, False, FIGURE_3["gpu-only"]),
    Placement("static", "best-device", 3, True, FIGURE_3["static"], FIGURE_3[STATIC]),
    Placement("cold", "history", 3, False),
    Placement("dynamic", "history", 3, True, FIGURE_3["dynamic"], FIGURE_3["cpu_utilisation"]),
    Placement("gpu-only-5", "gpu-only", 5, False, FIGURE_5["gpu-only"], 0.0),
    Placement("dynamic-5", "history", 5, True, FIGURE_5["dynamic"], FIGURE_5["cpu_utilisation"]),
)
"""Those of Figures 3 and 4, and of Figure 5."""
TEACHERS = ("cpu-only", "gpu-only")
"""Each app runs alone there: their times are learned from."""


@dataclass(frozen=True, slots=True)
class LivePlacement:
    """One placement in one round: live, and simulated from the times measured; seconds and shares.

    ``slower``: by what factor the jobs took longer than their median when they ran alone.
    """

    seconds: Seconds
    cpu: float
    slower: float
    simulated: Seconds
    simulated_cpu: float


@dataclass(frozen=True)
class Live:
    """All rounds by the placement's name; ``alone`` are median seconds by app and device kind."""

    machine: str
    device: str
    sizes: dict[str, int]
    alone: dict[str, dict[str, Seconds]]
    faster: tuple[str, ...]
    rounds: dict[str, list[LivePlacement]]
    times: PaperTimes | None = None

    @property
    def scale(self) -> float:
        """Our seconds for one of the paper's."""
        return 1.0 if self.times is None else self.times.scale

    def mean_over_rounds(self, name: str, value: Callable[[LivePlacement], float]) -> Interval | None:
        """Mean of a placement over the rounds."""
        return mean_interval(map(value, self.rounds.get(name, ())))

    def paired_figures(
        self, one: str, other: str, value: Callable[[Seconds, Seconds], float]
    ) -> tuple[Interval | None, Interval | None]:
        """A figure of two placements' seconds, round by round: live, and simulated."""
        pairs = list(zip(self.rounds.get(one, ()), self.rounds.get(other, ()), strict=True))
        return (
            mean_interval(value(a.seconds, b.seconds) for a, b in pairs),
            mean_interval(value(a.simulated, b.simulated) for a, b in pairs),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "machine": self.machine,
            "device": self.device,
            "sizes": self.sizes,
            "times": "measured" if self.times is None else {"table2": self.times},
            "alone": self.alone,
            "faster_on_device": list(self.faster),
            "placements": [
                {
                    "name": p.name,
                    "policy": p.policy,
                    "figure": p.figure,
                    "trained": p.trained,
                    "paper": p.paper,
                    "paper_cpu_utilisation": p.paper_cpu,
                    "rounds": self.rounds[p.name],
                }
                for p in PLACEMENTS
                if p.name in self.rounds
            ],
        }


def one_of_each(found: Cluster | None = None) -> Cluster:
    """This machine's CPU and one other device, as in the paper; raises `InputError` where one is missing."""
    cluster = two_devices() if found is None else found
    # One device only, as in the paper: further ones would change every figure.
    for node in cluster.nodes:
        device = next((device for device in node.devices if device.kind in DEVICE_KINDS), None)
        if node.cores and device is not None:
            return Cluster((replace(node, devices=(device,)),), cluster.label)
    kinds = ", ".join(dict.fromkeys(c.kind for c in cluster.classes)) or "no device"
    raise InputError(
        f"found {kinds} only, expected a CPU and one other device: a GPU, or PoCL and two cores "
        "(dovetail devices lists what is here)",
        where="--live",
    )


def made_up_pair() -> Cluster:
    """A core and something that stands for a device: programs that only take their time need no more."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    device = Device(DEVICE, "table2", 0, cores[1:2] or cores[:1])
    return Cluster((Node("here", cores[:1], (device,)),), "programs that take the times of Table 2")


def run_live(
    cluster: Cluster,
    *,
    rounds: int = 3,
    sizes: str = "mixed",
    seed: int = 1,
    apps: Sequence[str] | None = None,
    times: PaperTimes | None = None,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Live:
    """Run the apps under every placement, round by round, on a cluster as `one_of_each` gives it.

    With ``times`` the apps are those of Table 2 and take the paper's times. ``progress`` gets how many of how
    many runs of the whole queue are done. Raises `InputError` where an app fails.
    """
    kind = cluster.nodes[0].devices[0].kind
    chosen: dict[str, int] = {}
    if times is None:
        for name in apps or APPS:
            chosen[name] = MIXED[name] if sizes == "mixed" else getattr(APPS[name].sizes, sizes)
        everything = _device_queue(chosen, kind)
    else:
        everything = _timed(times, apps or [name for name, _, _ in TABLE_2])
    rng = np.random.Generator(np.random.PCG64(seed))
    runs: list[tuple[Placement, Workload, Result]] = []
    total = (len(TEACHERS) if times is None else 0) + rounds * len(PLACEMENTS)
    done = 0

    with tempfile.TemporaryDirectory(prefix="dovetail-gregg-live-") as temporary:
        folder = Path(temporary)
        taught = folder / "taught.sqlite"

        def run_placement(workload: Workload, policy: str, history: Path) -> Result:
            nonlocal done
            before = done

            report = dovetail.run(
                workload,
                cluster=cluster,
                policy=policy,
                model=MODEL,
                history=history,
                run_dir=folder / f"run-{done}",
                changed=lambda engine: progress(
                    before + sum(r.end is not None for r in engine.records.values()) / len(workload.jobs),
                    total,
                ),
            )
            check_completed(report.result.records, "--live")
            done += 1
            return report.result

        # The first run of a kernel builds it, the first of a program reads its files: small ones, not kept.
        if times is None:
            warm = _device_queue({name: APPS[name].sizes.small for name in chosen}, kind)
            for policy in TEACHERS:
                run_placement(warm, policy, folder / "warm.sqlite")
        faster: tuple[str, ...] = ()
        for number in range(rounds):
            queue = shuffle_together(everything, rng)
            # The teachers first; the others in another order each round, since machines have slow minutes.
            rest = [p for p in PLACEMENTS if p.name not in TEACHERS]
            for p in (*PLACEMENTS[: len(TEACHERS)], *(rest[i] for i in rng.permutation(len(rest)))):
                teaches = p.name in TEACHERS
                jobs = queue if p.figure == 3 else _select_jobs(queue, faster)
                if len(jobs.jobs) < 2:
                    continue
                history = taught if teaches else folder / f"{p.name}-{number}.sqlite"
                if p.trained:
                    shutil.copy(taught, history)
                runs.append((p, jobs, run_placement(jobs, p.policy, history)))
                if p.name == "gpu-only" and not number:
                    faster = _faster_apps(_median_alone(runs), kind) if times is None else times.faster
        alone = _median_alone(runs)
        truth = TableTruth({(app, on, 1): t for app, own in alone.items() for on, t in own.items()})
        found: dict[str, list[LivePlacement]] = {}
        for p, jobs, result in runs:
            simulated = _simulate_queue(replace(jobs, truth=truth), cluster, p, folder / "none.sqlite")
            found.setdefault(p.name, []).append(
                LivePlacement(
                    result.makespan,
                    cpu_utilisation(result),
                    slowdown_factor(result.records, truth.table),
                    simulated.makespan,
                    cpu_utilisation(simulated),
                )
            )
    return Live(cluster.label, kind, chosen, alone, faster, found, times)


def _device_queue(sizes: dict[str, int], kind: str) -> Workload:
    """A job of each app, with an implementation for the CPU and one for the device."""
    jobs: list[Job] = []
    for name, n in sizes.items():
        app = app_of(name, (CPU, kind))
        choices = tuple(Choice(form, form.request) for form in app.implementations)
        jobs.append(Job(name, app, choices, index=len(jobs), inputs=inputs_of(name, "", n)))
    return Workload("gregg, live", jobs, TableTruth())


def _timed(times: PaperTimes, names: Sequence[str]) -> Workload:
    """A job of each application of Table 2: a program that sleeps for the paper's time on each device."""
    jobs: list[Job] = []
    for name in names:
        forms = [
            Implementation(kind, kind, request_for(kind), Command(("sleep", f"{seconds:.6f}")))
            for kind, seconds in sorted(times.seconds(name).items())
        ]
        choices = tuple(Choice(form, form.request) for form in forms)
        jobs.append(Job(name, App(name, tuple(forms)), choices, index=len(jobs)))
    return Workload("gregg, live, the paper's times", jobs, TableTruth())


def _select_jobs(workload: Workload, names: Sequence[str]) -> Workload:
    # Indices begin anew: they are the order of the queue, without gaps.
    kept = [job for job in workload.jobs if job.id in names]
    return replace(workload, jobs=[replace(job, index=i) for i, job in enumerate(kept)])


def _median_alone(runs: Sequence[tuple[Placement, Workload, Result]]) -> dict[str, dict[str, Seconds]]:
    """Median seconds by app and device kind where each ran alone."""
    times: dict[JobId, dict[str, list[Seconds]]] = {}
    for placement, _, result in runs:
        for record in result.records if placement.name in TEACHERS else ():
            assert record.implementation is not None
            assert record.took is not None
            times.setdefault(record.job.id, {}).setdefault(record.implementation.kind, []).append(record.took)
    return {app: {kind: median(own) for kind, own in on.items()} for app, on in sorted(times.items())}


# The median of the rounds: a machine has slow minutes, which one run cannot distinguish from a slow app.


def _faster_apps(alone: dict[str, dict[str, Seconds]], kind: str) -> tuple[str, ...]:
    """The apps that are faster on the device, as the thirteen of Figure 5."""
    return tuple(app for app, own in alone.items() if own[kind] < own[CPU])


def _simulate_queue(workload: Workload, cluster: Cluster, placement: Placement, nothing: Path) -> Result:
    """The same queue with the times measured; `cold` knows nothing of them, as when it ran."""
    if placement.name == "cold":
        return dovetail.simulate(
            workload,
            cluster=cluster,
            policy=placement.policy,
            knowledge="learned",
            model=MODEL,
            history=nothing,
        ).result
    return dovetail.simulate(workload, cluster=cluster, policy=placement.policy).result
