"""Forty jobs as a guest of a busy Slurm queue, beside three fixed rules: on a real cluster, or replayed.

    python benchmarks/guest_mode.py real --load light --seeds 1 2 3 --scale 2
    python benchmarks/guest_mode.py replayed --seeds 20

A job takes some seconds on a CPU, and half to ten times as fast on a GPU; all come at once, while others use
the cluster with walltimes of five times their run times. The rules: Dovetail (``earliest-completion``, its
start-up included), always the kind that is known to be faster, a race (both are submitted, the first start
cancels the other), always the CPU. Figures are mean responses from launch to end, as the jobs saw it.

``real`` starts a Slurm of four virtual nodes on this host (see tests/support/slurm_cluster.py). ``replayed``
stands in for it with first-come queues of three pools, whose foreseen starts count walltimes, as Slurm's do.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from slurm_cluster import NodeShape, SlurmCluster

from dovetail.engine.state.core import Engine, no_bound
from dovetail.model import (
    Cluster,
    Ended,
    Foreseen,
    Inquire,
    Job,
    Preempt,
    Shape,
    Started,
    State,
    Submit,
    Submitted,
    TableTruth,
    Withdrawn,
    Woken,
)
from dovetail.policies.earliest_completion import EarliestCompletion
from dovetail.testing.builders import TrueTimesModel, timed

RULES = ("dovetail", "fastest", "race", "cpu")
FACTORS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""How much faster a GPU is; as many jobs of each."""
COUNT = 40
CPU_SECONDS = 6.0
OTHERS = (6.0, 18.0)
"""Seconds that jobs of others run; their walltime is five times the mean."""
LIMIT = 60.0
LOADS = {"light": 0.4, "heavy": 0.9}
"""The part of each pool that others use."""


def order(seed: int) -> list[float]:
    """Each job's factor."""
    factors = [factor for factor in FACTORS for _ in range(COUNT // len(FACTORS))]
    random.Random(seed).shuffle(factors)
    return factors


# ----------------------------------------------------------------------------------------- a real cluster

SCRIPT = """#!/bin/sh
# job.sh SAID NUMBER SECONDS [LOCK]: with a lock, the first of two cancels the other.
if [ -n "$4" ]; then mkdir "$4" 2>/dev/null || exit 0; scancel --state=PENDING --name="race$2" 2>/dev/null; fi
sleep "$3"
echo "$2 $(date +%s.%N)" >> "$1"
"""


def real(load: str, seeds: Sequence[int], rules: Sequence[str], scale: int) -> None:
    """All rules for each seed, one after the other; all times are ``scale`` times as long."""
    shapes = (NodeShape(2, cpus=4, gpus=0, partition="cpu"), NodeShape(2, cpus=4, gpus=2, partition="gpu"))
    with SlurmCluster(shapes) as cluster, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.sh").write_text(SCRIPT)
        for only in ("cpu", "gpu"):  # the history: two runs of each
            write(folder, folder / "warm", [factor for factor in FACTORS for _ in range(2)], scale)
            dovetail(cluster, folder, f"earliest-completion?only={only}")
        for seed in seeds:
            for rule in rules:
                said = folder / f"{rule}-{seed}"
                found = one_real(cluster, folder, said, load, seed, rule, scale)
                print(load, seed, rule, round(found, 2), flush=True)


def one_real(
    cluster: SlurmCluster, folder: Path, said: Path, load: str, seed: int, rule: str, scale: int
) -> float:
    """The mean response under one rule."""
    over = threading.Event()
    others = threading.Thread(
        target=use, args=(cluster, LOADS[load], random.Random(1000 + seed), over, scale)
    )
    others.start()
    time.sleep(8.0 * scale)
    factors, began = order(seed), time.time()
    if rule == "dovetail":
        write(folder, said, factors, scale)
        dovetail(cluster, folder, "earliest-completion")
    else:
        for number, factor in enumerate(factors):
            submit(cluster, folder, said, number, factor, rule, scale)
    while not said.exists() or said.read_text().count("\n") < COUNT:
        if time.time() - began > 280.0 * scale:
            raise SystemExit(f"{rule}: not all jobs have ended")
        time.sleep(0.3)
    over.set()
    others.join()
    cluster.call("scancel", "-u", str(os.environ.get("USER", "root")), check=False)
    cluster.wait_until_idle()
    return fmean(float(line.split()[1]) - began for line in said.read_text().splitlines())


def use(cluster: SlurmCluster, part: float, rng: random.Random, over: threading.Event, scale: int) -> None:
    """Be the others: so much of the CPUs (two a job) and of the GPUs."""
    pools = {("-p", "cpu,gpu", "-c2"): 8, ("-p", "gpu", "--gres=gpu:1", "-c1"): 4}
    mean = scale * sum(OTHERS) / 2
    for options, slots in pools.items():
        for _ in range(round(slots * part * (1.5 if part > 0.8 else 1.0))):
            other(cluster, options, rng, scale)
    due = {options: rng.expovariate(part * slots / mean) for options, slots in pools.items()}
    began = time.monotonic()
    while not over.is_set():
        options = min(due, key=due.__getitem__)
        if over.wait(max(0.0, began + due[options] - time.monotonic())):
            return
        other(cluster, options, rng, scale)
        due[options] += rng.expovariate(part * pools[options] / mean)


def other(cluster: SlurmCluster, options: Sequence[str], rng: random.Random, scale: int) -> None:
    """One job of theirs."""
    seconds = f"sleep {scale * rng.uniform(*OTHERS):.1f}"
    cluster.call("sbatch", "-J", "other", "-t", str(scale), "-o", "/dev/null", *options, "--wrap", seconds)


def submit(
    cluster: SlurmCluster, folder: Path, said: Path, number: int, factor: float, rule: str, scale: int
) -> None:
    """One job of ours under a fixed rule."""
    kinds = {"cpu": ["cpu"], "race": ["cpu", "gpu"], "fastest": ["gpu" if factor > 1.0 else "cpu"]}[rule]
    lock = [f"{said}.lock{number}"] if rule == "race" else []
    for kind in kinds:
        seconds = scale * CPU_SECONDS / (factor if kind == "gpu" else 1.0)
        where = ["-p", "cpu,gpu", "-c2"] if kind == "cpu" else ["-p", "gpu", "--gres=gpu:1", "-c1"]
        words = [str(folder / "job.sh"), str(said), str(number), str(seconds), *lock]
        cluster.call("sbatch", "-J", f"race{number}", "-t", str(scale), "-o", "/dev/null", *where, *words)


def write(folder: Path, said: Path, factors: Sequence[float], scale: int) -> None:
    """The job file."""
    text = ""
    for factor in FACTORS:
        text += f'[[app]]\nname = "f{factor:g}"\n'
        for kind, cpus, faster in (("cpu", 2, 1.0), ("gpu", 1, factor)):
            words = ["sh", str(folder / "job.sh"), str(said), "{i}", str(scale * CPU_SECONDS / faster)]
            text += f'[[app.implementation]]\nname = "{kind}"\ncpus = {cpus}\n'
            text += f"command = {json.dumps(words)}\n"
    for number, factor in enumerate(factors):
        text += f'[[job]]\napp = "f{factor:g}"\nwalltime = {scale * LIMIT}\ninputs = {{ i = "{number}" }}\n'
    (folder / "jobs.toml").write_text(text)


def dovetail(cluster: SlurmCluster, folder: Path, policy: str) -> None:
    """Run the job file."""
    words = ["run", "jobs.toml", "--executor", "slurm-queue", "--policy", policy, "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "dovetail", *words, "--history", "known.db"],
        cwd=folder,
        env={**cluster.environment, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)


# ---------------------------------------------------------------------------------------------- replayed

Line = tuple[str, bool]
SLOTS: dict[Line, int] = {("cpu", False): 4, ("gpu", False): 4, ("gpu", True): 4}
"""Places of each pool: two CPUs a job on two nodes of four, and their GPUs."""
LOOK = 1.0
"""Seconds between two looks at the queue."""
SBATCH = 0.03
"""Seconds that one sbatch takes."""
START_UP = 1.0
"""Seconds until Dovetail has handed over its first job."""


@dataclass
class Pool:
    """A first-come queue before some places; walltimes bound what is foreseen."""

    slots: int
    waiting: list[tuple[str, float]] = field(default_factory=list)
    running: dict[str, tuple[float, float]] = field(default_factory=dict)  # start, end

    def begin(self, now: float) -> list[tuple[str, float]]:
        """What starts now, and when it ends."""
        found = []
        while self.waiting and len(self.running) < self.slots:
            name, seconds = self.waiting.pop(0)
            self.running[name] = now, now + seconds
            found.append((name, now + seconds))
        return found

    def wait(self, now: float) -> float:
        """Seconds until one more would start if all took their walltimes."""
        ends = [start + LIMIT for start, _ in self.running.values()]
        ends = [now] * (self.slots - len(ends)) + sorted(max(now, end) for end in ends)
        heapq.heapify(ends)
        for _ in self.waiting:
            heapq.heapreplace(ends, ends[0] + LIMIT)
        return ends[0] - now


class Replay:
    """One cluster, others who use it, and forty jobs under one rule."""

    def __init__(self, part: Mapping[Line, float], later: Mapping[Line, float], seed: int) -> None:
        self.pools = {line: Pool(slots) for line, slots in SLOTS.items()}
        self.events: list[tuple[float, int, str, Line, float]] = []
        self.ended: dict[str, float] = {}
        self.started: dict[str, float] = {}
        self.number = 0
        self.now = 0.0
        rng = random.Random(1000 + seed)
        mean = sum(OTHERS) / 2
        for line, slots in SLOTS.items():
            for _ in range(round(slots * part[line] * (1.5 if part[line] > 0.8 else 1.0))):
                self.comes(0.0, line, rng.uniform(*OTHERS))
            at = 0.0
            while at < 400.0:
                at += rng.expovariate((part if at < 25.0 else later)[line] * slots / mean)
                self.comes(at, line, rng.uniform(*OTHERS))

    def comes(self, at: float, line: Line, seconds: float) -> None:
        """A job of others."""
        self.number += 1
        heapq.heappush(self.events, (at, self.number, f"other{self.number}", line, seconds))

    def give(self, name: str, line: Line, seconds: float) -> None:
        """A job of ours, now."""
        self.pools[line].waiting.append((name, seconds))
        self.begin()

    def take(self, name: str, line: Line) -> bool:
        """Take one back that waits; whether it did."""
        pool = self.pools[line]
        left = [one for one in pool.waiting if one[0] != name]
        found = len(left) < len(pool.waiting)
        pool.waiting = left
        return found

    def begin(self) -> None:
        """Start what can start."""
        for line, pool in self.pools.items():
            for name, end in pool.begin(self.now):
                self.started[name] = self.now
                self.number += 1
                heapq.heappush(self.events, (end, self.number, f"!{name}", line, 0.0))
                self.first(name)

    def first(self, name: str) -> None:
        """In a race the other is cancelled."""
        number, _, kind = name.partition("/")
        if kind:
            twin = f"{number}/{'gpu' if kind == 'cpu' else 'cpu'}"
            for line in self.pools:
                self.take(twin, line)

    def until(self, when: float) -> None:
        """Go on to that moment."""
        while self.events and self.events[0][0] <= when:
            self.now, _, name, line, seconds = heapq.heappop(self.events)
            if name.startswith("!"):
                self.ended[name[1:]] = self.now
                del self.pools[line].running[name[1:]]
            else:
                self.pools[line].waiting.append((name, seconds))
            self.begin()
        self.now = when


def pool_of(world: Replay, target: str, devices: bool) -> Line:
    """The pool that Slurm would take of these partitions: where the job starts first."""
    lines = [(name, devices) for name in target.split(",")]
    return min(lines, key=lambda line: world.pools[line].wait(world.now))


def fixed(world: Replay, rule: str, factors: Sequence[float]) -> float:
    """Mean response under a rule that knows no more than the kinds."""
    world.until(8.0)
    began = world.now
    for number, factor in enumerate(factors):
        world.until(began + SBATCH * (number + 1))
        kinds = {"cpu": ["cpu"], "race": ["cpu", "gpu"], "fastest": ["gpu" if factor > 1.0 else "cpu"]}[rule]
        for kind in kinds:
            name = f"{number}/{kind}" if rule == "race" else str(number)
            if rule == "race" and f"{number}/cpu" in world.started:
                break
            line = ("gpu", True) if kind == "gpu" else pool_of(world, "cpu,gpu", False)
            world.give(name, line, CPU_SECONDS / (factor if kind == "gpu" else 1.0))
    while len(found := ours(world)) < COUNT:
        world.until(world.now + LOOK)
    return fmean(at - began for at in found)


def ours(world: Replay) -> list[float]:
    """When jobs of ours have ended, one of each race."""
    return [at for name, at in world.ended.items() if not name.startswith("other")]


def adaptive(world: Replay, factors: Sequence[float]) -> float:
    """Mean response under Dovetail's policy, which hears of what happens once a second."""
    world.until(8.0)
    began = world.now
    world.until(began + START_UP)
    jobs: list[Job] = []
    truth: dict[str, Mapping[str, float]] = {}
    apps = {}
    for number, factor in enumerate(factors):
        times = {"cpu": CPU_SECONDS, "gpu": CPU_SECONDS / factor}
        job, its = timed(str(number), times, index=number, app=apps.get(factor))
        apps.setdefault(factor, job.app)
        jobs.append(replace(job, walltime=LIMIT))
        truth |= its
    engine = Engine(machine(), EarliestCompletion(), TrueTimesModel(TableTruth(truth)), bound=no_bound)
    decided = list(engine.handle_events(world.now, [Submitted(job) for job in jobs]))
    lines: dict[str, Line] = {}
    told: set[str] = set()
    while True:
        while decided:
            answers: list[Foreseen | Withdrawn] = []
            for one in decided:
                if isinstance(one, Inquire):
                    answers.append(foreseen(world, one.shape))
                elif isinstance(one, Submit):
                    lines[one.job] = pool_of(world, one.target, bool(one.request.devices))
                    factor = factors[int(one.job)] if one.implementation == "gpu" else 1.0
                    world.give(one.job, lines[one.job], CPU_SECONDS / factor)
                elif isinstance(one, Preempt) and world.take(one.job, lines[one.job]):
                    answers.append(Withdrawn(one.job))
            decided = list(engine.handle_events(world.now, answers)) if answers else []
        if all(str(number) in told for number in range(COUNT)):
            return fmean(world.ended[str(number)] - began for number in range(COUNT))
        world.until(world.now + LOOK)
        news: list[Started | Ended | Woken] = [
            Started(n) for n in lines if n in world.started and f"s{n}" not in told
        ]
        ends = [n for n in lines if n in world.ended and n not in told]
        told |= {f"s{one.job}" for one in news if isinstance(one, Started)} | set(ends)
        news += [Ended(n, State.COMPLETED) for n in ends]
        decided = list(engine.handle_events(world.now, [*news, Woken()]))


def machine() -> Cluster:
    """Two nodes of four CPUs in ``cpu``, two with two GPUs each in ``gpu``."""
    nodes = Cluster.uniform(4, 4, 2).nodes
    return Cluster(
        tuple(
            replace(node, devices=() if i < 2 else node.devices, partitions=("cpu" if i < 2 else "gpu",))
            for i, node in enumerate(nodes)
        )
    )


def foreseen(world: Replay, shape: Shape) -> Foreseen:
    """What ``sbatch --test-only`` would say."""
    devices = bool(shape.request.devices)
    wait = world.pools[pool_of(world, shape.target, devices)].wait(world.now)
    pools = [world.pools[name, devices] for name in shape.target.split(",")]
    free = sum(pool.slots - len(pool.running) for pool in pools if not pool.waiting)
    return Foreseen(shape, wait, 0 if wait else free)


def replayed(seeds: int) -> None:
    """Each rule's mean over the seeds, in three cells."""
    cpu, gpu = [("cpu", False), ("gpu", False)], [("gpu", True)]

    def parts(on_cpu: float, on_gpu: float) -> dict[Line, float]:
        return {**dict.fromkeys(cpu, on_cpu), **dict.fromkeys(gpu, on_gpu)}

    cells = {
        "light": (parts(0.4, 0.4), parts(0.4, 0.4)),
        "heavy": (parts(0.9, 0.9), parts(0.9, 0.9)),
        "changing": (parts(0.3, 0.95), parts(0.95, 0.1)),
    }
    for cell, (before, after) in cells.items():
        means: dict[str, list[float]] = {rule: [] for rule in RULES}
        for seed in range(seeds):
            factors = order(seed)
            for rule in RULES:
                world = Replay(before, after, seed)
                means[rule].append(
                    adaptive(world, factors) if rule == "dovetail" else fixed(world, rule, factors)
                )
        shown = {rule: round(fmean(found), 2) for rule, found in means.items()}
        best = min(shown[rule] for rule in RULES[1:])
        pairs = fmean(
            log(ours / min(means[rule][n] for rule in RULES[1:])) for n, ours in enumerate(means["dovetail"])
        )
        print(cell, shown, f"over the best {shown['dovetail'] / best:.3f}, over each seed's {exp(pairs):.3f}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    here = commands.add_parser("real")
    here.add_argument("--load", choices=LOADS, default="light")
    here.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    here.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    here.add_argument("--scale", type=int, default=1, help="times as long as said above")
    commands.add_parser("replayed").add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    if given.what == "real":
        real(given.load, given.seeds, given.rules, given.scale)
    else:
        replayed(given.seeds)


if __name__ == "__main__":
    main()
